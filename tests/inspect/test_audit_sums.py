"""The sums and counts of audits, each against an obvious loop."""

import numpy as np
import pytest
from auditruns import LAYOUTS, quietly, store_of
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.batch.tiles import tile
from tokenloom.inspect.audit.boundary_sums import boundary_sum, covered_by
from tokenloom.inspect.audit.cell_laws import row_tiles
from tokenloom.inspect.audit.index_counts import longest_replay
from tokenloom.inspect.audit.plan_laws import different_rows
from tokenloom.inspect.audit.scope import Scope
from tokenloom.inspect.audit.span_counts import SPAN_LAWS, SpanCounts
from tokenloom.inspect.audit.verdicts import Findings

STRETCHES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=8)


def counted(stretches):
    """How often each of the first 20 tokens is shown."""
    counts = [0] * 20
    for start, length in stretches:
        for token in range(start, start + length):
            counts[token] += 1
    return counts


def summed(stretches):
    pairs = np.array(stretches, np.int64).reshape(-1, 2)
    return boundary_sum(pairs[:, 0], pairs[:, 1])


@given(STRETCHES, STRETCHES)
def test_two_sums_are_equal_if_and_only_if_every_token_is_shown_equally_often(one, other):
    assert (summed(one) == summed(other)) == (counted(one) == counted(other))


@given(STRETCHES, st.data())
def test_cutting_stretches_anywhere_leaves_the_sum_alone(stretches, data):
    cut = []
    for start, length in stretches:
        first = data.draw(st.integers(0, length))
        cut += [(start + first, length - first), (start, first)]
    assert summed(cut) == summed(stretches)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("sums") / "a")


@pytest.mark.parametrize("name", [name for name in LAYOUTS if not name.startswith("splice")])
def test_what_an_epoch_must_show_is_what_its_rows_show(store, name):
    layout = quietly(lambda: LAYOUTS[name](store)).run.sources[0].layout
    spans = layout.spans(0, np.arange(int(layout.phases.rows[0])))
    found = covered_by(layout, 0)
    assert found.total == boundary_sum(spans.address, spans.length)
    assert found.tokens == int(spans.length.sum())
    closed = not any(word in name for word in ("stride", "pack, overlap", "short rows"))
    assert ("lengths" in found.truth) == closed


@pytest.mark.parametrize("name", LAYOUTS)
def test_tiles_of_rows_are_those_that_batches_are_painted_from(store, name):
    made = quietly(lambda: LAYOUTS[name](store)).run
    spans = made.spans(np.arange(min(made.n, 200)))
    ours, theirs = row_tiles(spans, made.seq_len), tile(spans, made.seq_len)
    assert ours.first.tolist() == theirs.first.tolist()
    assert ours.segment.tolist() == theirs.segment.tolist()
    assert ours.length.tolist() == theirs.length.tolist()


@given(st.data())
def test_rows_that_differ_are_named(store, data):
    spans = store.pack(8).run.spans(np.arange(10))
    frames = data.draw(st.lists(st.integers(0, 9), min_size=6, max_size=6))
    one, other = spans.take(np.arange(6)), spans.take(np.array(frames))
    right = [row for row, frame in enumerate(frames) if row != frame]
    assert different_rows(one, other).tolist() == right


def slow_replay(stream):
    """The longest stretch that comes again at its next copies, by looking at every start."""
    best = None
    for again in range(len(stream)):
        copies = [place for place in range(again) if stream[place] == stream[again]]
        if not copies or again - copies[-1] >= len(set(stream)):
            continue
        first, rows = copies[-1], 0
        while again + rows < len(stream):
            latest = [p for p in range(again + rows) if stream[p] == stream[again + rows]]
            if not latest or latest[-1] != first + rows:
                break
            rows += 1
        if rows >= 3 and (best is None or rows > best[2]):
            best = first, again, rows
    return best


@given(st.lists(st.integers(0, 9), max_size=30))
def test_the_longest_replay_is_found(stream):
    assert longest_replay(np.array(stream, np.int64)) == slow_replay(stream)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_tokens_lost_and_repeated_are_counted(stretches):
    lengths = np.array([3, 0, 5, 4])
    good = [one for one in stretches if one[1] + one[2] <= lengths[one[0]]]
    findings = Findings(SPAN_LAWS)
    counts = SpanCounts(lengths, 1, findings)
    counts.look(np.array(stretches, np.int64).reshape(-1, 3))
    found = counts.finish()
    shown = [[0] * length for length in lengths.tolist()]
    for document, start, length in good:
        for token in range(start, start + length):
            shown[document][token] += 1
    flat = [count for document in shown for count in document]
    assert found["tokens_lost"] == flat.count(0)
    assert found["tokens_repeated"] == sum(max(0, count - 1) for count in flat)
    assert findings.verdicts()["spans_inside"].broken == len(stretches) - len(good)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 2**64 - 1))
def test_a_sample_is_drawn_without_replacement_and_holds_every_smaller_one(rows, size, seed):
    def drawn(sample):
        scope = Scope(first=7, last=7 + rows, sample=sample, seed=seed, arrays="all")
        return [int(i) for some in scope.chunks(9) for i in some]

    size = min(size, rows)
    found = drawn(size)
    assert found == sorted(set(found))
    assert len(found) == size
    assert 7 <= found[0] <= found[-1] < 7 + rows
    assert set(drawn(max(1, size // 2))) <= set(found)
