"""A thousand sources: only those in a request cost anything, and those are asked together."""

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.batch.read import RowReader
from tokenloom.order.run import SourceRun
from tokenloom.store.cache import BlockCache
from tokenloom.testing import write_store

SEQ = 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    made = []
    for number in range(48):
        sizes = np.random.default_rng(number).integers(1, 30, 12 + number)
        ids = [[(number * 97 + i) % 900 + 1] * int(size) for i, size in enumerate(sizes)]
        write_store(root / str(number), [ids], chunk_tokens=64, inner=16)
        made.append(tl.open(root / str(number)))
    return made


KINDS = {
    "full": lambda store: store.windows(SEQ).shuffle(),
    "block": lambda store: store.windows(SEQ, tail="keep").block_shuffle(window_blocks=2),
}


def mix_of(stores, kind, count=48):
    some = {f"s{n}": KINDS[kind](one).epochs(None) for n, one in enumerate(stores[:count])}
    weights = np.random.default_rng(count).dirichlet(np.ones(count)) + 0.01
    shares = {name: float(w) for name, w in zip(some, weights, strict=True)}
    return tl.mix(some, weights=shares).seed(5)


@pytest.fixture
def counted(monkeypatch):
    counts = dict.fromkeys(("locate", "rows_from", "fetched", "get_many"), 0)

    def count(owner, name):
        original = getattr(owner, name)

        def wrapped(*args, **options):
            counts[name] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, wrapped)

    for owner, name in (
        (SourceRun, "locate"),
        (SourceRun, "rows_from"),
        (RowReader, "fetched"),
        (BlockCache, "get_many"),
    ):
        count(owner, name)
    return counts


def test_a_group_asks_the_cache_once_and_no_source(stores, counted):
    seen = []
    for sources in (24, 48):
        run = mix_of(stores, "full", sources)
        renderer = run.renderer(by_blocks=True)
        for first in (0, 400):  # everything near here is known then
            renderer.batches(renderer.plan(np.arange(first, first + 400)), [0, 400])
        before = dict(counted)
        renderer.batches(renderer.plan(np.arange(800, 1000)), [0, 100, 200])
        seen.append({name: counted[name] - before[name] for name in counted})
    for one in seen:
        assert one["fetched"] == 0
        assert one["get_many"] == 1
        assert one["locate"] + one["rows_from"] <= 12  # sources that entered another stretch


def test_control_few_sources_are_asked_one_by_one(stores, counted):
    renderer = mix_of(stores, "full", 5).renderer(by_blocks=True)
    renderer.batches(renderer.plan(np.arange(100)), [0, 100])
    assert (counted["fetched"], counted["locate"]) == (5, 5)


def test_sources_that_a_request_does_not_show_cost_nothing(stores, counted):
    renderer = mix_of(stores, "block").renderer(by_blocks=True)
    renderer.batches(renderer.plan(np.arange(7000, 7003)), [0, 3])
    assert counted["locate"] + counted["rows_from"] <= 3
