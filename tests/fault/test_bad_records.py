"""Bad input is refused with file, record and key, or skipped, counted and listed."""

import contextlib
import errno
import functools
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from commandline import command
from kit import QUICK
from refusals import refused

import tokenloom as tl

HERE = Path(__file__).parent
TINY = {"block_bytes": 300, "inner": 32, "shard_tokens": 500, "files": QUICK}


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def listed(root, number=1):
    lines = (root / f"skipped-{number:06d}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def spell(text):
    return [ord(c) for c in text]


# -- hooks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "hook", "error", "workers"),
    [
        ("filter", "badhooks:needs_lang", "KeyError", 1),
        ("transform", "badhooks:no_seventh", "RuntimeError", 2),
        ("tokenizer", "badhooks:spell", "ValueError", 1),
    ],
)
def test_a_hook_that_raises_is_named_with_input_record_and_line(
    option, hook, error, workers, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(HERE))
    rows = [{"text": f"text {i}", "n": i, "lang": "en"} for i in range(30)]
    rows[7] = {"text": "seven!", "n": 7}
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    options = {"tokenizer": "bytes", option: hook, "workers": workers, **TINY}
    options |= {"vocab_size": 200} if option == "tokenizer" else {}
    build = functools.partial(tl.build, source, **options)
    named = f"{source}: record 7 (line 8)", option, error, "badhooks.py, line"
    refused(lambda: build(tmp_path / "s"), tl.InputError, *named)
    store = build(tmp_path / "t", on_error="skip")
    assert [store.metadata(i)["_record"] for i in range(29)] == [i for i in range(30) if i != 7]
    (place,) = listed(tmp_path / "t")
    assert (place["input"], place["record"]) == ("a.jsonl", 7)


def test_ids_that_no_build_may_keep_are_named_with_their_record(tmp_path):
    own = {"tokenizer": spell, "vocab_size": 200, "on_error": "skip"}
    rows = [{"text": "a"}] * 3 + [{"text": "é" * 3}]
    build = functools.partial(tl.build, rows, tmp_path / "s", **own)
    refused(build, tl.TokenizerError, "rows-0", "record 3", "233")
    rows = [{"input_ids": [1]}, {"input_ids": [1, 99]}]
    build = functools.partial(tl.build, rows, tmp_path / "s", tokenizer=None, vocab_size=9)
    refused(build, tl.TokenizerError, "rows-0", "record 1", "99")


# -- metadata ------------------------------------------------------------------------------


def test_a_reserved_key_is_skipped_and_may_be_left_out(tmp_path):
    a = tl.build([{"text": "abc", "id": "1"}], tmp_path / "a", tokenizer="bytes", id_key="id")
    rows = [{"text": "again", **a.metadata(0)}, {"text": "fine", "id": "2"}]
    build = functools.partial(tl.build, rows, tokenizer="bytes", id_key="id")
    refused(lambda: build(tmp_path / "b"), tl.InputError, "record 0", "'_input'", "metadata_keys")
    assert build(tmp_path / "c", on_error="skip").num_documents == 1
    assert build(tmp_path / "d", metadata_keys=[]).num_documents == 2


def nested(depth, kind):
    value = "leaf"
    for i in range(depth):
        value = [value] if kind == "list" or (kind == "both" and i % 2) else {"k": value}
    return value


@pytest.mark.parametrize("way", ["file", "rows", "iterator"])
@pytest.mark.parametrize(("kind", "depth"), [("list", 64), ("both", 65), ("both", 200)])
def test_metadata_of_any_depth_is_kept_or_refused(depth, kind, way, tmp_path):
    rows = [{"text": "a", "n": 7, "x": nested(depth, kind)}, {"text": "b"}]
    source = tmp_path / "a.jsonl"
    value = '"leaf"'
    for i in range(depth):
        value = f"[{value}]" if kind == "list" or i % 2 else f'{{"k": {value}}}'
    source.write_text(f'{{"text": "a", "n": 7, "x": {value}}}\n{{"text": "b"}}\n')
    given = {"file": lambda: source, "rows": lambda: rows, "iterator": lambda: iter(rows)}[way]

    def build(name, **options):
        return tl.build(given(), tmp_path / name, tokenizer="bytes", **options)

    if depth <= 64:
        assert build("s").metadata(0)["x"] == rows[0]["x"]
        return
    refused(lambda: build("s"), tl.InputError, "record 0", "'x'", 64)
    assert build("t", on_error="skip").num_documents == 1
    assert [place["record"] for place in listed(tmp_path / "t")] == [0]
    store = build("u", metadata_keys=["n"])
    assert (store.num_documents, store.metadata(0)["n"]) == (2, 7)


