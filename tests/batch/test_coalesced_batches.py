import threading
import time

import numpy as np
import pytest
from toydata import ToyStore, numbered, whole
from virtual import VirtualStore, value

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


@pytest.fixture
def rows():
    """A hundred rows of four tokens, each row one range of one file."""
    with ToyStore(numbered([[400]]), verify="never", inner=64, chunk_tokens=64) as toy:
        yield toy.store


def test_cr_01_cr_04_neighbours_are_one_read_and_the_order_is_kept(rows):
    wanted = [5, 3, 4, 9, 3]
    counts, batch = counted(rows, lambda: rows.windows(4).batch(wanted))
    assert counts == (5, 4, 2, 2)
    assert batch.tokens.tolist() == [[4 * i + k for k in range(4)] for i in wanted]


def test_cr_02_cr_03_a_coalesced_batch_is_what_single_reads_give(rows):
    dataset, rng = rows.windows(4), np.random.Generator(np.random.PCG64(5))
    for _ in range(20):
        wanted = rng.integers(0, 100, rng.integers(1, 40))
        singles = np.concatenate([dataset[i].tokens for i in wanted.tolist()])
        np.testing.assert_array_equal(dataset.batch(wanted).tokens, singles)


def test_cr_05_neighbours_in_any_order_are_one_read(rows):
    wanted = np.random.Generator(np.random.PCG64(1)).permutation(64) + 20
    counts, _ = counted(rows, lambda: rows.windows(4).batch(wanted))
    assert counts == (64, 64, 1, 1)


@pytest.mark.parametrize(
    ("gap_bytes", "reads", "wasted"), [(0, 2, 0), (7, 2, 0), (8, 1, 8), (100, 1, 8)]
)
def test_cr_08_rows_that_are_nearly_neighbours_may_be_one_read(gap_bytes, reads, wasted):
    options = {"verify": "never", "gap_bytes": gap_bytes, "inner": 64}
    with ToyStore(numbered([[400]]), **options) as toy:
        before = toy.store.reads.bytes - toy.store.reads.useful_bytes
        counts, batch = counted(toy.store, lambda: toy.store.windows(4).batch([3, 5]))
        assert counts == (2, 2, reads, reads)
        assert batch.tokens.tolist() == [[12, 13, 14, 15], [20, 21, 22, 23]]
        assert toy.store.reads.bytes - toy.store.reads.useful_bytes - before == wasted


def test_cr_07_a_split_is_read_like_a_store(rows):
    with ToyStore(numbered([[4] * 60]), verify="never", inner=64) as toy:
        part = toy.store.split({"a": 0.5, "b": 0.5})["a"]
        dataset = part.windows(4)
        runs = np.flatnonzero(np.diff(part.indices) > 1)  # neighbours are one read
        counts, batch = counted(toy.store, lambda: dataset.batch(range(len(dataset))))
        assert counts[3] == len(runs) + 1
        assert batch.tokens[:, 0].tolist() == (part.indices * 4).tolist()


def test_a_row_over_an_edge_of_shards_is_two_reads_and_one_example():
    with ToyStore(numbered([[6], [6]]), verify="never") as toy:
        counts, batch = counted(toy.store, lambda: toy.store.windows(4).batch([1]))
        assert counts == (1, 1, 2, 2)
        assert batch.tokens.tolist() == [[4, 5, 6, 7]]


# -- CR-10: the published table ------------------------------------------------------------

N, S, GROUP, REQUESTS = 16_384, 2048, 2048, 20


class OnlyCounts(VirtualStore):
    """Answers every read with memory that nobody filled: only how many there are matters."""

    def read(self, ranges):
        if all("input_ids/c/" in name for name, _, _ in ranges):
            return [np.empty(count, np.uint8) for _, _, count in ranges]
        return super().read(ranges)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    made = OnlyCounts([(1, N * S)])
    root = made.write_manifest(tmp_path_factory.mktemp("published"))
    return tl.open(root, source=made, verify="never", cap_bytes=1 << 30)


def reads_of(store, dataset):
    """Reads of 20 requests of 2,048 neighbouring indices, planned and fetched, not filled."""
    renderer = dataset.renderer(by_blocks=False)
    before = store.reads.read_ops
    for request in range(REQUESTS):
        indices = np.arange(request * GROUP, (request + 1) * GROUP) % N
        renderer.batches(renderer.plan(indices), [0, GROUP])
    return store.reads.read_ops - before


