"""Blocks of coming steps are fetched while earlier ones are consumed, within the cache."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.batch import read
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.cache import Fetchers
from tokenloom.testing import tiny, write_flat

SEQ_LEN, BLOCK_ROWS, WINDOW, WINDOWS = 64, 8, 8, 12
ROWS = BLOCK_ROWS * WINDOW * WINDOWS
BLOCK_BYTES = BLOCK_ROWS * SEQ_LEN * 2
WAIT = 900.0  # seconds until something is taken to hang


class Bucket:
    """A source that answers several requests at once, and remembers who asked for what."""

    def __init__(self, root, parallel=4, latency=0.0):
        self.inner, self.parallel, self.latency = LocalSource(root), parallel, latency
        self.reads, self.running, self.most, self.fails = [], 0, 0, False
        self.lock = threading.Lock()

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        tokens = [one for one in ranges if "input_ids/c" in one[0]]
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.reads += [(threading.get_ident(), *one[1:]) for one in tokens]
        try:
            time.sleep(self.latency)
            if self.fails and tokens:
                raise OSError(5, "the bucket is gone")
            return self.inner.read(ranges)
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("ahead") / "store"
    ids = np.random.default_rng(0).integers(0, 50_000, ROWS * SEQ_LEN)
    write_flat(path, ids, np.array([len(ids)]), vocab_size=50_000)
    return path


@pytest.fixture
def short_plans():
    """Plans of one window, and groups of 16 rows; usual ones would take the whole run at once."""
    with tiny(plan_examples=BLOCK_ROWS * WINDOW, lookup_examples=16):
        yield


def run_of(root, source=None, windows=4, seq_len=SEQ_LEN, verify="never"):
    """A run whose cache holds this many windows."""
    store = tl.open(root, source=source, cache_bytes=windows * WINDOW * BLOCK_BYTES, verify=verify)
    run = store.windows(seq_len).seed(1)
    return run.block_shuffle(io_block_size=BLOCK_ROWS, window_blocks=WINDOW)


def settle(condition):
    end = time.monotonic() + WAIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    assert condition()


def test_the_next_window_is_fetched_before_it_is_asked_for(root, short_plans):
    """Every block is fetched once, and most of them by other threads than the loader's."""
    bucket = Bucket(root)
    run = run_of(root, bucket)
    wanted = [batch.tokens.tolist() for batch in tl.Loader(run_of(root), 4, prefetch=0)]
    loader = tl.Loader(run, 4, prefetch=4)
    found = []
    for batch in loader:
        found.append(batch.tokens.tolist())
        here = len(found) * 4 // (BLOCK_ROWS * WINDOW)  # windows consumed
        if here >= 2 and here < WINDOWS - 2:  # the next one is here, or comes without being asked
            settle(lambda: len(bucket.reads) >= min(WINDOWS, here + 1) * WINDOW)  # noqa: B023
    assert found == wanted
    assert len(bucket.reads) == len({place for _, place, _ in bucket.reads}) == WINDOW * WINDOWS
    assert len({who for who, _, _ in bucket.reads}) > 2
    assert bucket.most <= bucket.parallel + 1


