"""Everything of a batch that is not a token, from spans alone.

One idea: the cells of all frames, read row by row, are a sequence of *tiles*: a span, or a stretch
of filler between spans. Whatever is constant or counts up inside a tile is then one `np.repeat`.

Conventions, the same everywhere: segment 0 is filler, documents are 1, 2, … in a frame;
``loss_mask[i]`` says that the prediction of token i + 1 counts; a filler stretch counts positions
from 0 like a document of its own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.spans import Spans

__all__ = [
    "IGNORE",
    "Tiles",
    "document_starts",
    "labels_from",
    "labels_from_tiles",
    "loss_mask",
    "tile",
    "tiles_from_eos",
]

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

IGNORE = -100  # the label of a cell that is not trained


@dataclass(frozen=True, eq=False, slots=True)
class Tiles:
    """The cells of some frames as tiles.

    Attributes:
        frames: how many frames.
        width: cells of each.
        length: cells of each tile; a frame's add up to `width` [tiles].
        segment: its segment, 0 for filler [tiles].
        first: its first cell, counted over all frames [tiles].
        continues: whether it goes on with a document that began before its frame [tiles].
    """

    frames: int
    width: int
    length: Int64
    segment: Int32
    first: Int64
    continues: Bool

    def segment_ids(self) -> Int32:
        """The segment of every cell [frames, width]."""
        return np.repeat(self.segment, self.length).reshape(self.frames, self.width)

    def position_ids(self, scheme: str) -> Int32:
        """Cells from 0 in every tile ("reset"), or in every frame ("absolute") [frames, width]."""
        if scheme == "absolute":
            return np.tile(_counting(self.width), (self.frames, 1))
        flat = np.repeat((-self.first).astype(np.int32), self.length)
        flat += _counting(len(flat))
        return flat.reshape(self.frames, self.width)

    def slice(self, start: int, stop: int) -> Tiles:
        """Frames [start, stop) alone."""
        low, high = np.searchsorted(self.first, (start * self.width, stop * self.width)).tolist()
        part = slice(low, high)
        return Tiles(
            stop - start,
            self.width,
            self.length[part],
            self.segment[part],
            self.first[part] - start * self.width,
            self.continues[part],
        )

    def edges(self) -> Int32:
        """The first cell of every tile and the end, for variable-length attention."""
        return np.append(self.first, self.frames * self.width).astype(np.int32)


@functools.lru_cache(maxsize=8)
def _counting(length: int) -> Int32:
    """0, 1, 2, …, made once for every length that is asked for again and again."""
    numbers = np.arange(length, dtype=np.int32)
    numbers.flags.writeable = False
    return numbers


def tile(spans: Spans, width: int) -> Tiles:
    """The tiles of some frames, of which the first `width` cells count."""
    frames, row, at = len(spans), spans.row, spans.at
    end = np.minimum(at + spans.cells, width)
    segment = (np.arange(len(row)) - spans.frame[row] + 1).astype(np.int32)
    first, length, continues = row * width + at, end - at, spans.start > 0
    if width < spans.width:  # a span in the look-ahead cell alone is in no tile
        keep = at < width
        first, length = first[keep], length[keep]
        segment, continues = segment[keep], continues[keep]
    # filler stands where a tile does not begin at the end of the one before it
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
    return Tiles(frames, width, length, segment, first, continues)


def tiles_from_eos(spans: Spans, cells: Int32, eos_id: int, width: int) -> Tiles:
    """Tiles guessed from tokens: a document ends behind each `eos_id`; filler stays filler.

    For imported tokens that came without boundaries. Only cells inside spans are looked at, so a
    padding token that equals `eos_id` starts no document.
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
    return Tiles(known.frames, width, length, segment, first, np.zeros(len(first), np.bool_))


def _filler(start: Int64, stop: Int64, width: int) -> tuple[Int64, Int64]:
    """Stretches of filler, cut where a frame ends: (first cell, cells) of each."""
    count = (stop - 1) // width - start // width + 1
    owner = np.repeat(np.arange(len(start)), count)
    step = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    line = (start // width)[owner] + step
    low = np.maximum(start[owner], line * width)
    high = np.minimum(stop[owner], (line + 1) * width)
    return low, high - low


def loss_mask(tiles: Tiles, out: Bool, *, mask_boundary_loss: bool) -> None:
    """Fill `out` [frames, width] with what may be trained by position alone.

    The last cell of a frame predicts nothing that is in it, and filler is neither predicted nor
    predicts. Between two documents nothing is predicted, unless `mask_boundary_loss` is off.
    """
    flat = out.reshape(-1)
    flat[:] = True
    last = tiles.first + tiles.length - 1
    filler = tiles.segment == 0
    if filler.any():
        flat[np.repeat(filler, tiles.length)] = False
    if mask_boundary_loss:
        flat[last] = False
        return
    flat[tiles.width - 1 :: tiles.width] = False
    before = np.flatnonzero(filler[1:])  # the tile before a stretch of filler
    flat[last[before]] = False


def labels_from(tokens: Int32, mask: Bool, out: Int32) -> None:
    """Aligned labels [B, S]: token i where it is trained on, else -100; a model shifts them."""
    out[:] = tokens
    untrained = np.flatnonzero(~mask.reshape(-1)[:-1])  # few: setting them beats a masked copy
    out.reshape(-1)[untrained + 1] = IGNORE
    out[:, 0] = IGNORE


def labels_from_tiles(tokens: Int32, tiles: Tiles, out: Int32) -> None:
    """The same where every document trains all its tokens but the first, and nothing else is."""
    out[:] = tokens
    flat = out.reshape(-1)
    flat[tiles.first] = IGNORE
    filler = tiles.segment == 0
    if filler.any():
        flat[np.repeat(filler, tiles.length)] = IGNORE


def document_starts(tiles: Tiles) -> tuple[Int32, Bool]:
    """First cell of each document in its frame, padded with -1; and which go on from before.

    Returns:
        starts int32 [frames, D] and continues bool [frames, D], D being the most documents of any
        frame, at least 1.
    """
    real = tiles.segment > 0
    row, column = tiles.first[real] // tiles.width, tiles.segment[real] - 1
    most = int(tiles.segment.max(initial=1))
    starts = np.full((tiles.frames, most), -1, np.int32)
    continues = np.zeros((tiles.frames, most), np.bool_)
    starts[row, column] = tiles.first[real] - row * tiles.width
    continues[row, column] = tiles.continues[real]
    return starts, continues
