"""Every planted defect is caught, each in one row or one cell; the same run without it passes."""

import numpy as np
import pytest
from auditruns import SEQ_LEN, quietly, store_of
from planted import (
    at_index,
    moved,
    put,
    span_changed,
    with_arrays,
    with_plan,
    without_span,
)

import tokenloom as tl
from tokenloom.inspect import audit_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The runs that defects are planted in."""
    root = tmp_path_factory.mktemp("planted")
    a, b = store_of(root / "a", 0), store_of(root / "b", 1)
    windows = a.windows(SEQ_LEN, tail="keep").shuffle().epochs(3).seed(1)
    packed = a.pack(SEQ_LEN, strategy="greedy").shuffle().epochs(2).seed(1)
    sources = {"a": windows.epochs(2), "b": b.pack(SEQ_LEN).shuffle()}
    mix = tl.mix(sources, weights={"a": 3, "b": 1}).seed(5)
    specials = a.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2)
    return {
        "windows": windows,
        "packed": packed,
        "specials": specials.render(pad_id=2).shuffle(),  # PAD is EOS
        "mix": mix,
        "other weights": tl.mix(sources, weights={"a": 3.05, "b": 1}).seed(5),
        "edited": mix.edit(at=40, weights={"b": 4}),
        "edited later": mix.edit(at=41, weights={"b": 4}),
        "quarantined": quietly(lambda: windows.edit(at=50, quarantine=[("main", 3)])),
        "rounds": tl.mix(sources, rule="rounds", weights={"a": 3, "b": 1}, block=16).seed(5),
    }


def laws_broken(run, **options):
    found = audit_run(run, **options)
    assert not found.ok
    return {name for name, law in found.laws.items() if law.broken}


# -- defects of a plan: (run, what is planted, laws that must find it) ------------------------


def lost_row(run):
    n = len(run)
    return moved(run, {**{i: i + 1 for i in range(5, n - 1)}, n - 1: n - 2})


def same_order_again(run):
    """Epoch 1 in the order of epoch 0, and said to be epoch 1."""
    rows, inner = run.run.sources[0].rows, run.run

    def back(indices):
        return np.where((indices >= rows) & (indices < 2 * rows), indices - rows, indices)

    return with_plan(
        run,
        locate=lambda i, answer: (answer[0], inner.locate(back(i))[1]),
        spans=lambda i, _: inner.spans(back(i)),
    )


def one_early(run):
    """Two neighbours of different sources change places."""
    source = np.array(run.picked(np.arange(len(run)))[0])
    at = int(np.flatnonzero(source[1:] != source[:-1])[5])
    return moved(run, {at: at + 1, at + 1: at})


def shown_instead(run, other):
    """A run that shows what another run has."""
    inner = other.run
    return with_plan(
        run,
        pick=lambda i, _: inner.pick(i),
        locate=lambda i, _: inner.locate(i),
        spans=lambda i, _: inner.spans(i),
    )


def quarantined_shown(run):
    """One row shows the document that was quarantined."""
    bare = tl.from_config({k: v for k, v in run.describe().items() if k != "edits"})
    index = np.arange(50, len(run))
    held = bare.spans(index)
    at = int(index[held.row[held.document == 3][0]])
    return with_plan(run, spans=lambda i, answer: bare.run.spans(i) if at in i else answer)


def first_span(run, **changes):
    return with_plan(run, spans=span_changed(11, **changes))


PLANS = {
    "lost row": ("windows", lost_row, {"items", "rows", "coverage"}),
    "duplicate row": ("windows", lambda r: moved(r, {7: 6}), {"items"}),
    "two rows swapped": ("windows", lambda r: moved(r, {3: 9, 9: 3}), {"items"}),
    "an order used again": ("windows", same_order_again, {"order"}),
    "item of a mix early": ("mix", one_early, {"items"}),
    "one early across blocks": ("rounds", lambda r: moved(r, {15: 16, 16: 15}), {"items"}),
    "span lost": ("packed", lambda r: with_plan(r, spans=without_span(11)), {"coverage"}),
    "token lost": ("packed", lambda r: first_span(r, length=lambda x: x - 1), {"coverage"}),
    "quarantined document shown": ("quarantined", quarantined_shown, {"quarantine"}),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_defect_of_the_plan_is_found_without_a_token(runs, name):
    kind, plant, laws = PLANS[name]
    assert audit_run(runs[kind], arrays=False).ok
    assert laws <= laws_broken(plant(runs[kind]), arrays=False)


@pytest.mark.parametrize(("kind", "other"), [("mix", "other weights"), ("edited", "edited later")])
def test_a_weight_that_drifts_and_an_edit_one_row_late_are_found(runs, kind, other):
    assert audit_run(runs[other], arrays=False).ok
    made = shown_instead(runs[kind], runs[other])
    last = min(len(runs[kind]), len(runs[other]))
    assert {"items", "mixture"} & laws_broken(made, last=last, arrays=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"at": lambda x: x + 1},
        {"document": lambda x: (x + 1) % 40},
        {"start": lambda x: x + 1, "length": lambda x: x - 1, "at": lambda x: x + 1},
    ],
)
def test_a_span_that_is_not_what_its_row_holds_is_found_by_the_tokens(runs, changes):
    assert "tokens" in laws_broken(first_span(runs["packed"], **changes))


def test_a_document_appended_one_row_early_is_found(tmp_path):
    def build(first, last, **options):
        rows = [{"text": chr(65 + i % 26) * (20 + 7 * i % 31)} for i in range(first, last)]
        return tl.build(rows, tmp_path / "w", tokenizer="bytes", progress=False, **options)

    run = build(0, 12).windows(16).shuffle().epochs(3)
    new = build(12, 20, append=True)
    right, early = (run.edit(at=at, append={"main": new}) for at in (20, 19))
    assert audit_run(right).ok
    assert audit_run(early).ok
    laws = laws_broken(shown_instead(right, early), last=min(len(right), len(early)), arrays=False)
    assert "order" in laws


# -- defects of arrays: (run, which index, what is changed, law) ----------------------------------


def boundary_row(run):
    """An index whose row has two documents, filler after them, and where the second starts."""
    spans = run.spans(np.arange(len(run)))
    counts = np.diff(spans.frame)
    for row in np.flatnonzero(counts >= 2).tolist():
        first = int(spans.frame[row])
        end = int((spans.at + spans.cells)[spans.frame[row + 1] - 1])
        if spans.cells[first] >= 2 and spans.cells[first + 1] >= 2 and end < SEQ_LEN:
            return row, int(spans.at[first + 1]), end
    raise AssertionError("no such row")


def rolled(batch, row):
    batch.labels[row] = np.roll(batch.labels[row], 1)


def joined_segments(batch, row):
    batch.segment_ids[row] = np.minimum(batch.segment_ids[row], 1)


ARRAYS = {
    "foreign token": (lambda start, end: put("tokens", 0, lambda x: x ^ 1), "tokens"),
    "labels shifted": (lambda start, end: rolled, "batch_laws"),
    "padding trained": (lambda start, end: put("loss_mask", end, True), "batch_laws"),
    "boundary trained": (lambda start, end: put("loss_mask", start - 1, True), "batch_laws"),
    "token left out": (lambda start, end: put("loss_mask", start, False), "batch_laws"),
    "documents joined": (lambda start, end: joined_segments, "batch_laws"),
    "padding with a segment": (lambda start, end: put("segment_ids", end, 2), "batch_laws"),
    "one position wrong": (lambda start, end: put("position_ids", 1, 0), "batch_laws"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_defect_of_one_cell_is_found(runs, name):
    change, law = ARRAYS[name]
    run = runs["packed"]
    index, start, end = boundary_row(run)
    spoiled = with_arrays(run, at_index(index, change(start, end)))
    assert law in laws_broken(spoiled)
    assert audit_run(spoiled, arrays=False).ok  # a plan has no arrays
    assert audit_run(run).ok


def test_where_pad_is_eos_padding_that_is_trained_is_found(runs):
    run = runs["specials"]
    assert audit_run(run).ok
    filler = run.batch([*range(len(run))]).segment_ids == 0
    row, column = (int(one[0]) for one in np.nonzero(filler))
    trained = with_arrays(run, at_index(row, put("labels", column, 2)))
    assert "batch_laws" in laws_broken(trained)


# -- samples ---------------------------------------------------------------------------------


def test_a_sample_finds_what_it_looks_at_and_says_what_it_may_miss(runs):
    run = runs["packed"]
    found = audit_run(run, sample=20)
    looked_at = [int(i) for some in found.scope.chunks(7) for i in some]
    outside = next(i for i in range(len(run)) if i not in looked_at)
    spoil = put("tokens", 0, lambda x: x ^ 1)
    assert "tokens" in laws_broken(with_arrays(run, at_index(looked_at[3], spoil)), sample=20)
    assert audit_run(with_arrays(run, at_index(outside, spoil)), sample=20).ok
    assert found.missed["1"] == pytest.approx(1 - 20 / len(run))


def test_an_audit_of_a_range_does_not_blame_what_is_outside(runs):
    run = moved(runs["windows"], {7: 6})
    assert "items" in laws_broken(run, first=7, last=8)
    assert audit_run(run, 8, 60).ok
