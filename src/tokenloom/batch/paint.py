"""Given tiles, paints every array of a batch except its tokens.

One idea: whatever is constant or counts up inside a tile (`tokenloom.batch.tiles`) is one
`np.repeat`, or one pass of the compiled painter.

Conventions, the same everywhere: segment 0 is filler, documents are 1, 2, … in a frame;
``loss_mask[i]`` means that the prediction of token i + 1 counts; a filler stretch counts positions
from 0 like a document of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenloom import native
from tokenloom.arrays import Array, Bool, Int32, Int64
from tokenloom.batch.cells import Copier, Runs, fill, new_array, new_arrays
from tokenloom.batch.spec import PAINTED
from tokenloom.batch.tiles import Tiles
from tokenloom.store.derived.payload import read_failed

IGNORE = -100  # the label of a cell that is not trained


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
