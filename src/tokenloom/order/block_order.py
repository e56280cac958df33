"""Block order: storage-local blocks in shuffled order, with rows mixed in lanes of a band.

Permute the blocks. A *band* is the next ``lanes x window_blocks`` of them; lane l of a band of m
blocks owns blocks [l m // L, (l + 1) m // L) and permutes all their rows together. Round h takes
row h of every lane. Then comes the next band.

Worked example: 8 blocks of 2 rows, window_blocks=2, lanes=2, in permuted order A B C D | E F G H::

    band 0   lane 0 = rows of A B, shuffled: a1 b0 a0 b1
             lane 1 = rows of C D, shuffled: d0 d1 c0 c1
    index    0  1  2  3  4  5  6  7 | band 1 …
    row      a1 d0 b0 d1 a0 c0 b1 c1

Between index and row is the *place*: rows counted in the permuted order of the blocks. A band, and
each lane in it, is a stretch of places. So index → place involves only lanes and windows, and
place → row only blocks.

If blocks have equal size, a short last block stays last and is permuted on its own. If blocks have
individual sizes, all of them are permuted.

Lanes are queues of unequal length that give one row each in turn, computed in closed form.

Round h takes row h of every lane that has one. Lanes are visited in bit-reversed order, so that
consecutive places spread evenly over them.

Worked example: lanes of 3, 1 and 2 rows. In bit-reversed order 0 1 2 becomes 0 2 1::

    round   0        1      2
    lanes   0 2 1    0 2    0
    place   0 1 2    3 4    5

Between the distinct lengths 0 < 1 < 2 < 3 the set of live lanes does not change, so locating a
place takes one binary search over those lengths and one division.

Lanes of many bands of different lengths, computed together.

`tokenloom.order.block_order.LaneRounds` is a closed form over the sorted lane lengths of
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

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64, answered, checked, grouped
from tokenloom.layout.layout import Blocks
from tokenloom.limits import limits
from tokenloom.order.shuffle_windows import OrderKeys, ShuffleWindows
from tokenloom.random.keys import GOLDEN
from tokenloom.random.permute import Permutations, permutations
from tokenloom.store.handles import lazy


def bit_reversed(count: int) -> list[int]:
    """0 to count - 1, sorted by their bits read backwards.

    >>> bit_reversed(8), bit_reversed(5)
    ([0, 4, 2, 6, 1, 5, 3, 7], [0, 4, 2, 1, 3])
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda lane: int(f"{lane:0{bits}b}"[::-1], 2))


class LaneRounds:
    """Rounds over lanes of given lengths.

    Attributes:
        lengths: rows of each lane [lanes].
        starts: rows of all lanes before each one [lanes].
        rows: rows of all lanes.
        lanes: number of lanes.
        equal: rows of every lane if all have the same number, else 0.
    """

    def __init__(self, lengths: Int64) -> None:
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths
        self.rows = int(lengths.sum())
        self.lanes = len(lengths)
        self.equal = int(lengths[0]) if (lengths == lengths[0]).all() else 0
        order = _turns(len(lengths))
        heights = np.unique(np.concatenate([[0], lengths]))[:-1]  # where the live set changes
        live = lengths[order][None, :] > heights[:, None]  # [stretches, lanes]
        self._heights = heights
        self._count = live.sum(axis=1)
        self._before = np.minimum(lengths[None, :], heights[:, None]).sum(axis=1)
        # the live lanes of all stretches, concatenated, and the turn of each lane in its stretch
        self._live = order[np.nonzero(live)[1]]
        self._first = np.cumsum(self._count) - self._count
        self._turn = np.empty(live.shape, np.int64)
        self._turn[:, order] = np.cumsum(live, axis=1) - 1

    def locate(self, place: Int64) -> tuple[Int64, Int64]:
        """(lane, round) of each place [N]; with a single lane, `lane` may have one element [1]."""
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

    def lane_at(self, inner: Int64) -> Int64:
        """The lane that owns each place, lanes end to end [N]."""
        return np.searchsorted(self.starts, inner, side="right") - 1

    def start_of(self, lane: Int64) -> Int64:
        """Rows of all lanes before each one [N]."""
        return self.starts[lane]

    def length_of(self, lane: Int64) -> Int64:
        """Rows of each lane [N]."""
        return self.lengths[lane]


@functools.lru_cache(maxsize=64)
def _turns(lanes: int) -> Int64:
    return np.array(bit_reversed(lanes), np.int64)


