"""What is in a row: tokens, boundaries, labels."""

import numpy as np
import pytest
from lawbook import law
from random_runs import (
    BOS,
    EOS,
    SEQ_LEN,
    draw_run,
    length_of,
    make_run,
    order_depends_on_labels,
    sources_of,
    store_names,
)
from slow_examples import SlowRun

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

CELLS = ("tokens", "loss_mask", "loss_weights", "segment_ids", "position_ids", "attention_mask")
EOS_BEFORE = 16  # a flag of spans
PADDED = {"document_starts": -1, "continues": False}


def array_of(batch, name):
    """An array of a batch; labels and weights of a batch that trains nothing are None."""
    if name == "loss_mask":
        return batch.trained()
    try:
        return getattr(batch, name)
    except tl.NoTrainedTokens:
        return None


def flat_edges(rows):
    """cu_seqlens of rows that each say where their segments begin."""
    edges = [row * SEQ_LEN + first for row, starts in enumerate(rows) for first in starts]
    return [*edges, len(rows) * SEQ_LEN]


@law(examples=4)
def test_every_array_is_what_the_recipe_says(known, draw):
    """Layouts, orders, epochs, mixes, edits and rendering against loops over documents."""
    recipe, run = draw_run(draw, known)
    slow = SlowRun(recipe, known)
    wanted = slow.examples(70)
    assert (len(run) if run.is_finite else 70) == len(wanted) or len(wanted) == 70
    if not wanted:
        assert run.is_finite
        return
    batch = run.batch(range(len(wanted)))
    assert batch.source == [source.name for source, _ in wanted]
    rows = [source.arrays(pieces) for source, pieces in wanted]
    for name in ("labels", *CELLS):
        array = array_of(batch, name)
        expected = [row[name] for row in rows]
        if array is None:
            assert not any(any(row["loss_mask"]) for row in rows)
        else:
            assert array.tolist() == expected, name
    if any({"trailing", "attend_prefix"} & one.source.render.keys() for one, _ in wanted):
        return  # borders of filler that belongs to a document are not those of segments
    assert batch.cu_seqlens.tolist() == flat_edges([row["cu_seqlens"] for row in rows])
    for name, filler in PADDED.items():
        array = getattr(batch, name)
        widest = max([1, *(len(row[name]) for row in rows)])
        expected = [row[name] + [filler] * (widest - len(row[name])) for row in rows]
        assert array.tolist() == expected, name


@law(examples=2)
def test_a_batch_of_any_indices_is_its_rows_one_by_one(known, draw):
    _, run = draw_run(draw, known)
    n = length_of(run)
    if not n:
        return
    wanted = [draw.randrange(n) for _ in range(draw.randrange(1, 12))]
    together = run.batch(wanted)
    assert together.index.tolist() == wanted
    singles = [run[index] for index in wanted]
    for name in CELLS:
        array = array_of(together, name)
        for row, one in enumerate(singles):
            alone = array_of(one, name)
            if alone is not None and array is not None:
                assert alone.dtype == array.dtype
                assert alone[0].tolist() == array[row].tolist(), (name, row)
    assert together.source == [one.source[0] for one in singles]
    for name, filler in PADDED.items():
        for row, one in enumerate(singles):
            short = getattr(one, name)[0].tolist()
            long = getattr(together, name)[row].tolist()
            assert long == short + [filler] * (len(long) - len(short)), name
    starts = [one.cu_seqlens[:-1].tolist() for one in singles]
    assert together.cu_seqlens.tolist() == flat_edges(starts)
    spans = together.spans
    for row, one in enumerate(singles):
        part = slice(int(spans.frame[row]), int(spans.frame[row + 1]))
        for name in ("document", "start", "length", "at", "flags"):
            assert getattr(spans, name)[part].tolist() == getattr(one.spans, name).tolist()
    firsts = [one.spans.document[:1].tolist() or [-1] for one in singles]
    assert [[document] for document in together.document.tolist()] == firsts


