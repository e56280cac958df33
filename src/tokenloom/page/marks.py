"""Marks across a chart, such as edits of a run: lines, and words that cross neither them nor bars.

One idea: one mark has its words above the chart. Several have numbers there, and their words are a
list below, so however close they are, nothing lies over anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenloom.page.axes import TEXT, Scale, cut, label, rule, wide
from tokenloom.page.markup import Markup, tag

__all__ = ["Mark", "PlacedMarks", "placed"]

RADIUS = 8.5  # pixels of a number's circle

GAP, BELOW = 4, 8  # pixels of the line above the chart; from its end up to where its words stand

LANE, LINE = 20, 19  # pixels from one row of numbers, or of words, to the next


class Mark(NamedTuple):
    """A line across a chart at a value, with words."""

    at: float
    words: str


class PlacedMarks(NamedTuple):
    """Marks that have found their room.

    Attributes:
        above: pixels that they need above the chart.
        below: pixels that their words need below its axis.
        marks: what is marked.
        lanes: in which row above the chart the number of each stands.
    """

    above: float
    below: float
    marks: tuple[Mark, ...]
    lanes: tuple[int, ...]

    def drawn(self, across: Scale, top: float, bottom: float, end: float) -> list[Markup]:
        """The lines, from `top` to `bottom`, and the words; the list starts at `end`."""
        parts: list[Markup] = []
        if len(self.marks) == 1:
            (one,) = self.marks
            at, room = across(one.at), wide(one.words)
            x = min(max(at - room / 2, 0), max(0, across.last + 8 - room))
            said = cut(one.words, across.last + 8)
            parts.append(rule(f"M{at:g} {top - GAP:g}V{bottom:g}", "mark"))
            return [*parts, label(x, top - GAP - BELOW, said)]
        for number, (one, lane) in enumerate(zip(self.marks, self.lanes, strict=True)):
            x, y = across(one.at), top - LANE * (lane + 0.5)
            parts.append(rule(f"M{x:g} {y + RADIUS:g}V{bottom:g}", "mark"))
            parts += _numbered(number + 1, x, y)
            at = end + LINE * (number + 0.5)
            parts += _numbered(number + 1, RADIUS + 1, at)
            left = 2 * RADIUS + 8
            parts.append(label(left, at + 4.5, cut(one.words, across.last - left)))
        return parts


def placed(marks: Sequence[Mark], across: Scale) -> PlacedMarks:
    """Marks of a chart, those from left to right first.

    >>> found = placed([Mark(8, "b"), Mark(2, "a")], Scale(0, 10, 0, 100))
    >>> [one.words for one in found.marks], found.lanes, found.above
    (['a', 'b'], (0, 0), 20)
    >>> placed([], Scale(0, 10, 0, 100)).above
    0
    """
    kept = tuple(sorted(marks, key=lambda one: one.at))
    if len(kept) < 2:
        return PlacedMarks((TEXT + GAP + BELOW) * len(kept), 0, kept, (0,) * len(kept))
    ends: list[float] = []  # of each lane: where its last number ends
    lanes = []
    for one in kept:
        x = across(one.at)
        lane = next((k for k, end in enumerate(ends) if end <= x - RADIUS), len(ends))
        ends[lane : lane + 1] = [x + RADIUS + 1]
        lanes.append(lane)
    return PlacedMarks(LANE * len(ends), LINE * len(kept) + 6, kept, tuple(lanes))


def _numbered(number: int, x: float, y: float) -> list[Markup]:
    place = {"cx": f"{x:g}", "cy": f"{y:g}", "r": RADIUS}
    return [
        tag("circle", **place, class_="badge"),
        tag("text", number, x=f"{x:g}", y=f"{y + 4:g}", text_anchor="middle", class_="number"),
    ]
