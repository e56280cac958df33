"""What a notebook shows: small tables, and the rows of a batch as strips of documents.

Plain HTML with inline styles, no script and nothing from elsewhere; everything that comes from data
is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["SHOWN", "StripPiece", "preformatted", "strips", "table"]

SHOWN = 8  # rows of a batch

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#e15759")


class StripPiece(NamedTuple):
    """A stretch of a row: its cells, its segment (0 is filler), and what to say about it."""

    cells: int
    segment: int
    words: str


def table(head: str, rows: Iterable[tuple[str, object]]) -> str:
    """A heading over two columns: names and values.

    >>> table("Store", [("documents", 1200)])[:40]
    '<table><caption style="caption-side:top;'
    """
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(_words(value))}</td></tr>"
        for name, value in rows
    )
    caption = f'<caption style="caption-side:top;text-align:left"><b>{escape(head)}</b></caption>'
    return f"<table>{caption}{cells}</table>"


def preformatted(text: str) -> str:
    """Text as it is, in a fixed font."""
    return f"<pre style='line-height:1.25'>{escape(text)}</pre>"


def strips(rows: Sequence[Sequence[StripPiece]], more: int = 0) -> str:
    """Rows of pieces as strips: documents in colours, filler in grey."""
    drawn = "".join(f"<div style='display:flex;margin:1px 0'>{_strip(row)}</div>" for row in rows)
    rest = f"<div>and {more:,} more rows</div>" if more > 0 else ""
    return f"<div style='max-width:60em'>{drawn}{rest}</div>"


def _strip(row: Sequence[StripPiece]) -> str:
    return "".join(
        f"<div title='{escape(piece.words, quote=True)}' style='flex:{piece.cells};height:1em;"
        f"min-width:1px;background:{_colour(piece.segment)};border-left:1px solid white'></div>"
        for piece in row
    )


def _colour(segment: int) -> str:
    return "#ddd" if segment == 0 else COLOURS[(segment - 1) % len(COLOURS)]


def _words(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
