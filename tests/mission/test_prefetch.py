"""Batches ahead of time: in order, never in the way, gone when told to; nothing else is touched."""

import _thread
import errno
import gc
import itertools
import json
import logging
import os
import random
import threading
import time

import numpy as np
import pytest
from counted import CountedFiles
from refusals import refused
from toyruns import SEQ_LEN, same, toy_run, toy_store

import tokenloom as tl
from tokenloom.testing import FaultSource, tiny, write_flat

WAIT = 120.0  # seconds until something is taken to hang
BEFORE = 0  # threads that ran before a test


def settle(condition):
    end = time.monotonic() + WAIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


def threads():
    """How many threads were started since the test began, and still run."""
    return _thread._count() - BEFORE


@pytest.fixture(autouse=True)
def _no_thread_is_left(few_objects):
    global BEFORE
    BEFORE = _thread._count()
    yield
    gc.collect()
    settle(lambda: threads() <= 0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


def faulty(store, **fault):
    """An endless run over a source that can fail or be slow, without a cache, read row by row."""
    source = FaultSource(CountedFiles(store.path), only="input_ids/c", **fault)
    opened = tl.open(store.path, source=source, cache_bytes=0, verify="never")
    dataset = toy_run(opened, "stored", epochs=None)
    dataset.batch([0, 36])  # shards are open now
    source.requests.clear()
    return dataset, source


class Gated:
    """In place of a source: reads from the second on wait until the gate opens."""

    def __init__(self, inner, free=1):
        self.inner, self.free, self.reads, self.gate = inner, free, 0, threading.Event()

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        self.reads += 1
        if self.reads > self.free:
            self.gate.wait(WAIT)
        return self.inner.read(ranges)


# -- a thread is for waiting ---------------------------------------------------------------


def test_a_run_that_is_in_memory_needs_no_thread(store, monkeypatch):
    started, really = [], _thread.start_new_thread
    monkeypatch.setattr(
        _thread, "start_new_thread", lambda *given: (started.append(given), really(*given))[1]
    )
    with tl.Loader(toy_run(store, "block", epochs=2), 4, prefetch=0) as known:
        wanted = [batch.tokens.tobytes() for batch in known]
    assert started == []
    dataset = toy_run(tl.open(store.path, cache_bytes=1 << 20), "block", epochs=2)
    for read in (True, False):
        with tl.Loader(dataset, 4) as loader:
            before = loader.stats().reads.read_ops
            assert [batch.tokens.tobytes() for batch in loader] == wanted
            assert (loader.stats().reads.read_ops > before) == read
        assert bool(started) == read
        started.clear()


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_the_first_batch_does_not_wait_for_a_group(store, fetch):
    """Every read after the first blocks; the first batch must still come."""
    dataset, source = faulty(store)
    source.inner = gated = Gated(source.inner)
    with tl.Loader(dataset, 4, prefetch=64, fetch=fetch) as loader:
        try:
            assert next(loader).index.tolist() == [0, 1, 2, 3]
            assert gated.reads <= 2
            assert loader.state_dict()["examples"] == 4
        finally:
            gated.gate.set()
        assert next(loader).index.tolist() == [4, 5, 6, 7]


def test_nothing_is_read_before_the_first_batch_is_asked_for(store):
    dataset, source = faulty(store)
    loader = tl.Loader(dataset, 4)
    loader.seek(5)
    loader.state_dict()
    again = tl.Loader(dataset, 6, 1, 3)
    again.load_state_dict(loader.state_dict())
    assert again.examples == 20
    assert source.requests == []
    assert threads() == 0


def test_without_prefetch_a_step_reads_what_it_needs_and_no_thread_runs(store):
    dataset, source = faulty(store)
    with tl.Loader(dataset, 4, prefetch=0, fetch="rows") as loader:
        for step in range(3):
            source.requests.clear()
            next(loader)
            asked = [one for request in source.requests for one in request]
            assert sum(size for _, _, size in asked) == 4 * SEQ_LEN * 2, step
            assert threads() == 0


def test_what_was_made_ahead_is_not_waited_for(store):
    dataset, _ = faulty(store, latency=0.002)
    with tl.Loader(dataset.take(40), 4, prefetch=64, fetch="rows") as loader:
        next(loader)
        state = loader.state_dict()
        settle(lambda: threads() == 0)  # the whole run is made
        assert loader.state_dict() == state
        waited = loader.stats().wait_seconds
        assert waited > 0
        assert [batch.index[0] for batch in loader] == list(range(4, 40, 4))
        assert loader.stats().wait_seconds == waited


def test_a_thread_makes_as_many_as_were_asked_for_and_rests(store):
    """Groups double up to 8 steps; while half of 8 or fewer are ready, more are made."""
    dataset, source = faulty(store)

    def ahead():
        asked = sum(size for request in list(source.requests) for _, _, size in request)
        return asked // (4 * SEQ_LEN * 2) - loader.step

    with tl.Loader(dataset, 4, prefetch=8, fetch="rows") as loader:
        for _ in range(40):
            next(loader)
            settle(lambda: ahead() > 4)
            assert ahead() <= 4 + 8
        assert len(source.requests) <= 3 + (loader.step + ahead()) // 8 + 1


# -- failures ------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 8])
def test_a_failing_store_is_an_error_at_the_step_that_needs_it(store, prefetch):
    """The second shard cannot be read; what is in the first one is delivered."""
    dataset, source = faulty(store)
    inner = source.inner

    class Damaged(Gated):
        def read(self, ranges):
            if any("shard-00001/input_ids/c" in name for name, _, _ in ranges):
                raise OSError(errno.EIO, "Input/output error", ranges[0][0])
            return self.inner.read(ranges)

    source.inner = Damaged(inner)
    with tl.Loader(dataset.take(30), 4, prefetch=prefetch, fetch="rows") as loader:
        assert [next(loader).index[0] for _ in range(4)] == [0, 4, 8, 12]
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                next(loader)
        assert (loader.step, loader.examples) == (4, 16)
        state = loader.state_dict()
        source.inner = inner  # mended
        loader.close()
        assert next(loader).index.tolist() == [16, 17, 18, 19]
        again = tl.Loader(dataset.take(30), 4)
        again.load_state_dict(state)
        assert next(again).index.tolist() == [16, 17, 18, 19]
        again.close()


def test_a_damaged_chunk_is_an_error_and_no_wrong_token_comes(store):
    source = FaultSource(
        CountedFiles(store.path), at=3, action="flip", forever=True, only="input_ids/c"
    )
    damaged = tl.open(store.path, source=source, cache_bytes=0, verify="always")
    dataset, delivered = toy_run(damaged, "stored"), 0
    with (
        tl.Loader(dataset, 2, prefetch=4, fetch="rows") as loader,
        tl.Loader(toy_run(store, "stored"), 2) as known,
    ):

        def walk():
            nonlocal delivered
            for batch in loader:
                assert same(batch, next(known))
                delivered += 1

        refused(walk, tl.StoreCorrupt, "shard-00000/input_ids")
        assert 0 < loader.step == delivered


def test_a_caller_that_is_interrupted_leaves_no_thread_and_continues(store):
    dataset, _ = faulty(store, latency=0.001)
    loader = tl.Loader(dataset, 4, prefetch=8)

    def walk():
        with loader:
            for batch in loader:
                if batch.index[0] == 8:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk()
    settle(lambda: threads() == 0)
    assert loader.examples == 12
    assert next(loader).index.tolist() == [12, 13, 14, 15]
    loader.close()


# -- coming and going ----------------------------------------------------------------------


def test_close_leaves_no_thread_and_the_next_batch_starts_one(store):
    dataset, _ = faulty(store)
    loader, found = tl.Loader(dataset.take(80), 4, prefetch=4, fetch="rows"), []
    for turn in itertools.count():
        batch = next(loader, None)
        if batch is None:
            break
        found += batch.index.tolist()
        if turn % 3 == 0:
            loader.close()
            loader.close()
            assert threads() == 0
    assert found == list(range(80))
    loader.close()


def test_a_loader_that_is_dropped_takes_its_thread_along(store):
    endless, _ = faulty(store, latency=0.02)
    for _ in range(3):
        loader = tl.Loader(endless, 4, prefetch=8, fetch="rows")
        kept = next(loader)
        assert threads() == 1
        del loader
        gc.collect()
        settle(lambda: threads() == 0)
    assert kept.loss_tokens > 0  # a batch lives on without its loader


def test_loaders_in_several_threads_give_what_they_give_alone(store):
    dataset = toy_run(store, "block")
    with tl.Loader(dataset, 5) as known:
        wanted = [batch.tokens.tobytes() for batch in known]
    results = {}

    def work(name):
        with tl.Loader(dataset, 5, prefetch=name) as loader:
            results[name] = [batch.tokens.tobytes() for batch in loader]

    workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(results[name] == wanted for name in range(4))


# -- the watchdog --------------------------------------------------------------------------


def test_a_stalled_store_is_logged_with_numbers_again_and_again(store, caplog):
    dataset, source = faulty(store)
    source.inner = gated = Gated(source.inner, free=0)
    release = threading.Timer(0.4, gated.gate.set)
    with caplog.at_level(logging.WARNING, logger="tokenloom"):
        release.start()
        with tl.Loader(dataset, 4, prefetch=2, patience=0.05) as loader:
            assert next(loader).index.tolist() == [0, 1, 2, 3]
    release.join()
    messages = [record.getMessage() for record in caplog.records]
    assert 2 <= len(messages) <= 20
    assert all(str(store.path) in message and "MiB" in message for message in messages)


def test_a_store_that_is_only_slow_is_not_logged(store, caplog):
    dataset, _ = faulty(store, latency=0.002)
    with tl.Loader(dataset, 4, prefetch=2, patience=200) as loader:
        list(itertools.islice(loader, 10))
    assert caplog.records == []


# -- numbers, and what a loader leaves alone -------------------------------------------------


def test_the_cache_numbers_are_those_of_the_cache(store):
    fresh = tl.open(store.path, cache_bytes=1 << 20)
    with tl.Loader(toy_run(fresh, "full", epochs=2), 4, prefetch=0, fetch="blocks") as loader:
        list(loader)
        stats = loader.stats()
    assert stats.cache.misses == 10  # 37 rows in blocks of 4, each loaded once in two epochs
    assert stats.cache.hits > 0
    assert stats.reads.useful_bytes == 37 * SEQ_LEN * 2


def test_w4_global_random_numbers_are_neither_used_nor_changed(store):
    def walk(seed):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global state is what is looked at
        before = random.getstate(), json.dumps(np.random.get_state()[1].tolist())  # noqa: NPY002
        dataset = toy_run(store, "lanes 3").seed(5)
        with tl.Loader(dataset, 5, prefetch=4, fields=("tokens", "labels")) as loader:
            found = [(batch.index.tolist(), batch.tokens.tobytes()) for batch in loader]
        after = random.getstate(), json.dumps(np.random.get_state()[1].tolist())  # noqa: NPY002
        assert before == after
        return found

    assert walk(1) == walk(2)


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_w5_a_changed_batch_changes_no_other_and_kept_ones_stay(store, fetch):
    dataset = toy_run(store, "block")
    with tl.Loader(dataset, 4, fetch=fetch, prefetch=16) as loader:
        kept = list(loader)
        assert all(same(batch, dataset.batch(batch.index)) for batch in kept)
        known = [batch.tokens.copy() for batch in kept]
        for batch, wanted in zip(loader.seek(0), known, strict=True):
            assert np.array_equal(batch.tokens, wanted)
            batch.tokens.fill(-7)
            batch.labels.fill(-7)
        again = loader.seek(0)
        assert all(np.array_equal(b.tokens, w) for b, w in zip(again, known, strict=True))


# -- blocks of coming windows ----------------------------------------------------------------

ROW, BLOCK_ROWS, WINDOW, WINDOWS = 64, 8, 8, 12
ROWS = BLOCK_ROWS * WINDOW * WINDOWS
BLOCK_BYTES = BLOCK_ROWS * ROW * 2
CHUNK = 1 << 16  # bytes that are checked together


class Bucket(CountedFiles):
    """Answers several requests at once, and remembers who asked for what."""

    def __init__(self, root, parallel=4, latency=0.0):
        super().__init__(root)
        self.parallel, self.wait = parallel, latency
        self.reads, self.running, self.most, self.fails = [], 0, 0, False

    def read(self, ranges):
        tokens = [one for one in ranges if "input_ids/c" in one[0]]
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.reads += [(threading.get_ident(), *one[1:]) for one in tokens]
        try:
            time.sleep(self.wait)
            if self.fails and tokens:
                raise OSError(5, "the bucket is gone")
            return super().read(ranges)
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("ahead") / "store"
    ids = np.random.default_rng(0).integers(0, 50_000, ROWS * ROW)
    write_flat(path, ids, np.array([len(ids)]), vocab_size=50_000)
    return path


@pytest.fixture
def short_plans():
    """Plans of one window, and groups of 16 rows; usual ones would take the whole run at once."""
    with tiny(plan_examples=BLOCK_ROWS * WINDOW, lookup_examples=16):
        yield


def run_of(root, source=None, windows=4, seq_len=ROW, verify="never"):
    """A run whose cache holds this many windows."""
    store = tl.open(root, source=source, cache_bytes=windows * WINDOW * BLOCK_BYTES, verify=verify)
    run = store.windows(seq_len).seed(1)
    return run.block_shuffle(io_block_size=BLOCK_ROWS, window_blocks=WINDOW)


def test_the_next_window_is_fetched_before_it_is_asked_for(root, short_plans):
    """Every block is fetched once, and most of them by other threads than the loader's."""
    bucket = Bucket(root)
    wanted = [batch.tokens.tolist() for batch in tl.Loader(run_of(root), 4, prefetch=0)]
    found = []
    with tl.Loader(run_of(root, bucket), 4, prefetch=4) as loader:
        for batch in loader:
            found.append(batch.tokens.tolist())
            here = len(found) * 4 // (BLOCK_ROWS * WINDOW)  # windows consumed
            if 2 <= here < WINDOWS - 2:  # the next one is here, or comes without being asked
                settle(lambda: len(bucket.reads) >= min(WINDOWS, here + 1) * WINDOW)  # noqa: B023
    assert found == wanted
    assert len(bucket.reads) == len({place for _, place, _ in bucket.reads}) == WINDOW * WINDOWS
    assert len({who for who, _, _ in bucket.reads}) > 2
    assert bucket.most <= bucket.parallel + 1


@pytest.mark.filterwarnings("ignore:seq_len")
@pytest.mark.parametrize("verify", ["first", "always"])
@pytest.mark.parametrize("seq_len", [ROW, 60])  # rows of 60 tokens: blocks across two chunks
def test_blocks_smaller_than_a_checked_chunk_take_one_read_each(root, short_plans, verify, seq_len):
    bucket, block = Bucket(root), BLOCK_ROWS * seq_len * 2
    run = run_of(root, bucket, windows=WINDOWS + 1, seq_len=seq_len, verify=verify)
    wanted = [batch.tokens.tolist() for batch in tl.Loader(run_of(root, seq_len=seq_len), 4)]
    with tl.Loader(run, 4, prefetch=4) as loader:
        assert [batch.tokens.tolist() for batch in loader] == wanted
        blocks = -(-len(run) // BLOCK_ROWS)
        assert loader.metrics()["data/reads"] == len(bucket.reads) <= blocks
    sizes = {size for _, _, size in bucket.reads}
    widened = {size for size in sizes if size > block}
    assert widened
    assert all(size % CHUNK == 0 for size in widened)
    if verify == "always":
        assert widened == sizes


@pytest.mark.parametrize("parallel", [4, 12])
def test_a_slow_source_is_asked_as_much_at_once_as_it_answers(root, short_plans, parallel):
    """While there is room in the cache; a step that waits for its own block may ask, too."""
    bucket = Bucket(root, parallel=parallel, latency=0.02)
    with tl.Loader(run_of(root, bucket, windows=6), 4, prefetch=4) as loader:
        assert sum(len(batch) for batch in itertools.islice(loader, 40)) == 160
    assert parallel <= bucket.most <= parallel + 1


def test_no_more_is_fetched_ahead_than_the_cache_has_room_for(root, short_plans):
    bucket = Bucket(root)
    with tl.Loader(run_of(root, bucket, windows=2), 4, prefetch=4) as loader:
        for _ in range(8):
            next(loader)
        time.sleep(0.1)  # whoever goes on, goes too far
        # the first window, the one after it, and one that a plan begun within the budget may need
        assert WINDOW < len(bucket.reads) <= 3 * WINDOW
        stats = loader.stats().cache
        assert 0 < stats.bytes <= stats.capacity


def test_several_windows_are_fetched_ahead_where_the_cache_holds_the_run(root, short_plans):
    bucket = Bucket(root)
    with tl.Loader(run_of(root, bucket, windows=WINDOWS + 1), 4, prefetch=4) as loader:
        for _ in range(8):
            next(loader)
        settle(lambda: len(bucket.reads) >= 4 * WINDOW)


@pytest.mark.parametrize("settings", [{"windows": 1}, {"prefetch": 0}, {"fetch": "rows"}])
def test_nothing_is_fetched_ahead_without_room_or_wish(root, short_plans, settings):
    bucket, options = Bucket(root), dict(settings)
    run = run_of(root, bucket, windows=options.pop("windows", 4))
    with tl.Loader(run, 4, **{"prefetch": 4, **options}) as loader:
        rows = [next(loader) for _ in range(8)]
    time.sleep(0.05)
    assert len(rows) == 8
    assert len({who for who, _, _ in bucket.reads}) <= 2  # the caller, and the loader's thread


def test_what_fails_ahead_of_time_is_raised_when_it_is_needed(root, short_plans):
    bucket = Bucket(root)
    loader = tl.Loader(run_of(root, bucket), 4, prefetch=1)
    seen = [next(loader).index.tolist()]
    bucket.fails = True

    def read_on():
        while True:
            seen.append(next(loader).index.tolist())

    with pytest.raises((OSError, tl.StoreError)):
        read_on()
    assert loader.step == len(seen)
    bucket.fails = False
    seen += [batch.index.tolist() for batch in loader]
    assert seen == np.arange(ROWS).reshape(-1, 4).tolist()


def test_a_closed_loader_fetches_nothing_more(root, short_plans):
    bucket = Bucket(root, parallel=2, latency=0.05)
    loader = tl.Loader(run_of(root, bucket, windows=8), 4, prefetch=4)
    for _ in range(8):
        next(loader)
    loader.close()
    before = len(bucket.reads)
    time.sleep(0.1)
    settle(lambda: bucket.running == 0)
    assert len(bucket.reads) <= before + bucket.parallel  # what had begun; dozens were waiting
    assert before < WINDOWS * WINDOW


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice")
def test_a_local_store_is_announced_to_the_system(root, short_plans, monkeypatch):
    told, really = [], os.posix_fadvise

    def advise(fd, offset, size, advice):
        told.append((offset, size, advice))
        really(fd, offset, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    found = [batch.index.tolist() for batch in tl.Loader(run_of(root), 4, prefetch=4)]
    assert found == np.arange(ROWS).reshape(-1, 4).tolist()
    assert {advice for _, _, advice in told} == {os.POSIX_FADV_WILLNEED}
    assert {size for _, size, _ in told} == {BLOCK_BYTES}
    places = [offset for offset, _, _ in told]
    assert len(places) == len(set(places)) >= WINDOW * (WINDOWS - 3)


def test_a_run_that_is_in_memory_asks_nobody(root, short_plans):
    bucket = Bucket(root)
    run = run_of(root, bucket, windows=WINDOWS + 1).epochs(3)
    with tl.Loader(run, 4, prefetch=4) as loader:
        assert sum(len(batch) for batch in loader) == 3 * ROWS
    assert len(bucket.reads) == WINDOW * WINDOWS
