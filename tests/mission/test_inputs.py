"""What the user names becomes inputs, or an error that names the remedy."""

import functools
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
from kit import QUICK
from refusals import refused

import tokenloom as tl
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


@pytest.fixture
def read(tmp_path_factory):
    """Builds a store; gives what it says that it has read."""

    def read(inputs, **options):
        options = {"tokenizer": "bytes", "duplicates": "allow", "files": QUICK, **options}
        (listed,) = tl.build(inputs, tmp_path_factory.mktemp("store") / "s", **options).inputs
        return listed

    return read


def shape(inputs):
    return [(one.kind, one.name) for one in inputs]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("wiki.jsonl", [("jsonl", "wiki.jsonl")]),
        ("news.ndjson", [("jsonl", "news.ndjson")]),
        ("old.json", [("jsonl", "old.json")]),
        ("notes.txt", [("txt", "notes.txt")]),
        ("./notes.txt", [("txt", "notes.txt")]),
        ("t.parquet", [("parquet", "t.parquet")]),
        ("packed.jsonl.gz", [("jsonl", "packed.jsonl.gz")]),
        ("packed.jsonl.zst", [("jsonl", "packed.jsonl.zst")]),
        ("txt:wiki.jsonl", [("txt", "wiki.jsonl")]),
        ("lines:notes.txt", [("lines", "notes.txt")]),
        ("lines:page.html", [("lines", "page.html")]),
        ("txt:*.html", [("txt", "page.html")]),
        ("jsonl:packed.jsonl.gz", [("jsonl", "packed.jsonl.gz")]),
        ("txt:packed.jsonl.zst", [("txt", "packed.jsonl.zst")]),
        ("parquet:t.parquet", [("parquet", "t.parquet")]),
        ("a[1].txt", [("txt", "a[1].txt")]),
        ("odd:name.txt", [("txt", "odd:name.txt")]),
        ("odd:*.txt", [("txt", "odd:name.txt")]),
        ("txt:odd:name.txt", [("txt", "odd:name.txt")]),
        ("jsonl:trap.txt", [("txt", "jsonl:trap.txt")]),
        ("sub", [("txt", "a.py"), ("txt", "b.md"), ("txt", "deep/c.rst")]),
        ("lines:sub/deep", [("lines", "c.rst")]),
        ("sub/**/*.rst", [("txt", "c.rst")]),
        ("sub/*", [("txt", "a.py"), ("txt", "b.md")]),
        ("**/*.md", [("txt", "b.md")]),
        (
            ["wiki.jsonl", "sub/a.py"],
            [("jsonl", "wiki.jsonl"), ("txt", "sub/a.py")],
        ),
        (("sub/b.md", "sub/a.py"), [("txt", "b.md"), ("txt", "a.py")]),
        ({"text": "one record"}, [("rows", "rows-0")]),
        ([{"text": "one"}, {"text": "two"}], [("rows", "rows-0")]),
        (
            ["wiki.jsonl", [{"text": "one"}]],
            [("jsonl", "wiki.jsonl"), ("rows", "rows-1")],
        ),
    ],
    ids=repr,
)
def test_a_spec_stands_for_these_inputs(corpus, read, spec, expected):
    assert shape(read(spec)) == expected


def test_a_path_object_is_read_like_its_string(corpus, read):
    assert read(Path("sub")) == read("sub")
    assert read([Path("wiki.jsonl")]) == read("wiki.jsonl")
    assert read(iter([Path("wiki.jsonl")])) == read("wiki.jsonl")


def test_a_directory_is_walked_in_order_without_hidden_or_unknown_files(corpus, read):
    names = [one.name for one in read(corpus)]
    assert names == sorted(names, key=lambda name: Path(name).parts)
    assert "sub/deep/c.rst" in names
    assert not [name for name in names if name.startswith(".") or name.endswith(".html")]
    jsonl = "news.ndjson", "old.json", "packed.jsonl.gz", "packed.jsonl.zst", "wiki.jsonl"
    assert [one.name for one in read(f"jsonl:{corpus}")] == [*jsonl]


@tiny(input_hash_bytes=7)
def test_names_are_relative_and_sizes_and_hashes_are_those_of_the_files(corpus, read):
    for one in read([str(corpus / "sub"), "wiki.jsonl"]):
        content = (corpus / ("" if one.name == "wiki.jsonl" else ".") / one.name).read_bytes()
        assert one.bytes == len(content)
        assert one.sha256 == hashlib.sha256(content).hexdigest()


