"""Bad input: told in one paragraph with file, record, key and remedy, and counted in a table."""

import contextlib
import errno
import gzip
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, quick_folder

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.cli.grammar.words import as_typed, options_of
from tokenloom.ingest.encodings import MAX_RECORD_BYTES
from tokenloom.ingest.inputs import expand
from tokenloom.ingest.skips import Skips, Told, read_skips, reason_of
from tokenloom.ingest.spool import _any_line, canonical_line, record_of
from tokenloom.store.files import LOCAL
from tokenloom.store.metadata import TooDeep

HERE = Path(__file__).parent
TINY = {"block_bytes": 300, "inner": 32, "shard_tokens": 500}


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def listed(root, number=1):
    lines = (root / f"skipped-{number:06d}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def spell(text):
    return [ord(c) for c in text]


# -- hooks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("option", "hook", "said"),
    [
        ("filter", "badhooks:needs_lang", "filter raised KeyError: 'lang'"),
        ("transform", "badhooks:no_seventh", "transform raised RuntimeError: seven is right out"),
        ("tokenizer", "badhooks:spell", "tokenizer raised ValueError: no shouting"),
    ],
)
def test_a_hook_that_raises_is_told_with_input_record_and_line(
    option, hook, said, workers, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(HERE))
    rows = [{"text": f"text {i}", "n": i, "lang": "en"} for i in range(30)]
    rows[7] = {"text": "seven!", "n": 7}
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    options = {"tokenizer": "bytes", option: hook, "workers": workers, **TINY}
    options |= {"vocab_size": 200} if option == "tokenizer" else {}
    with pytest.raises(tl.InputError) as caught:
        tl.build(source, tmp_path / "s", **options)
    message = str(caught.value)
    assert f"{source}: record 7 (line 8): {said}" in message
    assert "badhooks.py, line" in message
    assert "on_error='skip'" in message
    store = tl.build(source, tmp_path / "t", on_error="skip", **options)
    assert store.num_documents == 29
    assert [store.metadata(i)["_record"] for i in range(29)] == [i for i in range(30) if i != 7]
    (place,) = listed(tmp_path / "t")
    assert (place["input"], place["record"]) == ("a.jsonl", 7)
    assert place["reason"] == "skipped: " + said.split(": ")[0]


def test_ids_that_no_build_may_keep_are_told_with_their_record(tmp_path):
    rows = [{"text": "a"}] * 3 + [{"text": "é" * 3}]
    with pytest.raises(tl.TokenizerError, match=r"rows-0: record 3: .*id 233"):
        tl.build(rows, tmp_path / "s", tokenizer=spell, vocab_size=200, on_error="skip")
    rows = [{"input_ids": [1]}, {"input_ids": [1, 99]}]
    with pytest.raises(tl.TokenizerError, match=r"rows-0: record 1: id 99 in a document, allowed"):
        tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=9)


# -- metadata ------------------------------------------------------------------------------


def test_a_reserved_key_is_told_and_skipped_and_may_be_left_out(tmp_path):
    """The finding: metadata of one store fed into another killed the build with a KeyError."""
    a = tl.build([{"text": "abc", "id": "1"}], tmp_path / "a", tokenizer="bytes", id_key="id")
    rows = [{"text": "again", **a.metadata(0)}, {"text": "fine", "id": "2"}]
    options = {"tokenizer": "bytes", "id_key": "id"}
    with pytest.raises(
        tl.InputError, match=r"record 0: the key '_input' is reserved.*metadata_keys"
    ):
        tl.build(rows, tmp_path / "b", **options)
    assert tl.build(rows, tmp_path / "c", on_error="skip", **options).num_documents == 1
    assert tl.build(rows, tmp_path / "d", metadata_keys=[], **options).num_documents == 2


def nested(depth, kind):
    value = "leaf"
    for i in range(depth):
        value = [value] if kind == "list" or (kind == "both" and i % 2) else {"k": value}
    return value


def given_as(kind, rows, folder):
    """The same records as a file, as a list, or as an iterator."""
    if kind == "file":
        source = folder / "a.jsonl"
        source.write_bytes(b"".join(canonical_line(row, "rows") + b"\n" for row in rows))
        return lambda: source
    return (lambda: rows) if kind == "rows" else (lambda: iter(rows))


