"""A forecast is what the counters say afterwards."""

import math
from dataclasses import replace

import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.loader.forecast import Forecast


@pytest.mark.parametrize("kind", ["full", "block", "lanes 2", "lanes 3"])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("capacity", [200, 1 << 20])
def test_the_forecast_is_what_comes(tmp_path, kind, world, capacity):
    store = toy_store(tmp_path, rows=150, cache_bytes=capacity)
    dataset = toy_run(store, kind, epochs=2)
    for rank in range(world):
        store.reader.cache.clear()
        loader = tl.Loader(dataset, 6, rank, world, prefetch=0, fetch="blocks")
        for _ in range(5):
            next(loader)
        loader.close()  # the next group starts with one step, as the forecast does
        store.reader.cache.clear()
        reads = dataset.counters().read_ops
        forecast = loader.forecast(30)
        assert dataset.counters().read_ops == reads
        before = store.reader.cache.stats().misses
        rows = sum(len(next(loader)) for _ in range(30))
        fetched = store.reader.cache.stats().misses - before
        assert (forecast.steps, forecast.examples) == (30, rows)
        # the loader has read on to the end of its last group
        assert forecast.fetches <= fetched <= forecast.fetches + 32 * 6
        assert forecast.blocks <= forecast.fetches
        if capacity > 1000:
            assert forecast.blocks == forecast.fetches


def test_a_forecast_ends_with_the_run_and_says_so(tmp_path):
    dataset = toy_run(toy_store(tmp_path), "block", epochs=1)
    loader = tl.Loader(dataset, 4, fetch="blocks")
    forecast = loader.forecast()
    assert (forecast.steps, forecast.examples) == (9, 36)
    assert str(forecast).startswith("9 steps, 36 rows of this rank: ")
    rows = tl.Loader(dataset, 4, fetch="rows").forecast(2)
    assert (rows.fetches, rows.examples) == (8, 8)
    with tl.Loader(dataset, 4) as whole:
        list(whole)
        assert (whole.forecast().steps, str(whole.forecast())[:7]) == (0, "0 steps")


def test_lanes_let_a_rank_keep_to_its_own_blocks(tmp_path):
    """Without lanes every one of three ranks needs all blocks; with them about a third."""
    store = toy_store(tmp_path, rows=960)
    needs = {}
    for lanes in (1, 24):
        dataset = store.windows(8).block_shuffle(window_blocks=24 // lanes, lanes=lanes).seed(1)
        ranks = [tl.Loader(dataset, 24, rank, 3, fetch="blocks") for rank in range(3)]
        needs[lanes] = max(loader.forecast().fetches for loader in ranks)
    blocks = len(store.windows(8).block_shuffle().run.working.blocks)
    assert needs[1] > 0.75 * blocks  # of four rows each, some have none for a rank
    assert needs[24] < 0.45 * blocks


@pytest.mark.parametrize(
    ("latency", "bandwidth", "parallel", "wanted"),
    [
        (0.02, 100e6, 1, 10e6),  # 25 ms for a block of 250,000 tokens
        (0.02, 100e6, 4, 40e6),
        (0.02, 100e6, 5, 50e6),  # now the line is full
        (0.02, 100e6, 16, 50e6),
        (0.0, 100e6, 1, 50e6),
        (0.5, 1e12, 2, 1e6),  # nearly all of it is waiting
    ],
)
def test_a_source_feeds_what_latency_and_bandwidth_allow(latency, bandwidth, parallel, wanted):
    one = Forecast(steps=1, examples=64, blocks=1, fetches=1, tokens=250_000, fetch_bytes=500_000)
    given = {"latency": latency, "bandwidth": bandwidth, "parallel": parallel}
    assert one.feeds(**given) == pytest.approx(wanted, rel=1e-5)
    twice = replace(one, fetches=2)
    assert twice.feeds(**given) == pytest.approx(wanted / 2, rel=1e-5)
    assert replace(one, fetches=0).feeds(**given) == math.inf
    del given["parallel"]
    assert one.feeds(**given) == one.feeds(**given, parallel=16)
