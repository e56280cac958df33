"""The merge by virtual time is the literal greedy loop, from any index and back."""

import contextlib
import itertools
import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slowmix import Loop, begin, by_epoch, counts_at, listed, pairs, slow_rounds, within

from tokenloom import native
from tokenloom.layout.layout import Phases
from tokenloom.mixture.merge import FEW, NEAR, Clock, Merge
from tokenloom.mixture.rounds import Rounds
from tokenloom.mixture.stages import Stage
from tokenloom.order import costs as costs_module
from tokenloom.order.closed_costs import EqualCosts
from tokenloom.order.costs import Priced, SummedCosts

NAMES = ("wiki", "code", "a", "b", "books", "web")


class Told(Priced):
    """Prices from lists, one per epoch, the last repeated endlessly; counts the requests."""

    def __init__(self, epochs, *, steady=True):
        self.epochs, self._steady, self.asked = epochs, steady, 0
        sizes = [len(one) for one in epochs]
        if steady and len(epochs) == 1:
            self.phases = Phases.constant(sizes[0])
        else:
            self.phases = Phases.by_epoch(range(len(epochs)), sizes)

    identity = None
    most = 1 << 13

    def prices(self, first, last):
        self.asked += last - first
        places = [self.phases.place(k) for k in range(first, last)]
        last = len(self.epochs) - 1
        return np.array([self.epochs[min(e, last)][inside] for e, inside in places], np.int64)

    def is_steady(self, epoch):
        return self._steady


@contextlib.contextmanager
def small_strides():
    """Sums at every 4 items, added up 8 at a time, so that few items cross their edges."""
    with mock.patch.object(costs_module, "STRIDE", 4), mock.patch.object(costs_module, "CHUNK", 8):
        yield


# -- costs ---------------------------------------------------------------------------------

tables = st.lists(
    st.lists(st.sampled_from([1, 1, 2, 5, 64, 10**9]), min_size=1, max_size=21),
    min_size=1,
    max_size=4,
)


@given(tables, st.booleans(), st.data())
def test_summed_costs_are_the_sums_of_a_loop(epochs, steady, data):
    """At strides' edges, in later epochs, from a fresh object each time."""
    cost = by_epoch(epochs)
    sums = [0, *itertools.accumulate(cost(k) for k in range(90))]
    n = data.draw(st.none() | st.integers(0, 80))
    with small_strides():
        asked = data.draw(st.lists(st.integers(0, 80), min_size=1, max_size=6))
        kept = SummedCosts(Told(epochs, steady=steady), n)
        for k in asked:
            for one in (kept, SummedCosts(Told(epochs, steady=steady), n)):
                assert one.upto(k) == sums[k]
                assert one.one(k) == (sums[k], cost(k))
                assert one.items(k, k + 1).tolist() == [cost(k)]
                assert one.items(k, k + 9).tolist() == [cost(j) for j in range(k, k + 9)]
                assert one.items(k, k).tolist() == []
            for wanted in (sums[k], sums[k] + 1, sums[k] + 0.5, sums[k] - 1):
                below = sum(one < wanted for one in sums[:-1])
                if below < 85:
                    found = SummedCosts(Told(epochs, steady=steady), n).before(wanted)
                    assert found == kept.before(wanted) == (below if n is None else min(below, n))


@given(tables, st.none() | st.integers(0, 60))
def test_an_estimate_is_exact_between_epochs_and_even_inside_them(epochs, n):
    costs = SummedCosts(Told(epochs, steady=False), n)
    assert costs.mean == sum(epochs[0]) / len(epochs[0])
    most = math.inf if n is None else n
    starts = [costs._priced.phases.start(epoch) for epoch in range(6)]
    for start, after in itertools.pairwise(starts):
        begin, end = costs.upto(start), costs.upto(after)
        if n is None or start < n:
            middle = costs.near(begin + (end - begin) / 2)
            assert middle == pytest.approx(min((start + after) / 2, most))
            assert costs.near(end) == min(after, most)
    assert (costs.near(0), costs.near(-5)) == (0, 0)


