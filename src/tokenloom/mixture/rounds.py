"""Rounds: every block of a mix has a fixed number of items of each source.

One idea: a block has the same items as under the `weights` rule, in another order. So quotas are
never negative, errors do not accumulate, and no source is lost, however small its weight. Inside a
block the sources come one after the other, or shuffled in a keyed order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.mixture.merge import Merge
from tokenloom.random.keys import children, key
from tokenloom.random.permute import permutations

__all__ = ["Rounds"]

Int64 = NDArray[np.int64]


class Rounds:
    """Blocks of a merge.

    Args:
        merge: a merge by weights that starts at the edge of a block.
        block: items of a block.
        end: total number of items; None is endless.
        shuffled: whether the items of a block come in a keyed order.
        seed: seed of these orders.
    """

    def __init__(
        self, merge: Merge, block: int, end: int | None, *, shuffled: bool, seed: int
    ) -> None:
        self.merge, self.block, self._end = merge, block, end
        self._shuffled, self._root = shuffled, key(seed, "mix", "rounds")

    def items(self, first: int, last: int) -> tuple[Int64, Int64]:
        """(source, item) of indices [first, last)."""
        begin = first // self.block * self.block
        end = -(-last // self.block) * self.block
        source, item = self.merge.items(begin, end if self._end is None else min(end, self._end))
        block = np.arange(len(source)) // self.block
        order = np.lexsort((source, block))  # stable: items of one source keep their order
        if self._shuffled:
            order = order[self._shuffle(begin // self.block, len(order))]
        chosen = order[first - begin : last - begin]
        return source[chosen], item[chosen]

    def _shuffle(self, number: int, count: int) -> Int64:
        """The places of `count` items from block `number` on, shuffled inside each block."""
        out = np.arange(count)
        whole = count // self.block * self.block
        for low, high, size in ((0, whole, self.block), (whole, count, count - whole)):
            if low < high:
                block = (out[low:high] // self.block).astype(np.uint64)
                keys = children(self._root, np.unique(block) + np.uint64(number))
                inside = (out[low:high] - low) % size
                moved = permutations(size, keys).forward(
                    inside.astype(np.uint64), (block - block[0]).astype(np.int64)
                )
                out[low:high] += moved.view(np.int64) - inside
        return out

    def cut(self, index: int) -> Int64:
        """The number of items of every source before an index [sources]."""
        begin = index // self.block * self.block
        before = self.merge.cut(begin)
        if begin == index:
            return before
        source, _ = self.items(begin, index)
        counts: Int64 = before + np.bincount(source, minlength=len(before))
        return counts

    def whole(self, index: int) -> int:
        """See `tokenloom.mixture.stages.Merged`."""
        return index // self.block * self.block if self._shuffled else index

    def index(self, source: int, item: int) -> int:
        """The index of an item of a source in the run."""
        begin = self.merge.index(source, item) // self.block * self.block
        sources, items = self.items(begin, begin + self.block)  # at the end, those that are left
        return begin + int(np.flatnonzero((sources == source) & (items == item))[0])