@law
def test_cells_hold_the_tokens_that_spans_name_and_filler_elsewhere(known, draw):
    recipe, run = draw_run(draw, known)
    n = length_of(run)
    if not n:
        return
    batch = run.batch(range(n))
    spans = run.spans(range(n))
    stores = store_names(recipe)
    pads = {name: one.render["pad_id"] for name, one in sources_of(recipe).items()}
    for row in range(n):
        name = batch.source[row]
        expected = [pads[name]] * SEQ_LEN
        covered = [False] * SEQ_LEN
        for k in range(int(spans.frame[row]), int(spans.frame[row + 1])):
            held = tokens_of_span(spans, k, known[stores[name]].documents)
            if spans.flags[k] & EOS_BEFORE:
                expected[int(spans.at[k]) - 1] = EOS
            for column, token in enumerate(held, int(spans.at[k])):
                if column < SEQ_LEN:
                    assert not covered[column], "spans do not overlap"
                    expected[column], covered[column] = token, True
        assert batch.tokens[row].tolist() == expected


def tokens_of_span(spans, k, documents):
    """The tokens of one span, inserted ones included."""
    ids, flags = documents[int(spans.document[k])], int(spans.flags[k])
    first, count = int(spans.start[k]), int(spans.length[k])
    assert 0 <= first <= first + count <= len(ids)
    return [BOS] * (flags & 1) + ids[first : first + count] + [EOS] * (flags >> 1 & 1)


@law
def test_borders_follow_from_segments(known, draw):
    """Positions, starts and cu_seqlens say the same as segment_ids, for every kind of row."""
    _, run = draw_run(draw, known)
    run = run.render(trailing="filler", attend_prefix=False, position_offset=0)
    n = length_of(run)
    if not n:
        return
    batch = run.batch(range(n))
    segments = batch.segment_ids
    assert (batch.attention_mask == (segments > 0)).all()
    first = np.ones_like(segments, bool)
    first[:, 1:] = segments[:, 1:] != segments[:, :-1]
    assert batch.cu_seqlens.tolist() == [*np.flatnonzero(first).tolist(), segments.size]
    for row in range(n):
        numbers = segments[row][segments[row] > 0]
        assert sorted(set(numbers.tolist())) == list(range(1, len(set(numbers.tolist())) + 1))
        starts = batch.document_starts[row]
        assert (
            starts[starts >= 0].tolist()
            == np.flatnonzero(first[row] & (segments[row] > 0)).tolist()
        )
    begin = np.maximum.accumulate(np.where(first, np.arange(SEQ_LEN), 0), axis=1)
    reset = np.arange(SEQ_LEN) - begin
    absolute = np.broadcast_to(np.arange(SEQ_LEN), reset.shape)
    for row, positions in enumerate(batch.position_ids):
        assert positions.tolist() in (reset[row].tolist(), absolute[row].tolist())
    lengths = np.diff(batch.cu_seqlens)
    assert (lengths > 0).all()
    assert batch.max_seqlen == lengths.max()


@law
def test_labels_are_views_of_one_mask(known, draw):
    recipe, run = draw_run(draw, known)
    n = length_of(run)
    if not n or order_depends_on_labels(recipe):
        return
    aligned, shifted = (
        run.render(label_layout=layout).batch(range(n)) for layout in ("aligned", "shifted")
    )
    assert (aligned.tokens == shifted.tokens).all()
    mask = shifted.trained()
    assert (aligned.trained()[:, :-1] == mask[:, :-1]).all()
    assert not aligned.trained()[:, -1].any(), "the label of the last cell is in no aligned row"
    if not aligned.trained().any():
        with pytest.raises(tl.NoTrainedTokens):
            _ = aligned.labels
        return
    right = np.where(aligned.trained()[:, :-1], aligned.tokens[:, 1:], -100)
    assert (aligned.labels[:, 1:] == right).all()
    assert (aligned.labels[:, 0] == -100).all()
    assert (shifted.labels[:, :-1] == right).all()
    assert ((shifted.labels[:, -1] == -100) == ~mask[:, -1]).all()
    assert aligned.loss_tokens == int(aligned.trained().sum())
    assert shifted.loss_tokens == int(mask.sum())


