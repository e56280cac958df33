"""Headings, tables and ticks: lines of at most 88 characters, the same in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

__all__ = ["DemoFailed", "heading", "megabytes", "prove", "say", "table"]

WIDTH = 88
INDENT = "   "


class DemoFailed(Exception):
    """The demo cannot go on: something is missing, or a promise is broken."""


def heading(text: str) -> None:
    """A line that begins a step."""
    print(f"\n── {text} {'─' * (WIDTH - len(text) - 4)}", flush=True)


def say(text: str = "") -> None:
    """One line of a step, as it is."""
    print(f"{INDENT}{text}".rstrip(), flush=True)


def explain(text: str) -> None:
    """A paragraph below a line; it is wrapped, but paths stay whole."""
    for line in textwrap.wrap(
        text,
        WIDTH - 8,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        say(f"    {line}")


def prove(text: str, holds: bool) -> None:
    """A promise with a tick behind it; the demo ends where one is broken."""
    if not holds:
        raise DemoFailed(f"a promise is broken: {text}")
    say(f"{text} ✓")


def table(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    """A table with one column per source and one row per name."""
    width = max(len(name) for name in names)
    widths = {head: max(map(len, (head, *cells))) for head, cells in columns.items()}
    say(" " * width + "".join(f"  {head:>{widths[head]}}" for head in columns))
    for i, name in enumerate(names):
        cells = (f"  {columns[head][i]:>{widths[head]}}" for head in columns)
        say(f"{name:<{width}}" + "".join(cells))


def megabytes(count: int) -> str:
    """Bytes of text for people.

    >>> megabytes(12_345_678)
    '12.3 MB'
    """
    return f"{count / 1e6:.1f} MB"
