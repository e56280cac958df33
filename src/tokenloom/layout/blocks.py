"""Block order: storage-local blocks in shuffled order, their rows mixed in lanes of a band.

The blocks are permuted. A *band* is the next ``lanes x window_blocks`` of them; lane l of a band of
m blocks owns blocks [l m // L, (l + 1) m // L) and permutes all their rows together. Round h takes
row h of every lane (`tokenloom.order.block_order`). Then the next band follows.

Worked example: 8 blocks of 2 rows, window_blocks=2, lanes=2, in permuted order A B C D | E F G H::

    band 0   lane 0 = rows of A B, shuffled: a1 b0 a0 b1
             lane 1 = rows of C D, shuffled: d0 d1 c0 c1
    index    0  1  2  3  4  5  6  7 | band 1 …
    row      a1 d0 b0 d1 a0 c0 b1 c1

Between index and row comes the *place*: rows counted in the permuted order of the blocks. A band,
and each lane in it, is a stretch of places. So index → place deals only with lanes and shuffle
windows, place → row only with blocks, and neither knows about the other.

If blocks have equal sizes, a short last block stays last and is permuted on its own. If sizes
vary, all blocks are permuted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.arguments import check_between
from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """Where the storage-local blocks of a layout lie; they have equal sizes or arbitrary ones.

    Attributes:
        rows: total rows.
        size: rows of every block but the last; 0 if block sizes vary.
        starts: first row of each block, then the end [blocks + 1]; empty for equal sizes.

    >>> len(Blocks.equal(1000, 128)), len(Blocks.cut([0, 3, 3, 10]))
    (8, 3)
    """

    rows: int
    size: int
    starts: Int64

    @staticmethod
    def equal(rows: int, size: int) -> Blocks:
        """Blocks of `size` rows; the last may be shorter."""
        check_between("io_block_size", size, 1)
        check_between("rows", rows, 0)
        return Blocks(rows, size, np.empty(0, np.int64))

    @staticmethod
    def cut(starts: Any) -> Blocks:
        """Blocks that start at these rows; the last number is the end."""
        edges = np.array(starts, np.int64)
        if not len(edges) or edges[0] != 0 or (edges[1:] < edges[:-1]).any():
            raise ConfigError(
                f"blocks: found starts {edges[:5].tolist()} …, allowed: from 0 on, never "
                "decreasing."
            )
        return Blocks(int(edges[-1]), 0, edges)

    def __len__(self) -> int:
        return -(-self.rows // self.size) if self.size else len(self.starts) - 1

    def of(self, rows: Int64) -> Int64:
        """The block of each row [N]."""
        if self.size:
            return rows // self.size
        return np.searchsorted(self.starts, rows, side="right") - 1

    def edges(self, blocks: Int64) -> tuple[Int64, Int64]:
        """First row of each block and the row after its last [N]."""
        if self.size:
            return blocks * self.size, np.minimum((blocks + 1) * self.size, self.rows)
        return self.starts[blocks], self.starts[blocks + 1]

    def merged(self, rows: int) -> Blocks:
        """Adjacent blocks joined until each has at least `rows` rows (the last may have fewer).

        >>> Blocks.equal(1000, 128).merged(500).size
        512
        """
        if self.size:
            return Blocks.equal(self.rows, max(1, -(-rows // self.size)) * self.size)
        kept = [0]
        for edge in self.starts[1:].tolist():
            if edge - kept[-1] >= rows:
                kept.append(edge)
        if kept[-1] != self.rows:
            kept.append(self.rows)
        return Blocks.cut(kept)
