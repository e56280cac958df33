"""A mix of many sources that is visited once answers as the searches do, with fewer of them."""

import numpy as np
import pytest
from toyruns import toy_store

import tokenloom as tl
from tokenloom.inspect.simulate import repeats
from tokenloom.inspect.simulate.repeats import repeats_of
from tokenloom.inspect.simulate.visited import VisitedMix
from tokenloom.layout.allowance import at_most
from tokenloom.limits import limits
from tokenloom.loader.steps import Steps
from tokenloom.mixture.merge import Merge
from tokenloom.report.consumption import consumption_of, ends_of
from tokenloom.testing import tiny

SOURCES = limits().min_visited_sources + 4


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = toy_store(tmp_path_factory.mktemp("toy"))
    sources = {
        f"s{n:02d}": store.select(num_docs=1 + n % 5, doc_select_mode="random", seed=n)
        .pack(16)
        .shuffle()
        for n in range(SOURCES)
    }
    weights = {name: 1 + n % 3 for n, name in enumerate(sources)}
    by_tokens = tl.mix(sources, rule="least_consumed", weights=weights).seed(1)
    return {
        "tokens": by_tokens,
        "rounds": tl.mix(sources, rule="rounds", weights=weights).seed(2),
        "random": tl.mix(sources, rule="random", weights=weights).seed(2),
        "whole": by_tokens.shuffle(),
        "taken": by_tokens.take(101),
        "edited": by_tokens.edit(at=50, weights={"s03": 9.0}).edit(at=90, remove=["s05"]),
    }


NAMES = ("tokens", "rounds", "random", "whole", "taken", "edited")


@pytest.mark.parametrize("name", NAMES)
def test_items_are_found_where_they_come_and_others_nowhere(runs, name):
    run = runs[name].run
    first, last = 7, run.n - 5
    seen = VisitedMix(run, first, last)
    for number, source in enumerate(run.sources):
        items = np.arange(2 * source.rows + 3)
        index = run.index(number, items)
        inside = (index >= first) & (index < last)
        assert seen.index(number, items).tolist() == np.where(inside, index, -1).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_what_was_taken_at_marks_is_what_is_consumed(runs, name):
    run = runs[name].run
    marks = sorted({0, 1, 2, 50, 51, 90, run.n // 2, run.n - 1, run.n})
    marks = [mark for mark in marks if mark <= run.n]
    found = VisitedMix(run, 0, run.n).taken_at(marks)
    assert found == [tuple(run.consumed(mark)) for mark in marks]


@pytest.mark.parametrize("name", NAMES)
def test_reports_say_the_same_whether_a_mix_is_visited_or_searched(runs, name):
    def told():
        run = runs[name].run
        return (
            repeats_of(run, 0, run.n, Steps(4)),
            consumption_of(run, Steps(4), run.n // 4, run.n, 12),
            ends_of(run, run.n, range(SOURCES)),
        )

    looked_up = told()
    with tiny(visited_examples=0):
        assert told() == looked_up


def test_a_visited_mix_is_not_searched(runs, monkeypatch):
    """A search of a mix goes through all its sources: of a thousand, each takes 10 ms."""
    calls = []
    search = Merge.index
    monkeypatch.setattr(Merge, "index", lambda self, *one: calls.append(one) or search(self, *one))
    run = runs["tokens"].run
    repeats_of(run, 0, run.n, Steps(4))
    ends_of(run, run.n, range(SOURCES))
    assert not calls
    with tiny(visited_examples=0):
        ends_of(run, run.n, range(SOURCES))
        assert calls  # control


def test_in_a_hurry_the_sources_that_are_shown_most_are_followed(runs, monkeypatch):
    run = runs["tokens"].run
    with tiny(visited_examples=0):
        monkeypatch.setattr(repeats, "MOST_SOURCES", 3)
        with at_most():
            found = repeats_of(run, 0, run.n, Steps(4))
        shown = [one.rows for one in run.consumed(run.n)]
        followed = [shown[n] for n, one in enumerate(found) if one.documents]
        assert sorted(followed) == sorted(shown)[-3:]
        left = [one for one in found if not one.documents]
        assert len(left) == SOURCES - 3
        assert all("3 sources are shown more often" in one.note for one in left)
        assert [one.most for one in found] == [
            one.most for one in repeats_of(run, 0, run.n, Steps(4))
        ]