@pytest.mark.parametrize("way", ["file", "rows", "iterator"])
@pytest.mark.parametrize("kind", ["list", "both"])
@pytest.mark.parametrize("depth", [64, 65, 600, 5000])
def test_metadata_of_any_depth_is_kept_or_told(depth, kind, way, tmp_path):
    rows = [{"text": "a", "n": 7, "x": nested(depth, kind)}, {"text": "b"}]
    source, options = given_as(way, rows, tmp_path), {"tokenizer": "bytes"}
    if depth <= 64:
        store = tl.build(source(), tmp_path / "s", **options)
        assert store.metadata(0)["x"] == rows[0]["x"]
        return
    line = r" \(line 1\)" if way == "file" else ""
    with pytest.raises(tl.InputError, match=rf"record 0{line}: 'x' is nested more than 64 levels"):
        tl.build(source(), tmp_path / "s", **options)
    store = tl.build(source(), tmp_path / "t", on_error="skip", **options)
    assert store.num_documents == 1
    (place,) = listed(tmp_path / "t")
    assert place["reason"].startswith("skipped: 'x' is nested more than")
    store = tl.build(source(), tmp_path / "u", metadata_keys=["n"], **options)
    assert store.num_documents == 2
    assert store.metadata(0)["n"] == 7


def test_a_value_too_deep_for_a_parser_is_no_value_for_hooks_and_spoils_no_other_key(tmp_path):
    rows = [{"text": "a", "n": "kept", "x": nested(3000, "both")}]
    options = {"tokenizer": "bytes"}

    def shorter(record):
        return {**record, "x": len(record["x"])}

    with pytest.raises(tl.InputError, match=r"record 0: transform raised TypeError: .*'TooDeep'"):
        tl.build(rows, tmp_path / "s", transform=shorter, **options)
    with pytest.raises(tl.InputError, match=r"record 0: 'y' is nested more than 64 levels"):
        tl.build(rows, tmp_path / "s", transform=lambda r: {"text": "a", "y": [r["x"]]}, **options)
    store = tl.build(rows, tmp_path / "t", transform=lambda r: {**r, "x": 0}, **options)
    assert (store.metadata(0)["n"], store.metadata(0)["x"]) == ("kept", 0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\\\"[]{},:é"), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=20)
@given(st.dictionaries(st.text('x[{"\\'), VALUES, max_size=3), st.integers(0, 2))
def test_a_line_of_any_depth_is_the_line_of_the_usual_encoder(row, deep):
    assert _any_line(row, "rows") == canonical_line(row, "rows")
    assert json.loads(_any_line(row, "rows")) == row
    row = {**row, **{f"deep{i}": nested(1100, "both") for i in range(deep)}}
    if not deep:
        with pytest.raises(ValueError, match="not deep"):
            record_of(canonical_line(row, "rows"), json.loads)
        return
    found = record_of(canonical_line(row, "rows"), json.loads)
    assert set(found) == set(row)
    for key, value in found.items():
        assert isinstance(value, TooDeep) if key.startswith("deep") else value == row[key]


def test_what_json_cannot_hold_is_told_with_its_place_at_any_depth(tmp_path):
    ring = {"a": [1]}
    ring["a"].append(ring)
    twice = [1]
    assert canonical_line({"a": twice, "b": [twice, twice]}, "r") == b'{"a":[1],"b":[[1],[1]]}'
    deep = nested(1000, "list")
    for wrong, told in (
        ({"x": ring}, r"rows\[0\]\.x\.a\[1\]: it is inside itself"),
        ({"x": [{"y": {1: 2}}]}, r"rows\[0\]\.x\[0\]\.y: the key 1 is not a string"),
        ({"x": [deep, {"y": object()}]}, r"rows\[0\]\.x\[1\]\.y: found object"),
        ({"x": [deep, {1: 2}]}, r"rows\[0\]\.x\[1\]: the key 1 is not a string"),
    ):
        with pytest.raises(tl.InputError, match=told):
            tl.build([{"text": "a", **wrong}], tmp_path / "s", tokenizer="bytes")


# -- the missing key -----------------------------------------------------------------------


