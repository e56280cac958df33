"""Blocks of any size give the records of a naive reader, and every bad record has its place."""

import functools
import gzip
import json
import math
import sys

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from refusals import refused

import tokenloom as tl
from tokenloom.testing import tiny

BOM = b"\xef\xbb\xbf"
CUTS = [1, 7, 64, 1 << 20]


def read(inputs, folder, **options):
    """The store of some inputs, and (record, reason) of every record that was skipped."""
    options = {
        "tokenizer": "bytes",
        "on_error": "skip",
        "files": QUICK,
        "overwrite": True,
        **options,
    }
    store = tl.build(inputs, folder / "s", **options)
    places = sorted(store.path.glob("skipped-*.jsonl"))[-1:]
    lines = [json.loads(line) for path in places for line in path.read_text().splitlines()]
    return store, [(one["record"], one["reason"]) for one in lines]


def documents(store):
    """(record, text) of every document."""
    every = range(store.num_documents)
    texts = [bytes(ids.tolist()).decode() for ids in store.documents(every)]
    return [(store.metadata(i)["_record"], text) for i, text in enumerate(texts)]


def skipped(reasons):
    return [record for record, reason in reasons if reason.startswith("skipped")]


# ---------------------------------------------------------------- lines


def naive_lines(content):
    """(number, text) of the lines that are not blank, and whether there are any."""
    lines = content.split(b"\n")
    if lines:
        lines[0] = lines[0].removeprefix(BOM)
    texts = [line.decode() for line in lines]
    return [(n, t.removesuffix("\r")) for n, t in enumerate(texts) if t and not t.isspace()]


TEXTS = st.one_of(
    st.text(st.sampled_from("aé日🌍 \r\t\u2028\x0b\x85"), max_size=12),
    st.sampled_from(["", "\r", "x\r", " ", "long " * 40, "日" * 50]),
)


@st.composite
def line_files(draw):
    lines = [text.encode() for text in draw(st.lists(TEXTS, max_size=12))]
    end = draw(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]))
    return draw(st.sampled_from([b"", BOM])) + b"\n".join([b"first", *lines]) + end


@settings(max_examples=10)
@given(content=line_files(), block_bytes=st.sampled_from([*CUTS, 3, 5, 100]))
def test_lines_in_blocks_of_any_size_are_those_of_a_naive_reader(content, block_bytes):
    packed = {"": content, ".gz": gzip.compress(content), ".zst": zstandard.compress(content)}
    with quick_folder() as folder:
        for suffix, data in packed.items():
            (folder / f"a.txt{suffix}").write_bytes(data)
            how = {"block_bytes": block_bytes, "workers": 1}
            store, reasons = read(f"lines:{folder}/a.txt{suffix}", folder, **how)
            assert documents(store) == naive_lines(content)
            assert not reasons


ROW = st.dictionaries(st.text(max_size=3), st.text(max_size=30), max_size=3)


@settings(max_examples=10)
@given(
    rows=st.lists(st.one_of(ROW, st.none(), st.just("x")), max_size=12),
    spaces=st.sampled_from(["", "\r", " "]),
    last=st.booleans(),
    block_bytes=st.sampled_from([*CUTS, 2]),
)
def test_json_lines_in_blocks_of_any_size_are_those_of_a_naive_reader(
    rows, spaces, last, block_bytes
):
    rows = [{"text": "first"}, *rows]
    rows = [
        {**row, "text": f"t{n}"} if isinstance(row, dict) else row for n, row in enumerate(rows)
    ]
    lines = ["" if row is None else json.dumps(row, ensure_ascii=False) for row in rows]
    content = "".join(f"{line}{spaces}\n" for line in lines).encode()
    content = content if last else content.removesuffix(b"\n")
    good = [(n, row) for n, row in enumerate(rows) if isinstance(row, dict)]
    with quick_folder() as folder:
        for name, data in (("a.jsonl", content), ("a.jsonl.gz", gzip.compress(content))):
            (folder / name).write_bytes(data)
            store, reasons = read(folder / name, folder, block_bytes=block_bytes, workers=1)
            assert documents(store) == [(n, row["text"]) for n, row in good]
            kept = [set(store.metadata(i)) - {"_input", "_record"} for i in range(len(good))]
            assert kept == [set(row) - {"text"} for _, row in good]
            assert skipped(reasons) == [n for n, row in enumerate(rows) if row == "x"]


def test_only_a_newline_ends_a_line(tmp_path):
    (tmp_path / "a.txt").write_bytes("a\rb\x0bc\u2028d\x85e\r\n".encode())
    store, _ = read(f"lines:{tmp_path / 'a.txt'}", tmp_path)
    assert documents(store) == [(0, "a\rb\x0bc\u2028d\x85e")]