def test_a_file_name_that_is_not_utf8_gets_a_name_that_is(tmp_path, read):
    raw = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    try:
        with open(raw, "wb") as file:
            file.write(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (one,) = read(tmp_path)
    assert one.name == "caf\\xe9.txt"
    assert one.sha256 == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("", []),
        ([], []),
        (["wiki.jsonl", ""], ["inputs[1]"]),
        (["wiki.jsonl", []], ["inputs[1]", "list"]),
        ("txt:", ["'txt:'"]),
        ("*.xyz", ["'*.xyz'"]),
        ("*.html", [".html", "KIND:GLOB"]),
        ("jsonl:sub", ["'sub'", ".md, .py, .rst"]),
        ("page.html", ["'.html'", "'txt:page.html'"]),
        ("jsnl:wiki.jsonl", ["'jsnl'", "'jsonl:wiki.jsonl'"]),
        ("csv:wiki.jsonl", ["'csv'", "jsonl"]),
        ("wki.jsonl", ["'wki.jsonl'", "'wiki.jsonl'"]),
        ("sbu/a.py", ["'sbu'", "'sub'"]),
        ("wholly other", ["{'text': …}"]),
        ("sbu/*.py", ["'sbu'", "'sub'"]),
        ("memory://nothing/x.jsonl", ["memory://nothing/x.jsonl"]),
        ("hf:allenai/c4", ["'allenai/c4'", "save_to_disk"]),
        ("hf:allenai/c4:train", ["'allenai/c4'"]),
        ("hf:sub", ["'sub'", "'parquet:sub'"]),
        ("parquet:wiki.jsonl", ["PAR1"]),
        ("gone.txt", ["gone.txt"]),
        ("pipe.txt", ["pipe.txt"]),
        (7, ["int"]),
        (b"wiki.jsonl", ["bytes"]),
        ([{"text": "a"}, "wiki.jsonl"], ["inputs[1]", "str"]),
        (["wiki.jsonl", {"text": "a"}], ["inputs[0]", "str"]),
    ],
    ids=repr,
)
def test_an_input_that_cannot_be_meant_is_refused_with_the_remedy(corpus, read, spec, named):
    (corpus / "gone.txt").symlink_to(corpus / "nowhere")
    os.mkfifo(corpus / "pipe.txt")
    refused(functools.partial(read, spec), tl.InputError, "inputs", *named)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl.gz", LINE),
        ("x.jsonl.gz", b""),
        ("x.jsonl.gz", zstandard.compress(LINE)),
        ("x.jsonl.zst", gzip.compress(LINE, mtime=0)),
        ("x.jsonl", gzip.compress(LINE, mtime=0)),
        ("x.txt", zstandard.compress(LINE)),
        ("x.parquet.gz", gzip.compress(b"PAR1", mtime=0)),
        ("x.parquet", LINE),
    ],
)
def test_first_bytes_that_contradict_the_suffix_are_refused(tmp_path, read, name, content):
    (tmp_path / name).write_bytes(content)
    refused(lambda: read(tmp_path / name), tl.InputError, name)


def test_a_missing_extra_is_named_before_work_begins(corpus, read, monkeypatch):
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk("saved")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(lambda: read("t.parquet"), tl.MissingExtra, "tokenloom[parquet]")
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(lambda: read("hf:saved"), tl.MissingExtra, "tokenloom[hf]")


# ---------------------------------------------------------------- datasets


def test_saved_datasets_and_their_splits_are_found(tmp_path, read):
    train = datasets.Dataset.from_dict({"text": ["a", "b"]})
    one, both = tmp_path / "one", tmp_path / "both"
    train.save_to_disk(one)
    splits = datasets.DatasetDict({"train": train, "test": train.select([0])})
    splits.save_to_disk(both)
    assert shape(read(f"hf:{one}")) == [("hf", "one")]
    assert shape(read(f"hf:{both}:test")) == [("hf", "test")]
    for spec, *named in [
        (f"hf:{both}", "train, test"),
        (f"hf:{both}:trian", "'trian'", "'train'"),
        (f"hf:{one}:train", "train"),
        (f"{one}", f"hf:{one}"),
        (splits, "train, test"),
    ]:
        refused(functools.partial(read, spec), tl.InputError, *named)


@pytest.mark.parametrize("damaged", ["one/state.json", "both/dataset_dict.json"])
def test_a_damaged_saved_dataset_is_an_input_error(tmp_path, read, damaged):
    data = datasets.Dataset.from_dict({"text": ["a"]})
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "both")
    (tmp_path / damaged).write_text("{}")
    name = damaged.partition("/")[0]
    refused(lambda: read(f"hf:{tmp_path / name}:train".removesuffix(":train" * (name == "one"))),
            tl.InputError, name)  # fmt: skip