def test_a_missing_text_key_names_the_option_and_the_likely_column(tmp_path, capsys):
    rows = [{"doc_id": "7", "body": "the long text of it", "lang": "en", "score": 1}]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(tl.InputError, match=r"For the text in 'body', pass text_key='body'\."):
        tl.build(source, tmp_path / "s", tokenizer="bytes")
    with pytest.raises(tl.InputError, match=r"For the text in 'lang', pass"):
        tl.build(source, tmp_path / "s", tokenizer="bytes", id_key="body")  # not the id
    assert main(["build", str(source), "-o", str(tmp_path / "s"), "-t", "bytes"]) == 3
    said = capsys.readouterr().err
    assert "pass --text-key body." in said
    assert "--on-error skip" in said
    assert "on_error" not in said
    ids = [{"tokens": [1, 2, 3], "n": 1}]
    with pytest.raises(tl.InputError, match=r"For the ids in 'tokens', pass ids_key='tokens'\."):
        tl.build(ids, tmp_path / "s", tokenizer=None, vocab_size=9)


# -- the words of the caller ---------------------------------------------------------------


def test_every_option_of_build_is_told_as_it_is_typed():
    import inspect

    from tokenloom.cli import parser

    arguments = parser().parse_args(["build", "x", "-o", "y"])
    options = options_of(arguments)
    words = set(inspect.signature(tl.build).parameters) & options
    assert len(words) > 20
    for name in words:
        typed = "--" + name.replace("_", "-")
        assert as_typed(f"pass {name}='skip' now", options) == f"pass {typed} skip now"
        assert as_typed(f"pass {name}=True, or go", options) == f"pass {typed}, or go"
        assert as_typed(f"{name}: found 7", options) == f"{typed}: found 7"
        assert as_typed(f"a path/{name}=x and 'my {name}x'", options).startswith(f"a path/{name}")
    for name in set(inspect.signature(tl.build).parameters) - options:
        assert as_typed(f"pass {name}=3", options) == f"pass {name}=3"


def test_the_command_line_says_what_to_type_in_errors_and_in_the_log(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}, {"txt": "b"}, {"text": "c"}])
    env = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parent.parent)}
    command = [sys.executable, "-m", "tokenloom", "build", str(source), "-t", "bytes", "-o"]

    def run(*words):
        return subprocess.run([*command, *words], capture_output=True, text=True, env=env)

    failed = run(str(tmp_path / "s"))
    assert failed.returncode == 3
    assert "record 1 (line 2): no key 'text'" in failed.stderr
    assert "--on-error skip" in failed.stderr
    done = run(str(tmp_path / "s"), "--on-error", "skip")
    assert done.returncode == 0
    assert "1 record skipped, 0 filtered; reasons:" in done.stderr
    assert "1        1  skipped: no key 'text'" in done.stderr
    assert f"their places: {tmp_path}/s/skipped-000001.jsonl" in done.stderr
    again = run(str(tmp_path / "s"), "--on-error", "skip", "--id-key", "text")
    assert again.returncode == 1
    assert "pass --append to add to it, or --overwrite to replace it" in again.stderr


# -- sizes ---------------------------------------------------------------------------------


BOMB = """
import resource, sys, tokenloom as tl
limit = int(sys.argv[3]) << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    options = {"max_record_bytes": int(sys.argv[5])} if sys.argv[5] else {}
    store = tl.build(sys.argv[1], sys.argv[2], tokenizer="bytes", on_error=sys.argv[4], **options)
    print("documents", store.num_documents)
except tl.InputError as error:
    print("InputError", error)
# not ru_maxrss, which starts with the memory of the process that forked this one
told = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", int(told.split()[1]) >> 10)
"""


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["x.jsonl.zst", *(pytest.param(n, marks=SLOW) for n in ("x.jsonl.gz", "x.txt.zst"))]
)
@pytest.mark.parametrize(
    ("members", "limit", "most"),
    [(4, 1 << 20, 600), pytest.param(64, None, 1400, marks=pytest.mark.slow)],
)
def test_an_archive_of_a_few_kilobytes_cannot_take_the_memory_of_the_machine(
    name, members, limit, most, tmp_path
):
    """One line of gigabytes, then a good one: told, skipped, and the good one is kept."""
    pack = zstandard.compress if name.endswith("zst") else gzip.compress
    path = tmp_path / name
    path.write_bytes(pack(b"a" * (64 << 20)) * members + pack(b'\n{"text": "good"}\n'))
    env = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parent.parent)}
    for mode in ("raise", "skip"):
        words = [
            sys.executable,
            "-c",
            BOMB,
            str(path),
            str(tmp_path / mode),
            "6000",
            mode,
            "" if limit is None else str(limit),
        ]
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
        out = done.stdout.split("\n")
        if mode == "raise":
            most_bytes = limit or MAX_RECORD_BYTES
            assert f"longer than {most_bytes} bytes" in out[0], done.stderr
            assert "record 0" in out[0]
            assert f"max_record_bytes={2 * most_bytes}" in out[0]
        else:
            assert out[0] == f"documents {0 if '.txt' in name else 1}", done.stderr
        assert int(out[1].split()[1]) < most, "MiB"


