"""The laws of arrays: every cell of a batch is what spans, tokens and settings make of it.

One idea: a row is a sequence of tiles (documents and stretches of filler), and between two tiles
every array changes in a known way. So an array is right if it is right in the first cell of each
tile and changes nowhere else: one comparison per cell, without making the array again. What is
trained is a yes or no for each cell, made here from spans and settings.

The usual case, where no setting is special, takes a single compiled pass that says yes. What it
does not say yes to is looked at again here, cell by cell.

Nothing here uses the code that paints batches (`tokenloom.batch.paint`), except for guessed
segments, which both take from `tokenloom.batch.tiles.tiles_from_eos`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom import native
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.tiles import tiles_from_eos
from tokenloom.layout.spans import EOS, JOINED, Spans

__all__ = [
    "FIELDS",
    "Broken",
    "RowTiles",
    "RowTruth",
    "is_usual",
    "judged_cells",
    "row_tiles",
    "truth_of",
    "usual_holds",
]

Int64 = NDArray[np.int64]

Int32 = NDArray[np.int32]

Bool = NDArray[np.bool_]

Array = NDArray[Any]

IGNORE = -100

SAME = ("segment_ids", "position_ids", "loss_mask", "tokens", "labels")  # as the loop takes them

FIELDS = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")


class Broken(NamedTuple):
    """Cells that break a law.

    Attributes:
        law: which one.
        looked_at: cells judged by it.
        cells: those that break it, counted over all rows of the batch.
        found, right: what is there and what should be, as a function of a cell.
    """

    law: str
    looked_at: int
    cells: Int64
    found: Callable[[int], Any]
    right: Callable[[int], Any]


class RowTruth(NamedTuple):
    """What some rows with the same settings must be.

    Attributes:
        render: the settings.
        seq_len: cells of a row.
        cells: tokens, including the look-ahead cell if there is one [rows, width].
        first: the first cell of every tile, counted over all rows [tiles].
        segment: the segment of every tile [tiles].
        target: whether each cell's token is trained on [rows, seq_len or one more].
        weight: the loss weight of each cell's token, or None for 1 [rows, width].
    """

    render: RenderSpec
    seq_len: int
    cells: Int32
    first: Int64
    segment: Int64
    target: Bool
    weight: NDArray[np.float32] | None

    @property
    def mask(self) -> Bool:
        """Whether the prediction at each cell counts [rows, seq_len]."""
        ahead = self.target[:, 1:]
        if ahead.shape[1] == self.seq_len:
            return ahead
        out = np.zeros((len(ahead), self.seq_len), np.bool_)
        out[:, :-1] = ahead
        return out

    @property
    def edges(self) -> Int64:
        """Where sequences start for attention kernels, and the end [sequences + 1]."""
        same = (self.segment[1:] == self.segment[:-1]) & (self.first[1:] % self.seq_len > 0)
        return np.append(self.first[np.append(True, ~same)], self.cells.shape[0] * self.seq_len)


def truth_of(
    spans: Spans,
    cells: Int32,
    render: RenderSpec,
    seq_len: int,
    weight: NDArray[np.float32] | None = None,
) -> RowTruth:
    """What rows with these spans and tokens must be.

    Args:
        spans: the rows.
        cells: their tokens [rows, width].
        render: how they are rendered.
        seq_len: cells of a row that are no look-ahead.
        weight: stored loss weights of the same cells.
    """
    ahead = render.label_layout == "shifted" and spans.width > seq_len
    width = seq_len + ahead
    if render.segments == "eos":
        assert render.eos_id is not None  # checked by the spec
        guessed = tiles_from_eos(spans, cells, render.eos_id, width)
        first, segment = guessed.first, guessed.segment.astype(np.int64)
    else:
        tiles = row_tiles(spans, width)
        first, segment = tiles.first, tiles.segment.astype(np.int64)
    target = _targets(spans, cells, render, first, segment, width)
    if weight is not None:
        target &= weight[:, :width] > 0
    if ahead:  # the last column is a label only
        first, segment = _cut(first, segment, width)
    segment = _lent(first, segment, render, seq_len)
    return RowTruth(render, seq_len, cells, first, segment, target, weight)


class RowTiles(NamedTuple):
    """Rows as tiles: documents, and stretches of filler.

    Attributes:
        rows: how many rows.
        width: cells of a row.
        first: the first cell of every tile, counted over all rows [tiles].
        length: its cells [tiles].
        segment: its segment, 0 for filler [tiles].
    """

    rows: int
    width: int
    first: Int64
    length: Int64
    segment: Int32


def row_tiles(spans: Spans, width: int) -> RowTiles:
    """The first `width` cells of every row as tiles."""
    rows, row, at = len(spans), spans.row, spans.at
    end = row * width + np.minimum(at + spans.cells, width)
    keep = at < width
    if not keep.all():  # a span in the look-ahead cell alone
        row, at, end = row[keep], at[keep], end[keep]
    begin, joined = row * width + at, (spans.flags[keep] & JOINED) > 0
    if joined.any():
        heads = np.flatnonzero(~joined)
        end = end[np.append(heads[1:], len(row)) - 1]
        begin, row = begin[heads], row[heads]
    opens = np.diff(row, prepend=-1) > 0  # the first of its row
    before = np.where(opens, row * width, np.append(0, end[:-1]))
    gap = begin > before
    last = np.arange(rows) * width
    last[row] = end  # of several the last one, since they ascend
    tail = last < (np.arange(rows) + 1) * width
    # a tile comes after the documents before it, their gaps, and the tails of the rows before it
    gaps, tails = np.cumsum(gap), np.cumsum(tail)
    place = np.arange(len(row)) + gaps + (tails - tail)[row]
    first, segment = np.zeros((2, len(row) + int(gap.sum()) + int(tail.sum())), np.int64)
    first[place], segment[place] = begin, np.arange(len(row)) - np.searchsorted(row, row) + 1
    first[place[gap] - 1] = before[gap]
    upto = np.searchsorted(row, np.flatnonzero(tail), side="right")
    first[upto + np.append(0, gaps)[upto] + tails[tail] - 1] = last[tail]
    length = np.diff(np.append(first, rows * width))
    return RowTiles(rows, width, first, length, segment.astype(np.int32))


def _cut(first: Int64, segment: Int64, width: int) -> tuple[Int64, Int64]:
    """Tiles of rows of `width` cells without the last column."""
    row, at = np.divmod(first, width)
    keep = at < width - 1
    return (row * (width - 1) + at)[keep], segment[keep]


def _lent(first: Int64, segment: Int64, render: RenderSpec, width: int) -> Int64:
    """The segments with what settings lend to filler at the ends of a row."""
    if not render.is_lent:
        return segment
    out, filler = segment.copy(), segment == 0
    starts = first % width == 0
    ends = np.append(starts[1:], True)
    if render.attend_prefix:
        here = np.flatnonzero(filler & starts & ~ends)
        out[here] = segment[here + 1]
    if render.trailing == "doc":
        here = np.flatnonzero(filler & ends & ~starts)
        out[here] = segment[here - 1]
    return out


def _targets(
    spans: Spans, cells: Int32, render: RenderSpec, first: Int64, segment: Int64, width: int
) -> Bool:
    """Whether each cell's token is trained on [rows, width]."""
    rows = len(spans)
    out = np.ones((rows, width), np.bool_)
    flat = out.reshape(-1)
    filler = np.flatnonzero(segment == 0)
    ends = np.append(first[1:], rows * width)
    if len(filler):
        flat[_ranges(first[filler], ends[filler])] = False
    after = np.append(0, segment[:-1])  # the segment of the tile before
    alone = (first % width == 0) | (after == 0)
    flat[first if render.mask_boundary_loss else first[alone]] = False
    if render.segments != "eos" and spans.seen.any():
        begin = spans.row * width + spans.at
        stop = spans.row * width + np.minimum(spans.at + np.minimum(spans.seen, spans.cells), width)
        flat[_ranges(np.minimum(begin, stop), stop)] = False
    if not render.train_on_eos and render.eos_mask == "inserted":
        place = spans.at + spans.cells - 1
        there = ((spans.flags & EOS) > 0) & (place < width)
        flat[(spans.row * width + place)[there]] = False
    by_value = [] if render.ignore_id is None else [render.ignore_id]
    if not render.train_on_eos and render.eos_mask == "all" and render.eos_id is not None:
        by_value.append(render.eos_id)
    for token in by_value:
        out &= cells[:, :width] != token
    return out


