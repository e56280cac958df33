"""Slots: which splices share a frame.

One idea: documents that lie together, and of which the same number of splices fits into a frame,
form a *cell*. A cell of U units with m units per frame has R = ceil(U / m) rows. Row r holds unit r
of each of m stretches of R units, so the splices of a row are far apart in the document. Every
epoch rotates the stretches against each other, so that each splice meets others. All of it is
arithmetic and has an inverse.

Worked example: 7 units, 3 per frame, epoch 0: R = 3, rows 0 3 6 | 1 4 | 2 5.

With one splice per frame, m is 1 and row r is unit r.

Steps: sums without a loop. A number that is the same for many units in a row of units, such as the
tokens of each, is kept as *steps*. What the rows add up to has steps again: one wherever one of
their stretches has one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.random.keys import GOLDEN

__all__ = ["Slots", "StepSums"]

Int64 = NDArray[np.int64]


class StepSums(NamedTuple):
    """One number for each of many rows (or units), the same for all rows of a step.

    Attributes:
        edges: the first row of each step, from 0 on, and the number of rows [steps + 1].
        value: the number of each of its rows [steps].
    """

    edges: Int64
    value: Int64

    def at(self, rows: Int64) -> Int64:
        """The number of each row [N]."""
        found: Int64 = self.value[np.searchsorted(self.edges, rows, side="right") - 1]
        return found

    def upto(self, rows: Int64) -> Int64:
        """The sum of the numbers of all rows before each row [N].

        >>> StepSums(np.array([0, 3, 5]), np.array([10, 1])).upto(np.array([0, 2, 4, 5])).tolist()
        [0, 20, 31, 32]
        """
        sums = np.concatenate([[0], np.cumsum(np.diff(self.edges) * self.value)])
        step = np.searchsorted(self.edges, rows, side="right") - 1
        inside = rows - self.edges[step]
        found: Int64 = sums[step] + inside * np.append(self.value, 0)[step]
        return found


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

    def line(self, document: Int64, unit: Int64) -> Int64:
        """Where units come on the line of all units, cell by cell [N]."""
        found: Int64 = self._first_unit[self._place[document]] + unit
        return found

    def row_steps(self, units: StepSums, epoch: int) -> StepSums:
        """What the units of each row of an epoch add up to, from a number for each unit.

        Args:
            units: the numbers along the line of units (`line`).
            epoch: rows hold other units in other epochs.
        """
        if self._one:
            return units
        live = np.flatnonzero(self._r > 0)
        first, end, row = self._cell_unit[live], self._cell_unit[live + 1], self._cell_row[live]
        many, r = self._m[live], self._r[live]
        turn = self._turn(np.full(len(live), epoch), r)
        # every stretch: its cell, its number j, its first unit; after the last unit come zeros
        cell = np.repeat(np.arange(len(live)), many)
        begins = np.cumsum(many) - many
        j = np.arange(len(cell)) - begins[cell]
        begin = first[cell] + j * r[cell]

        def value(unit: Int64) -> Int64:
            return np.where(unit < end[cell], units.at(np.minimum(unit, end[cell] - 1)), 0)

        base = np.add.reduceat(value(begin + j * turn[cell] % r[cell]), begins)  # row 0 of a cell
        again = value(begin) - value(begin + r[cell] - 1)  # a stretch comes round to its start
        # steps inside a stretch: those of the units, and the ends of the cells
        inner = np.concatenate([units.edges[1:-1], end])
        change = np.concatenate([np.diff(units.value), -units.at(end - 1)])
        where = np.searchsorted(first, inner, side="right") - 1
        where[len(inner) - len(end) :] = np.arange(len(end))
        stretch, inside = np.divmod(inner - first[where], r[where])
        keep = inside > 0
        where, stretch, inside = where[keep], stretch[keep], inside[keep]
        cell, j = np.concatenate([cell, where]), np.concatenate([j, stretch])
        change = np.concatenate([again, change[keep]])
        moved = np.concatenate([np.zeros_like(begin), inside]) - j * turn[cell]
        moved %= r[cell]
        later = moved > 0  # row 0 is in `base`
        cell, moved, change = cell[later], moved[later], change[later]
        last = base + np.bincount(cell, change, minlength=len(live)).astype(np.int64)
        rows = np.concatenate([row, row[cell] + moved])
        change = np.concatenate([base - np.append(0, last[:-1]), change])
        order = np.argsort(rows, kind="stable")
        rows, sums = rows[order], np.cumsum(change[order])
        keep = np.append(rows[1:] != rows[:-1], True)
        return StepSums(np.append(rows[keep], self.rows), sums[keep])

    @staticmethod
    def _turn(epoch: Int64, rows: Int64) -> Int64:
        """How far adjacent stretches are rotated: golden-ratio steps, none in epoch 0 [N]."""
        fraction = (epoch.astype(np.uint64) * np.uint64(GOLDEN)) >> np.uint64(33)  # 31 bits
        return (fraction.astype(np.int64) * (rows & 0xFFFFFFFF)) >> 31
