"""Tables for a terminal: numbers to the right, words to the left, no wider than the screen.

One idea: a table that is too wide loses characters of its longest words, never a column and never a
digit of a number. Where nobody watches (a file, a pipe) it is as wide as it needs to be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

GAP = "  "
NARROW = 12  # characters that a cut column keeps at least


def screen() -> int | None:
    """Characters of a line of the terminal; None if the output goes elsewhere."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return None


def words(value: Any) -> str:
    r"""A cell as text: integers with commas, None as a dash.

    >>> words(1234567), words(0.25), words(None), words(True), words("a\tb")
    ('1,234,567', '0.25', '-', 'yes', 'a\\tb')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return harmless(str(value))


def harmless(text: str) -> str:
    r"""The text on one line, without what would steer a terminal.

    >>> harmless("two\nlines \x1b[31m")
    'two\\nlines \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None
) -> Iterator[str]:
    r"""The lines of a table.

    Args:
        heads: names of the columns.
        rows: cells, one sequence per row.
        width: characters of a line; None for as many as it takes.

    >>> rows = [["wiki", 12000], ["a very long name", 7]]
    >>> print(*table(["name", "rows"], rows, width=20), sep="\n")
    name            rows
    ------------  ------
    wiki          12,000
    a very long…       7
    """
    shown = [[words(cell) for cell in row] for row in rows]
    columns = list(zip(list(heads), *shown, strict=True))
    right = [all(_is_number(row[n]) for row in rows) and bool(rows) for n in range(len(heads))]
    widths = _fitted([max(map(len, column)) for column in columns], right, width)
    for cells in (list(heads), ["-" * one for one in widths], *shown):
        placed = [
            _cut(cell, wide).rjust(wide) if numbers else _cut(cell, wide).ljust(wide)
            for cell, wide, numbers in zip(cells, widths, right, strict=True)
        ]
        yield GAP.join(placed).rstrip()


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cut(cell: str, wide: int) -> str:
    return cell if len(cell) <= wide else cell[: wide - 1] + "…"


def _fitted(widths: list[int], right: list[bool], width: int | None) -> list[int]:
    """Widths that fit: the widest column of words gives, one character at a time."""
    over = 0 if width is None else sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        free = [n for n, one in enumerate(widths) if one > NARROW and not right[n]]
        if not free:
            break
        widest = max(free, key=lambda n: widths[n])
        widths[widest] -= 1
        over -= 1
    return widths