def test_a_record_too_deep_for_a_parser_is_a_bad_record(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"text": "a", "x": ' + "[" * 5000 + "]" * 5000 + '}\n{"text": "b"}\n'
    )
    build = functools.partial(tl.build, tmp_path / "a.jsonl", tokenizer="bytes")
    refused(lambda: build(tmp_path / "s"), tl.InputError, "record 0", "not valid JSON")
    assert build(tmp_path / "t", on_error="skip").num_documents == 1
    ring = []
    ring.append(ring)
    for value in (nested(5000, "both"), ring):
        rows = [{"text": "a", "x": value}]
        build = functools.partial(tl.build, rows, tmp_path / "s", tokenizer="bytes")
        refused(build, tl.InputError, "rows[0]", "nested too deeply")


def test_what_json_cannot_hold_is_refused_with_its_place(tmp_path):
    twice = [1]
    rows = [{"text": "a", "a": twice, "b": [twice, twice]}]
    assert tl.build(rows, tmp_path / "t", tokenizer="bytes").metadata(0)["b"] == [[1], [1]]
    for wrong, place in (
        ({"x": [{"y": {1: 2}}]}, "rows[0].x[0].y"),
        ({"x": [[7], {"y": object()}]}, "rows[0].x[1].y"),
        ({"x": [[7], {1: 2}]}, "rows[0].x[1]"),
        ({"x": [7, {1: 2}]}, "rows[0].x[1]"),
        ({"m": {1: 2, "1": 3}}, "rows[0].m"),  # would become one key in JSON
    ):
        rows = [{"text": "a", **wrong}]
        build = functools.partial(tl.build, rows, tmp_path / "s", tokenizer="bytes")
        refused(build, tl.InputError, place)


# -- the missing key -----------------------------------------------------------------------


def test_a_missing_key_names_the_option_and_the_likely_column(tmp_path):
    rows = [{"doc_id": "7", "body": "the long text of it", "lang": "en", "score": 1}]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    build = functools.partial(tl.build, source, tmp_path / "s", tokenizer="bytes")
    refused(build, tl.InputError, "text_key='body'")
    refused(lambda: build(id_key="body"), tl.InputError, "text_key='lang'")  # not the id
    typed = command("build", source, "-o", tmp_path / "s", "-t", "bytes", code=3)
    assert "--text-key body" in typed
    assert "--on-error skip" in typed
    assert "on_error" not in typed
    ids = functools.partial(tl.build, [{"tokens": [1, 2, 3], "n": 1}], tmp_path / "s")
    refused(lambda: ids(tokenizer=None, vocab_size=9), tl.InputError, "ids_key='tokens'")


