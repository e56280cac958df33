"""The pieces of packed rows by row number, in a few bytes each, so that no row is planned twice.

One idea: a group is planned once, and its rows are kept as the narrowest integers that hold them:
numbers of documents and addresses are counted from the start of the group, and where a piece goes
in its frame follows from the lengths before it. The groups share flat arrays in order of their
first use, so rows of any groups are found by one gather.

A piece costs 8 bytes at the usual settings (10,000 documents in a group, rows of up to 65,535
tokens) and at most 15; `start`, `flags` and `seen` take memory only where they are not 0. In a file
of the plan cache each group is a part:

    mask (1 byte)  count [rows]  document  address  length [pieces]  start  flags  seen [pieces]
    which of the last three are there

Rows of packed groups that were planned once: in memory, and in the plan cache.

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

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom import native
from tokenloom.arrays import Int64
from tokenloom.layout.pack.plan import PackedRows, inserted, stored_inside
from tokenloom.limits import limits
from tokenloom.progress import Progress
from tokenloom.store.handles import Single, lock_of
from tokenloom.store.plan_cache import Parts, recall_parts, remember_parts

Ints = NDArray[np.integer]

PIECES = ("document", "address", "length", "start", "flags", "seen")

OPTIONAL = PIECES[3:]  # all 0 in most plans


@dataclass(frozen=True, slots=True)
class Kinds:
    """The dtypes of the columns of a plan.

    Args:
        width: cells of a row.
        documents: documents of the largest group.
        tokens: tokens of the longest group.
    """

    width: int
    documents: int
    tokens: int

    @property
    def dtypes(self) -> dict[str, np.dtype[np.integer]]:
        """Name → dtype, little-endian; `count` has an element for each row, others for each piece.

        >>> sum(kind.itemsize for kind in Kinds(2049, 10_000, 1 << 25).dtypes.values())
        17
        """
        return dict(_dtypes(self.width, self.documents, self.tokens))

    @property
    def piece_bytes(self) -> int:
        """The most bytes that a piece takes."""
        return sum(kind.itemsize for name, kind in self.dtypes.items() if name != "count")


@functools.lru_cache(maxsize=16)
def _dtypes(width: int, documents: int, tokens: int) -> dict[str, np.dtype[np.integer]]:
    short, long = np.min_scalar_type(width), np.min_scalar_type(tokens)
    kinds = {
        "count": short,
        "document": np.min_scalar_type(documents),
        "address": long,
        "length": short,
        "start": long,
        "flags": np.dtype(np.uint8),
        "seen": short,
    }
    return {name: kind.newbyteorder("<") for name, kind in kinds.items()}


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """The rows of one group.

    Attributes:
        count: pieces of each row [rows].
        document: index of the document in the group [pieces].
        address: position of the first token, from the start of the group [pieces].
        length: stored tokens [pieces].
        start: document offset of the first token [pieces].
        flags, seen: see `tokenloom.layout.spans.Spans` [pieces].
    """

    count: Ints
    document: Ints
    address: Ints
    length: Ints
    start: Ints
    flags: NDArray[np.uint8]
    seen: Ints

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.document)

    @property
    def cells(self) -> Int64:
        """Cells of each piece, including inserted tokens [pieces]."""
        length = np.asarray(self.length, np.int64)
        return length + inserted(self.flags) if self.flags.any() else length

    @property
    def edges(self) -> Int64:
        """First piece of each row, then the number of pieces [rows + 1]."""
        edges = np.zeros(len(self.count) + 1, np.int64)
        np.cumsum(self.count, out=edges[1:])
        return edges

    def at(self, edges: Int64, cells: Int64) -> Int64:
        """First cell of each piece in its row: pieces follow each other from cell 0 [pieces]."""
        before = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(cells, out=before[1:])
        return before[:-1] - np.repeat(before[edges[:-1]], self.count)

    def tokens(self, seq_len: int) -> Int64:
        """Stored tokens in the frame of each row [rows]."""
        edges, length = self.edges, self.length.astype(np.int64)
        inside = stored_inside(self.at(edges, self.cells), length, self.flags, seq_len)
        return np.diff(np.concatenate([[0], np.cumsum(inside)])[edges])

    def to_bytes(self, kinds: Kinds) -> bytes:
        """One part of a file."""
        there = [bool(getattr(self, name).any()) for name in OPTIONAL]
        parts = [bytes([sum(one << bit for bit, one in enumerate(there))])]
        for name, kind in kinds.dtypes.items():
            if name not in OPTIONAL or there[OPTIONAL.index(name)]:
                parts.append(getattr(self, name).astype(kind).tobytes())
        return b"".join(parts)

    @staticmethod
    def from_bytes(raw: bytes, kinds: Kinds, rows: int) -> Columns:
        """The rows of `to_bytes`, given how many there are."""
        dtypes = kinds.dtypes
        head = 1 + rows * dtypes["count"].itemsize
        found: dict[str, Ints] = {"count": np.frombuffer(raw, dtypes["count"], rows, 1)}
        there = {name for bit, name in enumerate(OPTIONAL) if raw[0] >> bit & 1}
        pieces = int(found["count"].sum(dtype=np.int64))
        kept = [name for name in dtypes if name not in ("count", *OPTIONAL) or name in there]
        for name, kind in dtypes.items():
            if name in kept:
                found[name] = np.frombuffer(raw, kind, pieces, head)
                head += pieces * kind.itemsize
            elif name != "count":
                found[name] = np.zeros(pieces, kind)
        return Columns(**found)  # type: ignore[arg-type]


def columns_of(rows: PackedRows, begin: Int64) -> Columns:
    """The rows of a group as they are kept, given where its documents start in the group."""
    pieces = rows.pieces
    return Columns(
        count=np.diff(rows.edges),
        document=pieces.document,
        address=begin[pieces.document] + pieces.start,
        length=pieces.length,
        start=pieces.start,
        flags=pieces.flags,
        seen=pieces.seen,
    )


class PieceTable:
    """The rows of some groups, in order of their first use.

    Args:
        kinds: the dtypes.
        first_row: first row of each group, then the number of rows [groups + 1].
        capacity: most pieces; memory is used as they come.

    Attributes:
        has: which groups are in it [groups].
        pieces: how many pieces are in it.
    """

    def __init__(self, kinds: Kinds, first_row: Int64, capacity: int) -> None:
        dtypes = kinds.dtypes
        rows = int(first_row[-1])
        self._first_row = first_row
        self._first = np.zeros(rows, np.min_scalar_type(capacity))
        self._count = np.zeros(rows, dtypes.pop("count"))
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(capacity, kind) for name, kind in dtypes.items()
        }
        self.has = first_row[1:] == first_row[:-1]  # a group without rows needs nothing
        self.pieces, self.capacity = 0, capacity
        self._used: frozenset[str] = frozenset(dtypes) - set(
            OPTIONAL
        )  # columns that hold others than 0

    def put(self, groups: Mapping[int, Columns]) -> bool:
        """Add groups; False, and none is added, unless there is room for all of them.

        Rows that were added before can be taken by other threads meanwhile; only one may add.
        """
        fresh = {number: one for number, one in groups.items() if not self.has[number]}
        if self.pieces + sum(map(len, fresh.values())) > self.capacity:
            return False
        for number, one in fresh.items():
            low, high = self._first_row[number : number + 2].tolist()
            place = slice(self.pieces, self.pieces + len(one))
            for name, column in self._columns.items():
                values = getattr(one, name)
                if name not in OPTIONAL or values.any():  # memory that is not touched costs none
                    column[place] = values
                    self._used |= {name}
            counts = one.count.astype(np.int64)
            self._first[low:high] = self.pieces + np.cumsum(counts) - counts
            self._count[low:high] = counts
            self.pieces += len(one)
            self.has[number] = True
        return True

    def group(self, number: int) -> Columns:
        """The rows of one group that is in the table."""
        low, high = self._first_row[number : number + 2].tolist()
        count = self._count[low:high]
        first = int(self._first[low]) if high > low else 0
        place = slice(first, first + int(count.sum(dtype=np.int64)))
        return Columns(count, *(column[place] for column in self._columns.values()))

    def take(self, rows: Int64, base: Mapping[str, Int64]) -> Columns:
        """The pieces of these rows, in this order; their groups are in the table.

        Args:
            rows: their numbers [N].
            base: column → what to add to it in each row [N].

        Returns:
            columns of int64, but for `flags`.
        """
        count, first = self._count[rows].astype(np.int64), self._first[rows].astype(np.int64)
        total = int(count.sum())
        found: dict[str, NDArray[Any]] = {}
        for name, column in self._columns.items():
            kind = np.uint8 if name == "flags" else np.int64
            if name in self._used:
                values = _gathered(column, first, count, base.get(name), total)
                found[name] = np.asarray(values, kind)
            else:
                found[name] = np.zeros(total, kind)
        return Columns(count, **found)


def _gathered(column: Ints, first: Int64, count: Int64, base: Int64 | None, total: int) -> Int64:
    """`count` elements from each `first` on, plus the `base` of each, concatenated."""
    if native.compiled is not None:
        out = np.empty(total, np.int64)
        plain = None if base is None else native.plain(base, np.int64)
        native.compiled.gather(column, first, count, plain, out)
        return out
    # element k of the result: the first one of its row, plus how far k is past it
    part = np.repeat(first - (np.cumsum(count) - count), count)
    part += np.arange(total)
    values: Int64 = column[part].astype(np.int64)
    return values if base is None else values + np.repeat(base, count)


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
