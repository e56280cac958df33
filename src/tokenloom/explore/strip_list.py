"""Rows of a step as strips: one thin drawing a row, a link to the row, its source and its epoch.

One idea: a strip has as many pieces as can be seen. Rows of a million cells with ten thousand
documents are drawn from arrays, in at most `PIECES` pieces; where several documents fall together,
the piece says how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.explore.query import link
from tokenloom.explore.session import ExploredRun
from tokenloom.layout.spans import Spans
from tokenloom.page.markup import Markup, tag

__all__ = ["StripRow", "rows_of_step", "strip_rows"]

WIDE, HIGH = 1000, 20  # of the drawing; the page stretches it

PIECES = 80  # of a strip


@dataclass(frozen=True, slots=True)
class StripRow:
    """A row of a step.

    Attributes:
        row: its number in the step.
        index: its number in the run.
        source, epoch: where it comes from.
        edges: first cell of each piece, and the cell after it [pieces, 2].
        documents: documents in each piece [pieces].
        first: the first document of each piece [pieces].
        width: cells of the row.
    """

    row: int
    index: int
    source: str
    epoch: int
    edges: NDArray[np.int64]
    documents: list[int]
    first: list[int]
    width: int


def rows_of_step(
    explored: ExploredRun, indices: NDArray[np.int64], first_row: int = 0
) -> list[StripRow]:
    """The strips of some examples; no token is read."""
    run = explored.run.run
    if not len(indices):
        return []
    spans, (epochs, _) = run.spans(indices), run.locate(indices)
    sources = [spans.sources[one] for one in spans.source.tolist()]
    return [
        StripRow(
            first_row + number,
            index,
            sources[number],
            int(epochs[number]),
            *_pieces(spans.frames(number, number + 1), run.width),
            run.width,
        )
        for number, index in enumerate(indices.tolist())
    ]


def _pieces(spans: Spans, width: int) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """The pieces of one row: its documents, those that are too thin together."""
    begin, end, document = spans.at, spans.at + spans.cells, spans.document
    if len(begin) > PIECES:
        place = begin * PIECES // width
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        counts = np.diff(np.append(starts, len(begin)))
        begin, document = begin[starts], document[starts]
        end = end[np.append(starts[1:], len(end)) - 1]
        return np.stack([begin, end], 1), counts.tolist(), document.tolist()
    return np.stack([begin, end], 1), [1] * len(begin), document.tolist()


def strip_rows(
    explored: ExploredRun,
    rows: Sequence[StripRow],
    *,
    differs: Iterable[int] = (),
    to: Callable[[StripRow], str] | None = None,
) -> Markup:
    """A list of strips.

    Args:
        explored: their run.
        rows: what to draw.
        differs: rows to be marked as different.
        to: where the name of a row leads; default: to the page of the row.
    """
    others, number = set(differs), explored.number or None
    leads = to or (lambda one: link("row", index=one.index, run=number))
    items = (
        tag(
            "li",
            tag("a", _name(one), _strip(explored, one), href=leads(one)),
            class_="differs" if one.row in others else None,
        )
        for one in rows
    )
    return tag("ol", *items, class_="rows")


def _name(one: StripRow) -> Markup:
    about = f" {one.source}, epoch {one.epoch:,}"
    row = tag("span", f"row {one.row:,}", class_="row-number")
    return tag("span", row, tag("span", about, class_="soft"), class_="row-name")


def _strip(explored: ExploredRun, one: StripRow) -> Markup:
    colour = explored.colours[one.source]
    parts = [tag("rect", x=0, y=0, width=WIDE, height=HIGH, class_="filler")]
    pieces = zip(one.edges.tolist(), one.documents, one.first, strict=True)
    for number, ((begin, end), documents, first) in enumerate(pieces):
        x, right = begin * WIDE / one.width, end * WIDE / one.width
        shade = "odd" if number % 2 else "even"
        said = f"document {first:,}" if documents == 1 else f"{documents:,} documents"
        name = tag("title", f"{said}: cells {begin:,} to {end - 1:,}")
        place = {"x": f"{x:.5g}", "y": 0, "width": f"{max(right - x, 0.5):.5g}", "height": HIGH}
        class_ = f"{'rest' if colour > 8 else f's{colour}'} {shade}"
        parts.append(tag("rect", name, **place, class_=class_))
    said = f"row {one.row:,} of {one.source}: {sum(one.documents):,} documents"
    size = {"viewBox": f"0 0 {WIDE} {HIGH}", "preserveAspectRatio": "none"}
    return tag("svg", *parts, **size, role="img", aria_label=said, class_="row-strip")