def test_strides_of_the_real_size_are_crossed():
    rng = np.random.default_rng(3)
    table = rng.integers(1, 2049, 5000).tolist()
    told = Told([table])
    costs, sums = SummedCosts(told, None), np.concatenate([[0], np.cumsum(table * 3)])
    for k in (0, 1, 1023, 1024, 1025, 2048, 4999, 5000, 5001, 9999, 10000, 14999):
        assert costs.upto(k) == sums[k]
        assert costs.before(int(sums[k])) == k
        assert costs.before(int(sums[k]) + 1) == k + 1
    assert told.asked < 5000 + 64 * 1024, "an epoch is added up once, then strides"


def test_epochs_that_differ_are_not_taken_for_the_first_one():
    epochs = [[3, 3, 3], [1, 9, 1], [2, 2, 2]]
    costs = SummedCosts(Told(epochs, steady=False), None)
    assert [costs.upto(k) for k in (3, 6, 9, 12)] == [9, 20, 26, 32]
    assert costs.upto(5) == 9 + 10


def test_a_phase_that_cuts_an_epoch_short():
    """4 rows an epoch, from example 6 on 3 rows: the second epoch has two rows only."""

    class Cut(Told):
        def __init__(self):
            super().__init__([[5, 1, 7, 2]])
            self.phases = Phases.by_example([0, 6], [4, 3])

    with small_strides():
        costs = SummedCosts(Cut(), None)
        each = [5, 1, 7, 2, 5, 1, 5, 1, 7, 5, 1, 7]
        assert [costs.upto(k) for k in range(13)] == [0, *itertools.accumulate(each)]
        assert costs.items(0, 12).tolist() == each
        for k in range(12):
            assert costs.before(sum(each[:k])) == k


# -- the merge -----------------------------------------------------------------------------

weights = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.0, 0.5, 1 / 3, 0.1, 1e-6, 1e6])
tame = st.sampled_from([1.0, 1.0, 2.0, 3.0, 0.5, 1 / 3, 0.1])


@st.composite
def a_source(draw, name):
    """(what the merge gets, what the loop gets)"""
    kind = draw(st.sampled_from(["equal", "summed", "unsteady", "huge"]))
    weight = draw(tame if kind == "huge" else weights)
    n = draw(st.sampled_from([None, None, 0, 1, 2, 5, 17]))
    initial = draw(st.sampled_from([0, 0, 0, 1, 100]))
    if kind in ("equal", "huge"):
        cost = draw(st.sampled_from([1, 1, 2, 7]) if kind == "equal" else st.just(10**9))
        made, slow = EqualCosts(cost, n), listed([cost])
    else:
        table = draw(tables if kind == "unsteady" else st.lists(tables.map(max), max_size=0))
        if kind == "summed":
            table = [draw(st.lists(st.integers(1, 9), min_size=1, max_size=19))]
        table = [[min(cost, 1000) for cost in one] for one in table]
        made, slow = SummedCosts(Told(table, steady=kind == "summed"), n), by_epoch(table)
    clock = Clock(name, made, weight, base=initial / weight)
    return clock, begin(name, slow, n, weight, initial=initial)


@st.composite
def a_mix(draw, most=5):
    count = draw(st.integers(1, most))
    made = [draw(a_source(name)) for name in NAMES[:count]]
    return [clock for clock, _ in made], [slow for _, slow in made]


@settings(max_examples=70)
@given(a_mix(), st.booleans(), st.integers(0, 3), st.integers(1, 70), st.data())
def test_the_merge_is_the_greedy_loop(mix, midpoint, seed, count, data):
    clocks, slow = mix
    with small_strides(), within(20):
        picks = Loop(slow, seed=seed, midpoint=midpoint).run(count)
        count = len(picks)
        if not count:
            return
        merge = Merge(clocks, seed=seed, midpoint=midpoint)
        assert pairs(merge.items(0, count)) == picks
        edges = sorted({0, count, *data.draw(st.lists(st.integers(0, count), max_size=3))})
        pieces = Merge(clocks, seed=seed, midpoint=midpoint)
        found = [pairs(pieces.items(a, b)) for a, b in itertools.pairwise(edges)]
        assert [pick for piece in found for pick in piece] == picks
        for index in data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4)):
            fresh = Merge(clocks, seed=seed, midpoint=midpoint)
            assert fresh.cut(index).tolist() == counts_at(picks, index, len(slow))
            fresh = Merge(clocks, seed=seed, midpoint=midpoint)
            assert pairs(fresh.items(index, index + 1)) == [picks[index]]
            fresh = Merge(clocks, seed=seed, midpoint=midpoint)
            assert fresh.index(*picks[index]) == index
        behind = Merge(clocks, seed=seed, midpoint=midpoint)
        assert behind.cut(count).tolist() == counts_at(picks, count, len(slow))


