"""Values as pixels, and the axes that say so.

One idea: a scale is a function from values to pixels that knows its round numbers; charts are made
of scales and marks, and nothing here knows what is drawn. Pixels are those of the drawing's own
coordinates: a browser scales them with the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import amount

__all__ = ["Scale", "axis_below", "axis_left", "drawing", "label", "rule", "short"]

TEXT = 13  # pixels of a letter's height, as in page.css


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from low to high as pixels from first to last; logarithmic if asked for.

    >>> up = Scale(0, 10, 100, 0)
    >>> up(0), up(2.5), up.ticks(5)
    (100.0, 75.0, [0, 2, 4, 6, 8, 10])
    >>> Scale(1, 1000, 0, 300, log=True)(10)
    100.0
    """

    low: float
    high: float
    first: float
    last: float
    log: bool = False

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
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            step = max(1, math.ceil(len(powers) / most))
            return [10.0**power for power in powers][::step]
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10 ** math.floor(math.log10(span / most))
        step = next(power * k for k in (1, 2, 5, 10) if span / (power * k) <= most)
        first = math.ceil(self.low / step - 1e-9)
        found = [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [int(one) if step >= 1 else round(one, 12) for one in found]


def short(value: float) -> str:
    """A number beside a tick.

    >>> [short(one) for one in (0, 0.25, 1500, 12_000, 2_500_000, 3e9, 1e13)]
    ['0', '0.25', '1,500', '12k', '2.5M', '3G', '10T']
    """
    for power, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power and (power > 1e3 or abs(value) >= 1e4):
            return f"{value / power:.4g}{letter}"
    return f"{value:,.4g}" if abs(value) < 1 else amount(value)


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


def axis_below(scale: Scale, y: float, said: str, *, most: int = 6) -> list[Markup]:
    """An axis below a chart: ticks, numbers, and the name with its unit."""
    parts = [rule(f"M{scale.first:g} {y:g}H{scale.last:g}")]
    for value in scale.ticks(most):
        at = scale(value)
        anchor = "end" if at > scale.last - 18 else "middle" if at > scale.first + 10 else "start"
        parts.append(rule(f"M{at:g} {y:g}v4"))
        parts.append(label(at, y + 6 + TEXT, short(value), anchor=anchor, soft=True))
    middle = (scale.first + scale.last) / 2
    parts.append(label(middle, y + 10 + 2 * TEXT, said, anchor="middle"))
    return parts


def axis_left(
    scale: Scale, x: float, end: float, *, most: int = 4, words: str = "{}"
) -> list[Markup]:
    """Lines across a chart at round values, with numbers at their left."""
    parts = []
    for value in scale.ticks(most):
        at = scale(value)
        parts.append(rule(f"M{x:g} {at:g}H{end:g}", "grid"))
        said = words.format(short(value))
        parts.append(label(x - 6, at + 4, said, anchor="end", soft=True))
    return parts
