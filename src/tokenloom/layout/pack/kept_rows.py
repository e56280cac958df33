"""Rows of packed groups that were planned once: in memory, and in the plan cache.

Whoever asks for rows gets a table that has their groups. What the table lacks comes from the plan
cache, else it is planned. When all groups of a large store are in the table they are written to the
plan cache, so that no other process plans them again.

================================  ===============================================================
all pieces fit the budget         every group is planned, or read, once in a process
they do not                       the table is emptied when it is full. The first time, all groups
                                  are planned once more, into the plan cache; later misses are read
the plan cache can't be used      groups are planned again after the table was emptied
================================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.pack.piece_table import Columns, Kinds, PieceTable
from tokenloom.limits import limits
from tokenloom.progress import Progress
from tokenloom.store.handles import Single, lock_of
from tokenloom.store.plan_cache import Parts, recall_parts, remember_parts

__all__ = ["KeptRows", "Plan"]

Int64 = NDArray[np.int64]

Plan = Callable[[int], Columns]

"""Plans the rows of a group. It is passed to every call: its owner owns the kept rows, too."""


class KeptRows(Single):
    """The rows of groups by number.

    Args:
        kinds: the dtypes in which they are kept.
        first_row: first row of each group, then the number of rows [groups + 1].
        identity: everything that decides the rows, as JSON; None if they are not worth a file.
        capacity: most pieces in memory, over all groups.
        total: pieces of all groups, at most.
    """

    def __init__(
        self,
        kinds: Kinds,
        first_row: Int64,
        identity: Mapping[str, Any] | None,
        capacity: int,
        total: int,
    ) -> None:
        self._kinds, self._first_row, self._identity = kinds, first_row, identity
        self._groups, self._all_fit = len(first_row) - 1, total <= capacity
        self._capacity = max(1, min(capacity, total))
        # groups whose rows are asked for together, so that they fit in memory beside the table
        self.most_groups = max(1, self._groups * self._capacity // max(1, total))
        self._table = PieceTable(kinds, first_row, self._capacity)
        self._file: Parts | None = None
        self._looked_up = self._written = identity is None
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """A table that another thread was changing is filled again."""
        if torn:
            self._table = PieceTable(self._kinds, self._first_row, self._capacity)

    def take(self, group: Int64, rows: Int64, base: Mapping[str, Int64], plan: Plan) -> Columns:
        """The pieces of these rows, in this order, as `PieceTable.take` gives them.

        Args:
            group: the group of each row [N].
            rows: their numbers [N].
            base: column → what to add to it in each row [N].
            plan: plans what is not kept.
        """
        return self.of(group, plan).take(rows, base)

    def of(self, group: Int64, plan: Plan) -> PieceTable:
        """A table that has these groups; others take from it at the same time."""
        chunk = limits().packing_chunk_groups
        most_rows = limits().packing_chunk_rows
        table, room = self._table, self._capacity
        while not (there := table.has[group]).all():
            # few at a time: their memory is used again, and stays in the CPU's cache
            wanted = np.unique(group[~there])[:chunk]
            rows = np.cumsum(self._first_row[wanted + 1] - self._first_row[wanted])
            missing = wanted[: max(1, int(np.searchsorted(rows, most_rows, side="right")))].tolist()
            made = self._read(missing) or {number: plan(number) for number in missing}
            with self._lock:  # one thread adds, the others may take
                added = table.put(made)
            if not added:  # a second time only if this request alone is more than fits
                table = self._table = PieceTable(self._kinds, self._first_row, room)
                room *= 2
                self._keep(plan)  # reading is cheaper than planning again
        if not self._written and table.has.all():
            self._keep(table.group)
        return table

    # -- in the plan cache -----------------------------------------------------------------

    def _read(self, numbers: list[int]) -> dict[int, Columns] | None:
        """These groups, if the plan cache has them."""
        if not self._looked_up:
            self._file, self._looked_up = self._recalled(), True
        raws = None if self._file is None else self._file.read(numbers)
        if raws is None:
            self._file = None
            return None
        found = {}
        for number, raw in zip(numbers, raws, strict=True):
            rows = int(self._first_row[number + 1] - self._first_row[number])
            found[number] = Columns.from_bytes(raw, self._kinds, rows)
        return found

    def _recalled(self) -> Parts | None:
        """The file of all groups, if there is one."""
        assert self._identity is not None
        return recall_parts("packed-rows", self._identity, self._groups)

    def _keep(self, rows_of: Plan) -> None:
        """Write the rows of all groups to the plan cache, once, unless they come from there."""
        many = self._groups >= limits().min_progress_packing_groups
        if self._written or self._identity is None or self._file is not None:
            return
        self._written = True

        def parts() -> Iterator[bytes]:
            shown = None if many and not self._all_fit else False
            with Progress("packing", total=self._groups, unit=" groups", show=shown) as progress:
                for number in range(self._groups):
                    yield rows_of(number).to_bytes(self._kinds)
                    progress.reach(number + 1)

        if remember_parts("packed-rows", self._identity, parts()) and not self._all_fit:
            self._file = self._recalled()
