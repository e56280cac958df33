"""Orders against slow readings of their rules; what an index may be; what is refused."""

import itertools
import tracemalloc

import numpy as np
import pytest
from refusals import refused
from slow_orders import cut_blocks, equal_blocks, slow_block, slow_era, slow_full

import tokenloom as tl
from tokenloom.order import Blocks, block, era, full, identity

BIG = 2**63 - 1


def assert_equals(order, expected):
    """Equal at every index, inverted, and equal when asked in another order with repeats."""
    n = len(expected)
    rows = order.map(np.arange(n))
    assert rows.tolist() == expected
    assert order.inverse(rows).tolist() == list(range(n))
    some = np.arange(n * 3)[::-2] * 7 % max(1, n)
    assert order.map(some).tolist() == [expected[index] for index in some]
    assert (order.map(order.inverse(some)) == some).all()


def assert_equals_slow_block(blocks, lists, window_blocks, lanes, seed, *, size=None):
    order = block(blocks, None, window_blocks, lanes=lanes, seed=seed)
    expected = slow_block(lists, window_blocks, lanes, seed, size=size)
    assert sorted(row for row, _ in expected) == list(range(blocks.rows))
    assert_equals(order, [row for row, _ in expected])
    fractions = order.fractions(np.arange(blocks.rows))
    if lanes == 1:
        assert fractions is None
    else:
        assert fractions.tolist() == [fraction for _, fraction in expected]


# --- block order -----------------------------------------------------------------------------


def test_windows_larger_than_4096_rows_equal_lists_and_loops():
    """There the network computes what is sorted below."""
    lists = equal_blocks(30_000, 1500)
    assert_equals_slow_block(Blocks.equal(30_000, 1500), lists, 4, 2, seed=1, size=1500)
    starts = [0, 3000, 3000, 9001, 9500, 16_000]
    assert_equals_slow_block(Blocks.cut(starts), cut_blocks(starts), 2, 2, seed=2)


def test_more_than_4096_blocks_equal_lists_and_loops():
    lists = equal_blocks(9001, 2)
    assert_equals_slow_block(Blocks.equal(9001, 2), lists, 4, 3, seed=1, size=2)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("perm_type", ["feistel", "linear"])
def test_a_short_last_block_stays_last_and_is_shuffled(perm_type, lanes):
    rows = block(1000, 128, 8, lanes=lanes, seed=3, perm_type=perm_type).map(range(1000))
    assert sorted(rows[-104:].tolist()) == list(range(896, 1000))
    assert rows[-104:].tolist() != list(range(896, 1000))
    assert sorted(rows.tolist()) == list(range(1000))


def test_fractions_come_in_the_shape_asked():
    order = block(1000, 16, 2, lanes=4, seed=0)
    flat = order.fractions(np.arange(1000))
    assert order.fractions([[1, 2], [3, 4]]).tolist() == [flat[1:3].tolist(), flat[3:5].tolist()]
    assert order.fractions(7) == flat[7]
    assert order.fractions([]).shape == (0,)
    assert flat[-8:].tolist() == [0.0] * 8
    assert set(flat.tolist()) == {0.0, 0.25, 0.5, 0.75}
    assert full(5, seed=0).fractions([1]) is None


# --- full, era, identity ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4096, 4097, 9000])
def test_a_full_order_equals_the_slow_one(n):
    assert_equals(full(n, seed=n), slow_full(n, n))


@pytest.mark.parametrize(
    ("n", "length"), [(1, 1), (7, 3), (9, 3), (100, 7), (50, 100), (13_000, 5000), (300, 1)]
)
def test_an_era_order_equals_the_slow_one(n, length):
    assert_equals(era(n, length, seed=n), slow_era(n, length, n))


