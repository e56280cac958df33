"""The one cutting core: its slices equal those of loops over every cell."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.layout.pack.plan import plan_group
from tokenloom.layout.pack.slices import (
    in_bins,
    slice_each,
    slice_line,
    starts_again,
    starts_apart,
)
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.streams import stream_packer

lengths = st.lists(st.integers(1, 30), max_size=12).map(lambda some: np.array(some, np.int64))
widths = st.integers(1, 3) | st.integers(1, 12)  # narrow rows cause the odd cases


def rows_of(slices):
    """Rows as lists of (document, cell)."""
    edges = slices.edges.tolist()
    return [
        [
            (int(slices.document[i]), cell)
            for i in range(a, b)
            for cell in range(slices.start[i], slices.stop[i])
        ]
        for a, b in pairwise(edges)
    ]


def line_of(sizes):
    return [(document, cell) for document, size in enumerate(sizes) for cell in range(size)]


@given(lengths, widths, st.integers(0, 11))
def test_rows_that_start_apart_are_slices_of_the_line(sizes, width, overlap):
    overlap %= width
    line, rows, at = line_of(sizes), [], 0
    while line:
        rows.append(line[at : at + width])
        if at + width >= len(line):
            break
        at += width - overlap
    found = slice_line(sizes, width, starts_apart(len(line), width, overlap))
    assert rows_of(found) == rows
    assert found.repeated[found.edges[1:-1]].tolist() == [overlap] * (len(rows) - 1)
    assert int(found.repeated.sum()) == sum(map(len, rows)) - len(line)
    assert found.sizes.tolist() == [len(row) for row in rows]


@given(lengths, widths, st.integers(0, 11))
def test_a_cut_document_is_resumed_before_the_cut_but_not_at_its_first_cell(sizes, width, stride):
    stride %= width
    rows, row = [], []
    for document, size in enumerate(sizes):
        for cell in range(size):
            if len(row) == width:
                rows.append(row)
                again = range(max(1, cell - stride), cell) if cell else ()
                row = [(document, one) for one in again]
            row.append((document, cell))
    rows += [row] if row else []
    found = slice_line(sizes, width, starts_again(sizes, width, stride))
    assert rows_of(found) == rows
    seen = [cell for row in rows for cell in row]
    assert int(found.repeated.sum()) == len(seen) - len(set(seen))


@given(lengths, widths, st.integers(0, 11))
def test_every_document_by_itself_is_cut_every_step(sizes, width, stride):
    stride %= width
    rows = []
    for document, size in enumerate(sizes):
        start, end = 0, 0
        while end < size:
            end = min(size, start + width)
            rows.append([(document, cell) for cell in range(start, end)])
            start = end - stride
    found = slice_each(sizes, width, stride)
    assert rows_of(found) == rows
    again = {cell for row in rows for cell in row}
    assert int(found.repeated.sum()) == sum(map(len, rows)) - len(again)


@given(lengths, widths, st.booleans())
def test_eos_is_alone_only_where_slices_have_one_cell(sizes, width, eos):
    found = slice_each(sizes, width, eos=np.full(len(sizes), eos))
    assert sorted(cell for row in rows_of(found) for cell in row) == line_of(sizes)
    for row in rows_of(found):
        document, cell = row[0]
        if eos and len(row) == 1 and cell == sizes[document] - 1 and cell > 0:
            assert width == 1
    if not eos:
        assert rows_of(found) == rows_of(slice_each(sizes, width))


@given(lengths, widths)
def test_bins_hold_the_same_slices(sizes, width):
    cut = slice_each(sizes, width)
    found = in_bins(cut, width, "best_fit_decreasing", 2)
    assert found.sizes.max(initial=0) <= width
    assert np.diff(found.edges).max(initial=0) <= 2
    assert sorted(cell for row in rows_of(found) for cell in row) == line_of(sizes)


@given(lengths, st.integers(2, 12), st.sampled_from([("T", None), ("T+1", 0), ("T+1", 1)]))
def test_a_stream_end_to_end_has_the_rows_of_a_layout(sizes, seq_len, how):
    window, overlap = how
    documents = [np.arange(size) + 1000 * number for number, size in enumerate(sizes)]
    packer = stream_packer("sequential", seq_len, window=window, overlap=overlap, pad_id=7)
    found = [row.tokens[row.segment_ids > 0].tolist() for row in packer.rows(documents)]
    spec = PackSpec(
        seq_len=seq_len,
        strategy="sequential",
        lookahead=window == "T+1",
        overlap=overlap or 0,
    )
    plan, rows = plan_group(sizes, spec), []
    for a, b in pairwise(plan.edges):
        pieces = plan.pieces.pick(np.arange(a, b))
        places = zip(pieces.document, pieces.start, pieces.length, strict=True)
        rows.append([1000 * int(d) + int(s) + i for d, s, n in places for i in range(n)])
    assert found == rows
