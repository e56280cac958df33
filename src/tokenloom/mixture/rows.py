"""(epoch, row) of items of many sources at once, for requests that take a few items of each.

One idea: the items of a source come in order, so the rows of its next items will be asked for soon.
They are computed a stretch at a time, by the source itself, and kept until the source leaves the
stretch. A request of thousands of examples from a thousand sources then looks up a slice for each,
where asking every source for eight rows would cost twenty NumPy calls for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits
from tokenloom.order.run import SourceRun

__all__ = ["RowTables"]

Int64 = NDArray[np.int64]

Table = tuple[int, Int64, Int64]

"""The number of a stretch, and the epoch and the row of each of its items."""


class RowTables:
    """The rows of some stretches, one for each source.

    Args:
        sources: the endless run of each source.
    """

    def __init__(self, sources: Sequence[SourceRun]) -> None:
        least = limits().mix_table_least_items
        self._sources = tuple(sources)
        most = min(limits().mix_table_items, max(least, limits().mix_tables_items // len(sources)))
        # [sources]: items of a stretch; one epoch where every epoch has a cost of its own
        sizes = [min(most, max(least, r.rows)) if r.goes_by_epochs else most for r in sources]
        self._size = np.array(sizes, np.int64)
        self._tables: dict[int, Table] = {}

    def locate(
        self, numbers: Sequence[int], edges: Sequence[int], item: Int64
    ) -> list[tuple[Int64, Int64]]:
        """(epochs, rows) of some items of each source.

        Args:
            numbers: the sources.
            edges: where the items of each one start, and the number of items.
            item: the items, source by source [N].
        """
        first = np.asarray(edges[:-1], np.int64)
        size = self._size[np.asarray(numbers, np.int64)]
        low = np.minimum.reduceat(item, first) // size
        high = np.maximum.reduceat(item, first) // size
        inside = item - np.repeat(low * size, np.diff(edges))
        known, fresh, found = self._tables, {}, []
        asked = zip(numbers, edges[:-1], edges[1:], low.tolist(), high.tolist(), strict=True)
        for number, start, stop, stretch, last in asked:
            if stretch != last:  # it leaves one stretch for another
                found.append(self._sources[number].locate(item[start:stop]))
                continue
            table = known.get(number)
            if table is None or table[0] != stretch:
                table = fresh[number] = self._made(number, stretch)
            here = inside[start:stop]
            found.append((table[1].take(here), table[2].take(here)))
        if fresh:
            self._tables = known | fresh  # another thread may be reading the old one
        return found

    def _made(self, number: int, stretch: int) -> Table:
        size = int(self._size[number])
        run, first = self._sources[number], stretch * size
        epochs, rows = run.rows_from(first, first + size)
        return stretch, np.broadcast_to(epochs, len(rows)), rows
