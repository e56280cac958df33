"""Stores with right checksums over what cannot be, and reads of odd shapes: told, or right."""

import contextlib
import hashlib
import json

import numpy as np
import pytest
from forge import load, reseal, seal_text
from refusals import refused
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.testing import numpy_alone, tiny, write_store


def built(path, records, **options):
    settings = {"tokenizer": None, "vocab_size": 1000, "progress": False, **options}
    return tl.build(records, path, **settings)


# -- what is asked ---------------------------------------------------------------------------


def test_an_id_is_found_whatever_kind_of_number_it_is(tmp_path):
    ids = [7, 3, 7, 11, 3, 7]
    store = built(tmp_path / "s", [{"input_ids": [1], "id": one} for one in ids], id_key="id")
    for wanted in (3, 7, 11, 12):
        places = [place for place, one in enumerate(ids) if one == wanted]
        for kind in (int, float, np.int64, np.int32, np.uint8, np.float64):
            assert store.find(kind(wanted)).tolist() == places


@pytest.mark.parametrize("by", [str, int])
def test_documents_without_an_id_are_found_by_none_and_split_like_others(tmp_path, by):
    ids = [by(one) if one % 3 else None for one in range(60)]
    records = [{"input_ids": [1], "id": one} for one in ids]
    store = built(tmp_path / "s", records, metadata_keys=["id"])
    for place, one in enumerate(ids):
        if one is not None:
            assert store.find(one).tolist() == [place]
    parts = store.split({"a": 0.5, "b": 0.5})
    shares = [parts[name].indices.tolist() for name in "ab"]
    assert sorted(shares[0] + shares[1]) == list(range(60))
    bare = {place for place, one in enumerate(ids) if one is None}
    assert all(bare & set(share) for share in shares), "they are not all one document"


@pytest.mark.parametrize("verify", ["first", "never", "always"])
def test_long_reads_are_the_same_wherever_they_start(tmp_path, verify):
    ids = np.random.default_rng(2).integers(0, 50_000, 200_000)
    sizes = np.full(40, 5000)
    path = tmp_path / "s"
    documents = [one.tolist() for one in np.split(ids, np.cumsum(sizes)[:-1])]
    write_store(path, [documents], vocab_size=50_000)
    store = tl.open(path, verify=verify, map=False, cache_bytes=0)
    for _ in range(2):  # the second time, all chunks are checked
        for start in (0, 1, 2040, 2043, 2047, 2048, 2050, 4093):
            found = store.tokens(start, start + 150_000)
            assert np.array_equal(found, ids[start : start + 150_000])


@pytest.mark.parametrize("vocabulary", [60_000, 100_000])
def test_documents_that_are_hashed_piece_by_piece_have_their_hashes(tmp_path, vocabulary):
    rng = np.random.default_rng(6)
    sizes = [0, 3, 700, 90, 0, 2500, 1]
    documents = [rng.integers(vocabulary - 900, vocabulary, size).tolist() for size in sizes]
    write_store(tmp_path / "s", [documents], vocab_size=vocabulary, inner=64, chunk_tokens=64)
    with tiny():
        store = tl.open(tmp_path / "s")
        assert store.verify(progress=False).ok
        hashes = store.document_hashes(range(len(sizes)))
        assert len(set(hashes)) == len(sizes) - 1  # the empty ones are alike
        for place in (1, 2, 5, 6):
            assert store.find(hash=hashes[place]).tolist() == [place]


# -- what is written -------------------------------------------------------------------------


def test_counts_that_move_between_shards_are_noticed_where_the_shard_is_opened(tmp_path):
    path = tmp_path / "s"
    write_store(path, [[[1, 2, 3]], [[4, 5]]])

    def change(record):
        for shard, more in zip(record["shards"], (1, -1), strict=True):
            shard["tokens"] += more

    reseal(path, manifest=change)
    refused(lambda: tl.open(path).tokens(0, 1), tl.StoreCorrupt, str(path), "shard-00000")
    assert tl.open(path).check(progress=False).problems


def test_a_snapshot_whose_parent_is_another_one_is_reported(tmp_path):
    path = tmp_path / "s"
    built(path, [{"input_ids": [1, 2]}])
    built(path, [{"input_ids": [3]}], append=True)
    newest = path / "manifest-000002.json"
    assert tl.open(path).verify(progress=False).ok
    record = load(newest)
    record["parent"] = hashlib.sha256(b"another").hexdigest()
    newest.write_bytes(seal_text(json.dumps(record, indent=1).encode().rstrip(b"\n}")))
    problems = tl.open(path).check(progress=False).problems
    assert any("manifest-000001.json" in one for one in problems)


# -- simulated -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:block_shuffle")  # a cache that holds no window
@pytest.mark.parametrize("verify", ["first", "never", "always"])
@pytest.mark.parametrize("cache_bytes", [0, 64, 1 << 20])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_simulated_is_what_is_read_however_much_is_checked_and_kept(
    verify, cache_bytes, compiled
):
    rng = np.random.default_rng(8)
    sizes = [rng.integers(0, 30, 60).tolist(), [0, 0], [5] * 20]
    with (
        ToyStore(numbered(sizes), inner=8) as toy,
        contextlib.nullcontext() if compiled else numpy_alone(),
    ):
        for order in ("stored", "blocks", "all"):
            for prefetch in (0, 3):

                def run(order=order):
                    store = tl.open(toy.path, verify=verify, cache_bytes=cache_bytes)
                    rows = store.windows(8).epochs(2)
                    if order == "blocks":
                        return rows.block_shuffle(io_block_size=4, window_blocks=3)
                    return rows.shuffle(order == "all")

                found = simulate_run(run(), batch_size=4, prefetch=prefetch).exact_ranks[0]
                with tl.Loader(run(), 4, prefetch=prefetch) as loader:
                    examples = sum(len(batch) for batch in loader)
                    reads = loader.stats().reads
                assert found.examples == examples
                assert (found.reads, found.bytes) == (reads.read_ops, reads.bytes)
