"""Edits: what came before stays, and what comes after is what was asked for."""

import json
from collections import Counter

import pytest
from known_stores import build
from lawbook import law
from random_runs import Recipe, Source, draw_run, length_of, make_run
from test_order_laws import rows_of

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@law
def test_an_edit_keeps_every_example_before_it(known, draw):
    recipe, run = draw_run(draw, known)
    if not recipe.edits:
        return
    before = make_run(Recipe(recipe.sources, recipe.seed, recipe.mix, recipe.edits[:-1]), known)
    at = recipe.edits[-1]["at"]
    if before.is_finite and len(before) < at:
        return
    if at:
        assert run.digest(0, at) == before.digest(0, at)
        assert run.plan_digest(0, at) == before.plan_digest(0, at)


@law
def test_a_state_from_before_an_edit_loads_and_one_from_behind_it_does_not(known, draw):
    recipe, run = draw_run(draw, known)
    if not recipe.edits or recipe.take:
        return
    before = make_run(Recipe(recipe.sources, recipe.seed, recipe.mix, recipe.edits[:-1]), known)
    at, n = recipe.edits[-1]["at"], length_of(before)
    if not n or not length_of(run):
        return
    loader = tl.Loader(before, 1, untrained="zero")
    for examples in {0, at, min(at + 1, n), min(at + 5, n)}:
        if examples > n:
            continue
        loader.seek(examples)
        state = json.loads(json.dumps(loader.state_dict()))
        edited = tl.Loader(run, 1, untrained="zero")
        if examples <= at:
            edited.load_state_dict(state)
            assert edited.state_dict()["examples"] == examples
            following = next(edited, None)
            assert following is None or following.index.tolist() == [examples]
        else:
            with pytest.raises(tl.StateError):
                edited.load_state_dict(state)
        edited.close()
    loader.close()


@law
def test_an_empty_edit_changes_nothing(known, draw):
    recipe, run = draw_run(draw, known)
    if recipe.shuffled or (recipe.mix and recipe.mix["rule"] in ("rounds", "random")):
        return
    n = length_of(run)
    last = recipe.edits[-1]["at"] if recipe.edits else max((recipe.mix or {}).get("stages", [0]))
    at = draw.randrange(last, max(n, last) + 1)
    if run.is_finite and at > len(run):
        return
    assert run.edit(at=at).digest(0, n) == run.digest(0, n)


@law
def test_after_an_append_every_epoch_has_the_old_rows_and_the_new(known, draw):
    """The running epoch gets the new rows once, and each later one has all of both."""
    layout, options = draw.choice(
        [
            ("windows", {"tail": draw.choice(["drop", "keep"])}),
            ("pack", {"group_docs": draw.choice([3, 10_000]), "strategy": "greedy"}),
            ("pack", {"strategy": "best_fit_decreasing"}),
        ]
    )
    order = draw.choice(["stored", "full", "era", "cut block", "lanes"])
    render = {"pad_id": 0}
    old = Source("first", layout, options, order=order, epochs=None, render=render)
    run = make_run(Recipe({"main": old}, seed=draw.randrange(9)), known)
    stored = Source("first", layout, options, epochs=1, render=render)
    rows = len(make_run(Recipe({"main": stored}), known))
    at = draw.randrange(2 * rows)
    grown = run.edit(at=at, append={"main": known["second"].store})
    epochs = grown.locate(range(at + 200))[0]
    ended = [e for e in range(int(epochs.max())) if e > epochs[max(0, at - 1)]]
    every = rows_of(grown, 0, at + 200)
    by_epoch = [[row for row, e in zip(every, epochs, strict=True) if e == n] for n in ended]
    if len(by_epoch) > 1:
        full = Counter(by_epoch[-1])
        assert all(Counter(one) == full for one in by_epoch[1:])
        old_rows = Counter(rows_of(make_run(Recipe({"main": stored}), known), 0, rows))
        assert old_rows <= full, "every row of the documents that were there"
        new = {document for row in full for document, *_ in row}
        assert new >= {d for d in range(14, 19) if len(known["second"].documents[d]) > 8}


@law
def test_a_source_that_joins_does_not_dominate(known, draw):
    """It starts at the current virtual time: from there on it gets its share, no more."""
    a, b = (
        Source(store, "windows", {"tail": "drop"}, order="full", epochs=None, render={"pad_id": 0})
        for store in ("third", "other")
    )
    mix = {"rule": draw.choice(["least_consumed", "weights"]), "cost": "rows", "stop": "restart"}
    at, weight = draw.randrange(80), draw.choice([1, 2])
    run = make_run(Recipe({"a": a}, 3, mix | {"weights": {"a": weight}}), known)
    joined = run.edit(at=at, add={"b": make_run(Recipe({"main": b}), known)})
    counts = Counter()
    for name in joined.batch(range(at, at + 60)).source:
        counts[name] += 1
        total = sum(counts.values())
        assert abs(counts["b"] - total / (1 + weight)) <= 1.5


def test_a_run_without_rows_may_grow(known, tmp_path):
    """All of its documents are too short; those that are appended are not."""
    short = build(tmp_path / "store", [[1, 2], [3]])
    run = short.pack(8, min_row_len=5).epochs(1)
    assert len(run) == 0
    store = build(tmp_path / "store", [[4, 5, 6, 7, 8, 9]], first=2, append=True)
    grown = run.edit(at=0, append={"main": store})
    assert grown.batch(range(len(grown))).tokens.tolist() == [[4, 5, 6, 7, 8, 9, 0, 0]]
