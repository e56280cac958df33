"""Rows of packed groups that were planned once: in memory, and in the plan cache.

One idea: whoever asks for rows gets a table that has their groups. What the table lacks comes from
the plan cache, else it is planned. When all groups of a large store are in the table they are
written to the plan cache, so that no other process plans them again.

================================  ===============================================================
all pieces fit the budget         every group is planned, or read, once in a process
they do not                       the table is emptied when it is full. The first time, all groups
                                  are planned once more, into the plan cache; later misses are read
the plan cache can't be used      groups are planned again after the table was emptied
================================  ===============================================================

A file is believed as far as any other (`tokenloom.store.plan_cache`): random groups are planned
again before it is used, each part has a digest, and a part that breaks a law of its group is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.allowance import PLANNED, about_to_visit, is_limited
from tokenloom.layout.pack.piece_table import Columns, Kinds, PieceTable
from tokenloom.progress import Progress
from tokenloom.store.handles import Single, lock_of
from tokenloom.store.plan_cache import Parts, random_places, recall_parts, remember_parts

__all__ = ["KeptRows", "Planner", "digest_of"]

Int64 = NDArray[np.int64]

TOGETHER = 32  # groups that are read or planned before they are put into the table

ROWS = 1 << 19  # of these groups: planned ones take 60 bytes for each

SHOWN = 200  # groups; planning more takes seconds, so it shows progress


class Planner(Protocol):
    """Whoever plans the groups. It is passed to every call: it owns the kept rows, not they it."""

    def plan(self, number: int) -> Columns:
        """The rows of a group, planned."""

    def check(self, number: int, rows: Columns) -> bool:
        """Whether the rows of a group, as they were kept, can be those of a plan."""

    def looked_at(self) -> Mapping[int, bytes]:
        """Random groups → `digest_of` their rows, planned in this process."""


def digest_of(rows: Columns, kinds: Kinds) -> bytes:
    """The digest of a group's rows, as the plan cache computes it."""
    return hashlib.sha256(rows.to_bytes(kinds)).digest()


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
        self._table = self._new_table()
        self._parts: Parts | None = None
        self._looked_up = self._written = identity is None
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """A table that another thread was changing is filled again."""
        if torn:
            self._table = self._new_table()

    def _new_table(self) -> PieceTable:
        few = is_limited()
        return PieceTable(self._kinds, self._first_row, self._capacity, few=few)

    def of(self, group: Int64, planner: Planner) -> PieceTable:
        """A table that has these groups; others take from it at the same time."""
        table, room = self._table, self._capacity
        while not (there := table.has[group]).all():
            # few at a time: their memory is used again, and stays in the CPU's cache
            wanted = np.unique(group[~there])[:TOGETHER]
            rows = np.cumsum(self._first_row[wanted + 1] - self._first_row[wanted])
            missing = wanted[: max(1, int(np.searchsorted(rows, ROWS, side="right")))].tolist()
            about_to_visit(PLANNED * int(rows[len(missing) - 1]), "the plans of packed groups")
            made = self._read(missing, planner)
            made.update({one: planner.plan(one) for one in missing if one not in made})
            with self._lock:  # one thread adds, the others may take
                added = table.put(made)
            if not added:  # a second time only if this request alone is more than fits
                table = self._table = PieceTable(self._kinds, self._first_row, room)
                room *= 2
                self._keep(planner.plan)  # reading is cheaper than planning again
        if not self._written and table.has.all():
            self._keep(table.group)
        return table

    # -- in the plan cache -----------------------------------------------------------------

    def _read(self, numbers: list[int], planner: Planner) -> dict[int, Columns]:
        """These groups, if the plan cache has them."""
        if not self._looked_up:
            self._parts, self._looked_up = self._found(planner), True
        kept = self._parts
        if kept is None:
            return {}
        raws, found = kept.read(numbers), {}
        for number, raw in zip(numbers, raws or (), strict=False):
            rows = int(self._first_row[number + 1] - self._first_row[number])
            columns = Columns.from_bytes(raw, self._kinds, rows)
            if columns is not None and planner.check(number, columns):
                found[number] = columns
        if len(found) < len(numbers):
            kept.wrong()
            self._parts = None
            return {}
        return found

    def _found(self, planner: Planner) -> Parts | None:
        """The rows of all groups in the plan cache, if they are there and random groups agree."""
        assert self._identity is not None
        kept = recall_parts("packed-rows", self._identity, self._groups)
        if kept is None:
            return None
        known = planner.looked_at() or {
            number: digest_of(planner.plan(number), self._kinds)
            for number in random_places(self._groups).tolist()
        }
        if any(kept.digests[number].tobytes() != right for number, right in known.items()):
            kept.wrong()
            return None
        return kept

    def keep_all(self, parts: Iterable[bytes]) -> bool:
        """Keep the rows of all groups, unless they are there; whether this call made the file.

        Args:
            parts: the rows of each group, in order; they are not asked for in vain.
        """
        if self._identity is None:
            return False
        if recall_parts("packed-rows", self._identity, self._groups) is not None:
            return False
        self._written = True
        return remember_parts("packed-rows", self._identity, parts)

    def _keep(self, rows_of: Callable[[int], Columns]) -> None:
        """Write the rows of all groups to the plan cache, once, unless they come from there."""
        if self._written or self._identity is None or self._parts is not None:
            return
        self._written = True

        def parts() -> Iterator[bytes]:
            shown = None if self._groups >= SHOWN and not self._all_fit else False
            with Progress("packing", total=self._groups, unit=" groups", show=shown) as progress:
                for number in range(self._groups):
                    yield rows_of(number).to_bytes(self._kinds)
                    progress.reach(number + 1)

        if remember_parts("packed-rows", self._identity, parts()) and not self._all_fit:
            self._parts = recall_parts("packed-rows", self._identity, self._groups)
