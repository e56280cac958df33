"""What splices show of one document: counts in bins, as characters, drawings and a picture.

::

    how often each token is a target   over the document
    splices at (t, s)                  over the document and the frame
    splices at s                       over the frame

One idea: starts and tokens share one axis, document offsets from left to right, so what is above or
below a point belongs to it. A bin holds a whole number of possible values (starts of a document,
offsets of a frame), the same number in every bin but the last, so that a stride never looks like a
pattern: starts 0 3 6 9 12 in at most 3 bins are 0 3 | 6 9 | 12. A picture has about 20 kB, for any
length. Nothing is drawn where nothing was counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.arrays import Int64
from tokenloom.page.axes import Scale, axis_below, axis_left, drawing, short
from tokenloom.page.charts import LEFT, NAMED, RIGHT, heat
from tokenloom.page.histogram import BOTTOM, TOP, columns
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import digits, plural
from tokenloom.page.standalone import DRAWN, Panel, standalone

Float64 = NDArray[np.float64]

BARS = "·▁▂▃▄▅▆▇█"

SHADES = " ░▒▓█"

COLUMNS, LINES = 120, 48  # bins that are drawn: starts, offsets

PIXELS = 244, 110  # of a map: over the document, over the frame

STEPS = 240  # of the line of targets

SEEN = 2  # pixels of a map that the smallest bin has


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


# -- characters ----------------------------------------------------------------------------


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


# -- pictures ------------------------------------------------------------------------------


def draw(*, title: str, caption: Sequence[str], grid: Grid, targets: Int64, seq_len: int) -> str:
    """The picture.

    Args:
        title: title of the picture.
        caption: one or two lines below the title.
        grid: counts over (t, s).
        targets: how often each token of the document is a target [L].
        seq_len: tokens of a frame.
    """
    low = min(0, int(grid.t.edges[0]))
    pieces = [
        Panel(target_chart(targets, DRAWN, low=low), heading="How often each token is a target")
    ]
    if grid.counts.any():
        pieces += _counted(grid, len(targets), seq_len)
    else:
        caption = [*caption, "The document is never shown."]
    return standalone(title, caption, pieces)


def _counted(grid: Grid, length: int, seq_len: int) -> Iterator[Panel]:
    """The map, and the offsets alone."""
    heading = "Where splices start, and where they are put"
    drawn = start_map(grid, DRAWN, length=length, seq_len=seq_len, sharp=True)
    yield Panel(drawn, heading=heading, ramp=most_splices(grid))
    counts: Int64 = grid.counts.sum(axis=0)
    below = "place s in the frame, cells"
    yield Panel(spread_chart(grid.s, counts, DRAWN, below=below), heading="Splices at each place")


# -- drawings ------------------------------------------------------------------------------
def start_map(grid: Grid, width: int, *, length: int, seq_len: int, sharp: bool = False) -> Markup:
    """Splices by start and place.

    Args:
        grid: counts over (t, s).
        width: pixels of the drawing.
        length: tokens of the document.
        seq_len: tokens of a frame.
        sharp: for a file.
    """
    x = min(0, int(grid.t.edges[0])), max(1, length, int(grid.t.edges[-1]))
    density = _on_pixels(grid.density, grid.t.edges, x, PIXELS[0])  # [pixels over t, n_s]
    whole = _on_pixels(density.T, grid.s.edges, (0, seq_len), PIXELS[1])  # [over s, over t]
    return heat(
        whole[::-1],  # the first row is at the top
        width,
        "splices by start and place",
        x=x,
        y=(0, seq_len),
        below="start t in the document, tokens",
        beside="place s in the frame, cells",
        sharp=sharp,
    )


def most_splices(grid: Grid) -> tuple[str, str]:
    """What the first and the last colour of a map stand for."""
    cells = "a place" if grid.s_width == 1 else f"{grid.s_width:,} places"
    return "above 0", f"{digits(float(grid.density.max(initial=0)))} splices of a start in {cells}"


def _on_pixels(values: Float64, edges: Int64, ends: tuple[int, int], pixels: int) -> Float64:
    """Values of bins [bins, …] as those of equal pixels from one end to the other [pixels, …].

    The smallest bin has some pixels, so that a single start of a long document is seen.

    >>> _on_pixels(np.array([5.0, 1.0]), np.array([0, 50, 51]), (0, 100), 10).tolist()
    [5.0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    found = np.zeros((pixels, *values.shape[1:]))
    places = (edges - ends[0]) * (pixels / (ends[1] - ends[0]))
    for number, value in enumerate(values):
        first = min(round(places[number]), pixels - SEEN)
        last = max(first + SEEN, round(places[number + 1]))
        found[first:last] = np.maximum(found[first:last], value)
    return found


def target_chart(targets: Int64, width: int, *, low: int = 0) -> Markup:
    """How often each token is a target: a line of means, and a band from least to most.

    Args:
        targets: counts of each token [L].
        width: pixels of the drawing.
        low: where the axis starts, 0 or a start before the document.
    """
    across = Scale(low, max(low + 1, len(targets)), LEFT, width - RIGHT, whole=True)
    top, bottom = TOP + NAMED, BOTTOM + NAMED
    up = Scale(0, max(1, int(targets.max(initial=0))), bottom, top, whole=True)
    parts = axis_left(up, LEFT, width - RIGHT, said="times in an epoch")
    if len(targets):
        first = np.arange(0, len(targets), -(-len(targets) // STEPS))
        ends = np.append(first, len(targets))
        edges = [across(one) for one in ends.tolist()]
        least, most = (f.reduceat(targets, first).tolist() for f in (np.minimum, np.maximum))
        mean = (np.add.reduceat(targets, first) / np.diff(ends)).tolist()
        if least != most:
            there = _steps(edges, [up(one) for one in most])
            back = _steps(edges[::-1], [up(one) for one in least[::-1]])
            parts.append(tag("path", d=f"M{there}L{back}z", class_="s1 pale"))
        path = f"M{_steps(edges, [up(one) for one in mean])}"
        parts.append(tag("path", d=path, class_="line s1"))
    parts += axis_below(across, bottom, "token of the document")
    return drawing(width, bottom + 44, "how often each token is a target", parts)


def _steps(edges: list[float], heights: list[float]) -> str:
    """A line of steps, from the first edge to the last."""
    steps = [f"{edges[0]:g} {heights[0]:g}"]
    for edge, height in zip(edges[1:], [*heights[1:], heights[-1]], strict=True):
        steps.append(f"H{edge:g}V{height:g}")
    return "".join(steps)


def spread_chart(axis: Axis, counts: Int64, width: int, *, below: str) -> Markup:
    """Splices in each bin, as columns.

    Args:
        axis: the bins.
        counts: splices in each [bins].
        width: pixels of the drawing.
        below: name of the axis, with its unit.
    """
    each = int(axis.size.max(initial=1))
    named = below if each == 1 else f"{below}; {plural(each, 'value')} a column"
    names = [short(one) for one in axis.edges[:-1].tolist()]
    values = {"splices": counts.tolist()}
    first = int(axis.edges[0]) if len(axis.edges) else 0
    ends = None if each == 1 else (first, first + each * len(names))
    said = f"splices by {below}"
    return columns(names, values, width, said, below=named, beside="splices", x=ends)