def test_many_files_share_a_block_and_keep_their_own_numbers(tmp_path):
    for i in range(5):
        lines = "".join(f'{{"text":"{n}"}}\n\n' for n in range(i))
        (tmp_path / f"{i}.jsonl").write_text(lines)
    store, _ = read(tmp_path / "*.jsonl", tmp_path)
    assert documents(store) == [(2 * n, str(n)) for i in range(5) for n in range(i)]


@tiny(input_tail_bytes=512)
def test_a_line_of_many_blocks_is_one_record(tmp_path):
    long = "x" * 100_000
    (tmp_path / "a.txt").write_text(f"0\n{long}\n1\n")
    store, _ = read(f"lines:{tmp_path / 'a.txt'}", tmp_path, block_bytes=1000, workers=1)
    assert documents(store) == [(0, "0"), (1, long), (2, "1")]


def test_a_text_file_is_one_record_as_it_stands(tmp_path):
    (tmp_path / "a.txt").write_bytes(BOM + "é\r\n\n".encode())
    (tmp_path / "b.md.gz").write_bytes(gzip.compress(b"two\n"))
    (tmp_path / "c.txt").write_bytes(b"")
    (tmp_path / "d.txt").write_bytes(b"ok \xff")
    for block_bytes in CUTS:
        files = [tmp_path / name for name in ("a.txt", "b.md.gz", "c.txt", "d.txt")]
        store, reasons = read(files, tmp_path, block_bytes=block_bytes)
        assert [text for _, text in documents(store)] == ["é\r\n\n", "two\n", ""]
        assert len(skipped(reasons)) == 1


# ---------------------------------------------------------------- JSON

BAD = [
    b'{"text": "a"',
    b"[1, 2]",
    b'"text"',
    b"12",
    b"true",
    b"null",
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": 1e999}',
    b'{"a": "\\ud800"}',
    b'{"a": 1,}',
    b"{'a': 1}",
    b'{"a": 01}',
    b'{"a": "\x01"}',
    b'{"a": 1} {"b": 2}',
    b'{"a": ' + b"9" * 400 + b"}",
    b'{"a": ' + b"9" * 5000 + b"}",
    BOM + b'{"a": 1}',
    b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}',
]
GOOD = [
    '{"a": 18446744073709551615, "b": -9223372036854775808}',
    '{"a": 1E5, "b": 1e-999, "c": 0.1, "d": 2.5e-8, "e": -0, "f": -0.0}',
    '{"a": "\\ud83d\\ude00 \\u00e9 \\\\ud800 \x7f"}',
    ' \t{"a": 1, "a": 2}\r',
    '{"a": [[], {}, null, true]}',
]


@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_each_bad_line_is_skipped_with_its_number_and_the_rest_is_read(tmp_path, block_bytes):
    lines = []
    for i, line in enumerate(BAD):
        lines += [b'{"text": "%d"}' % i, b"", line]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    store, reasons = read(tmp_path / "a.jsonl", tmp_path, block_bytes=block_bytes, workers=1)
    assert documents(store) == [(3 * i, str(i)) for i in range(len(BAD))]
    assert skipped(reasons) == [3 * i + 2 for i in range(len(BAD))]


def test_values_of_json_are_kept_as_they_are(tmp_path):
    lines = [line.replace("{", '{"text": "t", ', 1) for line in GOOD]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    store, reasons = read(tmp_path / "a.jsonl", tmp_path)
    assert not reasons
    for i, line in enumerate(GOOD):
        kept = {key: value for key, value in store.metadata(i).items() if key[0] != "_"}
        said = {key: value for key, value in json.loads(line).items() if value is not None}
        assert repr(kept) == repr(dict(sorted(said.items())))


@pytest.mark.parametrize("block_bytes", CUTS)
def test_a_line_above_the_limit_is_skipped_wherever_it_is_cut(tmp_path, block_bytes):
    lines = [b'{"text": "%s"}' % (b"x" * n) for n in (5, 27, 28, 500, 5)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b"\n".join(lines)))
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst"):
        how = {"block_bytes": block_bytes, "max_record_bytes": 39, "workers": 1}
        store, reasons = read(tmp_path / name, tmp_path, **how)
        assert [record for record, _ in documents(store)] == [0, 1, 4]
        assert skipped(reasons) == [2, 3]


# ---------------------------------------------------------------- tables

ROWS = [
    {
        "text": f"document {i} é",
        "holes": [i, None],
        "weights": [i / 2] * (i % 3),
        "meta": {"url": f"u{i}", "tags": ["a"] * (i % 2)},
        "score": i * 0.5,
    }
    for i in range(80)
]