def test_thousands_of_random_cases_are_the_greedy_loop():
    """2,000 mixes of 2 to 6 sources, half of them with weights, half by midpoints."""
    rng = np.random.default_rng(0)
    for case in range(2000):
        size, seed = int(rng.integers(2, 7)), int(rng.integers(0, 1 << 32))
        most = 9 if case % 10 == 0 else 2  # sums cost the test most of its time
        tables = [rng.integers(1, 12, int(rng.integers(1, most))).tolist() for _ in range(size)]
        weight = rng.choice([0.1, 0.5, 1, 2, 3, 1 / 3], size) if case % 4 < 2 else np.ones(size)
        clocks, slow = [], []
        for name, table, w in zip(NAMES, tables, weight.tolist(), strict=False):
            same = len(set(table)) == 1
            made = EqualCosts(table[0], None) if same else SummedCosts(Told([table]), None)
            clocks.append(Clock(name, made, w))
            slow.append(begin(name, listed(table), None, w))
        midpoint = case % 4 in (1, 2)
        picks = Loop(slow, seed=seed, midpoint=midpoint).run(30)
        assert pairs(Merge(clocks, seed=seed, midpoint=midpoint).items(0, 30)) == picks, case
        if case % 5 == 0:
            middle = int(rng.integers(0, 30))
            fresh = Merge(clocks, seed=seed, midpoint=midpoint)
            assert pairs(fresh.items(middle, 30)) == picks[middle:], case


@pytest.mark.parametrize("midpoint", [False, True])
def test_ties_of_many_equal_sources_are_those_of_the_loop(midpoint):
    """40 sources with one cost and one weight: every round is one great tie."""
    names = [f"s{i}" for i in range(40)]
    clocks = [Clock(name, EqualCosts(5, None), 1.0) for name in names]
    picks = Loop([begin(name, listed([5])) for name in names], seed=9, midpoint=midpoint).run(200)
    merge = Merge(clocks, seed=9, midpoint=midpoint)
    assert pairs(merge.items(0, 200)) == picks
    first, second = [s for s, _ in picks[:40]], [s for s, _ in picks[40:80]]
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second, "ties are settled anew at every moment"
    assert first != sorted(first)
    for index, pick in enumerate(picks):
        assert merge.index(*pick) == index


def test_ties_in_listed_order():
    clocks = [Clock(name, EqualCosts(1, n), 1.0) for name, n in (("b", 2), ("a", 4), ("c", 3))]
    loop = Loop(
        [begin("b", listed([1]), 2), begin("a", listed([1]), 4), begin("c", listed([1]), 3)],
        in_turn=True,
    )
    merge = Merge(clocks, seed=5, midpoint=False, listed=True)
    assert pairs(merge.items(0, 9)) == loop.run()
    assert merge.items(0, 9)[0].tolist() == [0, 1, 2, 0, 1, 2, 1, 2, 1]


def test_ties_do_not_depend_on_how_sources_are_listed():
    names = ["a", "b", "c", "d"]
    seen = set()
    for some in itertools.permutations(names):
        clocks = [Clock(name, EqualCosts(3, None), 1.0) for name in some]
        source, _ = Merge(clocks, seed=2, midpoint=False).items(0, 40)
        seen.add("".join(some[i] for i in source.tolist()))
    assert len(seen) == 1


def test_sources_with_nothing_and_with_one_item():
    sizes = [0, 1, 0, 3, 1]
    clocks = [Clock(n, EqualCosts(1, s), 1.0) for n, s in zip(NAMES, sizes, strict=False)]
    merge = Merge(clocks, seed=0, midpoint=True)
    assert sorted(pairs(merge.items(0, 5))) == [(1, 0), (3, 0), (3, 1), (3, 2), (4, 0)]
    assert merge.cut(5).tolist() == sizes
    assert merge.cut(0).tolist() == [0] * 5


