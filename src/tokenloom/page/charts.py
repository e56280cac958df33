"""Bars, lines, areas and maps as SVG, each drawn for a given width.

One idea: a phone is no small desk. `both` draws a chart twice, for 340 and for 720 pixels, and the
style sheet shows the one that fits, so that letters keep their size. Colours are classes (`s1` to
`s8` for things, `filler` for what is empty), so a page in the dark needs no other drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.page.axes import TEXT, Scale, axis_below, axis_left, drawing, label, rule
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.png import LEVELS, levels_of, png_url

__all__ = [
    "SERIES",
    "Bar",
    "Mark",
    "areas",
    "bars",
    "both",
    "heat",
    "heat_legend",
    "legend",
    "lines",
    "series",
]

NARROW, WIDE = 340, 720

SERIES = 8  # colours that can be told apart

Float64 = NDArray[np.float64]


def both(draw: Callable[[int], Markup]) -> Markup:
    """A chart in both widths; a page shows one of them."""
    return joined(
        tag("div", draw(width), class_=name) for width, name in ((WIDE, "wide"), (NARROW, "narrow"))
    )


def series(number: int) -> str:
    """The class of the n-th thing; those after the eighth share the grey of the rest.

    >>> series(0), series(7), series(8)
    ('s1', 's8', 'rest')
    """
    return f"s{number + 1}" if number < SERIES else "rest"


class Bar(NamedTuple):
    """A bar: its name, its value, the words at its end, and its class."""

    name: str
    value: float
    words: str
    class_: str = "s1"


class Mark(NamedTuple):
    """A line across a chart at a value, with words."""

    at: float
    words: str


def bars(rows: Sequence[Bar], width: int, said: str, *, top: float | None = None) -> Markup:
    """Bars from left to right, one below the other; in a narrow chart names are above them."""
    narrow = width <= NARROW
    left = 0 if narrow else min(220, 16 + max((7 * len(row.name) for row in rows), default=0))
    right = width - 8 - max((7 * len(row.words) for row in rows), default=0)
    high = 40 if narrow else 26
    most = top or max((row.value for row in rows), default=1) or 1
    scale = Scale(0, most, left, max(left + 40, right))
    parts: list[Markup] = []
    for number, row in enumerate(rows):
        y = number * high + (18 if narrow else 4)
        if narrow:
            parts.append(label(0, y - 5, row.name[:48]))
        else:
            parts.append(label(left - 8, y + 13, row.name[:30], anchor="end"))
        length = max(scale(row.value) - left, 1.5 if row.value else 0)
        place = {"x": left, "y": y, "width": f"{length:g}", "height": 18, "rx": 2}
        parts.append(
            tag("rect", tag("title", f"{row.name}: {row.words}"), **place, class_=row.class_)
        )
        parts.append(label(left + length + 6, y + 13, row.words, soft=True))
    return drawing(width, max(1, len(rows)) * high + 4, said, parts)


def _frame(width: int, x: Sequence[float], top: float, *, log: bool = False) -> tuple[Scale, Scale]:
    across = Scale(x[0], x[-1], 48, width - 12)
    return across, Scale(1 if log else 0, top, 232, 12, log=log)


def lines(
    x: Sequence[float],
    values: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
    top: float | None = None,
    words: str = "{}",
    marks: Sequence[Mark] = (),
) -> Markup:
    """Lines over one axis; `words` is how a value at the left is written, such as ``"{} %"``."""
    most = top or max((max(one, default=0) for one in values.values()), default=0) or 1
    across, up = _frame(width, x, most)
    parts = [*axis_left(up, 48, width - 12, words=words), *axis_below(across, 232, below)]
    for number, ys in enumerate(values.values()):
        points = "L".join(f"{across(a):g} {up(b):g}" for a, b in zip(x, ys, strict=True))
        parts.append(tag("path", d=f"M{points}", class_=f"line {series(number)}"))
    parts += _marks(marks, across)
    return drawing(width, 276, said, parts)


def areas(
    x: Sequence[float],
    shares: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
    marks: Sequence[Mark] = (),
) -> Markup:
    """Shares over one axis, stacked; those of all things together are 1 at every place."""
    across, up = _frame(width, x, 1.0)
    low = np.zeros(len(x))
    parts: list[Markup] = []
    for number, (name, ys) in enumerate(shares.items()):
        high = low + np.asarray(ys, float)
        there = [f"{across(a):g} {up(b):g}" for a, b in zip(x, high.tolist(), strict=True)]
        back = [f"{across(a):g} {up(b):g}" for a, b in zip(x, low.tolist(), strict=True)]
        path = f"M{'L'.join(there)}L{'L'.join(reversed(back))}z"
        parts.append(tag("path", tag("title", name), d=path, class_=f"area {series(number)}"))
        low = high
    hundred = Scale(0, 100, 232, 12)
    parts += axis_left(hundred, 48, width - 12, words="{} %")
    parts += [*axis_below(across, 232, below), *_marks(marks, across)]
    return drawing(width, 276, said, parts)


def _marks(marks: Sequence[Mark], across: Scale) -> list[Markup]:
    parts = []
    for number, one in enumerate(marks):
        at = across(one.at)
        anchor = "end" if at > (across.first + across.last) / 2 else "start"
        shift = -5 if anchor == "end" else 5
        parts.append(rule(f"M{at:g} 12V232", "mark"))
        y = 24 + (number % 4) * (TEXT + 4)
        parts.append(tag("g", label(at + shift, y, one.words, anchor=anchor), class_="marked"))
    return parts


def heat(
    values: Float64,
    width: int,
    said: str,
    *,
    x: tuple[float, float],
    below: str,
    rows: Sequence[str] = (),
    y: tuple[float, float] | None = None,
    beside: str = "",
    top: float | None = None,
) -> Markup:
    """A map of values [height, width], the first row at the top; 0 is empty.

    Args:
        values: not negative.
        width: pixels of the drawing.
        said: what is read aloud.
        x: values at the left and the right edge.
        below: name of that axis, with its unit.
        rows: names of the rows; or
        y: values at the lower and the upper edge, for rows that are bins of a second axis.
        beside: name of the second axis.
        top: the value of the last colour; default: the largest.
    """
    left = 48 if not rows else min(160, 14 + max(7 * len(name[:20]) for name in rows))
    high = max(14 * len(rows), 60) if rows else 220
    start = 22 if beside else 6
    across = Scale(*x, left, width - 12)
    place = {"x": left, "y": start, "width": width - 12 - left, "height": high}
    picture = png_url(levels_of(np.asarray(values, float), top))
    parts = [
        label(left, 14, beside, soft=True) if beside else EMPTY,
        tag("rect", **place, class_="ground"),
        tag("image", href=picture, **place, preserveAspectRatio="none", class_="map"),
        *axis_below(across, start + high, below),
    ]
    each = high / max(1, len(rows))
    for number, name in enumerate(rows):
        parts.append(label(left - 6, start + each * (number + 0.5) + 4, name[:20], anchor="end"))
    if y is not None:
        up = Scale(*y, start + high, start)
        parts += [
            label(left - 6, up(value) + 4, f"{value:,g}", anchor="end", soft=True)
            for value in up.ticks(5)
        ]
    return drawing(width, start + high + 46, said, parts)


def legend(names: Sequence[str], *, classes: Sequence[str] | None = None) -> Markup:
    """What each colour stands for."""
    given = classes or [series(number) for number in range(len(names))]
    items = (
        tag("li", tag("span", class_=f"swatch {class_}", aria_hidden="true"), name)
        for name, class_ in zip(names, given, strict=True)
    )
    return tag("ul", *items, class_="legend")


def heat_legend(least: str, most: str) -> Markup:
    """The scale of colours of a map, from the least to the most."""
    swatches = [tag("span", class_=f"swatch q{level}") for level in range(1, LEVELS + 1)]
    scale = tag("span", *swatches, class_="ramp", aria_hidden="true")
    return tag("p", least, " ", scale, " ", most, class_="legend")
