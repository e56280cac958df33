"""Spans → tiles → the arrays of a batch.

The cells of all frames, read row by row, are a sequence of *tiles*: a span, or a stretch of filler
between spans. Everything in a batch except its tokens follows from them: whatever is constant or
counts up inside a tile is one `np.repeat`, or one pass of the compiled painter.

Conventions, the same everywhere: segment 0 is filler, documents are 1, 2, … in a frame;
``loss_mask[i]`` means that the prediction of token i + 1 counts; a filler stretch counts positions
from 0 like a document of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tokenloom import native
from tokenloom.arrays import Array, Bool, Int32, Int64
from tokenloom.batch.cells import Copier, Runs, fill, new_array, new_arrays
from tokenloom.batch.spec import PAINTED
from tokenloom.layout.spans import JOINED, Spans
from tokenloom.store.handles import lazy
from tokenloom.store.payload import read_failed

IGNORE = -100  # the label of a cell that is not trained


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
        return np.searchsorted(self.first, np.arange(self.frames + 1) * self.width).tolist()

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
    return tiles_at(first, filled[first], known.frames, width)


def tiles_at(first: Int64, real: Bool, frames: int, width: int) -> Tiles:
    """Tiles that start at these cells, one at the start of every frame at least.

    Args:
        first: the first cell of each tile; it ends where the next one starts [tiles].
        real: whether it is a document, or else filler [tiles].
        frames: the number of frames.
        width: cells of a frame.
    """
    row = first // width
    count = np.cumsum(real)  # documents up to here; minus those of the frames before: the segment
    before: Int64 = (count - real)[np.searchsorted(row, np.arange(frames))]
    return Tiles(
        frames,
        width,
        np.diff(np.append(first, frames * width)),
        np.where(real, count - before[row], 0).astype(np.int32),
        first,
        np.zeros(len(first), np.bool_),
        np.empty(0, np.int64),
    )


def _filler(start: Int64, stop: Int64, width: int) -> tuple[Int64, Int64]:
    """Stretches of filler, cut at the end of every frame: (first cell, cells) of each."""
    count = (stop - 1) // width - start // width + 1
    owner = np.repeat(np.arange(len(start)), count)
    step = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    line = (start // width)[owner] + step
    low = np.maximum(start[owner], line * width)
    high = np.minimum(stop[owner], (line + 1) * width)
    return low, high - low


def paint(tiles: Tiles, names: Sequence[str], tokens: Int32 | None = None) -> dict[str, Array]:
    """Arrays that follow from tiles alone, in one call and one piece of memory [frames, width].

    Args:
        tiles: the cells.
        names: which of `PAINTED`:
            segment_ids: the segment of every cell.
            position_ids: cells counted from 0 in every tile.
            loss_mask: all cells of a document but its last, whose next token is not its own.
            labels: the token at every cell of a document but its first, else -100.
        tokens: the tokens, needed for labels only.
    """
    kinds = [
        tokens.dtype if name == "labels" and tokens is not None else PAINTED[name] for name in names
    ]
    arrays = new_arrays((tiles.frames, tiles.width), tuple(kinds))
    made = dict(zip(names, arrays, strict=True))
    if native.compiled is None:
        for name, out in made.items():
            _PAINTERS[name](tiles, out.reshape(-1), tokens)
        return made
    if tokens is not None:
        tokens = native.plain(tokens, tokens.dtype) if "labels" in made else None
    get = made.get
    outputs = get("segment_ids"), get("position_ids"), get("loss_mask"), tokens, get("labels")
    native.compiled.paint(tiles.first, tiles.length, tiles.segment, *outputs, IGNORE)
    return made


class SomeTiles(NamedTuple):
    """Tiles [low, high) of some more; the first of them is at cell `start`."""

    tiles: Tiles
    low: int
    high: int
    start: int


class Woven(NamedTuple):
    """Tokens and painted arrays, each [frames, width].

    Attributes:
        arrays: the tokens, and what was painted.
        names: of what was painted.
        trained: whether any cell has a token to predict.
    """

    arrays: list[Array]
    names: tuple[str, ...]
    trained: bool


def weave(
    copier: Copier,
    runs: Runs,
    some: SomeTiles,
    names: tuple[str, ...],
    shape: tuple[int, int],
    dtype: np.dtype[Any],
) -> Woven:
    """Tokens and painted arrays in one pass over the cells, and in one piece of memory.

    Args:
        copier: holds the tokens.
        runs: those of the tokens.
        some: the tiles of the same cells.
        names: which of `PAINTED`.
        shape: frames and their width.
        dtype: of tokens and labels.
    """
    kinds, places = _arrangement(names, dtype)
    arrays = new_arrays(shape, kinds)
    tiles, low, high, start = some
    woven = getattr(copier, "weave", None)
    if woven is None:
        cells = arrays[0]
        fill(copier, cells, runs)
        part = tiles.slice(start // tiles.width, start // tiles.width + shape[0])
        for name, out in zip(names, arrays[1:], strict=True):
            _PAINTERS[name](part, out.reshape(-1), cells)
        return Woven(arrays, names, bool(((part.segment > 0) & (part.length > 1)).any()))
    outputs = [None if place is None else arrays[place] for place in places]
    which = low, high, start, IGNORE, tiles.first, tiles.length, tiles.segment
    trained = woven(*runs, *which, *outputs)
    if trained.__class__ is tuple:
        raise read_failed(*trained)
    return Woven(arrays, names, trained)


@functools.lru_cache(maxsize=64)
def _arrangement(
    names: tuple[str, ...], dtype: np.dtype[Any]
) -> tuple[tuple[Any, ...], list[int | None]]:
    """The dtypes of tokens and these arrays, and which is each output of a compiled loop."""
    all_names = ("tokens", *names)
    kinds = tuple(dtype if name in ("tokens", "labels") else PAINTED[name] for name in all_names)
    asked = "segment_ids", "position_ids", "loss_mask", "tokens", "labels"
    return kinds, [all_names.index(name) if name in all_names else None for name in asked]


@functools.lru_cache(maxsize=8)
def _counting(length: int) -> Int32:
    """0, 1, 2, …, cached per length."""
    numbers = np.arange(length, dtype=np.int32)
    numbers.flags.writeable = False
    return numbers


def _paint_segments(tiles: Tiles, out: Int32, _: Int32 | None) -> None:
    out[:] = np.repeat(tiles.segment, tiles.length)


def _paint_positions(tiles: Tiles, out: Int32, _: Int32 | None) -> None:
    begin = np.repeat(tiles.first.astype(np.int32), tiles.length)
    np.subtract(_counting(len(begin)), begin, out=out)


def _paint_mask(tiles: Tiles, out: Bool, _: Int32 | None) -> None:
    out[:] = True
    out[tiles.first + tiles.length - 1] = False
    filler = tiles.segment == 0
    if filler.any():
        out[np.repeat(filler, tiles.length)] = False


def _paint_labels(tiles: Tiles, out: Int32, tokens: Int32 | None) -> None:
    assert tokens is not None  # labels are made from them
    out[:] = tokens.reshape(-1)
    out[tiles.first] = IGNORE
    filler = tiles.segment == 0
    if filler.any():
        out[np.repeat(filler, tiles.length)] = IGNORE


_PAINTERS: dict[str, Callable[[Tiles, Array, Int32 | None], None]] = {
    "segment_ids": _paint_segments,
    "position_ids": _paint_positions,
    "loss_mask": _paint_mask,
    "labels": _paint_labels,
}


def trained_across(tiles: Tiles) -> Bool:
    """The loss mask that also trains the first token of a document [frames, width].

    That token is predicted from the document before it. The last cell of a frame predicts nothing
    inside the frame, and filler is neither predicted nor predicts.
    """
    mask = np.repeat(tiles.segment > 0, tiles.length)
    mask[:-1] &= mask[1:]
    mask[tiles.width - 1 :: tiles.width] = False
    return mask.reshape(tiles.frames, tiles.width)


def untrain(mask: Bool, cell: Int64) -> None:
    """Clear the predictions of the tokens at these cells of `mask` [frames, width]."""
    before = cell[cell % mask.shape[1] > 0] - 1  # nothing predicts the first cell of a frame
    mask.reshape(-1)[before] = False


def labels_from(tokens: Int32, mask: Bool, out: Int32) -> None:
    """Aligned labels [B, S]: token i where it is trained on, else -100; the model shifts them."""
    out[:] = tokens
    untrained = np.flatnonzero(~mask.reshape(-1)[:-1])  # few: setting them beats a masked copy
    out.reshape(-1)[untrained + 1] = IGNORE
    out[:, 0] = IGNORE


def positions(frames: int, width: int) -> Int32:
    """Cells counted from 0 in every frame [frames, width]."""
    out: Int32 = new_array((frames, width), np.int32)
    out[:] = _counting(width)
    return out


def document_starts(tiles: Tiles) -> tuple[Int32, Bool]:
    """The first cell of each document in its frame, padded with -1, and which documents continue.

    Returns:
        starts int32 [frames, D] and continues bool [frames, D], where D is the largest number of
        documents in any frame, at least 1.
    """
    real = tiles.segment > 0
    row, column = tiles.first[real] // tiles.width, tiles.segment[real] - 1
    most = int(tiles.segment.max(initial=1))
    starts = np.full((tiles.frames, most), -1, np.int32)
    continues = np.zeros((tiles.frames, most), np.bool_)
    starts[row, column] = tiles.first[real] - row * tiles.width
    continues[row, column] = tiles.continues[real]
    return starts, continues
