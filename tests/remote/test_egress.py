"""What a bucket sends to many ranks, counted in its own log, is what a simulation says."""

import multiprocessing
import os

import numpy as np
import pytest
from test_read_stores import PAYLOAD, upload

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.remote import disk_cache
from tokenloom.testing import tiny, write_store

WORLD, ROWS, SEQ_LEN, BLOCK = 4, 512, 8, 16  # a block of 16 rows is 128 tokens

CACHE = 1 << 15  # bytes: all blocks of a window


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """512 rows of 8 tokens, in one shard."""
    root = tmp_path_factory.mktemp("egress") / "s"
    ids = np.random.Generator(np.random.PCG64(1)).integers(1, 1000, ROWS * SEQ_LEN).tolist()
    write_store(root, [[ids]], inner=BLOCK * SEQ_LEN, chunk_tokens=BLOCK * SEQ_LEN)
    return root


@pytest.fixture
def url(ranges, place, local):
    upload(local, place)
    return place


def shuffled(place, lanes, **options):
    store = tl.open(place, cache_bytes=CACHE, **options)
    return store.windows(SEQ_LEN).block_shuffle(window_blocks=4, lanes=lanes).seed(5)


def fetched(ranges):
    """(first byte, bytes) of every request for tokens since the log was cleared."""
    found = [(one["start"], one["size"]) for one in ranges.log() if PAYLOAD in one["key"]]
    ranges.clear()
    return sorted(found)


def read(run, rank, world=WORLD):
    with tl.Loader(run, 16, rank, world) as loader:
        return b"".join(batch.tokens.tobytes() for batch in loader)


@pytest.mark.parametrize("lanes", [1, WORLD])
def test_the_bucket_sends_each_rank_what_the_simulation_says(ranges, url, lanes):
    told = simulate_run(shuffled(url, lanes), batch_size=16, ranks=WORLD).ranks
    ranges.clear()
    of_rank = []
    for rank in range(WORLD):
        run = shuffled(url, lanes)  # a rank is a process of its own
        read(run, rank)
        of_rank.append(fetched(ranges))
        sent = sum(size for _, size in of_rank[-1])
        assert (len(of_rank[-1]), sent) == (told[rank].reads, told[rank].bytes), rank
        assert run.counters().requests == len(of_rank[-1])
    whole = ROWS * SEQ_LEN * 2
    egress = sum(size for one in of_rank for _, size in one)
    if lanes == 1:
        assert egress == WORLD * whole  # every rank has rows in every block
    else:
        assert egress == whole  # each block goes to one rank
        blocks = [
            {block for start, size in one for block in range(start // 256, (start + size) // 256)}
            for one in of_rank
        ]
        assert sum(map(len, blocks)) == len(set.union(*blocks)) == ROWS // BLOCK


@tiny(disk_cache_piece_bytes=512)
def test_ranks_of_a_host_that_share_a_disk_cache_fetch_every_piece_once(ranges, url, tmp_path):
    """All at the same time, without lanes: what one fetches, the others wait for."""
    ranges.set(latency=0.02)
    alone = read(shuffled(url, 1), 0)
    ranges.clear()
    folder = tmp_path / "pieces"
    with multiprocessing.get_context("fork").Pool(WORLD) as pool:
        found = pool.starmap_async(_read_cached, [(url, folder)] * WORLD).get(timeout=100)
    assert found == [alone] * WORLD
    sent = fetched(ranges)
    assert sum(size for _, size in sent) == ROWS * SEQ_LEN * 2
    assert len({start for start, _ in sent}) == len(sent)


@tiny(disk_cache_piece_bytes=256)
def test_any_number_of_processes_with_a_disk_cache_ask_for_what_one_asks_for(ranges, url, tmp_path):
    """Request by request; a loader may ask for neighbours together, if it needs both at once."""
    asked = []
    for processes in (1, WORLD):
        ranges.clear()
        folder = tmp_path / f"pieces-{processes}"
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            pool.starmap_async(_read_blocks, [(url, folder)] * processes).get(timeout=100)
        asked.append(fetched(ranges))
    assert len(asked[0]) == ROWS // BLOCK
    assert asked[0] == asked[1]


def _read_blocks(url, folder):
    store = tl.open(url, disk_cache=folder, verify="never", cache_bytes=0)
    size = BLOCK * SEQ_LEN
    for first in range(0, ROWS * SEQ_LEN, size):
        store.tokens(first, first + size)


def _read_cached(url, folder):
    return read(shuffled(url, 1, disk_cache=folder, verify="never"), 0)


def test_without_a_cache_every_process_pays(ranges, url):
    """The control of the test above."""
    ranges.clear()
    with multiprocessing.get_context("fork").Pool(WORLD) as pool:
        pool.starmap_async(_read_plain, [(url,)] * WORLD).get(timeout=100)
    assert sum(size for _, size in fetched(ranges)) == WORLD * ROWS * SEQ_LEN * 2


def _read_plain(url):
    assert os.getpid()
    return read(shuffled(url, 1, verify="never"), 0)


def test_whoever_waited_too_long_fetches_by_itself(ranges, url, tmp_path, monkeypatch):
    """A claim that is never given back delays a read, and changes nothing."""
    monkeypatch.setattr(disk_cache, "CLAIM_SECONDS", 0.05)
    cache = disk_cache.DiskCache(tmp_path / "pieces", 1 << 20)
    store = tl.open(url, disk_cache=tmp_path / "pieces")
    wanted = disk_cache.PieceKey(store.manifest_sha256, f"shard-00000/{PAYLOAD}", 0)
    ranges.clear()
    with cache.claimed([wanted]):
        assert store.tokens(0, 20).size == 20
    assert len(fetched(ranges)) == 1
