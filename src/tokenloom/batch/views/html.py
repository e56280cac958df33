"""What a notebook shows of things that nobody asked to view: small tables and strips of rows.

One idea: these are pieces of `tokenloom.page`, as everything that is looked at; `view()` of a run,
a store or a batch shows more. Everything that comes from data is text, and stays text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenloom.page.inline import inline
from tokenloom.page.markup import Markup, joined, tag

__all__ = ["SHOWN", "StripPiece", "preformatted", "strips", "table"]

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


def strips(head: str, rows: Sequence[Sequence[StripPiece]], more: int = 0) -> str:
    """Rows of pieces as strips below a line of text: documents in colours, filler in grey."""
    rest = tag("p", f"and {more:,} more rows", class_="more") if more > 0 else None
    return inline(tag("pre", head, class_="tree"), _drawn(rows), *([rest] if rest else []))


def _drawn(rows: Sequence[Sequence[StripPiece]]) -> Markup:
    """One SVG, whose unit across is a cell: it is stretched to the width that there is."""
    width = max((sum(piece.cells for piece in row) for row in rows), default=1)
    parts = []
    for number, row in enumerate(rows):
        at = 0
        for piece in row:
            place = {"x": at, "y": number * (HIGH + APART), "width": piece.cells, "height": HIGH}
            title = tag("title", piece.words)
            parts.append(tag("rect", title, **place, class_=_colour(piece.segment)))
            at += piece.cells
    high = max(1, len(rows)) * (HIGH + APART)
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
