"""An audit passes on all our layouts, orders, mixes, edits and appends."""

import numpy as np
import pytest
from auditruns import LAYOUTS, ORDERS, RENDERS, SEQ_LEN, mixes, quietly, store_of

import tokenloom as tl
from tokenloom.inspect import audit_run


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("audited")
    made = {name: store_of(root / name, seed) for seed, name in enumerate("abc")}
    return made | {"weighted": store_of(root / "w", 5, weights=True)}


def passes(run, first=None, last=None, **options):
    found = audit_run(run, first, last, **options)
    assert found.ok, str(found)
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_in_every_order(stores, layout, order):
    made = quietly(lambda: ORDERS[order](LAYOUTS[layout](stores["a"])).seed(3).epochs(3))
    found = passes(made, arrays=order in ("full", "lanes"))
    assert found.laws["coverage"].looked_at > 0
    assert found.laws["rows"].looked_at == len(made)
    truth = found.counts["sources"]["main"]["truth"]
    assert ("closed form" in truth) == layout.startswith("splice")


@pytest.mark.parametrize("render", RENDERS)
@pytest.mark.parametrize(
    "layout", ["windows, tail", "windows, overlap", "pack, specials", "pack, stride", "splice"]
)
def test_every_way_of_rendering(stores, layout, render):
    made = quietly(
        lambda: LAYOUTS[layout](stores["a"]).shuffle().render(**RENDERS[render]).epochs(2)
    )
    found = passes(made)
    assert found.laws["labels"].looked_at == len(made) * SEQ_LEN


@pytest.mark.parametrize("layout", ["windows", "windows, overlap", "pack, specials", "splice"])
def test_stored_loss_weights(stores, layout):
    made = quietly(lambda: LAYOUTS[layout](stores["weighted"]).shuffle())
    assert passes(made).laws["loss_weights"].looked_at == len(made) * SEQ_LEN


def names():
    return [
        "least consumed",
        "weights",
        "weights by tokens",
        "loss tokens",
        "round robin",
        "rounds",
        "random",
        "first exhausted",
        "all exhausted",
        "capped",
        "initial",
        "take",
        "whole shuffle",
        "stages",
        "many epochs",
    ]


@pytest.mark.parametrize("name", names())
def test_every_mix(stores, name):
    made = quietly(mixes, stores)
    assert list(made) == names()
    run = made[name]
    found = passes(run)
    if name != "whole shuffle":
        assert found.laws["mixture"].looked_at >= len(run)
    passes(run, 5, len(run) - 3, arrays=False)
    passes(run, sample=20)


def test_rows_of_one_batch_are_rendered_in_two_ways(stores):
    packed = stores["b"].pack(SEQ_LEN, add_eos=True, eos_id=2).render(pad_id=9)
    spliced = quietly(lambda: stores["a"].splice(SEQ_LEN, content_length=5))
    passes(tl.mix({"p": packed.shuffle(), "s": spliced.shuffle()}))


def edited(stores, at):
    run = tl.mix(
        {"a": stores["a"].windows(SEQ_LEN).shuffle(), "b": stores["b"].pack(SEQ_LEN).shuffle()},
        weights={"a": 2, "b": 1},
    ).seed(5)
    joined = {"c": stores["c"].windows(SEQ_LEN).epochs(None)}
    run = run.edit(at=at, weights={"a": 1}, quarantine=[("a", 1), ("b", 4)])
    run = run.edit(at=at + 7, add=joined, weights={"c": 3})
    run = run.edit(at=at + 30, remove=["b"], quarantine=[("c", 2)])
    return run.take(200)


@pytest.mark.parametrize("at", [0, 1, 17, 64])
def test_edits_of_every_kind(stores, at):
    found = passes(quietly(edited, stores, at))
    assert found.laws["quarantine"].looked_at > 0


def build(path, first, last, **options):
    rows = [{"text": chr(65 + i % 26) * (20 + 7 * i % 31)} for i in range(first, last)]
    return tl.build(rows, path, tokenizer="bytes", progress=False, **options)


SLOW = [pytest.param(*one, marks=pytest.mark.slow) for one in ((0, 0), (7, 11), (40, 200))]
MOMENTS = [(7, 60), *SLOW]


@pytest.mark.parametrize(("at", "later"), MOMENTS)
@pytest.mark.parametrize("order", ["stored", "full", "block"])
@pytest.mark.parametrize("kind", ["windows", "pack"])
def test_appends_once_and_twice(tmp_path, kind, order, at, later):
    def laid_out(store):
        made = store.pack(16) if kind == "pack" else store.windows(16, tail="keep")
        return ORDERS[order](made)

    alone = laid_out(build(tmp_path / "w", 0, 12)).epochs(3)
    other = build(tmp_path / "o", 0, 9).windows(16).shuffle().epochs(None)
    mixed = tl.mix({"w": alone, "o": other}, weights={"w": 2}).seed(3)
    new = build(tmp_path / "w", 12, 20, append=True)
    newer = build(tmp_path / "w", 20, 26, append=True)
    one = alone.edit(at=at, append={"main": new})
    two = mixed.edit(at=at, append={"w": new}).edit(at=later, append={"w": newer})
    three = quietly(lambda: two.edit(at=later, quarantine=[("w", 13)]))
    for run in (one, two.take(300), three.take(300)):
        found = passes(run)
        assert found.laws["coverage"].looked_at > 0


def test_a_range_and_a_sample_of_an_endless_run(stores):
    run = stores["a"].pack(SEQ_LEN).shuffle().epochs(None)
    whole = passes(run)
    assert whole.scope.last == len(run.epochs(1))
    some = passes(run, 10**12, 10**12 + 500, sample=100)
    assert some.missed["1"] == 0.8
    assert some.laws["coverage"].verdict == "not looked at"
    assert "endless" in " ".join(some.not_looked_at)


def test_without_rows_and_of_a_single_row(stores):
    run = stores["a"].windows(SEQ_LEN).shuffle()
    assert passes(run, 3, 3).laws["rows"].verdict == "not looked at"
    assert passes(run, 3, 4).counts["rows"] == 1
    assert np.isclose(passes(run, sample=1).missed["1"], 1 - 1 / len(run))
