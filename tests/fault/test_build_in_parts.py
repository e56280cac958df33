"""Builds in parts: same number, same bytes; another number, the same documents and runs."""

import functools
import gzip
import json
from pathlib import Path

import pytest
from commandline import command
from kit import QUICK, SMALL, assert_same_tree, tree, write_corpus
from refusals import refused

import tokenloom as tl
from tokenloom import cluster
from tokenloom.testing import FaultFiles

TINY = {"tokenizer": "bytes", "block_bytes": 200, "inner": 32, "shard_tokens": 300}


def write_lines(path: Path, rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(count, start=0):
    return [{"text": f"döc {i} " * (i % 7), "id": f"d{i}"} for i in range(start, start + count)]


def everything(store):
    """All that a reader can ask of the documents."""
    documents = range(store.num_documents)
    return (
        store.digest,
        [one.tolist() for one in store.documents(documents)],
        [store.metadata(i) for i in documents],
    )


def mixed_corpus(folder: Path) -> list[Path]:
    """Files of every kind that is cut in its own way."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = write_lines(folder / "a.jsonl", rows_of(90))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes().replace(b"d", b"e")))
    table = pa.Table.from_pylist(rows_of(120, 200))
    pq.write_table(table, folder / "c.parquet", row_group_size=9)
    (folder / "d.txt").write_text("one\ntwo\n" * 40)
    (folder / "e.jsonl").write_text("")
    write_lines(folder / "f.jsonl", rows_of(40, 400))
    return sorted(folder.iterdir())


# -- what comes out ---------------------------------------------------------------------------


def shards(path):
    return sorted(one.name for one in path.glob("shard-*"))


def part(inputs, out, which, **options):
    cluster.build_part(inputs, out, which, **{"files": QUICK, "progress": False, **options})


def finish(inputs, out, **options):
    return cluster.finish_build(inputs, out, **{"files": QUICK, **options})


def test_a_build_in_one_part_is_a_plain_build(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=60, files=2)
    tl.build(inputs, tmp_path / "a", files=QUICK, **SMALL)
    tl.build(inputs, tmp_path / "b", stretches=1, files=QUICK, **SMALL)
    assert_same_tree(tmp_path / "b", tree(tmp_path / "a"))


def test_parts_by_the_command_in_any_order_are_one_build(tmp_path):
    inputs = mixed_corpus(tmp_path / "in")
    common = [*inputs, "-t", "bytes", "-o", tmp_path / "parts", "--shard-tokens", 300]
    options = {"tokenizer": "bytes", "shard_tokens": 300, "files": QUICK}
    tl.build(inputs, tmp_path / "one", stretches=3, **options)
    command("build", *common, "--part", "3/3")
    command("build", *common, "--part", "1/3")
    said = command("build", *common, "--finish", code=1)
    assert "2" in said  # the part that is missing
    assert not list((tmp_path / "parts").glob("manifest*"))
    command("build", *common, "--part", "1/3")  # again: nothing to do
    refused(lambda: part(inputs, tmp_path / "parts", "2/4", **options), tl.StoreExists, "4")
    command("build", *common, "--part", "2/3")
    command("build", *common, "--finish")
    assert_same_tree(tmp_path / "parts", tree(tmp_path / "one"))
    more = write_lines(tmp_path / "more.jsonl", rows_of(30, 900))
    for which in ("2/2", "1/2"):
        part(more, tmp_path / "parts", which, append=True, tokenizer="bytes", shard_tokens=300)
    grown = finish(more, tmp_path / "parts", append=True, tokenizer="bytes", shard_tokens=300)
    assert (grown.snapshot, grown.metadata(grown.num_documents - 1)["_record"]) == (2, 29)


@pytest.mark.parametrize("stretches", [11])
def test_every_kind_of_input_has_the_same_documents_in_stretches(tmp_path, stretches):
    inputs = mixed_corpus(tmp_path / "in")
    whole = tl.build(inputs, tmp_path / "one", files=QUICK, **TINY)
    cut = tl.build(inputs, tmp_path / "cut", stretches=stretches, files=QUICK, **TINY)
    assert everything(cut) == everything(whole)
    assert cut.verify(progress=False).ok
    lists = [(tmp_path / name / "inputs-000001.json").read_bytes() for name in ("one", "cut")]
    assert lists[0] == lists[1]
    assert len(shards(tmp_path / "cut")) > 3


def test_datasets_tables_and_rows_are_cut_by_rows(tmp_path):
    import datasets
    import pyarrow as pa

    rows = rows_of(4000)
    for one in (datasets.Dataset.from_list(rows), pa.Table.from_pylist(rows), rows, iter(rows)):
        cut = tl.build(
            one, tmp_path / f"{type(one).__name__}", tokenizer="bytes", stretches=3, files=QUICK
        )
        some = [0, 1023, 1024, 1333, 1334, 2047, 2048, 2666, 2667, 3999]
        assert [cut.metadata(i)["_record"] for i in some] == some
        assert len(shards(cut.path)) == 3
    stores = [tl.open(path) for path in sorted(tmp_path.iterdir())]
    assert len({store.digest for store in stores}) == 1


def test_records_that_are_left_out_are_listed_as_without_parts(tmp_path):
    lines = [json.dumps({"text": f"t{i}"}) if i % 5 else "{" for i in range(120)]
    source = tmp_path / "a.jsonl"
    source.write_text("\n".join(lines) + "\n")
    own = {"on_error": "skip", "filter": keep_even, **TINY}
    whole = tl.build(source, tmp_path / "one", **own)
    cut = tl.build(source, tmp_path / "cut", stretches=7, **own)
    name = "skipped-000001.jsonl"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert everything(cut) == everything(whole)


def keep_even(record):
    return int(record["text"][1:]) % 2 == 0


def test_nothing_but_the_store_is_left_and_the_same_call_writes_nothing(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    first = tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    kept = ("inputs-", "manifest-", "skipped-", "shard-")
    assert all(name.startswith(kept) for name in tree(tmp_path / "s"))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")}
    again = tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    assert again.manifest_sha256 == first.manifest_sha256
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")} == before


def test_another_number_or_other_content_is_refused_and_the_difference_named(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    for number in (5, 1):
        own = {**SMALL, "stretches": number}
        refused(lambda own=own: tl.build(inputs, tmp_path / "s", **own), tl.StoreExists, "4 there")
    text = Path(inputs[0]).read_text()
    Path(inputs[0]).write_text(text.replace("loom", "boom"))
    with pytest.raises(tl.StoreExists, match="inputs"):
        tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)


def test_a_store_in_stretches_is_appended_to_with_and_without_stretches(tmp_path):
    first, second, third = (
        write_lines(tmp_path / f"{name}.jsonl", rows_of(50, 100 * i))
        for i, name in enumerate("abc")
    )
    for name, cuts in (("one", (1, 1, 1)), ("cut", (4, 3, 1))):
        for source, stretches in zip((first, second, third), cuts, strict=True):
            append = source is not first
            store = tl.build(
                source, tmp_path / name, append=append, stretches=stretches, files=QUICK, **TINY
            )
    assert store.snapshot == 3
    assert store.verify(progress=False).ok
    assert everything(store) == everything(tl.open(tmp_path / "one"))
    with pytest.raises(tl.InputError, match=r"a\.jsonl"):
        tl.build(
            [first, write_lines(tmp_path / "d.jsonl", rows_of(9, 900))],
            tmp_path / "cut",
            append=True,
            stretches=2,
            duplicates="error",
            **TINY,
        )


def test_overwrite_replaces_a_store_and_what_another_build_left(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    tl.build(inputs, tmp_path / "s", **SMALL)
    broken = FaultFiles(QUICK, at=200, action="stop")
    with pytest.raises(OSError, match="No space"):
        tl.build(inputs, tmp_path / "s", stretches=3, overwrite=True, files=broken, **SMALL)
    assert tl.open(tmp_path / "s").snapshot == 1
    store = tl.build(inputs, tmp_path / "s", stretches=4, overwrite=True, **SMALL)
    assert store.verify(progress=False).ok
    assert store.check(progress=False).unfinished == ()


# -- inputs that change, runs that die ----------------------------------------------------------


def test_a_file_that_changes_between_two_parts_is_found(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", rows_of(200))
    clean = source.read_bytes()
    for number in (1, 2, 3):
        part(source, tmp_path / "s", f"{number}/4", **TINY)
    source.write_bytes(clean.replace(b"d190", b"d091"))
    part(source, tmp_path / "s", "4/4", **TINY)
    refused(lambda: finish(source, tmp_path / "s", **TINY), tl.InputError, "a.jsonl")
    assert not list((tmp_path / "s").glob("manifest-*"))


def test_an_unfinished_build_in_parts_is_no_store_and_gc_removes_it(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    part(inputs, tmp_path / "s", "2/4", **SMALL)
    refused(lambda: tl.open(tmp_path / "s"), tl.StoreNotFound, "--part", "--finish")
    refused(lambda: tl.build(inputs, tmp_path / "s", **SMALL), tl.StoreExists, "Finish")
    names = set(tree(tmp_path / "s"))
    said = json.loads(command("gc", tmp_path / "s", "--json"))
    assert {name for name in names if "/" not in name} <= set(said["unfinished"]) | {".lock"}
    command("gc", tmp_path / "s", "--unfinished")
    assert tree(tmp_path / "s") == {}
    assert tl.build(inputs, tmp_path / "s", **SMALL).num_documents == 40


def test_parts_that_cannot_be_meant_are_refused(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40, files=2)
    for which in ("1/1", "1/99999", 3):
        call = functools.partial(part, inputs, tmp_path / "s", which, **SMALL)
        refused(call, tl.ConfigError, "1" if which == "1/1" else which)
    nothing = functools.partial(cluster.build_part, inputs, tmp_path / "s", "1/2")
    refused(nothing, tl.ConfigError, "tokenizer")
    refused(lambda: finish(inputs, tmp_path / "s", **SMALL), tl.StoreNotFound, "--part")
    append = functools.partial(part, inputs, tmp_path / "s", "1/2", append=True, **SMALL)
    refused(append, tl.StoreNotFound, "append")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("kind", ["parquet", "rows"])
def test_a_bad_record_of_a_later_part_has_its_number(tmp_path, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [*rows_of(2000), {"text": None, "id": "x"}, *rows_of(9)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=100)
    inputs = tmp_path / "a.parquet" if kind == "parquet" else rows
    call = functools.partial(tl.build, inputs, tmp_path / "s", tokenizer="bytes", stretches=2)
    refused(call, tl.InputError, "record 2000")


def test_parts_in_a_bucket_and_what_is_collected_there(tmp_path):
    inputs, url = mixed_corpus(tmp_path / "in"), "memory://parts/s"
    options = {"tokenizer": "bytes", "progress": False, "shard_tokens": 300}
    cluster.build_part(inputs, url, "2/2", **options)
    assert "--idle-hours" in command("gc", url, "--unfinished", code=1)  # perhaps it still runs
    names = json.loads(command("gc", url, "--unfinished", "--idle-hours", 0, "--dry-run", "--json"))
    removed = json.loads(command("gc", url, "--unfinished", "--idle-hours", 0, "--json"))
    assert names["removed"] == removed["removed"] != []
    one = tl.build(inputs, url, stretches=2, **options)
    assert one.digest == tl.build(inputs, tmp_path / "one", stretches=2, **options).digest
    other = tl.build([{"text": "new"}], url, tokenizer="bytes", overwrite=True, progress=False)
    assert (other.num_documents, tl.open(url).digest) == (1, other.digest)
    command("gc", url, "--old-snapshots", "--idle-hours", 0)
    assert tl.open(url).check(progress=False).ok
