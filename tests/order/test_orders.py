"""Orders against slow readings of their rules; what an index may be; what is refused."""

import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_orders import cut_blocks, equal_blocks, slow_block, slow_era, slow_full

import tokenloom as tl
from tokenloom.limits import limits
from tokenloom.order import Blocks, block, era, full, identity
from tokenloom.order.shuffle_windows import epoch_windows
from tokenloom.testing import tiny

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


def assert_equal_blocks_agree(n):
    for size, window_blocks, lanes in itertools.product((1, 2, 3, 7), (1, 2, 3), (1, 2, 3, 5)):
        lists = equal_blocks(n, size)
        assert_equals_slow_block(
            Blocks.equal(n, size), lists, window_blocks, lanes, seed=n % 5, size=size
        )


@pytest.mark.parametrize("n", [*range(1, 25), 29, 30, 31, 42, 63, 64, 65, 105, 127, 128, 299, 300])
def test_block_order_equals_lists_and_loops(n):
    assert_equal_blocks_agree(n)


@pytest.mark.slow
@pytest.mark.parametrize("n", range(1, 301))
def test_block_order_equals_lists_and_loops_at_every_size(n):
    assert_equal_blocks_agree(n)


@given(
    st.lists(st.integers(0, 12), max_size=40),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 2**64 - 1),
)
def test_unequal_blocks_equal_lists_and_loops_also_empty_ones(sizes, window_blocks, lanes, seed):
    starts = [0, *itertools.accumulate(sizes)]
    assert_equals_slow_block(Blocks.cut(starts), cut_blocks(starts), window_blocks, lanes, seed)


def test_windows_larger_than_4096_rows_equal_lists_and_loops():
    """There the network computes what is sorted below."""
    lists = equal_blocks(30_000, 1500)
    assert_equals_slow_block(Blocks.equal(30_000, 1500), lists, 4, 2, seed=1, size=1500)
    starts = [0, 3000, 3000, 9001, 9500, 16_000]
    assert_equals_slow_block(Blocks.cut(starts), cut_blocks(starts), 2, 2, seed=2)


def test_more_than_4096_blocks_equal_lists_and_loops():
    lists = equal_blocks(9001, 2)
    assert_equals_slow_block(Blocks.equal(9001, 2), lists, 4, 3, seed=1, size=2)


def test_a_number_of_rows_and_equal_blocks_are_the_same_order():
    one = block(1000, 128, 4, seed=5).map(range(1000))
    assert (block(Blocks.equal(1000, 128), None, 4, seed=5).map(range(1000)) == one).all()


