"""Builds in stretches: same number, same bytes; another number, the same documents and runs."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, SMALL, assert_same_tree, tree, write_corpus

import tokenloom as tl
from tokenloom import cluster
from tokenloom.ingest.cluster.division import divide, length_of, records_before
from tokenloom.ingest.cluster.range_hashes import hash_stretch
from tokenloom.ingest.cluster.stretch_files import plan_name, record_name
from tokenloom.ingest.cuts import PIECE_COST, Edge, blocks
from tokenloom.ingest.inputs import Input, expand
from tokenloom.ingest.records import read_block
from tokenloom.ingest.target import collect
from tokenloom.store.files import LOCAL
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


# -- the cut ---------------------------------------------------------------------------------


def slow_places(sizes, stretches):
    """Where stretches would start if every byte could be cut at, by walking over the bytes."""
    lengths = [size + PIECE_COST for size in sizes]
    total = sum(lengths)
    places = []
    for stretch in range(stretches + 1):
        left, index = total * stretch // stretches, 0
        while index < len(lengths) and left >= lengths[index]:
            left -= lengths[index]
            index += 1
        places.append((index, left))
    return places


@given(
    sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=6),
    kinds=st.lists(st.sampled_from(["jsonl", "lines", "txt"]), min_size=6, max_size=6),
    stretches=st.integers(1, 40),
    block=st.integers(1, 9000),
)
def test_edges_are_near_the_equal_places_and_never_go_back(sizes, kinds, stretches, block):
    inputs = [
        Input(kind=kind, name=str(i), path=Path(str(i)), size=size)
        for i, (size, kind) in enumerate(zip(sizes, kinds, strict=False))
    ]
    division = divide(inputs, stretches, block)
    edges = [division.edge(stretch) for stretch in range(stretches + 1)]
    assert edges[0] == Edge(0)
    assert edges[-1] == Edge(len(inputs))
    assert edges == sorted(edges)
    for edge, (index, within) in zip(edges, slow_places(sizes, stretches), strict=True):
        if edge.start:
            assert edge.input == index
            assert 0 <= within - edge.start <= block + PIECE_COST
            assert edge.start < sizes[index]
        else:
            assert edge.input in (index, index + 1)


@given(
    sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=6),
    stretches=st.integers(1, 40),
    block=st.integers(1, 9000),
)
def test_each_byte_of_each_input_is_read_by_one_stretch(sizes, stretches, block):
    inputs = [
        Input(kind="jsonl", name=str(i), path=Path(str(i)), size=size)
        for i, size in enumerate(sizes)
    ]
    division = divide(inputs, stretches, block)
    parts = [part for stretch in range(stretches) for part in division.parts(stretch)]
    for index, one in enumerate(inputs):
        own = [(part.start, part.stop) for part in parts if part.input == index]
        edges = [0, *division.cuts(index), length_of(one)]
        assert own == list(itertools.pairwise(edges))


def test_a_small_input_is_never_cut_and_a_large_one_is():
    def one(size, name):
        return Input(kind="jsonl", name=name, path=Path(name), size=size)

    small = [one(1 << 20, str(i)) for i in range(64)]
    edges = [divide(small, 8, 1 << 16).edge(stretch) for stretch in range(9)]
    assert edges == [Edge(8 * stretch) for stretch in range(9)]
    large = divide([one(64 << 20, "a")], 8, 1 << 16)
    assert [large.edge(s).start >> 20 for s in range(8)] == list(range(0, 64, 8))


@given(lines=st.lists(st.text("ab\r", max_size=9), max_size=40), block=st.integers(1, 60))
@settings(max_examples=40)
def test_records_before_an_edge_are_counted_as_the_reader_counts_them(
    tmp_path_factory, lines, block
):
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes("\n".join(lines).encode() or b"x")
    (one,) = expand(f"lines:{path}")
    seen = 0
    for found in blocks([one], block_bytes=block):
        for piece in found:
            assert records_before(one, piece.start) == (seen if piece.start else 0)
            seen += sum(read_block([one], (piece,)).counts)


# -- what comes out ---------------------------------------------------------------------------


def test_one_stretch_is_the_build_of_before(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=60, files=2)
    tl.build(inputs, tmp_path / "a", files=QUICK, **SMALL)
    tl.build(inputs, tmp_path / "b", stretches=1, files=QUICK, **SMALL)
    assert_same_tree(tmp_path / "b", tree(tmp_path / "a"))
    assert "stretches" not in tl.open(tmp_path / "a").reader.manifest.parts[0].settings


@pytest.mark.parametrize("stretches", [3, 23])
def test_every_kind_of_input_has_the_same_documents_in_stretches(tmp_path, stretches):
    inputs = mixed_corpus(tmp_path / "in")
    whole = tl.build(inputs, tmp_path / "one", files=QUICK, **TINY)
    cut = tl.build(inputs, tmp_path / "cut", stretches=stretches, files=QUICK, **TINY)
    assert everything(cut) == everything(whole)
    assert cut.verify(progress=False).ok
    last = cut.reader.manifest.parts[-1]
    assert last.settings["stretches"] == stretches
    assert last.settings["inputs"] == whole.reader.manifest.parts[-1].settings["inputs"]
    lists = [(tmp_path / name / "inputs-000001.json").read_bytes() for name in ("one", "cut")]
    assert lists[0] == lists[1]
    names = [shard.name for shard in cut.reader.manifest.shards]
    assert names == sorted(names, key=lambda name: int(name[6:]))
    assert len({int(name[6:]) // 10_000 for name in names}) > 1


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=4).filter(any),
    stretches=st.integers(2, 12),
    block=st.integers(40, 900),
    cap=st.integers(100, 900),
)
@settings(max_examples=5)
def test_any_number_of_stretches_has_the_same_documents(
    tmp_path_factory, counts, stretches, block, cap
):
    root = tmp_path_factory.mktemp("stretches")
    inputs = [write_lines(root / f"{i}.jsonl", rows_of(n, 50 * i)) for i, n in enumerate(counts)]
    own = {"tokenizer": "bytes", "block_bytes": block, "shard_tokens": cap, "inner": 16}
    own |= {"files": QUICK, "duplicates": "allow", "workers": 1}
    whole = tl.build(inputs, root / "one", **own)
    cut = tl.build(inputs, root / "cut", stretches=stretches, **own)
    assert everything(cut) == everything(whole)


def test_datasets_tables_and_rows_are_cut_by_rows(tmp_path):
    import datasets
    import pyarrow as pa

    rows = rows_of(4000)
    for one in (datasets.Dataset.from_list(rows), pa.Table.from_pylist(rows), rows, iter(rows)):
        cut = tl.build(one, tmp_path / f"{type(one).__name__}", tokenizer="bytes", stretches=3)
        some = [0, 1023, 1024, 1333, 1334, 2047, 2048, 2666, 2667, 3999]
        assert [cut.metadata(i)["_record"] for i in some] == some
        names = {int(shard.name[6:]) // 10_000 for shard in cut.reader.manifest.shards}
        assert len(names) == 3
    stores = [tl.open(path) for path in sorted(tmp_path.iterdir())]
    assert len({store.digest for store in stores}) == 1


def test_records_that_are_left_out_are_told_as_without_stretches(tmp_path, caplog):
    lines = [json.dumps({"text": f"t{i}"}) if i % 5 else "{" for i in range(120)]
    source = tmp_path / "a.jsonl"
    source.write_text("\n".join(lines) + "\n")
    own = {"on_error": "skip", "filter": keep_even, **TINY}
    whole = tl.build(source, tmp_path / "one", **own)
    cut = tl.build(source, tmp_path / "cut", stretches=7, **own)
    parts = [store.reader.manifest.parts[-1] for store in (whole, cut)]
    assert (parts[0].skipped, parts[0].filtered) == (parts[1].skipped, parts[1].filtered) != (0, 0)
    name = "skipped-000001.jsonl"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert everything(cut) == everything(whole)


def keep_even(record):
    return int(record["text"][1:]) % 2 == 0


def test_the_worker_count_changes_no_byte_of_a_build_in_stretches(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=80, files=2)
    tl.build(inputs, tmp_path / "one", stretches=5, workers=1, files=QUICK, **SMALL)
    tl.build(inputs, tmp_path / "two", stretches=5, workers=2, files=QUICK, **SMALL)
    assert_same_tree(tmp_path / "two", tree(tmp_path / "one"))


def test_nothing_but_the_store_is_left_and_the_same_call_writes_nothing(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    first = tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    left = [name for name in tree(tmp_path / "s") if "/" not in name and "shard" not in name]
    assert left == ["inputs-000001.json", "manifest-000001.json", "skipped-000001.jsonl"]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")}
    again = tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    assert again.manifest_sha256 == first.manifest_sha256
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")} == before


def test_another_number_or_other_content_is_refused_and_the_difference_named(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    with pytest.raises(tl.StoreExists, match=r"stretches \(4 there, 5 now\)"):
        tl.build(inputs, tmp_path / "s", stretches=5, **SMALL)
    with pytest.raises(tl.StoreExists, match=r"stretches \(4 there, None now\)"):
        tl.build(inputs, tmp_path / "s", **SMALL)
    text = Path(inputs[0]).read_text()
    Path(inputs[0]).write_text(text.replace("loom", "boom"))
    with pytest.raises(tl.StoreExists, match="its inputs"):
        tl.build(inputs, tmp_path / "s", stretches=4, **SMALL)
    for wrong in (0, 10_001):
        with pytest.raises(tl.ConfigError, match="stretches: found"):
            tl.build(inputs, tmp_path / "s", stretches=wrong, **SMALL)


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
    assert store.reader.manifest.parts[-1].settings["stretches"] == 4
    listed = {shard.name for shard in store.reader.manifest.shards}
    assert {path.name for path in (tmp_path / "s").glob("shard-*")} == listed
    assert not list((tmp_path / "s").glob("plan-*"))


# -- inputs that change, runs that die ----------------------------------------------------------


def test_what_is_hashed_is_what_one_machine_would_hash(tmp_path):
    """Each byte once as sha256: no stretch hashes what another one reads."""
    found = expand(write_corpus(tmp_path / "in", count=200, files=3))
    division = divide(found, 5, 100)
    reads = [read for stretch in range(5) for read in hash_stretch(division, stretch)]
    assert sorted(read.input for read in reads if read.sha256) == [0, 1, 2]
    cut = [read for read in reads if not read.sha256]
    assert len(cut) == sum(len(division.cuts(index)) for index in range(3)) > 0


def test_a_file_that_changes_between_two_stretches_is_found(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", rows_of(200))
    clean = source.read_bytes()

    class Changing(type(QUICK)):
        def link_new(self, origin, target):
            if target.name == record_name(1, 2):  # stretch 2 is done: change what it has read
                source.write_bytes(clean.replace(b"d150", b"d051"))
            return super().link_new(origin, target)

    with pytest.raises(tl.InputError, match="part 4 read other bytes"):
        tl.build(source, tmp_path / "s", stretches=4, files=Changing(), **TINY)
    assert not list((tmp_path / "s").glob("manifest-*"))
    source.write_bytes(clean)
    tl.build(source, tmp_path / "t", stretches=4, files=QUICK, **TINY)


def test_two_inputs_with_the_same_content_are_refused_before_anything_is_published(tmp_path):
    a = write_lines(tmp_path / "a.jsonl", rows_of(30))
    (tmp_path / "b.jsonl").write_bytes(a.read_bytes())
    both = [a, tmp_path / "b.jsonl"]
    with pytest.raises(tl.InputError, match=r"b\.jsonl"):
        tl.build(both, tmp_path / "s", stretches=2, duplicates="error", **TINY)
    assert not list((tmp_path / "s").glob("manifest-*"))
    with pytest.warns(UserWarning, match=r"1 of 2 inputs.*b\.jsonl"):
        store = tl.build(both, tmp_path / "s", stretches=2, **TINY)
    assert store.num_documents == 60


def calls_of(inputs, out, **options):
    files = FaultFiles(QUICK)
    tl.build(inputs, out, files=files, **options)
    return len(files.calls)


def test_a_build_in_stretches_that_dies_at_any_call_goes_on_to_the_same_bytes(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=16)
    options = {**SMALL, "stretches": 3, "workers": 1}
    calls = calls_of(inputs, tmp_path / "s", **options)
    expected = tree(tmp_path / "s")
    for at in range(1, calls, 37):
        out = tmp_path / f"died-{at}"
        with pytest.raises(OSError, match="No space"):
            tl.build(inputs, out, files=FaultFiles(QUICK, at=at, action="stop"), **options)
        tl.build(inputs, out, files=QUICK, **options)
        assert_same_tree(out, expected, f"died at call {at}")


@pytest.mark.slow
def test_a_build_in_stretches_that_dies_at_each_call_goes_on_to_the_same_bytes(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=16)
    options = {**SMALL, "stretches": 3, "workers": 1}
    calls = calls_of(inputs, tmp_path / "s", **options)
    expected = tree(tmp_path / "s")
    for at in range(1, calls + 1):
        out = tmp_path / f"died-{at}"
        with pytest.raises(OSError, match="No space"):
            tl.build(inputs, out, files=FaultFiles(QUICK, at=at, action="stop"), **options)
        tl.build(inputs, out, files=QUICK, **options)
        assert_same_tree(out, expected, f"died at call {at}")


def test_gc_knows_the_files_of_an_unfinished_build_in_stretches(tmp_path):
    inputs = write_corpus(tmp_path / "in", count=40)
    cluster.build_part(inputs, tmp_path / "s", "2/4", **SMALL)
    names = [plan_name(1), record_name(1, 1)]
    assert all((tmp_path / "s" / name).is_file() for name in names)
    advice = r"incomplete.* Run the parts that are missing \(`--part K/N`\) and then `--finish`"
    with pytest.raises(tl.StoreNotFound, match=advice):
        tl.open(tmp_path / "s")
    with pytest.raises(tl.StoreExists, match=r"unfinished build in stretches is here\. Finish it"):
        tl.build(inputs, tmp_path / "s", **SMALL)
    assert set(collect(tmp_path / "s").unfinished) > set(names)
    collect(tmp_path / "s", unfinished=True)
    assert tree(tmp_path / "s") == {}
    assert np.all(tl.build(inputs, tmp_path / "s", files=LOCAL, **SMALL).lengths >= 0)
