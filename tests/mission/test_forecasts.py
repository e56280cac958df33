"""What a rank needs in memory and will fetch is known before anything is read (ruling 6)."""

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.loader import Forecast
from tokenloom.testing import tiny, write_flat, write_store

BLOCKS, ROWS, SEQ_LEN = 8, 8, 2  # of a window, of a block, of a row
WINDOW = BLOCKS * ROWS * SEQ_LEN * 2  # bytes


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Opens a store with one band of so many lanes."""
    root = tmp_path_factory.mktemp("lanes")

    def opened(lanes, rows=ROWS, **hints):
        path, rows = root / f"{lanes}-{rows}", lanes * BLOCKS * rows
        if not path.exists():
            ids = np.arange(rows * SEQ_LEN) % 999
            write_flat(path, ids, np.array([len(ids)]), vocab_size=1000)
        return tl.open(path, **hints)

    return opened


def laned(store, lanes, rows=ROWS, **options):
    made = store.windows(SEQ_LEN).seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.block_shuffle(io_block_size=rows, window_blocks=BLOCKS, lanes=lanes, **options)


def needed(run, *place):
    """Bytes that a rank needs at the same time."""
    return tl.Loader(run, *place, fetch="blocks", end="pad").forecast(1).needed_bytes


def numbers_in(text):
    return [int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*", text)]


# -- what is touched -----------------------------------------------------------------------


def slow_touched(lanes, rank, world, size):
    """Lanes of a rank's rows, step by step over many rounds."""
    bits = (lanes - 1).bit_length()
    order = sorted(range(lanes), key=lambda lane: int(f"{lane:0{bits}b}"[::-1], 2) if bits else 0)
    seen = set()
    for step in range(lanes):
        step_lanes = sorted(order[(step * size + k) % lanes] for k in range(size))
        seen |= set(step_lanes[rank * size // world : (rank + 1) * size // world])
    return len(seen)


@pytest.mark.parametrize("lanes", [1, 4, 16, 64])
@pytest.mark.parametrize(
    ("world", "size"), [(1, 7), (2, 13), (3, 3), (7, 77), (8, 8), (8, 13), (8, 64), (8, 77)]
)
def test_a_rank_needs_the_windows_that_its_rows_come_from(stores, lanes, world, size):
    run = laned(stores(lanes), lanes)
    for rank in {0, world // 2, world - 1}:
        touched = lanes if world == 1 else slow_touched(lanes, rank, world, size)
        assert needed(run, size, rank, world) == touched * WINDOW


def test_a_schedule_needs_what_its_worst_batch_size_needs(stores):
    run = laned(stores(64), 64)
    sizes = {size: needed(run, size, 3, 8) for size in (64, 77, 13)}
    assert [one // WINDOW for one in sizes.values()] == [8, 10, 16]
    assert needed(run, [(0, 64), (640, 13)], 3, 8) == sizes[13]
    assert needed(run, [(0, 77), (77, 64)], 3, 8) == sizes[77]


@pytest.mark.parametrize(
    ("world", "size", "windows"), [(1, 64, 64), (8, 64, 8 + 2 * 3), (8, 13, 8 + 2 * 15), (2, 8, 64)]
)
def test_in_a_mix_the_windows_of_a_rank_are_estimated(stores, world, size, windows):
    """A share of the lanes, and at each end as many more as a step may shift it; at most all."""
    run = laned(stores(64), 64)
    mixed = tl.mix({"a": run, "b": run})
    assert needed(mixed, size, 0, world) == 2 * windows * WINDOW


def test_without_lanes_every_rank_needs_the_whole_window(stores):
    store = stores(16)
    run = store.windows(SEQ_LEN).block_shuffle(io_block_size=ROWS, window_blocks=BLOCKS)
    assert needed(run, 8) == needed(run, 8, 3, 4) == WINDOW
    stored, full = store.windows(SEQ_LEN), store.windows(SEQ_LEN).shuffle()
    assert needed(full, 8) == store.num_tokens * 2
    assert needed(stored, 8) <= store.num_tokens * 2


def test_eras_need_the_blocks_that_an_era_reaches_into(tmp_path):
    """An era of r rows lies in r // ROWS + 2 blocks at most."""
    store = write_store(tmp_path / "s", [[[1] * 512]], chunk_tokens=ROWS * SEQ_LEN)
    for rows in (1, ROWS, 3 * ROWS - 1):
        run = store.windows(SEQ_LEN).era_shuffle(rows)
        assert needed(run, 8) == (rows // ROWS + 2) * WINDOW // BLOCKS


def test_two_lanes_that_thrash_are_named_too(stores):
    run = stores(2, cache_bytes=WINDOW).windows(SEQ_LEN)
    run = run.block_shuffle(io_block_size=ROWS, window_blocks=BLOCKS, lanes=2)
    with pytest.warns(UserWarning, match="2 of 2 lanes"):
        forecast = tl.Loader(run, 8).forecast(1)
    assert forecast.needed_bytes == 2 * WINDOW


# -- what is fetched -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "block", "lanes 2", "lanes 3"])
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("capacity", [200, 1 << 20])
@pytest.mark.filterwarnings("ignore:block_shuffle")
def test_the_forecast_is_what_comes(tmp_path, kind, world, capacity):
    path = toy_store(tmp_path, rows=150).path
    for rank in range(world):
        run = toy_run(tl.open(path, cache_bytes=capacity), kind, epochs=2)
        with (
            tiny(lookup_examples=1),
            tl.Loader(run, 6, rank, world, prefetch=1, fetch="blocks") as loader,
        ):
            before = loader.stats()
            forecast = loader.forecast(30)
            assert loader.stats().reads == before.reads  # nothing is read for it
            assert loader.stats().cache == before.cache
            rows = sum(len(next(loader)) for _ in range(30))
            fetched = loader.stats().cache.misses
        assert (forecast.steps, forecast.examples, forecast.tokens) == (30, rows, 8 * rows)
        assert forecast.fetches <= fetched <= forecast.fetches + 32 * 6  # it has read on
        assert forecast.blocks <= forecast.fetches
        if capacity > 1000:
            assert forecast.blocks == forecast.fetches


@pytest.mark.parametrize("fetch", ["auto", "blocks"])
@pytest.mark.parametrize(("world", "size"), [(8, 13), (7, 77), (3, 50)])
def test_with_memory_for_what_a_rank_touches_each_block_is_fetched_once(stores, world, size, fetch):
    for rank in (0, world - 1):
        need = needed(laned(stores(64), 64), size, rank, world)
        store = stores(64, cache_bytes=need)
        loader = tl.Loader(laned(store, 64), size, rank, world, prefetch=0, fetch=fetch)
        forecast = loader.forecast(10**9)
        assert (forecast.how, forecast.advice) == ("fits", "")
        assert forecast.needed_bytes == forecast.cache_bytes == need
        rows = sum(len(batch) for batch in loader)
        assert (rows, len(loader)) == (forecast.examples, 0)
        assert loader.stats().cache.misses == forecast.fetches == forecast.blocks


def fetched(stores, lanes, world, size):
    """Fetches of all ranks over the blocks of the run; each rank has memory for what it touches."""
    whole, total = laned(stores(lanes), lanes), 0
    for rank in range(world):
        need = needed(whole, size, rank, world)
        loader = tl.Loader(laned(stores(lanes, cache_bytes=need), lanes), size, rank, world)
        total += loader.forecast(len(whole) // size).fetches
    return total / (lanes * BLOCKS)


@pytest.mark.parametrize(
    ("world", "size", "low", "high"),
    [(8, 64, 1.0, 1.0), (7, 77, 1.0, 1.2), (8, 77, 1.0, 1.2), (8, 13, 1.5, 1.8), (3, 3, 1.0, 2.0)],
)
def test_all_ranks_together_fetch_little_more_than_one(stores, world, size, low, high):
    """Also the numbers of docs/order.md."""
    assert low <= fetched(stores, 64, world, size) <= high


@pytest.mark.parametrize(("world", "size"), [(8, 64), (8, 77), (8, 13), (7, 77)])
def test_what_thrashes_is_named_with_what_would_help(stores, world, size):
    """64 lanes, memory for 10 windows: odd batches shift over the neighbours' lanes."""
    store = stores(64, rows=128)

    def forecasts(windows):
        dataset = laned(store, 64, 128, cache_windows=windows)
        ranks = [tl.Loader(dataset, size, rank, world, fetch="blocks") for rank in range(world)]
        return [loader.forecast(len(dataset) // size) for loader in ranks]

    found = forecasts(10)
    if world == 8 and size in (64, 77):
        assert {(one.how, one.advice) for one in found} == {("fits", "")}
        return
    worst = max(found, key=lambda one: one.fetches)
    assert worst.how == "thrashes"
    assert worst.fetches > 1.1 * worst.blocks
    windows = worst.needed_bytes * 10 // worst.cache_bytes
    advice = [f"cache_windows={windows}"]
    whole = -(-size // world) * world
    if size % world:
        advice.append(f"such as {whole}, which touches 8 windows instead of {windows}")
    if 64 % world:
        advice.append(f"multiple of {world}")
    assert [part for part in advice if part not in worst.advice] == []
    assert "lanes=" not in worst.advice  # 64 are 8 for each of 8 ranks already
    mended = forecasts(max(one.needed_bytes * 10 // one.cache_bytes for one in found))
    assert {one.how for one in mended} == {"fits"}


def test_a_forecast_ends_with_the_run(tmp_path):
    dataset = toy_run(toy_store(tmp_path), "block", epochs=1)
    found = tl.Loader(dataset, 4, fetch="blocks").forecast()
    assert (found.steps, found.examples, found.tokens) == (9, 36, 288)
    assert numbers_in(str(found))[:4] == [9, 36, found.fetches, found.blocks]
    rows = tl.Loader(dataset, 4, fetch="rows").forecast(2)
    assert (rows.fetches, rows.blocks, rows.examples, rows.tokens) == (8, 8, 8, 64)
    assert (rows.how, rows.fetch_bytes) == ("reads rows", 16)
    with tl.Loader(dataset, 4) as whole:
        assert whole.seek(7).forecast().steps == 2
        assert whole.seek(9).forecast().steps == 0
        assert numbers_in(str(whole.forecast()))[:2] == [0, 0]


def test_sources_that_share_a_cache_need_it_together(tmp_path):
    path = toy_store(tmp_path, rows=200).path
    for factor, how in ((2, "fits"), (1.5, "reads rows")):
        alone = tl.open(path).windows(8).block_shuffle(io_block_size=4, window_blocks=4)
        need = needed(alone, 4)
        assert need == 4 * 4 * 8 * 2
        store = tl.open(path, cache_bytes=int(factor * need))
        run = store.windows(8).block_shuffle(io_block_size=4, window_blocks=4)
        found = tl.Loader(tl.mix({"a": run, "b": run}), 4).forecast(5)
        assert (found.how, found.needed_bytes) == (how, 2 * need)


# -- how to read ---------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path):
    """Rows of 1,024 tokens in blocks of 128 KiB, windows of two, 16 lanes."""
    write_flat(tmp_path / "s", np.zeros(1 << 21), np.array([1 << 21]), vocab_size=1000)

    def wide(windows, world=2, **options):
        dataset = tl.open(tmp_path / "s").windows(1024).seed(1)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            dataset = dataset.block_shuffle(
                io_block_size=64, window_blocks=2, lanes=16, cache_windows=windows
            )
            forecast = tl.Loader(dataset, 16, 0, world, **options).forecast(50)
        return forecast.how, [str(one.message) for one in told]

    return wide


def test_rows_are_read_where_that_is_cheaper(wide):
    """A block of 64 KiB and more is not fetched for a single row."""
    assert wide(8) == ("fits", [])
    assert wide(16) == ("fits", [])
    how, (told,) = wide(4)
    assert how == "reads rows"
    # rank 0 of 2: two blocks of each of 8 of 16 lanes, 64 rows of 1,024 tokens of 2 bytes
    assert numbers_in(told)[:8] == [0, 2, 2, 8, 16, 64, 1024, 2]
    assert "cache_windows=8" in told
    assert wide(4, fetch="blocks") == ("thrashes", [])
    assert wide(4, fetch="rows") == ("reads rows", [])


@pytest.mark.parametrize(("windows", "how"), [(11, "thrashes"), (10, "reads rows")])
def test_windows_that_nearly_fit_are_still_read_by_blocks(wide, windows, how):
    """A third of the blocks may be missing: one costs as much as 3 reads of a row, for 64 rows."""
    found, (told,) = wide(windows, world=1)
    assert found == how
    assert "cache_windows=16" in told


@pytest.mark.parametrize("names", ["large small", "small large"])
def test_the_source_that_needs_most_is_the_one_to_change(stores, names):
    """Of a source with 16 lanes and one without: only the first is too large for the cache."""
    cache = 4 * WINDOW
    sources = {"large": laned(stores(16, cache_bytes=cache), 16)}
    small = stores(1, cache_bytes=cache).windows(SEQ_LEN)
    sources["small"] = small.block_shuffle(io_block_size=ROWS, window_blocks=2)
    mixed = tl.mix({name: sources[name] for name in names.split()})
    with pytest.warns(UserWarning, match="of 16 lanes") as told:
        loader = tl.Loader(mixed, 16, 0, 2)
    found = loader.forecast(1)
    assert found.needed_bytes == 14 * WINDOW + WINDOW // 4  # 8 lanes of its own, and 6 to shift
    assert f"cache_bytes={found.needed_bytes:,}" in str(told[0].message)


@pytest.mark.parametrize(
    ("layout", "numbers"),
    [
        (lambda s: s.windows(8).block_shuffle(io_block_size=4, window_blocks=3), [3, 4, 8, 2]),
        (lambda s: s.windows(8).block_shuffle(io_block_size=99, window_blocks=3), [1, 37, 8, 2]),
        (lambda s: s.pack(8, group_docs=9).block_shuffle(window_blocks=2), None),
    ],
)
def test_a_window_that_no_cache_holds_is_warned_of_with_the_arithmetic(tmp_path, layout, numbers):
    store = tl.open(toy_store(tmp_path).path, cache_bytes=100)
    with pytest.warns(UserWarning, match="block_shuffle") as told:
        run = layout(store)
    found = numbers_in(str(told[0].message))
    if numbers is None:  # groups of different sizes: their mean number of rows, rounded up
        groups = -(-store.num_documents // 9)
        numbers = [2, -(-len(run) // groups), 8, 2]
    assert found[: len(numbers)] == numbers
    assert tl.Loader(run, 4, fetch="auto").forecast(1).how == "reads rows"


def test_a_cache_that_was_turned_off_is_no_reason_to_warn(tmp_path, recwarn):
    store = tl.open(toy_store(tmp_path).path, cache_bytes=0)
    for lanes in (1, 2):
        run = store.windows(8).block_shuffle(io_block_size=2, window_blocks=4, lanes=lanes)
        assert tl.Loader(run, 4).forecast(1).how == "reads rows"
    assert not recwarn.list


# -- what a source can feed ----------------------------------------------------------------


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
    assert replace(one, fetches=2).feeds(**given) == pytest.approx(wanted / 2, rel=1e-5)
    assert replace(one, fetches=0).feeds(**given) == math.inf
    del given["parallel"]
    assert one.feeds(**given) == one.feeds(**given, parallel=16)


def test_a_forecast_says_what_its_source_can_feed(stores):
    with tl.Loader(laned(stores(4), 4), 4) as loader:
        found = loader.forecast(10**6)
    rows = 4 * BLOCKS * ROWS
    assert (found.steps, found.tokens, found.fetch_bytes) == (rows // 4, 2 * rows, ROWS * 4)
    assert found.feeds(latency=0.0, bandwidth=1e6) == 1e6 / 2  # 2 bytes a token, fetched once
