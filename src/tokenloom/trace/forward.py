"""From an index to what is trained there: `look_at`.

One idea: everything about an example is known before a token is read, so the answer is a view of
the same numbers that a batch is made from, with the numbers on the way kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped
from tokenloom.layout.spans import Spans
from tokenloom.order.block_order import BlockOrder
from tokenloom.order.run import Placed, Run
from tokenloom.order.schedule import Steps
from tokenloom.trace.answers import CellRun, Example, Route, TracedSpan
from tokenloom.trace.cell_runs import cell_runs
from tokenloom.trace.contents import Contents
from tokenloom.trace.step_rows import rows_in_steps

__all__ = ["look_at"]

Int64 = NDArray[np.int64]


def look_at(
    run: Run,
    indices: Int64,
    *,
    edits: Sequence[int] = (),
    steps: Steps | None = None,
    text: bool = False,
    metadata: bool = False,
) -> list[Example]:
    """What is trained at some indices, in this order.

    Args:
        run: the run.
        indices: inside the run [N].
        edits: the first index of each edit, ascending.
        steps: the steps to count in, for `Example.step` and `Example.row`.
        text: decode the stored tokens; this reads them.
        metadata: look up what was kept about each document.
    """
    found: list[Example | None] = [None] * len(indices)
    places = [(None, None)] * len(indices) if steps is None else rows_in_steps(run, steps, indices)
    for part in run.placed(indices) if len(indices) else ():
        at = np.arange(len(indices)) if part.at is None else part.at
        spans = part.run.layout.spans(part.epoch, part.row)
        routes = _routes(run, part, [bisect.bisect_right(edits, i) for i in indices[at].tolist()])
        documents = _documents(part, spans, Contents.of(part.run, spans, text, metadata))
        edges = spans.frame.tolist()
        for number, place in enumerate(at.tolist()):
            step, row = places[place]
            found[place] = Example(
                index=int(indices[place]),
                source=part.run.name,
                width=run.width,
                route=routes[number],
                spans=tuple(documents[edges[number] : edges[number + 1]]),
                step=step,
                row=row,
            )
    return [one for one in found if one is not None]


def _documents(part: Placed, spans: Spans, contents: Contents) -> list[TracedSpan]:
    """The spans of some rows, as records."""
    cut = cell_runs(spans, part.run.seq_len, part.run.layout.line.reader)
    cells: list[list[CellRun]] = [[] for _ in range(len(spans.document))]
    for span, *rest in zip(*(column.tolist() for column in cut), strict=True):
        cells[span].append(CellRun(*rest))
    blank = np.zeros(len(spans.document), np.bool_)
    if part.run.blanks is not None:
        blank = part.run.blanks.covers(spans.document, part.item[spans.row])
    epoch = part.epoch[spans.row].tolist()
    return [
        TracedSpan(
            source=part.run.name,
            epoch=epoch[number],
            document=document,
            cells=tuple(cells[number]),
            blank=bool(blank[number]),
            text=contents.text(number),
            metadata=contents.metadata(document),
        )
        for number, document in enumerate(spans.document.tolist())
    ]


def _routes(run: Run, part: Placed, stages: Sequence[int]) -> list[Route]:
    """The way to each row."""
    band: list[int | None] = [None] * len(part.item)
    lane: list[int | None] = [None] * len(part.item)
    phases = part.run.phases
    for epoch, here in grouped(part.epoch):
        order = part.run.order(epoch)
        if isinstance(order, BlockOrder):
            pair = order.bands(part.item[here] - phases.start(epoch))
            for place, b, h in zip(here.tolist(), *(one.tolist() for one in pair), strict=True):
                band[place], lane[place] = b, h
    items, epochs, rows = (one.tolist() for one in (part.item, part.epoch, part.row))
    return [
        Route(
            stage, run.moment(part.number, items[k]), items[k], epochs[k], band[k], lane[k], rows[k]
        )
        for k, stage in enumerate(stages)
    ]
