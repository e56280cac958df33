"""What a source that answers several requests at once is asked for does not depend on the clock."""

import random
import shutil
import threading
import time

import numpy as np
import pytest
from toyruns import KINDS, toy_store

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.store import reader
from tokenloom.store.ahead import Underway
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import tiny

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LAYOUTS = {
    "windows": lambda documents: documents.windows(8),
    "packed": lambda documents: documents.pack(16, group_docs=13),
    "spliced": lambda documents: documents.splice(24, content_length=6),
}
WAYS = [("windows", "block"), ("packed", "full"), ("spliced", "lanes 3")]
NAMES = "ranges", "reads", "bytes", "useful_bytes", "requests", "hits", "misses", "evictions"


class Delayed:
    """A source whose every answer takes a random time; it remembers what it was asked for."""

    def __init__(self, root, parallel, seed=0):
        self.inner, self.parallel = LocalSource(root), parallel
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.asked, self.threads = [], set()

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        tokens = [one for one in ranges if "input_ids/c" in one[0]]
        with self.lock:
            wait = self.random.random()
            self.asked += tokens
            self.threads.add(threading.get_ident())
        if wait < 0.3 and tokens:
            time.sleep(wait / 300)
        return self.inner.read(ranges)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("delayed"), rows=160).path


@pytest.fixture(autouse=True)
def short_plans():
    """Usual plans would take these small runs as a whole."""
    with tiny(plan_examples=24, lookup_examples=12):
        yield


def run_of(root, source, layout, kind, cache, **hints):
    store = tl.open(root, source=source, cache_bytes=cache, **hints)
    return KINDS[kind](LAYOUTS[layout](store)).seed(7).epochs(2)


def counted(run, **settings):
    """What a loader counts, and the digest of what it delivers."""
    with tl.Loader(run, 6, **settings) as loader:
        seen = [batch.tokens.tobytes() for batch in loader]
    reads, cache = run.counters(), run._caches[0].stats()
    counts = reads.ranges, reads.read_ops, reads.bytes, reads.useful_bytes, reads.examples
    return (*counts, cache.hits, cache.misses, cache.evictions), seen, reads.retries


def predicted(run):
    (rank,) = simulate_run(run, batch_size=6, fetch="blocks").ranks
    return tuple(getattr(rank, name) for name in NAMES)


def check(root, layout, kind, parallel, cache, **hints):
    answer = predicted(run_of(root, Delayed(root, parallel), layout, kind, cache, **hints))
    plain = run_of(root, LocalSource(root), layout, kind, cache, **hints)
    wanted = [batch.tokens.tobytes() for batch in tl.Loader(plain, 6)]
    for seed in (1, 2):
        source = Delayed(root, parallel, seed)
        real = run_of(root, source, layout, kind, cache, **hints)
        found, seen, retries = counted(real, fetch="blocks")
        assert found == answer, seed
        assert (len(source.asked), retries) == (found[1], 0)
        assert seen == wanted
    return source


@pytest.mark.parametrize("verify", ["first", "never", "always"])
@pytest.mark.parametrize(("layout", "kind"), WAYS)
def test_counted_reads_are_predicted_reads_however_long_they_take(root, layout, kind, verify):
    source = check(root, layout, kind, 8, 1500, verify=verify)
    assert len(source.threads) > 1


class Unreliable:
    """A source that fails now and then."""

    def __init__(self, inner, chances):
        self.inner, self.chances = inner, chances

    def read(self, ranges):
        if self.chances.random() < 0.2:
            raise OSError(5, "the bucket is gone")
        return self.inner.read(ranges)


def test_reads_that_fail_are_tried_again_and_counted_apart(root, monkeypatch):
    """Blocks that could not be fetched ahead of time are read when they are needed."""
    settings = {"layout": "windows", "kind": "block", "cache": 1500, "verify": "never"}
    answer = predicted(run_of(root, Delayed(root, 4), **settings))
    wanted = counted(run_of(root, LocalSource(root), **settings))[1]
    chances = random.Random(1)

    def underway(source, *arguments, **options):
        return Underway(Unreliable(source, chances), *arguments, **options)

    monkeypatch.setattr(reader, "Underway", underway)
    for seed in range(3):
        found, seen, retries = counted(run_of(root, Delayed(root, 4, seed), **settings))
        assert (found, seen) == (answer, wanted)
        assert 0 < retries < answer[1]


def test_a_damaged_chunk_is_refused_to_both_requests_that_share_it(root, tmp_path):
    shutil.copytree(root, tmp_path / "s")
    store = tl.open(tmp_path / "s", cache_bytes=0)
    file = tmp_path / "s" / store.reader.shard(0).columns["input_ids"].file
    raw = bytearray(file.read_bytes())
    raw[30] ^= 1  # token 15, which neither asks for
    file.write_bytes(raw)
    first, second = (
        store.reader.promise(np.array([a]), np.array([b]), np.array([b - a]), "input_ids", 1 << 20)
        for a, b in ((4, 8), (8, 12))
    )
    for one in (second, first):
        with pytest.raises((OSError, tl.StoreCorrupt)):
            one[0]()
    with pytest.raises(tl.StoreCorrupt, match="chunk 0"):
        store.reader.read(np.array([8]), np.array([12]))


def test_compressed_loss_columns_are_fetched_ahead_with_the_tokens(tmp_path):
    root = toy_store(tmp_path, rows=120, weights=True).path
    fields = "tokens", "labels", "loss_weights"

    def seen(source):
        run = run_of(root, source, "windows", "block", 1 << 20)
        with tl.Loader(run, 6, fetch="blocks", fields=fields) as loader:
            return [[getattr(batch, name).tobytes() for name in fields] for batch in loader]

    assert seen(Delayed(root, 8)) == seen(LocalSource(root))
