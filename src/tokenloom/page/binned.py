"""Lines over named bins, such as lengths that double: every bin is as wide as the next.

One idea: bins have names instead of numbers, so the axis shows as many names as fit, and every
point says its own. A value that is not finite leaves a gap. Values that differ by tens, such as
perplexities, have a scale of tens, so that the largest does not flatten all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tokenloom.page.axes import TEXT, Scale, axis_left, drawing, label, named_below, rule, wide
from tokenloom.page.charts import series
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import exact

__all__ = ["binned_lines"]

LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 250

TENS = 30  # times the least value, from which on the scale is one of tens


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
    across = Scale(0, max(1, len(names)), LEFT, width - RIGHT)
    left = axis_left(up, LEFT, width - RIGHT, words=words, said=said_left)
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
    return drawing(width, BOTTOM + 44, said, parts)


def _scale(known: Sequence[float], *, tens: bool) -> Scale:
    """From 0 on; or, for values that differ much, from a round one below the least."""
    most, least = max(known, default=0) or 1, min(known, default=0)
    if not tens or least <= 0 or most < TENS * least:
        return Scale(0, most, BOTTOM, TOP)
    low = max(one for one in _round_about(least) if one <= least)
    high = min(one for one in _round_about(most) if one >= most)
    return Scale(low, high, BOTTOM, TOP, log=True)


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
    parts = [rule(f"M{across.first:g} {BOTTOM}H{across.last:g}")]
    end = -math.inf  # of the name before
    for place, name in enumerate(names):
        at = across(place + 0.5)
        parts.append(rule(f"M{at:g} {BOTTOM}v4"))
        if place % every == 0:
            anchor = "end" if at > across.last - longest / 2 else "middle"
            if at < across.first + longest / 2 - 20:
                anchor = "start"
            left = at - wide(name) * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            if left < end + 4:  # the last name may reach back to the one before
                continue
            end = left + wide(name)
            parts.append(label(at, BOTTOM + 6 + TEXT, name, anchor=anchor, soft=True))
    parts.append(named_below(across.first, across.last, BOTTOM, below))
    return parts