def test_every_window_of_outputs_uses_exactly_its_blocks():
    rows = block(8192, 128, 8, seed=0).map(range(8192))
    for window in rows.reshape(8, 1024):
        assert len(set((window // 128).tolist())) == 8
        assert np.bincount(window // 128)[np.unique(window // 128)].tolist() == [128] * 8


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("perm_type", ["feistel", "linear"])
def test_a_short_last_block_stays_last_and_is_shuffled(perm_type, lanes):
    rows = block(1000, 128, 8, lanes=lanes, seed=3, perm_type=perm_type).map(range(1000))
    assert sorted(rows[-104:].tolist()) == list(range(896, 1000))
    assert rows[-104:].tolist() != list(range(896, 1000))
    assert sorted(rows.tolist()) == list(range(1000))


def test_a_short_last_block_among_unequal_ones_goes_anywhere():
    starts = [0, 10, 20, 30, 33]
    places = {
        block(Blocks.cut(starts), None, 1, seed=s).map(range(33)).tolist().index(32) // 10
        for s in range(40)
    }
    assert places == {0, 1, 2, 3}


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_era_is_a_permutation_of_itself(lanes):
    rows = era(8192 + 100, 1024, seed=lanes).map(range(8292))
    for start in range(0, 8292, 1024):
        here = rows[start : start + 1024]
        assert sorted(here.tolist()) == list(range(start, min(start + 1024, 8292)))
        assert (here != np.arange(start, start + len(here))).sum() > len(here) * 0.9


def test_logical_blocks_may_be_several_storage_blocks():
    """Four io blocks are one shuffle unit; the order stays a bijection and keeps them together."""
    merged = Blocks.equal(10_000, 128).merged(512)
    assert (merged.size, len(merged)) == (512, 20)
    assert_equals_slow_block(merged, equal_blocks(10_000, 512), 2, 2, seed=1, size=512)
    starts = [0, 3, 3, 4, 10, 11, 12, 30, 31]
    merged = Blocks.cut(starts).merged(5)
    assert merged.starts.tolist() == [0, 10, 30, 31]
    assert_equals_slow_block(merged, cut_blocks([0, 10, 30, 31]), 2, 2, seed=1)
    assert Blocks.cut([0, 0]).merged(5).rows == 0


def test_fractions_come_in_the_shape_asked():
    order = block(1000, 16, 2, lanes=4, seed=0)
    flat = order.fractions(np.arange(1000))
    assert order.fractions([[1, 2], [3, 4]]).tolist() == [flat[1:3].tolist(), flat[3:5].tolist()]
    assert order.fractions(7) == flat[7]
    assert order.fractions([]).shape == (0,)
    assert flat[-8:].tolist() == [0.0] * 8
    assert set(flat.tolist()) == {0.0, 0.25, 0.5, 0.75}
    assert full(5, seed=0).fractions([1]) is None


def test_more_lanes_or_larger_windows_than_blocks_are_one_band():
    plain = block(1000, 16, 62, lanes=1, seed=0).map(range(1000))
    assert (block(1000, 16, 2**62, seed=0).map(range(1000)) == plain).all()
    many = block(1000, 16, 1, lanes=10**12, seed=0).map(range(1000))
    assert many.tolist() == [r for r, _ in slow_block(equal_blocks(1000, 16), 1, 62, 0, size=16)]


# --- full, era, identity ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4096, 4097, 9000])
def test_a_full_order_equals_the_slow_one(n):
    assert_equals(full(n, seed=n), slow_full(n, n))


@pytest.mark.parametrize("perm_type", ["feistel", "linear", "levanter", "levanter_linear"])
@pytest.mark.parametrize("n", [1, 2, 7, 4096, 5000])
def test_full_orders_of_many_epochs_at_once_are_those_one_by_one(n, perm_type):
    rng = np.random.default_rng(n)
    epoch, x = rng.integers(0, 40, 300), rng.integers(0, n, 300)
    epoch[:2] = 0, 10**12 if not perm_type.startswith("levanter") else 10**9
    windows = epoch_windows(9, perm_type, "wiki")
    options = {"seed": 9, "perm_type": perm_type, "source": "wiki"}
    orders = {e: full(n, epoch=e, **options) for e in set(epoch.tolist())}
    wanted = [int(orders[e].map([i])[0]) for e, i in zip(epoch.tolist(), x.tolist(), strict=True)]
    assert windows.forward(n, epoch, x).tolist() == wanted
    if n > 100:  # the control: another name, other orders
        assert epoch_windows(9, perm_type, "code").forward(n, epoch, x).tolist() != wanted or (
            perm_type.startswith("levanter")  # whose orders know the seed alone
        )


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


def test_an_era_longer_than_everything_is_one_era():
    assert (era(6, 2**70, seed=1).map(range(6)) == era(6, 6, seed=1).map(range(6))).all()


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


def test_the_order_is_the_same_in_a_new_process():
    code = (
        "from tokenloom.order import block\n"
        "order = block(10**7, 128, 8, lanes=4, seed=11, epoch=3)\n"
        "print(order.map(range(10**6, 10**6 + 50)).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = block(10**7, 128, 8, lanes=4, seed=11, epoch=3).map(range(10**6, 10**6 + 50)).tolist()
    assert done.stdout.strip() == str(here)


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


def test_a_scattered_request_holds_only_a_handful_of_windows_at_once():
    order = block(10**10, 512, 8, seed=0)
    index = np.random.default_rng(0).integers(0, 10**10, 1500)  # as many windows of 4,096 rows
    tracemalloc.start()
    rows = order.map(index)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2 * limits().window_tables_rows
    assert (order.inverse(rows) == index).all()
    assert rows[::300].tolist() == [int(order.map(i)) for i in index[::300]]


def test_endless_blocks_are_shuffled_inside_stretches_as_long_as_a_band():
    index = np.arange(100)
    order = block(None, 4, 3, lanes=2, infinite="era", seed=1)
    assert order.map(index).tolist() == era(None, 24, seed=1).map(index).tolist()


def test_a_stretch_longer_than_any_run_is_the_longest_there_is():
    index = np.array([0, 5, 10**12])
    longest = era(None, BIG, seed=3).map(index)
    assert era(None, 10**30, seed=3).map(index).tolist() == longest.tolist()


@pytest.mark.parametrize("kept", [1, 40, 250])
def test_windows_that_do_not_fit_in_memory_at_once_are_taken_in_turn(kept):
    """Neither what is kept nor what is asked for together changes where a row goes."""
    index = np.random.default_rng(1).permutation(20 * 64)
    windows, rows = index // 64, index % 64
    usual = epoch_windows(3, "feistel", "a")
    wanted = usual.forward(64, windows, rows)
    with tiny(window_tables_rows=kept):
        few = epoch_windows(3, "feistel", "a")
        for _ in range(2):
            assert few.forward(64, windows, rows).tolist() == wanted.tolist()
            assert few.inverse(64, windows, wanted).tolist() == rows.tolist()


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
        with pytest.raises(IndexError, match=rf"^index {wrong}: .*allowed: 0 to 99\.$"):
            order.map(asked)
        with pytest.raises(IndexError, match=rf"^row {wrong}: .*allowed: 0 to 99\.$"):
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
    with pytest.raises(IndexError, match="index 0: out of range for 0, allowed: none"):
        order.map(0)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: full(-1, seed=0), "n: found -1"),
        (lambda: full(2**63, seed=0), "n: found 9223372036854775808, allowed: 0 to"),
        (lambda: full(5, seed=-1), "seed: found -1"),
        (lambda: full(5, seed=0, epoch=-1), "epoch: found -1"),
        (lambda: full(5, seed=0, perm_type="fiestel"), "Did you mean 'feistel'"),
        (lambda: era(5, 0, seed=0), "era length: found 0"),
        (lambda: block(5, seed=0), "io_block_size: missing"),
        (lambda: block(5, 0, seed=0), "io_block_size: found 0"),
        (lambda: block(-5, 1, seed=0), "rows: found -5"),
        (lambda: block(Blocks.equal(5, 1), 2, seed=0), "io_block_size: found beside Blocks"),
        (lambda: block(5, 1, 0, seed=0), "window_blocks: found 0"),
        (lambda: block(5, 1, lanes=0, seed=0), "lanes: found 0"),
        (lambda: Blocks.cut([1, 2]), "allowed: from 0 on"),
        (lambda: Blocks.cut([0, 2, 1]), "never decreasing"),
        (lambda: Blocks.cut([]), "allowed: from 0 on"),
    ],
)
def test_settings_that_make_no_order_are_refused(make, message):
    with pytest.raises(tl.ConfigError, match=message):
        make()
