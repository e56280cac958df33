"""Lengths of documents → pieces of them in rows. Integers only; no token is looked at.

Two ways to cut. `cut_line` lays documents end to end and cuts where a row is full. `cut_each` cuts
every document for itself into pieces that fit a row; `in_bins` then puts pieces into rows.

Overlap: a document that was cut is taken up again `stride` tokens before the cut, so that the
first token behind the cut has been predicted from something. Only tokens of the same document are
repeated, its first token never: each document has exactly one piece that begins at its beginning.
Since ``stride < width`` every row brings something new, and there is an end. Worked example, one
document of 8 in rows of 5::

    stride 2    [0 1 2 3 4] [3 4 5 6 7]      the second repeats 2; there is no third
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.pack.packers import pack

__all__ = ["Pieces", "cut_each", "cut_line", "in_bins"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """Stretches of documents, row by row.

    Attributes:
        document: which document each is a piece of [pieces].
        start: its first token there [pieces].
        stop: the token behind its last [pieces].
        overlap: how many of its first tokens the piece before it has, too [pieces].
        edges: the first piece of each row, and the number of pieces [rows + 1].
    """

    document: Int64
    start: Int64
    stop: Int64
    overlap: Int64
    edges: Int64

    def __len__(self) -> int:
        """Rows."""
        return len(self.edges) - 1

    @property
    def sizes(self) -> Int64:
        """Tokens of each row [rows]."""
        total = np.concatenate([[0], np.cumsum(self.stop - self.start)])
        return np.diff(total[self.edges])

    def pick(self, rows: Int64) -> Pieces:
        """Some of the rows, in this order."""
        count = np.diff(self.edges)[rows]
        edges = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        # piece j of new row r is piece edges[rows[r]] + j: a shift for each row
        which = np.arange(edges[-1]) + np.repeat(self.edges[rows] - edges[:-1], count)
        return self._reordered(which, edges)

    def _reordered(self, which: Int64, edges: Int64) -> Pieces:
        part = (self.document, self.start, self.stop, self.overlap)
        document, start, stop, overlap = (one[which] for one in part)
        return Pieces(document, start, stop, overlap, edges)


def cut_line(lengths: Int64, width: int, stride: int) -> Pieces:
    """Documents end to end, cut into rows of `width`; only the last one may be shorter.

    Args:
        lengths: tokens of each document, 1 or more [documents].
        width: tokens of a row.
        stride: tokens that a row repeats of the document that was cut, at most; below `width`.
    """
    pieces: list[tuple[int, int, int, int]] = []
    edges, room = [0], width
    for document, length in enumerate(lengths.tolist()):
        at = overlap = 0
        while at < length:
            stop = min(length, at + room)
            pieces.append((document, at, stop, overlap))
            room -= stop - at
            if room == 0:
                edges.append(len(pieces))
                room = width
            if stop == length:
                break
            at = max(1, stop - stride)
            overlap = stop - at
    if edges[-1] < len(pieces):
        edges.append(len(pieces))
    document_, start, stop_, overlap_ = np.array(pieces, np.int64).reshape(-1, 4).T
    return Pieces(document_, start, stop_, overlap_, np.array(edges, np.int64))


def cut_each(lengths: Int64, width: int, stride: int, overflow: bool) -> Pieces:
    """Every document in pieces of at most `width`, each in a row of its own.

    Args:
        lengths: tokens of each document, 1 or more [documents].
        width: tokens of a piece, at most.
        stride: tokens that a piece repeats of the one before; below `width`.
        overflow: go on after the first piece; else the rest of a document is lost.
    """
    step = width - stride
    more = -(-np.maximum(0, lengths - width) // step) if overflow else np.zeros_like(lengths)
    document = np.repeat(np.arange(len(lengths)), more + 1)
    number = np.arange(len(document)) - np.repeat(np.cumsum(more + 1) - more - 1, more + 1)
    start = number * step
    stop = np.minimum(start + width, lengths[document])
    overlap = np.where(number > 0, stride, 0)
    return Pieces(document, start, stop, overlap, np.arange(len(document) + 1))


def in_bins(pieces: Pieces, width: int, strategy: str) -> Pieces:
    """The same pieces, several to a row, chosen by a strategy of `layout.packers`."""
    bins = pack(pieces.stop - pieces.start, width, strategy)
    return pieces._reordered(bins.items, bins.edges)