def _ranges(first: Int64, last: Int64) -> Int64:
    """All cells from first to last of each pair, concatenated."""
    count = last - first
    ends = np.cumsum(count)
    return np.repeat(first - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)


# -- the usual case, in one pass -----------------------------------------------------------


def is_usual(render: RenderSpec, spans: Spans, seq_len: int) -> bool:
    """Whether all arrays follow from tiles and tokens alone, in the default way."""
    default = render.is_plain and render.segments == "documents" and not render.is_lent
    default &= render.position_scheme == "reset" and not render.position_offset
    return default and spans.width == seq_len and not spans.seen.any()


def usual_holds(
    tiles: tuple[Int64, Int64, Int32], cells: Int32, arrays: Mapping[str, Array]
) -> bool:
    """Whether all of `FIELDS` are right in rows that are usual; False if NumPy has to tell.

    Args:
        tiles: the first cell, the cells and the segment of every tile [tiles].
        cells: the tokens [rows, seq_len].
        arrays: by name.
    """
    if native.compiled is None or not all(name in arrays for name in FIELDS):
        return False
    given = [arrays[name] for name in SAME]
    kinds = [one.dtype for one in given]
    plain = all(one.flags.c_contiguous for one in given)
    if not plain or kinds != [np.int32, np.int32, np.bool_, cells.dtype, cells.dtype]:
        return False
    found: int = native.compiled.same(*tiles, *given, cells, IGNORE)
    return found == len(tiles[0])


