"""What a notebook shows of things that nobody asked to view: small tables and strips of rows.

One idea: these are pieces of `tokenloom.page`, as everything that is looked at; `view()` of a run,
a store or a batch shows more. Everything that comes from data is text, and stays text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.page.inline import inline
from tokenloom.page.markup import EMPTY, Markup, joined, tag

__all__ = ["SHOWN", "StripPiece", "pieces_of", "preformatted", "strips", "strips_drawn", "table"]

SHOWN = 8  # rows of a batch

COLOURS = 8  # classes s1 to s8 of the style sheet

HIGH, APART = 16, 4  # pixels of a strip, and between two


class StripPiece(NamedTuple):
    """A stretch of a row: its cells, its segment (0 is filler), and what to say about it."""

    cells: int
    segment: int
    words: str


def table(head: str, rows: Iterable[tuple[str, object]]) -> str:
    """A heading over two columns: names and values.

    >>> table("Store", [("documents", 1200)]).endswith("<td>1,200</td></tr></tbody></table></div>")
    True
    """
    lines = (
        tag("tr", tag("th", name, scope="row"), tag("td", _words(value))) for name, value in rows
    )
    return inline(tag("table", tag("caption", tag("b", head)), tag("tbody", *lines)))


def preformatted(text: str) -> str:
    """Text as it is, in a fixed font."""
    return inline(tag("pre", text, class_="tree"))


def strips(head: str, segments: NDArray[Any], more: int = 0) -> str:
    """Rows as strips below a line of text: documents in colours, filler in grey.

    Args:
        head: the line.
        segments: the segment of every cell, 0 for filler [rows, S].
        more: rows that are not shown.
    """
    rest = tag("p", f"and {more:,} more rows", class_="more") if more > 0 else EMPTY
    return inline(tag("pre", head, class_="tree"), strips_drawn(segments), rest)


def pieces_of(row: NDArray[Any]) -> list[StripPiece]:
    """The stretches of a row, from its segments.

    >>> [(one.cells, one.segment) for one in pieces_of(np.array([1, 1, 2, 0, 0]))]
    [(2, 1), (1, 2), (2, 0)]
    """
    edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    found = []
    for first, last in itertools.pairwise(edges):
        segment = int(row[first]) if last > first else 0
        name = f"document {segment} of the row" if segment else "filler"
        found.append(StripPiece(last - first, segment, f"{name}: cells {first} to {last - 1}"))
    return found


def strips_drawn(segments: NDArray[Any]) -> Markup:
    """One SVG, whose unit across is a cell: it is stretched to the width that there is."""
    parts = []
    for number, row in enumerate(segments):
        at = 0
        for piece in pieces_of(row):
            place = {"x": at, "y": number * (HIGH + APART), "width": piece.cells, "height": HIGH}
            title = tag("title", piece.words)
            parts.append(tag("rect", title, **place, class_=_colour(piece.segment)))
            at += piece.cells
    rows, width = segments.shape
    high = max(1, rows) * (HIGH + APART)
    return tag(
        "svg",
        joined(parts),
        viewBox=f"0 0 {width} {high}",
        height=high,
        preserveAspectRatio="none",
        role="img",
        aria_label="documents of each row",
        class_="row-strips",
    )


def _colour(segment: int) -> str:
    return "filler" if segment == 0 else f"s{(segment - 1) % COLOURS + 1}"


def _words(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