def test_a_long_record_is_told_wherever_it_comes_from(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"text": "short"}, {"text": "x" * 5000}, {"text": "also short"}]
    plain = write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_text("\n".join(row["text"] for row in rows))
    inputs = {
        "plain": plain,
        "gz": tmp_path / "b.jsonl.gz",
        "parquet": tmp_path / "c.parquet",
        "lines": f"lines:{tmp_path / 'd.txt'}",
        "rows": rows,
        "iterator": iter(rows),
    }
    for name, one in inputs.items():
        store = tl.build(
            one, tmp_path / name, tokenizer="bytes", on_error="skip", max_record_bytes=1000
        )
        assert store.num_documents == 2, name
        (place,) = listed(tmp_path / name)
        assert place["record"] == 1
        assert "max_record_bytes=2000" in place["message"]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_blank_lines_in_any_number_are_skipped_without_a_word(data):
    lines = data.draw(st.lists(st.sampled_from(["", " ", "\t", '{"text": "a"}', "x"]), max_size=40))
    with quick_folder() as folder:
        path = folder / "a.jsonl"
        path.write_text("\n".join(lines))
        from tokenloom.ingest.cuts import blocks
        from tokenloom.ingest.records import read_block

        found = expand(path)
        reads = [read_block(found, block) for block in blocks(found, block_bytes=7)]
        assert sum(len(read.records) for read in reads) == lines.count('{"text": "a"}')
        assert sum(len(read.errors) for read in reads) == lines.count("x")


# -- encodings -----------------------------------------------------------------------------


