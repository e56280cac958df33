"""Means and intervals of several arms as one picture: points with bars, on axes that they share.

One idea: orderings are what is claimed, so the eye must be able to compare. `dots` puts a figure,
or several, of every arm on one axis, `scatter` one figure against another. Losses of memorised and
unknown text lie decades apart, so axes may be logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from science.verdicts import Found, Interval
from tokenloom.inspect.svg import GREY, INK, box, drawing, filled, line, text

__all__ = ["Group", "dots", "scatter"]

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2")

PALE, GREEN = "#e8e8e8", "#e6f2e3"

TOP, STEP, WIDE, HIGH = 76, 22, 460, 300


class Group(NamedTuple):
    """Rows of a picture below one heading.

    Attributes:
        heading: what they have in common.
        rows: (label, arm) of each; arms that were not measured are left out.
        figures: the figures of a row by name, each with its words for the legend.
    """

    heading: str
    rows: Sequence[tuple[str, str]]
    figures: Mapping[str, str]


class Row(NamedTuple):
    """A label and the marks of its row, each with its colour."""

    label: str
    marks: list[tuple[Interval, str]]


def dots(
    title: str,
    caption: str,
    found: Found,
    groups: Sequence[Group],
    *,
    across: str,
    log: bool = False,
    zero: bool = False,
    against: str | None = None,
) -> str:
    """A picture of figures of many arms, one row for each.

    Args:
        title: what it shows.
        caption: a line below the title.
        found: the records.
        groups: what is shown. Several figures of a row have colours of their own and a legend.
        across: what the horizontal axis is.
        log: whether the axis is logarithmic.
        zero: whether the axis must have zero on it.
        against: an arm; then figures are differences from it, paired by seed.
    """
    several = any(len(group.figures) > 1 for group in groups)
    known = [
        (group.heading, rows)
        for number, group in enumerate(groups)
        if (rows := list(_rows(found, group, None if several else COLOURS[number], against)))
    ]
    every = [one for _, rows in known for row in rows for one, _ in row.marks]
    every += [Interval(0.0, 0.0, 1)] * zero
    left = 40 + 7 * max([len(row.label) for _, rows in known for row in rows] or [8])
    scale = _Scale(every, left, WIDE, log=log)
    parts, y = [], TOP + (24 if several else 0)
    first = y
    for heading, rows in known:
        parts += [text(left, y, heading, color=GREY)] if heading else []
        for row in rows:
            y += STEP
            parts.append(text(left - 14, y + 4, row.label, anchor="end"))
            parts += _marks(scale, row.marks, y)
            if len(row.marks) == 1:
                parts.append(_number(scale, row.marks[0][0], y))
        y += STEP + 10
    legend = list(groups[0].figures.values()) if several else []
    frame = [line(f"M{left} {y - 6}H{left + WIDE}", GREY), *_axis(scale, first + 6, y - 6)]
    end = text(left + WIDE, y + 32, across, anchor="end", color=GREY)
    return drawing(
        title=title,
        caption=[caption],
        size=(left + WIDE + 90, y + 46),
        left=20,
        parts=[*frame, *_legend(legend, left), *parts, end],
    )


def _rows(found: Found, group: Group, colour: str | None, against: str | None) -> Iterator[Row]:
    for label, arm in group.rows:
        some = (
            found.interval(arm, figure) if against is None else found.gap(arm, against, figure)
            for figure in group.figures
        )
        marks = [
            (one, colour or COLOURS[number]) for number, one in enumerate(some) if one is not None
        ]
        if marks:
            yield Row(label, marks)


def _legend(words: Sequence[str], left: int) -> Iterator[str]:
    x = float(left)
    for number, said in enumerate(words):
        yield filled(_disc(x + 4, TOP - 4), COLOURS[number], crisp=False)
        yield text(x + 14, TOP, said)
        x += 34 + 7 * len(said)


def scatter(
    title: str,
    caption: str,
    found: Found,
    arms: Mapping[str, str],
    *,
    across: tuple[str, str],
    up: tuple[str, str],
    gate: tuple[float, float] | None = None,
    passes: str = "",
) -> str:
    """A picture of one figure against another, a point for each arm.

    Args:
        title: what it shows.
        caption: a line below the title.
        found: the records.
        arms: the arm of each label.
        across: figure and words of the horizontal axis, which is logarithmic like the other one.
        up: figure and words of the vertical axis.
        gate: the largest values of both that pass, drawn as an area.
        passes: words in that area.
    """
    known = {
        label: (x, y)
        for label, arm in arms.items()
        if (x := found.interval(arm, across[0])) and (y := found.interval(arm, up[0]))
    }
    left, bottom = 64, TOP + 20 + HIGH
    flat = _Scale([x for x, _ in known.values()], left, WIDE, log=True)
    tall = _Scale([y for _, y in known.values()], bottom, -HIGH, log=True)
    parts = []
    if gate is not None:
        right, top = flat(gate[0]), tall(gate[1])
        parts.append(filled(box(left, top, right - left, bottom - top), GREEN))
        parts.append(text(left + 8, bottom - 8, passes, color=COLOURS[2]))
    parts += [line(f"M{left} {TOP + 20}V{bottom}H{left + WIDE}", GREY)]
    parts += _axis(flat, TOP + 20, bottom)
    for value in tall.values():
        parts.append(text(left - 8, tall(value) + 4, f"{value:.4g}", anchor="end", color=GREY))
    parts.append(text(left, TOP + 8, up[1], color=GREY))
    parts.append(text(left + WIDE, bottom + 38, across[1], anchor="end", color=GREY))
    parts += _points({label: (flat(x.mean), y) for label, (x, y) in known.items()}, tall)
    return drawing(
        title=title, caption=[caption], size=(left + WIDE + 150, bottom + 52), left=20, parts=parts
    )


def _points(known: Mapping[str, tuple[float, Interval]], tall: _Scale) -> Iterator[str]:
    """Points with bars, and labels that keep apart from each other and from all points."""
    taken = [(x - 6, x + 6, tall(y.mean)) for x, y in known.values()]
    for number, (label, (x, y)) in enumerate(sorted(known.items(), key=lambda one: one[1][1].mean)):
        at, colour = tall(y.mean), COLOURS[number % len(COLOURS)]
        low, high = tall(y.low), tall(y.high)
        bar = f"M{x - 2:.1f} {low:.1f}V{high:.1f}h4V{low:.1f}z"
        yield filled(bar, _paler(colour), crisp=False)
        yield filled(_disc(x, at), colour, crisp=False)
        said, place = f"{label}: {y.mean:.3g}", at
        first, last = x + 18, x + 18 + 7 * len(said)
        while any(first < b and a < last and abs(place - c) < 15 for a, b, c in taken):
            place -= 1  # the lowest comes first, so labels move up
        taken.append((first, last, place))
        yield line(f"M{x + 6:.1f} {at:.1f}L{x + 16:.1f} {place:.1f}", GREY)
        yield text(round(first, 1), round(place + 4, 1), said, color=INK)


class _Scale:
    """Values to pixels, from a first pixel over a width that may be negative."""

    def __init__(self, every: Sequence[Interval], first: int, width: int, *, log: bool) -> None:
        self.first, self.width, self.log = first, width, log
        if log:
            means = [one.mean for one in every if one.mean > 0] or [1.0]
            self.low = _round(min(means) / 1.1, up=False)
            self.high = _round(max(*means, self.low * 10) * 1.1, up=True)
        else:
            ends = [edge for one in every for edge in (one.low, one.high)] or [0.0, 1.0]
            margin = (max(ends) - min(ends)) * 0.08 or 0.5
            bare = min(ends) < 0 or min(ends) > margin  # else the axis starts at zero
            self.low, self.high = min(ends) - margin if bare else 0.0, max(ends) + margin

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.first + self.width * share

    def values(self) -> list[float]:
        """Round values for marks."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            parts = (1, 2, 5) if self.high < 150 * self.low else (1,)
            every = [part * 10.0**power for power in range(first, last + 1) for part in parts]
            return [one for one in every if 0.999 * self.low <= one <= 1.001 * self.high]
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        step *= 0.2 if (self.high - self.low) / step < 3 else 1.0
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def _round(value: float, *, up: bool) -> float:
    """The next of … 0.5, 1, 2, 5, 10 … above or below.

    >>> _round(0.03, up=False), _round(0.03, up=True)
    (0.02, 0.05)
    """
    power = 10.0 ** math.floor(math.log10(value))
    near = [part * power for part in (1, 2, 5, 10)]
    return min(one for one in near if one >= value) if up else max(o for o in near if o <= value)


