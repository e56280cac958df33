"""Packed rows as they lie in the plan cache: each group in stretches of rows, which are read alone.

One idea: a loader wants all rows of a group, sooner or later; a page wants 32 rows of 32 groups. So
a part of the file (`tokenloom.store.plan_cache.Parts`) is not a group but a stretch of up to 8,192
rows of one, with its own digest: about 100 KB, which are read and compared in 0.2 ms, and a page
of 10^9 rows is there in a few milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.pack.piece_table import Columns, Kinds
from tokenloom.limits import limits
from tokenloom.store.handles import lazy

__all__ = ["RowParts", "digest_of", "part_bytes"]

Int64 = NDArray[np.int64]


def part_bytes(rows: Columns, kinds: Kinds) -> Iterator[bytes]:
    """The parts of a group, in order; none for a group without rows."""
    for one in rows.cut(limits().packing_file_part_rows):
        yield one.to_bytes(kinds)


def digest_of(rows: Columns, kinds: Kinds) -> bytes:
    """The digests of a group's parts, as the plan cache computes them, one after the other."""
    return b"".join(hashlib.sha256(one).digest() for one in part_bytes(rows, kinds))


@dataclass(frozen=True, eq=False)
class RowParts:
    """Where rows lie in a file of parts.

    Attributes:
        kinds: the dtypes in which they are kept.
        first_row: first row of each group, then the number of rows [groups + 1].
        part_rows: rows of a part; the last one of a group may have fewer.
    """

    kinds: Kinds
    first_row: Int64
    part_rows: int

    @lazy
    def first_part(self) -> Int64:
        """First part of each group, then the number of parts [groups + 1]."""
        parts = -(-np.diff(self.first_row) // self.part_rows)
        return np.concatenate([[0], np.cumsum(parts)]).astype(np.int64)

    def parts(self, group: int) -> range:
        """The parts of a group."""
        return range(*self.first_part[group : group + 2].tolist())

    def place(self, group: Int64, rows: Int64) -> tuple[Int64, Int64]:
        """The part of each row, and its number in that part, given the group of each [N]."""
        part, inside = np.divmod(rows - self.first_row[group], self.part_rows)
        return self.first_part[group] + part, inside

    def first(self, group: int, part: int) -> int:
        """The first row of a part, counted from the start of its group."""
        return (part - int(self.first_part[group])) * self.part_rows

    def size(self, group: Int64, part: Int64) -> Int64:
        """Rows of each part, given the group of each [N]."""
        left = np.diff(self.first_row)[group] - (part - self.first_part[group]) * self.part_rows
        found: Int64 = np.minimum(left, self.part_rows)
        return found

    def columns(self, group: int, part: int, raw: bytes) -> Columns | None:
        """The rows of a part; None if it has another size than these rows."""
        rows = self.size(np.array([group]), np.array([part]))
        return Columns.from_bytes(raw, self.kinds, int(rows[0]))

    def group(self, group: int, raws: Sequence[bytes]) -> Columns | None:
        """The rows of a group, given all its parts; None if one has another size."""
        parts = self.parts(group)
        if len(raws) != len(parts):
            return None
        found = [self.columns(group, *one) for one in zip(parts, raws, strict=True)]
        known = [one for one in found if one is not None]
        return Columns.joined(known) if known and len(known) == len(found) else None