def golden(indices: Int64) -> NDArray[np.float64]:
    """Fractions in [0, 1) that spread consecutive indices evenly [N]."""
    words = indices.astype(np.uint64) * np.uint64(GOLDEN)
    return words.astype(np.float64) / 2.0**64


LISTED = 8  # where at least one row in 8 of a band is asked for, all of its rows are listed


class BlockOrder:
    """The order of `tokenloom.order.orders.block`."""

    def __init__(self, blocks: Blocks, window_blocks: int, lanes: int, keys: OrderKeys) -> None:
        window_blocks = max(1, min(window_blocks, len(blocks)))  # more also means one window
        self.n, self.lanes, self.window_blocks = blocks.rows, lanes, window_blocks
        self._windows = ShuffleWindows(keys.windows, keys.perm_type)
        whole = len(blocks) if not blocks.size else blocks.rows // blocks.size
        shuffled = permutations(whole, [keys.blocks()], keys.perm_type) if whole else None
        self._geometry: _Geometry = (
            _Equal(blocks, shuffled, lanes, window_blocks)
            if blocks.size
            else _Cut(blocks, shuffled, lanes, window_blocks)
        )
        self._body = self._geometry.body
        self._tail: Permutations | None = None
        if self._body < self.n:
            last = (len(blocks) - 1) // window_blocks
            self._tail = permutations(self.n - self._body, [keys.tail(last)], keys.perm_type)

    def __len__(self) -> int:
        return self.n

    def map(self, indices: Any) -> Int64:
        """See `tokenloom.order.orders.Order`."""
        return answered(indices, self.n, "index", self._map)

    def inverse(self, rows: Any) -> Int64:
        """See `tokenloom.order.orders.Order`."""
        return answered(rows, self.n, "row", self._inverse)

    def fractions(self, indices: Any) -> NDArray[np.float64] | None:
        """See `tokenloom.order.orders.Order`."""
        if self.lanes == 1:
            return None
        asked = checked(indices, self.n, "index")
        flat = asked.reshape(-1)
        out = np.zeros(len(flat), np.float64)  # the short last block has fraction 0
        body = np.flatnonzero(flat < self._body)
        for here, rounds, _, start in self._geometry.bands(flat[body]):
            lane, _height = rounds.locate(flat[body[here]] - start)
            out[body[here]] = lane / rounds.lanes
        return out.reshape(asked.shape)

    def bands(self, indices: Int64) -> tuple[Int64, Int64]:
        """The band of each index, and its lane; the short last block comes after all bands [N]."""
        last = 1 + int(self._number(max(0, self._body - 1))) if self._body else 0
        band, lane = np.full_like(indices, last), np.zeros_like(indices)
        body = np.flatnonzero(indices < self._body)
        for here, rounds, number, start in self._geometry.bands(indices[body]):
            band[body[here]] = number
            lane[body[here]] = rounds.locate(indices[body[here]] - start)[0]
        return band, lane

    def _number(self, place: int) -> int:
        """The band of a place."""
        (one,) = self._geometry.bands(np.array([place]))
        return int(np.reshape(one[2], -1)[0])

    def fraction_period(self, first: int, last: int) -> int:
        """After how many places the fractions of indices [first, last) repeat; 0 if they don't.

        Where lanes have equal length, every round has the same lanes in the same order, also in the
        bands that follow, if they are alike.
        """
        if self.lanes == 1 or last > self._body:
            return 0
        kinds = list(self._geometry.bands(np.array([first, last - 1])))
        rounds = kinds[0][1]
        if len(kinds) > 1 or not isinstance(rounds, LaneRounds) or not rounds.equal:
            return 0
        return rounds.lanes

    @property
    def window_rows(self) -> int:
        """Rows of the first band, or of the short last block where there is no other."""
        return self._geometry.first_band_rows if self._body else self.n

    def _map(self, index: Int64) -> Int64:
        out = np.empty_like(index)
        inside = index < self._body
        if self._tail is not None and not inside.all():
            rest = (index[~inside] - self._body).view(np.uint64)
            out[~inside] = self._tail.forward(rest).view(np.int64) + self._body
            out[inside] = self._map_body(index[inside])
            return out
        return self._map_body(index)

    def _map_body(self, index: Int64) -> Int64:
        if not len(index):
            return index
        out = np.empty_like(index)
        for here, rounds, band, start in self._geometry.bands(index):
            lane, height = rounds.locate(index[here] - start)
            inner = self._in_lane(rounds, band, lane, height, backwards=False)
            out[here] = self._geometry.rows(start + rounds.start_of(lane) + inner, band)
        return out

    def _inverse(self, row: Int64) -> Int64:
        out = np.empty_like(row)
        inside = row < self._body
        if self._tail is not None and not inside.all():
            rest = (row[~inside] - self._body).view(np.uint64)
            out[~inside] = self._tail.inverse(rest).view(np.int64) + self._body
        if inside.any():
            out[inside] = self._inverse_body(row[inside])
        return out

    def _inverse_body(self, row: Int64) -> Int64:
        place = self._geometry.places(row)
        index = np.empty_like(place)
        for here, rounds, band, start in self._geometry.bands(place):
            inner = place[here] - start
            lane = rounds.lane_at(inner)
            inner -= rounds.start_of(lane)
            height = self._in_lane(rounds, band, lane, inner, backwards=True)
            index[here] = start + rounds.place(lane, height)
        return index

    def _in_lane(
        self, rounds: LaneRounds | BandLanes, band: Int64, lane: Int64, x: Int64, *, backwards: bool
    ) -> Int64:
        """Each x permuted in its lane; lanes of equal length are computed together."""
        windows = band * self.lanes + lane
        if rounds.equal:
            through = self._windows.inverse if backwards else self._windows.forward
            return through(rounds.equal, windows, x)
        return self._windows.each(rounds.length_of(lane), windows, x, backwards=backwards)


