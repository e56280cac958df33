"""Blocks in one region of memory are gathered by one indexing operation, to the same tokens."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.store.slabs import Region, SlabPool
from tokenloom.store.source import REGION
from tokenloom.testing.stores import write_flat

TOKENS = 1 << 19


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Large enough that a block is read into the region: 128 Ki tokens and more."""
    root = tmp_path_factory.mktemp("large") / "s"
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 60_000, TOKENS).astype(np.uint16)
    cuts = np.sort(rng.integers(0, TOKENS, 700))
    write_flat(root, ids, np.diff(cuts, prepend=0, append=TOKENS), vocab_size=60_000)
    return tl.open(root, cache_bytes=1 << 26)


@pytest.mark.parametrize("seq_len", [2048, 1000, 777])
@pytest.mark.parametrize("lookahead", [False, True])
def test_gathered_rows_are_the_rows_that_are_read_one_by_one(store, seq_len, lookahead):
    with pytest.warns(UserWarning, match="align") if seq_len != 2048 else nullcontext():
        dataset = store.windows(seq_len, lookahead=lookahead)
    size = 70_000 // seq_len
    dataset = dataset.block_shuffle(io_block_size=size, window_blocks=3).seed(2)
    renderer = dataset.renderer(by_blocks=True)
    indices = np.arange(len(dataset) // size * size)  # a short last block is too small
    pending = renderer.batches(renderer.plan(indices), [0, 7, 7, len(indices)])
    assert all(one.rows is not None for one in pending)  # this is the way they came
    tokens = np.concatenate([one.make().tokens for one in pending])
    assert (tokens == dataset.batch(indices).tokens).all()


def test_rows_outlive_the_cache_that_held_their_blocks(store):
    dataset = store.windows(2048).block_shuffle(io_block_size=64, window_blocks=2).seed(3)
    renderer = dataset.renderer(by_blocks=True)
    pending = renderer.batches(renderer.plan(np.arange(64)), [0, 32, 64])
    store.reader.cache.clear()
    for start in range(0, TOKENS, 1 << 17):  # whoever may take their memory now would do so here
        store.reader.read_one(start, start + (1 << 17))
    got = np.concatenate([one.make().tokens for one in pending])
    assert (got == dataset.batch(range(64)).tokens).all()


def test_a_region_gives_whole_pages_until_it_is_used_up():
    region = Region(1 << 20)
    first, second = region.cut(1 << 19), region.cut(1 << 19)
    assert (first.nbytes, second.nbytes, region.cut(4096)) == (1 << 19, 1 << 19, None)
    array = np.ndarray(1 << 18, np.uint16, second)
    array[5:9] = [1, 2, 3, 4]
    place = region.offset(array[5:])
    assert region.rows(4, np.dtype(np.uint16))[place].tolist() == [1, 2, 3, 4]
    assert region.offset(np.zeros(4, np.uint16)) == -1


def test_a_pool_without_room_in_its_region_goes_on_outside():
    pool = SlabPool(region_bytes=1 << 18)
    arrays = [pool.take(1 << 17) for _ in range(4)]
    inside = [pool.region.offset(array) >= 0 for array in arrays]
    assert inside == [True, True, False, False]


def test_small_blocks_are_no_part_of_the_region(store):
    small = store.reader.read_one(0, 100)
    assert REGION.offset(small) == -1


def test_slabs_that_nobody_needs_give_their_memory_back():
    pool = SlabPool(idle_bytes=1 << 20, region_bytes=1 << 26)
    places = set()
    for _ in range(5):
        arrays = [pool.take(1 << 19) for _ in range(64)]
        for array in arrays:
            array[:] = 1
        places |= {pool.region.offset(array) for array in arrays}
        del array, arrays
    assert min(places) >= 0
    assert len(places) == 64  # the same places again and again
    assert resident(pool.region) < 20 << 20  # 32 MiB were written to; mappings beside it count, too


def resident(region):
    """Bytes of a region that take memory now."""
    base, total, inside = region._base, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, stop = (int(part, 16) for part in first.split("-"))
            inside = start < base + (1 << 26) and stop > base
        if inside and first == "Rss:":
            total += int(line.split()[1]) << 10
    return total
