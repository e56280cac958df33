"""Batch sizes that change, counted in examples; and batches folded for gradient accumulation."""

import itertools
import json

import pytest
from toyruns import close_all, joined, ranks_of, toy_run

import tokenloom as tl

SCHEDULE = [(0, 4), (40, 8)]


def slow_steps(schedule, count, start=0):
    """(start, size) of consecutive steps; each uses the last entry at or before its start."""
    found, begin = [], start
    for _ in range(count):
        size = [rows for examples, rows in schedule if examples <= begin][-1]
        found.append((begin, size))
        begin += size
    return found


def test_an_entry_that_no_step_begins_at_counts_from_the_next_step_on(store):
    with tl.Loader(toy_run(store), [(0, 4), (10, 8), (21, 2)], end="pad") as loader:
        sizes = [(int(b.index[0]), len(b)) for b in itertools.islice(loader, 6)]
    assert sizes == [(0, 4), (4, 4), (8, 4), (12, 8), (20, 8), (28, 2)]


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


def test_the_time_of_a_loader_runs_from_its_first_step(store):
    with tl.Loader(toy_run(store), 2) as loader:
        assert loader.stats().seconds == 0
        next(loader)
        assert loader.stats().seconds > 0
        assert loader.stats().cells_per_second > 0