def test_a_directory_in_several_encodings_is_read_if_they_are_named(tmp_path, caplog):
    corpus = tmp_path / "c"
    corpus.mkdir()
    for i in range(6):
        (corpus / f"{i}.txt").write_bytes(f"café {i}".encode(["utf-8", "cp1252"][i % 2]))
    with pytest.raises(
        tl.InputError, match=r"1\.txt: record 0: not valid UTF-8.*encoding='cp1252'"
    ):
        tl.build(corpus, tmp_path / "s", tokenizer="bytes")
    store = tl.build(corpus, tmp_path / "s", tokenizer="bytes", on_error="skip")
    assert store.num_documents == 3
    assert "3        3  skipped: not valid UTF-8" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "tokenloom"):
        store = tl.build(corpus, tmp_path / "t", tokenizer="bytes", encoding=["utf-8", "cp1252"])
    assert [bytes(d.astype("u1")).decode() for d in store.documents(range(6))] == [
        f"café {i}" for i in range(6)
    ]
    assert "3        3  kept: not valid utf-8, read as cp1252" in caplog.text
    store = tl.build(corpus, tmp_path / "u", tokenizer="bytes", errors="replace")
    assert bytes(store.document(1).astype("u1")).decode() == "caf� 1"
    store = tl.build(corpus, tmp_path / "v", tokenizer="bytes", errors="ignore")
    assert bytes(store.document(1).astype("u1")).decode() == "caf 1"
    assert (
        tl.build(corpus, tmp_path / "w", tokenizer="bytes", encoding="latin-1").num_documents == 6
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32", "cp1252", "utf-8-sig", "koi8-r"])
def test_a_file_comes_back_in_every_encoding(encoding, tmp_path):
    text = "Привет\n" if encoding == "koi8-r" else "café\nnaïve\n"
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    store = tl.build(tmp_path / "a.txt", tmp_path / "s", tokenizer="bytes", encoding=encoding)
    assert bytes(store.document(0).astype("u1")).decode() == text
    lines = f"lines:{tmp_path / 'a.txt'}"
    if encoding in ("utf-16", "utf-32"):
        with pytest.raises(tl.InputError, match=r"newline is not one byte.*iconv"):
            tl.build(lines, tmp_path / "t", tokenizer="bytes", encoding=encoding)
        return
    store = tl.build(lines, tmp_path / "t", tokenizer="bytes", encoding=encoding)
    found = [bytes(d.astype("u1")).decode() for d in store.documents(range(store.num_documents))]
    assert [line.lstrip("\ufeff") for line in found] == text.split()
    rows = json.dumps({"text": text}, ensure_ascii=False) + "\n"
    (tmp_path / "b.jsonl").write_bytes(rows.encode(encoding) * 3)
    workers = {"workers": 2, "block_bytes": 10}
    one = tl.build(tmp_path / "b.jsonl", tmp_path / "u", tokenizer="bytes", encoding=encoding)
    if encoding != "utf-8-sig":  # a mark before every line is no JSON
        assert one.num_documents == 3
        two = tl.build(
            tmp_path / "b.jsonl", tmp_path / "v", tokenizer="bytes", encoding=encoding, **workers
        )
        assert one.digest == two.digest


def test_utf_16_is_recognised_in_the_message_and_wrong_names_are_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes("hello".encode("utf-16"))
    with pytest.raises(tl.InputError, match=r"It starts like UTF-16: pass encoding='utf-16'"):
        tl.build(tmp_path / "a.txt", tmp_path / "s", tokenizer="bytes")
    for bad in ("utf-9", "", "hex", "rot13", [], 7, None, ["utf-8", "nope"]):
        with pytest.raises((tl.ConfigError, TypeError)):
            tl.build(tmp_path / "a.txt", tmp_path / "t", tokenizer="bytes", encoding=bad)
    with pytest.raises(tl.ConfigError, match="errors: found 'surrogateescape'"):
        tl.build(tmp_path / "a.txt", tmp_path / "t", tokenizer="bytes", errors="surrogateescape")
    assert not (tmp_path / "t").exists()


# -- the table and the places --------------------------------------------------------------


@pytest.mark.parametrize(
    ("special", "told"),
    [
        ({}, ""),
        ({"eos": 0}, ", a document of EOS alone"),
        ({"bos": 1, "eos": 0, "add_bos": True}, ", a document of BOS and EOS alone"),
    ],
)
def test_an_empty_text_is_told_with_what_is_left_of_it(tmp_path, special, told):
    """It said "a document of N tokens", with the letter."""
    tl.build([{"text": "a"}, {"text": ""}], tmp_path / "s", tokenizer="bytes", **special)
    assert [place["reason"] for place in listed(tmp_path / "s")] == [f"kept: empty text{told}"]


@pytest.mark.parametrize("workers", [1, 2])
def test_reasons_are_counted_and_places_listed_also_over_a_resume(workers, tmp_path, caplog):
    rows = [{"text": "" if i % 11 == 0 else f"text {i}", "n": i} for i in range(200)]
    lines = [json.dumps(row) for row in rows]
    for i in range(3, 200, 9):
        lines[i] = "oops"
    for i in range(5, 200, 9):
        lines[i] = json.dumps({"body": "x"})
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:100]))
    (tmp_path / "b.jsonl").write_text("\n".join(lines[100:]))
    options = {"tokenizer": "bytes", "on_error": "skip", "workers": workers, **TINY}
    inputs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    store = tl.build(inputs, tmp_path / "s", **options)
    places = listed(tmp_path / "s")
    bad = [i for i in range(200) if lines[i] == "oops"]
    other = [i for i in range(200) if "body" in lines[i]]
    empty = [i for i in range(0, 200, 11) if i not in {*bad, *other}]

    def at(reason):
        found = [p for p in places if p["reason"] == reason]
        return [p["record"] + 100 * (p["input"] == "b.jsonl") for p in found]

    assert at("skipped: not valid JSON") == bad
    assert at("skipped: no key 'text'") == other
    assert at("kept: empty text") == empty
    assert len(places) == len(bad) + len(other) + len(empty)
    assert [p["record"] + 100 * (p["input"] == "b.jsonl") for p in places] == sorted(
        bad + other + empty
    )
    for count, reason in ((len(bad), "not valid JSON"), (len(other), "no key 'text'")):
        assert f"{count:>10} {2:>8}  skipped: {reason}" in caplog.text
    assert store.reader.manifest.parts[0].skipped == len(bad) + len(other)
    assert store.verify(progress=False).ok
    whole = {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir() if p.is_file()}
    shards = sorted((tmp_path / "s").glob("shard-*"))
    assert len(shards) > 2
    for kept in range(len(shards) + 1):
        target = tmp_path / f"resumed-{kept}"
        target.mkdir()
        for shard in shards[:kept]:
            subprocess.run(["cp", "-r", str(shard), str(target)], check=True)
        tl.build(inputs, target, **options)
        again = {p.name: p.read_bytes() for p in target.iterdir() if p.is_file()}
        assert again == whole, kept


