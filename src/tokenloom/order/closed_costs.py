"""Cumulative costs of the items of a source, in the order in which they come.

One idea: item k of a source happens when everything before it has been consumed. So a run needs
``C(k)``, the cost of its first k items, and its inverse, from a cost to an item. If all rows cost
the same, both are one multiplication or division. If one row of an epoch is short, its position is
enough. Otherwise sums are kept (`tokenloom.order.costs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import with_newest
from tokenloom.limits import limits

__all__ = ["Costs", "EqualCosts", "ShortLastCosts"]

Int64 = NDArray[np.int64]


class Costs(Protocol):
    """Costs of the items of one source, in order."""

    n: int | None
    """Number of items; None is endless."""
    most: int
    """No item costs more."""

    def upto(self, k: int) -> int:
        """C(k), the cost of the first k items."""

    @property
    def mean(self) -> float:
        """The approximate cost of an item."""

    def one(self, k: int) -> tuple[int, int]:
        """C(k), and the cost of item k."""

    def items(self, first: int, last: int) -> Int64:
        """The cost of each item from `first` to `last` - 1."""

    def before(self, cost: float) -> int:
        """The number of items k with C(k) < cost, at most n."""

    def near(self, cost: float) -> float:
        """An estimate of `before` from the totals of epochs alone."""


class EqualCosts:
    """All items cost the same.

    >>> costs = EqualCosts(10, None)
    >>> costs.upto(3), costs.before(25), costs.before(30)
    (30, 3, 3)
    """

    def __init__(self, cost: int, n: int | None) -> None:
        self.cost, self.most, self.n = cost, cost, n
        self.mean = float(cost)

    def one(self, k: int) -> tuple[int, int]:
        """See `Costs`."""
        return k * self.cost, self.cost

    def upto(self, k: int) -> int:
        """See `Costs`."""
        return k * self.cost

    def items(self, first: int, last: int) -> Int64:
        """See `Costs`."""
        return np.full(last - first, self.cost, np.int64)

    def before(self, cost: float) -> int:
        """See `Costs`."""
        found = max(0, -int(-cost // self.cost))
        return found if self.n is None else min(found, self.n)

    def near(self, cost: float) -> float:
        """See `Costs`."""
        return float(self.before(cost))


class ShortLastCosts:
    """All items of an epoch cost the same except one, whose position differs by epoch.

    Args:
        usual: the cost of every other item.
        short: the cost of that one.
        rows: items of an epoch.
        place: epoch → its position in that epoch.
        n: number of items; None is endless.

    >>> costs = ShortLastCosts(10, 4, 3, lambda epoch: 1, None)
    >>> [costs.upto(k) for k in range(5)], costs.before(14), costs.before(15)
    ([0, 10, 14, 24, 34], 2, 3)
    """

    def __init__(
        self, usual: int, short: int, rows: int, place: Callable[[int], int], n: int | None
    ) -> None:
        self.n, self._usual, self._less, self._rows = n, usual, usual - short, rows
        self._total = usual * rows - self._less
        self.most, self.mean = usual, float(usual)
        self._find = place
        self._places: dict[int, int] = {}

    def _place(self, epoch: int) -> int:
        found = self._places.get(epoch)
        if found is None:
            found = self._find(epoch)
            self._places = with_newest(self._places, epoch, found, limits().kept_short_items)
        return found

    def upto(self, k: int) -> int:
        """See `Costs`."""
        epoch, inside = divmod(k, self._rows)
        less = self._less if inside and self._place(epoch) < inside else 0
        return epoch * self._total + inside * self._usual - less

    def one(self, k: int) -> tuple[int, int]:
        """See `Costs`."""
        epoch, inside = divmod(k, self._rows)
        return self.upto(k), self._usual - (self._less if self._place(epoch) == inside else 0)

    def items(self, first: int, last: int) -> Int64:
        """See `Costs`."""
        out = np.full(last - first, self._usual, np.int64)
        for epoch in range(first // self._rows, -(-last // self._rows)):
            k = epoch * self._rows + self._place(epoch)
            if first <= k < last:
                out[k - first] -= self._less
        return out

    def before(self, cost: float) -> int:
        """See `Costs`."""
        if cost <= 0:
            return 0
        if self.n is not None and cost > self.upto(self.n):
            return self.n
        epoch, most = divmod(math.ceil(cost) - 1, self._total)  # items k with C(k) <= most
        place = self._place(epoch)
        found = min(most // self._usual, place) + 1
        behind = min((most + self._less) // self._usual, self._rows - 1)
        k = epoch * self._rows + found + max(0, behind - place)
        return k if self.n is None else min(k, self.n)

    def near(self, cost: float) -> float:
        """See `Costs`."""
        return float(self.before(cost))
