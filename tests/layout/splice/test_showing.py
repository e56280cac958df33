"""Which choice comes when: exact counts, visits and the inverse; sums of edge weights; phases."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from slowsplice import edge_weights, slow_framed, slow_quotas

from tokenloom.errors import ConfigError
from tokenloom.layout.layout import Phases
from tokenloom.layout.splice.shares import (
    Edges,
    floor_sum,
    framed,
    largest_remainder,
    quotas,
    temperature_weights,
)
from tokenloom.layout.splice.slots import Slots
from tokenloom.layout.splice.turns import Edged, Even, Wrapped, _golden_steps

small = st.integers(1, 14)


def hold(way, choices, quota, epochs):
    """Choices of epochs from 0 on and the count of each; also checks visits and the inverse."""
    place, k = np.zeros(quota, np.int64), np.arange(quota)
    seen = np.zeros(choices, np.int64)
    for epoch in epochs:
        turn = np.full(quota, epoch)
        every = np.arange(choices)
        assert way.earlier(0 * every, every, epoch).tolist() == seen.tolist()
        found = way.choose(place, k, turn)
        assert ((found >= 0) & (found < choices)).all()
        for one, visit in zip(
            found.tolist(), way.visits(place, k, found, turn).tolist(), strict=True
        ):
            assert visit == seen[one]
            seen[one] += 1
        for one in range(choices):
            assert list(way.examples(0, one, epoch)) == np.flatnonzero(found == one).tolist()
    return seen


@given(small, small)
def test_even_choices_are_counted(choices, quota):
    way = Even(np.array([choices]), np.array([quota]))
    epochs = -(-choices // quota)
    assert (hold(way, choices, quota, range(epochs)) > 0).all()
    seen = hold(way, choices, quota, range(3 * choices))
    assert seen.max() == seen.min() == 3 * quota  # by then all are shown equally often


@given(small, small, st.integers(0, 10**15))
def test_far_epochs_show_the_same_counts(choices, quota, epoch):
    way = Even(np.array([choices]), np.array([quota]))
    found = way.choose(np.zeros(quota, int), np.arange(quota), np.full(quota, epoch))
    counts = np.bincount(found, minlength=choices)
    assert counts.max() - counts.min() <= 1
    ones = [k for one in range(choices) for k in way.examples(0, one, epoch)]
    assert sorted(ones) == list(range(quota))


@given(small, small)
def test_wrapped_choices_begin_again_where_they_ended(choices, quota):
    seen = hold(Wrapped(np.array([choices]), np.array([quota])), choices, quota, range(12))
    assert seen.max() - seen.min() <= 1


@pytest.mark.parametrize("make", [Even, Wrapped])
@given(st.lists(st.tuples(small, small), min_size=1, max_size=3), st.integers(0, 30), st.data())
def test_the_examples_that_show_a_stretch_of_choices_are_runs_and_are_counted(
    make, documents, epoch, data
):
    choices, quota = (np.array([one[i] for one in documents]) for i in (0, 1))
    ends = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in choices.tolist()]
    first, last = (np.array([one[i] for one in ends]) for i in (0, 1))
    way, place = make(choices, quota), np.arange(len(documents))
    shown = [
        [way.choose(np.full(q, d), np.arange(q), np.full(q, e)).tolist() for e in range(epoch + 1)]
        for d, q in enumerate(quota.tolist())
    ]
    before = [
        sum(a <= one < b for each in shown[d][:-1] for one in each) for d, (a, b) in enumerate(ends)
    ]
    assert way.shown(place, first, last, epoch).tolist() == before
    found = {
        (d, k)
        for d, low, high in zip(*way.runs(place, first, last, epoch), strict=True)
        for k in range(low, high)
    }
    assert found == {
        (d, k)
        for d, (a, b) in enumerate(ends)
        for k, one in enumerate(shown[d][-1])
        if a <= one < b
    }


def test_quotas_that_cannot_be_spread_exactly_are_refused_and_others_of_their_size_are_not():
    large = 1 << 31
    Even(np.array([large * 4]), np.array([large]))  # products of what is not common to both
    Even(np.array([(1 << 62) - 1]), np.array([1]))
    with pytest.raises(ConfigError, match=f"document 0 has {1 << 62:,} choices and a quota of 1,"):
        Even(np.array([1 << 62]), np.array([1]))
    with pytest.raises(ConfigError, match=f"document 1 has {large:,} choices"):
        Even(np.array([1, large]), np.array([1, large * 4 + 1]))


@given(
    st.integers(2, 9),
    st.integers(0, 25),
    st.integers(1, 4),
    st.sampled_from([0.3, 0.8, 1.0, 2.0]),
    st.integers(1, 20),
)
@settings(max_examples=60)
def test_edge_weights_are_sums_and_visits_are_counted(content, room, stride, alpha, quota):
    scale = 16.0
    weights = edge_weights(content + room, content, alpha, stride)
    rounded = np.maximum(1, np.rint(weights * scale).astype(np.int64))
    starts = len(rounded)
    sums = np.concatenate([[0], np.cumsum(rounded)])
    edges = Edges(content, stride, alpha, scale)
    here = np.full(starts + 1, room), np.full(starts + 1, starts)
    assert edges.before(np.arange(starts + 1), *here).tolist() == sums.tolist()
    assert edges.total(*(one[:1] for one in here)).tolist() == [sums[-1]]
    every = np.arange(sums[-1])
    right = np.searchsorted(sums, every, side="right") - 1
    same = np.full(len(every), room), np.full(len(every), starts)
    assert edges.at(every, *same).tolist() == right.tolist()
    way = Edged(edges, np.array([starts]), np.array([quota]), np.array([room]))
    seen = hold(way, starts, quota, range(40))
    expected = rounded / rounded.sum() * seen.sum()
    assert np.abs(seen - expected).max() < 8  # golden-ratio steps stay close at all times


def test_golden_steps_are_coprime_to_every_total_and_near_the_golden_ratio():
    totals = np.arange(1, 2000)
    steps = _golden_steps(totals)
    assert (np.gcd(steps, totals) == 1).all()
    assert (np.abs(steps - 0.618034 * totals)[9:] < 12).all()
    for total, step in zip(totals.tolist(), steps.tolist(), strict=True):
        tried = itertools.count(max(1, int(0.6180339886 * total)))
        assert step == next(one for one in tried if math.gcd(one, total) == 1), total


def test_all_weights_of_a_document_stay_below_two_to_the_thirty():
    for length, content, stride, alpha in (
        (10**6, 4096, 1, 0.8),
        (10**8, 4096, 1, 0.8),
        (10**6, 131_072, 1, 2.0),
        (5000, 4096, 7, 4.0),
        (4096, 4096, 1, 1.0),
    ):
        scale = Edges.scale_for(length, content, stride, alpha)
        room = np.array([length - content])
        total = Edges(content, stride, alpha, scale).total(room, room // stride + 1)
        assert 0 < int(total[0]) < 2**31
        assert math.log2(scale).is_integer()


@given(st.integers(0, 30), st.integers(1, 40), st.integers(0, 60), st.integers(-200, 200))
def test_floor_sums(n, m, a, b):
    found = floor_sum(*(np.array([one]) for one in (n, m, a, b)))
    assert found.tolist() == [sum((a * i + b) // m for i in range(n))]


def test_floor_sums_near_the_end_of_the_integers():
    n, m, a = 2**30 - 1, 2**30 - 35, 2**29 + 7
    b = -(2**59)
    found = int(floor_sum(*(np.array([one]) for one in (n, m, a, b)))[0])
    # in pieces, with Python's own integers
    total, step = 0, 2**18
    for low in range(0, 2**20, step):
        i = np.arange(low, low + step, dtype=object)
        total += int(((a * i + b) // m).sum())
    short = int(floor_sum(*(np.array([one]) for one in (2**20, m, a, b)))[0])
    assert short == total
    mean = Fraction(found, n)
    assert abs(mean - Fraction(a * (n - 1) + 2 * b, 2 * m)) < 1


# -- quotas --------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 60))
def test_quotas_add_up_and_keep_to_their_share(weights, total):
    if not any(weights):
        with pytest.raises(ConfigError, match="no document has a weight above 0"):
            largest_remainder(weights, total)
        return
    found = largest_remainder(weights, total)
    assert found.sum() == total
    exact = [Fraction(total * weight, sum(weights)) for weight in weights]
    assert all(abs(one - share) < 1 for one, share in zip(found.tolist(), exact, strict=True))
    assert found.tolist() == quotas(weights, total).tolist() == slow_quotas(weights, total)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    st.integers(0, 60),
    st.data(),
)
def test_what_a_capped_document_cannot_take_goes_to_the_others(weights, total, data):
    size = len(weights)
    caps = np.array(data.draw(st.lists(st.integers(0, 20), min_size=size, max_size=size)))
    found = quotas(weights, total, caps)
    assert (found <= caps).all()
    assert found.sum() == min(total, caps[np.array(weights) > 0].sum())
    assert found.tolist() == slow_quotas(weights, total, caps.tolist())


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=8),
    st.tuples(*[st.integers(1, 4)] * 3),
    st.integers(0, 30),
    st.data(),
)
def test_an_epoch_has_its_frames_and_they_go_to_groups_first(documents, sizes, frames, data):
    weights, block = ([one[i] for one in documents] for i in (0, 1))
    assume(any(weights))
    many = [sizes[one] for one in block]
    group = [(b, m) if m > 1 else (-1, i) for i, (b, m) in enumerate(zip(block, many, strict=True))]
    number = np.array([group.index(one) for one in group])
    held = st.none() | st.lists(st.integers(0, 20), min_size=len(block), max_size=len(block))
    caps = data.draw(held)
    found = framed(
        weights, frames, number, np.array(many), None if caps is None else np.array(caps)
    )
    assert found.tolist() == slow_framed(weights, frames, caps, block, many)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 2)), min_size=1))
def test_weights_are_in_proportion_to_the_measure_the_factors_and_the_mass_of_groups(documents):
    measure, factor, group = ([one[i] for one in documents] for i in range(3))
    heat = [Fraction(m * f) for m, f in zip(measure, factor, strict=True)]
    mass = {g: sum(h for h, own in zip(heat, group, strict=True) if own == g) for g in group}
    cases = {
        "plain": (temperature_weights(measure, 1), [Fraction(one) for one in measure]),
        "equal": (temperature_weights(measure, 0), [Fraction(one > 0) for one in measure]),
        "factors": (temperature_weights(measure, 1, factor), heat),
        "groups": (
            temperature_weights(measure, 1, factor, group),
            [h / (mass[g] or 1) for h, g in zip(heat, group, strict=True)],
        ),
        "equal factors": (
            temperature_weights(measure, 0, factor),
            [Fraction(f) if m else Fraction(0) for m, f in zip(measure, factor, strict=True)],
        ),
    }
    for name, (found, right) in cases.items():
        assert all(isinstance(one, int) for one in found), name
        assert [one > 0 for one in found] == [one > 0 for one in right], name
        if any(right):
            shares = [one / sum(found) for one in found]
            assert shares == pytest.approx([float(one / sum(right)) for one in right]), name


def test_a_document_with_any_measure_has_a_weight():
    assert temperature_weights([10**15, 1, 0], 2.0) == [2**40, 1, 0]
    assert temperature_weights([], 0.5) == temperature_weights([], 1) == []
    assert temperature_weights([0, 0], 0.5) == [0, 0]


def test_groups_have_equal_mass_whatever_their_number():
    weights = temperature_weights([10] * 9 + [10], 1.0, groups=["a"] * 9 + ["b"])
    assert largest_remainder(weights, 180).tolist() == [10] * 9 + [90]


# -- slots ---------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=9),
    st.integers(0, 10**9),
)
def test_every_unit_stands_in_one_row_and_is_found_there(documents, epoch):
    quota = np.array([q for q, _ in documents])
    together = np.array([m for _, m in documents])
    block = np.arange(len(documents)) // 3
    slots = Slots(quota, block, together)
    rows = np.arange(slots.rows)
    turn = np.full(len(rows), epoch)
    frame, document, unit = slots.units(rows, turn)
    wanted = sorted((d, k) for d, q in enumerate(quota.tolist()) for k in range(q))
    assert sorted(zip(document.tolist(), unit.tolist(), strict=True)) == wanted
    back = slots.rows_of(document, unit, np.full(len(unit), epoch))
    assert back.tolist() == rows[frame].tolist()
    for row in rows.tolist():
        inside = document[frame == row]
        assert len({(int(block[d]), int(together[d])) for d in inside}) <= 1
        assert len(inside) <= together[inside].max(initial=1)
    assert slots.block_row[-1] == slots.rows


# -- phases --------------------------------------------------------------------------------


def test_the_worked_example_of_phases():
    phases = Phases.by_example([0, 25], [10, 4])
    epoch, inside = phases.locate(np.array([0, 9, 10, 20, 24, 25, 28, 29, 32]))
    assert epoch.tolist() == [0, 0, 1, 2, 2, 3, 3, 4, 4]
    assert inside.tolist() == [0, 9, 0, 0, 4, 0, 3, 0, 3]
    assert [phases.start(e) for e in range(5)] == [0, 10, 20, 25, 29]
    assert phases.end(2) == 33  # epochs of the last phase


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 7)), min_size=1, max_size=4),
    st.booleans(),
)
def test_phases_equal_the_loop(parts, by_epoch):
    steps = [0, *np.cumsum([step for step, _ in parts]).tolist()][:-1]
    rows = [size for _, size in parts]
    phases = (Phases.by_epoch if by_epoch else Phases.by_example)(steps, rows)
    wanted, epoch = [], 0
    for number, size in enumerate(rows):
        last = number == len(rows) - 1
        if by_epoch:
            count = 3 if last else steps[number + 1] - steps[number]
            for _ in range(count):
                wanted += [(epoch, i) for i in range(size)]
                epoch += 1
        else:
            left = 3 * size if last else steps[number + 1] - steps[number]
            while left > 0:
                wanted += [(epoch, i) for i in range(min(size, left))]
                left, epoch = left - size, epoch + 1
    found = phases.locate(np.arange(len(wanted)))
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted
    for number in {e for e, _ in wanted}:
        assert phases.start(number) == wanted.index((number, 0))
    assert phases.end(3 + (steps[-1] if by_epoch else 0)) == len(wanted)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4),
    st.booleans(),
)
def test_phases_are_a_loop_over_examples(sizes, by_epoch):
    """`sizes`: rows of each phase, and how long it lasts, in epochs or in examples."""
    rows, lasts = ([one[i] for one in sizes] for i in (0, 1))
    begins = [0, *np.cumsum(lasts[:-1]).tolist()]
    phases = (Phases.by_epoch if by_epoch else Phases.by_example)(begins, rows)
    wanted, firsts, of = [], [], []  # (epoch, inside) of examples; of each epoch start and phase
    for phase, (size, last) in enumerate(zip(rows, lasts, strict=True)):
        count = 40 if phase + 1 == len(rows) else last * size if by_epoch else last
        for inner in range(count):
            if inner % size == 0:
                firsts.append(len(wanted))
                of.append(phase)
            wanted.append((len(firsts) - 1, inner % size))
    every = np.arange(len(wanted))
    assert [phases.place(k) for k in every.tolist()] == wanted
    epoch, inside = phases.locate(every)
    assert list(zip(epoch.tolist(), inside.tolist(), strict=True)) == wanted
    assert [phases.start(e) for e in range(len(firsts))] == firsts
    assert phases.of(np.arange(len(of))).tolist() == of
    assert [int(phases.of(e)) for e in range(len(of))] == of
    assert len(phases) == len(rows)
    counted = 0 if by_epoch else of.index(len(rows) - 1)  # a run counts those of the last phase
    ends = [*firsts[counted:], len(wanted)][: len(firsts) - counted]
    assert [phases.end(e) for e in range(len(ends))] == ends
    assert Phases.constant(7).end(3) == 21
