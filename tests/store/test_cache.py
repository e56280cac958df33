import gc
import threading
import time

import numpy as np
import pytest

from tokenloom.errors import ConfigError
from tokenloom.store.cache import BlockCache, process_cache
from tokenloom.store.slabs import SlabPool


def block(value, size=10):
    return np.full(size, value, np.uint8)


def test_the_least_recently_used_block_goes_first():
    cache = BlockCache(30)
    for key in "abc":
        cache.get(key, lambda: block(0))
    cache.get("a", lambda: pytest.fail("a is there"))
    cache.get("d", lambda: block(0))
    cache.get("a", lambda: pytest.fail("a was used last but one"))
    assert cache.get("b", lambda: block(7))[0] == 7  # b had to go
    assert cache.stats().bytes <= 30
    assert cache.stats().evictions == 2


def test_memory_never_exceeds_the_capacity_and_too_large_blocks_are_not_kept():
    cache = BlockCache(25)
    for key in range(100):
        cache.get(key, lambda: block(1))
        assert cache.stats().bytes <= 25
    cache.get("huge", lambda: block(1, 26))
    assert cache.stats().bytes <= 25
    assert BlockCache(0).get("x", lambda: block(3))[0] == 3


def test_blocks_are_read_only():
    got = BlockCache(100).get("a", lambda: block(1))
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 2


def test_eight_threads_asking_for_one_block_load_it_once():
    cache, loads, barrier = BlockCache(100), [], threading.Barrier(8)
    results = []

    def load():
        loads.append(1)
        time.sleep(0.05)
        return block(5)

    def ask():
        barrier.wait()
        results.append(cache.get("k", load))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(loads) == 1
    assert all(r[0] == 5 for r in results)
    assert cache.stats().misses == 1
    assert cache.stats().hits == 7


def test_a_failed_load_is_told_to_everybody_who_waits_and_can_be_tried_again():
    cache, barrier, seen = BlockCache(100), threading.Barrier(4), []

    def fail():
        time.sleep(0.05)
        raise OSError("no")

    def ask():
        barrier.wait()
        try:
            cache.get("k", fail)
        except OSError as error:
            seen.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen == ["no"] * 4
    assert cache.get("k", lambda: block(9))[0] == 9


def test_the_process_cache_is_one_and_has_640_mib():
    assert process_cache() is process_cache()
    assert process_cache().stats().capacity == 640 << 20


def test_a_negative_capacity_is_refused():
    with pytest.raises(ConfigError, match="cache_bytes"):
        BlockCache(-1)


def test_a_slab_comes_back_when_its_last_view_goes_whatever_was_collected_between():
    pool = SlabPool()
    view = pool.take(1 << 20)[100:].view(np.uint16)
    place = view.__array_interface__["data"][0] - 100
    gc.collect()  # nothing but a weak reference watches the array
    assert pool.take(1 << 20).__array_interface__["data"][0] != place
    del view
    gc.collect()
    lent = [pool.take(1 << 20), pool.take(1 << 20)]
    assert place in [one.__array_interface__["data"][0] for one in lent]
