"""Values over bins, as columns or as lines: every bin is as wide as the next.

Bins are places on an axis, whatever their values, so doublings and equal steps are drawn alike.
Names stand below their bins, as often as there is room for them; a mark stands between two bins
where its value would be. A value that is not finite leaves a gap in a line. Lines whose values
differ by tens, such as perplexities, have a scale of tens, so that the largest does not flatten the
others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from tokenloom.page.axes import (
    TEXT,
    Mark,
    Scale,
    axis_below,
    axis_left,
    drawing,
    label,
    named_below,
    placed,
    rule,
    wide,
)
from tokenloom.page.charts import ABOVE, HIGH, LEFT, NAMED, RIGHT, series
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import exact

TOP, BOTTOM = ABOVE, ABOVE + HIGH  # pixels of a drawing without marks and a name at its left

THICKEST = 56  # pixels of a column

INSET = 56  # pixels at the left of lines: perplexities are long

LINES_TOP, LINES_BOTTOM = ABOVE + NAMED, ABOVE + NAMED + HIGH

TENS = 30  # times the least value, from which on the scale is one of tens


def columns(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
    beside: str = "",
    x: tuple[float, float] | None = None,
    top: float | None = None,
    words: str = "{}",
    titles: Mapping[str, Sequence[str]] | None = None,
    marks: Sequence[Mark] = (),
) -> Markup:
    """Columns from left to right.

    Args:
        names: names of the bins.
        values: heights by series, one for each bin.
        width: pixels of the drawing.
        said: what is read aloud.
        below: name of the axis, with its unit.
        beside: name of the axis at the left, with its unit.
        x: values at the left edge of the first bin and the right edge of the last, for bins of
            equal width: round values between them stand below the columns instead of the names.
        top: the largest value that can be drawn; default: the largest there is.
        words: how a value at the left is written, such as ``"{} %"``.
        titles: what is shown over a column, by series.
        marks: lines between bins; bin 3 is from 3 to 4.

    >>> drawn = columns(["1", "2"], {"documents": [3, 4]}, 340, "lengths", below="tokens")
    >>> drawn.count("<rect")
    2
    """
    most = top or max((max(one, default=0) for one in values.values()), default=0) or 1
    across = Scale(0, max(1, len(names)), LEFT, width - RIGHT)
    marked = placed(marks, across)
    start = ABOVE + marked.above + (NAMED if beside else 0)
    bottom = start + HIGH
    up = Scale(0, most, bottom, start)
    each = (width - LEFT - RIGHT) / max(1, len(names))
    parts = axis_left(up, LEFT, width - RIGHT, words=words, said=beside)
    thick = min(each * 0.86, THICKEST) / max(1, len(values))
    for number, (name, heights) in enumerate(values.items()):
        for place, value in enumerate(heights):
            if not value:
                continue
            at = LEFT + each * place + (each - thick * len(values)) / 2 + thick * number
            y = min(up(value), bottom - 1.5)  # the least of something is seen
            size = {"x": f"{at:.2f}", "y": f"{y:g}", "width": f"{max(thick - 0.4, 0.6):.2f}"}
            told = tag("title", titles[name][place]) if titles else None
            height = f"{bottom - y:.2f}"
            parts.append(tag("rect", told, **size, height=height, class_=series(number)))
    parts.append(rule(f"M{LEFT} {bottom:g}H{width - RIGHT}"))
    if x is None:
        parts += _names(names, each, bottom)
        parts.append(named_below(LEFT, width - RIGHT, bottom, below))
    else:
        parts += axis_below(Scale(*x, LEFT, width - RIGHT, whole=True), bottom, below)
    parts += marked.drawn(across, start, bottom, bottom + 46)
    return drawing(width, bottom + 44 + marked.below, said, parts)


def _names(names: Sequence[str], each: float, bottom: float) -> list[Markup]:
    """Names below the middle of their bins, as many as fit: all, every second, fifth and on."""
    room = max((wide(one) for one in names), default=1) + 8
    step = next(k for k in every_few() if k * each >= room)
    found = []
    for place in range(0, len(names), step):
        x = LEFT + each * (place + 0.5)
        found.append(rule(f"M{x:g} {bottom:g}v4"))
        found.append(label(x, bottom + 6 + TEXT, names[place], soft=True, anchor="middle"))
    return found


def every_few() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50 and so on.

    >>> from itertools import islice
    >>> list(islice(every_few(), 5))
    [1, 2, 5, 10, 20]
    """
    return (factor * 10**power for power in count() for factor in (1, 2, 5))