def test_a_store_without_anything_to_tell_has_no_such_file(tmp_path):
    tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes")
    assert [p.name for p in (tmp_path / "s").rglob("skipped*")] == []


def test_counts_stay_exact_when_there_are_too_many_places_to_list(monkeypatch):
    from tokenloom.ingest import skips as module

    monkeypatch.setattr(module, "MAX_PLACES", 10)
    monkeypatch.setattr(module, "MAX_REASONS", 3)
    skips = Skips()
    for block in range(5):
        skips = skips.plus(Told(block, "a", i, "skipped", f"reason {'abcde'[i]}") for i in range(5))
        packed = skips.packed()
        read = read_skips(packed, "x")
        assert (read.table, read.listed) == (dict(skips.table), skips.listed)
        skips = skips.flushed()
    assert skips.count("skipped") == 25
    assert skips.listed == 10
    assert dict(skips.table)["skipped: other reasons"][0] == 10
    assert dict(skips.table)["skipped: reason a"][:2] == (5, 5)
    for junk in (b"", b"junk", packed[:20], zstandard.compress(b"{}\n"), zstandard.compress(b"")):
        with pytest.raises(tl.StoreCorrupt, match="not a list of records"):
            read_skips(junk, "x")


def test_reasons_have_no_part_that_differs_from_record_to_record():
    same = [f"not valid UTF-8: byte 0x{i:02x} at byte {i * 7} of the text." for i in range(9)]
    assert len(set(map(reason_of, same))) == 1
    same = [f"longer than {i} bytes, the most allowed." for i in range(99)]
    assert set(map(reason_of, same)) == {"longer than N bytes"}


# -- nothing to train on -------------------------------------------------------------------


def test_a_store_of_empty_texts_is_told_before_it_is_published(tmp_path):
    rows = [{"text": ""}] * 5
    with pytest.raises(UserWarning, match="every one of its 5 texts is empty"):
        tl.build(rows, tmp_path / "s", tokenizer="bytes")  # warnings are errors here
    with pytest.raises(tl.StoreNotFound):
        tl.open(tmp_path / "s")
    with pytest.warns(UserWarning, match="nothing to train on"):
        assert tl.build(rows, tmp_path / "s", tokenizer="bytes").num_documents == 5
    with pytest.warns(UserWarning, match="every one of its 5 texts is empty"):
        tl.build(rows, tmp_path / "t", tokenizer=spell, vocab_size=300, eos=256)
    with pytest.warns(UserWarning, match="it has no documents: 5 records skipped, 0 filtered"):
        tl.build([{"x": 1}] * 5, tmp_path / "u", tokenizer="bytes", on_error="skip")
    with pytest.warns(UserWarning, match="it has no documents: 0 records skipped, 5 filtered"):
        tl.build(rows, tmp_path / "v", tokenizer="bytes", filter=lambda record: False)


# -- what a directory gives ----------------------------------------------------------------


def test_a_directory_says_in_one_line_what_it_gave_and_what_was_left_out(tmp_path, caplog):
    corpus = tmp_path / "c"
    (corpus / "sub").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "README.md", ".hidden.txt", "picture.png", "sub/c.jsonl"):
        (corpus / name).write_text('{"text": "x"}' + name)
    (corpus / "sub/c.jsonl").write_text('{"text": "c"}\n')
    (corpus / ".git").mkdir()
    (corpus / "link").symlink_to(corpus / "sub")
    with caplog.at_level(logging.INFO, "tokenloom"):
        assert tl.build(corpus, tmp_path / "s", tokenizer="bytes").num_documents == 4
    (line,) = [r.getMessage() for r in caplog.records if "taken" in r.getMessage()]
    assert line == (
        f"{corpus}: 4 files taken (2 .txt, 1 .md, 1 .jsonl; README among them: 1; "
        "left out: 1 .png, 2 hidden, 1 reached by links)"
    )


# -- EMFILE and EIO ------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    rows = [{"text": f"text {i} " * 20} for i in range(40)]
    return tl.build(rows, tmp_path / "s", tokenizer="bytes", shard_tokens=400, files=QUICK)


