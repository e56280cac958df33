"""A build: from files and records to a store, again, further, with hooks and specials."""

import functools
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zstandard
from kit import QUICK
from refusals import refused

import tokenloom as tl

TINY = {"block_bytes": 300, "inner": 32, "shard_tokens": 500, "files": QUICK}


def records(count=60, start=0):
    return [
        {"text": f"döc {i} " * (i % 17), "id": f"d{i}", "lang": "en", "score": i / 4}
        for i in range(start, start + count)
    ]


def write_jsonl(path: Path, rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tree(root: Path) -> dict[str, bytes]:
    """Every file of a store but the lock."""
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name != ".lock"
    }


def texts(store):
    return [bytes(d.astype(np.uint8)).decode() for d in store.documents(range(store.num_documents))]


def test_other_fields_of_a_record_are_its_metadata(tmp_path):
    source = write_jsonl(tmp_path / "c/a.jsonl", records())
    store = tl.build(source, tmp_path / "s", tokenizer="bytes", id_key="id", **TINY)
    assert store.metadata(17) == {
        "_input": "a.jsonl",
        "_record": 17,
        "id": "d17",
        "lang": "en",
        "score": 17 / 4,
    }


def test_every_kind_of_input_gives_the_same_documents(tmp_path):
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = records(40)
    plain = write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet", row_group_size=7)
    dataset = datasets.Dataset.from_list(rows)
    dataset.save_to_disk(str(tmp_path / "saved"))
    inputs = {
        "plain": plain,
        "gz": tmp_path / "b.jsonl.gz",
        "zst": f"jsonl:{tmp_path / 'c.jsonl.zst'}",
        "parquet": f"parquet:{tmp_path / 'd.parquet'}",
        "saved": f"hf:{tmp_path / 'saved'}",
        "object": dataset,
        "rows": rows,
    }
    digests, metadata = set(), set()
    for name, one in inputs.items():
        store = tl.build(one, tmp_path / "stores" / name, tokenizer="bytes", id_key="id", **TINY)
        row = store.metadata(23)
        del row["_input"]
        digests.add(store.digest)
        metadata.add(json.dumps(row, sort_keys=True))
    assert len(digests) == len(metadata) == 1


