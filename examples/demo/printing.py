"""Headings, tables and ticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["DemoFailed", "heading", "megabytes", "prove", "say", "table"]

WIDTH = 88


class DemoFailed(Exception):
    """Something that the demo promises is not so."""


def heading(text: str) -> None:
    """A line that begins a step."""
    print(f"\n── {text} {'─' * (WIDTH - len(text) - 4)}", flush=True)


def say(text: str = "") -> None:
    """One line of a step."""
    print(f"   {text}".rstrip(), flush=True)


def prove(text: str, holds: bool) -> None:
    """A promise with a tick behind it; the demo ends where one is broken."""
    if not holds:
        raise DemoFailed(text)
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
