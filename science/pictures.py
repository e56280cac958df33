"""Means and intervals of several arms as one picture: a point and a bar for each.

One idea: orderings are what is claimed, so arms share one axis, and the eye does the comparison.
Losses of memorised and unknown text lie decades apart, so the axis may be logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from science.verdicts import Found, Interval
from tokenloom.inspect.svg import GREY, INK, drawing, filled, line, text

__all__ = ["dots"]

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2")

TOP, STEP, WIDE = 76, 20, 460

Row = tuple[str, Interval]


def dots(
    title: str,
    caption: str,
    found: Found,
    groups: Sequence[tuple[str, Sequence[tuple[str, str]], str]],
    *,
    across: str,
    log: bool = False,
) -> str:
    """A picture of a figure of many arms.

    Args:
        title: what it shows.
        caption: a line below the title.
        found: the records.
        groups: (heading, pairs of label and arm, figure) of each group; arms that were not measured
            are left out.
        across: what the horizontal axis is.
        log: whether the axis is logarithmic.
    """
    known = [(heading, _rows(found, pairs, figure)) for heading, pairs, figure in groups]
    known = [(heading, rows) for heading, rows in known if rows]
    every = [one for _, rows in known for _, one in rows]
    left = 40 + 7 * max([len(label) for _, rows in known for label, _ in rows] or [8])
    scale = _Scale(every, left, log=log)
    parts, y = [], TOP
    for number, (heading, rows) in enumerate(known):
        parts.append(text(left, y, heading, color=GREY))
        for label, one in rows:
            y += STEP
            parts.append(text(left - 14, y + 4, label, anchor="end"))
            parts.append(_mark(scale, one, y, COLOURS[number % len(COLOURS)]))
        y += STEP + 10
    parts += [line(f"M{left} {y}H{left + WIDE}", GREY), *scale.marks(y)]
    parts.append(text(left + WIDE, y + 36, across, anchor="end", color=GREY))
    return drawing(
        title=title, caption=[caption], size=(left + WIDE + 90, y + 50), left=20, parts=parts
    )


def _rows(found: Found, pairs: Sequence[tuple[str, str]], figure: str) -> list[Row]:
    rows = ((label, found.interval(arm, figure)) for label, arm in pairs)
    return [(label, one) for label, one in rows if one is not None]


class _Scale:
    """Values to pixels."""

    def __init__(self, every: Sequence[Interval], left: int, *, log: bool) -> None:
        self.left, self.log = left, log
        means = [one.mean for one in every if one.mean > 0] or [1.0]
        if log:
            self.low = 10.0 ** math.floor(math.log10(min(means)))
            self.high = 10.0 ** math.ceil(math.log10(max(*means, self.low * 10)))
        else:
            ends = [edge for one in every for edge in (one.low, one.high)] or [0.0, 1.0]
            margin = (max(ends) - min(ends)) * 0.08 or 0.5
            self.low, self.high = min(ends) - margin, max(ends) + margin

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.left + WIDE * share

    def marks(self, y: float) -> list[str]:
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            values = [10.0**power for power in range(first, last + 1)]
        else:
            step = 10.0 ** math.floor(math.log10(self.high - self.low))
            step *= 0.2 if (self.high - self.low) / step < 3 else 1.0
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            values = [number * step for number in range(first, last + 1)]
        return [
            text(self(one), y + 18, f"{one:.4g}", anchor="middle", color=GREY) for one in values
        ]


def _mark(scale: _Scale, one: Interval, y: float, colour: str) -> str:
    """A bar over the interval, a point at the mean, and the number."""
    low, at, high = scale(max(one.low, scale.low)), scale(one.mean), scale(one.high)
    bar = filled(f"M{low:.1f} {y - 1.5}H{high:.1f}v3H{low:.1f}z", colour, crisp=False)
    point = filled(f"M{at - 4:.1f} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", colour, crisp=False)
    return bar + point + text(max(at, high) + 8, y + 4, f"{one.mean:.3g}", color=INK)
