"""Where a judged token is: in its document, in its frame, and how much the model saw before it.

One idea: everything about a place follows from spans, so each axis is a few lines of arithmetic
over all judged tokens of a batch. To add an axis, write one function and name it in `AXES`.

==============  ====================================================================================
document        the document, by its number in its store
source          the source of a mix
index           the token's place in its document, from 0
position        its cell in the frame, from 0; `seq_len` for the token after a row
context         tokens of its segment before it: what the model could see
start           where the row's stretch of the document starts: t of a splice
row             the row itself, by its index in the run
==============  ====================================================================================

Places are counted in bins that double: 0, 1, 2 to 3, 4 to 7, …; ``start`` has a bin for 0 alone, so
that later splices are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.evaluate.scoring import Judged
from tokenloom.layout.spans import BOS, JOINED

__all__ = ["AXES", "DOUBLING", "TokenPlaces", "bin_name", "places"]

Int64 = NDArray[np.int64]


class TokenPlaces(NamedTuple):
    """Where judged tokens are; arrays over them, row by row from left to right.

    Attributes:
        row: row of the batch.
        cell: the token's own cell, one after the cell that predicts it.
        span: number of its span in the batch.
        document, place, context, start, source: as in the table above, where `place` is called
            index; sources by number.
        example: index of its row in the run.
    """

    row: Int64
    cell: Int64
    span: Int64
    document: Int64
    place: Int64
    context: Int64
    start: Int64
    source: Int64
    example: Int64


def places(one: Judged, sources: Sequence[str]) -> TokenPlaces:
    """The places of all judged tokens of a batch.

    Args:
        one: the batch.
        sources: names of the run's sources; places have their numbers.
    """
    row, cell = np.nonzero(one.cells)
    cell = cell + 1
    spans, width = one.batch.spans, one.batch.spans.width + 1
    owner = np.repeat(np.arange(len(spans)), np.diff(spans.frame))
    firsts = owner * width + spans.at  # ascending: by row, then by cell
    span = np.searchsorted(firsts, row * width + cell, side="right") - 1
    opens = np.flatnonzero((spans.flags & JOINED) == 0)
    opener = opens[np.searchsorted(opens, span, side="right") - 1]
    numbers = np.array([sources.index(name) for name in spans.sources])
    place = spans.start[span] + cell - spans.at[span] - ((spans.flags[span] & BOS) != 0)
    return TokenPlaces(
        row=row,
        cell=cell,
        span=span,
        document=spans.document[span],
        place=place,
        context=cell - spans.at[opener],
        start=spans.start[span],
        source=numbers[spans.source[row]],
        example=one.batch.index[row],
    )


def doubled(values: Int64) -> Int64:
    """The bin of a place: 0 for 0, else one more than its binary logarithm."""
    return np.where(values > 0, np.frexp(np.maximum(values, 1).astype(np.float64))[1], 0)


def bin_name(number: int) -> str:
    """What lies in a bin.

    >>> [bin_name(number) for number in range(4)]
    ['0', '1', '2 to 3', '4 to 7']
    """
    if number < 2:
        return str(number)
    return f"{1 << (number - 1)} to {(1 << number) - 1}"


AXES: dict[str, Callable[[TokenPlaces], Int64]] = {
    "document": lambda at: at.document,
    "source": lambda at: at.source,
    "index": lambda at: doubled(at.place),
    "position": lambda at: doubled(at.cell),
    "context": lambda at: doubled(at.context),
    "start": lambda at: doubled(at.start),
    "row": lambda at: at.example,
}

DOUBLING = ("index", "position", "context", "start")
