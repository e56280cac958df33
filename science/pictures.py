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
from tokenloom.page.axes import Scale, drawing, label, rule, short
from tokenloom.page.charts import series
from tokenloom.page.markup import Markup, tag
from tokenloom.page.standalone import DRAWN, Panel, standalone

__all__ = ["Group", "dots", "scatter"]

STEP, HIGH = 22, 300  # pixels of a row, and of the axis of a scatter

LETTER = 6.8  # pixels of a letter's width, about

RIGHT = 52  # pixels for the number after the last mark


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
    """A label and the marks of its row, each with its class."""

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
        if (rows := list(_rows(found, group, None if several else series(number), against)))
    ]
    every = [one for _, rows in known for row in rows for one, _ in row.marks]
    every += [Interval(0.0, 0.0, 1)] * zero
    left = 16 + LETTER * max([len(row.label) for _, rows in known for row in rows] or [8])
    scale = Scale(*_bounds(every, log), round(left), DRAWN - RIGHT, log=log)
    marks, y = [], 8.0
    for heading, rows in known:
        marks += [tag("text", heading, x=0, y=f"{y + 8:g}", class_="heading")] if heading else []
        y += 10 if heading else -10
        for row in rows:
            y += STEP
            marks.append(label(left - 12, y + 4, row.label, anchor="end"))
            marks += _marks(scale, row.marks, y)
            if len(row.marks) == 1:
                marks.append(_number(scale, row.marks[0][0], y))
        y += STEP + 8
    parts = [*_axis(scale, 4 if not known or not known[0][0] else 18, y - 8, across), *marks]
    legend = list(groups[0].figures.values()) if several else []
    return standalone(
        title,
        [caption],
        [
            Panel(
                drawing(DRAWN, y + 36, f"{across}, {len(every)} means with intervals", parts),
                legend=[(said, series(number)) for number, said in enumerate(legend)],
            )
        ],
    )


def _rows(found: Found, group: Group, class_: str | None, against: str | None) -> Iterator[Row]:
    for name, arm in group.rows:
        some = (
            found.interval(arm, figure) if against is None else found.gap(arm, against, figure)
            for figure in group.figures
        )
        marks = [
            (one, class_ or series(number)) for number, one in enumerate(some) if one is not None
        ]
        if marks:
            yield Row(name, marks)


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
    left, top, bottom = 44, 26, 26 + HIGH
    flat = Scale(*_bounds([x for x, _ in known.values()], True), left, DRAWN - 70, log=True)
    tall = Scale(*_bounds([y for _, y in known.values()], True), bottom, top, log=True)
    parts = [label(0, 12, up[1], soft=True)]
    if gate is not None:
        right, above = flat(gate[0]), tall(gate[1])
        box = f"M{left} {bottom}V{above:g}H{right:g}V{bottom}z"
        parts.append(tag("path", d=box, class_="allowed"))
        parts.append(tag("text", passes, x=left + 8, y=bottom - 8, class_="allowed-words"))
    parts.append(rule(f"M{left} {top}V{bottom}"))
    parts += _axis(flat, top, bottom, across[1])
    for value in tall.ticks(8):
        parts.append(label(left - 8, tall(value) + 4, short(value), anchor="end", soft=True))
    parts += _points({name: (flat(x.mean), y) for name, (x, y) in known.items()}, tall)
    said = f"{up[1]} over {across[1]}, {len(known)} means with intervals"
    return standalone(title, [caption], [Panel(drawing(DRAWN, bottom + 44, said, parts))])


