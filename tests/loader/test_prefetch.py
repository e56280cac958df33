"""Batches ahead of time: in order, never in the way, gone when told to; nothing else is touched."""

import _thread
import errno
import gc
import itertools
import json
import logging
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from toyruns import SEQ_LEN, close_all, joined, ranks_of, same, toy_run, toy_store

import tokenloom as tl
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource

BEFORE = 0  # threads that ran before a test


def threads(wanted=0):
    """How many threads were started since the test began; those that are ending are waited for."""
    deadline = time.monotonic() + 900
    while _thread._count() - BEFORE > wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    return _thread._count() - BEFORE


@pytest.fixture(autouse=True)
def _no_thread_is_left(few_objects):
    global BEFORE
    BEFORE = _thread._count()
    yield
    gc.collect()
    assert threads() == 0


def faulty(root, kind="stored", rows=37, **fault):
    """A run over a source that can fail or be slow, without a cache, read row by row."""
    toy_store(root, rows=rows)
    source = FaultSource(LocalSource(root), only="input_ids/c", **fault)
    store = tl.open(root, source=source, cache_bytes=0, verify="never")
    dataset = toy_run(store, kind, epochs=None)
    dataset.batch([0, rows - 1])  # shards are open now
    return dataset, source


# -- the prefetcher alone ------------------------------------------------------------------


def test_a_run_that_is_in_memory_needs_no_thread(tmp_path, monkeypatch):
    """A thread reads the first epoch; in the second everything is at hand."""
    started = []

    def start(*given, really=_thread.start_new_thread):
        started.append(given)
        return really(*given)

    monkeypatch.setattr(_thread, "start_new_thread", start)
    dataset = toy_run(toy_store(tmp_path), "block", epochs=2)
    with tl.Loader(dataset, 4, prefetch=0) as known:
        wanted = [batch.tokens.tobytes() for batch in known]
    dataset.sources["main"].reader.cache.clear()
    assert started == []
    with tl.Loader(dataset, 4) as loader:
        assert [batch.tokens.tobytes() for batch in loader] == wanted
    assert started
    started.clear()
    reads = dataset.counters().read_ops
    with tl.Loader(dataset, 4) as loader:
        assert [batch.tokens.tobytes() for batch in loader] == wanted
    assert started == []
    assert dataset.counters().read_ops == reads


# -- nothing waits for a group -------------------------------------------------------------


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_the_first_batch_does_not_wait_for_a_group(tmp_path, fetch):
    """Every read after the first blocks; the first batch must still come."""
    dataset, source = faulty(tmp_path)
    gate = threading.Event()
    inner = source.inner

    class Gated:
        reads = 0

        def size(self, name):
            return inner.size(name)

        def read(self, ranges):
            self.reads += 1
            if self.reads > 1:
                gate.wait(60)
            return inner.read(ranges)

    source.inner = gated = Gated()
    with tl.Loader(dataset, 4, prefetch=64, fetch=fetch) as loader:
        try:
            assert next(loader).index.tolist() == [0, 1, 2, 3]
            assert gated.reads <= 2
            assert loader.state_dict()["examples"] == 4
        finally:
            gate.set()
        assert next(loader).index.tolist() == [4, 5, 6, 7]


def test_nothing_is_read_before_the_first_batch_is_asked_for(tmp_path):
    dataset, source = faulty(tmp_path)
    source.requests.clear()
    loader = tl.Loader(dataset, 4)
    loader.seek(5)
    loader.state_dict()
    assert source.requests == []
    assert threads() == 0


def test_without_prefetch_a_step_reads_what_it_needs_and_no_thread_runs(tmp_path):
    dataset, source = faulty(tmp_path)
    with tl.Loader(dataset, 4, prefetch=0, fetch="rows") as loader:
        for step in range(3):
            source.requests.clear()
            next(loader)
            asked = [one for request in source.requests for one in request]
            assert sum(size for _, _, size in asked) == 4 * SEQ_LEN * 2, step
            assert threads() == 0


def test_reading_goes_on_while_the_caller_works(tmp_path):
    """Reads of 2 ms; a caller that works longer than that never waits again."""
    dataset, _ = faulty(tmp_path, latency=0.002)
    with tl.Loader(dataset, 4, prefetch=8, fetch="rows") as loader:
        next(loader)
        while loader._producer._ready[-1].stop < 5:
            time.sleep(0.001)
        waited = loader.stats().wait_seconds
        for _ in range(4):
            next(loader)
        assert loader.stats().wait_seconds == waited


