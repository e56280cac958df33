"""Lengths → slices of documents in rows: the one place that cuts, for layouts, maps and streams.

One idea: every packer cuts in one of two ways, and both follow from lengths alone. `slice_each`
cuts every document by itself into slices that fit a row; `in_bins` then puts several into a row.
`slice_line` lays the documents end to end and cuts where a row is full; a rule says where on that
line each row starts:

`starts_apart`   a fixed number of cells apart, so that adjacent rows share `overlap` cells
`starts_again`   where the previous row ended; a document that was cut there resumes `stride`
                 cells earlier, so that the first cell after the cut has context to be predicted
                 from. Only cells of that document are repeated, and never its first cell

Worked example, documents of 8 and 3 cells in rows of 5::

    slice_each, stride 2              [0 1 2 3 4] [3 4 5 6 7] [a b c]
    slice_line, starts_apart          [0 1 2 3 4] [5 6 7 a b] [c]
    slice_line, overlap 1             [0 1 2 3 4] [4 5 6 7 a] [a b c]
    slice_line, starts_again 2        [0 1 2 3 4] [3 4 5 6 7] [a b c]

What a cell is (a token, BOS, EOS) is up to the caller. Cost: 0.1 µs per slice in NumPy;
`starts_again` walks the rows in Python, 0.5 µs per row.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.layout.pack.packers import pack


@dataclass(frozen=True, eq=False, slots=True)
class Slices:
    """Slices of documents, row by row.

    Attributes:
        document: the document of each slice [slices].
        start: first cell of the slice in its document [slices].
        stop: the cell after its last [slices].
        repeated: leading cells that the previous slice also has [slices].
        edges: first slice of each row, then the number of slices [rows + 1].
    """

    document: Int64
    start: Int64
    stop: Int64
    repeated: Int64
    edges: Int64

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.edges) - 1

    @property
    def sizes(self) -> Int64:
        """Cells of each row [rows]."""
        total = np.concatenate([[0], np.cumsum(self.stop - self.start)])
        return np.diff(total[self.edges])

    def pick(self, rows: Int64) -> Slices:
        """Only the given rows, in this order."""
        count = np.diff(self.edges)[rows]
        edges = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        # slice j of new row r is slice edges[rows[r]] + j: one shift per row
        which = np.arange(edges[-1]) + np.repeat(self.edges[rows] - edges[:-1], count)
        return self.regrouped(which, edges)

    def regrouped(self, which: Int64, edges: Int64) -> Slices:
        """Only the given slices, in this order, divided into rows by `edges`."""
        part = (self.document, self.start, self.stop, self.repeated)
        document, start, stop, repeated = (one[which] for one in part)
        return Slices(document, start, stop, repeated, edges)


# -- every document by itself ------------------------------------------------------------------
def slice_each(
    lengths: Int64,
    width: int,
    stride: int = 0,
    *,
    eos: NDArray[np.bool_] | None = None,
) -> Slices:
    """Cuts every document into slices of at most `width` cells, each in a row of its own.

    Args:
        lengths: cells of each document, 1 or more [documents].
        width: most cells of a slice.
        stride: cells that a slice repeats of the previous one; below `width`.
        eos: which documents end with an inserted cell; in a slice of its own it would be neither
            predicted nor context, so it takes the last cell of the slice before it [documents].

    >>> cut = slice_each(np.array([8, 3]), 5, 2)
    >>> cut.document.tolist(), cut.start.tolist(), cut.stop.tolist(), cut.repeated.tolist()
    ([0, 0, 1], [0, 3, 0], [5, 8, 3], [0, 2, 0])
    """
    step = width - stride
    count = np.where(lengths > width, 1 - (width - lengths) // step, 1)
    document = np.repeat(np.arange(len(lengths)), count)
    place = np.arange(len(document)) - (np.cumsum(count) - count)[document]
    start = place * step
    stop = np.minimum(start + width, lengths[document])
    if eos is not None and eos.any() and width > 1:
        last = eos[document] & (stop == lengths[document])
        lone = np.flatnonzero(last & (stop - start == 1) & (place > 0))
        start[lone] -= 1
        stop[lone - 1] -= 1
    repeated = np.where(place > 0, stride, 0)
    return Slices(document, start, stop, repeated, np.arange(len(document) + 1))


def in_bins(slices: Slices, width: int, strategy: str, most: int | None = None) -> Slices:
    """The same slices, up to `most` per row, grouped by a strategy of `packers`."""
    bins = pack(slices.stop - slices.start, width, strategy, most)
    return slices.regrouped(bins.items, bins.edges)


# -- documents end to end ----------------------------------------------------------------------
def slice_line(lengths: Int64, width: int, starts: Int64) -> Slices:
    """Cuts documents, laid end to end, into rows of `width` cells; only the last may be shorter.

    Args:
        lengths: cells of each document, 1 or more [documents].
        width: cells of a row.
        starts: first cell of each row on the line of all documents [rows].

    >>> lengths = np.array([8, 3])
    >>> rows = slice_line(lengths, 5, starts_apart(11, 5, overlap=1))
    >>> rows.document.tolist(), rows.start.tolist(), rows.stop.tolist(), rows.edges.tolist()
    ([0, 0, 1, 1], [0, 4, 0, 0], [5, 8, 1, 3], [0, 1, 3, 4])
    """
    ends = lengths.cumsum()  # methods: streams request single rows, and functions cost more
    stops = np.minimum(starts + width, ends[-1] if len(ends) else 0)
    first = ends.searchsorted(starts, side="right")
    count = ends.searchsorted(stops - 1, side="right") - first + 1  # slices of each row
    edges = np.zeros(len(starts) + 1, np.int64)
    count.cumsum(out=edges[1:])
    # slice j of row r is of document first[r] + j: one shift per row
    document = np.arange(edges[-1]) + (first - edges[:-1]).repeat(count)
    length = lengths[document]
    before = ends[document] - length  # on the line
    start = np.maximum(starts.repeat(count) - before, 0)
    stop = np.minimum(stops.repeat(count) - before, length)
    repeated = np.zeros(len(document), np.int64)
    repeated[edges[1:-1]] = stops[:-1] - starts[1:]
    return Slices(document, start, stop, repeated, edges)


def starts_apart(total: int, width: int, overlap: int = 0) -> Int64:
    """Starts of rows on a line of `total` cells, where adjacent rows share `overlap` cells."""
    step = width - overlap
    count = 0 if total == 0 else max(1, 1 - (width - total) // step)
    return np.arange(count) * step


def starts_again(lengths: Int64, width: int, stride: int) -> Int64:
    """Starts of rows that resume a cut document up to `stride` cells before the cut.

    >>> starts_again(np.array([8, 3]), 5, 2), starts_again(np.array([3, 8]), 5, 2)
    (array([0, 3, 8]), array([0, 4, 7]))
    """
    ends: list[int] = np.cumsum(lengths).tolist()
    total = ends[-1] if ends else 0
    starts, at = [], 0
    while at < total:
        starts.append(at)
        cut = at + width
        if cut >= total:
            break
        owner = bisect_right(ends, cut)  # document of the first cell after the cut
        begin = ends[owner - 1] if owner else 0
        at = max(begin + 1, cut - stride) if cut > begin else cut
    return np.array(starts, np.int64)
