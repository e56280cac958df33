"""Slabs are cut from one stretch of memory while it lasts, and give their pages back."""

import mmap

import numpy as np

from tokenloom.store.slabs import Region, SlabPool


def places(region, arrays):
    """Where in a region arrays begin; None is outside."""
    whole = region._whole
    base = whole.__array_interface__["data"][0] if len(whole) else 0
    found = [array.__array_interface__["data"][0] - base for array in arrays]
    return [place if 0 <= place < len(whole) else None for place in found]


def test_a_region_gives_whole_pages_until_it_is_used_up():
    region = Region(1 << 20)
    first, second = region.cut(1 << 19), region.cut(1 << 19)
    assert (first.nbytes, second.nbytes, region.cut(4096)) == (1 << 19, 1 << 19, None)
    arrays = [np.frombuffer(piece, np.uint8) for piece in (first, second)]
    assert places(region, arrays) == [0, 1 << 19]


def test_a_pool_without_room_in_its_region_goes_on_outside():
    pool = SlabPool(region_bytes=1 << 18)
    arrays = [pool.take(1 << 17) for _ in range(4)]
    assert places(pool.region, arrays) == [0, 1 << 17, None, None]


def test_slabs_that_nobody_needs_give_their_memory_back():
    pool = SlabPool(idle_bytes=1 << 20, region_bytes=1 << 26)
    seen = set()
    for _ in range(5):
        arrays = [pool.take(1 << 19) for _ in range(64)]
        for array in arrays:
            array[:] = 1
        seen.update(places(pool.region, arrays))
        assert resident(pool.region) >= 32 << 20  # all were written to
        del array, arrays
    assert None not in seen
    assert len(seen) == 64  # the same places again and again
    assert resident(pool.region) < 2 << 20  # 1 MiB may stay


def resident(region):
    """Bytes of a region that take memory now: bit 63 of each page's word says so."""
    size = mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(region._base // size * 8)
        words = np.frombuffer(pages.read((1 << 26) // size * 8), np.uint64)
    return int((words >> np.uint64(63)).sum()) * size
