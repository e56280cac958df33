"""Best fit decreasing of a whole corpus from the histogram of its lengths.

One idea: items of one length are placed one after the other, so bins with the same content stay
together: what is kept is not a bin but a *stretch* of bins that are all alike. The cost depends on
how many different lengths there are, not on how many items, and the bins are those of
`tokenloom.layout.pack.packers`, number by number.

Worked example: three items of 5 and four of 2 in bins of 8: the three open bins 0, 1 and 2 with
room 3 each; the four fill bin 2, then 1, then 0 (the one opened last first), and one opens bin 3.
"""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.layout.pack.packers import MOST

__all__ = ["HistogramPlan", "Stretch", "pack_histogram"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bins [first, last) that hold the same: (length, how many) in order of placement."""

    first: int
    last: int
    content: tuple[tuple[int, int], ...]

    @property
    def items(self) -> int:
        """Items in each of the bins."""
        return sum(count for _, count in self.content)

    def with_more(self, length: int, count: int, first: int, last: int) -> Stretch:
        """Some of the bins, with some items more."""
        return Stretch(first, last, (*self.content, (length, count)))


@dataclass(frozen=True, slots=True)
class HistogramPlan:
    """Bins of a corpus.

    Attributes:
        capacity: room of a bin.
        items, tokens: in all.
        bins: how many there are.
        stretches: the bins, those alike together, in order.
    """

    capacity: int
    items: int
    tokens: int
    bins: int
    stretches: tuple[Stretch, ...]

    @property
    def fill(self) -> float:
        """Share of room that is taken."""
        return self.tokens / (self.bins * self.capacity) if self.bins else 0.0

    @property
    def items_per_bin(self) -> float:
        """On average; how many times as fast as one item a bin."""
        return self.items / self.bins if self.bins else 0.0


def pack_histogram(counts: Int64, capacity: int, most: int | None = None) -> HistogramPlan:
    """The bins of best fit decreasing.

    Args:
        counts: how many items there are of each length, from 0 on; of 0 there must be none [L].
        capacity: room of a bin.
        most: items of a bin, at most.

    >>> plan = pack_histogram(np.array([0, 0, 4, 0, 0, 3]), 8)
    >>> plan.bins, [(s.first, s.last, s.content) for s in plan.stretches]
    (4, [(0, 3, ((5, 1), (2, 1))), (3, 4, ((2, 1),))])
    """
    limit = MOST if most is None else most
    sizes = np.flatnonzero(counts)
    if (
        (counts < 0).any()
        or limit < 1
        or (len(sizes) and not 0 < sizes[0] <= sizes[-1] <= capacity)
    ):
        raise ConfigError(
            f"counts: found lengths {sizes[:1].tolist()} to {sizes[-1:].tolist()}, allowed are "
            f"counts from 0 on of lengths 1 to {capacity}, and at least 1 item a bin."
        )
    bins = _Bins(capacity, limit)
    for length in sizes[::-1].tolist():
        bins.place(length, int(counts[length]))
    items = int(counts.sum())
    tokens = int((counts * np.arange(len(counts))).sum())
    return HistogramPlan(capacity, items, tokens, bins.opened, bins.all())


class _Bins:
    """Open bins by their room, and those that are full."""

    def __init__(self, capacity: int, most: int) -> None:
        self.capacity, self.most, self.opened = capacity, most, 0
        self._rooms: list[int] = []  # that some bin has, ascending
        self._open: dict[int, list[tuple[int, int, Stretch]]] = {}  # heaps, the last bin on top
        self._closed: list[Stretch] = []

    def place(self, length: int, count: int) -> None:
        """Put items of one length into bins."""
        while count:
            at = bisect.bisect_left(self._rooms, length)
            if at == len(self._rooms):
                each = min(self.capacity // length, self.most)
                alike = max(1, count // each)
                stretch = Stretch(self.opened, self.opened + alike, ())
                self.opened += alike
                count -= self._fill(stretch, self.capacity, length, count)
            else:
                room = self._rooms[at]
                count -= self._fill(self._take(room), room, length, count)

    def _fill(self, stretch: Stretch, room: int, length: int, count: int) -> int:
        """Fill bins that are alike, the last one first, each as far as it goes; items placed."""
        each = min(room // length, self.most - stretch.items)
        whole = min(count // each, stretch.last - stretch.first)
        cut = stretch.last - whole
        if whole:
            self._keep(stretch.with_more(length, each, cut, stretch.last), room - each * length)
        rest = min(count - whole * each, each - 1) if cut > stretch.first and not whole else 0
        if rest:
            cut -= 1
            self._keep(stretch.with_more(length, rest, cut, cut + 1), room - rest * length)
        if cut > stretch.first:
            self._keep(Stretch(stretch.first, cut, stretch.content), room)
        return whole * each + rest

    def _keep(self, stretch: Stretch, room: int) -> None:
        if stretch.items == self.most or room == 0:
            self._closed.append(stretch)
            return
        heap = self._open.get(room)
        if heap is None:
            heap = self._open[room] = []
            bisect.insort(self._rooms, room)
        heapq.heappush(heap, (-stretch.last, stretch.first, stretch))

    def _take(self, room: int) -> Stretch:
        heap = self._open[room]
        stretch = heapq.heappop(heap)[2]
        if not heap:
            del self._open[room]
            self._rooms.remove(room)
        return stretch

    def all(self) -> tuple[Stretch, ...]:
        """Every bin, in order."""
        waiting = [stretch for heap in self._open.values() for _, _, stretch in heap]
        return tuple(sorted([*self._closed, *waiting], key=lambda stretch: stretch.first))
