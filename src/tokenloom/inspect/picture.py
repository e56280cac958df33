"""What splices show of one document: drawings for a report, and a picture in a file.

::

    how often each token is a target   over the document
    splices at (t, s)                  over the document and the frame
    splices at s                       over the frame

One idea: starts and tokens share one axis, document offsets from left to right, so what is above or
below a point belongs to it. The counts are already in bins (`tokenloom.inspect.grids`), so a
picture has about 20 kB, for any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.inspect.grids import Axis, Grid
from tokenloom.page.axes import Scale, axis_below, axis_left, drawing, short
from tokenloom.page.charts import LEFT, NAMED, RIGHT, heat
from tokenloom.page.histogram import BOTTOM, TOP, columns
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import digits, plural
from tokenloom.page.standalone import DRAWN, Panel, standalone

__all__ = ["COLUMNS", "LINES", "draw", "most_splices", "spread_chart", "start_map", "target_chart"]

Int64 = NDArray[np.int64]

Float64 = NDArray[np.float64]

COLUMNS, LINES = 120, 48  # bins that are drawn: starts, offsets

PIXELS = 244, 110  # of a map: over the document, over the frame

STEPS = 240  # of the line of targets

SEEN = 2  # pixels of a map that the smallest bin has


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
