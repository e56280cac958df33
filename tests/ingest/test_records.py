"""Blocks of any size give the records of a naive reader, and every bad record is placed."""

import gzip
import json
import os
import re
import sys
from dataclasses import replace

import datasets
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenloom.errors import InputError
from tokenloom.ingest import records as module
from tokenloom.ingest.cuts import BLOCK_BYTES, blocks
from tokenloom.ingest.inputs import expand
from tokenloom.ingest.records import read_block
from tokenloom.testing import tiny

BOM = b"\xef\xbb\xbf"
CUTS = [1, 2, 7, 64, 1 << 20]


def read_all(inputs, *, block_bytes=BLOCK_BYTES, **options):
    """Every record as (input, line, record), every error as (input, line, message), and bytes."""
    seen = [0] * len(inputs)
    good, bad, size = [], [], 0
    portable = [replace(one, rows=None) for one in inputs]  # what another process has
    for block in blocks(inputs, block_bytes=block_bytes):
        read = read_block(portable, block, **options)
        assert len(read.records) == len(read.piece) == len(read.number)
        assert (read.piece.dtype, read.number.dtype) == (np.int32, np.int64)
        size += read.bytes
        first = []
        for piece, count in zip(block, read.counts, strict=True):
            first.append((piece.input, seen[piece.input]))
            seen[piece.input] += count
        for record, piece, number in zip(read.records, read.piece, read.number, strict=True):
            good.append((first[piece][0], first[piece][1] + int(number), record))
        for error in read.errors:
            place = first[error.piece]
            bad.append((place[0], place[1] + error.record, error.message))
    return good, bad, size, seen


def values(inputs, **options):
    good, bad, _, _ = read_all(inputs, **options)
    assert not bad
    return [record for _, _, record in good]


