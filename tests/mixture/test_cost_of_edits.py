"""What edits cost."""

import pytest
from mixtoys import four_sources, picks_of

import tokenloom as tl
from tokenloom.mixture import assemble, stages

pytestmark = pytest.mark.filterwarnings("ignore:edit.quarantine")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return four_sources(tmp_path_factory.mktemp("edits"))


@pytest.mark.parametrize("kind", ["weights", "quarantine"])
def test_the_hundredth_edit_costs_what_the_tenth_does(four, kind, monkeypatch):
    """Merges and sources that are made; a description makes them all again."""
    counts = {"merges": 0, "sources": 0}

    def count(owner, name, what):
        original = getattr(owner, name)

        def wrapped(*args, **options):
            counts[what] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, wrapped)

    count(stages, "Merge", "merges")
    count(assemble, "source_run", "sources")
    run, costs = tl.mix({n: four[n].epochs(None) for n in ("wiki", "web")}).seed(0), []
    for number in range(100):
        before = dict(counts)
        change = {"weights": {"wiki": 1.0 + number % 3}}
        if kind == "quarantine":
            change = {"quarantine": [("wiki", number % 4)]}
        run = run.edit(at=10 * number, **change)
        len(run.picked(range(10))[0])
        costs.append({name: counts[name] - before[name] for name in counts})
    assert costs[99] == costs[9]
    assert costs[99]["merges"] <= 1
    assert costs[99]["sources"] == 0
    before = counts["merges"]
    again = tl.from_config(run.describe())
    assert picks_of(again, 0, 1100) == picks_of(run, 0, 1100)
    assert counts["merges"] - before == 101, "the control"
