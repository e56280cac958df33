"""How many batches a loader makes together and keeps ready, and what it may fetch ahead."""

import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource, tiny


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("ready"), rows=960)


@pytest.fixture
def sizes():
    with tiny(lookup_batches=10, lookup_examples=64):
        yield


@pytest.mark.parametrize(
    ("batch_size", "world", "wanted"),
    [
        (1, 1, 10),  # no more batches than allowed
        (8, 1, 8),  # no more rows than allowed
        (8, 2, 10),  # a rank has half of them
        (100, 1, 1),  # a batch at least
        ([(0, 16), (32, 8)], 1, 8),  # by the smallest
    ],
)
@pytest.mark.parametrize("prefetch", [0, 1, 5, 30])
@pytest.mark.parametrize("fetch", ["blocks", "rows"])
def test_groups_are_as_large_as_costs_little(
    store, sizes, batch_size, world, wanted, prefetch, fetch
):
    """Where batches kept ready take no memory of their own; at least as many as were asked for."""
    loader = tl.Loader(
        toy_run(store, "block"), batch_size, 0, world, prefetch=prefetch, fetch=fetch
    )
    maker = loader._maker
    cheap = fetch == "blocks" or maker.renderer.in_place
    assert cheap
    assert loader._group == max(wanted, prefetch, 1)
    assert loader._prefetch == maker.ahead == (loader._group if prefetch else 0)


def test_rows_that_are_copied_are_kept_ready_as_asked(store, sizes):
    """A store that is not in files of this machine is read row by row, into memory."""
    copied = tl.open(store.path, source=FaultSource(LocalSource(store.path)), cache_bytes=0)
    loader = tl.Loader(toy_run(copied, "full"), 8, prefetch=3, fetch="rows")
    assert not loader._maker.renderer.in_place
    assert (loader._group, loader._prefetch, loader._maker.ahead) == (3, 3, 0)
    none = tl.Loader(toy_run(copied, "full"), 8, prefetch=0, fetch="rows")
    assert (none._group, none._prefetch, none._maker.ahead) == (1, 0, 0)


@pytest.mark.filterwarnings("ignore:block_shuffle")
@pytest.mark.parametrize("more", [-1, 0, 1, 10**6])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_what_the_cache_has_beyond_a_window_may_be_fetched_ahead(store, more, prefetch):
    needed = toy_run(store, "block").run.working.bytes
    total = toy_run(store, "block").run.working.total_bytes
    opened = tl.open(store.path, cache_bytes=needed + more)
    loader = tl.Loader(toy_run(opened, "block"), 8, prefetch=prefetch, fetch="blocks")
    assert loader._reading.fits == (more >= 0)
    assert loader._maker.budget == (max(0, more) if prefetch else 0)
    assert loader._maker.holds_all == (bool(prefetch) and needed + more >= total)
    whole = tl.open(store.path, cache_bytes=total)
    assert tl.Loader(toy_run(whole, "block"), 8, fetch="blocks")._maker.holds_all
    short = tl.open(store.path, cache_bytes=total - 1)
    assert not tl.Loader(toy_run(short, "block"), 8, fetch="blocks")._maker.holds_all