def test_text_files_are_documents_and_lines_are_too_if_asked(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c/a.txt").write_text("one\ntwo\n")
    (tmp_path / "c/b.txt").write_text("three")
    store = tl.build(f"txt:{tmp_path}/c/*.txt", tmp_path / "files", tokenizer="bytes")
    assert texts(store) == ["one\ntwo\n", "three"]
    assert [store.metadata(i)["_input"] for i in range(2)] == ["a.txt", "b.txt"]
    lines = tl.build(f"lines:{tmp_path}/c/a.txt", tmp_path / "lines", tokenizer="bytes")
    assert texts(lines) == ["one", "two"]


def test_the_same_call_again_opens_what_is_there_and_writes_nothing(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", records())
    first = tl.build(source, tmp_path / "s", tokenizer="bytes", **TINY)
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")}
    again = tl.build(source, tmp_path / "s", tokenizer="bytes", workers=2, **TINY)
    assert again.manifest_sha256 == first.manifest_sha256
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")} == times


def test_a_store_with_other_settings_or_inputs_is_refused_and_the_difference_named(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", records())
    tl.build(source, tmp_path / "s", tokenizer="bytes", **TINY)
    before = tree(tmp_path / "s")
    with pytest.raises(tl.StoreExists, match="id_key"):
        tl.build(source, tmp_path / "s", tokenizer="bytes", id_key="id", **TINY)
    write_jsonl(source, records(61))
    with pytest.raises(FileExistsError, match="inputs"):
        tl.build(source, tmp_path / "s", tokenizer="bytes", **TINY)
    assert tree(tmp_path / "s") == before


def test_an_unfinished_build_continues_after_its_last_shard(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", records(50))
    tl.build(source, tmp_path / "whole", tokenizer="bytes", **TINY)
    whole = tree(tmp_path / "whole")
    shards = len(list((tmp_path / "whole").glob("shard-*")))
    for kept in (0, 1, shards // 2, shards):
        target = tmp_path / f"part{kept}"
        target.mkdir()
        for name, data in whole.items():
            if name.startswith("shard") and int(name[6:11]) < kept:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(data)
        there = {path: path.stat().st_mtime_ns for path in target.glob("shard-*/*/c/0")}
        tl.build(source, target, tokenizer="bytes", **TINY)
        assert tree(target) == whole
        assert {path: path.stat().st_mtime_ns for path in there} == there  # not written again


def test_remains_of_another_unfinished_build_are_refused(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", records())
    tl.build(source, tmp_path / "s", tokenizer="bytes", **TINY)
    (tmp_path / "s/manifest-000001.json").unlink()
    with pytest.raises(tl.StoreExists, match="unfinished"):
        tl.build(source, tmp_path / "s", tokenizer="bytes", id_key="id", **TINY)


def test_an_append_is_a_new_snapshot_and_the_old_one_stays(tmp_path):
    first = write_jsonl(tmp_path / "a.jsonl", records(30))
    more = write_jsonl(tmp_path / "b.jsonl", records(20, start=30))
    old = tl.build(first, tmp_path / "s", tokenizer="bytes", id_key="id", **TINY)
    kept = tree(tmp_path / "s")
    new = tl.build(more, tmp_path / "s", tokenizer="bytes", id_key="id", append=True, **TINY)
    assert (old.snapshot, new.snapshot) == (1, 2)
    assert texts(new) == [r["text"] for r in records(50)]
    assert texts(old) == [r["text"] for r in records(30)]
    assert new.metadata(31) == {**new.metadata(31), "_input": "b.jsonl", "_record": 1, "id": "d31"}
    assert kept.items() <= tree(tmp_path / "s").items()
    assert new.verify().ok
    again = tl.build(more, tmp_path / "s", tokenizer="bytes", id_key="id", append=True, **TINY)
    assert again.snapshot == 2


def test_an_append_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(tl.StoreNotFound, match="s"):
        tl.build(records(3), tmp_path / "s", tokenizer="bytes", append=True)
    tl.build(records(3), tmp_path / "s", tokenizer="bytes")
    with pytest.raises(tl.StoreExists, match="vocab_size"):
        tl.build([{"input_ids": [1]}], tmp_path / "s", tokenizer=None, vocab_size=9, append=True)
    source = write_jsonl(tmp_path / "a.jsonl", records(5, 50))
    tl.build(source, tmp_path / "s", tokenizer="bytes", append=True)
    tl.build(records(2, 90), tmp_path / "s", tokenizer="bytes", append=True)
    copy = write_jsonl(tmp_path / "copy.jsonl", records(5, 50))
    with pytest.raises(tl.InputError, match=r"copy\.jsonl.*a\.jsonl"):
        tl.build(copy, tmp_path / "s", tokenizer="bytes", append=True, duplicates="error")
    assert tl.open(tmp_path / "s").snapshot == 3
    doubled = tl.build(copy, tmp_path / "s", tokenizer="bytes", append=True, duplicates="allow")
    assert doubled.num_documents == 3 + 5 + 2 + 5


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{not json", ["JSON"]),
        ('{"txt": "a"}', ["'text'", "txt"]),
        ('{"text": 5}', ["'text'", "int"]),
        ('{"text": null}', ["'text'"]),
    ],
)
def test_bad_records_are_named_by_file_and_line_and_nothing_is_published(tmp_path, line, named):
    path = tmp_path / "a.jsonl"
    good = [json.dumps(r) for r in records(40)]
    path.write_text("\n".join([*good[:33], line, *good[33:]]) + "\n")
    build = functools.partial(tl.build, path, tmp_path / "s", tokenizer="bytes", **TINY)
    refused(build, tl.InputError, "a.jsonl", "record 33", "line 34", *named)
    with pytest.raises(tl.StoreNotFound):
        tl.open(tmp_path / "s")


def test_skipped_records_are_listed_over_a_resume_too(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(r) if i % 9 else "oops" for i, r in enumerate(records(90))]
    path.write_text("\n".join(lines))
    options = {"tokenizer": "bytes", "on_error": "skip", "id_key": "id", **TINY}
    store = tl.build(path, tmp_path / "s", **options)
    assert store.num_documents == 80
    places = (tmp_path / "s/skipped-000001.jsonl").read_text().splitlines()
    found = [place for place in map(json.loads, places) if place["reason"].startswith("skipped")]
    assert [place["record"] for place in found] == list(range(0, 90, 9))
    whole = tree(tmp_path / "s")
    (tmp_path / "s/manifest-000001.json").unlink()
    shutil.rmtree(sorted((tmp_path / "s").glob("shard-*"))[-1])
    again = tl.build(path, tmp_path / "s", **options)
    assert whole == tree(tmp_path / "s")
    assert [again.metadata(i)["_record"] for i in range(80)] == [i for i in range(90) if i % 9]


# -- specials ------------------------------------------------------------------------------


def spell(text):
    return [ord(c) for c in text]


def test_specials_are_added_only_where_they_exist(tmp_path):
    def build(name, **options):
        store = tl.build(
            [{"text": "ab"}, {"text": ""}],
            tmp_path / name,
            tokenizer=spell,
            vocab_size=300,
            **options,
        )
        return [d.tolist() for d in store.documents([0, 1])]

    assert build("a") == [[97, 98], []]
    assert build("b", eos=256) == [[97, 98, 256], [256]]
    assert build("c", eos=256, add_eos=False) == [[97, 98], []]
    assert build("d", bos=0, eos=256, add_bos=True) == [[0, 97, 98, 256], [0, 256]]
    assert build("e", bos=0, eos=0, pad=0, add_bos=True) == [[0, 97, 98, 0], [0, 0]]
    assert build("f", bos=0) == [[97, 98], []]


def test_a_missing_special_is_one_warning_or_an_error_if_strict(tmp_path):
    with pytest.warns(UserWarning, match="add_eos") as seen:
        tl.build(records(40), tmp_path / "a", tokenizer="bytes", add_eos=True, **TINY)
    assert len(seen) == 1
    with pytest.raises(tl.TokenizerError, match="add_bos"):
        tl.build(records(4), tmp_path / "b", tokenizer="bytes", add_bos=True, strict=True)


def test_an_id_outside_the_vocabulary_is_refused_and_nothing_published(tmp_path):
    with pytest.raises(tl.TokenizerError, match="97"):
        tl.build([{"text": "a"}], tmp_path / "s", tokenizer=spell, vocab_size=50)
    with pytest.raises(tl.ConfigError, match="vocab_size"):
        tl.build([{"text": "a"}], tmp_path / "s", tokenizer=spell)
    for bad in (-1, 65_536, 2**31):
        with pytest.raises(tl.TokenizerError, match=str(bad)):
            tl.build([{"input_ids": [bad]}], tmp_path / "s", tokenizer=None, vocab_size=65_536)
    with pytest.raises(tl.StoreNotFound):
        tl.open(tmp_path / "s")


# -- ready-made ids ------------------------------------------------------------------------


def test_ready_made_ids_and_their_columns_are_kept_exactly(tmp_path):
    rows = [
        {
            "input_ids": list(range(i)),
            "loss_mask": [j % 2 for j in range(i)],
            "loss_weights": [j % 2 * j / 2 for j in range(i)],
            "name": f"n{i}",
        }
        for i in range(20)
    ]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    store = tl.build(source, tmp_path / "s", tokenizer=None, vocab_size=100, **TINY)
    assert store.columns == {"loss_mask": "uint8", "loss_weights": "float32"}
    for i, row in enumerate(rows):
        assert store.document(i).tolist() == row["input_ids"]
        assert store.document(i, column="loss_mask").tolist() == row["loss_mask"]
        assert store.document(i, column="loss_weights").tolist() == row["loss_weights"]
    assert store.tokenizer is None
    assert store.metadata(3)["name"] == "n3"
    assert store.verify().ok


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"input_ids": [1, 2], "loss_mask": [1]}, "loss_mask"),
        ({"input_ids": "12", "loss_mask": [1, 1]}, "input_ids"),
        ({"input_ids": [1.5], "loss_mask": [1]}, "input_ids"),
        ({"input_ids": [0, True], "loss_mask": [1, 1]}, "input_ids"),
        ({"input_ids": [[1], [2]], "loss_mask": [1, 1]}, "input_ids"),
        ({"input_ids": 7, "loss_mask": [1, 1]}, "input_ids"),
        ({"input_ids": [1], "loss_mask": [1], "loss_weights": [1]}, "loss_weights"),
        ({"text": "a", "loss_mask": []}, "input_ids"),
    ],
)
def test_ids_and_columns_that_do_not_fit_are_refused(tmp_path, row, named):
    rows = [{"input_ids": [1], "loss_mask": [0]}, row]
    build = functools.partial(tl.build, rows, tmp_path / "s", tokenizer=None, vocab_size=10)
    refused(build, tl.InputError, "record 1", named)


def test_ready_made_ids_take_no_specials_and_may_name_their_tokenizer(tmp_path):
    with pytest.raises(tl.ConfigError, match="add_bos"):
        tl.build([{"input_ids": [1]}], tmp_path / "a", tokenizer=None, vocab_size=5, add_eos=True)
    store = tl.build([{"ids": [104, 105]}], tmp_path / "b", tokenizer="bytes", ids_key="ids")
    assert store.tokenizer.decode(store.document(0)) == "hi"
    with pytest.raises(tl.ConfigError, match="vocab_size"):
        tl.build([{"input_ids": [1]}], tmp_path / "c", tokenizer=None)
    with pytest.raises(tl.ConfigError, match="columns"):
        tl.build(records(1), tmp_path / "d", tokenizer="bytes", columns=["loss_mask"])


# -- hooks ---------------------------------------------------------------------------------


def keep_even(record):
    return int(record["id"][1:]) % 2 == 0


def shout(record):
    return {**record, "text": record["text"].upper()} if record["text"] else None


def test_hooks_filter_and_change_records_and_are_part_of_the_build(tmp_path):
    rows = records(40)
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", filter=keep_even, transform=shout)
    assert texts(store) == [r["text"].upper() for r in rows if keep_even(r) and r["text"]]
    with pytest.raises(tl.StoreExists, match="transform"):
        tl.build(rows, tmp_path / "s", tokenizer="bytes", filter=keep_even)


def test_a_hook_with_a_version_is_known_by_it(tmp_path):
    def hook(version):
        def same(record):
            return record

        same.version = version
        return same

    tl.build(records(2), tmp_path / "s", tokenizer="bytes", transform=hook(3))
    assert tl.build(records(2), tmp_path / "s", tokenizer="bytes", transform=hook(3)).snapshot == 1
    with pytest.raises(tl.StoreExists, match="transform"):
        tl.build(records(2), tmp_path / "s", tokenizer="bytes", transform=hook(4))


@pytest.mark.parametrize(
    ("hook", "error", "named"),
    [
        ({"filter": "no_such_module:f"}, tl.ConfigError, "no_such_module:f"),
        ({"filter": "json:no_such_name"}, tl.ConfigError, "json:no_such_name"),
        ({"filter": "nocolon"}, tl.ConfigError, "'module:function'"),
        ({"transform": lambda r: [r]}, tl.InputError, "record 0"),
    ],
)
def test_wrong_hooks_are_refused(tmp_path, hook, error, named):
    build = functools.partial(tl.build, records(2), tmp_path / "s", tokenizer="bytes", **hook)
    refused(build, error, *hook, named)


# -- metadata ------------------------------------------------------------------------------


def test_metadata_keys_choose_what_is_kept(tmp_path):
    rows = records(3)
    some = tl.build(rows, tmp_path / "a", tokenizer="bytes", metadata_keys=["lang"])
    assert some.metadata(1) == {"_input": "rows-0", "_record": 1, "lang": "en"}
    none = tl.build(rows, tmp_path / "b", tokenizer="bytes", metadata_keys=[])
    assert none.metadata(1) == {"_input": "rows-0", "_record": 1}
    assert some.digest == none.digest


def test_a_missing_id_is_a_bad_record(tmp_path):
    with pytest.raises(tl.InputError, match="'uid'"):
        tl.build(records(3), tmp_path / "s", tokenizer="bytes", id_key="uid")


# -- shape of the output -------------------------------------------------------------------


def test_a_document_above_the_shard_cap_gets_a_shard_of_its_own(tmp_path):
    rows = [{"text": "a" * n} for n in (10, 900, 10, 10, 600)]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", shard_tokens=100)
    assert len(list((tmp_path / "s").glob("shard-*"))) == 4
    assert store.lengths.tolist() == [10, 900, 10, 10, 600]


def test_an_input_without_records_is_an_empty_store(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n\n")
    with pytest.warns(UserWarning, match="no documents"):
        store = tl.build(tmp_path / "a.jsonl", tmp_path / "s", tokenizer="bytes")
    assert (store.num_documents, store.num_tokens) == (0, 0)
    assert store.lengths.tolist() == []
    assert store.tokens(0, 0).tolist() == []
    assert store.documents([]) == []
    assert store.verify().ok
    with pytest.raises(IndexError):
        store.document(0)


def test_no_absolute_path_and_no_clock_goes_into_a_store(tmp_path):
    for folder in ("x", "y/z"):
        source = write_jsonl(tmp_path / folder / "c/a.jsonl", records())
        os.utime(source, (1, len(folder)))
        tl.build(tmp_path / folder / "c", tmp_path / folder / "s", tokenizer="bytes", **TINY)
    assert tree(tmp_path / "x/s") == tree(tmp_path / "y/z/s")
    assert not any(str(tmp_path).encode() in data for data in tree(tmp_path / "x/s").values())


def test_a_store_has_a_length_and_documents_by_index(tmp_path):
    store = tl.build(records(5), tmp_path / "s", tokenizer="bytes")
    assert len(store) == 5
    assert store[3].tolist() == store.document(3).tolist()
    assert len(list(store)) == 5
    with pytest.raises(IndexError):
        store[-1]
