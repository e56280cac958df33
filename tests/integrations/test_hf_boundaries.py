"""Boundaries → segments and positions: equal to walking cell by cell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.batch.boundaries import (
    marks_from_starts,
    marks_from_tokens,
    position_ids,
    segment_ids,
    tiles_from_marks,
)
from tokenloom.batch.paint import paint


def slow(starts, width, length):
    """(segments, positions) of one row, cell by cell."""
    segments, positions, segment, position = [], [], 0, 0
    for cell in range(width):
        if cell >= length:
            segment, position = 0, (cell - length)
        elif cell == 0 or cell in starts:
            segment, position = segment + 1, 0
        segments.append(segment)
        positions.append(position)
        position += 1
    return segments, positions


@pytest.mark.parametrize(
    "starts", [[0, 3, 1], [0, 2, 2], [-2], [0, -1, 3], [-1, 0], [0.5], [[0]], ["a"]]
)
def test_starts_that_do_not_ascend_are_refused_with_their_row(starts):
    with pytest.raises(tl.InputError, match="document_starts: row 1"):
        marks_from_starts([[0], starts])


@pytest.mark.parametrize(("width", "lengths"), [(0, None), (3, [4]), (3, [-1]), (3, [1, 1])])
def test_lengths_that_do_not_fit_are_refused(width, lengths):
    with pytest.raises(tl.InputError, match="lengths"):
        position_ids([[0]], width, lengths)
    assert segment_ids([[0], [0]], 1, [1, 0]).tolist() == [[1], [0]]  # rows of one cell are rows


rows_of = st.lists(
    st.tuples(st.sets(st.integers(0, 14)), st.integers(0, 12), st.integers(0, 3)), min_size=1
)


@given(rows_of, st.integers(12, 16))
def test_segments_and_positions_equal_a_walk_over_the_cells(rows, width):
    starts = [[*sorted(cells), *[-1] * padding] for cells, _, padding in rows]
    lengths = [length for _, length, _ in rows]
    walked = [slow(s, width, n) for s, n in zip(starts, lengths, strict=True)]
    assert segment_ids(starts, width, lengths).tolist() == [s for s, _ in walked]
    assert position_ids(starts, width, lengths).tolist() == [p for _, p in walked]


@given(rows_of)
def test_sequences_of_variable_length_are_the_runs_of_equal_segments(rows):
    width, lengths = 12, np.array([length for _, length, _ in rows])
    tiles = tiles_from_marks(marks_from_starts([sorted(c) for c, _, _ in rows]), lengths, width)
    segments = paint(tiles, ["segment_ids"])["segment_ids"]
    edges = [
        row * width + cell
        for row in range(len(rows))
        for cell in range(width)
        if cell == 0 or segments[row, cell] != segments[row, cell - 1]
    ]
    assert tiles.cu_seqlens().tolist() == [*edges, len(rows) * width]


def test_documents_end_behind_eos_or_begin_at_bos():
    row = np.array([[1, 2, 99, 1, 4, 99]])
    cells = [
        marks_from_tokens(row, np.array([6]), eos, bos)[1].tolist()
        for eos, bos in [(99, None), (99, 1), (None, 1), (None, None)]
    ]
    assert cells == [[3], [3], [3], []]
    assert marks_from_tokens(np.array([[7, 1, 8]]), np.array([3]), None, 1)[1].tolist() == [1]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=1, max_size=4),
    st.data(),
)
def test_guessed_boundaries_never_come_from_filler(rows, data):
    lengths = np.array([data.draw(st.integers(0, 8)) for _ in rows])
    row, cell = marks_from_tokens(np.array(rows), lengths, 2, None)
    expected = [
        (r, c) for r, ids in enumerate(rows) for c in range(1, lengths[r]) if ids[c - 1] == 2
    ]
    assert list(zip(row.tolist(), cell.tolist(), strict=True)) == expected


def test_documents_cost_next_to_nothing():
    """200 documents in a row make as many tiles as there are documents, not cells."""
    starts = [list(range(0, 4096, 21))[:200]] * 64
    tiles = tiles_from_marks(marks_from_starts(starts), np.full(64, 4096), 4096)
    assert len(tiles.first) == sum(map(len, starts))
