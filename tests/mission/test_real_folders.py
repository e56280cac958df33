"""Folders as people have them: equal files, empty files, files of a tokenizer beside the text."""

import json
import warnings

import pytest
from kit import QUICK

import tokenloom as tl
from tokenloom import cluster

LICENSE = "Permission is hereby granted.\n"


@pytest.fixture
def folder(tmp_path):
    """Two texts, the same license in two places, and two empty files."""
    top = tmp_path / "corpus"
    for name, text in {
        "a.txt": "first",
        "b/b.txt": "second",
        "LICENSE.md": LICENSE,
        "b/LICENSE.md": LICENSE,
        "b/__init__.py": "",
        "c/__init__.py": "",
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def build(inputs, out, **options):
    return tl.build(inputs, out, **{"tokenizer": "bytes", "files": QUICK} | options)


def text_of(store):
    return [bytes(one.astype("u1")).decode() for one in store.documents(range(len(store)))]


def test_a_folder_with_equal_files_is_built_with_one_warning_that_counts_them(folder, tmp_path):
    with pytest.warns(UserWarning, match=r"1 of 6 inputs.*LICENSE\.md") as caught:
        store = build(folder, tmp_path / "s")
    assert len(caught) == 1
    assert text_of(store).count(LICENSE) == 2
    assert store.num_documents == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(folder, tmp_path / "s").digest == store.digest  # it is there: only opened


def test_duplicates_are_refused_before_anything_is_written_where_it_is_asked_for(folder, tmp_path):
    with pytest.raises(tl.InputError, match=r"duplicates.*LICENSE\.md"):
        build(folder, tmp_path / "s", duplicates="error")
    assert not (tmp_path / "s").exists()
    store = build(folder, tmp_path / "s", duplicates="allow")
    with pytest.raises(tl.InputError, match=r"LICENSE\.md"):  # also of a store that is there
        build(folder, tmp_path / "s", duplicates="error")
    assert tl.open(tmp_path / "s").digest == store.digest


def test_duplicates_that_are_meant_earn_no_warning(folder, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(folder, tmp_path / "s", duplicates="allow").num_documents == 6
        empty = [folder / "b/__init__.py", folder / "c/__init__.py", folder / "a.txt"]
        assert build(empty, tmp_path / "t").num_documents == 3


@pytest.mark.parametrize("value", [None, True, "skip", 1])
def test_another_word_for_duplicates_is_refused(folder, tmp_path, value):
    with pytest.raises(tl.ConfigError, match="duplicates"):
        build(folder, tmp_path / "s", duplicates=value)


def test_what_is_appended_again_earns_the_same_warning(folder, tmp_path):
    first = build([folder / "a.txt", folder / "LICENSE.md"], tmp_path / "s")
    more = [folder / "b/b.txt", folder / "b/LICENSE.md"]
    with pytest.raises(tl.InputError, match=r"b/LICENSE\.md"):
        build(more, tmp_path / "s", append=True, duplicates="error")
    assert tl.open(tmp_path / "s").snapshot == first.snapshot
    with pytest.warns(UserWarning, match=r"1 of 2 inputs.*b/LICENSE\.md"):
        store = build(more, tmp_path / "s", append=True)
    assert text_of(store) == ["first", LICENSE, "second", LICENSE]


def test_parts_find_the_same_duplicates(folder, tmp_path):
    for part in ("1/2", "2/2"):
        cluster.build_part(folder, tmp_path / "s", part, tokenizer="bytes")
    with pytest.raises(tl.InputError, match=r"LICENSE\.md"):
        cluster.finish_build(folder, tmp_path / "s", tokenizer="bytes", duplicates="error")
    with pytest.warns(UserWarning, match="1 of 6 inputs"):
        store = cluster.finish_build(folder, tmp_path / "s", tokenizer="bytes")
    assert store.num_documents == 6


def test_the_command_takes_the_same_words(folder, tmp_path, cli):
    typed = ["build", folder, "-o", tmp_path / "s", "--tokenizer", "bytes", "--duplicates"]
    assert "--duplicates" in cli(*typed, "error", code=3)
    assert not (tmp_path / "s").exists()
    cli(*typed, "allow")
    assert tl.open(tmp_path / "s").num_documents == 6


OF_A_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@pytest.fixture
def with_tokenizer(tmp_path):
    """A folder of records with the files of a tokenizer in it."""
    top = tmp_path / "data"
    top.mkdir()
    (top / "a.jsonl").write_text(json.dumps({"text": "abc"}) + "\n")
    for name in OF_A_TOKENIZER:
        (top / name).write_text(json.dumps({"model": {}, "version": "1.0"}, indent=1))
    (top / "merges.txt").write_text("#version: 0.2\na b\n")
    return top


@pytest.mark.parametrize("inputs", ["", "/*", "/*.json*", "/**/*"])
def test_files_of_a_tokenizer_in_a_folder_are_skipped_with_a_warning(
    with_tokenizer, tmp_path, inputs
):
    with pytest.warns(UserWarning, match=r"skipped.*tokenizer\.json") as caught:
        store = build(f"{with_tokenizer}{inputs}", tmp_path / "s")
    assert len(caught) == 1
    assert text_of(store) == ["abc"]


def test_a_file_of_that_name_is_read_if_it_is_named(with_tokenizer, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_name = build(f"lines:{with_tokenizer}/merges.txt", tmp_path / "a")
        by_glob = build(f"lines:{with_tokenizer.parent}/*/merges.txt", tmp_path / "b")
    assert text_of(by_name) == text_of(by_glob) == ["#version: 0.2", "a b"]


def test_a_folder_of_nothing_but_a_tokenizer_holds_no_inputs(with_tokenizer, tmp_path):
    (with_tokenizer / "a.jsonl").unlink()
    with pytest.raises(tl.InputError, match="data"), pytest.warns(UserWarning, match="skipped"):
        build(with_tokenizer, tmp_path / "s")


def test_files_of_a_tokenizer_in_a_bucket_are_skipped_too(bucket, tmp_path):
    bucket.put("data/a.jsonl", b'{"text": "abc"}\n')
    bucket.put("data/tokenizer.json", b'{"model": {}}')
    with pytest.warns(UserWarning, match=r"skipped.*tokenizer\.json"):
        assert text_of(build(f"{bucket.url}/data", tmp_path / "s")) == ["abc"]


def test_a_wrong_tokenizer_is_reported_before_an_input_is_read(folder, tmp_path, capsys):
    taken = []

    def records():
        for number in range(1000):
            taken.append(number)
            yield {"text": "abc"}

    with pytest.raises(tl.TokenizerError, match="no_such"):
        build(records(), tmp_path / "s", tokenizer="./no_such_tokenizer.json")
    assert not taken
    with pytest.raises(tl.TokenizerError, match="no_such"):
        build(folder, tmp_path / "s", tokenizer="./no_such_tokenizer.json", progress=True)
    assert "inputs" not in capsys.readouterr().err  # the bar of hashing


def test_a_wrong_key_is_reported_before_inputs_are_hashed(folder, tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "abc"}\n' * 10)
    with pytest.raises(tl.ConfigError, match="columns"):
        build(file, tmp_path / "s", columns=["loss_mask"], progress=True)
    assert "inputs" not in capsys.readouterr().err
