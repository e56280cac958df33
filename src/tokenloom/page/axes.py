"""Values as pixels, the axes that say so, and marks across a chart.

A scale is a function from values to pixels that knows its round numbers. Pixels are those of the
drawing's own coordinates: a browser scales them with the page. One mark, such as an edit of a run,
has its words above the chart. Several have numbers there, and their words are a list below, so
nothing lies over anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import amount, digits

TEXT = 13  # pixels of a letter's height, as in page.css

LETTER = 7.2  # pixels of its width, about

RADIUS = 8.5  # pixels of a number's circle

GAP, BELOW = 4, 8  # pixels of the line above the chart; from its end up to where its words stand

LANE, LINE = 20, 19  # pixels from one row of numbers, or of words, to the next


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from low to high as pixels from first to last; logarithmic if asked for.

    Of things that are counted only `whole` values are marked.

    >>> up = Scale(0, 10, 100, 0)
    >>> up(0), up(2.5), up.ticks(5)
    (100.0, 75.0, [0, 2, 4, 6, 8, 10])
    >>> Scale(1, 1000, 0, 300, log=True)(10)
    100.0
    >>> Scale(0, 2, 0, 300, whole=True).ticks(5)
    [0, 1, 2]
    >>> Scale(0.01, 0.1, 0, 300, log=True).ticks(5)
    [0.01, 0.02, 0.05, 0.1]
    """

    low: float
    high: float
    first: float
    last: float
    log: bool = False
    whole: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside are at the ends."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / (math.log(self.high / self.low) or 1)
        else:
            share = (inside - self.low) / ((self.high - self.low) or 1)
        return round(self.first + share * (self.last - self.first), 2)

    def ticks(self, most: int) -> list[float]:
        """Round values, about `most` of them."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            powers = [float(f"1e{power}") for power in range(first, last + 1)]
            every = [k * power for power in powers for k in (1, 2, 5)]
            for some in (every, powers):
                inside = [v for v in some if 0.999 * self.low <= v <= 1.001 * self.high]
                if len(inside) <= most:
                    return inside
            return inside[:: math.ceil(len(inside) / most)]
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10 ** math.floor(math.log10(span / most))
        step = next(power * k for k in (1, 2, 5, 10) if span / (power * k) <= most)
        step = max(1, step) if self.whole else step
        first = math.ceil(self.low / step - 1e-9)
        found = [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [int(one) if step >= 1 else round(one, 12) for one in found]


def short(value: float, top: float = 0.0) -> str:
    """A number beside a tick; thousands are written as they are at the largest, `top`.

    >>> [short(one) for one in (0, 0.25, 1500, 12_000, 2_500_000, 3e9, 1e13)]
    ['0', '0.25', '1,500', '12k', '2.5M', '3G', '10T']
    >>> [short(one, 10_000) for one in (0, 5000, 10_000)]
    ['0', '5k', '10k']
    """
    most = max(abs(value), abs(top))
    for power, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power and (power > 1e3 or most >= 1e4):
            return f"{digits(value / power, 4)}{letter}"
    return digits(value, 4) if abs(value) < 1 else amount(value)


def drawing(width: int, height: float, said: str, parts: Iterable[object]) -> Markup:
    """An SVG element; `said` is read aloud instead of it."""
    size = {"width": width, "height": f"{height:g}", "viewBox": f"0 0 {width} {height:g}"}
    return tag("svg", *parts, **size, role="img", aria_label=said, class_="chart")


def label(x: float, y: float, said: object, *, anchor: str = "start", soft: bool = False) -> Markup:
    """Words at a point; `anchor` is start, middle or end."""
    place = {"x": f"{x:g}", "y": f"{y:g}", "text_anchor": None if anchor == "start" else anchor}
    return tag("text", said, **place, class_="soft" if soft else None)


def rule(path: str, class_: str = "axis") -> Markup:
    """A thin line along a path."""
    return tag("path", d=path, class_=class_)


def wide(said: str) -> float:
    """Pixels of some words in a chart, about; rather too many than too few.

    >>> wide("step") < wide("steps"), wide("step") < 3 * wide("步")
    (True, True)
    """
    return sum(TEXT + 1 if ord(one) > 0x2E7F else LETTER for one in said)


def cut(said: str, room: float) -> str:
    """Words that fit into some pixels; of longer ones the first, and a sign that more follow.

    >>> cut("a long name", 200), cut("a long name", 50)
    ('a long name', 'a lon…')
    """
    if wide(said) <= room:
        return said
    kept = said
    while kept and wide(kept) + LETTER > room:
        kept = kept[:-1]
    return f"{kept}…"


def axis_below(scale: Scale, y: float, said: str, *, most: int = 6) -> list[Markup]:
    """An axis below a chart: ticks, numbers, and the name with its unit."""
    parts = [rule(f"M{scale.first:g} {y:g}H{scale.last:g}")]
    ticks = scale.ticks(most)
    for value in ticks:
        at = scale(value)
        anchor = "end" if at > scale.last - 18 else "middle" if at > scale.first + 10 else "start"
        parts.append(rule(f"M{at:g} {y:g}v4"))
        parts.append(label(at, y + 6 + TEXT, short(value, ticks[-1]), anchor=anchor, soft=True))
    parts.append(named_below(scale.first, scale.last, y, said))
    return parts


def named_below(first: float, last: float, y: float, said: str) -> Markup:
    """The name of an axis below it, in the middle, or as far left as a long one needs."""
    at = min((first + last) / 2, last - wide(said) / 2)
    return label(at, y + 10 + 2 * TEXT, cut(said, last), anchor="middle")


def axis_left(
    scale: Scale, x: float, end: float, *, most: int = 4, words: str = "{}", said: str = ""
) -> list[Markup]:
    """Lines across a chart at round values, with numbers at their left; the name is above them."""
    parts = [label(0, TEXT + 1, cut(said, end), soft=True)] if said else []
    ticks = scale.ticks(most)
    for value in ticks:
        at = scale(value)
        parts.append(rule(f"M{x:g} {at:g}H{end:g}", "grid"))
        said = words.format(short(value, ticks[-1]))
        parts.append(label(x - 6, at + 4, said, anchor="end", soft=True))
    return parts


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