# -- failures ------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 8])
def test_a_failing_store_is_an_error_at_the_step_that_needs_it(tmp_path, prefetch):
    """The second shard cannot be read; what is in the first one is delivered."""
    dataset, source = faulty(tmp_path)
    good = dataset.sources["main"].reader.manifest.shards[0].tokens // (4 * SEQ_LEN)  # steps
    assert good == 4
    inner = source.inner

    class Damaged:
        def size(self, name):
            return inner.size(name)

        def read(self, ranges):
            if any("shard-00001/input_ids/c" in name for name, _, _ in ranges):
                raise OSError(errno.EIO, "Input/output error", ranges[0][0])
            return inner.read(ranges)

    source.inner = Damaged()
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


def test_a_damaged_chunk_is_an_error_and_no_wrong_token_comes(tmp_path):
    toy_store(tmp_path)
    source = FaultSource(LocalSource(tmp_path), at=3, action="flip", forever=True, only="ids/c")
    dataset = toy_run(tl.open(tmp_path, source=source, cache_bytes=0, verify="always"), "stored")
    clean = toy_run(tl.open(tmp_path), "stored")
    with tl.Loader(dataset, 2, prefetch=4, fetch="rows") as loader, tl.Loader(clean, 2) as known:

        def walk():
            for batch in loader:
                assert same(batch, next(known))

        with pytest.raises(tl.StoreCorrupt, match="crc32c"):
            walk()


def test_the_caller_may_be_interrupted(tmp_path):
    dataset, _ = faulty(tmp_path, latency=0.001)
    loader = tl.Loader(dataset, 4, prefetch=8)

    def walk():
        with loader:
            for batch in loader:
                if batch.index[0] == 8:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk()
    assert threads() == 0
    assert loader.examples == 12
    assert next(loader).index.tolist() == [12, 13, 14, 15]
    loader.close()


