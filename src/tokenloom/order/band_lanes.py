"""Lanes of many bands of different lengths, computed together.

One idea: `tokenloom.order.block_order.LaneRounds` is a closed form over the sorted lane lengths of
one band, so the bands of an order are rows of matrices, and a scattered request costs the same
whether its places are in one band or in a thousand.

Notation: a band has L lanes; h[0] = 0 and h[1] to h[L] are its lane lengths, ascending. Until round
h[j] its lanes give F[j] rows, sum of min(length, h[j]); from there on L - j lanes are left. Lanes
of equal length make equal h, and searches take the last of them. F plus the start of the band
ascends over all bands, so one binary search finds the band and j of a place.

Worked example, one band with lanes of 3, 1 and 2 rows::

    j       0  1  2  3        place 4: F[1] = 3 <= 4 < 5, so j = 1 and 2 lanes are left; round
    h       0  1  2  3        h[1] + (4 - 3) // 2 = 1; of the lanes left, 0 and 2, turn 1: lane 2
    F       0  3  5  6
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits

__all__ = ["BandLanes", "ManyBands"]

Int64 = NDArray[np.int64]


class ManyBands:
    """The lanes of bands that have the same number of lanes.

    Args:
        edges: first place of each lane, then the end of the band [bands, L + 1].
        order: the order in which lanes take turns [L].
    """

    def __init__(self, edges: Int64, order: Int64) -> None:
        bands, lanes = edges.shape[0], edges.shape[1] - 1
        self.lanes, self.edges, self.order = lanes, edges, order
        self.lengths = np.diff(edges, axis=1)
        self.turns = np.empty(lanes, np.int64)
        self.turns[order] = np.arange(lanes)
        heights = np.sort(self.lengths, axis=1)
        # [bands, L]: h[0] to h[L - 1], and F of them
        self.heights = np.concatenate([np.zeros((bands, 1), np.int64), heights[:, :-1]], axis=1)
        self.before = np.cumsum(self.heights, axis=1)
        self.before += self.heights * (lanes - np.arange(lanes))
        self.first_places = (edges[:, :1] + self.before).reshape(-1)

    def of(self, band: Int64) -> BandLanes:
        """The lanes of the band of each place [N]."""
        return BandLanes(self, band)


class BandLanes:
    """The lanes of each place's band: answers what `LaneRounds` answers of one band.

    Args:
        bands: the lanes of all bands.
        band: the band of each place [N].
    """

    equal = 0  # lanes have different lengths

    def __init__(self, bands: ManyBands, band: Int64) -> None:
        self._bands, self._band = bands, band
        self.lanes = bands.lanes

    def locate(self, place: Int64) -> tuple[Int64, Int64]:
        """(lane, round) of each place, counted from the start of its band [N]."""
        all_, lanes = self._bands, self.lanes
        first = all_.edges[self._band, 0]
        found = np.searchsorted(all_.first_places, first + place, side="right") - 1
        ended = found - self._band * lanes  # j: lanes that have no row left
        rest = place - all_.before[self._band, ended]
        low = all_.heights[self._band, ended]
        height = rest // (lanes - ended)
        turn = rest - height * (lanes - ended)
        return self._live(low, turn), low + height

    def _live(self, low: Int64, turn: Int64) -> Int64:
        """The lane whose turn it is, among lanes of more than `low` rows [N]."""
        lane = np.zeros(len(turn), np.int64)
        if self.lanes == 1:
            return lane
        for here in self._parts(len(turn)):
            # [places, L]: lanes in the order of their turns that have a row left
            lengths = self._bands.lengths[self._band[here]][:, self._bands.order]
            count = np.cumsum(lengths > low[here, None], axis=1)
            lane[here] = self._bands.order[(count > turn[here, None]).argmax(axis=1)]
        return lane

    def place(self, lane: Int64, height: Int64) -> Int64:
        """The place of row `height` of a lane, counted from the start of its band [N]."""
        ended, turn = np.zeros_like(height), np.zeros_like(height)
        if self.lanes > 1:
            turns = self._bands.turns
            for here in self._parts(len(height)):
                live = self._bands.lengths[self._band[here]] > height[here, None]
                ended[here] = self.lanes - live.sum(axis=1)
                turn[here] = (live & (turns < turns[lane[here], None])).sum(axis=1)
        low = self._bands.heights[self._band, ended]
        found: Int64 = self._bands.before[self._band, ended] + turn
        found += (height - low) * (self.lanes - ended)
        return found

    def lane_at(self, inner: Int64) -> Int64:
        """The lane that owns each place of its band, lanes end to end [N]."""
        edges = self._bands.edges[:, :-1].reshape(-1)
        place = self._bands.edges[self._band, 0] + inner
        found: Int64 = np.searchsorted(edges, place, side="right") - 1 - self._band * self.lanes
        return found

    def start_of(self, lane: Int64) -> Int64:
        """Rows of all lanes before each one [N]."""
        found: Int64 = self._bands.edges[self._band, lane] - self._bands.edges[self._band, 0]
        return found

    def length_of(self, lane: Int64) -> Int64:
        """Rows of each lane [N]."""
        found: Int64 = self._bands.lengths[self._band, lane]
        return found

    def _parts(self, count: int) -> list[slice]:
        size = max(1, limits().lane_chunk_cells // self.lanes)
        return [slice(start, start + size) for start in range(0, count, size)]
