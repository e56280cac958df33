"""The compiled merge gives what NumPy gives: the same floats, the same ties, every count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenloom import native
from tokenloom.layout.layout import Phases
from tokenloom.mixture.merge import Clock, Merge
from tokenloom.order.costs import EqualCosts, SummedCosts

COMPILED = native.compiled

pytestmark = pytest.mark.skipif(
    COMPILED is None, reason="the loops are not compiled here, or turned off"
)

weights = st.sampled_from([1.0, 1.0, 1 / 3, 2.0, 0.1, 7e-5, 3e5]) | st.floats(1e-6, 1e6)
bases = st.sampled_from([0.0, 0.0, 1.0, 1 / 3, 1e4]) | st.floats(0, 1e5)


class Prices:
    """Items of one epoch, repeated."""

    identity, most = None, 4096

    def __init__(self, prices):
        self._prices, self.phases = np.array(prices, np.int64), Phases.constant(len(prices))

    def prices(self, first, last):
        return self._prices[np.arange(first, last) % len(self._prices)]

    def is_steady(self, epoch):
        return True

    def whole(self, first, last):
        return None

    def by_rows(self, *_):
        return None


@st.composite
def a_clock(draw, name, summed):
    n = draw(st.none() | st.integers(0, 60))
    first = draw(st.integers(0, 20 if n is None else n))
    costs = EqualCosts(draw(st.sampled_from([1, 1, 2, 7, 2048, 10**9])), n)
    if summed and draw(st.booleans()):
        prices = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
        costs = SummedCosts(Prices(prices), n)
    base, weight = draw(bases), draw(weights)
    ref = costs.upto(draw(st.integers(0, first)))
    return Clock(name, costs, weight, base=base, ref=ref, first=first)


@st.composite
def some_clocks(draw, summed):
    names = "abcdefghi"[: draw(st.integers(1, 9))]
    return [draw(a_clock(name, summed)) for name in names]


def both(clocks, **options):
    """The same sources, merged in both ways."""
    fast = Merge(clocks, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", None)
        slow = Merge(clocks, **options)
    assert fast._merger is not None
    assert slow._merger is None
    return fast, slow


@settings(max_examples=100)
@given(
    st.booleans().flatmap(some_clocks), st.booleans(), st.booleans(), st.integers(0, 3), st.data()
)
def test_both_ways_give_the_same_items_and_the_same_counts(clocks, midpoint, listed, seed, data):
    fast, slow = both(clocks, seed=seed, midpoint=midpoint, listed=listed)
    whole = sum((c.first + 200 if c.costs.n is None else c.costs.n) for c in clocks)
    begin = fast.begin
    want = min(data.draw(st.integers(1, 300)), whole - begin)
    if want > 0:
        for a, b in zip(fast.items(begin, begin + want), slow.items(begin, begin + want), strict=1):
            assert a.dtype == b.dtype
            assert a.tolist() == b.tolist()
        assert fast.cut(begin + want).tolist() == slow.cut(begin + want).tolist()
    for index in data.draw(st.lists(st.integers(begin, whole), max_size=4)):
        fresh = [both(clocks, seed=seed, midpoint=midpoint, listed=listed)[n] for n in (0, 1)]
        assert fresh[0].cut(index).tolist() == fresh[1].cut(index).tolist()
    moment = data.draw(bases)
    moments = [moment, np.nextafter(moment, np.inf), fast._now(fast._first)]
    for one in moments:
        assert fast._counts(one).tolist() == slow._counts(one).tolist()


@pytest.mark.parametrize("weights", ["equal", "drawn", "apart"])
@pytest.mark.parametrize("count", [1, 2, 5, 64, 500])
def test_many_sources_near_and_far(count, weights):
    random = np.random.default_rng(count)
    drawn = {
        "equal": np.ones(count),
        "drawn": random.dirichlet(np.ones(count)),
        "apart": 10.0 ** random.integers(-5, 6, count),
    }[weights]
    clocks = [Clock(f"s{n}", EqualCosts(64, None), float(w)) for n, w in enumerate(drawn)]
    for midpoint in (False, True):
        fast, slow = both(clocks, seed=3, midpoint=midpoint)
        for first in (0, 1, 777, 10**6, 10**9, 10**12):
            a, b = fast.items(first, first + 600), slow.items(first, first + 600)
            assert a[0].tolist() == b[0].tolist()
            assert a[1].tolist() == b[1].tolist()


def test_sources_that_end_are_passed_while_searching():
    clocks = [
        Clock("a", EqualCosts(1, 10**6), 1.0),
        Clock("b", EqualCosts(1, 10), 1e-6, base=50.0),
        Clock("c", EqualCosts(5, None), 1e-3, base=1e5),
        Clock("d", EqualCosts(1, 7), 1.0, first=7),
    ]
    for index in (7, 8, 10**5, 10**6, 10**6 + 7, 10**6 + 20, 2 * 10**6, 10**9):
        fast, slow = both(clocks, seed=0, midpoint=False)
        assert fast.cut(index).tolist() == slow.cut(index).tolist()
        assert fast.cut(index).sum() == index


@pytest.mark.parametrize("first", [0, 30, 4000])
def test_a_source_that_starts_late_and_comes_often_is_met_from_anywhere(first):
    clocks = [
        Clock("seldom", EqualCosts(1, None), 1.0),
        Clock("often", EqualCosts(1, None), 1e6, base=4100.0),
    ]
    fast, slow = both(clocks, seed=0, midpoint=False)
    for merge in (fast, slow):
        begin = merge.cut(first)
        moment = merge._moment_of(begin, 300)
        found = merge.count(moment) - first
        assert found >= 300
    a, b = fast.items(first, first + 300), slow.items(first, first + 300)
    assert [one.tolist() for one in a] == [one.tolist() for one in b]
    assert len(b[0]) == 300


def test_a_source_that_comes_more_often_than_expected_is_looked_at_again():
    """Some of its items are dear and the others cheap, so at times it is far from its mean."""
    clocks = [
        Clock("a", SummedCosts(Prices([4000] * 3 + [1] * 300), None), 1.0),
        Clock("b", SummedCosts(Prices([7, 2000]), 900), 1.0, base=9.0),
        Clock("c", EqualCosts(50, None), 20.0),
    ]
    fast, slow = both(clocks, seed=1, midpoint=True)
    for first, last in ((0, 4700), (4700, 5200), (5200, 5201), (5201, 16_000)):
        a, b = fast.items(first, last), slow.items(first, last)
        assert a[0].tolist() == b[0].tolist()
        assert a[1].tolist() == b[1].tolist()
