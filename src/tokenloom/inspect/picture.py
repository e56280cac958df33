"""The coverage of one document as a picture: a self-contained SVG string.

::

    targets over the document │ scale
    ──────────────────────────┼────────
    counts over (t, s)        │ offsets over the frame

One idea: starts and tokens share one axis, document offsets from left to right, and both maps share
frame offsets from bottom to top, so what is above or next to a point belongs to it. The counts are
already in bins (`tokenloom.inspect.grids`), so a picture has about 100 kB at most, for any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.inspect import svg
from tokenloom.inspect.grids import Grid
from tokenloom.inspect.svg import GREY, INK

__all__ = ["COLUMNS", "LINES", "draw"]

Int64 = NDArray[np.int64]

Float64 = NDArray[np.float64]

COLUMNS, LINES = 120, 48  # bins that are drawn: starts, offsets

WIDTH, HEIGHT = 760, 476  # pixels, like all below

LEFT, RIGHT = 76, 572  # of the map

TOP, BOTTOM = 204, 424

UPPER, LOWER = 110, 190  # of the targets above it

BESIDE, END = 620, 740  # of the offsets to the right of it

NARROW = 3  # the smallest visible mark

STEPS = 240  # of the line of targets

LEVELS = 12

PALE, DARK = (217, 231, 245), (8, 48, 107)  # colours of the lowest and the highest level

GROUND, BAND = "#f3f3f3", "#bdd3e9"


def draw(*, title: str, caption: Sequence[str], grid: Grid, targets: Int64, seq_len: int) -> str:
    """The picture.

    Args:
        title: title of the picture.
        caption: one or two lines below the title.
        grid: counts over (t, s).
        targets: how often each token of the document is a target [L].
        seq_len: tokens of a frame.
    """
    first = min(0, int(grid.t.edges[0]))
    across = _Scale(first, max(first + 1, len(targets)), LEFT, RIGHT)
    up = _Scale(0, seq_len, BOTTOM, TOP)
    parts = [
        *_ground(),
        *_targets(targets, across),
        *_map(grid, across, up),
        *_offsets(grid, up),
        *_scale(grid),
        *_axes(across, up),
    ]
    if not grid.counts.any():
        middle = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
        parts.append(svg.text(*middle, "not shown", anchor="middle"))
    return svg.drawing(title=title, caption=caption, size=(WIDTH, HEIGHT), left=LEFT, parts=parts)


class _Scale:
    """Values along an axis as pixels."""

    def __init__(self, low: int, high: int, first: int, last: int) -> None:
        self.low, self.high = low, high
        self._first, self._pixels = first, (last - first) / (high - low)

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside the axis are clipped to its ends."""
        inside = min(max(value, self.low), self.high) - self.low
        return round(self._first + inside * self._pixels, 2)


# -- pieces --------------------------------------------------------------------------------
def _ground() -> list[str]:
    """The three backgrounds that counts are drawn on."""
    boxes = (
        svg.box(LEFT, UPPER, RIGHT - LEFT, LOWER - UPPER),
        svg.box(LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP),
        svg.box(BESIDE, TOP, END - BESIDE, BOTTOM - TOP),
    )
    return [svg.filled("".join(boxes), GROUND)]


def _color(level: int) -> str:
    """The colour of a level from 1 to LEVELS."""
    share = (level - 1) / (LEVELS - 1)
    mixed = (round(a + (b - a) * share) for a, b in zip(PALE, DARK, strict=True))
    return "#" + "".join(f"{one:02x}" for one in mixed)


