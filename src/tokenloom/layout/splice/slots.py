"""Slots: which splices share a frame.

One idea: documents that lie together, and of which the same number of splices fits into a frame,
form a *cell*. A cell of U units with m units per frame has R = ceil(U / m) rows. Row r holds unit r
of each of m stretches of R units, so the splices of a row are far apart in the document. Every
epoch rotates the stretches against each other, so that each splice meets others. All of it is
arithmetic and has an inverse.

Worked example: 7 units, 3 per frame, epoch 0: R = 3, rows 0 3 6 | 1 4 | 2 5.

With one splice per frame, m is 1 and row r is unit r.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.random.keys import GOLDEN

__all__ = ["Slots"]

Int64 = NDArray[np.int64]


class Slots:
    """The units of documents in rows.

    Args:
        quota: units of each document [documents].
        block: storage-local block of each document, ascending [documents].
        together: how many splices of each document fit into a frame [documents].
    """

    def __init__(self, quota: Int64, block: Int64, together: Int64) -> None:
        together = np.where(quota > 0, np.maximum(together, 1), 1)
        self._one = bool((together == 1).all())
        self._order = np.lexsort((np.arange(len(quota)), together, block))
        self._place = np.empty_like(self._order)  # document → its position in the order
        self._place[self._order] = np.arange(len(quota))
        self._first_unit = np.concatenate([[0], np.cumsum(quota[self._order])])
        b, m = block[self._order], together[self._order]
        begins = np.flatnonzero(np.append(True, (np.diff(b) != 0) | (np.diff(m) != 0)))
        self._cell_unit = self._first_unit[np.append(begins, len(quota))]
        self._m, units = m[begins], np.diff(self._cell_unit)
        self._r = -(-units // self._m)
        self._cell_row = np.concatenate([[0], np.cumsum(self._r)])
        blocks = int(block[-1]) + 1 if len(block) else 0
        rows = np.bincount(b[begins], self._r, minlength=blocks).astype(np.int64)
        self.block_row: Int64 = np.concatenate([[0], np.cumsum(rows)])

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return int(self._cell_row[-1])

    def units(self, rows: Int64, epoch: Int64) -> tuple[Int64, Int64, Int64]:
        """The units in each row: (index into `rows`, document, which of its units) [units]."""
        if self._one:
            frame, unit = np.arange(len(rows)), rows
        else:
            cell = np.searchsorted(self._cell_row, rows, side="right") - 1
            many, r = self._m[cell], self._r[cell]
            frame = np.repeat(np.arange(len(rows)), many)
            j = np.arange(len(frame)) - (np.cumsum(many) - many)[frame]
            r, cell = r[frame], cell[frame]
            turned = rows[frame] - self._cell_row[cell] + j * self._turn(epoch[frame], r)
            unit = self._cell_unit[cell] + j * r + turned % r
            keep = unit < self._cell_unit[cell + 1]
            frame, unit = frame[keep], unit[keep]
        place = np.searchsorted(self._first_unit, unit, side="right") - 1
        return frame, self._order[place], unit - self._first_unit[place]

    def rows_of(self, document: Int64, unit: Int64, epoch: Int64) -> Int64:
        """The row that holds each unit of a document: the inverse of `units` [N]."""
        found = self._first_unit[self._place[document]] + unit
        cell = np.searchsorted(self._cell_unit, found, side="right") - 1
        r = self._r[cell]
        j, turned = np.divmod(found - self._cell_unit[cell], r)
        rows: Int64 = self._cell_row[cell] + (turned - j * self._turn(epoch, r)) % r
        return rows

    @staticmethod
    def _turn(epoch: Int64, rows: Int64) -> Int64:
        """How far adjacent stretches are rotated: golden-ratio steps, none in epoch 0 [N]."""
        fraction = (epoch.astype(np.uint64) * np.uint64(GOLDEN)) >> np.uint64(33)  # 31 bits
        return (fraction.astype(np.int64) * (rows & 0xFFFFFFFF)) >> 31
