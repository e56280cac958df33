"""Intervals by drawing documents again and again.

One idea: what was found would be different with other documents, so as many documents are drawn
with replacement, many times, and the middle part of what they say is the interval. The draws are
keyed by a seed: the same call gives the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import integer
from tokenloom.random.keys import draws as words_of
from tokenloom.random.keys import key

__all__ = ["Interval", "drawn_means", "drawn_places"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class Interval(NamedTuple):
    """A figure and where it lies if other documents had been chosen."""

    value: float
    low: float
    high: float

    @staticmethod
    def around(value: float, drawn: Float64, level: float) -> Interval:
        """The interval that holds this part of what was drawn.

        >>> Interval.around(50.0, np.arange(101.0), 0.5)
        Interval(value=50.0, low=25.0, high=75.0)
        """
        if np.isnan(drawn).any():
            return Interval(value, math.nan, math.nan)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]).tolist()
        return Interval(value, low, high)

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.4g} (too few documents for an interval)"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def drawn_places(count: int, times: int, seed: int) -> Iterator[Int64]:
    """As many places below `count` as there are, with replacement, again and again.

    >>> [one.tolist() for one in drawn_places(3, 2, seed=0)]
    [[0, 1, 1], [2, 2, 0]]
    """
    for time in range(times):
        words = words_of(key(seed, "bootstrap", time), np.arange(count, dtype=np.uint64))
        yield (words % np.uint64(max(1, count))).astype(np.int64)


def drawn_means(
    document: Int64, values: Sequence[Float64], *, draws: int, seed: int
) -> list[Float64]:
    """Means over the windows of documents that are drawn [draws], for each kind of value.

    One document says nothing about others: its means are NaN.

    Args:
        document: of each window.
        values: of each window, one array a kind.
        draws: how often documents are drawn.
        seed: of the draws.

    >>> windows = np.array([7, 7, 9])
    >>> (drawn,) = drawn_means(windows, [np.array([1.0, 1.0, 4.0])], draws=4, seed=0)
    >>> drawn.tolist()
    [4.0, 4.0, 1.0, 4.0]
    """
    integer("draws", draws, 1)
    numbers, group = np.unique(document, return_inverse=True)
    count = np.bincount(group, minlength=len(numbers)).astype(np.float64)
    sums = [np.bincount(group, one, len(numbers)) for one in values]
    found = np.full((len(values), draws), np.nan)
    if len(numbers) < 2:
        return list(found)
    for time, chosen in enumerate(drawn_places(len(numbers), draws, seed)):
        windows = count[chosen].sum()
        found[:, time] = [one[chosen].sum() / windows for one in sums]
    return list(found)