def _targets(targets: Int64, across: _Scale) -> Iterator[str]:
    """How often each token is a target: a line of means, and a band from least to most."""
    top = int(targets.max(initial=0))
    yield svg.text(LEFT, UPPER - 8, "how often each token is a target")
    yield svg.text(LEFT - 8, LOWER, "0", anchor="end", color=GREY)
    if not top:
        return
    yield svg.text(LEFT - 8, UPPER + 9, f"{top:,}", anchor="end", color=GREY)
    up = _Scale(0, top, LOWER, UPPER)
    first = np.arange(0, len(targets), -(-len(targets) // STEPS))
    edges = [across(one) for one in np.append(first, len(targets)).tolist()]
    least, most = (f.reduceat(targets, first).tolist() for f in (np.minimum, np.maximum))
    mean = (np.add.reduceat(targets, first) / np.diff(np.append(first, len(targets)))).tolist()
    if least != most:
        there = _steps(edges, [up(one) for one in most])
        back = _steps(edges[::-1], [up(one) for one in least[::-1]])
        yield svg.filled(f"M{there}L{back}z", BAND, crisp=False)
    yield svg.line(f"M{_steps(edges, [up(one) for one in mean])}", _color(LEVELS))


def _steps(edges: list[float], heights: list[float]) -> str:
    """A line of steps, from the first edge to the last."""
    steps = [f"{edges[0]:g} {heights[0]:g}"]
    for edge, height in zip(edges[1:], [*heights[1:], heights[-1]], strict=True):
        steps.append(f"H{edge:g}V{height:g}")
    return "".join(steps)


def _map(grid: Grid, across: _Scale, up: _Scale) -> Iterator[str]:
    """Counts over (t, s), one path per level."""
    density = grid.density
    top = float(density.max(initial=0.0))
    if not top:
        return
    level = np.ceil(density / top * LEVELS - 1e-9).astype(np.int64)
    edges = [across(edge) for edge in grid.t.edges.tolist()]
    heights = [up(edge) for edge in grid.s.edges.tolist()]
    paths: dict[int, list[str]] = {}
    for line in range(len(grid.s)):
        low, high = heights[line], heights[line + 1]
        column = level[:, line]
        begins = np.flatnonzero(np.append(True, np.diff(column) != 0)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(column)], strict=True):
            if column[begin]:
                width = max(NARROW, edges[end] - edges[begin])
                left = min(edges[begin], RIGHT - width)
                tall = max(NARROW, low - high)
                box = svg.box(left, max(TOP, low - tall), round(width, 2), round(tall, 2))
                paths.setdefault(int(column[begin]), []).append(box)
    for found in sorted(paths):
        yield svg.filled("".join(paths[found]), _color(found))


def _offsets(grid: Grid, up: _Scale) -> Iterator[str]:
    """Splices at each offset, to the right of the map."""
    yield svg.text(BESIDE, BOTTOM + 18, "0", color=GREY)
    said = "splices at s" if grid.s_width == 1 else f"splices in {grid.s_width:,} offsets"
    yield svg.text((BESIDE + END) / 2, BOTTOM + 38, said, anchor="middle")
    found: Float64 = grid.counts.sum(axis=0) * (grid.s_width / grid.s.size)
    top = float(found.max(initial=0.0))
    if not top:
        return
    yield svg.text(END, BOTTOM + 18, _number(top), anchor="end", color=GREY)
    heights, boxes = [up(edge) for edge in grid.s.edges.tolist()], []
    for share, low, high in zip((found / top).tolist(), heights, heights[1:], strict=False):
        if share:
            tall, width = max(NARROW, low - high), max(1.0, share * (END - BESIDE))
            boxes.append(svg.box(BESIDE, max(TOP, low - tall), round(width, 2), round(tall, 2)))
    yield svg.filled("".join(boxes), _color(LEVELS - 3))


def _scale(grid: Grid) -> Iterator[str]:
    """The legend of the colours."""
    top = float(grid.density.max(initial=0.0))
    if not top:
        return
    yield svg.text(
        BESIDE, UPPER + 8, "splices at (t, s)" if grid.s_width == 1 else "splices at t, in"
    )
    if grid.s_width > 1:
        yield svg.text(BESIDE, UPPER + 24, f"{grid.s_width:,} offsets")
    width, y = (END - BESIDE) / LEVELS, UPPER + (18 if grid.s_width == 1 else 34)
    for level in range(1, LEVELS + 1):
        yield svg.filled(svg.box(BESIDE + (level - 1) * width, y, width, 14), _color(level))
    yield svg.text(BESIDE, y + 30, "0", color=GREY)
    yield svg.text(END, y + 30, _number(top), anchor="end", color=GREY)


def _axes(across: _Scale, up: _Scale) -> Iterator[str]:
    lines = [f"M{LEFT} {UPPER}V{LOWER}H{RIGHT}", f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"]
    lines.append(f"M{BESIDE} {TOP}V{BOTTOM}H{END}")
    for at in svg.ticks(across.low, across.high, 7):
        lines.append(f"M{across(at):g} {BOTTOM}v5")
        yield svg.text(across(at), BOTTOM + 18, f"{at:,}", anchor="middle", color=GREY)
    for at in svg.ticks(up.low, up.high, 6):
        lines.append(f"M{LEFT} {up(at):g}h-5")
        yield svg.text(LEFT - 8, up(at) + 4, f"{at:,}", anchor="end", color=GREY)
    yield svg.line("".join(lines), GREY)
    said = "document offset: start t in the map, token in the line above it"
    yield svg.text((LEFT + RIGHT) / 2, BOTTOM + 38, said, anchor="middle")
    middle = (TOP + BOTTOM) / 2
    turn = f'transform="rotate(-90 18 {middle:g})" text-anchor="middle"'
    yield f'<text x="18" y="{middle:g}" {turn} fill="{INK}">frame offset s</text>'


def _number(value: float) -> str:
    """A count, or the mean of several.

    >>> _number(1200.0), _number(0.25)
    ('1,200', '0.25')
    """
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