@law
def test_rendering_moves_no_token(known, draw):
    recipe, run = draw_run(draw, known)
    n = length_of(run)
    if order_depends_on_labels(recipe):
        return
    other = run.render(mask_boundary_loss=False, position_scheme="absolute", position_offset=2)
    assert other.plan_digest(0, n) == run.plan_digest(0, n)
    if n:
        assert (other.batch(range(n)).tokens == run.batch(range(n)).tokens).all()
        more, fewer = other.batch(range(n)).trained(), run.batch(range(n)).trained()
        assert (more | ~fewer).all(), "boundaries only take predictions away"


@law
def test_a_document_in_a_packed_row_is_the_same_as_alone(known, draw):
    """A small causal attention that keeps to segments: its outputs don't depend on neighbours."""
    recipe, run = draw_run(draw, known)
    plain = {"position_scheme": "reset", "position_offset": 0, "segments": "documents"}
    run = run.render(**plain, trailing="filler", attend_prefix=False)
    n = min(length_of(run), 12)
    if not n:
        return
    batch, spans, stores = run.batch(range(n)), run.spans(range(n)), store_names(recipe)
    for row in range(n):
        together = attention(batch.tokens[row], batch.position_ids[row], batch.segment_ids[row])
        for k in range(int(spans.frame[row]), int(spans.frame[row + 1])):
            held = tokens_of_span(spans, k, known[stores[batch.source[row]]].documents)
            first = int(spans.at[k])
            held = held[: SEQ_LEN - first]
            ring = k + 1 < spans.frame[row + 1] and spans.document[k] == spans.document[k + 1]
            ring |= k > spans.frame[row] and spans.document[k] == spans.document[k - 1]
            if held and not ring:  # a ring is one segment of two spans
                alone = attention(np.array(held), np.arange(len(held)), np.ones(len(held)))
                found = together[first : first + len(held)]
                np.testing.assert_allclose(found, alone, rtol=1e-12)


def attention(tokens, positions, segments):
    """What one causal head sees of tokens and positions [cells]."""
    values = np.sin(tokens * 12.9898 + positions * 78.233)
    scores = np.cos(values[:, None] * 3 + values[None, :])
    place = np.arange(len(tokens))
    allowed = (segments[:, None] == segments[None, :]) & (place[:, None] >= place)
    weights = np.where(allowed, np.exp(scores), 0.0)
    return (weights @ values) / weights.sum(axis=1)


@law(examples=0.6)
def test_every_batch_passes_its_checks_and_every_run_its_audit(known, draw):
    _, run = draw_run(draw, known)
    n = length_of(run)
    if not n:
        return
    report = tl.check_batch(run.batch(range(n)), strict=False)  # boundaries may be trained
    assert report.ok, report
    certificate = run.audit(0, n)
    assert certificate.ok, certificate


@law(examples=1.5)
def test_hidden_documents_are_filler_and_nothing_else_changes(known, draw):
    recipe, run = draw_run(draw, known)
    hidden = [(e["at"], *pair) for e in recipe.edits for pair in e.get("quarantine", ())]
    n = length_of(run)
    if not hidden or not n:
        return
    seen = make_run(recipe, known, blank=False)
    assert run.is_finite == seen.is_finite
    assert not run.is_finite or len(run) == len(seen)
    batch, all_spans = run.batch(range(n)), seen.batch(range(n)).spans
    full = seen.batch(range(n))
    for row in range(n):
        source = batch.source[row]
        gone = {doc for at, name, doc in hidden if name == source and at <= row}
        for k in range(int(all_spans.frame[row]), int(all_spans.frame[row + 1])):
            flags = int(all_spans.flags[k])
            first = int(all_spans.at[k])
            size = int(all_spans.length[k]) + (flags & 1) + (flags >> 1 & 1)
            cells = slice(first, min(first + size, SEQ_LEN))
            if int(all_spans.document[k]) in gone:
                assert not batch.segment_ids[row, cells].any() or run_lends(recipe, source)
                assert not batch.trained()[row, max(0, first - 1) : cells.stop].any()
            else:
                assert (batch.tokens[row, cells] == full.tokens[row, cells]).all()


def run_lends(recipe, source):
    """Whether filler of this source takes the segment of a document."""
    render = recipe.sources[source].render if source in recipe.sources else {}
    return bool({"trailing", "attend_prefix"} & render.keys())
