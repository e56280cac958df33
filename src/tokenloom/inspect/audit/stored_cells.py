"""What the cells of rows must hold, read from the store once more by another way.

One idea: a span names a document and an offset in it, and the store's offsets say where that
document lies. So the tokens are found by document, not by the addresses and blocks that a renderer
uses. Adjacent documents are read as one stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch.cells import Runs, copier, fill, new_array
from tokenloom.layout.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.order.run import SourceRun
from tokenloom.order.working_set import loss_columns
from tokenloom.store.derived.payload import payloads_of
from tokenloom.store.handles import lazy

__all__ = ["SourceRows", "StoredCells"]

Int64 = NDArray[np.int64]

Int32 = NDArray[np.int32]

Float32 = NDArray[np.float32]

Array = NDArray[Any]


class SourceRows(NamedTuple):
    """Some rows that come from one source.

    Attributes:
        source: the run of the source.
        at: which of all rows they are [N].
        spans: what is in them, in that order.
        pad_id: the token of their filler.
    """

    source: SourceRun
    at: Int64
    spans: Spans
    pad_id: int


class _Pieces(NamedTuple):
    """Stored values: the array or file of each piece, where it starts there, and its cells."""

    views: list[Any]
    which: Int64
    low: Int64
    length: Int64
    cell: Int64


class StoredCells:
    """What the cells of some rows must hold.

    Args:
        parts: the rows, source by source.
        rows: how many there are.
        width: cells of a row, including the look-ahead cell if there is one.
    """

    def __init__(self, parts: Sequence[SourceRows], rows: int, width: int) -> None:
        self._parts, self._rows, self._width = parts, rows, width
        made = [_read(part, "input_ids", width) for part in parts]
        made += [_inserted(part, width) for part in parts]
        views, which, low, length, cell = _joined(made)
        self._copier = copier(views, which, low, length, cell)
        self._edges = np.searchsorted(cell, np.arange(rows + 1) * width).tolist()
        self._pad = parts[0].pad_id if parts else 0

    def tokens(self, low: int, high: int) -> Int32:
        """The tokens of rows [low, high) [rows, width]."""
        out: Int32 = new_array((high - low, self._width), np.int32)
        first, last = self._edges[low], self._edges[high]
        fill(self._copier, out, Runs(first, last, low * self._width, self._pad))
        for part in self._parts:
            if part.pad_id != self._pad:
                cells = _filler(part, low, high, self._width)
                out.reshape(-1)[cells - low * self._width] = part.pad_id
        return out

    def weights(self, low: int, high: int) -> Float32 | None:
        """The loss weight of each cell's token, 1 where a store has none; None if none has any."""
        known = self._weights
        return None if known is None else known[low:high]

    @lazy
    def _weights(self) -> Float32 | None:
        if not any(loss_columns(part.source.layout.line.reader) for part in self._parts):
            return None
        shape = self._rows, self._width
        out = np.ones(shape, np.float32)
        for part in self._parts:
            for column in loss_columns(part.source.layout.line.reader):
                values = np.ones(shape, np.float32)
                found = _read(part, column, self._width)
                fill(copier(*found, values.dtype), values, Runs(0, len(found.which), 0, 1))
                values.reshape(-1)[_inserted(part, self._width).cell] = 1
                out *= values
        return out


def _joined(parts: Sequence[_Pieces]) -> _Pieces:
    """All pieces, in order of their cells."""
    views = [view for part in parts for view in part.views]
    before = np.cumsum([0, *(len(part.views) for part in parts)])
    columns = list(zip(*(part[1:] for part in parts), strict=True))
    moved = [which + at for which, at in zip(columns[0], before, strict=False)]
    which, low, length, cell = (np.concatenate(one) for one in (moved, *columns[1:]))
    if (cell[1:] >= cell[:-1]).all():  # the cells of one source come in order
        return _Pieces(views, which, low, length, cell)
    order = np.argsort(cell, kind="stable")
    return _Pieces(views, which[order], low[order], length[order], cell[order])


def _read(part: SourceRows, column: str, width: int) -> _Pieces:
    """The stored values of some rows, in order of their cells."""
    spans, reader = part.spans, part.source.layout.line.reader
    row, at, length = spans.row, spans.at, spans.length
    document, start = spans.document, spans.start
    if spans.flags.any():
        at = at + (spans.flags & BOS)
        some = np.flatnonzero(length > 0)  # some spans are inserted tokens alone
        row, at, length = row[some], at[some], length[some]
        document, start = document[some], start[some]
    start = reader.offsets.bounds(document)[0] + start
    stop = start + length
    # a stretch continues the one before it if it does so both in the store and in the row
    follows = (start[1:] == stop[:-1]) & (at[1:] == (at + length)[:-1]) & (row[1:] == row[:-1])
    heads = np.flatnonzero(np.append(True, ~follows)) if len(row) else row
    ends = np.append(heads[1:], len(row)) - 1 if len(row) else row
    cell = part.at[row[heads]] * width + at[heads]
    return _found(part, column, start[heads], stop[ends], cell)


def _found(part: SourceRows, column: str, start: Int64, stop: Int64, cell: Int64) -> _Pieces:
    """Where ranges of a store are: in its files if they can be read in place, else in memory."""
    reader = part.source.layout.line.reader
    in_files = payloads_of(reader).find(start, stop, column)
    if in_files is not None:
        views, which, low, size = in_files
    else:
        views = [view for view in reader.read(start, stop, column) if len(view)]
        size = np.array([len(view) for view in views], np.int64)
        which, low = np.arange(len(views)), np.zeros(len(views), np.int64)
    if len(size) == len(start):
        return _Pieces(views, which, low, size, cell)
    # a stretch may come as several pieces, one after the other
    before, last = np.cumsum(size) - size, np.cumsum(stop - start)
    owner = np.searchsorted(last, before, side="right")
    cell = cell[owner] + before - (last - (stop - start))[owner]
    return _Pieces(views, which, low, size, cell)


def _inserted(part: SourceRows, width: int) -> _Pieces:
    """The tokens that no store has, as pieces of one cell."""
    spans, (bos, eos) = part.spans, part.source.layout.inserted
    nothing = np.empty(0, np.int64)
    if not spans.flags.any():
        return _Pieces([], nothing, nothing, nothing, nothing)
    first = part.at[spans.row] * width + spans.at
    kinds = (BOS, first, bos), (EOS, first + spans.cells - 1, eos), (EOS_BEFORE, first - 1, eos)
    found = [(cells[(spans.flags & bit) > 0], token or 0) for bit, cells, token in kinds]
    cell = np.concatenate([cells for cells, _ in found])
    token = np.concatenate([np.full(len(cells), token, np.int32) for cells, token in found])
    nothing, one = np.zeros(len(cell), np.int64), np.ones(len(cell), np.int64)
    return _Pieces([token], nothing, np.arange(len(cell)), one, cell)


def _filler(part: SourceRows, low: int, high: int, width: int) -> Int64:
    """Cells of rows [low, high) that belong to a part and hold nothing of any document."""
    here = np.flatnonzero((part.at >= low) & (part.at < high))
    spans = part.spans.take(here)
    edges = np.zeros((len(here), width + 1), np.int64)
    np.add.at(edges, (spans.row, spans.at), 1)
    np.add.at(edges, (spans.row, spans.at + spans.cells), -1)
    row, cell = np.nonzero(np.cumsum(edges, axis=1)[:, :width] == 0)
    cells: Int64 = part.at[here][row] * width + cell
    return np.setdiff1d(cells, _inserted(part, width).cell)  # an EOS may be in filler
