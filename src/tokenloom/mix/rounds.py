"""Rounds: every block of a mixture has a fixed number of items of each source.

One idea: the quotas of a block are what the `weights` rule has at its end, less what it had at its
begin; so they are never negative, no error builds up, and no source is ever lost, however small its
weight. Inside a block sources come one after the other, or, at random, in a keyed order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.keys import child, key
from tokenloom.mix.merge import Merge
from tokenloom.order.permute import permutations

__all__ = ["Rounds"]

Int64 = NDArray[np.int64]


class Rounds:
    """Blocks of a merge.

    Args:
        merge: by weights; it must begin with a block.
        block: items of a block.
        end: items in all; None is for ever.
        shuffled: items of a block in a keyed order.
        seed: of these orders.
    """

    def __init__(
        self, merge: Merge, block: int, end: int | None, *, shuffled: bool, seed: int
    ) -> None:
        self.merge, self._block, self._end = merge, block, end
        self._shuffled, self._root = shuffled, key(seed, "mix", "rounds")

    def _edges(self, number: int) -> tuple[int, int]:
        """Indices of a block."""
        first = number * self._block
        last = first + self._block
        return first, last if self._end is None else min(last, self._end)

    def _order(self, number: int, size: int) -> Int64 | None:
        """Where the items of a block go, None for as they are."""
        if not self._shuffled:
            return None
        made = permutations(size, [child(self._root, number)])
        return made.forward(np.arange(size, dtype=np.uint64)).view(np.int64)

    def _listed(self, number: int) -> tuple[Int64, Int64]:
        """(source, item) of a whole block, in its order."""
        first, last = self._edges(number)
        begin, end = self.merge.cut(first), self.merge.cut(last)
        count = end - begin
        source = np.repeat(np.arange(len(count)), count)
        item = np.arange(len(source)) - np.repeat(np.cumsum(count) - count - begin, count)
        order = self._order(number, last - first)
        return (source, item) if order is None else (source[order], item[order])

    def items(self, first: int, last: int) -> tuple[Int64, Int64]:
        """(source, item) of indices [first, last)."""
        blocks = range(first // self._block, -(-last // self._block))
        parts = [self._listed(number) for number in blocks]
        source, item = (np.concatenate(column) for column in zip(*parts, strict=True))
        skip = first - blocks[0] * self._block
        return source[skip : skip + last - first], item[skip : skip + last - first]

    def cut(self, index: int) -> Int64:
        """Items of every source before an index [sources]."""
        begin, rest = index // self._block * self._block, index % self._block
        before = self.merge.cut(begin)
        if not rest:
            return before
        source, _ = self.items(begin, index)
        counts: Int64 = before + np.bincount(source, minlength=len(before))
        return counts

    def index(self, source: int, item: int) -> int:
        """Where an item of a source stands in the run."""
        number = self.merge.index(source, item) // self._block
        while True:  # at the edge of a block the rule may have put it into the next
            sources, items = self._listed(number)
            here = np.flatnonzero((sources == source) & (items == item))
            if len(here):
                return number * self._block + int(here[0])
            number += 1 if item >= self.merge.cut(self._edges(number)[1])[source] else -1
