"""Lanes: several queues of unequal length, one row of each in turn, at any place in closed form.

Round h takes row h of every lane that has one; lanes are visited in bit-reversed order, so that any
run of consecutive places spreads evenly over them.

Worked example, lanes of 3, 1 and 2 rows. Bit-reversed, 0 1 2 is 0 2 1::

    round   0        1      2
    lanes   0 2 1    0 2    0
    place   0 1 2    3 4    5

Between the different lengths 0 < 1 < 2 < 3 the set of live lanes does not change, so a place needs
one binary search over those lengths and one division.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rounds", "bit_reversed"]

Int64 = NDArray[np.int64]


def bit_reversed(count: int) -> list[int]:
    """0 to count - 1 in the order of their bits read backwards.

    >>> bit_reversed(8), bit_reversed(5)
    ([0, 4, 2, 6, 1, 5, 3, 7], [0, 4, 2, 1, 3])
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda lane: int(f"{lane:0{bits}b}"[::-1], 2))


class Rounds:
    """The rounds over lanes of these lengths.

    Attributes:
        lengths: rows of each lane [lanes].
        starts: rows of all lanes before each one [lanes].
        rows: rows in all.
    """

    def __init__(self, lengths: Int64) -> None:
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths
        self.rows = int(lengths.sum())
        order = np.array(bit_reversed(len(lengths)), np.int64)
        heights = np.unique(np.concatenate([[0], lengths]))[:-1]  # where the live set changes
        live = lengths[order][None, :] > heights[:, None]  # [stretches, lanes]
        self._heights = heights
        self._count = live.sum(axis=1)
        self._before = np.minimum(lengths[None, :], heights[:, None]).sum(axis=1)
        # live lanes of each stretch, one after the other; and the turn of each lane in it
        self._live = order[np.nonzero(live)[1]]
        self._first = np.cumsum(self._count) - self._count
        self._turn = np.empty(live.shape, np.int64)
        self._turn[:, order] = np.cumsum(live, axis=1) - 1

    def locate(self, place: Int64) -> tuple[Int64, Int64]:
        """(lane, round) of each place [N]; a single lane may come as one number [1]."""
        if len(self.lengths) == 1:
            return self._live[:1], place
        if len(self._heights) == 1:  # equal lanes
            count = int(self._count[0])
            height = place // count
            return self._live[place - height * count], height
        stretch = np.searchsorted(self._before, place, side="right") - 1
        rest = place - self._before[stretch]
        height = rest // self._count[stretch]
        turn = rest - height * self._count[stretch]
        return self._live[self._first[stretch] + turn], self._heights[stretch] + height

    def place(self, lane: Int64, height: Int64) -> Int64:
        """The place of row `height` of a lane [N]."""
        stretch = np.searchsorted(self._heights, height, side="right") - 1
        before: Int64 = (
            self._before[stretch] + (height - self._heights[stretch]) * self._count[stretch]
        )
        before += self._turn[stretch, lane]
        return before