def orders(store, perm_type):
    dataset = store.windows(S)
    return {
        "full": dataset.shuffle(perm_type=perm_type),
        "era": dataset.shuffle(1024, perm_type=perm_type),
        "block": dataset.block_shuffle(window_blocks=8, perm_type=perm_type),
    }


@pytest.mark.parametrize(("order", "reads"), [("full", 35_650), ("era", 20), ("block", 287)])
def test_cr_10_levanters_orders_take_the_published_reads(published, order, reads):
    assert reads_of(published, orders(published, "levanter")[order]) == reads


def test_cr_10_our_orders_take_what_a_fair_shuffle_takes(published):
    found = {n: reads_of(published, d.seed(3)) for n, d in orders(published, "feistel").items()}
    assert found["full"] / (REQUESTS * GROUP) == pytest.approx(0.875, abs=0.01)
    assert found["era"] == 20
    assert found["block"] == pytest.approx(282, abs=20)


# -- blocks that are kept ------------------------------------------------------------------


def test_ca_04_a_second_pass_over_a_window_reads_nothing():
    with ToyStore(numbered([[256]]), verify="never", chunk_tokens=32) as toy:
        dataset = toy.store.windows(4).block_shuffle(window_blocks=2)
        window = range(16)  # two blocks of eight rows
        counts, first = counted(toy.store, lambda: whole(dataset, window, by_blocks=True))
        assert 1 <= counts[3] <= 2
        hits = toy.store.reader.cache.stats().hits
        counts, second = counted(toy.store, lambda: whole(dataset, window, by_blocks=True))
        assert counts[3] == 0
        assert toy.store.reader.cache.stats().hits == hits + 2
        np.testing.assert_array_equal(first.tokens, second.tokens)


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


@pytest.mark.parametrize("windows", [1, 2, 3])
@pytest.mark.parametrize("cut", [{}, {"lookahead": True}, {"tail": "keep"}])
def test_ca_01_cache_windows_bounds_the_memory_of_a_dataset(windows, cut):
    with ToyStore(numbered([[270]]), verify="never", chunk_tokens=32) as toy:
        dataset = toy.store.windows(4, **cut).block_shuffle(window_blocks=2, cache_windows=windows)
        row_bytes = 2 * 4
        most = windows * 2 * (8 * row_bytes + (2 if cut.get("lookahead") else 0))
        assert dataset.cache_bytes == most
        renderer = dataset.renderer(by_blocks=True)
        for start in range(0, len(dataset) - 5, 5):
            renderer.batches(renderer.plan(np.arange(start, start + 5)), [0, 5])
            assert renderer.cache.stats().bytes <= most
        assert renderer.cache.stats().evictions > 0
        assert toy.store.reader.cache.stats().blocks <= 8  # offsets at most: tokens went elsewhere


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


@pytest.mark.parametrize("capacity", [0, 10, 1000])
def test_a_key_that_is_named_twice_is_found_twice(capacity):
    cache = BlockCache(capacity)
    found = cache.get_many("aba", loader([], "aba"))
    assert [one[0] for one in found] == [ord(key) for key in "aba"]
    assert cache.stats().bytes <= capacity


def test_many_blocks_never_exceed_the_capacity_and_the_last_used_stay():
    cache, calls = BlockCache(35), []
    for keys in ("abcdef", "efg", "aeg"):
        found = cache.get_many(keys, loader(calls, keys))
        assert [one[0] for one in found] == [ord(key) for key in keys]
        assert cache.stats().bytes == 30
    assert calls == [[0, 1, 2, 3, 4, 5], [2], [0]]
    too_large = cache.get_many("x", lambda _: [block(1, 36)])
    assert (len(too_large[0]), cache.stats().bytes) == (36, 30)


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


def test_ca_08_eight_threads_that_want_overlapping_blocks_load_each_once():
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
    assert cache._flights == {}
    assert [one[0] for one in cache.get_many("ab", loader([], "ab"))] == [97, 98]


def test_a_load_that_gives_too_little_is_an_error_for_everybody():
    cache = BlockCache(1000)
    with pytest.raises(ValueError, match="shorter"):
        cache.get_many("ab", lambda _: [block(1)])
    assert cache._flights == {}
    assert cache.stats().blocks == 0


def test_single_and_many_share_their_flights():
    cache, loaded = BlockCache(1000), []

    def load(places):
        loaded.append("many")
        time.sleep(0.05)
        return [block(7) for _ in places]

    def ask(number):
        if number:
            time.sleep(0.01)
            assert cache.get("a", lambda: loaded.append("one") or block(1))[0] == 7
        else:
            cache.get_many("ab", load)

    in_threads(4, ask)
    assert loaded == ["many"]


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
