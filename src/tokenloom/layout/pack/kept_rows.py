"""Rows of packed groups that were planned once: in memory, and in the plan cache.

One idea: whoever asks for rows gets a table that has their groups. What the table lacks comes from
the plan cache, else it is planned. When all groups of a large store are in the table they are
written to the plan cache, so that no other process plans them again.

================================  ===============================================================
all pieces fit the budget         every group is planned, or read, once in a process
they do not                       the table is emptied when it is full. The first time, all groups
                                  are planned once more, into the plan cache; later misses are read
the plan cache can't be used      groups are planned again after the table was emptied
somebody waits for few rows       those that the plan cache has are read without their groups
================================  ===============================================================

A file is believed as far as any other (`tokenloom.store.plan_cache`): random groups are planned
again before it is used, each part has a digest, and a part that breaks a law of its group is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.allowance import PLANNED, READ, about_to_visit, is_limited
from tokenloom.layout.pack.piece_table import Columns, Kinds, PieceTable
from tokenloom.layout.pack.row_file import RowParts, digest_of, part_bytes
from tokenloom.limits import limits
from tokenloom.progress import Progress
from tokenloom.store.handles import Single, lock_of
from tokenloom.store.plan_cache import Parts, random_places, recall_parts, remember_parts

__all__ = ["PLANS", "KeptRows", "Planner"]

Int64 = NDArray[np.int64]

PLANS = "the plans of packed groups"


class Planner(Protocol):
    """Whoever plans the groups. It is passed to every call: it owns the kept rows, not they it."""

    def plan(self, number: int) -> Columns:
        """The rows of a group, planned."""

    def check(self, number: int, rows: Columns, first: int = 0) -> bool:
        """Whether rows of a group from `first` on, as they were kept, can be those of a plan."""

    def looked_at(self) -> Mapping[int, bytes]:
        """Random groups → `digest_of` their rows, planned in this process."""


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
        self._stretches = RowParts(kinds, first_row, limits().packing_file_part_rows)
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

    def take(
        self, group: Int64, rows: Int64, base: Mapping[str, Int64], planner: Planner
    ) -> Columns:
        """The pieces of these rows, in this order, as `PieceTable.take` gives them.

        Args:
            group: the group of each row [N].
            rows: their numbers [N].
            base: column → what to add to it in each row [N].
            planner: plans what is not kept.
        """
        few = self._few(group, rows, planner) if self._is_few(group, rows) else None
        return self.of(group, planner).take(rows, base) if few is None else few.based(base)

    def of(self, group: Int64, planner: Planner) -> PieceTable:
        """A table that has these groups; others take from it at the same time."""
        chunk = limits().packing_chunk_groups
        most_rows = limits().packing_chunk_rows
        table, room = self._table, self._capacity
        while not (there := table.has[group]).all():
            # few at a time: their memory is used again, and stays in the CPU's cache
            wanted = np.unique(group[~there])[:chunk]
            rows = np.cumsum(self._first_row[wanted + 1] - self._first_row[wanted])
            missing = wanted[: max(1, int(np.searchsorted(rows, most_rows, side="right")))].tolist()
            made = self._read(missing, planner)
            left = [one for one in missing if one not in made]
            if self._identity is not None:  # else nobody can keep them, so there is no better time
                about_to_visit(PLANNED * self._rows_of(left), PLANS)
            made.update({one: planner.plan(one) for one in left})
            with self._lock:  # one thread adds, the others may take
                added = table.put(made)
            if not added:  # a second time only if this request alone is more than fits
                table = self._table = PieceTable(self._kinds, self._first_row, room)
                room *= 2
                if not is_limited():
                    self._keep(planner.plan)  # reading is cheaper than planning again
        if not self._written and table.has.all():
            self._keep(table.group)
        return table

    def price(self, group: Int64, rows: Int64, planner: Planner) -> int:
        """Rows that count as visited when these are asked for, given the group of each [N]."""
        missing = np.unique(group[~self._table.has[group]])
        if self._kept_parts(planner) is None:
            return PLANNED * self._rows_of(missing)
        if not self._is_sparse(group, rows):
            return self._rows_of(missing) // READ
        return self._rows_read(group, rows) // READ

    def _rows_of(self, groups: Sequence[int] | Int64) -> int:
        numbers = np.asarray(groups, np.int64)
        return int((self._first_row[numbers + 1] - self._first_row[numbers]).sum())

    # -- in the plan cache -----------------------------------------------------------------

    def _kept_parts(self, planner: Planner) -> Parts | None:
        """The file of rows, if the plan cache has it; who waits looks again, others once."""
        look = self._identity is not None and (not self._looked_up or is_limited())
        if self._parts is None and look:
            self._parts, self._looked_up = self._found(planner), True
        return self._parts

    def _read(self, numbers: list[int], planner: Planner) -> dict[int, Columns]:
        """These groups, if the plan cache has them."""
        kept = self._kept_parts(planner)
        if kept is None:
            return {}
        about_to_visit(self._rows_of(numbers) // READ, PLANS)
        parts = [self._stretches.parts(number) for number in numbers]
        raws, found = iter(kept.read([*itertools.chain(*parts)]) or ()), {}
        for number, own in zip(numbers, parts, strict=True):
            columns = self._stretches.group(number, list(itertools.islice(raws, len(own))))
            if columns is None or not planner.check(number, columns):
                self._wrong(kept)
                return {}
            found[number] = columns
        return found

    def _is_few(self, group: Int64, rows: Int64) -> bool:
        """Whether somebody waits for rows, and wants few of groups that are not in memory."""
        return is_limited() and self._is_sparse(group, rows)

    def _is_sparse(self, group: Int64, rows: Int64) -> bool:
        missing = np.unique(group[~self._table.has[group]])
        return self._rows_of(missing) > limits().packing_sparse_rows * len(rows)

    def _rows_read(self, group: Int64, rows: Int64) -> int:
        """Rows of all parts that these rows are in."""
        part, first = np.unique(self._stretches.place(group, rows)[0], return_index=True)
        return int(self._stretches.size(group[first], part).sum())

    def _few(self, group: Int64, rows: Int64, planner: Planner) -> Columns | None:
        """These rows alone, read from the plan cache, in this order; None if it lacks them."""
        chunk = limits().packing_chunk_groups
        kept = self._kept_parts(planner)
        if kept is None:
            return None
        about_to_visit(self._rows_read(group, rows) // READ, PLANS)
        part, inside = self._stretches.place(group, rows)
        order = np.argsort(part, kind="stable")
        numbers, first = np.unique(part[order], return_index=True)
        ends, found = [*first[1:].tolist(), len(order)], list[Columns]()
        for low in range(0, len(numbers), chunk):
            some = numbers[low : low + chunk].tolist()
            for number, raw in itertools.zip_longest(some, kept.read(some) or ()):
                wanted = order[first[len(found)] : ends[len(found)]]
                owner = int(group[wanted[0]])
                columns = self._stretches.columns(owner, number, raw or b"")
                if columns is None or not planner.check(
                    owner, columns, self._stretches.first(owner, number)
                ):
                    self._wrong(kept)
                    return None
                found.append(columns.picked(inside[wanted]))
        return Columns.joined(found).picked(np.argsort(order))

    def _wrong(self, kept: Parts) -> None:
        """Remove a file that is not what was kept."""
        kept.wrong()
        self._parts = None

    def _found(self, planner: Planner) -> Parts | None:
        """The rows of all groups in the plan cache, if they are there and random groups agree."""
        assert self._identity is not None
        kept = self._recalled()
        if kept is None:
            return None
        known = planner.looked_at() or {
            number: digest_of(planner.plan(number), self._kinds)
            for number in random_places(self._groups).tolist()
        }
        edges = self._stretches.first_part
        if any(
            kept.digests[edges[number] : edges[number + 1]].tobytes() != right
            for number, right in known.items()
        ):
            kept.wrong()
            return None
        return kept

    def _recalled(self) -> Parts | None:
        assert self._identity is not None
        return recall_parts("packed-rows", self._identity, int(self._stretches.first_part[-1]))

    def keep_all(self, parts: Iterable[bytes]) -> bool:
        """Keep the rows of all groups, unless they are there; whether this call made the file.

        Args:
            parts: the parts of all groups, in order; they are not asked for in vain.
        """
        if self._identity is None:
            return False
        if self._recalled() is not None:
            return False
        self._written = True
        return remember_parts("packed-rows", self._identity, parts)

    def _keep(self, rows_of: Callable[[int], Columns]) -> None:
        """Write the rows of all groups to the plan cache, once, unless they come from there."""
        many = self._groups >= limits().min_progress_packing_groups
        if self._written or self._identity is None or self._parts is not None:
            return
        self._written = True

        def parts() -> Iterator[bytes]:
            shown = None if many and not self._all_fit else False
            with Progress("packing", total=self._groups, unit=" groups", show=shown) as progress:
                for number in range(self._groups):
                    yield from part_bytes(rows_of(number), self._kinds)
                    progress.reach(number + 1)

        if remember_parts("packed-rows", self._identity, parts()) and not self._all_fit:
            self._parts = self._recalled()