Band = tuple[Any, "LaneRounds | BandLanes", Int64, Any]

"""(which places, their rounds, the band number of each, the first place of each one's band)"""


class _Equal:
    """Blocks of one size: all bands but the last are alike, and everything is a division."""

    def __init__(
        self, blocks: Blocks, shuffled: Permutations | None, lanes: int, window_blocks: int
    ) -> None:
        self._size, self._shuffled = blocks.size, shuffled
        self._kept: tuple[int, Int64] = (-1, np.empty(0, np.int64))
        self._chunk = limits().block_chunk_blocks
        whole = blocks.rows // blocks.size
        self.body = whole * blocks.size
        # a band that ends beyond the last row is alike wherever it ends; this one is an int64
        self._band_rows = min(lanes * window_blocks * blocks.size, self.body + 1)
        self._full_bands = self.body // self._band_rows
        of_one = min(whole, lanes * window_blocks)  # blocks of a band
        self._full = LaneRounds(_lane_blocks(of_one, lanes) * blocks.size)
        left = whole - self._full_bands * lanes * window_blocks
        self._last = LaneRounds(_lane_blocks(left, lanes) * blocks.size) if left else None

    def bands(self, place: Int64) -> Iterator[Band]:
        """Places (or indices) grouped by bands that have the same rounds."""
        band = place // self._band_rows
        start = band * self._band_rows
        full = band < self._full_bands
        if full.all():
            yield slice(None), self._full, band, start
            return
        assert self._last is not None  # some places come after the full bands
        if full.any():
            here = np.flatnonzero(full)
            yield here, self._full, band[here], start[here]
        here = np.flatnonzero(~full)
        yield here, self._last, band[here], start[here]

    def rows(self, place: Int64, band: Int64) -> Int64:
        """The row at each place [N], given its band."""
        block = place // self._size
        inner = place - block * self._size
        return self._first_rows(block) + inner

    def _first_rows(self, block: Int64) -> Int64:
        """The first row of the blocks at these positions [N].

        Neighbouring indices need the same few blocks again and again, so their stretch is kept.
        """
        chunk = self._chunk
        assert self._shuffled is not None  # there is a place, so there is a block
        stretch = int(block.min()) // chunk
        apart = int(block.max()) // chunk != stretch
        if apart or (self._kept[0] != stretch and len(block) < limits().min_block_chunk_blocks):
            return self._shuffled.forward(block.view(np.uint64)).view(np.int64) * self._size
        number, rows = self._kept
        if number != stretch:
            low = stretch * chunk
            every = np.arange(low, min(low + chunk, self.body // self._size), dtype=np.uint64)
            rows = self._shuffled.forward(every).view(np.int64) * self._size
            self._kept = stretch, rows  # one assignment: threads see the old pair or the new one
        return rows[block - stretch * chunk]

    def places(self, row: Int64) -> Int64:
        """The place of each row [N]."""
        block = row // self._size
        inner = row - block * self._size
        assert self._shuffled is not None
        return self._shuffled.inverse(block.view(np.uint64)).view(np.int64) * self._size + inner

    @property
    def first_band_rows(self) -> int:
        """Rows of the first band."""
        return min(self._band_rows, self.body)


class _Cut:
    """Blocks of individual sizes: one integer per block is kept."""

    def __init__(
        self, blocks: Blocks, shuffled: Permutations | None, lanes: int, window_blocks: int
    ) -> None:
        self.body = blocks.rows
        count = len(blocks)
        every = np.arange(count, dtype=np.uint64)
        self._order = shuffled.forward(every).view(np.int64) if shuffled else every.view(np.int64)
        self._place_of = np.empty(count, np.int64)
        self._place_of[self._order] = every.view(np.int64)
        self._starts, self._lanes, self._band_blocks = blocks.starts, lanes, lanes * window_blocks
        sizes = np.diff(blocks.starts)[self._order]
        self._places = np.concatenate([[0], np.cumsum(sizes)])
        self._band_starts = self._places[: -1 : self._band_blocks]
        self._full_bands = count // self._band_blocks
        self._rounds: dict[int, LaneRounds] = {}

    def bands(self, place: Int64) -> Iterator[Band]:
        band = np.searchsorted(self._band_starts, place, side="right") - 1
        fewest = limits().min_vectorized_bands
        if len(band) and int(band.max()) - int(band.min()) >= fewest:  # not one by one
            full = band < self._full_bands
            if full.any():
                here = slice(None) if full.all() else np.flatnonzero(full)
                yield here, self._many.of(band[here]), band[here], self._band_starts[band[here]]
            if full.all():
                return
            last = np.flatnonzero(~full)
        else:
            last = np.arange(len(band))
        for number, among in grouped(band[last]):
            here = last[among]
            yield here, self._band(number), band[here], np.int64(self._band_starts[number])

    @lazy
    def _many(self) -> ManyBands:
        """The lanes of all bands but a short last one."""
        pattern = np.concatenate([[0], np.cumsum(_lane_blocks(self._band_blocks, self._lanes))])
        first = np.arange(self._full_bands) * self._band_blocks
        return ManyBands(self._places[first[:, None] + pattern], _turns(self._lanes))

    def rows(self, place: Int64, band: Int64) -> Int64:
        if (band != band[0]).any():
            block = np.searchsorted(self._places, place, side="right") - 1
            return self._starts[self._order[block]] + place - self._places[block]
        first = int(band[0]) * self._band_blocks
        edges = self._places[first : first + self._band_blocks + 1]
        if LISTED * len(place) > edges[-1] - edges[0]:  # a good part of a band: list all its rows
            begins = self._starts[self._order[first : first + len(edges) - 1]]
            every = np.repeat(begins - edges[:-1], np.diff(edges))
            every += np.arange(edges[0], edges[-1])
            return every[place - edges[0]]
        block = first + np.searchsorted(edges[1:-1], place, side="right")
        return self._starts[self._order[block]] + place - self._places[block]

    def places(self, row: Int64) -> Int64:
        block = np.searchsorted(self._starts, row, side="right") - 1
        return self._places[self._place_of[block]] + row - self._starts[block]

    @property
    def first_band_rows(self) -> int:
        return int(self._places[min(self._band_blocks, len(self._order))])

    def _band(self, number: int) -> LaneRounds:
        rounds = self._rounds.get(number)
        if rounds is None:
            first = number * self._band_blocks
            last = min(first + self._band_blocks, len(self._order))
            edges = first + np.concatenate(
                [[0], np.cumsum(_lane_blocks(last - first, self._lanes))]
            )
            if len(self._rounds) >= limits().kept_bands:
                self._rounds = {}
            rounds = self._rounds[number] = LaneRounds(np.diff(self._places[edges]))
        return rounds


_Geometry = _Equal | _Cut
"""Blocks in their permuted order. The first place of a band is also its first index."""


def _lane_blocks(blocks: int, lanes: int) -> Int64:
    """How many of `blocks` each lane owns: lane l owns those from l m // L on."""
    count = max(1, min(lanes, blocks))
    return np.diff(np.arange(count + 1, dtype=np.int64) * blocks // count)


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
        return np.searchsorted(edges, place, side="right") - 1 - self._band * self.lanes

    def start_of(self, lane: Int64) -> Int64:
        """Rows of all lanes before each one [N]."""
        return self._bands.edges[self._band, lane] - self._bands.edges[self._band, 0]

    def length_of(self, lane: Int64) -> Int64:
        """Rows of each lane [N]."""
        return self._bands.lengths[self._band, lane]

    def _parts(self, count: int) -> list[slice]:
        size = max(1, limits().lane_chunk_cells // self.lanes)
        return [slice(start, start + size) for start in range(0, count, size)]
