"""Bars, lines, areas and maps as SVG, each drawn for a given width.

A phone is no small desk. `both` draws a chart twice, for 340 and for 720 pixels, and the
style sheet shows the one that fits, so that letters keep their size. Colours are classes (`s1` to
`s8` for things, `filler` for what is empty), so a page in the dark needs no other drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tokenloom.page.axes import (
    Mark,
    Scale,
    axis_below,
    axis_left,
    cut,
    drawing,
    label,
    placed,
    rule,
    wide,
)
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import exact
from tokenloom.page.png import LEVELS, levels_of, png_url

NARROW, WIDE = 340, 720

SERIES = 8  # colours that can be told apart

DOTS = 60  # points of a line that are drawn one by one

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


def bars(rows: Sequence[Bar], width: int, said: str, *, top: float | None = None) -> Markup:
    """Bars from left to right, one below the other; in a narrow chart names are above them."""
    narrow = width <= NARROW
    left = 0 if narrow else min(220, 10 + max((wide(row.name) for row in rows), default=0))
    right = width - 8 - max((wide(row.words) for row in rows), default=0)
    high = 40 if narrow else 26
    most = top or max((row.value for row in rows), default=1) or 1
    scale = Scale(0, most, left, max(left + 40, right))
    parts: list[Markup] = []
    for number, row in enumerate(rows):
        y = number * high + (18 if narrow else 4)
        if narrow:
            parts.append(label(0, y - 5, cut(row.name, width)))
        else:
            parts.append(label(left - 8, y + 13, cut(row.name, left - 8), anchor="end"))
        length = max(scale(row.value) - left, 1.5 if row.value else 0)
        place = {"x": left, "y": y, "width": f"{length:g}", "height": 18, "rx": 2}
        parts.append(
            tag("rect", tag("title", f"{row.name}: {row.words}"), **place, class_=row.class_)
        )
        parts.append(label(left + length + 6, y + 13, row.words, soft=True))
    return drawing(width, max(1, len(rows)) * high + 4, said, parts)


LEFT, RIGHT, ABOVE, HIGH = 48, 12, 12, 220  # pixels around a plot, and its height

NAMED = 18  # pixels above it that the name of its left axis needs


def lines(
    named: Mapping[str, Sequence[tuple[float, float]]],
    width: int,
    said: str,
    *,
    below: str,
    beside: str = "",
    words: str = "{}",
    marks: Sequence[Mark] = (),
) -> Markup:
    """Lines over one pair of axes, which has 0 at its left; few points of a line are dots, too.

    Args:
        named: points (x, y) of each line, by its name, from left to right; finite.
        width: pixels of the drawing.
        said: what is read aloud.
        below: name of the axis below, with its unit.
        beside: name of the axis at the left, with its unit.
        words: how a value at the left is written, such as ``"{} %"``.
        marks: lines across.

    >>> drawn = lines({"a": [(0, 1.0), (9, -1.0)]}, 340, "toy", below="step")
    >>> drawn.count("<circle"), "a, 9: -1" in drawn
    (2, True)
    """
    points = [one for some in named.values() for one in some] or [(0.0, 0.0)]
    low, high = min(0.0, *(y for _, y in points)), max(0.0, *(y for _, y in points))
    ends = low, high if high > low else low + 1
    x = sorted(x for x, _ in points)
    across, up, parts, height = _plot(width, x, ends, marks, words, below, beside)
    if low < 0:
        parts.append(rule(f"M{LEFT} {up(0):g}H{width - RIGHT}"))
    for number, (name, some) in enumerate(named.items()):
        places = [(across(x), up(y)) for x, y in some]
        path = "L".join(f"{x:g} {y:g}" for x, y in places)
        parts += [tag("path", d=f"M{path}", class_=f"line {series(number)}")] if path else []
        for (x_of, y_of), value in zip(places, some, strict=True) if len(some) <= DOTS else ():
            title = tag("title", f"{name}, {exact(value[0])}: {exact(value[1])}")
            place = {"cx": f"{x_of:g}", "cy": f"{y_of:g}", "r": 3}
            parts.append(tag("circle", title, **place, class_=series(number)))
    return drawing(width, height, said, parts)


def areas(
    x: Sequence[float],
    shares: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
    beside: str = "",
    marks: Sequence[Mark] = (),
) -> Markup:
    """Shares over one axis, stacked; those of all things together are 1 at every place."""
    kept = _steps(x)
    x, shares = [x[one] for one in kept], {n: [ys[k] for k in kept] for n, ys in shares.items()}
    across, hundred, around, height = _plot(width, x, (0, 100), marks, "{} %", below, beside)
    up = Scale(0, 1, hundred.first, hundred.last)
    low = np.zeros(len(x))
    parts: list[Markup] = []
    for number, (name, ys) in enumerate(shares.items()):
        high = low + np.asarray(ys, float)
        there = [f"{across(a):g} {up(b):g}" for a, b in zip(x, high.tolist(), strict=True)]
        back = [f"{across(a):g} {up(b):g}" for a, b in zip(x, low.tolist(), strict=True)]
        path = f"M{'L'.join(there)}L{'L'.join(reversed(back))}z"
        parts.append(tag("path", tag("title", name), d=path, class_=f"area {series(number)}"))
        low = high
    return drawing(width, height, said, [*parts, *around])


def _steps(x: Sequence[float]) -> list[int]:
    """Of points at one place the first and the last: those between them are seen nowhere.

    >>> _steps([0, 1, 1, 1, 1, 2])
    [0, 1, 4, 5]
    """
    last = len(x) - 1
    return [k for k in range(len(x)) if k in (0, last) or not x[k - 1] == x[k] == x[k + 1]]


def _plot(
    width: int,
    x: Sequence[float],
    ends: tuple[float, float],
    marks: Sequence[Mark],
    words: str,
    below: str,
    beside: str,
) -> tuple[Scale, Scale, list[Markup], float]:
    """Both scales of a plot, its axes and marks, and the height of the drawing."""
    is_counted = all(value == int(value) for value in x)
    across = Scale(x[0], x[-1], LEFT, width - RIGHT, whole=is_counted)
    marked = placed(marks, across)
    top = ABOVE + marked.above + (NAMED if beside else 0)
    bottom = top + HIGH
    up = Scale(*ends, bottom, top)
    parts = [
        *axis_left(up, LEFT, width - RIGHT, words=words, said=beside),
        *axis_below(across, bottom, below),
        *marked.drawn(across, top, bottom, bottom + 46),
    ]
    return across, up, parts, bottom + 44 + marked.below


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
    sharp: bool = False,
) -> Markup:
    """A map of values [height, width], the first row at the top; 0 is empty.

    The picture is a mask (`tokenloom.page.png`), through which the style sheet's own colour is
    seen: dark on light paper, light on dark.

    Args:
        values: not negative.
        width: pixels of the drawing.
        said: what is read aloud.
        x: values at the left and the right edge, of something that is counted.
        below: name of that axis, with its unit.
        rows: names of the rows; or
        y: values at the lower and the upper edge, for rows that are bins of a second axis.
        beside: name of the second axis.
        top: the value of the last colour; default: the largest.
        sharp: with as many pixels as it is drawn with, for a file that any viewer may open.
    """
    left = 48 if not rows else min(150, 8 + max(wide(name) for name in rows))
    high = max(14 * len(rows), 60) if rows else 220
    start = 22 if beside else 6
    across = Scale(*x, left, width - 12, whole=True)
    place = {"x": left, "y": start, "width": width - 12 - left, "height": high}
    size = (2 * high, math.ceil(2 * (width - 12 - left))) if sharp else None
    picture = png_url(levels_of(np.asarray(values, float), top), size)
    name = f"map-{crc32(f'{picture} {said} {width}'.encode()):08x}"
    parts = [
        label(left, 14, beside, soft=True) if beside else EMPTY,
        tag("rect", **place, class_="ground"),
        tag(
            "mask",
            tag("image", href=picture, **place, preserveAspectRatio="none", class_="map"),
            id=name,
        ),
        tag("rect", **place, class_="heat", mask=f"url(#{name})"),
        tag("rect", **place, class_="frame"),
        *axis_below(across, start + high, below),
    ]
    each = high / max(1, len(rows))
    for number, row in enumerate(rows):
        middle = start + each * (number + 0.5)
        parts.append(label(left - 6, middle + 4, cut(row, left - 6), anchor="end"))
        if number:
            parts.append(rule(f"M{left} {middle - each / 2:g}H{width - 12}", "gap"))
    if y is not None:
        up = Scale(*y, start + high, start, whole=True)
        parts += [
            label(left - 6, up(value) + 4, exact(value), anchor="end", soft=True)
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
    """The scale of colours of a map, from the least to the most; say both with their numbers.

    What stands before a colon, and after a semicolon, moves to a line of its own where room is
    scarce.
    """
    swatches = [tag("span", class_=f"swatch q{level}") for level in range(1, LEVELS + 1)]
    scale = tag("span", *swatches, class_="ramp", aria_hidden="true")
    title, colon, low = least.rpartition(": ")
    high, semicolon, rest = most.partition("; ")
    name = tag("span", f"{title}{colon}") if title else None
    known = tag("span", low, " ", scale, " ", f"{high}{semicolon}")
    return tag("p", name, known, tag("span", rest) if rest else None, class_="legend scale")
