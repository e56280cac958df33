"""Given spans, answers which segment fills each stretch of cells.

One idea: the cells of all frames, read row by row, are a sequence of *tiles*: a span, or a stretch
of filler between spans. Everything in a batch except its tokens follows from them
(`tokenloom.batch.paint`). Segment 0 is filler, documents are 1, 2, … in a frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tokenloom import native
from tokenloom.arrays import Bool, Int32, Int64
from tokenloom.layout.spans import JOINED, Spans
from tokenloom.store.handles import lazy


@dataclass(frozen=True, eq=False)
class Tiles:
    """The cells of some frames as tiles.

    Attributes:
        frames: the number of frames.
        width: cells of each frame.
        length: cells of each tile; those of one frame add up to `width` [tiles].
        segment: the segment of each tile, 0 for filler [tiles].
        first: the first cell of each tile, counted over all frames [tiles].
        continues: whether each tile continues a document from an earlier frame [tiles].
        blank: cells excluded from the loss although they continue a tile: tokens repeated from an
            earlier frame, and the first token after a seam; ascending.
    """

    frames: int
    width: int
    length: Int64
    segment: Int32
    first: Int64
    continues: Bool
    blank: Int64

    @lazy
    def edges(self) -> list[int]:
        """The first tile of each frame, and the number of tiles [frames + 1]."""
        edges: list[int] = np.searchsorted(
            self.first, np.arange(self.frames + 1) * self.width
        ).tolist()
        return edges

    def slice(self, start: int, stop: int) -> Tiles:
        """Frames [start, stop) alone."""
        part = slice(self.edges[start], self.edges[stop])
        return Tiles(
            stop - start,
            self.width,
            self.length[part],
            self.segment[part],
            self.first[part] - start * self.width,
            self.continues[part],
            self._blank_in(start, stop),
        )

    def _blank_in(self, start: int, stop: int) -> Int64:
        if not len(self.blank):
            return self.blank
        low, high = np.searchsorted(self.blank, (start * self.width, stop * self.width))
        return self.blank[low:high] - start * self.width

    def cu_seqlens(self) -> Int32:
        """The first cell of every stretch of one segment, and the end, for attention kernels."""
        same = (self.segment[1:] == self.segment[:-1]) & (self.first[1:] % self.width > 0)
        first = self.first[np.append(True, ~same)] if same.any() else self.first
        return np.append(first, self.frames * self.width).astype(np.int32)


def tile(spans: Spans, width: int) -> Tiles:
    """The tiles of the first `width` cells of some frames."""
    if native.compiled is None or width != spans.width:
        return _tile(spans, width)
    flags = spans.flags
    columns = [native.plain(one, np.int64) for one in (spans.at, spans.length, spans.start)]
    room = 2 * len(flags) + len(spans) + 1  # a stretch of filler before each span, and at the end
    first, length = np.empty(room, np.int64), np.empty(room, np.int64)
    segment, continues = np.empty(room, np.int32), np.empty(room, np.bool_)
    outputs = first, length, segment, continues
    frame = native.plain(spans.frame, np.int64)
    count = native.compiled.tile(frame, *columns, native.plain(flags, np.uint8), *outputs, width)
    blank = np.empty(0, np.int64)
    if spans.seen.any():
        blank = _cells(spans.row * width + spans.at, np.minimum(spans.seen, spans.cells))
    length, segment, continues = length[:count], segment[:count], continues[:count]
    return Tiles(len(spans), width, length, segment, first[:count], continues, blank)


def _tile(spans: Spans, width: int) -> Tiles:
    """The same in NumPy, also for less than all cells of a frame."""
    frames, row, at = len(spans), spans.row, spans.at
    end = np.minimum(at + spans.cells, width)
    segment = (np.arange(len(row)) - spans.frame[row] + 1).astype(np.int32)
    first, length, continues = row * width + at, end - at, spans.continues
    seen, joined = np.minimum(spans.seen, length), (spans.flags & JOINED) != 0
    if width < spans.width:  # a span in the look-ahead cell alone is in no tile
        keep = at < width
        first, length, seen = first[keep], length[keep], seen[keep]
        segment, continues, joined = segment[keep], continues[keep], joined[keep]
    blank = _cells(first, seen) if seen.any() else np.empty(0, np.int64)
    if joined.any():
        heads = np.flatnonzero(~joined)
        owner, within = first // width, np.cumsum(joined)  # less those of earlier frames, below
        before = within[np.searchsorted(owner, owner)]
        segment = (segment - within + before)[heads].astype(np.int32)
        length = np.add.reduceat(length, heads)
        first, continues = first[heads], continues[heads]
    # filler is where a tile does not start at the end of the one before it
    begins = np.append(first, frames * width)
    ends = np.concatenate([[0], first + length])
    gaps = np.flatnonzero(begins > ends)
    if len(gaps):
        low, cells = _filler(ends[gaps], begins[gaps], width)
        first = np.concatenate([first, low])
        order = np.argsort(first, kind="stable")
        first, length = first[order], np.concatenate([length, cells])[order]
        segment = np.concatenate([segment, np.zeros(len(low), np.int32)])[order]
        continues = np.concatenate([continues, np.zeros(len(low), np.bool_)])[order]
    return Tiles(frames, width, length, segment, first, continues, blank)


def _cells(first: Int64, count: Int64) -> Int64:
    """`count` consecutive cells from each `first`, concatenated."""
    ends = np.cumsum(count)
    return np.repeat(first - (ends - count), count) + np.arange(int(count.sum()))


def lent(tiles: Tiles, *, leading: bool, trailing: bool) -> Tiles:
    """A copy with the segment of a document lent to filler before or after it in its frame.

    Args:
        tiles: the cells.
        leading: lend to filler at the start of a frame, which its first document then sees.
        trailing: lend to filler at the end of a frame.
    """
    segment, filler = tiles.segment.copy(), tiles.segment == 0
    if leading:
        here = np.flatnonzero(filler & (tiles.first % tiles.width == 0) & _inner(tiles))
        segment[here] = tiles.segment[here + 1]
    if trailing:
        ends = (tiles.first + tiles.length) % tiles.width == 0
        here = np.flatnonzero(filler & ends & (tiles.first % tiles.width > 0))
        segment[here] = tiles.segment[here - 1]
    return replace(tiles, segment=segment)


def _inner(tiles: Tiles) -> Bool:
    """Whether each tile ends before its frame does."""
    return (tiles.first + tiles.length) % tiles.width > 0


def tiles_from_eos(spans: Spans, cells: Int32, eos_id: int, width: int) -> Tiles:
    """Tiles guessed from tokens: a document ends after each `eos_id`; filler stays filler.

    For tokens imported without boundaries. Only cells inside spans are examined, so a padding token
    that equals `eos_id` starts no document.
    """
    known = tile(spans, width)
    filled = np.repeat(known.segment > 0, known.length)
    flat = cells[:, :width].reshape(-1)
    starts = np.zeros(len(flat), np.bool_)
    starts[1:] = (flat[:-1] == eos_id) & filled[:-1] & filled[1:]
    starts[::width] = True
    starts[1:] |= filled[1:] != filled[:-1]
    first = np.flatnonzero(starts)
    length = np.diff(np.append(first, len(flat)))
    real = filled[first]
    row = first // width
    count = np.cumsum(real)
    before = np.searchsorted(row, np.arange(known.frames))  # first tile of each frame
    segment = np.where(real, count - (count - real)[before][row], 0).astype(np.int32)
    continues = np.zeros(len(first), np.bool_)
    return Tiles(known.frames, width, length, segment, first, continues, np.empty(0, np.int64))


def _filler(start: Int64, stop: Int64, width: int) -> tuple[Int64, Int64]:
    """Stretches of filler, cut at the end of every frame: (first cell, cells) of each."""
    count = (stop - 1) // width - start // width + 1
    owner = np.repeat(np.arange(len(start)), count)
    step = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    line = (start // width)[owner] + step
    low = np.maximum(start[owner], line * width)
    high = np.minimum(stop[owner], (line + 1) * width)
    return low, high - low
