"""Spans as stretches of cells: tokens, inserted tokens and look-ahead cells apart.

One idea: a span is cut into at most four stretches, all of them at once in arrays. Both directions
of looking use the same cut, so what one finds the other finds.

Worked example: a span of 3 tokens of a document of 8 with BOS and EOS, at cell 0 of a frame of 4
cells and a look-ahead cell::

    cell     0    1 2 3    4          column  start  length
    holds    BOS  0 1 2    EOS        0       -1     1       inserted
                                      1       0      3
                                      4       8      1       inserted, label_only
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Array, Bool
from tokenloom.layout.spans import BOS, EOS, Spans
from tokenloom.store.reader import Reader


class CellRuns(NamedTuple):
    """Stretches of cells, in order of their spans and columns.

    Attributes:
        span: the span of each [N].
        column, start, length, label_only, inserted: see `tokenloom.trace.answers.CellRun` [N].
    """

    span: Array
    column: Array
    start: Array
    length: Array
    label_only: Array
    inserted: Array

    def only(self, keep: Bool) -> CellRuns:
        """Some of them."""
        return CellRuns(*(column[keep] for column in self))

    def clipped(self, first: int, last: int) -> CellRuns:
        """The parts that hold document offsets [first, last)."""
        low = np.maximum(self.start, first)
        length = np.minimum(self.start + self.length, last) - low
        moved = self._replace(column=self.column + low - self.start, start=low, length=length)
        return moved.only(length > 0)


def cell_runs(spans: Spans, seq_len: int, reader: Reader) -> CellRuns:
    """The stretches of all spans.

    Args:
        spans: the spans.
        seq_len: cells of the frame without the look-ahead cell.
        reader: the store of their documents.
    """
    bos = (spans.flags & BOS) > 0
    eos = (spans.flags & EOS) > 0
    every = np.arange(len(spans.document))
    ends = np.zeros_like(every)
    if eos.any():
        begin, end = reader.bounds(spans.document[eos])
        ends[eos] = end - begin
    column = spans.at + bos
    inside = np.clip(seq_len - column, 0, spans.length)  # stored tokens before the look-ahead cell
    one = np.ones_like(every)
    kinds = [  # (which, column, start, length, inserted), in order of columns
        (bos, spans.at, -one, one, True),
        (inside > 0, column, spans.start, inside, False),
        (
            spans.length > inside,
            column + inside,
            spans.start + inside,
            spans.length - inside,
            False,
        ),
        (eos, column + spans.length, ends, one, True),
    ]
    parts = [
        (every[keep], at[keep], start[keep], length[keep], np.full(int(keep.sum()), inserted))
        for keep, at, start, length, inserted in kinds
    ]
    span, at, start, length, inserted = (np.concatenate(one) for one in zip(*parts, strict=True))
    order = np.lexsort((at, span))
    span, at, start, length, inserted = (x[order] for x in (span, at, start, length, inserted))
    return CellRuns(span, at, start, length, at >= seq_len, inserted)
