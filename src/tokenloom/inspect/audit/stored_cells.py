"""What the cells of rows must hold, read from the store once more by another way.

One idea: a span names a document and an offset in it, and the store's offsets say where that
document lies. So the tokens are read by document, not by the addresses and blocks that a renderer
uses, and put into an array of their own. Adjacent documents are read as one stretch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch.cells import Runs, copier, fill, new_array
from tokenloom.layout.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.order.run import SourceRun
from tokenloom.order.working_set import loss_columns

__all__ = ["SourceRows", "stored_tokens", "stored_weights"]

Int64 = NDArray[np.int64]

Int32 = NDArray[np.int32]

Float32 = NDArray[np.float32]

Array = NDArray[Any]


class SourceRows(NamedTuple):
    """Some rows of a batch that come from one source.

    Attributes:
        source: the run of the source.
        at: which rows of the batch they are [N].
        spans: what is in them, in that order.
        pad_id: the token of their filler.
    """

    source: SourceRun
    at: Int64
    spans: Spans
    pad_id: int


class _Pieces(NamedTuple):
    """Views of stored values, and the first cell of each."""

    views: list[Array]
    cell: Int64


def stored_tokens(parts: Sequence[SourceRows], rows: int, width: int) -> Int32:
    """The tokens that the rows of a batch must hold [rows, width]."""
    out: Int32 = new_array((rows, width), np.int32)
    _fill(parts, "input_ids", out, parts[0].pad_id if parts else 0)
    flat = out.reshape(-1)
    for part in parts:
        if part.pad_id != parts[0].pad_id:
            flat[_filler(part, width)] = part.pad_id
        for cells, token in _inserted(part, width):
            flat[cells] = token
    return out


def stored_weights(parts: Sequence[SourceRows], rows: int, width: int) -> Float32 | None:
    """The loss weight of each cell's token, 1 where the store has none; None if none has any."""
    if not any(loss_columns(part.source.layout.line.reader) for part in parts):
        return None
    out = np.ones((rows, width), np.float32)
    for part in parts:
        for column in loss_columns(part.source.layout.line.reader):
            values = np.ones((rows, width), np.float32)
            _fill([part], column, values, 1)
            for cells, _ in _inserted(part, width):
                values.reshape(-1)[cells] = 1
            out *= values
    return out


def _fill(parts: Sequence[SourceRows], column: str, out: Array, filler: int) -> None:
    found = [_read(part, column, out.shape[1]) for part in parts]
    views = [view for one in found for view in one.views]
    cell = np.concatenate([np.empty(0, np.int64), *(one.cell for one in found)])
    length = np.array([len(view) for view in views], np.int64)
    order = np.argsort(cell, kind="stable") if len(parts) > 1 else np.arange(len(cell))
    nothing = np.zeros(len(views), np.int64)
    made = copier(views, order, nothing, length[order], cell[order])
    fill(made, out, Runs(0, len(views), 0, filler))


def _read(part: SourceRows, column: str, width: int) -> _Pieces:
    """The stored values of some rows, as views in order of their cells."""
    spans, reader = part.spans, part.source.layout.line.reader
    some = np.flatnonzero(spans.length > 0)
    begin, _ = reader.offsets.bounds(spans.document[some])
    start = begin + spans.start[some]
    stop = start + spans.length[some]
    cell = part.at[spans.row[some]] * width + spans.at[some] + (spans.flags[some] & BOS)
    # a stretch continues the one before it if it does so both in the store and in the row
    follows = (start[1:] == stop[:-1]) & (cell[1:] - cell[:-1] == (stop - start)[:-1])
    follows &= spans.row[some][1:] == spans.row[some][:-1]
    heads = np.flatnonzero(np.append(True, ~follows)) if len(some) else some
    ends = np.append(heads[1:], len(some)) - 1 if len(some) else some
    start, stop, cell = start[heads], stop[ends], cell[heads]
    views = [view for view in reader.read(start, stop, column) if len(view)]
    size = np.array([len(view) for view in views], np.int64)
    # a stretch may come as several views, one after the other
    before, last = np.cumsum(size) - size, np.cumsum(stop - start)
    owner = np.searchsorted(last, before, side="right")
    return _Pieces(views, cell[owner] + before - (last - (stop - start))[owner])


def _inserted(part: SourceRows, width: int) -> list[tuple[Int64, int]]:
    """Cells of tokens that no store has, and the token of each kind."""
    spans, (bos, eos) = part.spans, part.source.layout.inserted
    if not spans.flags.any():
        return []
    first = part.at[spans.row] * width + spans.at
    kinds: Mapping[int, tuple[Int64, int | None]] = {
        BOS: (first, bos),
        EOS: (first + spans.cells - 1, eos),
        EOS_BEFORE: (first - 1, eos),
    }
    return [(cells[(spans.flags & bit) > 0], token or 0) for bit, (cells, token) in kinds.items()]


def _filler(part: SourceRows, width: int) -> Int64:
    """Cells of some rows that no span fills."""
    real = np.zeros((len(part.at), width + 1), np.int64)
    spans = part.spans
    np.add.at(real, (spans.row, spans.at), 1)
    np.add.at(real, (spans.row, spans.at + spans.cells), -1)
    row, cell = np.nonzero(np.cumsum(real, axis=1)[:, :width] == 0)
    found: Int64 = part.at[row] * width + cell
    return found