def test_the_identity_of_a_dataset_depends_on_its_values_alone(tmp_path, read):
    columns = {
        "text": [f"x{i}" * (i % 7) for i in range(3000)],
        "n": [None if i % 5 == 0 else [i] * (i % 3) for i in range(3000)],
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
    assert len({one.sha256 for one in read(same)}) == 1
    slices = [
        whole.select(range(101, 150)),
        datasets.Dataset.from_dict({name: values[101:150] for name, values in columns.items()}),
        whole.select(range(102, 151)),
    ]
    a, b, c = (one.sha256 for one in read(slices))
    assert a == b != c


# ---------------------------------------------------------------- records


def test_the_identity_of_records_ignores_key_order_and_number_types(read):
    one = [{"text": "é", "n": 1, "input_ids": [1, 2]}]
    two = [{"input_ids": np.array([1, 2], np.int64), "n": np.int32(1), "text": "é"}]
    three = [{"text": "é", "n": 2, "input_ids": [1, 2]}]
    a, b, c = (x.sha256 for x in read([one, two, three]))
    assert a == b != c
    line = '{"input_ids":[1,2],"n":1,"text":"é"}\n'
    assert a == hashlib.sha256(line.encode()).hexdigest()


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"when": object()}, "rows[1].when"),
        ({"meta": {"tags": ["a", b"raw"]}}, "rows[1].meta.tags[1]"),
        ({"score": float("nan")}, "rows[1].score"),
        ({"score": np.array([1.0, np.inf])}, "rows[1].score[1]"),
        ({"text": "half \ud800"}, "rows[1].text"),
        ({7: "a"}, "rows[1]"),
    ],
    ids=["object", "bytes", "nan", "inf", "surrogate", "key"],
)
def test_a_record_that_json_cannot_hold_is_refused_with_its_path(read, value, place):
    refused(lambda: read([{"text": "fine"}, value]), tl.InputError, place)


# ---------------------------------------------------------------- duplicates


def test_the_same_file_or_content_twice_is_found_and_both_are_named(corpus, read):
    (corpus / "link.jsonl").symlink_to(corpus / "wiki.jsonl")
    (corpus / "copy.jsonl").write_bytes(LINE)
    for pair in (
        ["wiki.jsonl", "*.jsonl"],
        ["wiki.jsonl", "link.jsonl"],
        ["wiki.jsonl", "copy.jsonl"],
    ):
        named = "wiki.jsonl", Path(pair[1]).suffix
        refused(functools.partial(read, pair, duplicates="error"), tl.InputError, *named)
    rows = [{"text": "a"}]
    twice = functools.partial(read, [rows, list(rows)], duplicates="error")
    refused(twice, tl.InputError, "rows-1", "rows-0")


def test_different_kinds_and_empty_files_are_no_duplicates(corpus, read):
    for name in ("empty1.txt", "empty2.txt"):
        (corpus / name).write_bytes(b"")
    (corpus / "copy.txt").write_bytes(LINE)
    inputs = ["wiki.jsonl", "copy.txt", "empty1.txt", "empty2.txt"]
    assert len(read(inputs, duplicates="error")) == 4


def test_objects_of_a_bucket_are_inputs_as_files_are(corpus, bucket, read):
    bucket.upload(corpus / "sub")
    bucket.put("wiki.jsonl", LINE)
    names = [("txt", "a.py"), ("txt", "b.md"), ("txt", "deep/c.rst"), ("jsonl", "wiki.jsonl")]
    assert shape(read(bucket.url)) == names
    assert shape(read(f"jsonl:{bucket.url}")) == names[3:]
    assert shape(read(f"{bucket.url}/*.py")) == names[:1]
    assert shape(read(f"lines:{bucket.url}/wiki.jsonl")) == [("lines", "wiki.jsonl")]
    assert [one.sha256 for one in read(f"{bucket.url}/a.py")] == [hashlib.sha256(b"a").hexdigest()]
    bucket.put("x.jsonl.gz", LINE)
    bucket.put("pictures/a.png", b"x")
    for wrong in ("x.jsonl.gz", "nowhere.jsonl", "*.xyz", "pictures"):
        refused(functools.partial(read, f"{bucket.url}/{wrong}"), tl.InputError, wrong)
