"""A few rows of a run, spread over it: what figures about real rows look at.

A dozen rows from the start, the middle and the end show what a run is like, and cost one
read of a few rows, however long the run is. A frame of a million cells is shown less often than a
short one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.batch.batch import Batch
from tokenloom.order.schedule import Steps

Int64 = NDArray[np.int64]

Bool = NDArray[np.bool_]

EACH = 4  # rows of a step

CELLS = 1 << 20  # of all rows together


class PickedSpan(NamedTuple):
    """What a row holds of a document.

    Attributes:
        document: its number in the store.
        at, cells: first cell, and cells in the frame, with inserted tokens.
        start, length: document offset of its first token, and tokens in the frame.
        whole: tokens of the document.
        inserted: BOS and EOS among the cells.
    """

    document: int
    at: int
    cells: int
    start: int
    length: int
    whole: int
    inserted: int

    @property
    def before(self) -> bool:
        """Whether tokens of the document before these are not in the row."""
        return self.start > 0

    @property
    def after(self) -> bool:
        """Whether tokens of the document after these are not in the row."""
        return self.start + self.length < self.whole


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PickedRow:
    """A row that is looked at.

    Attributes:
        index: its index in the run.
        step, row: the step, and its row of it.
        source: name of its source.
        spans: its documents.
        trained: whether the token of each cell is a target [S].
        segments: the segment of each cell, 0 for filler [S].
    """

    index: int
    step: int
    row: int
    source: str
    spans: tuple[PickedSpan, ...]
    trained: Bool
    segments: NDArray[np.int32]

    @property
    def cells(self) -> int:
        """Cells of the frame."""
        return len(self.segments)

    @property
    def filler(self) -> int:
        """Cells that hold no token."""
        return self.cells - sum(one.cells for one in self.spans)


def picked_rows(run: Dataset, steps: Steps, examples: int, count: int) -> list[PickedRow]:
    """Rows of the first, the middle and the last step; fewer of long frames, all of a tiny run.

    Args:
        run: the run.
        steps: which examples each step has.
        examples: examples to choose from, from the first on.
        count: whole steps in them.
    """
    wanted = _indices(run.run.width, steps, examples, count)
    if not wanted:
        return []
    batch = run.batch([index for _, index in wanted])
    trained, segments = targets_of(batch.trained()), batch.segment_ids
    spans = list(_spans(run, batch))
    return [
        PickedRow(
            index=index,
            step=step,
            row=index - steps.begin(step),
            source=spans[place][0],
            spans=spans[place][1],
            trained=trained[place],
            segments=segments[place],
        )
        for place, (step, index) in enumerate(wanted)
    ]


def _indices(width: int, steps: Steps, examples: int, count: int) -> list[tuple[int, int]]:
    """(step, index) of the rows."""
    each = max(1, min(EACH, CELLS // max(1, 3 * width)))
    last = max(0, count - 1)
    found: dict[int, int] = {}
    for step in (0, last // 2, last):
        begin = steps.begin(step)
        for index in range(begin, min(begin + min(each, steps.size(step)), examples)):
            found[index] = step
    return [(step, index) for index, step in sorted(found.items())]


def targets_of(mask: Bool) -> Bool:
    """Whether the token of each cell is a target: a mask tells it at the cell before [B, S]."""
    out = np.zeros_like(mask)
    out[:, 1:] = mask[:, :-1]
    return out


def _spans(run: Dataset, batch: Batch) -> Iterator[tuple[str, tuple[PickedSpan, ...]]]:
    """The source and the spans of each row, cut at the end of the frame."""
    spans, width = batch.spans, batch.shape[1]
    readers = {one.name: one.layout.line.reader for one in run.run.sources}
    for frame in range(len(spans)):
        low, high = int(spans.frame[frame]), int(spans.frame[frame + 1])
        name = spans.sources[int(spans.source[frame])]
        begin, end = readers[name].bounds(spans.document[low:high])
        columns = (spans.document, spans.at, spans.cells, spans.start, spans.length, spans.flags)
        found = []
        for document, at, cells, start, length, flags, whole in zip(
            *(column[low:high].tolist() for column in columns),
            (end - begin).tolist(),
            strict=True,
        ):
            inside = min(cells, width - at)
            if inside > 0:  # what is only a label is in no cell
                bos = flags & 1
                kept = max(0, min(length, inside - bos))
                span = PickedSpan(document, at, inside, start, kept, whole, inside - kept)
                found.append(span)
        yield name, tuple(found)


def segments_of(row: NDArray[Any]) -> list[tuple[int, int, int]]:
    """(first cell, cell after the last, segment) of each stretch of a row, filler included.

    >>> segments_of(np.array([1, 1, 2, 0, 0]))
    [(0, 2, 1), (2, 3, 2), (3, 5, 0)]
    """
    edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    return [(low, high, int(row[low])) for low, high in itertools.pairwise(edges) if high > low]
