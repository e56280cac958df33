"""Looking into a run: at, where, next, diff, simulate."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from lawbook import law
from random_runs import (
    SEQ_LEN,
    draw_run,
    draw_source,
    length_of,
    make_run,
    make_source,
    order_depends_on_labels,
    store_names,
)

import tokenloom as tl
from tokenloom.inspect import places, simulate_run, triples

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def cells_of_run(recipe, run, known, n):
    """(index, column, source, epoch, document, offset, label_only, blank) of every cell.

    From spans, one by one. Spans of hidden documents come from the same run without quarantines.
    """
    seen = make_run(recipe, known, blank=False)
    all_spans, shown = seen.spans(range(n)), run.spans(range(n))
    epochs = run.locate(range(n))[0].tolist()
    stores, cells = store_names(recipe), []
    visible = {(row, *span) for row, span in spans_of(shown, n)}
    for row, (document, start, length, at, flags) in spans_of(all_spans, n):
        name = all_spans.sources[int(all_spans.source[row])]
        blank = (row, document, start, length, at, flags) not in visible
        size = len(known[stores[name]].documents[document])
        offsets = [-1] * (flags & 1) + [*range(start, start + length)] + [size] * (flags >> 1 & 1)
        for column, offset in enumerate(offsets, at):
            only = column >= SEQ_LEN
            cells.append((row, column, name, epochs[row], document, offset, only, blank))
    return cells


def spans_of(spans, n):
    columns = [getattr(spans, x).tolist() for x in ("document", "start", "length", "at", "flags")]
    rows = list(zip(*columns, strict=True))
    return [(i, rows[k]) for i in range(n) for k in range(spans.frame[i], spans.frame[i + 1])]


@law(examples=0.6)
def test_at_has_every_cell_and_where_finds_each_and_no_other(known, draw):
    recipe, run = draw_run(draw, known)
    n = length_of(run)
    every = cells_of_run(recipe, run, known, n)
    found = [
        (one.index, cells.column + k, span.source, span.epoch, span.document, cells.start + k,
         cells.label_only, span.blank)
        for one in run.at(range(n))
        for span in one.spans
        for cells in span.cells
        for k in range(cells.length)
    ]  # fmt: skip
    assert Counter(found) == Counter(every)
    for name, store in store_names(recipe).items():
        for document in range(len(known[store].documents)):
            expected = [cell for cell in every if cell[2] == name and cell[4] == document]
            answer = run.where(name, document, before=n)
            if answer.reason is not None:
                assert not expected, answer.reason
            places = list(answer)
            assert [one.index for one in places] == sorted(one.index for one in places)
            listed = [
                (p.index, p.column + k, p.source, p.epoch, p.document, p.start + k, p.label_only,
                 p.blank)
                for p in places
                for k in range(p.length)
            ]  # fmt: skip
            assert Counter(listed) == Counter(expected)


@law
def test_steps_and_rows_of_places_are_those_of_a_loader(known, draw):
    _, run = draw_run(draw, known)
    batch_size = draw.randrange(1, 9)
    steps = length_of(run) // batch_size
    if not steps:
        return
    loader = tl.Loader(run, batch_size, untrained="zero")
    index_at = {}
    for step in range(steps):
        for row, index in enumerate(next(loader).index.tolist()):
            index_at[index] = step, row
    loader.close()
    step, row = draw.randrange(steps), draw.randrange(batch_size)
    one = run.at(step=step, row=row, batch_size=batch_size)
    assert index_at[one.index] == (step, row)
    name = one.source
    for span in one.spans:
        places = run.where(name, span.document, before=steps * batch_size, batch_size=batch_size)
        found = list(places)
        assert all(index_at[place.index] == (place.step, place.row) for place in found)
        assert one.index in {place.index for place in found}


@law(examples=2)
def test_next_is_the_first_place_after_an_index(known, draw):
    recipe, run = draw_run(draw, known)
    n = length_of(run)
    if not n:
        return
    name, store = draw.choice(list(store_names(recipe).items()))
    document = draw.randrange(len(known[store].documents))
    places = [one.index for one in run.where(name, document, before=n)]
    after = draw.randrange(n)
    later = [index for index in places if index > after]
    assert [one.index for one in run.where(name, document, after=after, before=n)] == later
    assert list(run.where(name, document, after=n + draw.randrange(-1, 5), before=n)) == []
    found = run.next(name, document, after=after, within=200)
    if later:
        assert found.index == later[0]
    elif run.is_finite and len(run) == n:
        assert not found


@law
def test_triples_are_the_splices_of_all_examples_and_places_find_each(known, draw):
    """Of a spliced source alone, whose epochs have equally many rows."""
    while True:
        source = draw_source(draw, ("first", "weighted"), lookahead=False)
        if source.layout != "splice" or {"doc_schedule", "doc_growth"} & source.options.keys():
            continue
        if isinstance(source.options.get("content_length"), dict):  # cuts epochs
            continue
        try:
            epochs = draw.randrange(1, 4)
            run = make_source(replace(source, epochs=epochs), known).seed(draw.randrange(9))
            n = len(run)
            break
        except tl.ConfigError:  # settings that do not go together
            continue
    if not n or n > 300:
        return
    found = triples(run)
    columns = (found.index.tolist(), found.document.tolist(), found.t.tolist())
    listed = list(zip(*columns, strict=True))
    shown = {(i, span[0]) for i, span in spans_of(run.spans(range(n)), n)}
    assert {pair[:2] for pair in listed} == shown
    for document, t in draw.sample(sorted({pair[1:] for pair in listed}), 1):
        expected = sorted({i for i, d, start in listed if (d, start) == (document, t)})
        assert places(run, document, t, epochs=epochs).tolist() == expected
        every = sorted({i for i, d, _ in listed if d == document})
        assert places(run, document, epochs=epochs).tolist() == every


@law(examples=0.6)
def test_diff_is_what_comparing_all_arrays_says(known, draw):
    _, one = draw_run(draw, known)
    _, other = draw_run(draw, known)
    last = max([60, *(e["at"] for run in (one, other) for e in run.describe().get("edits", []))])
    pair = [run if run.is_finite else run.take(last) for run in (one, other)]
    n = min(map(len, pair))
    shapes = {run.batch([0]).spans.width for run in pair} if n else set()
    if not n or len(shapes) > 1:
        return
    found = tl.diff(*pair)
    equal = equal_examples(*pair, n)
    assert found.share == equal.mean()
    assert found.is_exact
    if not equal.all():
        assert found.first == int(np.flatnonzero(~equal)[0])
    else:
        assert found.first == (None if len(pair[0]) == len(pair[1]) else n)


def equal_examples(one, other, n):
    """Which examples have the same cells and labels."""
    batches = [run.batch(range(n)) for run in (one, other)]
    equal = np.ones(n, bool)
    for name in ("tokens", "segment_ids", "position_ids"):
        a, b = (getattr(batch, name) for batch in batches)
        equal &= (a == b).all(axis=1)
    for read in (weights, labels):
        a, b = (read(batch) for batch in batches)
        equal &= (a == b).all(axis=1)
    a, b = (look_ahead(batch.spans) for batch in batches)
    return equal & [x == y for x, y in zip(a, b, strict=True)]


def look_ahead(spans):
    """(document, offset) of the cell of each row that is only a label; no array has it."""
    found = [None] * len(spans)
    for k, row in enumerate(spans.row.tolist()):
        last = int(spans.at[k]) + int(spans.cells[k])
        if last > SEQ_LEN:
            found[row] = int(spans.document[k]), int(spans.start[k]) + int(spans.length[k])
    return found


def weights(batch):
    return batch.loss_weights if batch.trained().any() else np.zeros(batch.shape)


def labels(batch):
    return batch.labels if batch.trained().any() else np.full(batch.shape, -100)


@law(examples=0.6)
def test_a_simulation_predicts_the_reads_that_a_loader_counts(known, draw):
    """A copy of the run with caches of its own stands for a fresh process."""
    recipe, run = draw_run(draw, known)
    batch_size, world = draw.randrange(2, 7), draw.choice([1, 2])
    steps = length_of(run, 48) // batch_size
    if not steps or order_depends_on_labels(recipe):  # plans read loss columns on their own
        return
    fetch, cache = draw.choice(["blocks", "rows", "auto"]), draw.choice([0, 300, 1 << 20])
    try:
        run = run.take(steps * batch_size)
        run.spans([])
    except tl.ConfigError:  # an edit comes later
        return
    found = simulate_run(
        run, batch_size=batch_size, ranks=world, cache_bytes=cache, fetch=fetch, prefetch=0
    )
    for rank in range(world):
        real = tl.from_config(json.loads(json.dumps(run.describe())), cache_bytes=cache)
        options = {"fetch": fetch, "prefetch": 0, "untrained": "zero"}
        with tl.Loader(real, batch_size, rank, world, **options) as loader:
            for _ in loader:
                pass
        counted, predicted = real.counters(), found.ranks[rank]
        assert predicted.reads == counted.read_ops
        assert predicted.bytes == counted.bytes
        assert predicted.useful_bytes == counted.useful_bytes