def test_too_many_open_files_are_told_as_what_they_are(store):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    cold = tl.open(store.path, cache_bytes=0)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(tl.StoreError, match=r"Too many open files.*ulimit -n") as caught:
            cold.documents(range(40))
        assert not isinstance(caught.value, tl.StoreCorrupt)
        assert caught.value.errno == errno.EMFILE
        assert "build the store again" not in str(caught.value)
        with pytest.raises(tl.StoreError, match=r"Too many open files.*ulimit -n"):
            tl.open(store.path)
        with pytest.raises(tl.InputError, match=r"Too many open files.*ulimit -n"):
            expand(__file__)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(cold.documents(range(40))) == 40


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_disk_that_fails_for_a_moment_is_a_store_error_and_no_damage(code, store, monkeypatch):
    from tokenloom.store import byte_source

    cold, real, failing = tl.open(store.path, cache_bytes=0), byte_source._READ, [True]

    def read(fd, buffers, offset):
        if failing[0]:
            raise OSError(code, os.strerror(code))
        return real(fd, buffers, offset)

    monkeypatch.setattr(byte_source, "_READ", read)
    for call in (lambda: cold.document(3), lambda: cold.documents(range(40)), lambda: cold.lengths):
        with pytest.raises(tl.StoreError) as caught:
            call()
        assert not isinstance(caught.value, tl.StoreCorrupt)
        assert str(store.path) in str(caught.value)
        assert os.strerror(code) in str(caught.value)
        assert caught.value.errno == code
    failing[0] = False
    assert cold.document(3).tolist() == store.document(3).tolist()


def test_a_file_that_is_gone_is_still_damage(store):
    cold = tl.open(store.path, cache_bytes=0)
    LOCAL.remove(store.path / "shard-00001")
    with pytest.raises(tl.StoreCorrupt, match=r"the file is missing.*build the store again"):
        cold.documents(range(40))


# -- iterators and tables ------------------------------------------------------------------


ROWS = [{"text": f"text {i} ü", "n": i, "tags": ["a", i]} for i in range(300)]


def everything(root):
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name != ".lock"
    }


class Streaming:
    """Something that can be iterated and nothing else, as a streaming dataset."""

    def __iter__(self):
        yield from ROWS


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["generator", "iterator", "map", "object", "iterable dataset"])
def test_an_iterator_gives_the_bytes_of_a_list(kind, workers, tmp_path, caplog, monkeypatch):
    import datasets

    made = {
        "generator": lambda: (row for row in ROWS),
        "iterator": lambda: iter(ROWS),
        "map": lambda: map(dict, ROWS),
        "object": Streaming,
        "iterable dataset": lambda: datasets.IterableDataset.from_generator(
            lambda: ({"text": row["text"], "n": row["n"]} for row in ROWS)
        ),
    }[kind]
    rows = [{"text": r["text"], "n": r["n"]} for r in ROWS] if "dataset" in kind else ROWS
    tl.build(rows, tmp_path / "list", tokenizer="bytes", **TINY)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with caplog.at_level(logging.INFO, "tokenloom"):
        tl.build(made(), tmp_path / "s", tokenizer="bytes", workers=workers, **TINY)
    assert everything(tmp_path / "s") == everything(tmp_path / "list")
    assert "300 records, kept in a temporary file" in caplog.text
    assert f"in {tmp_path / 'tmp'}" in caplog.text
    assert os.listdir(tmp_path / "tmp") == []


def test_an_iterator_resumes_if_it_gives_the_same_records_and_is_refused_if_not(tmp_path):
    tl.build(iter(ROWS), tmp_path / "whole", tokenizer="bytes", **TINY)
    expected = everything(tmp_path / "whole")
    (tmp_path / "whole/manifest-000001.json").unlink()
    LOCAL.remove(sorted((tmp_path / "whole").glob("shard-*"))[-1])
    with pytest.raises(tl.StoreExists, match="an unfinished build with other inputs"):
        tl.build(iter(ROWS[:-1]), tmp_path / "whole", tokenizer="bytes", **TINY)
    tl.build(iter(ROWS), tmp_path / "whole", tokenizer="bytes", **TINY)
    assert everything(tmp_path / "whole") == expected
    assert tl.build(ROWS, tmp_path / "whole", tokenizer="bytes", **TINY).num_documents == 300


def broken():
    yield {"text": "a"}
    yield {"text": "b"}
    raise ConnectionError("the stream was reset")


def endless():
    rng = np.random.default_rng(0)
    while True:
        yield {"text": rng.bytes(3000).hex()}


