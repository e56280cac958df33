"""What a simulation predicts is what a loader counts, to the read.

Of random runs that is a law, see tests/laws/test_look_laws.py.
"""

import numpy as np
import pytest
from toyruns import toy_store

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import write_store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("simulated"), rows=400)


def counted(run, batch_size, rank, world, *, hints=(), first=0, **settings):
    """What a loader in a new process counts: (reads, hits and misses of its caches)."""
    real = tl.from_config(run.describe(), **dict(hints))
    with tl.Loader(real, batch_size, rank, world, **settings) as loader:
        loader.seek(first)
        for _ in loader:
            pass
    caches = {id(one): one.stats() for one in real._caches}.values()
    hits, misses = sum(one.hits for one in caches), sum(one.misses for one in caches)
    reads = real.counters()
    return (
        reads.ranges,
        reads.read_ops,
        reads.bytes,
        reads.useful_bytes,
        reads.examples,
        hits,
        misses,
    )


def predicted(found):
    """The same, of every rank of a simulation."""
    names = "ranges", "reads", "bytes", "useful_bytes", "requests", "hits", "misses"
    return [tuple(getattr(rank, name) for name in names) for rank in found.ranks]


def compare(run, batch_size=6, world=1, cache=None, first=0, **settings):
    found = simulate_run(
        run, batch_size=batch_size, ranks=world, cache_bytes=cache, first=first, **settings
    )
    hints = {} if cache is None else {"cache_bytes": cache}
    for rank, counts in enumerate(predicted(found)):
        real = counted(run, batch_size, rank, world, hints=hints, first=first, **settings)
        assert counts == real, (rank, settings)


def test_reads_of_many_sources_are_predicted(tmp_path):
    stores = {f"s{i}": toy_store(tmp_path / str(i), rows=20 + i) for i in range(8)}
    run = tl.mix({name: one.windows(8).shuffle() for name, one in stores.items()}).seed(1)
    # all stores of a real run share the cache of the process; here each rank has its own
    found = simulate_run(run, 20, batch_size=10, fetch="blocks", cache_bytes=500)
    assert predicted(found)[0] == counted(
        run.take(200), 10, 0, 1, hints={"cache_bytes": 500}, fetch="blocks"
    )


@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_checks_and_gaps_and_caps_count(tmp_path, verify):
    """The same settings of a store give the same reads, whatever is checked or merged."""
    documents = [np.arange(1, 400).tolist() for _ in range(30)]
    write_store(tmp_path / "s", [documents[:10], documents[10:]], inner=64, chunk_tokens=256)
    hints = {"verify": verify, "gap_bytes": 100, "cap_bytes": 64, "cache_bytes": 3000, "map": False}
    run = tl.open(tmp_path / "s", **hints).windows(32).block_shuffle(window_blocks=2).epochs(2)
    for fetch in ("blocks", "rows"):
        found = simulate_run(run, batch_size=7, ranks=2, fetch=fetch)
        for rank, counts in enumerate(predicted(found)):
            assert counts == counted(run, 7, rank, 2, hints=hints, fetch=fetch)


def test_a_schedule_a_resumed_run_and_a_padded_end_are_predicted(store):
    run = store.windows(8).block_shuffle(window_blocks=3, lanes=2).epochs(2).seed(5)
    compare(run, batch_size=[(0, 4), (100, 12), (300, 9)], world=2, cache=500)
    compare(run, batch_size=7, world=2, cache=500, first=31)
    compare(run, batch_size=7, world=3, cache=500, end="pad")


class NoTokens:
    """A source that gives everything but tokens."""

    def __init__(self, root):
        self.inner = LocalSource(root)

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        assert not any("input_ids/c" in name for name, _, _ in ranges)
        return self.inner.read(ranges)


def test_no_token_is_read(store):
    run = tl.open(store.path, source=NoTokens(store.path), cache_bytes=500).windows(8).shuffle()
    found = simulate_run(run, 10, batch_size=6, ranks=3)
    assert found.reads > 0
    with pytest.raises(AssertionError):
        next(iter(tl.Loader(run, 6, prefetch=0)))


def test_a_simulation_leaves_the_store_as_it_was(store):
    run = store.windows(8).block_shuffle()
    before = store.reader.cache.stats(), store.reads
    again = [simulate_run(run, batch_size=6) for _ in range(2)]
    assert (store.reader.cache.stats(), store.reads) == before
    assert again[0] == again[1]