def test_the_command_skips_lists_and_appends_as_the_function_does(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}, {"txt": "b"}, {"text": "c"}])
    words = ["build", source, "-t", "bytes", "-o", tmp_path / "s"]
    assert "record 1 (line 2)" in command(*words, code=3)
    command(*words, "--on-error", "skip")
    assert [place["record"] for place in listed(tmp_path / "s")] == [1]
    again = command(*words, "--on-error", "skip", "--id-key", "text", code=1)
    assert "--append" in again
    assert "--overwrite" in again


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
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", int(peak.split()[1]) >> 10)
"""


@pytest.mark.parametrize(
    ("name", "members", "limit", "most"),
    [
        ("x.jsonl.zst", 4, 1 << 20, 600),
        pytest.param("x.jsonl.gz", 4, 1 << 20, 600, marks=pytest.mark.slow),
        pytest.param("x.txt.zst", 64, None, 1400, marks=pytest.mark.slow),
    ],
)
def test_an_archive_of_a_few_kilobytes_cannot_take_the_memory_of_the_machine(
    name, members, limit, most, tmp_path
):
    """One line of gigabytes, then a good one: refused or skipped, and the good one is kept."""
    pack = zstandard.compress if name.endswith("zst") else gzip.compress
    path = tmp_path / name
    path.write_bytes(pack(b"a" * (64 << 20)) * members + pack(b'\n{"text": "good"}\n'))
    env = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parent.parent)}
    for mode in ("raise", "skip"):
        words = [path, tmp_path / mode, 6000, mode, "" if limit is None else limit]
        command_line = [sys.executable, "-c", BOMB, *map(str, words)]
        done = subprocess.run(command_line, capture_output=True, text=True, env=env, timeout=600)
        out = done.stdout.split("\n")
        if mode == "raise":
            assert "record 0" in out[0], done.stderr
            assert str(limit or 128 << 20) in out[0]
        else:
            assert out[0] == f"documents {0 if '.txt' in name else 1}", done.stderr
        assert int(out[1].split()[1]) < most, "MiB"


def test_a_long_record_is_told_wherever_it_comes_from(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"text": "short"}, {"text": "é" * 600}, {"text": "also short"}]
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


# -- encodings -----------------------------------------------------------------------------


def test_bytes_of_another_encoding_are_refused_skipped_replaced_or_left_out(tmp_path):
    corpus = tmp_path / "c"
    corpus.mkdir()
    for i in range(6):
        (corpus / f"{i}.txt").write_bytes(f"café {i}".encode(["utf-8", "cp1252"][i % 2]))

    def build(name, **options):
        return tl.build(corpus, tmp_path / name, tokenizer="bytes", **options)

    def text(store, i):
        return bytes(store.document(i).tolist()).decode()

    refused(lambda: build("s"), tl.InputError, "1.txt", "record 0", "encoding='cp1252'")
    assert build("s", on_error="skip").num_documents == 3
    assert len(listed(tmp_path / "s")) == 3
    assert text(build("u", errors="replace"), 1) == "caf� 1"
    assert [place["reason"][:4] for place in listed(tmp_path / "u")] == ["kept"] * 3
    assert text(build("v", errors="ignore"), 1) == "caf 1"
    assert build("w", encoding="latin-1").num_documents == 6


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32", "cp1252", "utf-8-sig", "koi8-r"])
def test_a_file_comes_back_in_every_encoding(encoding, tmp_path):
    text = "Привет\n" if encoding == "koi8-r" else "café\nnaïve\n"
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    store = tl.build(tmp_path / "a.txt", tmp_path / "s", tokenizer="bytes", encoding=encoding)
    assert bytes(store.document(0).astype("u1")).decode() == text
    lines = f"lines:{tmp_path / 'a.txt'}"
    if encoding in ("utf-16", "utf-32"):
        with pytest.raises(tl.InputError, match=encoding):
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


def test_utf_16_is_recognised_in_the_message(tmp_path):
    (tmp_path / "a.txt").write_bytes("hello".encode("utf-16"))
    build = functools.partial(tl.build, tmp_path / "a.txt", tmp_path / "s", tokenizer="bytes")
    refused(build, tl.InputError, "encoding='utf-16'")
    for bad in ("utf-9", "hex", "rot13"):
        refused(functools.partial(build, encoding=bad), tl.ConfigError, "encoding", bad)


# -- the table and the places --------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_places_are_listed_also_over_a_resume(workers, tmp_path):
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
    assert store.verify(progress=False).ok
    whole = {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir() if p.is_file()}
    shards = sorted((tmp_path / "s").glob("shard-*"))
    assert len(shards) > 2
    for kept in range(len(shards) + 1):
        target = tmp_path / f"resumed-{kept}"
        target.mkdir()
        for shard in shards[:kept]:
            shutil.copytree(shard, target / shard.name)
        tl.build(inputs, target, **options)
        again = {p.name: p.read_bytes() for p in target.iterdir() if p.is_file()}
        assert again == whole, kept


def test_a_store_without_anything_to_tell_has_no_such_file(tmp_path):
    tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes")
    assert [p.name for p in (tmp_path / "s").rglob("skipped*")] == []


def test_places_and_reasons_beyond_a_bound_are_only_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text("x\n" * 100_050 + '{"text": "good"}\n')
    options = {"tokenizer": "bytes", "on_error": "skip", "files": QUICK}
    store = tl.build(tmp_path / "a.jsonl", tmp_path / "s", **options)
    assert (store.num_documents, store.metadata(0)["_record"]) == (1, 100_050)
    assert len(listed(tmp_path / "s")) == 100_000

    def fail(record):
        raise type(f"E{record['n']}", (Exception,), {})

    rows = [{"text": "a", "n": n} for n in range(1010)]
    with pytest.warns(UserWarning, match="1,010 records skipped"):
        tl.build(rows, tmp_path / "t", transform=fail, **options)
    reasons = {place["reason"] for place in listed(tmp_path / "t")}
    assert len(reasons) == 1001
    assert "skipped: other reasons" in reasons


# -- nothing to train on -------------------------------------------------------------------


def test_a_store_of_empty_texts_warns_before_it_is_published(tmp_path):
    rows = [{"text": ""}] * 5
    with pytest.raises(UserWarning, match="5 texts"):
        tl.build(rows, tmp_path / "s", tokenizer="bytes")  # warnings are errors here
    with pytest.raises(tl.StoreNotFound):
        tl.open(tmp_path / "s")
    with pytest.warns(UserWarning, match="5 texts"):
        assert tl.build(rows, tmp_path / "s", tokenizer="bytes").num_documents == 5
    with pytest.warns(UserWarning, match="5 texts"):
        tl.build(rows, tmp_path / "t", tokenizer=spell, vocab_size=300, eos=256)
    with pytest.warns(UserWarning, match="5 records skipped"):
        tl.build([{"x": 1}] * 5, tmp_path / "u", tokenizer="bytes", on_error="skip")
    with pytest.warns(UserWarning, match="5 filtered"):
        tl.build(rows, tmp_path / "v", tokenizer="bytes", filter=lambda record: False)


# -- EMFILE and EIO ------------------------------------------------------------------------


def test_too_many_open_files_are_an_error_of_their_own_and_no_damage(tmp_path):
    rows = [{"text": f"text {i} " * 20} for i in range(40)]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", shard_tokens=400, files=QUICK)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    cold = tl.open(store.path, cache_bytes=0)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(tl.StoreError, match="ulimit -n") as caught:
            cold.documents(range(40))
        assert not isinstance(caught.value, tl.StoreCorrupt)
        assert caught.value.errno == errno.EMFILE
        refused(lambda: tl.open(store.path), tl.StoreError, "ulimit -n")
        build = functools.partial(tl.build, __file__, tmp_path / "t", tokenizer="bytes")
        refused(build, (tl.InputError, tl.StoreError), "ulimit -n")
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(cold.documents(range(40))) == 40


def test_a_shard_that_is_gone_is_damage(tmp_path):
    store = tl.build([{"text": "a" * 50}] * 9, tmp_path / "s", tokenizer="bytes", shard_tokens=100)
    cold = tl.open(store.path, cache_bytes=0)
    shutil.rmtree(store.path / "shard-00001")
    refused(lambda: cold.documents(range(9)), tl.StoreCorrupt, "shard-00001")


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


@pytest.mark.parametrize("kind", ["generator", "map", "object", "iterable dataset"])
def test_an_iterator_gives_the_bytes_of_a_list(kind, tmp_path, monkeypatch):
    import datasets

    rows = [{"text": r["text"], "n": r["n"]} for r in ROWS] if "dataset" in kind else ROWS
    made = {
        "generator": lambda: (row for row in ROWS),
        "map": lambda: map(dict, ROWS),
        "object": Streaming,
        "iterable dataset": lambda: datasets.IterableDataset.from_generator(lambda: iter(rows)),
    }[kind]
    tl.build(rows, tmp_path / "list", tokenizer="bytes", **TINY)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    tl.build(made(), tmp_path / "s", tokenizer="bytes", workers=1 + (kind == "map"), **TINY)
    assert everything(tmp_path / "s") == everything(tmp_path / "list")
    assert os.listdir(tmp_path / "tmp") == []


def test_an_iterator_resumes_if_it_gives_the_same_records_and_is_refused_if_not(tmp_path):
    tl.build(iter(ROWS), tmp_path / "whole", tokenizer="bytes", **TINY)
    expected = everything(tmp_path / "whole")
    (tmp_path / "whole/manifest-000001.json").unlink()
    shutil.rmtree(sorted((tmp_path / "whole").glob("shard-*"))[-1])
    with pytest.raises(tl.StoreExists, match="unfinished"):
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


def test_iterators_that_fail_say_how_far_they_came(tmp_path, monkeypatch):
    def no(inputs, *named):
        refused(lambda: tl.build(inputs, tmp_path / "s", tokenizer="bytes"), tl.InputError, *named)
        assert not (tmp_path / "s").exists()

    no(broken(), "ConnectionError", "2 records", "the stream was reset")
    no(iter([{"text": "a"}, 7]), "inputs[1]", "int")
    no(iter([{"text": object()}]), "inputs[0].text", "object")
    no(iter([]), "inputs")
    no((x for x in [1, 2]), "inputs[0]", "int")
    with open(__file__) as file:
        no(file, "TextIOWrapper")

    class Usage:
        free = 100_000

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage)
    no(endless(), "records fill")


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
    with pytest.raises(tl.InputError, match=r"table-0: record 1: 'text'"):
        tl.build(missing, tmp_path / "bad", tokenizer="bytes")