def test_an_interrupt_while_waiting_loses_nothing(tmp_path, monkeypatch):
    dataset, source = faulty(tmp_path, latency=0.2)
    loader = tl.Loader(dataset, 4, prefetch=2, fetch="rows", patience=0.01)

    def interrupted(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(loader._maker, "stalled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(loader)
    assert loader.examples == 0
    source.latency = 0.0
    monkeypatch.undo()
    loader.close()
    assert [next(loader).index[0] for _ in range(3)] == [0, 4, 8]
    loader.close()


# -- coming and going ----------------------------------------------------------------------


def test_close_leaves_no_thread_and_the_next_batch_starts_one(store):
    dataset = toy_run(store)
    with tl.Loader(dataset, 4, prefetch=0) as known:
        wanted = [batch.index.tolist() for batch in known]
    loader, found = tl.Loader(dataset, 4, prefetch=4), []
    for turn in itertools.count():
        batch = next(loader, None)
        if batch is None:
            break
        found.append(batch.index.tolist())
        if turn % 3 == 0:
            loader.close()
            loader.close()
            assert threads() == 0
    assert found == wanted
    loader.close()


def test_a_loader_that_is_dropped_takes_its_thread_along(tmp_path):
    endless, _ = faulty(tmp_path, latency=0.02)
    for _ in range(3):
        loader = tl.Loader(endless, 4, prefetch=8, fetch="rows")
        next(loader)
        assert threads(1) == 1
        del loader
        gc.collect()
        assert threads() == 0
    iterator = iter(tl.Loader(endless, 4, prefetch=8, fetch="rows"))
    kept = next(iterator)
    del iterator
    gc.collect()
    assert threads() == 0
    assert kept.loss_tokens > 0  # a batch lives on without its loader


def test_the_thread_ends_with_the_run(store):
    loader = tl.Loader(toy_run(store), 4, prefetch=500, fetch="rows")
    list(loader)
    assert threads() == 0


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


def run_python(code, *arguments, timeout=900):
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def test_a_process_ends_though_a_loader_is_still_at_work(tmp_path):
    toy_store(tmp_path)
    code = """
import sys, tokenloom as tl
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource
source = FaultSource(LocalSource(sys.argv[1]), latency=float(sys.argv[2]))
loader = tl.Loader(tl.open(sys.argv[1], source=source).windows(8).epochs(None), 4)
print(next(loader).index.tolist())
"""
    for latency in (0, 0.05):
        done = run_python(code, tmp_path, latency)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n", "")


def test_after_a_fork_the_child_goes_on_with_a_thread_of_its_own(tmp_path):
    """A thread stays in the parent; the child once waited for it endlessly."""
    toy_store(tmp_path)
    code = """
import os, sys, tokenloom as tl
loader = tl.Loader(tl.open(sys.argv[1]).windows(8).epochs(None), 4, prefetch=2)
next(loader)
for _ in range(20):
    first, child = loader.examples, os.fork()
    found = [next(loader).index[0] for _ in range(100)]
    assert found == list(range(first, first + 400, 4)), found
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr


# -- the watchdog --------------------------------------------------------------------------


def test_a_stalled_store_is_reported_with_numbers_again_and_again(tmp_path, caplog):
    dataset, source = faulty(tmp_path)
    gate = threading.Event()
    inner = source.inner

    class Stalled:
        def size(self, name):
            return inner.size(name)

        def read(self, ranges):
            gate.wait(60)
            return inner.read(ranges)

    source.inner = Stalled()
    release = threading.Timer(0.4, gate.set)
    with caplog.at_level(logging.WARNING, logger="tokenloom"):
        release.start()
        with tl.Loader(dataset, 4, prefetch=2, patience=0.05) as loader:
            assert next(loader).index.tolist() == [0, 1, 2, 3]
    release.join()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) >= 2
    assert all(str(tmp_path) in message for message in messages)
    assert all("no batch for" in m and "reads gave" in m and "MiB" in m for m in messages)


def test_a_store_that_is_only_slow_is_not_reported(tmp_path, caplog):
    dataset, _ = faulty(tmp_path, latency=0.002)
    with tl.Loader(dataset, 4, prefetch=2, patience=20) as loader:
        list(itertools.islice(loader, 10))
    assert caplog.records == []


# -- numbers -------------------------------------------------------------------------------


def test_padding_is_not_counted_as_examples(store):
    with tl.Loader(toy_run(store).take(10), 4, end="pad") as loader:
        list(loader)
        assert (loader.stats().steps, loader.stats().examples) == (3, 10)
    ranks = ranks_of(toy_run(store).take(10), 4, 4, end="pad")
    while joined(ranks):
        pass
    assert [rank.stats().examples for rank in ranks] == [3, 3, 2, 2]
    close_all(ranks)


def test_the_cache_numbers_are_those_of_the_cache(store):
    fresh = tl.open(store.path, cache_bytes=1 << 20)
    with tl.Loader(toy_run(fresh, "full", epochs=2), 4, prefetch=0, fetch="blocks") as loader:
        list(loader)
        stats = loader.stats()
    assert stats.cache.misses == 10  # 37 rows in blocks of 4, each loaded once in two epochs
    assert stats.cache.hits > 0
    assert stats.reads.useful_bytes == 37 * SEQ_LEN * 2


# -- what a loader leaves alone ------------------------------------------------------------


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


def test_w5_a_changed_batch_changes_no_other(store):
    for fetch in ("rows", "blocks"):
        with tl.Loader(toy_run(store), 4, fetch=fetch, prefetch=4) as loader:
            known = [batch.tokens.copy() for batch in loader]
            loader.seek(0)
            for batch, wanted in zip(loader, known, strict=True):
                assert np.array_equal(batch.tokens, wanted)
                batch.tokens.fill(-7)
                batch.labels.fill(-7)
            loader.seek(0)
            assert all(np.array_equal(b.tokens, w) for b, w in zip(loader, known, strict=True))


def test_batches_that_are_kept_stay_what_they_were(store):
    dataset = toy_run(store, "block")
    with tl.Loader(dataset, 5, prefetch=16) as loader:
        kept = list(loader)
    assert all(same(batch, dataset.batch(batch.index)) for batch in kept)


GROWTH = """
import sys, tokenloom as tl

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

store = tl.open(sys.argv[1], cache_bytes=1 << 20)
dataset = store.windows(8).block_shuffle(window_blocks=2, lanes=2).epochs(None)
with tl.Loader(dataset, 8, prefetch=16, fields=("tokens", "labels", "position_ids")) as loader:
    sizes = []
    for step in range(int(sys.argv[2])):
        next(loader)
        if step % 500 == 499:
            sizes.append(resident())
print(*sizes)
"""


def slope(sizes, every=500):
    """Bytes that are added with each batch, by a line through the second half."""
    half = sizes[len(sizes) // 2 :]
    return float(np.polyfit(np.arange(len(half)) * every, half, 1)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("batches", [6000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_w6_memory_does_not_grow_with_the_batches(tmp_path, batches):
    toy_store(tmp_path, rows=300)
    done = run_python(GROWTH, tmp_path, batches, timeout=900)
    assert done.returncode == 0, done.stderr
    assert slope([int(word) for word in done.stdout.split()]) < 1024
