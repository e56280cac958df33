"""Counts as characters: bars, shades and tables for a terminal.

One idea: nothing is drawn where nothing was counted, so that a gap is seen at once; the smallest
count has the smallest mark, and the largest is full.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tokenloom.inspect.grids import Grid

__all__ = ["bars", "heat_lines", "table"]

BARS = "·▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"


def bars(values: ArrayLike) -> str:
    """One character for each value, as high as it is; a dot for nothing.

    >>> bars([0, 1, 4, 8])
    '·▁▄█'
    """
    return _drawn(values, BARS)


def _drawn(values: ArrayLike, marks: str) -> str:
    found = np.asarray(values, np.float64)
    top = float(found.max(initial=0.0))
    levels = np.ceil(found / top * (len(marks) - 1) - 1e-9) if top else np.zeros_like(found)
    return "".join(marks[int(level)] for level in levels.reshape(-1))


def heat_lines(grid: Grid) -> list[str]:
    """A map of counts: starts from left to right, frame offsets from below.

    One line for each bin of offsets, named by its first one, and a line with the first and the last
    start.
    """
    columns, lines = len(grid.t), len(grid.s)
    if not columns:
        return ["not shown: it has no start"]
    shades = _drawn(grid.density.T, SHADES)  # [n_s, n_t]
    names = [f"{one:,}" for one in grid.s.edges[:-1].tolist()]
    width = max(len("s"), *map(len, names))
    rows = [shades[line * columns : (line + 1) * columns] for line in range(lines)]
    drawn = [f"{'s':>{width}} │"]
    drawn += [f"{name:>{width}} │{row}" for name, row in zip(names[::-1], rows[::-1], strict=True)]
    drawn.append(f"{'':>{width}} └{'─' * columns}")
    first, end = f"{grid.t.edges[0]:,}", f"{grid.t.last:,}" if columns > 1 else ""
    between = max(1, columns - len(first) - len(end))
    drawn.append(f"{'':>{width}}  {first}{' ' * between}{end} t".rstrip())
    return [line.rstrip() for line in drawn]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells in columns under a head; numbers to the right, the last column to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for number, row in enumerate(rows):
        columns = enumerate(zip(row, widths, strict=True))
        cells = [c.ljust(width) if i == last else c.rjust(width) for i, (c, width) in columns]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return lines