# -- judging -------------------------------------------------------------------------------


def judged_cells(truth: RowTruth, arrays: dict[str, Array]) -> Iterator[Broken]:
    """What is wrong with the arrays of some rows, law by law.

    Args:
        truth: what they must be.
        arrays: by name, those of `FIELDS` that there are, and `loss_weights`.
    """
    judges: dict[str, Callable[[RowTruth, Array], Broken]] = {
        "tokens": _tokens,
        "segment_ids": _segments,
        "position_ids": _positions,
        "loss_mask": _mask,
        "labels": _labels,
        "loss_weights": _weights,
    }
    for name, judge in judges.items():
        if name in arrays:
            yield judge(truth, arrays[name])


def _compared(law: str, found: Array, right: Array) -> Broken:
    wrong = np.flatnonzero((found != right).reshape(-1))
    return Broken(
        law,
        found.size,
        wrong,
        lambda cell: found.reshape(-1)[cell],
        lambda cell: right.reshape(-1)[cell],
    )


def _tokens(truth: RowTruth, found: Array) -> Broken:
    return _compared("tokens", found, truth.cells[:, : truth.seq_len])


def _stepping(law: str, found: Array, truth: RowTruth, start: Int64, step: int) -> Broken:
    """An array that starts with `start` in each tile and grows by `step` from cell to cell."""
    flat = np.ascontiguousarray(found).reshape(-1)
    as_before = flat[1:] == (flat[:-1] if step == 0 else flat[:-1] + flat.dtype.type(step))
    jumps = np.flatnonzero(~as_before) + 1
    wrong_starts = flat[truth.first] != start
    if not wrong_starts.any() and _within(jumps, truth.first):
        return Broken(law, flat.size, jumps[:0], str, str)
    count = np.diff(np.append(truth.first, flat.size))
    right = np.repeat(start, count)
    if step:
        right = right + np.arange(flat.size) - np.repeat(truth.first, count)
    return _compared(law, flat, right)


def _within(some: Int64, every: Int64) -> bool:
    """Whether ascending numbers are all among other ascending numbers."""
    if len(some) == len(every) - 1 and np.array_equal(some, every[1:]):
        return True
    place = np.minimum(np.searchsorted(every, some), len(every) - 1)
    return bool((every[place] == some).all())


def _segments(truth: RowTruth, found: Array) -> Broken:
    return _stepping("segments", found, truth, truth.segment, 0)


def _positions(truth: RowTruth, found: Array) -> Broken:
    start = np.zeros_like(truth.first)
    if truth.render.position_scheme == "absolute":
        start = truth.first % truth.seq_len
    return _stepping("positions", found, truth, start + truth.render.position_offset, 1)


def _mask(truth: RowTruth, found: Array) -> Broken:
    return _compared("loss_mask", found, truth.mask)


def _weights(truth: RowTruth, found: Array) -> Broken:
    right = truth.mask.astype(np.float32)
    if truth.weight is not None:
        ahead = truth.weight[:, 1 : truth.seq_len + 1]
        right[:, : ahead.shape[1]] *= np.where(truth.mask[:, : ahead.shape[1]], ahead, 0)
    return _compared("loss_weights", found, right)


def _labels(truth: RowTruth, found: Array) -> Broken:
    if truth.render.label_layout == "aligned":
        target, tokens = truth.target[:, : truth.seq_len], truth.cells[:, : truth.seq_len]
    else:
        target, tokens = truth.mask, truth.cells[:, 1 : truth.seq_len + 1]
        if tokens.shape[1] < truth.seq_len:
            tokens = np.pad(tokens, ((0, 0), (0, 1)))
    untrained = np.flatnonzero(~target.reshape(-1))
    if ((found == tokens) == target).all():
        flat = np.ascontiguousarray(found).reshape(-1)
        if (flat[untrained] == IGNORE).all():
            return Broken("labels", found.size, untrained[:0], str, str)
    return _compared("labels", found, np.where(target, tokens, IGNORE))