@pytest.mark.parametrize("block_bytes", [500, 1 << 20])
def test_parquet_and_datasets_give_the_rows_that_were_written(tmp_path, block_bytes):
    table, data = pa.Table.from_pylist(ROWS), datasets.Dataset.from_list(ROWS)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "many")
    saved = [f"hf:{tmp_path / 'one'}", f"hf:{tmp_path / 'many'}:train"]
    for one in (tmp_path / "a.parquet", table, ROWS, data, *saved):
        store, reasons = read(one, tmp_path, block_bytes=block_bytes, workers=1)
        assert not reasons
        assert documents(store) == [(n, row["text"]) for n, row in enumerate(ROWS)]
        kept = [store.metadata(n) for n in range(80)]
        wanted = [{k: v for k, v in row.items() if k != "text"} for row in ROWS]
        assert [{k: v for k, v in row.items() if k[0] != "_"} for row in kept] == wanted
    odd, _ = read(data.select(range(1, 80, 2)), tmp_path, block_bytes=block_bytes)
    assert [text for _, text in documents(odd)] == [row["text"] for row in ROWS[1::2]]


def test_the_documents_of_a_dataset_do_not_depend_on_its_layout(tmp_path):
    one = datasets.Dataset.from_list([{"text": "x" * (i % 70)} for i in range(500)])
    backwards = list(range(499, -1, -1))
    two = one.select(backwards).select(backwards)
    three = datasets.concatenate_datasets([one.select(range(77)), one.select(range(77, 500))])
    found = {read(d, tmp_path, block_bytes=500)[0].digest for d in (one, two, three)}
    assert len(found) == 1


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.uint16()), pa.large_list(pa.int64()), pa.list_(pa.int32(), 2)]
)
def test_ids_in_a_table_may_be_lists_of_any_integers(tmp_path, kind):
    rows = [[9, 8], [1, 2], None, [3, 4]]
    table = pa.table({"input_ids": pa.array(rows, kind)}).slice(1)
    pq.write_table(table, tmp_path / "a.parquet")
    for one in (table, tmp_path / "a.parquet"):
        store, reasons = read(one, tmp_path, tokenizer=None, vocab_size=10)
        assert [ids.tolist() for ids in store.documents(range(2))] == [[1, 2], [3, 4]]
        assert skipped(reasons) == [1]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_text_in_a_table_may_be_any_string(tmp_path, kind):
    table = pa.table({"text": pa.array(["é", "b", "é"]).cast(kind), "when": [None, 1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    for one in (table, tmp_path / "a.parquet"):
        assert documents(read(one, tmp_path)[0]) == [(0, "é"), (1, "b"), (2, "é")]


def test_text_in_parquet_that_is_not_utf8_is_a_bad_record(tmp_path):
    raw = pa.array([b"fine", b"not \xff", None, b"fine too"])
    texts = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    pq.write_table(pa.table({"n": [0, 1, 2, 3], "text": texts}), tmp_path / "a.parquet")
    store, reasons = read(tmp_path / "a.parquet", tmp_path)
    assert documents(store) == [(0, "fine"), (3, "fine too")]
    assert skipped(reasons) == [1, 2]
    build = functools.partial(tl.build, tmp_path / "a.parquet", tmp_path / "t", tokenizer="bytes")
    refused(build, tl.InputError, "a.parquet", "record 1", "text", "0xff")


def test_json_lines_need_orjson_and_records_given_directly_do_not(tmp_path, monkeypatch):
    rows = [{"text": "é", "n": 2**70, "x": [0.1, -0.0, 2**64 - 1, {"y": -(2**63)}]}]
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[0]))
    with_orjson, _ = read(rows, tmp_path)
    monkeypatch.setitem(sys.modules, "orjson", None)
    without, _ = read(rows, tmp_path)
    assert repr(without.metadata(0)) == repr(with_orjson.metadata(0))
    build = functools.partial(tl.build, tmp_path / "a.jsonl", tmp_path / "t", tokenizer="bytes")
    refused(build, tl.MissingExtra, "a.jsonl", "orjson", "tokenloom[build]")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("block_bytes", [1, 500])
def test_records_given_directly_come_back(tmp_path, block_bytes):
    rows = [{"text": f"é{n}", "n": n, "x": [n / 4, None, {"y": math.pi}]} for n in range(30)]
    store, _ = read(rows, tmp_path, block_bytes=block_bytes, workers=1)
    kept = [store.metadata(n) for n in range(30)]
    assert [{"n": row["n"], "x": row["x"]} for row in kept] == [
        {"n": row["n"], "x": row["x"]} for row in rows
    ]
    ids = read([{"input_ids": np.arange(3)}], tmp_path, tokenizer=None, vocab_size=9)[0]
    assert ids.document(0).tolist() == [0, 1, 2]