def binned_lines(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
    beside: str = "",
    words: str = "{}",
    tens: bool = False,
) -> Markup:
    """Lines with a point in each bin.

    Args:
        names: of the bins, from left to right.
        values: of each line, by its name; not finite where there is none.
        width: pixels of the drawing.
        said: what is read aloud.
        below: name of the axis, with its unit.
        beside: name of the axis at the left, with its unit.
        words: how a value at the left is written, such as ``"{} %"``.
        tens: whether the scale may be logarithmic, if values differ much.

    >>> drawn = binned_lines(["0", "1"], {"a": [1.0, float("inf")]}, 340, "toy", below="place")
    >>> drawn.count("<circle"), "a, 0: 1" in drawn
    (1, True)
    """
    known = [one for line in values.values() for one in line if math.isfinite(one)]
    up = _scale(known, tens=tens)
    said_left = f"{beside}, a scale of tens" if up.log else beside
    across = Scale(0, max(1, len(names)), INSET, width - RIGHT)
    left = axis_left(up, INSET, width - RIGHT, words=words, said=said_left)
    parts = [*left, *_axis(names, across, below)]
    for number, (name, line) in enumerate(values.items()):
        class_, path, pen = series(number), "", "M"
        for place, value in enumerate(line):
            if not math.isfinite(value):
                pen = "M"
                continue
            x, y = across(place + 0.5), up(value)
            path, pen = f"{path}{pen}{x:g} {y:g}", "L"
            title = tag("title", f"{name}, {names[place]}: {exact(value)}")
            parts.append(tag("circle", title, cx=f"{x:g}", cy=f"{y:g}", r=3.5, class_=class_))
        if path:
            parts.append(tag("path", d=path, class_=f"line {class_}"))
    return drawing(width, LINES_BOTTOM + 44, said, parts)


def _scale(known: Sequence[float], *, tens: bool) -> Scale:
    """From 0 on; or, for values that differ much, from a round one below the least."""
    most, least = max(known, default=0) or 1, min(known, default=0)
    if not tens or least <= 0 or most < TENS * least:
        return Scale(0, most, LINES_BOTTOM, LINES_TOP)
    low = max(one for one in _round_about(least) if one <= least)
    high = min(one for one in _round_about(most) if one >= most)
    return Scale(low, high, LINES_BOTTOM, LINES_TOP, log=True)


def _round_about(value: float) -> list[float]:
    """Round values around one.

    >>> _round_about(103)
    [100.0, 200.0, 500.0, 1000.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return [one * power for one in (1, 2, 5, 10)]


def _axis(names: Sequence[str], across: Scale, below: str) -> list[Markup]:
    """As many names as fit, and what they are."""
    room = (across.last - across.first) / max(1, len(names))
    longest = max((wide(name) for name in names), default=1) + 12
    every = max(1, math.ceil(longest / room))
    parts = [rule(f"M{across.first:g} {LINES_BOTTOM}H{across.last:g}")]
    end = -math.inf  # of the name before
    for place, name in enumerate(names):
        at = across(place + 0.5)
        parts.append(rule(f"M{at:g} {LINES_BOTTOM}v4"))
        if place % every == 0:
            anchor = "end" if at > across.last - longest / 2 else "middle"
            if at < across.first + longest / 2 - 20:
                anchor = "start"
            left = at - wide(name) * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            if left < end + 4:  # the last name may reach back to the one before
                continue
            end = left + wide(name)
            parts.append(label(at, LINES_BOTTOM + 6 + TEXT, name, anchor=anchor, soft=True))
    parts.append(named_below(across.first, across.last, LINES_BOTTOM, below))
    return parts