def _points(known: Mapping[str, tuple[float, Interval]], tall: Scale) -> Iterator[Markup]:
    """Points with bars, and labels that keep apart from each other and from all points."""
    taken = [(x - 6, x + 6, tall(y.mean)) for x, y in known.values()]
    for number, (name, (x, y)) in enumerate(sorted(known.items(), key=lambda one: one[1][1].mean)):
        at, class_ = tall(y.mean), series(number)
        low, high = tall(y.low), tall(y.high)
        bar = f"M{x - 2:.1f} {low:.1f}V{high:.1f}h4V{low:.1f}z"
        yield tag("path", d=bar, class_=f"{class_} pale")
        yield _disc(x, at, class_)
        said, place = f"{name}: {y.mean:.3g}", at
        wide = LETTER * len(said)
        ahead = x + 18 + wide <= DRAWN  # else the words end before the point
        first = x + 18 if ahead else x - 18 - wide
        while any(first < b and a < first + wide and abs(place - c) < 16 for a, b, c in taken):
            place -= 1  # the lowest comes first, so labels move up
        taken.append((first, first + wide, place))
        side = 1 if ahead else -1
        yield rule(f"M{x + 6 * side:.1f} {at:.1f}L{x + 16 * side:.1f} {place:.1f}")
        anchor = "start" if ahead else "end"
        words = label(round(x + 18 * side, 1), round(place + 4, 1), said, anchor=anchor)
        yield tag("g", words, class_="marked")


def _bounds(every: Sequence[Interval], log: bool) -> tuple[float, float]:
    """The lowest and the highest value of an axis that shows all intervals, or all means."""
    if log:
        means = [one.mean for one in every if one.mean > 0] or [1.0]
        low = _round(min(means) / 1.1, up=False)
        return low, _round(max(*means, low * 10) * 1.1, up=True)
    ends = [edge for one in every for edge in (one.low, one.high)] or [0.0, 1.0]
    margin = (max(ends) - min(ends)) * 0.08 or 0.5
    bare = min(ends) < 0 or min(ends) > margin  # else the axis starts at zero
    return min(ends) - margin if bare else 0.0, max(ends) + margin


def _round(value: float, *, up: bool) -> float:
    """The next of … 0.5, 1, 2, 5, 10 … above or below.

    >>> _round(0.03, up=False), _round(0.03, up=True)
    (0.02, 0.05)
    """
    power = 10.0 ** math.floor(math.log10(value))
    near = [part * power for part in (1, 2, 5, 10)]
    return min(one for one in near if one >= value) if up else max(o for o in near if o <= value)


def _axis(scale: Scale, top: float, bottom: float, across: str) -> Iterator[Markup]:
    """Lines at round values, these, and what they are."""
    for one in scale.ticks(6):
        yield rule(f"M{scale(one):g} {top:g}V{bottom:g}", "grid")
        yield label(scale(one), bottom + 18, short(one), anchor="middle", soft=True)
    yield rule(f"M{scale.first:g} {bottom:g}H{scale.last:g}")
    middle = (scale.first + scale.last) / 2
    wide = LETTER * len(across) / 2  # long words stay inside the drawing
    at = min(max(middle, wide), DRAWN - wide)
    yield label(round(at, 1), bottom + 37, across, anchor="middle")


def _marks(scale: Scale, marks: Sequence[tuple[Interval, str]], y: float) -> Iterator[Markup]:
    """Pale bars over intervals, then points at means; several of a row a little apart."""
    apart = [5 * (number - (len(marks) - 1) / 2) for number in range(len(marks))]
    if len(marks) > 1:
        places = [scale(one.mean) for one, _ in marks]
        yield rule(f"M{min(places):.1f} {y:g}H{max(places):.1f}")
    for (one, class_), by in zip(marks, apart, strict=True):
        low, high = scale(one.low), scale(one.high)
        bar = f"M{low:.1f} {y + by - 2:g}H{high:.1f}v4H{low:.1f}z"
        yield tag("path", d=bar, class_=f"{class_} pale")
    for (one, class_), by in zip(marks, apart, strict=True):
        yield _disc(scale(one.mean), y + by, class_)


def _number(scale: Scale, one: Interval, y: float) -> Markup:
    at = max(scale(one.mean), scale(one.high)) + 8
    return tag("g", label(at, y + 4, f"{one.mean:.3g}", soft=True), class_="marked")


def _disc(x: float, y: float, class_: str) -> Markup:
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=class_)
