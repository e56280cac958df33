"""Tokens that are being read ahead: who needs them meanwhile gets them, or an error.

The source holds back what is read ahead until the caller has read the same tokens by itself; then
it lets go of it, or fails it.
"""

import shutil
import threading
import time

import numpy as np
import pytest
from counted import CountedFiles

import tokenloom as tl
from tokenloom.testing import tiny, write_store

ROW, BLOCK_ROWS, WINDOW, WINDOWS = 64, 8, 8, 6
BLOCK = ROW * BLOCK_ROWS  # tokens
TOKENS = BLOCK * WINDOW * WINDOWS
IDS = np.random.default_rng(4).integers(0, 50_000, TOKENS)
DOCUMENTS = np.split(IDS, range(700, TOKENS, 1000))
PAYLOAD = "input_ids/c"
WAIT = 60.0  # seconds until something is taken to hang


def settle(condition):
    end = time.monotonic() + WAIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


class Held(CountedFiles):
    """Reads that helpers of a loader make ahead wait until the caller has read some tokens.

    The first thread that reads tokens is the loader's own: it never waits.
    """

    parallel = 4

    def __init__(self, root):
        super().__init__(root)
        self.free, self.waiting = [threading.get_ident()], 0
        self.gate, self.fails, self.failed = threading.Event(), False, 0
        self.error = OSError(5, "the bucket is gone")

    def read(self, ranges):
        reader, tokens = threading.get_ident(), any(PAYLOAD in name for name, *_ in ranges)
        if tokens:
            with self.lock:
                self.free += [reader] * (len(self.free) < 2 and reader not in self.free)
                waits = reader not in self.free and not self.gate.is_set()
                self.waiting += waits
            if waits:
                assert self.gate.wait(WAIT)
                if self.fails:
                    self.failed += 1
                    raise self.error
        found = super().read(ranges)
        if tokens and reader == self.free[0]:
            self.gate.set()
        return found


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("held") / "store"
    documents = [one.tolist() for one in DOCUMENTS]
    write_store(path, [documents], vocab_size=50_000, inner=BLOCK, chunk_tokens=BLOCK)
    return path


@pytest.fixture(autouse=True)
def _short_plans():
    with tiny(plan_examples=BLOCK_ROWS * WINDOW, lookup_examples=16):
        yield


def opened(root, **options):
    store = tl.open(root, cache_bytes=WINDOWS * WINDOW * BLOCK * 4, **options)
    run = store.windows(ROW).seed(1)
    return store, run.block_shuffle(io_block_size=BLOCK_ROWS, window_blocks=WINDOW)


def held(root):
    """A loader whose reads ahead wait."""
    source = Held(root)
    store, run = opened(root, source=source)
    loader = tl.Loader(run, 4, prefetch=1)
    first = next(loader)
    settle(lambda: source.waiting)
    return source, (store, run), loader, first


def rows_of(batches):
    return [batch.tokens.tolist() for batch in batches]


@pytest.mark.parametrize("fails", [False, True])
def test_a_caller_reads_right_tokens_while_the_same_are_read_ahead(root, fails):
    wanted = rows_of(tl.Loader(opened(root)[1], 4, prefetch=0))
    source, (store, _), loader, first = held(root)
    source.fails = fails
    with loader:
        found = store.documents(range(len(DOCUMENTS)))
        assert all(map(np.array_equal, found, DOCUMENTS))
        source.fails = False
        assert [*rows_of([first]), *rows_of(loader)] == wanted


def test_what_failed_ahead_of_time_is_read_again_by_who_needs_it(root):
    wanted = rows_of(tl.Loader(opened(root)[1], 4, prefetch=0))
    source, (_, run), loader, _ = held(root)
    source.fails = True
    with loader:
        source.gate.set()
        settle(lambda: source.failed)
        source.fails = False
        again = tl.Loader(run, 4, prefetch=0)
        assert rows_of(again) == wanted
        assert again.stats().reads.retries


def test_a_thread_that_ends_while_it_reads_ahead_is_not_waited_for(root):
    wanted = rows_of(tl.Loader(opened(root)[1], 4, prefetch=0))
    source, _, loader, first = held(root)
    source.fails, source.error = True, SystemExit()
    source.gate.set()
    settle(lambda: source.failed)
    source.fails = False
    with loader:
        assert [*rows_of([first]), *rows_of(loader)] == wanted


def test_a_chunk_that_is_damaged_is_told_to_who_reads_it_while_it_is_read_ahead(root, tmp_path):
    shutil.copytree(root, tmp_path / "damaged")
    (path,) = (tmp_path / "damaged").rglob("input_ids/c/0")
    raw = bytearray(path.read_bytes())
    for chunk in range(0, 2 * TOKENS, 2 * BLOCK):
        raw[chunk + 7] ^= 4
    source, (store, _), loader, _ = held(root)
    with loader:
        source.root = tmp_path / "damaged"
        path.write_bytes(raw)
        with pytest.raises(tl.StoreCorrupt, match=f"{PAYLOAD}/0"):
            store.documents(range(len(DOCUMENTS)))
