"""What the user names becomes inputs, or an error that says what to write instead."""

import gzip
import hashlib
import os
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tokenloom.errors import InputError, MissingExtra
from tokenloom.ingest.identity import duplicates_among, identify
from tokenloom.ingest.inputs import Input, expand, label
from tokenloom.testing import tiny

LINE = b'{"text": "a"}\n'


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A small tree of every kind, and the current directory inside it."""
    files = {
        "wiki.jsonl": LINE,
        "news.ndjson": LINE * 2,
        "old.json": LINE * 3,
        "notes.txt": b"notes",
        "page.html": b"<p>",
        "sub/b.md": b"b",
        "sub/a.py": b"a",
        "sub/deep/c.rst": b"c",
        ".hidden.txt": b"h",
        ".git/config.txt": b"g",
        "a[1].txt": b"brackets",
        "odd:name.txt": b"colon",
        "jsonl:trap.txt": b"a file may be called like a spec",
        "packed.jsonl.gz": gzip.compress(LINE * 4),
        "packed.jsonl.zst": zstandard.compress(LINE * 5),
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shape(inputs):
    return [(one.kind, one.name, one.compression) for one in inputs]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("wiki.jsonl", [("jsonl", "wiki.jsonl", "none")]),
        ("news.ndjson", [("jsonl", "news.ndjson", "none")]),
        ("old.json", [("jsonl", "old.json", "none")]),
        ("notes.txt", [("txt", "notes.txt", "none")]),
        ("./notes.txt", [("txt", "notes.txt", "none")]),
        ("t.parquet", [("parquet", "t.parquet", "none")]),
        ("packed.jsonl.gz", [("jsonl", "packed.jsonl.gz", "gz")]),
        ("packed.jsonl.zst", [("jsonl", "packed.jsonl.zst", "zst")]),
        ("txt:wiki.jsonl", [("txt", "wiki.jsonl", "none")]),
        ("lines:notes.txt", [("lines", "notes.txt", "none")]),
        ("lines:page.html", [("lines", "page.html", "none")]),
        ("txt:*.html", [("txt", "page.html", "none")]),
        ("jsonl:packed.jsonl.gz", [("jsonl", "packed.jsonl.gz", "gz")]),
        ("txt:packed.jsonl.zst", [("txt", "packed.jsonl.zst", "zst")]),
        ("parquet:t.parquet", [("parquet", "t.parquet", "none")]),
        ("a[1].txt", [("txt", "a[1].txt", "none")]),
        ("odd:name.txt", [("txt", "odd:name.txt", "none")]),
        ("odd:*.txt", [("txt", "odd:name.txt", "none")]),
        ("txt:odd:name.txt", [("txt", "odd:name.txt", "none")]),
        ("jsonl:trap.txt", [("txt", "jsonl:trap.txt", "none")]),
        ("sub", [("txt", "a.py", "none"), ("txt", "b.md", "none"), ("txt", "deep/c.rst", "none")]),
        ("lines:sub/deep", [("lines", "c.rst", "none")]),
        ("sub/**/*.rst", [("txt", "c.rst", "none")]),
        ("sub/*", [("txt", "a.py", "none"), ("txt", "b.md", "none")]),
        ("**/*.md", [("txt", "b.md", "none")]),
        (
            ["wiki.jsonl", "sub/a.py"],
            [("jsonl", "wiki.jsonl", "none"), ("txt", "sub/a.py", "none")],
        ),
        (("sub/b.md", "sub/a.py"), [("txt", "b.md", "none"), ("txt", "a.py", "none")]),
        ({"text": "one record"}, [("rows", "rows-0", "none")]),
        ([{"text": "one"}, {"text": "two"}], [("rows", "rows-0", "none")]),
        (
            ["wiki.jsonl", [{"text": "one"}]],
            [("jsonl", "wiki.jsonl", "none"), ("rows", "rows-1", "none")],
        ),
    ],
    ids=repr,
)
def test_a_spec_stands_for_these_inputs(corpus, spec, expected):
    assert shape(expand(spec)) == expected


def test_a_path_object_is_read_like_its_string(corpus):
    assert expand(Path("sub")) == expand("sub")
    assert expand([Path("wiki.jsonl")]) == expand("wiki.jsonl")


def test_a_directory_is_walked_in_order_without_hidden_or_unknown_files(corpus):
    names = [one.name for one in expand(corpus)]
    assert names == sorted(names, key=lambda name: Path(name).parts)
    assert "sub/deep/c.rst" in names
    assert not [name for name in names if name.startswith(".") or name.endswith(".html")]
    assert [one.name for one in expand(f"jsonl:{corpus}")] == [
        "news.ndjson",
        "old.json",
        "packed.jsonl.gz",
        "packed.jsonl.zst",
        "wiki.jsonl",
    ]


def test_names_are_relative_and_sizes_are_those_of_the_files(corpus):
    for one in expand([str(corpus / "sub"), "wiki.jsonl"]):
        assert not one.name.startswith("/")
        assert ".." not in one.name
        assert one.path is not None
        assert one.path.is_absolute()
        assert one.size == one.path.stat().st_size


def test_a_file_name_that_is_not_utf8_gets_a_name_that_is(tmp_path):
    raw = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    try:
        with open(raw, "wb") as file:
            file.write(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (one,) = expand(tmp_path)
    assert one.name == "caf\\xe9.txt"
    assert identify([one], threads=1)[0].sha256 == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "inputs: an empty string; allowed:"),
        ("  ", "inputs: an empty string"),
        ([], "inputs: an empty list"),
        ((), "inputs: an empty tuple"),
        (["wiki.jsonl", ""], r"inputs\[1\]: an empty string"),
        (["wiki.jsonl", []], r"inputs\[1\]: found list"),
        ("txt:", "'txt:' names no path"),
        ("hf: ", "'hf: ' names no path"),
        ("*.xyz", r"'\*\.xyz' holds no supported file"),
        ("*.html", r"holds no supported file.*Seen: \.html; other suffixes need KIND:GLOB"),
        ("jsonl:sub", r"'sub' holds no jsonl file.*Seen: \.md, \.py, \.rst"),
        ("page.html", r"unknown suffix '\.html'.*'txt:page\.html'"),
        ("jsnl:wiki.jsonl", r"no kind named 'jsnl'.*Did you mean 'jsonl:wiki\.jsonl'\?"),
        ("TXT:wiki.jsonl", r"no kind named 'TXT'.*Did you mean 'txt:wiki\.jsonl'\?"),
        ("csv:wiki.jsonl", "no kind named 'csv'. Allowed: txt, lines, jsonl, parquet, hf"),
        ("wki.jsonl", r"no file or directory 'wki\.jsonl'\. Did you mean 'wiki\.jsonl'"),
        ("jsonl:wki.jsonl", r"Did you mean 'wiki\.jsonl'"),
        ("sbu/a.py", r"\('sbu' is missing\)\. Did you mean 'sub'"),
        ("wholly other", r"Check the spelling, or, if it is a text, give \[\{'text': …\}\]"),
        ("sbu/*.py", r"no file or directory 'sbu'\. Did you mean 'sub'"),
        ("memory://nothing/x.jsonl", "there is no object or folder memory://nothing/x.jsonl"),
        ("hf:allenai/c4", r"no directory 'allenai/c4'\. Nothing is downloaded.*save_to_disk"),
        ("hf:allenai/c4:train", "no directory 'allenai/c4'. Nothing is downloaded"),
        ("hf:sub", r"'sub' was not written by save_to_disk.*'parquet:sub'"),
        ("parquet:wiki.jsonl", "starts with .*, a parquet file with b'PAR1'"),
        (7, "inputs: found int"),
        (b"wiki.jsonl", "inputs: found bytes"),
        ([{"text": "a"}, "wiki.jsonl"], r"inputs\[1\]: found str among records"),
        (["wiki.jsonl", {"text": "a"}], r"inputs\[0\]: found str among records"),
    ],
    ids=repr,
)
def test_an_input_that_cannot_be_meant_is_refused_with_the_remedy(corpus, spec, message):
    with pytest.raises(InputError, match=message):
        expand(spec)


def test_an_iterator_of_paths_is_a_list_of_paths(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    assert expand(iter([tmp_path / "a.txt"])) == expand([tmp_path / "a.txt"])
    with pytest.raises(InputError, match=r"inputs\[0\]: no file or directory 'wiki.jsonl'"):
        expand(iter(["wiki.jsonl"]))


def test_a_link_to_nothing_and_a_pipe_are_refused(tmp_path):
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="a link to nothing"):
        expand(tmp_path / "gone.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match="neither a file nor a directory"):
        expand(tmp_path / "pipe.txt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl.gz", LINE, "gzip by its name, and not compressed by its first bytes"),
        ("x.jsonl.gz", b"", "gzip by its name, and not compressed"),
        ("x.jsonl.gz", zstandard.compress(LINE), "gzip by its name, and zstd"),
        ("x.jsonl.zst", gzip.compress(LINE), "zstd by its name, and gzip"),
        ("x.jsonl", gzip.compress(LINE), "not compressed by its name, and gzip"),
        ("x.txt", zstandard.compress(LINE), "not compressed by its name, and zstd"),
        ("x.parquet.gz", gzip.compress(b"PAR1"), "parquet compresses itself"),
    ],
    ids=range(7),  # the bytes hold a time, and every worker must collect the same names
)
def test_first_bytes_that_contradict_the_suffix_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        expand(tmp_path / name)


def test_a_missing_extra_is_named_before_work_begins(corpus, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tokenloom\[parquet\]"):
        expand("t.parquet")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk("saved")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"tokenloom\[hf\]"):
        expand("hf:saved")


# ---------------------------------------------------------------- datasets


def test_saved_datasets_and_their_splits_are_found(tmp_path):
    train = datasets.Dataset.from_dict({"text": ["a", "b"]})
    train.save_to_disk(tmp_path / "one")
    both = datasets.DatasetDict({"train": train, "test": train.select([0])})
    both.save_to_disk(tmp_path / "both")
    (one,) = expand(f"hf:{tmp_path / 'one'}")
    assert (one.kind, one.name, one.size, len(one.rows)) == ("hf", "one", 0, 2)
    (test,) = expand(f"hf:{tmp_path / 'both'}:test")
    assert (test.name, len(test.rows)) == ("test", 1)
    for spec, message in [
        (f"hf:{tmp_path / 'both'}", r"a DatasetDict, so a split is needed\. Splits: train, test"),
        (f"hf:{tmp_path / 'both'}:trian", "no split named 'trian'.*Did you mean 'train'"),
        (f"hf:{tmp_path / 'one'}:train", "holds one dataset and no splits"),
        (f"{tmp_path / 'one'}", "holds a dataset saved with save_to_disk. Write 'hf:"),
        (both, r"a DatasetDict \(splits: train, test\)"),
    ]:
        with pytest.raises(InputError, match=message):
            expand(spec)


def test_a_damaged_saved_dataset_is_an_input_error(tmp_path):
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path / "one")
    (tmp_path / "one" / "state.json").write_text("{}")
    with pytest.raises(InputError, match="not a readable dataset"):
        expand(f"hf:{tmp_path / 'one'}")


def test_the_identity_of_a_dataset_depends_on_its_values_alone(tmp_path):
    columns = {
        "text": [None if i % 5 == 0 else f"x{i}" * (i % 7) for i in range(3000)],
        "input_ids": [list(range(i % 11)) for i in range(3000)],
    }
    whole = datasets.Dataset.from_dict(columns)
    whole.save_to_disk(tmp_path / "saved", num_shards=3)
    backwards = list(range(2999, -1, -1))
    same = [
        whole,
        datasets.load_from_disk(str(tmp_path / "saved")),
        datasets.concatenate_datasets([whole.select(range(1001)), whole.select(range(1001, 3000))]),
        whole.select(backwards).select(backwards),
    ]
    digests = {one.sha256 for one in identify(expand(same), threads=2)}
    assert len(digests) == 1
    slices = [
        whole.select(range(101, 150)),
        datasets.Dataset.from_dict({name: values[101:150] for name, values in columns.items()}),
        whole.select(range(102, 151)),
    ]
    a, b, c = (one.sha256 for one in identify(expand(slices), threads=1))
    assert a == b
    assert a != c


# ---------------------------------------------------------------- identity


@tiny(input_hash_bytes=7)
def test_files_are_identified_by_their_raw_bytes_and_progress_adds_up(corpus):
    inputs = expand(corpus)
    seen: list[int] = []
    for threads in (1, 3):
        done = identify(inputs, threads=threads, progress=seen.append)
        for one in done:
            assert one.sha256 == hashlib.sha256(one.path.read_bytes()).hexdigest()
    assert sum(seen) == 2 * sum(one.size for one in inputs)
    assert [one.name for one in done] == [one.name for one in inputs]


def test_a_file_that_changes_or_goes_while_it_is_hashed_is_refused(corpus):
    inputs = expand(["wiki.jsonl", "notes.txt"])
    (corpus / "wiki.jsonl").write_bytes(LINE * 9)
    with pytest.raises(InputError, match=r"wiki\.jsonl: 126 bytes now, 14 when it was listed"):
        identify(inputs, threads=2)
    (corpus / "wiki.jsonl").unlink()
    with pytest.raises(InputError, match="No such file"):
        identify(inputs, threads=2)


def test_the_identity_of_records_ignores_key_order_and_number_types():
    one = [{"text": "é", "n": 1, "input_ids": [1, 2]}]
    two = [{"input_ids": np.array([1, 2], np.int64), "n": np.int32(1), "text": "é"}]
    three = [{"text": "é", "n": 2, "input_ids": [1, 2]}]
    a, b, c = (x.sha256 for x in identify(expand([one, two, three]), threads=1))
    assert a == b
    assert a != c
    line = '{"input_ids":[1,2],"n":1,"text":"é"}\n'
    assert a == hashlib.sha256(line.encode()).hexdigest()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"when": object()}, r"rows\[1\]\.when: found object"),
        ({"meta": {"tags": ["a", b"raw"]}}, r"rows\[1\]\.meta\.tags\[1\]: found bytes"),
        ({"score": float("nan")}, r"rows\[1\]\.score: found float nan"),
        ({"score": np.array([1.0, np.inf])}, r"rows\[1\]\.score\[1\]: found float inf"),
        ({"text": "half \ud800"}, r"rows\[1\]\.text: found str"),
        ({7: "a"}, r"rows\[1\]: the key 7 is not a string"),
    ],
    ids=["object", "bytes", "nan", "inf", "surrogate", "key"],
)
def test_a_record_that_json_cannot_hold_is_refused_with_its_path(value, message):
    with pytest.raises(InputError, match=message):
        identify(expand([{"text": "fine"}, value]), threads=1)


# ---------------------------------------------------------------- duplicates


def test_the_same_file_twice_is_found_also_through_a_link(corpus):
    (corpus / "link.jsonl").symlink_to(corpus / "wiki.jsonl")
    for pair in (["wiki.jsonl", "*.jsonl"], ["wiki.jsonl", "link.jsonl"]):
        (first, *_) = duplicates_among(expand(pair))
        assert first.count(".jsonl") == 2


def test_the_same_content_twice_is_found_and_both_are_named(corpus):
    (corpus / "copy.jsonl").write_bytes(LINE)
    (corpus / "copy2.jsonl").write_bytes(LINE)
    inputs = expand(["wiki.jsonl", "copy.jsonl", "copy2.jsonl"])
    assert duplicates_among(inputs) == []  # nothing is known about the content yet
    found = duplicates_among(identify(inputs, threads=1))
    assert [one.partition(" ")[0].rpartition("/")[2] for one in found] == [
        "copy.jsonl",
        "copy2.jsonl",
    ]
    assert all(one.endswith("wiki.jsonl") for one in found)
    rows = [{"text": "a"}]
    (found,) = duplicates_among(identify(expand([rows, list(rows)]), threads=1))
    assert found.startswith("rows-1 ")
    assert found.endswith(" rows-0")


def test_different_kinds_and_empty_files_are_no_duplicates(corpus):
    for name in ("empty1.txt", "empty2.txt"):
        (corpus / name).write_bytes(b"")
    (corpus / "copy.txt").write_bytes(LINE)
    inputs = expand(["wiki.jsonl", "copy.txt", "empty1.txt", "empty2.txt"])
    assert duplicates_among(identify(inputs, threads=1)) == []


def test_an_input_is_called_by_its_path_or_its_name():
    assert label(Input(kind="txt", name="a", path=Path("/x/a"), size=0)) == str(Path("/x/a"))
    assert label(Input(kind="rows", name="rows-0", path=None, size=0)) == "rows-0"