def _axis(scale: _Scale, top: float, bottom: float) -> Iterator[str]:
    """Pale lines at round values, and these."""
    for one in scale.values():
        yield line(f"M{scale(one):.1f} {top}V{bottom}", PALE)
        yield text(round(scale(one), 1), bottom + 18, f"{one:.4g}", anchor="middle", color=GREY)


def _marks(scale: _Scale, marks: Sequence[tuple[Interval, str]], y: float) -> Iterator[str]:
    """Pale bars over intervals, then points at means; several of a row a little apart."""
    apart = [5 * (number - (len(marks) - 1) / 2) for number in range(len(marks))]
    if len(marks) > 1:
        places = [scale(one.mean) for one, _ in marks]
        yield line(f"M{min(places):.1f} {y}H{max(places):.1f}", PALE)
    for (one, colour), by in zip(marks, apart, strict=True):
        low, high = scale(one.low), scale(one.high)
        bar = f"M{low:.1f} {y + by - 2}H{high:.1f}v4H{low:.1f}z"
        yield filled(bar, _paler(colour), crisp=False)
    for (one, colour), by in zip(marks, apart, strict=True):
        yield filled(_disc(scale(one.mean), y + by), colour, crisp=False)


def _paler(colour: str) -> str:
    """Half-way to white.

    >>> _paler("#4e79a7")
    '#a6bcd3'
    """
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{(part + 255) // 2:02x}" for part in parts)


def _number(scale: _Scale, one: Interval, y: float) -> str:
    return text(max(scale(one.mean), scale(one.high)) + 8, y + 4, f"{one.mean:.3g}", color=INK)


def _disc(x: float, y: float) -> str:
    return f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