def test_iterators_that_fail_are_told_with_how_far_they_came(tmp_path, monkeypatch):
    def refused(inputs, words):
        with pytest.raises(tl.InputError, match=words):
            tl.build(inputs, tmp_path / "s", tokenizer="bytes")
        assert not (tmp_path / "s").exists()

    refused(broken(), r"inputs: it raised ConnectionError after 2 records: the stream was reset")
    refused(iter([{"text": "a"}, 7]), r"inputs\[1\]: found int among records")
    refused(iter([{"text": object()}]), r"inputs\[0\]\.text: found object")
    refused(iter([]), "gave nothing")
    refused((x for x in [1, 2]), r"inputs\[0\]: found int among records")
    with open(__file__) as file:
        refused(file, "found TextIOWrapper")
    from tokenloom.ingest import spool as module

    class Usage:
        free = 100_000

    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: Usage)
    refused(endless(), r"records fill .* and there are more\. Is it endless\?")


def test_the_target_is_judged_before_an_iterator_is_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("n")
    rows = iter(ROWS)
    with pytest.raises(tl.StoreExists):
        tl.build(rows, tmp_path, tokenizer="bytes")
    assert next(rows) == ROWS[0]


class Capsule:
    """Any table of another library: all it shares with ours is Arrow's C interface."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_tables_are_records(tmp_path):
    import pandas as pd
    import pyarrow as pa

    frame = pd.DataFrame(
        {
            "text": ["one", "two", "three"],
            "n": [1, 2, 3],
            "score": [0.5, float("nan"), 2.0],
            "when": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
        },
        index=["x", "y", "z"],
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    stores = {
        name: tl.build(one, tmp_path / name, tokenizer="bytes")
        for name, one in {"pandas": frame, "arrow": table, "capsule": Capsule(table)}.items()
    }
    for store in stores.values():
        texts = [bytes(d.astype("u1")).decode() for d in store.documents(range(3))]
        assert texts == ["one", "two", "three"]
        assert store.metadata(0) == {
            "_input": "table-0",
            "_record": 0,
            "n": 1,
            "score": 0.5,
            "when": "2024-01-01T00:00:00",
        }
        assert store.metadata(1) == {"_input": "table-0", "_record": 1, "n": 2}
    assert len({store.manifest_sha256 for store in stores.values()}) == 1
    assert tl.build(frame, tmp_path / "pandas", tokenizer="bytes", workers=2).snapshot == 1
    for bad in (
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"text": ["a", 7]}),
    ):
        with pytest.raises(tl.InputError, match="inputs: "):
            tl.build(bad, tmp_path / "bad", tokenizer="bytes")
    missing = pd.DataFrame({"text": ["a", None]})
    with pytest.raises(tl.InputError, match=r"table-0: record 1: 'text' is null"):
        tl.build(missing, tmp_path / "bad", tokenizer="bytes")


# -- blocks without documents --------------------------------------------------------------


def test_a_block_without_documents_comes_back_from_a_worker(tmp_path):
    """A line longer than two blocks leaves a block in which no line starts."""
    rows = [{"text": "x" * 5000, "n": 0}, {"text": "y", "n": 1}]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    one = tl.build(source, tmp_path / "one", tokenizer="bytes", workers=1, **TINY)
    two = tl.build(source, tmp_path / "two", tokenizer="bytes", workers=2, **TINY)
    assert one.manifest_sha256 == two.manifest_sha256


# -- record numbers ------------------------------------------------------------------------


def test_messages_places_and_metadata_count_records_alike(tmp_path):
    lines = ['{"text": "a"}', "", '{"text": 5}', '{"text": "b"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(tl.InputError, match=r"a\.jsonl: record 2 \(line 3\): 'text' is int"):
        tl.build(tmp_path / "a.jsonl", tmp_path / "s", tokenizer="bytes")
    store = tl.build(tmp_path / "a.jsonl", tmp_path / "t", tokenizer="bytes", on_error="skip")
    assert [store.metadata(i)["_record"] for i in range(2)] == [0, 3]
    assert [place["record"] for place in listed(tmp_path / "t")] == [2]
    rows = [{"text": "a"}, {"text": 5}]
    with pytest.raises(tl.InputError, match=r"rows-0: record 1: 'text' is int"):
        tl.build(rows, tmp_path / "u", tokenizer="bytes")


@pytest.mark.parametrize("row", [{"text": "a", "m": {1: 2, "1": 3}}, {"text": "a", "m": [{1: 2}]}])
def test_keys_that_would_become_one_in_json_are_refused(tmp_path, row):
    with pytest.raises(tl.InputError, match="the key 1 is not a string"):
        tl.build([row], tmp_path / "s", tokenizer="bytes")
