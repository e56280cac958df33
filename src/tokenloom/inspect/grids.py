"""Counts over starts and offsets, in bins: the plain record that maps and pictures are drawn from.

One idea: a bin holds a whole number of possible values (starts of a document, offsets of a frame),
the same number in every bin but the last, so that a stride never looks like a pattern.

Worked example: starts 0 3 6 9 12 in at most 3 bins: 0 3 | 6 9 | 12.

Counts as characters: bars, shades and tables for a terminal.

One idea: nothing is drawn where nothing was counted, so that a gap is visible at once; the smallest
count gets the smallest mark, and the largest a full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Axis", "Grid", "bars", "even_bins", "exact_bins", "heat_lines", "table"]

Int64 = NDArray[np.int64]

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """Values in bins.

    Attributes:
        edges: the first value of every bin, and the end of the last bin [bins + 1].
        size: number of possible values in each [bins].
        last: the last value.
    """

    edges: Int64
    size: Int64
    last: int

    def __len__(self) -> int:
        return len(self.size)

    def of(self, values: Int64) -> Int64:
        """The bin of each value [N]."""
        found: Int64 = np.searchsorted(self.edges[:-1], values, side="right") - 1
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """How often splices start at t and are placed at s.

    Attributes:
        t: starts, in bins.
        s: frame offsets, in bins.
        counts: splices in each bin [n_t, n_s].
    """

    t: Axis
    s: Axis
    counts: Int64

    @property
    def density(self) -> Float64:
        """Mean number of splices per start and per `s_width` offsets [n_t, n_s]."""
        found: Float64 = self.counts / self.t.size[:, None] * (self.s_width / self.s.size)
        return found

    @property
    def s_width(self) -> int:
        """Offsets of a bin; the last one may have fewer."""
        return int(self.s.size.max(initial=1))


def even_bins(values: Int64, most: int) -> Axis:
    """At most `most` bins with the same number of values in each but the last.

    >>> even_bins(np.array([0, 3, 6, 9, 12]), 3).edges.tolist()
    [0, 6, 12, 15]
    """
    width = max(1, -(-len(values) // max(1, most)))
    return _axis(values, np.append(np.arange(0, len(values), width), len(values)))


def exact_bins(values: Int64, bins: int) -> Axis:
    """Exactly `bins` bins, or one per value if there are fewer; sizes differ by at most one."""
    bins = min(bins, len(values))
    return _axis(values, np.arange(bins + 1) * len(values) // max(1, bins))


def _axis(values: Int64, first: Int64) -> Axis:
    """Bins whose first values are at these positions of `values`."""
    step = values[-1] - values[-2] if len(values) > 1 else 1
    end = values[-1:] + step
    edges = np.append(values[first[:-1]], end if len(end) else 0)
    return Axis(edges, np.diff(first), int(values[-1]) if len(values) else 0)


BARS = "·▁▂▃▄▅▆▇█"

SHADES = " ░▒▓█"


def bars(values: ArrayLike) -> str:
    """One character per value, as high as the value; a dot for 0.

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
    """A map of counts: starts from left to right, frame offsets from bottom to top.

    There is one line per bin of offsets, labelled with the bin's first offset, and a line with the
    first and the last start.
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
    """Cells in columns under a header; right-aligned, except for the last column."""
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
