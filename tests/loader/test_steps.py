"""Batch sizes that change, counted in examples; and batches folded for gradient accumulation."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toyruns import close_all, joined, ranks_of, toy_run

import tokenloom as tl
from tokenloom.loader import maker as maker_module
from tokenloom.loader.steps import Steps
from tokenloom.testing import assert_elastic, assert_resumable, tiny

SCHEDULE = [(0, 4), (40, 8)]


def slow_steps(schedule, count, start=0):
    """(start, size) of consecutive steps; each uses the last entry at or before its start."""
    found, begin = [], start
    for _ in range(count):
        size = [rows for examples, rows in schedule if examples <= begin][-1]
        found.append((begin, size))
        begin += size
    return found


SCHEDULES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=5).map(
    lambda gaps: [
        (start, size)
        for start, (_, size) in zip(
            [0, *itertools.accumulate(gap for gap, _ in gaps[1:])], gaps, strict=True
        )
    ]
)


@given(SCHEDULES, st.integers(0, 100), st.integers(0, 50))
def test_steps_are_those_of_a_loop(schedule, start, first):
    wanted = slow_steps(schedule, 60, start)
    steps = Steps(schedule, (first, start))
    assert [(steps.begin(first + s), steps.size(first + s)) for s in range(60)] == wanted
    begins = {begin: first + s for s, (begin, _) in enumerate(wanted)}
    every = range(start, wanted[-1][0])
    for example in every:
        assert steps.step_at(example) == begins.get(example)
    holds = [first + s for s, (_, size) in enumerate(wanted[:-1]) for _ in range(size)]
    assert [steps.step_of(example) for example in every] == holds
    assert steps.steps_of(np.array(every, np.int64)).tolist() == holds
    for step in range(first, first + 60):
        end = steps.stretch_end(step)
        assert end > step
        assert len({steps.size(s) for s in range(step, min(end, step + 99))}) == 1


@given(SCHEDULES, st.integers(0, 200))
def test_the_number_of_steps_is_that_of_a_loop(schedule, examples):
    steps = Steps(schedule)
    begins = [begin for begin, _ in slow_steps(schedule, 300) if begin < examples]
    ends = [begin for begin, size in slow_steps(schedule, 300) if begin + size <= examples]
    assert steps.count(examples, partial=True) == len(begins)
    assert steps.count(examples, partial=False) == len(ends)


def test_an_entry_that_no_step_begins_at_counts_from_the_next_step_on(store):
    with tl.Loader(toy_run(store), [(0, 4), (10, 8), (21, 2)], end="pad") as loader:
        sizes = [(int(b.index[0]), len(b)) for b in itertools.islice(loader, 6)]
    assert sizes == [(0, 4), (4, 4), (8, 4), (12, 8), (20, 8), (28, 2)]


def test_a_schedule_resumes_at_every_step_and_in_every_world(store):
    for kind in ("full", "lanes 3"):
        assert_resumable(toy_run(store, kind), batch_size=SCHEDULE, steps=18)
        assert_elastic(toy_run(store, kind), (1, 2, 4), batch_size=SCHEDULE, steps=14)


@pytest.mark.parametrize("at", [3, 10, 12])
@pytest.mark.parametrize("other", [6, [(0, 4), (40, 8)], [(0, 3), (20, 7), (70, 16)], [(0, 111)]])
def test_a_run_goes_on_with_another_schedule(store, at, other):
    dataset = toy_run(store)
    state = tl.Loader(dataset, SCHEDULE).seek(at).state_dict()
    start = state["examples"]
    loader = tl.Loader(dataset, other, end="pad")
    loader.load_state_dict(json.loads(json.dumps(state)))
    assert loader.examples == start
    pairs = [(0, other)] if isinstance(other, int) else other
    wanted = [(b, s) for b, s in slow_steps(pairs, 100, start) if b < 111]
    assert len(loader) == len(wanted)
    found = [(int(batch.index[0]), len(batch)) for batch in loader]
    assert found == wanted
    assert loader.examples == 111


@pytest.mark.parametrize(
    "batch_size",
    [
        0,
        -1,
        True,
        4.0,
        "4",
        None,
        [],
        [(0, 0)],
        [(1, 4)],
        [(0, 4), (0, 8)],
        [(0, 4), (9, 8), (5, 2)],
        [(0, 4), (10.5, 8)],
        [(0, 4), (10, True)],
        [(0, 4, 4)],
        [4, 8],
        {"0": 4},
    ],
)
def test_what_is_no_batch_size_is_a_config_error(store, batch_size):
    with pytest.raises(tl.ConfigError, match="batch_size: found"):
        tl.Loader(toy_run(store), batch_size)


def test_numbers_of_numpy_are_numbers(store):
    with tl.Loader(toy_run(store), np.int64(4)) as loader:
        assert next(loader).index.tolist() == [0, 1, 2, 3]
    with tl.Loader(toy_run(store), [*np.array([[0, 4], [40, 8]])]) as loader:
        assert len(loader) == 18
        json.dumps(loader.state_dict())


def test_a_schedule_that_jumps_plans_only_the_steps_before_it(store):
    """8,192 steps of a row each were once planned together with those of a million after them."""
    dataset = toy_run(store, epochs=None)
    with tl.Loader(dataset, [(0, 1), (8, 1_000_000)], prefetch=0) as loader:
        assert [next(loader).index.tolist() for _ in range(8)] == [[i] for i in range(8)]
        assert len(loader._maker._planned[0].plan.indices) == 8


@pytest.mark.parametrize("kind", ["full", "lanes 3"])
@pytest.mark.parametrize(
    ("batch_size", "rank", "world"),
    [(1, 0, 1), (4, 0, 1), (5, 1, 2), (7, 2, 3), (64, 0, 1), (64, 1, 2), ([(0, 4), (24, 8)], 0, 1)],
)
@tiny(plan_examples=12, lane_sort_examples=10)
def test_as_many_steps_are_planned_together_as_are_allowed(store, kind, batch_size, rank, world):
    """At least one: those of a rank's rows, and with lanes also of all rows, that are allowed."""
    with tl.Loader(toy_run(store, kind), batch_size, rank, world, prefetch=0) as loader:
        maker, last = loader._maker, len(loader)
        for step, most in itertools.product(range(last), (1, 2, 3, 100)):
            size = maker.steps.size(step)
            own = len(range(rank * size // world, (rank + 1) * size // world))
            allowed = [
                many
                for many in range(1, most + 1)
                if many * own <= 12
                and (kind == "full" or many * size <= 10)
                and step + many <= last
                and maker.steps.size(step + many - 1) == size
            ]
            made = maker._new_plan(step, most)
            assert (made.first, made.stop) == (step, step + max(allowed, default=1))
            rows = np.diff(made.cuts).tolist()
            assert rows == [own] * len(rows)
            assert len(rows) == made.stop - step
            assert made.cuts[0] == 0
            assert made.cuts[-1] == len(made.plan.indices)


def test_a_single_step_is_made_alone_and_planned_with_its_neighbours(store, monkeypatch):
    maker, asked = tl.Loader(toy_run(store), 4, prefetch=0)._maker, []
    real = maker_module.Maker.batches

    def batches(self, first, count):
        asked.append((first, count))
        return real(self, first, count)

    monkeypatch.setattr(maker_module.Maker, "batches", batches)
    assert maker.batch_at(5).index.tolist() == [20, 21, 22, 23]
    assert maker.batch_at(6).index.tolist() == [24, 25, 26, 27]
    assert asked == [(5, 1), (6, 1)]
    (planned,) = maker._planned
    assert (planned.first, planned.stop) == (5, 27), "to the end of the run"


# -- gradient accumulation -----------------------------------------------------------------


def test_accumulation_changes_neither_state_nor_resume(store):
    dataset = toy_run(store)
    with tl.Loader(dataset, 6, accumulate=3) as loader:
        next(loader)
        state = loader.state_dict()
    flat = tl.Loader(dataset, 6)
    flat.load_state_dict(state)
    assert next(flat).index.tolist() == [6, 7, 8, 9, 10, 11]
    flat.close()


def test_accumulation_divides_the_share_of_a_rank(store):
    dataset = toy_run(store)
    ranks = ranks_of(dataset, 12, 3, accumulate=2)
    assert next(ranks[1]).index.tolist() == [[4, 5], [6, 7]]
    assert joined(ranks[:1] + ranks[2:])[0] == [0, 1, 2, 3, 8, 9, 10, 11]
    close_all(ranks)


@pytest.mark.parametrize(
    ("batch_size", "rank", "world", "groups"),
    [(6, 0, 1, 4), (6, 0, 1, 0), (6, 0, 1, -2), (7, 2, 3, 2), ([(0, 4), (40, 6)], 0, 1, 4)],
)
def test_groups_that_do_not_divide_the_rows_are_refused(store, batch_size, rank, world, groups):
    with pytest.raises(tl.ConfigError, match=f"accumulate: found {groups}"):
        tl.Loader(toy_run(store), batch_size, rank, world, accumulate=groups)


def test_the_time_of_a_loader_runs_from_its_first_step(store):
    with tl.Loader(toy_run(store), 2) as loader:
        assert loader.stats().seconds == 0
        next(loader)
        assert loader.stats().seconds > 0
        assert loader.stats().cells_per_second > 0
