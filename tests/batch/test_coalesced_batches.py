import threading
import time

import numpy as np
import pytest
from toydata import ToyStore, numbered
from virtual import VirtualStore, value
from wholebatches import whole

import tokenloom as tl
from tokenloom.store.cache import BlockCache

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle")


def counted(store, ask):
    """(examples, unique examples, ranges, reads) that a call took."""
    names = ("examples", "unique_examples", "ranges", "read_ops")
    before = store.reads
    before = [getattr(before, name) for name in names]
    result = ask()
    after = store.reads
    return tuple(getattr(after, n) - b for n, b in zip(names, before, strict=True)), result


def test_a_row_over_an_edge_of_shards_is_two_reads_and_one_example():
    with ToyStore(numbered([[6], [6]]), verify="never") as toy:
        counts, batch = counted(toy.store, lambda: toy.store.windows(4).batch([1]))
        assert counts == (1, 1, 2, 2)
        assert batch.tokens.tolist() == [[4, 5, 6, 7]]


# -- blocks that are kept ------------------------------------------------------------------


def test_every_block_is_read_once_when_its_window_fits_exactly():
    with ToyStore(numbered([[256]]), verify="never", chunk_tokens=32) as toy:
        for lanes in (1, 2):
            options = {"window_blocks": 2, "lanes": lanes, "cache_windows": lanes}
            dataset = toy.store.windows(4).block_shuffle(**options)
            renderer = dataset.renderer(by_blocks=True)
            for start in range(0, 64, 3):  # batches that end anywhere in a window
                wanted = np.arange(start, min(start + 3, 64))
                renderer.batches(renderer.plan(wanted), [0, len(wanted)])
            assert renderer.cache.stats().misses == 8


def test_a_window_that_fills_the_cache_exactly_fits():
    with ToyStore(numbered([[256]]), chunk_tokens=32) as toy:
        for windows in (1, 4):
            dataset = toy.store.windows(4).block_shuffle(window_blocks=2, cache_windows=windows)
            assert dataset.run.working.bytes * windows == dataset.cache_bytes


def test_what_is_stored_about_training_counts_as_memory():
    columns = {
        "loss_mask": ("uint8", lambda ids: ids % 2),
        "loss_weights": ("float32", lambda ids: ids % 3),
        "other": ("float64", lambda ids: ids % 3),
    }
    with ToyStore(numbered([[256]]), chunk_tokens=32, columns=columns) as toy:
        run = toy.store.windows(4).block_shuffle(window_blocks=2).run
        assert run.working.bytes == 2 * 32 * (2 + 1 + 4)


# -- the cache itself ----------------------------------------------------------------------


def block(value, size=10):
    return np.full(size, value, np.uint8)


def loader(calls, keys):
    def load(places):
        calls.append(list(places))
        return [block(ord(keys[place])) for place in places]

    return load


def test_what_is_missing_is_loaded_in_one_call_and_the_rest_is_not():
    cache, calls = BlockCache(1000), []
    cache.get_many("ac", loader(calls, "ac"))
    found = cache.get_many("abcd", loader(calls, "abcd"))
    assert calls == [[0, 1], [1, 3]]
    assert [one[0] for one in found] == [ord(key) for key in "abcd"]
    assert all(not one.flags.writeable for one in found)
    assert (cache.stats().hits, cache.stats().misses) == (2, 4)
    assert cache.get_many([], lambda _: pytest.fail("nothing is missing")) == []


def in_threads(count, ask):
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait()
        ask(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
    assert not any(thread.is_alive() for thread in threads)


def test_eight_threads_that_want_overlapping_blocks_load_each_once():
    cache, loaded, results = BlockCache(1 << 20), [], {}

    def ask(number):
        keys = [(number + k) % 12 for k in range(6)]
        keys = keys if number % 2 else keys[::-1]

        def load(places):
            loaded.extend(keys[place] for place in places)
            time.sleep(0.02)
            return [block(keys[place]) for place in places]

        results[number] = keys, cache.get_many(keys, load)

    in_threads(8, ask)
    assert sorted(loaded) == sorted(set(loaded))
    for keys, found in results.values():
        assert [one[0] for one in found] == keys
    assert cache.stats().misses == len(loaded)
    assert cache.stats().hits == 8 * 6 - len(loaded)


def test_a_failing_load_is_heard_by_all_who_wait_and_nothing_is_left_behind():
    cache, heard, calls = BlockCache(1000), [], []

    def ask(number):
        def fail(places):
            calls.append(number)
            time.sleep(0.05)
            raise OSError("the disk is gone")

        try:
            cache.get_many("ab", fail)
        except OSError as error:
            heard.append(str(error))

    in_threads(8, ask)
    assert heard == ["the disk is gone"] * 8
    assert len(calls) < 8  # most of them waited
    assert cache.stats().blocks == 0
    assert cache._loads == {}
    assert [one[0] for one in cache.get_many("ab", loader([], "ab"))] == [97, 98]


def test_threads_that_read_one_dataset_read_each_block_once(tmp_path):
    made = VirtualStore([(4, 64 * 512)])
    store = tl.open(made.write_manifest(tmp_path), source=made, verify="never", cache_bytes=1 << 24)
    dataset = store.windows(64).block_shuffle(io_block_size=8)
    tokens = {}

    def ask(number):
        wanted = np.random.Generator(np.random.PCG64(number)).integers(0, 512, 300)
        tokens[number] = wanted, whole(dataset, wanted, by_blocks=True).tokens

    in_threads(8, ask)
    for wanted, found in tokens.values():
        _, rows = dataset.locate(wanted)
        np.testing.assert_array_equal(found, value(rows[:, None] * 64 + np.arange(64)))
    assert store.reads.useful_bytes <= 64 * 512 * 2