@pytest.mark.parametrize("costs", [(1, 2048), (2048, 1), (7, 7)])
def test_a_merge_ends_before_what_is_consumed_is_no_exact_float(costs):
    clocks = [
        Clock(name, EqualCosts(cost, None), 1.0) for name, cost in zip("ab", costs, strict=True)
    ]
    merge = Merge(clocks, seed=1, midpoint=False)
    assert merge.longest * max(costs) <= 2**53 < (merge.longest + 1) * max(costs)


def test_huge_costs_and_far_indices():
    """10^9 tokens an item and 10^9 items: sums of 10^18 are exact enough to agree with the loop."""
    clocks = [Clock("a", EqualCosts(10**9, None), 1.0), Clock("b", EqualCosts(10**9, None), 3.0)]
    merge = Merge(clocks, seed=1, midpoint=False)
    far = 10**9
    counts = merge.cut(far)
    assert counts.sum() == far
    assert abs(counts[1] - 3 * far // 4) <= 1
    slow = [begin("a", listed([10**9])), begin("b", listed([10**9]), None, 3.0)]
    for one, k in zip(slow, counts.tolist(), strict=True):
        one.k, one.consumed = k, k * 10**9
    assert pairs(merge.items(far, far + 50)) == Loop(slow, seed=1).run(50)


def test_an_item_far_away_is_found_without_walking_there():
    told = Told([np.random.default_rng(1).integers(1, 500, 3000).tolist()])
    clocks = [Clock("a", SummedCosts(told, None), 1.0), Clock("b", EqualCosts(512, None), 0.25)]
    merge = Merge(clocks, seed=0, midpoint=False)
    (pick,) = pairs(merge.items(10**8, 10**8 + 1))
    assert merge.index(*pick) == 10**8
    assert told.asked < 10**6


def uneven(seed, most, rows):
    return SummedCosts(Told([np.random.default_rng(seed).integers(1, most, rows).tolist()]), None)


SHAPES = {
    "equal": [("a", EqualCosts(1, None), 1.0), ("b", EqualCosts(1, None), 2.5)],
    "other costs": [("a", EqualCosts(1, None), 1e-3), ("b", EqualCosts(2048, None), 30.0)],
    "one ends": [("a", EqualCosts(3, 10**5), 1.0), ("b", EqualCosts(5, None), 1.0)],
    "summed": [("a", uneven(1, 2049, 3000), 1.0), ("b", uneven(2, 99, 700), 2.0)],
    "edited": [
        ("a", EqualCosts(3, None), 1.0, 99.5, 3000, 1000),
        ("b", EqualCosts(5, None), 1.0, 100.0),
    ],
    "late": [("a", EqualCosts(1, None), 1.0), ("b", EqualCosts(1, None), 1e3, 5e3)],
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_any_index_is_found_by_counting_at_two_moments(shape, compiled, monkeypatch):
    """One that is guessed, and one past it; a late source is a surprise, and takes a few more."""
    if not compiled:
        monkeypatch.setattr(native, "compiled", None)
    merge = Merge([Clock(*one) for one in SHAPES[shape]], seed=1, midpoint=False)
    asked, real = [], Merge.count
    monkeypatch.setattr(Merge, "count", lambda self, at: asked.append(at) or real(self, at))
    late = shape == "late"
    for more in (1, 7, 300, 1000, 5000, 10**5 + 1, 10**7, 10**10):
        asked.clear()
        low, high = merge._bracket(merge.begin + more)
        assert len(asked) <= (5 if late else 2)
        below, above = real(merge, low), real(merge, high)
        assert below <= merge.begin + more <= above
        assert above - below <= 2 * NEAR, "few others are between them"
        asked.clear()
        want = min(more, 10**5)
        found = real(merge, merge._moment_of(merge._first, want)) - merge.begin
        assert want <= found <= 2 * want + FEW
        assert len(asked) <= (24 if late else 2)


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.3, 0.5, 0.995, 0.9999, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_moments_with_millions_between_them_are_narrowed_down_to_few(shape, share, monkeypatch):
    """By as many counts as digits, not as items."""
    merge = Merge([Clock(*one) for one in SHAPES[shape]], seed=1, midpoint=False)
    last = merge.begin + 10**7
    low, high = merge._now(merge._first), merge._bracket(last)[1]
    asked, real = [], Merge.count
    monkeypatch.setattr(Merge, "count", lambda self, at: asked.append(at) or real(self, at))
    index = merge.begin + round(share * 10**7)
    found = merge._narrowed(index, low, merge.begin, high, real(merge, high))
    below, above = (real(merge, moment) for moment in found)
    assert low <= found[0] < found[1] <= high
    assert below <= index <= above
    assert above - below <= FEW
    assert len(asked) <= 30


@given(a_mix(most=4), st.booleans(), st.integers(1, 60))
def test_counts_at_a_moment_are_those_of_the_loop(mix, midpoint, count):
    clocks, slow = mix
    loop = Loop(slow, seed=1, midpoint=midpoint)
    moments = []
    for _ in range(count):
        pending = loop.pending()
        if not pending:
            break
        moments.append(min(pending)[0])
        loop.draw()
    with small_strides(), within(20):
        merge = Merge(clocks, seed=1, midpoint=midpoint)
        for index in range(0, len(moments), 7):
            moment = moments[index]
            assert merge.moment(index) == moment
            assert merge.count(moment) == moments.index(moment)
            behind = float(np.nextafter(moment, np.inf))
            if moments[-1] >= behind:
                assert merge.count(behind) == sum(one <= moment for one in moments)


@pytest.mark.parametrize("way", ["items", "index"])
def test_weights_of_many_orders_of_magnitude_between_finite_sources(way):
    """10,000 rows of 1,000 tokens each, weights 10^6 and 10^-6; the moments reach 10^13."""
    clocks = [
        Clock("a", EqualCosts(1000, 10_000), 1e6),
        Clock("b", EqualCosts(1000, 10_000), 1e-6),
    ]
    with within(1):
        merge = Merge(clocks, seed=0, midpoint=False)
        if way == "items":
            assert pairs(merge.items(19_000, 20_000))[-1] == (1, 9_999)
        else:
            assert merge.index(1, 9_999) == 19_999


# -- rounds --------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.lists(tame, min_size=1, max_size=6),
    st.integers(1, 23),
    st.booleans(),
    st.integers(1, 90),
    st.data(),
)
def test_rounds_are_differences_of_the_weights_loop(weights, block, shuffled, end, data):
    names = NAMES[: len(weights)]
    clocks = [Clock(n, EqualCosts(1, None), w) for n, w in zip(names, weights, strict=True)]
    slow = [begin(n, listed([1]), None, w) for n, w in zip(names, weights, strict=True)]
    picks = Loop(slow, seed=4, midpoint=True).run(end)
    expected = slow_rounds(picks, block, len(names), shuffled=shuffled, seed=4)

    def fresh():
        return Rounds(Merge(clocks, seed=4, midpoint=True), block, end, shuffled=shuffled, seed=4)

    assert pairs(fresh().items(0, end)) == expected
    first = data.draw(st.integers(0, end - 1))
    last = data.draw(st.integers(first + 1, end))
    assert pairs(fresh().items(first, last)) == expected[first:last]
    assert fresh().cut(first).tolist() == counts_at(expected, first, len(names))
    assert fresh().cut(end).tolist() == counts_at(expected, end, len(names))
    assert fresh().index(*expected[first]) == first


@given(st.integers(1, 7), st.integers(0, 40), st.integers(1, 20), st.none() | st.integers(0, 30))
def test_items_change_places_inside_whole_blocks_alone(block, first, count, end):
    stage = Stage(
        0, None if end is None else first + count + end, SimpleNamespace(block=block), None
    )
    low, high = stage.around(first, first + count)
    assert low == max(edge for edge in range(0, first + 1, block))
    whole = next(edge for edge in range(0, 99, block) if edge >= first + count)
    assert high == (whole if stage.end is None else min(whole, stage.end))
    assert stage.settled(first) == (first + 1 if block == 1 else low)
