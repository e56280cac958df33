"""Document boundaries of ready-made rows → segments, positions, sequences.

One idea: a boundary, however it was found, is a mark on a cell. Marks cut the cells of all rows
into tiles (`tiles.Tiles`), and everything else is painted from those. So stored boundaries and
boundaries guessed from tokens take the same path, in time linear in the cells.

Conventions, as everywhere: segments count from 1 in each row; filler is segment 0 and counts its
positions from 0 like a document of its own. A row always starts with a boundary, given or not.

Worked example: starts ``[3]``, a row of 5 tokens in 7 cells::

    cells         a b c d e . .
    segment_ids   1 1 1 2 2 0 0
    position_ids  0 1 2 0 1 0 1
    cu_seqlens    0     3   5   7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.arrays import Int32, Int64
from tokenloom.batch.paint import Tiles, paint, tiles_at
from tokenloom.errors import InputError

__all__ = [
    "Marks",
    "marks_from_starts",
    "marks_from_tokens",
    "position_ids",
    "segment_ids",
    "tiles_from_marks",
]


class Marks(NamedTuple):
    """The first cell of each document, wherever it was found.

    Attributes:
        row: the row of each boundary [marks].
        cell: its cell in that row [marks].

    >>> marks = marks_from_starts([[0, 4], [3]])
    >>> marks.row.tolist(), marks.cell.tolist()
    ([0, 0, 1], [0, 4, 3])
    """

    row: Int64
    cell: Int64


def marks_from_starts(starts: Sequence[ArrayLike], path: str = "document_starts") -> Marks:
    """The marks of stored boundaries, checked; those past the end of a row are dropped later.

    Args:
        starts: for each row, the first cells of its documents; -1 at the end of a row is padding.
        path: the name of `starts` in messages.

    Raises:
        InputError: a row holds anything but ascending cells.

    >>> [marks.tolist() for marks in marks_from_starts([[0, 4, -1], [], [3]])]
    [[0, 0, 2], [0, 4, 3]]
    """
    lists = [np.asarray(one) for one in starts]
    for place, one in enumerate(lists):
        if one.ndim != 1 or (one.size and one.dtype.kind not in "iu"):
            raise _wrong_starts(path, place, one)
    row = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    cell = np.concatenate([np.empty(0, np.int64), *lists]).astype(np.int64)
    # neighbours in one row: the second is larger, or padding
    same, before, after = row[1:] == row[:-1], cell[:-1], cell[1:]
    ascend = (after == -1) | ((after > before) & (before != -1))
    wrong = np.concatenate([row[cell < -1], row[1:][same & ~ascend]])
    if len(wrong):
        raise _wrong_starts(path, int(wrong[0]), lists[wrong[0]])
    real = cell >= 0
    return Marks(row[real], cell[real])


def _wrong_starts(path: str, row: int, found: NDArray[Any]) -> InputError:
    shown = np.array2string(found, threshold=8, separator=", ")
    return InputError(
        f"{path}: row {row}: found {shown}, allowed: a list of ascending cells from 0, with -1 "
        "only as padding at its end. Give the first cell of every document, in order."
    )


def marks_from_tokens(
    tokens: NDArray[Any], lengths: Int64, eos: int | None, bos: int | None
) -> Marks:
    """The marks guessed from tokens: after each `eos`, or at each `bos` if `eos` is None.

    Filler is never examined, so a padding token that equals `eos` starts nothing.

    Args:
        tokens: rows, padded on the right [B, S].
        lengths: tokens of each row [B].
        eos: the token that ends a document, or None.
        bos: the token that starts one, or None.

    >>> row = np.array([[1, 2, 99, 3, 99, 99, 99]])
    >>> [marks.tolist() for marks in marks_from_tokens(row, np.array([5]), 99, None)]
    [[0], [3]]
    """
    begins = np.zeros(tokens.shape, np.bool_)
    if eos is not None:
        begins[:, 1:] = tokens[:, :-1] == eos
    elif bos is not None:
        begins[:, 1:] = tokens[:, 1:] == bos
    row, cell = np.nonzero(begins)
    inside = cell < lengths[row]
    return Marks(row[inside], cell[inside])


def tiles_from_marks(marks: Marks, lengths: Int64, width: int) -> Tiles:
    """All cells of some rows, cut at every mark, at the start of every row and of its filler.

    Args:
        marks: boundaries, in any order; those past the end of their row are ignored.
        lengths: tokens of each row; the cells after them are filler [B].
        width: cells of each row, at least 1.

    >>> tiles = tiles_from_marks(marks_from_starts([[0, 3]]), np.array([5]), 7)
    >>> tiles.length.tolist(), tiles.segment.tolist()
    ([3, 2, 2], [1, 2, 0])
    """
    row, cell = marks
    begin = np.arange(len(lengths)) * width
    cut = np.zeros(len(lengths) * width, np.bool_)
    inside = cell < lengths[row]
    cut[begin[row[inside]] + cell[inside]] = True
    cut[begin] = True
    cut[(begin + lengths)[lengths < width]] = True
    first = np.flatnonzero(cut)
    of = first // width  # the row of each tile
    return tiles_at(first, first - begin[of] < lengths[of], len(lengths), width)


def position_ids(
    starts: Sequence[ArrayLike], width: int, lengths: ArrayLike | None = None
) -> Int32:
    """Positions that restart at 0 in every document [B, width].

    Args:
        starts: first cells of the documents of each row, optionally padded with -1.
        width: cells of a row.
        lengths: tokens of each row [B]; None: all rows are full.

    >>> position_ids([[0, 3]], 6).tolist()
    [[0, 1, 2, 0, 1, 2]]
    """
    return _painted("position_ids", starts, width, lengths)


def segment_ids(starts: Sequence[ArrayLike], width: int, lengths: ArrayLike | None = None) -> Int32:
    """1, 2, … for the documents of each row, 0 for filler [B, width].

    The arguments are those of `position_ids`.

    >>> segment_ids([[0, 3]], 6, [5]).tolist()
    [[1, 1, 1, 2, 2, 0]]
    """
    return _painted("segment_ids", starts, width, lengths)


def _painted(
    name: str, starts: Sequence[ArrayLike], width: int, lengths: ArrayLike | None
) -> Int32:
    full = np.full(len(starts), width, np.int64)
    size = full if lengths is None else np.asarray(lengths, np.int64)
    if width < 1 or size.shape != full.shape or (size < 0).any() or (size > width).any():
        raise InputError(
            f"lengths, width: found {size.tolist()} in rows of {width}, allowed: a length from 0 "
            f"to the width for each of the {len(full)} rows, and a width of 1 or more."
        )
    return paint(tiles_from_marks(marks_from_starts(starts), size, width), [name])[name]