@pytest.mark.filterwarnings("ignore:seq_len")
@pytest.mark.parametrize("verify", ["first", "always"])
@pytest.mark.parametrize("seq_len", [SEQ_LEN, 60])  # rows of 60 tokens: blocks across two chunks
def test_blocks_smaller_than_a_checked_chunk_take_one_read_each(root, short_plans, verify, seq_len):
    """A block grows to whole chunks when it is checked; it used to be cut at its own size again."""
    bucket, chunk = Bucket(root), fmt.INNER * 2
    block = BLOCK_ROWS * seq_len * 2
    run = run_of(root, bucket, windows=WINDOWS + 1, seq_len=seq_len, verify=verify)
    wanted = [batch.tokens.tolist() for batch in tl.Loader(run_of(root, seq_len=seq_len), 4)]
    with tl.Loader(run, 4, prefetch=4) as loader:
        assert [batch.tokens.tolist() for batch in loader] == wanted
        blocks = -(-len(run) // BLOCK_ROWS)
        assert loader.metrics()["data/reads"] == len(bucket.reads) <= blocks
    sizes = {size for _, _, size in bucket.reads}
    assert min(sizes) >= min(block, len(run) % BLOCK_ROWS * seq_len * 2 or block)
    widened = {size for size in sizes if size > block}
    assert widened
    assert all(size % chunk == 0 for size in widened)
    if verify == "always":
        assert widened == sizes


def test_a_store_of_one_block_is_checked_in_one_read(tmp_path):
    write_flat(tmp_path / "s", np.arange(128), np.array([128]), vocab_size=200)
    bucket = Bucket(tmp_path / "s")
    run = tl.open(tmp_path / "s", source=bucket).windows(16).block_shuffle(io_block_size=8)
    with tl.Loader(run, 2, fetch="blocks") as loader:
        assert sum(len(batch) for batch in loader) == 8
    assert [one[1:] for one in bucket.reads] == [(0, fmt.INNER * 2)]


@pytest.mark.parametrize("parallel", [4, 12])
def test_a_slow_source_is_asked_as_much_at_once_as_it_answers(
    root, short_plans, monkeypatch, parallel
):
    """While there is room in the cache; a step that waits for its own block may ask, too."""

    def most_at_once():
        bucket = Bucket(root, parallel=parallel, latency=0.02)
        with tl.Loader(run_of(root, bucket, windows=6), 4, prefetch=4) as loader:
            assert sum(len(batch) for batch in loader) == ROWS
        return bucket.most

    assert parallel <= most_at_once() <= parallel + 1
    monkeypatch.setattr(read, "Fetchers", lambda parallel: Fetchers(1))  # the control
    assert most_at_once() <= 2


MEMORY = """
import sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from virtual import VirtualStore
import tokenloom as tl
from tokenloom.store.byte_source import new_buffer

class Bucket(VirtualStore):
    parallel, who = 8, set()

    def _bytes(self, name, start, count):  # tokens without arithmetic: it takes memory, too
        if "input_ids/c" not in name:
            return super()._bytes(name, start, count)
        self.who.add(threading.get_ident())
        found = new_buffer(count)  # as for local files; a thread's own heap would keep it
        found[:] = 7
        return found

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) >> 10

bucket = Bucket([(64, 1 << 25)] * 4)
root = bucket.write_manifest(Path(sys.argv[1]))
store = tl.open(root, source=bucket, cache_bytes=int(sys.argv[3]) << 20, verify="never")
run = store.windows(2048).block_shuffle(window_blocks=8).seed(1)  # 4 MiB
with tl.Loader(run, 8, prefetch=4) as loader:
    next(loader)
    before, steps = peak(), 1
    for batch in loader:
        steps += 1
    stats = loader.stats().cache
print(peak() - before, steps * 8 * 2048, stats.bytes >> 20, len(bucket.who))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
@pytest.mark.parametrize(
    ("cache", "least", "most"),
    # with the cache: blocks on their way (8 threads), those of the steps that are being made, plans
    [(16, 16, 64), pytest.param(300, 200, 400, id="control: a cache for everything")],
)
def test_windows_fetched_ahead_take_little_more_memory_than_the_cache(tmp_path, cache, least, most):
    """The peak of a process through which 256 MiB of tokens go; all in MiB."""
    places = tmp_path / "s", Path(__file__).parents[1] / "shared"
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *map(str, places), str(cache)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    grown, delivered, kept, threads = map(int, done.stdout.split())
    assert (delivered, threads > 2) == (4 << 25, True), "or nothing was fetched ahead"
    assert kept <= cache
    assert least <= grown < most


def test_no_more_is_fetched_ahead_than_the_cache_has_room_for(root, short_plans):
    bucket = Bucket(root)
    run = run_of(root, bucket, windows=2)
    loader = tl.Loader(run, 4, prefetch=4)
    for _ in range(8):
        next(loader)
    time.sleep(0.1)  # whoever goes on, goes too far
    # the first window, the one after it, and one that a plan begun within the budget may need
    assert len(bucket.reads) <= 3 * WINDOW
    stats = loader.stats().cache
    assert stats.bytes <= stats.capacity
    loader.close()


@pytest.mark.parametrize("settings", [{"windows": 1}, {"prefetch": 0}, {"fetch": "rows"}])
def test_nothing_is_fetched_ahead_without_room_or_wish(root, short_plans, settings):
    bucket = Bucket(root)
    options = dict(settings)
    run = run_of(root, bucket, windows=options.pop("windows", 4))
    with tl.Loader(run, 4, **{"prefetch": 4, **options}) as loader:
        rows = [next(loader) for _ in range(8)]
    time.sleep(0.05)
    assert len(rows) == 8
    assert len({who for who, _, _ in bucket.reads}) <= 2  # the caller, and the loader's thread


def test_what_fails_ahead_of_time_is_told_when_it_is_needed(root, short_plans):
    bucket = Bucket(root)
    loader = tl.Loader(run_of(root, bucket), 4, prefetch=1)
    first = next(loader).index.tolist()
    bucket.fails = True
    seen = [first]

    def read_on():
        while True:
            seen.append(next(loader).index.tolist())

    with pytest.raises((OSError, tl.StoreError)):
        read_on()
    bucket.fails = False
    seen += [batch.index.tolist() for batch in loader]
    assert seen == np.arange(ROWS).reshape(-1, 4).tolist()


def test_a_closed_loader_fetches_nothing_more(root, short_plans):
    bucket = Bucket(root, parallel=2, latency=0.1)
    loader = tl.Loader(run_of(root, bucket, windows=8), 4, prefetch=4)
    for _ in range(8):
        next(loader)
    loader.close()
    before = len(bucket.reads)
    time.sleep(0.15)
    settle(lambda: bucket.running == 0)
    assert len(bucket.reads) <= before + bucket.parallel  # what had begun; dozens were waiting
    assert before < WINDOWS * WINDOW


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice")
def test_a_local_store_is_announced_to_the_system(root, short_plans, monkeypatch):
    told = []
    really = os.posix_fadvise

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


# -- threads -------------------------------------------------------------------------------


def test_a_forecast_tells_what_a_source_can_feed(root):
    with tl.Loader(run_of(root), 4) as loader:
        found = loader.forecast(10**6)
    assert (found.tokens, found.fetch_bytes) == (ROWS * SEQ_LEN, BLOCK_BYTES)
    wide = found.feeds(latency=0.0, bandwidth=1e6)
    assert wide == pytest.approx(1e6 / 2)  # 2 bytes a token, each fetched once
    assert found.feeds(latency=1.0, bandwidth=1e12, parallel=1) == pytest.approx(BLOCK_BYTES / 2)
    assert found.feeds(latency=1.0, bandwidth=1e12, parallel=8) == pytest.approx(4 * BLOCK_BYTES)
