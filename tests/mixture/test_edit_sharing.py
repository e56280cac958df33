"""An edit is one more stage: the run is that of all edits at once; no earlier one is redone."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slowmix import SEQ_LEN, lengths_of, toy

import tokenloom as tl
from tokenloom.mixture import assemble, stages
from tokenloom.mixture.merge import Merge

pytestmark = pytest.mark.filterwarnings("ignore:edit.quarantine")


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    root = tmp_path_factory.mktemp("sharing")
    made = {
        name: toy(root / name, lengths_of(seed, 12 * SEQ_LEN), first=first)
        for seed, (name, first) in enumerate([("a", 1), ("b", 200), ("c", 400), ("d", 600)])
    }
    return {
        "a": made["a"].windows(SEQ_LEN).shuffle().epochs(4),
        "b": made["b"].pack(SEQ_LEN).block_shuffle().epochs(4),
        "c": made["c"].windows(SEQ_LEN, tail="keep").epochs(4),
        "d": made["d"].pack(SEQ_LEN).shuffle().epochs(4),
    }


def assert_same_run(one, other):
    """Whether two runs are the same wherever one can ask."""
    assert one.run.n == other.run.n
    assert one.fingerprint == other.fingerprint
    assert one.describe() == other.describe()
    every = np.arange(len(one))
    for a, b in zip(one.run.pick(every), other.run.pick(every), strict=True):
        assert a.tolist() == b.tolist()
    spans = one.spans(every), other.spans(every)
    assert spans[0].document.tolist() == spans[1].document.tolist()
    for n in (0, 1, len(one) // 2, len(one)):
        assert one.consumed(n) == other.consumed(n)
        assert one.run.arrays_digest(n) == other.run.arrays_digest(n)
    for number in range(len(one.sources)):
        items = np.arange(40)
        assert one.run.index(number, items).tolist() == other.run.index(number, items).tolist()


changes = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.25, 1.0, 3.0]), max_size=2),
        st.sampled_from(["", "", "c", "d"]),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15)
@given(st.sampled_from(["least_consumed", "weights"]), changes, st.integers(0, 3))
def test_edits_one_by_one_are_edits_all_at_once(some, rule, changes, seed):
    """A description is rebuilt from all its edits, which is the slow and obvious way."""
    run = tl.mix({"a": some["a"], "b": some["b"]}, rule=rule).seed(seed)
    at = 0
    for step, weights, add, hidden, removes in changes:
        at += step
        fresh = {add: some[add]} if add and add not in run.sources else {}
        live = [n for n in run.sources if not any(n in edit.remove for edit in run.edits)]
        gone = [n for n in live if n in "cd"] if removes else []
        known = {name: weight for name, weight in weights.items() if name in live}
        run = run.edit(at=at, weights=known, add=fresh, remove=gone, quarantine=hidden)
    again = tl.from_config(run.describe())
    assert again._before is None  # control: it shares nothing
    assert run._before is not None
    assert_same_run(run, again)


def test_a_run_of_one_source_shares_too(some):
    run = some["a"]
    for number in range(6):
        run = run.edit(at=3 * number, quarantine=[("main", number), ("main", number // 2)])
    assert_same_run(run, tl.from_config(run.describe()))


def test_the_run_before_an_edit_is_left_as_it_was(some):
    mixed = tl.mix({"a": some["a"], "b": some["b"]}).seed(1)
    first = mixed.edit(at=4, weights={"a": 2.0})
    before = [first.run.pick(np.arange(len(first))), first.consumed(9), len(first.run.stages)]
    first.edit(at=6, add={"d": some["d"]}, quarantine=[("a", 0)])
    after = [first.run.pick(np.arange(len(first))), first.consumed(9), len(first.run.stages)]
    assert before[0][0].tolist() == after[0][0].tolist()
    assert before[1:] == after[1:]
    assert all(run.blanks is None for run in first.run.sources)


@pytest.fixture
def counted(monkeypatch):
    """How many merges, sources and stages were made."""
    counts = dict.fromkeys(("merges", "sources", "cuts"), 0)

    def count(owner, name, what):
        original = getattr(owner, name)

        def wrapped(*args, **options):
            counts[what] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, wrapped)

    count(stages, "Merge", "merges")
    count(assemble, "source_run", "sources")
    count(Merge, "cut", "cuts")
    return counts


@pytest.mark.parametrize("kind", ["weights", "quarantine"])
def test_the_hundredth_edit_costs_what_the_tenth_does(some, counted, kind):
    run = tl.mix({n: some[n].epochs(None) for n in "ab"}).seed(0)
    costs = []
    for number in range(100):
        before = dict(counted)
        change = {"weights": {"a": 1.0 + number % 3}}
        if kind == "quarantine":
            change = {"quarantine": [("a", number % 4)]}
        run = run.edit(at=10 * number, **change)
        costs.append({name: counted[name] - before[name] for name in counted})
    assert costs[99] == costs[9]
    assert costs[99]["merges"] == 1
    assert costs[99]["sources"] == 0
    before = counted["merges"]
    again = tl.from_config(run.describe())  # control: it makes them all
    assert len(again.run.stages) == 101
    assert counted["merges"] - before == 101


def test_sources_that_join_one_by_one_make_one_stage_each(some, counted):
    run = tl.mix({"a": some["a"].epochs(None)}).seed(0)
    assert len(run.run.stages) == 1
    for number, source in zip(range(12), itertools.cycle("bd"), strict=False):
        before = dict(counted)
        run = run.edit(at=5 * number, add={f"s{number}": some[source].epochs(None)})
        assert counted["merges"] - before["merges"] == 1
        assert counted["sources"] - before["sources"] == 1
    sizes = [len(stage.merge.clocks) for stage in run.run.stages]
    assert sizes == list(range(1, 14))
    again = tl.from_config(run.describe())
    every = np.arange(300)
    assert run.run.pick(every)[0].tolist() == again.run.pick(every)[0].tolist()
    assert run.consumed(77) == again.consumed(77)