def test_an_endless_era_is_the_finite_one_further_on():
    endless, finite = era(None, 100, seed=4), era(10**6, 100, seed=4)
    index = np.random.default_rng(0).integers(0, 10**6, 1000)
    assert (endless.map(index) == finite.map(index)).all()
    assert endless.inverse(endless.map([10**15])).tolist() == [10**15]
    with pytest.raises(TypeError, match="order is endless, so it has no length"):
        len(endless)


def test_identity_leaves_rows_where_they_are():
    assert identity(5).map([[4, 0]]).tolist() == [[4, 0]]
    assert identity(None).inverse(BIG).tolist() == BIG
    assert identity(5).fractions([1]) is None
    assert len(identity(0)) == 0


# --- keys ---------------------------------------------------------------------------------------


MAKERS = {
    "full": lambda **k: full(20_000, **k),
    "era": lambda **k: era(20_000, 5000, **k),
    "block": lambda **k: block(20_000, 100, 20, lanes=5, **k),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_epochs_seeds_and_sources_have_unrelated_orders(make):
    """Two unrelated orders agree at about one index for each stretch that is shuffled."""
    index = np.arange(20_000)
    kinds = [
        {"seed": 1},
        {"seed": 2},
        {"seed": 1, "epoch": 1},
        {"seed": 1, "epoch": 2},
        {"seed": 1, "source": "wiki"},
    ]
    orders = [make(**kind).map(index) for kind in kinds]
    expected = 4 if make is MAKERS["era"] else 1  # Poisson
    for one, other in itertools.combinations(orders, 2):
        assert (one == other).sum() <= expected + 5 * expected**0.5


# --- size ---------------------------------------------------------------------------------------


def test_any_index_of_ten_thousand_million_costs_little_memory():
    tracemalloc.start()
    for order in (
        full(10**10, seed=0),
        era(10**10, 1024, seed=0),
        block(10**10, 128, 8, seed=0),
        block(10**10, 128, 512, lanes=64, seed=0),
    ):
        row = order.map(10**9)
        assert row.shape == ()
        assert order.inverse(row) == 10**9
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("order", [full(BIG, seed=0), block(BIG, 2**20, 2**10, lanes=8, seed=0)])
def test_the_largest_order_is_two_to_the_63_less_one(order):
    assert len(order) == BIG
    index = np.array([0, 12345, BIG // 2, BIG - 2, BIG - 1])
    assert (order.inverse(order.map(index)) == index).all()


def test_asking_again_in_other_company_gives_the_same_rows():
    """Whatever is kept from earlier requests, an index has one row."""
    order = block(10**6, 64, 4, lanes=3, seed=9)
    everything = order.map(np.arange(10**6))
    fresh = block(10**6, 64, 4, lanes=3, seed=9)
    random = np.random.default_rng(1)
    for size in (1, 63, 64, 65, 1000, 4096):
        index = random.integers(0, 10**6, size)
        assert (fresh.map(index) == everything[index]).all()
        near = random.integers(0, 10**6 - 5000) + random.integers(0, 5000, size)
        assert (fresh.map(near) == everything[near]).all()


# --- what an index may be -----------------------------------------------------------------------


ORDERS = [
    identity(100),
    full(100, seed=0),
    era(100, 7, seed=0),
    block(100, 7, 2, lanes=2, seed=0),
    block(Blocks.cut([0, 30, 100]), None, 1, seed=0),
]
INTEGERS = [f"{order}{kind}{size}" for order in "<>" for kind in "iu" for size in (1, 2, 4, 8)]


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: type(o).__name__)
def test_every_integer_type_and_shape_is_an_index(order):
    rows = [int(order.map(index)) for index in range(100)]
    assert sorted(rows) == list(range(100))
    for dtype in INTEGERS:
        for ask, expected in ((order.map, rows), (order.inverse, np.argsort(rows).tolist())):
            found = ask(np.arange(100).astype(dtype))
            assert found.dtype == np.int64
            assert found.tolist() == expected
    index = np.arange(24).reshape(2, 3, 4)
    assert order.map(index).tolist() == np.array(rows)[index].tolist()
    assert order.map(index[:, ::-1, ::2]).tolist() == np.array(rows)[index[:, ::-1, ::2]].tolist()
    assert order.map(range(3)).tolist() == order.map((0, 1, 2)).tolist() == rows[:3]
    assert order.map(np.int8(5)).shape == order.map(5).shape == ()
    for empty in ([], (), np.empty((0, 4), np.int32), np.empty(0, np.float64)):
        assert order.map(empty).shape == np.shape(empty)
        assert order.map(empty).dtype == np.int64


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: type(o).__name__)
def test_the_answer_shares_no_memory_with_the_question(order):
    index = np.arange(10)
    order.map(index)[:] = -1
    order.inverse(index)[:] = -1
    assert index.tolist() == list(range(10))


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("wrong", [-1, 100, 2**31, 2**63, 2**64 - 1, 2**70, -(2**70)])
def test_an_index_out_of_range_is_named_with_what_is_allowed(order, wrong):
    for asked in (wrong, [wrong], [[0], [wrong]]):
        with pytest.raises(IndexError, match=rf"^index {wrong}: .*allowed: 0 to 99\b"):
            order.map(asked)
        with pytest.raises(IndexError, match=rf"^row {wrong}: .*allowed: 0 to 99\b"):
            order.inverse(asked)


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize(
    "wrong", [1.0, [0.5], True, [True], "1", None, [2**70, 0.5], np.float32(1)]
)
def test_what_is_no_integer_is_refused(order, wrong):
    with pytest.raises(TypeError, match="allowed: integers"):
        order.map(wrong)


@pytest.mark.parametrize("make", [full, identity, lambda n, **k: block(n, 4, **k)])
def test_an_empty_order_has_no_index(make):
    order = make(0) if make is identity else make(0, seed=0)
    assert len(order) == 0
    assert order.map([]).tolist() == []
    with pytest.raises(IndexError, match="index 0: out of range"):
        order.map(0)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: full(-1, seed=0), ("n", -1)),
        (lambda: full(2**63, seed=0), ("n", 2**63)),
        (lambda: full(5, seed=-1), ("seed", -1)),
        (lambda: full(5, seed=0, epoch=-1), ("epoch", -1)),
        (lambda: full(5, seed=0, perm_type="fiestel"), ("perm_type", "'fiestel'")),
        (lambda: era(5, 0, seed=0), ("era length", 0)),
        (lambda: block(5, seed=0), ("io_block_size",)),
        (lambda: block(5, 0, seed=0), ("io_block_size", 0)),
        (lambda: block(-5, 1, seed=0), ("rows", -5)),
        (lambda: block(Blocks.equal(5, 1), 2, seed=0), ("io_block_size",)),
        (lambda: block(5, 1, 0, seed=0), ("window_blocks", 0)),
        (lambda: block(5, 1, lanes=0, seed=0), ("lanes", 0)),
        (lambda: Blocks.cut([1, 2]), ()),
        (lambda: Blocks.cut([0, 2, 1]), ()),
        (lambda: Blocks.cut([]), ()),
    ],
)
def test_settings_that_make_no_order_are_refused(make, named):
    refused(make, tl.ConfigError, *named)


@pytest.mark.parametrize("lanes", [8, 64])
def test_any_run_of_places_spreads_evenly_over_the_lanes_of_the_ranks(lanes):
    """Of any 2^k neighbouring places with k <= log2 lanes, one falls into each 2^k-th of the lanes.

    For runs that start at a multiple of their length; any other run is off by one at most.
    """
    n = lanes * 16
    lane = (block(n, 16, 1, lanes=lanes, seed=0).fractions(np.arange(n)) * lanes).astype(int)
    for run in (2, 4, 8):
        for start in range(0, n - run, run):
            assert sorted(lane[start : start + run] * run // lanes) == list(range(run))
        for start in range(n - run):
            shares = np.bincount(lane[start : start + run] * run // lanes, minlength=run)
            assert shares.max() <= 2
