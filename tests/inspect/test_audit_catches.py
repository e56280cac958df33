"""Every planted defect is caught, each in one row or one cell; the same run without it passes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from auditruns import SEQ_LEN, quietly, store_of
from planted import (
    PlantedRun,
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
from tokenloom.order.run import SourceRun


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The runs that defects are planted in."""
    root = tmp_path_factory.mktemp("planted")
    a, b = store_of(root / "a", 0), store_of(root / "b", 1)
    weighted = store_of(root / "w", 5, weights=True)
    windows = a.windows(SEQ_LEN, tail="keep").shuffle().epochs(3).seed(1)
    packed = a.pack(SEQ_LEN, strategy="greedy").shuffle().epochs(2).seed(1)
    sources = {"a": windows.epochs(2), "b": b.pack(SEQ_LEN).shuffle()}
    mix = tl.mix(sources, weights={"a": 3, "b": 1}).seed(5)
    specials = a.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2)
    return {
        "windows": windows,
        "packed": packed,
        "stride": a.pack(SEQ_LEN, stride=3).shuffle(),
        "specials": specials.render(pad_id=2).shuffle(),  # PAD is EOS
        "weighted": weighted.windows(SEQ_LEN).shuffle(),
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


def rows_of(run):
    return run.run.sources[0].rows


# -- defects of a plan: (run, what is planted, laws that must find it) ------------------------


def lost_row(run):
    n = len(run)
    return moved(run, {**{i: i + 1 for i in range(5, n - 1)}, n - 1: n - 2})


def swapped_epochs(run):
    rows = rows_of(run)
    return moved(run, {i: (i + rows) % (2 * rows) for i in range(2 * rows)})


def same_order_again(run):
    """Epoch 1 in the order of epoch 0, and told as epoch 1."""
    rows, inner = rows_of(run), run.run

    def back(indices):
        return np.where((indices >= rows) & (indices < 2 * rows), indices - rows, indices)

    return with_plan(
        run,
        locate=lambda i, told: (told[0], inner.locate(back(i))[1]),
        spans=lambda i, _: inner.spans(back(i)),
    )


def told_wrong_epoch(run):
    return with_plan(run, locate=lambda i, told: (told[0] + (i == 7), told[1]))


def told_wrong_item(run):
    return with_plan(run, pick=lambda i, told: (told[0], told[1] + (i == 7)))


def row_of_another_source(run):
    inner = run.run
    source, _ = inner.pick(np.arange(40))
    here, there = np.flatnonzero(source == 0)[3], np.flatnonzero(source == 1)[2]
    return with_plan(
        run, spans=lambda i, _: inner.spans(np.where(i == here, there, i).astype(np.int64))
    )


def one_early(run):
    """Two neighbours of different sources change places."""
    source, _ = run.run.pick(np.arange(len(run)))
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


def starved(run):
    """From index 60 on nothing comes of the second source."""
    inner = run.run
    source, item = inner.pick(np.arange(60))
    shown = int(item[source == 0][-1]) + 1
    alone = inner.sources[0]

    def pick(indices, told):
        late = indices >= 60
        return np.where(late, 0, told[0]), np.where(late, indices - 60 + shown, told[1])

    def place(indices):
        source, item = pick(indices, inner.pick(indices))
        return [alone.locate(item[source == 0]), inner.sources[1].locate(item[source == 1]), source]

    def locate(indices, _):
        first, second, source = place(indices)
        out = np.empty((2, len(indices)), np.int64)
        out[:, source == 0], out[:, source == 1] = first, second
        return out[0], out[1]

    def spans(indices, told):
        late = np.flatnonzero(indices >= 60)
        if not len(late):
            return told
        item = pick(indices, inner.pick(indices))[1]
        found = alone.spans(item[late])
        return found if len(late) == len(indices) else told

    return with_plan(run, pick=pick, locate=locate, spans=spans)


def quarantined_shown(run):
    """One row shows the document that was quarantined."""
    source = run.run.sources[0]
    bare = SourceRun(source.layout, source.epochs, source.working, source.n)
    index = np.arange(50, len(run))
    held = bare.spans(index)
    at = int(index[held.row[held.document == 3][0]])
    inner = run.run
    return with_plan(run, spans=lambda i, told: bare.spans(i) if at in i else inner.spans(i))


def hidden_early(run):
    """The quarantine starts with the last row before its edit that has the document."""
    source = run.run.sources[0]
    bare = SourceRun(source.layout, source.epochs, source.working, source.n)
    held = bare.spans(np.arange(50))
    at = int(held.row[held.document == 3][-1])
    early = source.hiding(source.blanks._replace(since=source.blanks.since * 0 + at))
    return with_plan(run, spans=lambda i, _: early.spans(i))


def up(value):
    return value + 1


def first_row(run, **changes):
    return with_plan(run, spans=span_changed(11, **changes))


PLANS = {
    "lost row": ("windows", lost_row, {"items", "rows", "coverage"}),
    "duplicate row": ("windows", lambda r: moved(r, {7: 6}), {"items"}),
    "duplicate row, told as its own": (
        "windows",
        lambda r: with_plan(r, spans=lambda i, _: r.run.spans(np.where(i == 7, 6, i))),
        {"spans"},
    ),
    "two rows swapped": ("windows", lambda r: moved(r, {3: 9, 9: 3}), {"items"}),
    "order of a row swapped": (
        "windows",
        lambda r: with_plan(
            r,
            locate=lambda i, t: (t[0], r.run.locate(np.where(i == 3, 9, i))[1]),
            spans=lambda i, _: r.run.spans(np.where(i == 3, 9, i)),
        ),
        {"order"},
    ),
    "epochs swapped": ("windows", swapped_epochs, {"items"}),
    "an order used again": ("windows", same_order_again, {"order", "fresh_orders"}),
    "epoch told wrong": ("windows", told_wrong_epoch, {"epochs"}),
    "item told wrong": ("windows", told_wrong_item, {"items"}),
    "row of another source": ("mix", row_of_another_source, {"spans"}),
    "item of a mix early": ("mix", one_early, {"mixture"}),
    "item of a mix shown twice": (
        "mix",
        lambda r: moved(r, {20: 19}),
        {"items"},
    ),
    "source starved": ("mix", starved, {"mixture"}),
    "one early across blocks": ("rounds", lambda r: moved(r, {15: 16, 16: 15}), {"mixture"}),
    "span lost": ("packed", lambda r: with_plan(r, spans=without_span(11)), {"spans", "coverage"}),
    "token lost at a start": (
        "packed",
        lambda r: first_row(r, start=up, address=up, length=lambda x: x - 1),
        {"spans", "coverage"},
    ),
    "token lost at an end": (
        "packed",
        lambda r: first_row(r, length=lambda x: x - 1),
        {"spans", "coverage"},
    ),
    "span moved in its frame": ("packed", lambda r: first_row(r, at=lambda x: x + 1), {"spans"}),
    "another document": (
        "packed",
        lambda r: first_row(r, document=lambda x: (x + 1) % 40),
        {"spans", "documents"},
    ),
    "a document that is not there": (
        "packed",
        lambda r: first_row(r, document=lambda x: 10**6),
        {"documents"},
    ),
    "another address": (
        "packed",
        lambda r: first_row(r, address=lambda x: x + 1),
        {"documents", "coverage"},
    ),
    "an address outside": (
        "packed",
        lambda r: first_row(r, address=lambda x: 10**9),
        {"documents"},
    ),
    "quarantined document shown": (
        "quarantined",
        quarantined_shown,
        {"quarantine", "spans"},
    ),
    "hidden before its quarantine": ("quarantined", hidden_early, {"spans"}),
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
    assert "mixture" in laws_broken(made, last=last, arrays=False)


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


# -- defects that every row of a layout shares ----------------------------------------------------


def with_layout(run, spans):
    """A run whose layout itself is wrong, so that rows agree with it."""
    source = run.run
    layout = copy.copy(source.layout)
    inner = source.layout.spans
    layout.spans = lambda epoch, rows: spans(inner(epoch, rows))
    made = copy.copy(run)
    made.__dict__["run"] = SourceRun(layout, source.epochs, source.working, source.n)
    return made


def shorter(spans):
    """The first piece of document 9 without its last token."""
    here = (spans.document == 9) & (spans.start == 0)
    return replace(spans, length=spans.length - here)


def twice(spans):
    """The piece of a document that follows its first one starts a token early."""
    here = spans.start > 0
    columns = {"start": spans.start - here, "address": spans.address - here}
    return replace(spans, length=spans.length + here, **columns)


@pytest.mark.parametrize("wrong", [lambda spans: spans.where(spans.document != 7), shorter, twice])
def test_a_layout_that_loses_or_repeats_a_token_is_found(runs, wrong):
    laws = laws_broken(with_layout(runs["packed"], wrong), arrays=False)
    assert laws == {"coverage"}  # rows agree with their layout; only the lengths tell


def test_a_splice_that_shows_another_start_is_found_by_the_closed_form(tmp_path):
    run = store_of(tmp_path / "a").splice(SEQ_LEN, content_length=5)
    assert audit_run(run).ok

    def late(spans):  # every row that starts a document shows its next token instead
        here = (spans.start == 0) & (spans.length < 5)
        return replace(spans, start=spans.start + here, address=spans.address + here)

    def again(spans):
        here = np.flatnonzero(spans.start == 1)[:1]
        start, address = spans.start.copy(), spans.address.copy()
        start[here] -= 1
        address[here] -= 1
        return replace(spans, start=start, address=address)

    assert "coverage" in laws_broken(with_layout(run, again), arrays=False)
    assert {"documents", "coverage"} & laws_broken(with_layout(run, late), arrays=False)


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


def joined_segments(start):
    def change(batch, row):
        batch.segment_ids[row, start:] = np.where(
            batch.segment_ids[row, start:] == 2, 1, batch.segment_ids[row, start:]
        )

    return change


def not_reset(start):
    def change(batch, row):
        batch.position_ids[row, start:] += start

    return change


def missing_edge(start):
    def change(batch, row):
        edge = row * SEQ_LEN + start
        batch.__dict__["cu_seqlens"] = batch.cu_seqlens[batch.cu_seqlens != edge]

    return change


def rows_swapped(batch, row):
    other = (row + 1) % len(batch)
    for name in ("tokens", "labels", "loss_mask", "segment_ids", "position_ids"):
        array = getattr(batch, name)
        array[[row, other]] = array[[other, row]]


def index_swapped(batch, row):
    other = (row + 1) % len(batch)
    batch.index = batch.index.copy()
    batch.index[[row, other]] = batch.index[[other, row]]


ARRAYS = {
    "foreign token": (lambda start, end: put("tokens", 0, lambda x: x ^ 1), "tokens"),
    "foreign padding": (lambda start, end: put("tokens", end, lambda x: x + 1), "tokens"),
    "labels shifted": (lambda start, end: rolled, "labels"),
    "one label of another token": (lambda start, end: put("labels", 1, lambda x: x + 1), "labels"),
    "label of padding": (lambda start, end: put("labels", end, 0), "labels"),
    "padding trained": (lambda start, end: put("loss_mask", end, True), "loss_mask"),
    "padding predicted": (lambda start, end: put("loss_mask", end - 1, True), "loss_mask"),
    "boundary trained": (lambda start, end: put("loss_mask", start - 1, True), "loss_mask"),
    "token left out": (lambda start, end: put("loss_mask", start, False), "loss_mask"),
    "documents joined": (lambda start, end: joined_segments(start), "segments"),
    "one cell of another segment": (
        lambda start, end: put("segment_ids", start - 1, 2),
        "segments",
    ),
    "padding with a segment": (lambda start, end: put("segment_ids", end, 2), "segments"),
    "an edge of cu_seqlens missing": (lambda start, end: missing_edge(start), "segments"),
    "positions not reset": (lambda start, end: not_reset(start), "positions"),
    "one position wrong": (lambda start, end: put("position_ids", 1, 0), "positions"),
    "rows swapped": (lambda start, end: rows_swapped, "tokens"),
    "indices swapped": (lambda start, end: index_swapped, "index"),
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


def inserted_eos(run):
    spans = run.spans(np.arange(len(run)))
    here = np.flatnonzero((spans.flags & 2) > 0)
    place = (spans.at + spans.cells - 1)[here]
    fits = np.flatnonzero(place < SEQ_LEN - 1)[0]
    return int(spans.row[here][fits]), int(place[fits])


def test_where_pad_is_eos_an_eos_that_is_masked_and_padding_that_is_trained_are_found(runs):
    run = runs["specials"]
    index, cell = inserted_eos(run)
    assert audit_run(run).ok
    masked = with_arrays(run, at_index(index, put("loss_mask", cell - 1, False)))
    assert "loss_mask" in laws_broken(masked)
    filler = run.batch([*range(len(run))]).segment_ids == 0
    row, column = (int(one[0]) for one in np.nonzero(filler))
    trained = with_arrays(run, at_index(row, put("labels", column, 2)))
    assert "labels" in laws_broken(trained)
    assert "tokens" in laws_broken(with_arrays(run, at_index(index, put("tokens", cell, 3))))


def test_a_token_trained_twice_and_a_weight_of_another_token_are_found(runs):
    run = runs["stride"]
    spans = run.spans(np.arange(len(run)))
    span = int(np.flatnonzero((spans.seen > 1) & (spans.at == 0))[0])
    again = with_arrays(run, at_index(int(spans.row[span]), put("loss_mask", 0, True)))
    assert audit_run(run).ok
    assert "loss_mask" in laws_broken(again)
    weighted = runs["weighted"]
    row, column = (int(one[0]) for one in np.nonzero(weighted.batch([0, 1, 2]).loss_weights))
    doubled = with_arrays(weighted, at_index(row, put("loss_weights", column, lambda x: 2 * x)))
    assert audit_run(weighted).ok
    assert "loss_weights" in laws_broken(doubled)


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
    assert isinstance(run.run, PlantedRun)