def one_file(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return expand(path)


# ---------------------------------------------------------------- lines


def naive_lines(content):
    """(number, text) of the lines that are not blank, and how many lines there are."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if lines:
        lines[0] = lines[0].removeprefix(BOM)
    texts = [line.decode() for line in lines]
    kept = [(n, t.removesuffix("\r")) for n, t in enumerate(texts) if t and not t.isspace()]
    return kept, len(lines)


TEXTS = st.one_of(
    st.text(st.sampled_from("aé日🌍 \r\t\u2028\x0b\x85"), max_size=12),
    st.sampled_from(["", "\r", "x\r", " ", "long " * 40, "日" * 50]),
)


@st.composite
def line_files(draw):
    lines = [text.encode() for text in draw(st.lists(TEXTS, max_size=12))]
    end = draw(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]))
    return draw(st.sampled_from([b"", BOM])) + b"\n".join(lines) + end


@settings(max_examples=100, deadline=None)
@given(content=line_files(), block_bytes=st.sampled_from([*CUTS, 3, 5, 100]))
def test_lines_in_blocks_of_any_size_are_those_of_a_naive_reader(
    tmp_path_factory, content, block_bytes
):
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.txt").write_bytes(content)
    (folder / "b.txt.gz").write_bytes(gzip.compress(content))
    (folder / "c.txt.zst").write_bytes(zstandard.compress(content))
    expected, count = naive_lines(content)
    for i, name in enumerate(["a.txt", "b.txt.gz", "c.txt.zst"]):
        inputs = expand(f"lines:{folder / name}")
        good, bad, size, seen = read_all(inputs, block_bytes=block_bytes)
        assert [(n, record["text"]) for _, n, record in good] == expected, i
        assert not bad
        assert size == len(content)
        assert seen == [count]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.one_of(
            st.dictionaries(st.text(max_size=3), st.text(max_size=30), max_size=3),
            st.just(None),
        ),
        max_size=12,
    ),
    spaces=st.sampled_from(["", "\r", " "]),
    last=st.booleans(),
    block_bytes=st.sampled_from(CUTS),
)
def test_json_lines_in_blocks_of_any_size_are_those_of_a_naive_reader(
    tmp_path_factory, rows, spaces, last, block_bytes
):
    lines = ["" if row is None else json.dumps(row, ensure_ascii=False) for row in rows]
    content = "".join(f"{line}{spaces}\n" for line in lines).encode()
    content = content if last else content.removesuffix(b"\n")
    expected = [(0, n, row) for n, row in enumerate(rows) if row is not None]
    for name, packed in [("a.jsonl", content), ("a.jsonl.gz", gzip.compress(content))]:
        inputs = one_file(tmp_path_factory.mktemp("json"), name, packed)
        good, bad, _, _ = read_all(inputs, block_bytes=block_bytes)
        assert (good, bad) == (expected, [])


@pytest.fixture
def asked(monkeypatch):
    """The number of bytes of every read from a file."""
    sizes = []
    pread = module._pread

    def spy(one, descriptor, start, stop):
        sizes.append(stop - start)
        return pread(one, descriptor, start, stop)

    monkeypatch.setattr(module, "_pread", spy)
    return sizes


def test_a_line_of_many_blocks_is_read_once_and_not_searched_by_the_others(tmp_path, asked):
    content = b'{"n": 0}\n{"text": "' + b"x" * 100_000 + b'"}\n{"n": 1}\n'
    inputs = one_file(tmp_path, "a.jsonl", content)
    with tiny(input_tail_bytes=512):
        assert [len(row) for row in values(inputs, block_bytes=1000)] == [1, 1, 1]
        assert sum(asked) < 3.5 * len(content)  # the ranges, the tail, and its last doubled step


def test_only_a_newline_ends_a_line(tmp_path):
    inputs = one_file(tmp_path, "a.txt", "a\rb\x0bc\u2028d\x85e\r\n".encode())
    lines = expand(f"lines:{inputs[0].path}")
    assert values(lines) == [{"text": "a\rb\x0bc\u2028d\x85e"}]


def test_many_files_share_a_block_and_keep_their_own_numbers(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.jsonl").write_bytes(b"".join(b'{"n":%d}\n\n' % n for n in range(i)))
    good, _, _, seen = read_all(expand(tmp_path))
    assert [(i, n) for i, n, _ in good] == [(i, 2 * n) for i in range(5) for n in range(i)]
    assert seen == [0, 2, 4, 6, 8]


# ---------------------------------------------------------------- whole files


def test_a_text_file_is_one_record_as_it_stands(tmp_path):
    (tmp_path / "a.txt").write_bytes(BOM + "é\r\n\n".encode())
    (tmp_path / "b.md.gz").write_bytes(gzip.compress(b"two\n"))
    (tmp_path / "c.txt").write_bytes(b"")
    (tmp_path / "d.txt").write_bytes(b"ok \xff")
    for block_bytes in CUTS:
        good, bad, size, seen = read_all(expand(tmp_path), block_bytes=block_bytes)
        assert [record["text"] for _, _, record in good] == ["é\r\n\n", "two\n", ""]
        ((place, line, message),) = bad
        assert (place, line) == (3, 0)
        assert message.startswith("not valid UTF-8: byte 0xff at byte 3 of the text.")
        assert size == len(BOM) + 5 + len("two\n") + 0 + 4
        assert seen == [1, 1, 1, 1]


# ---------------------------------------------------------------- bad records

BAD = [
    (b'{"text": "a"', r"not valid JSON \(.+, character \d+\) in .*allowed: one JSON object"),
    (b"[1, 2]", "found a list, allowed: one JSON object per line."),
    (b'"text"', "found a string, allowed"),
    (b"12", "found a number, allowed"),
    (b"1.5", "found a number, allowed"),
    (b"true", "found a boolean, allowed"),
    (b"null", "found null, allowed"),
    (b'{"a": NaN}', "not valid JSON"),
    (b'{"a": Infinity}', "not valid JSON"),
    (b'{"a": -Infinity}', "not valid JSON"),
    (b'{"a": 1e999}', "not valid JSON"),
    (b'{"a": "\\ud800"}', "not valid JSON"),
    (b'{"a": 1,}', "not valid JSON"),
    (b"{'a': 1}", "not valid JSON"),
    (b'{"a": 01}', "not valid JSON"),
    (b'{"a": "\x01"}', "not valid JSON"),
    (b'{"a": 1} {"b": 2}', "not valid JSON"),
    (b'{"a": ' + b"9" * 400 + b"}", "not valid JSON"),
    (BOM + b'{"a": 1}', "not valid JSON"),
    (b'{"a": "\xff"}', "not valid UTF-8: byte 0xff at byte"),
    (b'{"a": "\xed\xa0\x80"}', "not valid UTF-8"),
]
GOOD = [
    b'{"a": 18446744073709551615, "b": -9223372036854775808}',
    b'{"a": 18446744073709551616, "b": -9223372036854775809}',
    b'{"a": 123456789012345678901234567890, "b": -0, "c": -0.0}',
    b'{"a": 1E5, "b": 1e-999, "c": 0.1, "d": 2.5e-8}',
    b'{"a": "\\ud83d\\ude00 \\u00e9 \\\\ud800 \x7f"}',
    b' \t{"a": 1, "a": 2}\r',
    b'{"a": [[], {}, null, true]}',
]


@pytest.fixture(params=["orjson", "json"])
def parser(request, monkeypatch):
    if request.param == "json":
        monkeypatch.setitem(sys.modules, "orjson", None)
    assert (module._json_parser() is module._loads) == (request.param == "json")
    return request.param


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("block_bytes", CUTS)
def test_each_bad_line_is_an_error_with_its_number_and_the_rest_is_read(tmp_path, block_bytes):
    lines = []
    for i, (line, _) in enumerate(BAD):
        lines += [b'{"n": %d}' % i, b"", line]
    content = b"\n".join(lines)
    good, bad, _, seen = read_all(one_file(tmp_path, "a.jsonl", content), block_bytes=block_bytes)
    assert [(n, record) for _, n, record in good] == [(3 * i, {"n": i}) for i in range(len(BAD))]
    assert [n for _, n, _ in bad] == [3 * i + 2 for i in range(len(BAD))]
    for (line, pattern), (_, _, message) in zip(BAD, bad, strict=True):
        assert re.search(pattern, message), (line, message)
    assert seen == [len(lines)]
    offset = content.index(b"\xff")
    assert f"byte 0xff at byte {offset} of the text" in bad[-2][2]


@pytest.mark.usefixtures("parser")
def test_very_long_values_are_errors_and_very_deep_ones_are_told_apart(tmp_path):
    """What becomes of a deep value is decided by its key; see test_metadata_of_any_depth_…."""
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    digits = b'{"a": ' + b"9" * 5000 + b"}"
    good, bad, _, _ = read_all(one_file(tmp_path, "a.jsonl", deep + b"\n" + digits))
    assert [n for _, n, _ in bad] == [1]
    assert "TooDeep" in repr(good)


def test_both_parsers_give_the_same_values():
    for line in GOOD:
        ours, theirs = module._loads(line), orjson.loads(line)
        assert repr(ours) == repr(theirs)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('{}[]":,\\u0dD89aEe+-.1 tn\té\x7f'), max_size=12))
def test_both_parsers_accept_the_same_language(text):
    def outcome(loads):
        try:
            return repr(loads(text.encode()))
        except ValueError:
            return "refused"

    assert outcome(module._loads) == outcome(orjson.loads)


@pytest.mark.parametrize("block_bytes", CUTS)
def test_a_line_above_the_limit_is_an_error_wherever_it_is_cut(tmp_path, block_bytes):
    lines = [b'{"a": "%s"}' % (b"x" * n) for n in (5, 30, 31, 500, 5)]
    content = b"\n".join(lines)
    inputs = one_file(tmp_path, "a.jsonl", content)
    good, bad, _, seen = read_all(inputs, block_bytes=block_bytes, max_record_bytes=39)
    assert [n for _, n, _ in good] == [0, 1, 4]
    assert [n for _, n, _ in bad] == [2, 3]
    assert all(m.startswith("longer than 39 bytes, the most allowed.") for _, _, m in bad)
    assert seen == [5]


def test_a_line_above_the_limit_is_not_read_to_its_end(tmp_path, asked):
    inputs = one_file(tmp_path, "a.txt", b"fine\n" + b"x" * 10_000)
    with tiny(input_tail_bytes=16):
        (one,) = expand(f"lines:{inputs[0].path}")
        first = next(blocks([one], block_bytes=1000))
        read = read_block([one], first, max_record_bytes=1500)
        assert [error.record for error in read.errors] == [1]
        size = first[0].stop
        # the range, and of the line that begins at byte 5 one byte more than the limit
        assert sum(asked) == size + (1501 - (size - 5))


def test_a_file_above_the_limit_is_an_error_and_is_not_read(tmp_path, monkeypatch):
    inputs = one_file(tmp_path, "a.txt", b"x" * 100)
    monkeypatch.setattr(module, "_pread", None)
    _, bad, _, _ = read_all(inputs, max_record_bytes=99)
    assert bad[0][2].startswith("longer than 99 bytes")


# ---------------------------------------------------------------- files that change


def test_a_file_that_changed_since_it_was_listed_is_refused(tmp_path):
    inputs = one_file(tmp_path, "a.jsonl", b'{"a": 1}\n')
    (block,) = blocks(inputs)
    for content in (b"", b'{"a": 1}\n{"a": 2}\n'):
        inputs[0].path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.jsonl: \d+ bytes now, 9 when it was listed"):
            read_block(inputs, block)
    inputs[0].path.unlink()
    with pytest.raises(InputError, match="No such file"):
        read_block(inputs, block)


def test_a_file_cut_short_while_it_is_read_is_refused(tmp_path, monkeypatch):
    inputs = one_file(tmp_path, "a.jsonl", b'{"a": 1}\n')
    (block,) = blocks(inputs)
    monkeypatch.setattr(os, "pread", lambda fd, count, at: b'{"a"'[at : at + count])
    with pytest.raises(InputError, match="4 bytes now, 9 when it was listed"):
        read_block(inputs, block)


def test_an_interrupted_read_is_taken_up_again(tmp_path, monkeypatch):
    inputs = one_file(tmp_path, "a.jsonl", b'{"a": 1}\n{"a": 2}\n')
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 2), at))
    assert values(inputs) == [{"a": 1}, {"a": 2}]


# ---------------------------------------------------------------- tables

ROWS = [
    {
        "text": None if i % 7 == 3 else f"document {i} é",
        "input_ids": None if i % 11 == 5 else list(range(i % 5)),
        "holes": [i, None],
        "weights": [i / 2] * (i % 3),
        "meta": {"url": f"u{i}", "tags": ["a"] * (i % 2)},
        "score": i * 0.5,
    }
    for i in range(1000)
]


def plain_rows(rows):
    return [
        {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()} for row in rows
    ]


@pytest.mark.parametrize("block_bytes", [1, 5000, BLOCK_BYTES])
def test_parquet_gives_the_rows_that_were_written(tmp_path, block_bytes):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=70)
    inputs = expand(path)
    good, bad, size, seen = read_all(inputs, block_bytes=block_bytes)
    assert not bad
    assert [n for _, n, _ in good] == list(range(1000))
    assert plain_rows(record for _, _, record in good) == ROWS
    assert seen == [1000]
    assert size > 20_000


@pytest.mark.parametrize("kind", [pa.list_(pa.uint16()), pa.large_list(pa.int64())])
def test_lists_of_numbers_are_views_of_one_array(tmp_path, kind):
    ids = [[1, 2, 3], None, [], [4]]
    table = pa.table({"input_ids": pa.array([[9], *ids], kind)}).slice(1)
    pq.write_table(table, tmp_path / "a.parquet")
    rows = values(expand(tmp_path / "a.parquet"))
    first, last = rows[0]["input_ids"], rows[3]["input_ids"]
    assert isinstance(first, np.ndarray)
    assert first.dtype == kind.value_type.to_pandas_dtype()
    assert last.__array_interface__["data"][0] - first.__array_interface__["data"][0] == (
        3 * first.itemsize
    )
    assert plain_rows(rows) == [{"input_ids": value} for value in ids]


def test_only_the_columns_asked_for_are_read(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS[:3]), tmp_path / "a.parquet")
    data = datasets.Dataset.from_list(ROWS[:3])
    for inputs in (expand(tmp_path / "a.parquet"), expand(data)):
        assert values(inputs, columns=["score", "absent"]) == [{"score": i / 2} for i in range(3)]
        assert values(inputs, columns=["absent"]) == [{}, {}, {}]


def test_text_in_parquet_that_is_not_utf8_is_an_error_of_its_row(tmp_path):
    raw = pa.array([b"fine", b"not \xff", None, b"fine too"])
    path = tmp_path / "a.parquet"
    table = pa.table(
        {"n": [0, 1, 2, 3], "text": pa.Array.from_buffers(pa.string(), 4, raw.buffers())}
    )
    pq.write_table(table, path)
    good, bad, _, _ = read_all(expand(path))
    assert [(n, record["text"]) for _, n, record in good] == [
        (0, "fine"),
        (2, None),
        (3, "fine too"),
    ]
    assert [(n, m[:50]) for _, n, m in bad] == [
        (1, "text: not valid UTF-8: byte 0xff at byte 4 of the "),
    ]


def test_damaged_parquet_is_an_input_error(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 50] * 1000}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[8:40] = bytes(32)
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read"):
        read_all(expand(path))
    inputs = expand(path)
    (block,) = blocks(inputs)
    path.write_bytes(bytes(content) + b"x")
    with pytest.raises(InputError, match="bytes now"):
        read_block(inputs, block)


@pytest.mark.parametrize("block_bytes", [1, 5000, BLOCK_BYTES])
def test_a_dataset_gives_its_rows_from_memory_and_from_disk(tmp_path, block_bytes):
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "many")
    wanted = slice(0, 60) if block_bytes == 1 else slice(None)
    for given_ in (data, f"hf:{tmp_path / 'one'}", f"hf:{tmp_path / 'many'}:train"):
        (one,) = expand(given_)
        inputs = [replace(one, rows=one.rows.select(range(1000)[wanted]))]
        assert plain_rows(values(inputs, block_bytes=block_bytes)) == ROWS[wanted]
    odd = data.select(range(1, 1000, 2))
    assert plain_rows(values(expand(odd), block_bytes=5000)) == ROWS[1::2]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("block_bytes", [1, 500, BLOCK_BYTES])
def test_records_given_directly_come_back(block_bytes):
    assert values(expand(ROWS), block_bytes=block_bytes) == ROWS
    assert values(expand([{"input_ids": np.arange(3)}])) == [{"input_ids": [0, 1, 2]}]
