"""Lines over named bins, such as lengths that double: every bin is as wide as the next.

One idea: bins have names instead of numbers, so the axis shows as many names as fit, and every
point says its own. A value that is not finite leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tokenloom.page.axes import TEXT, Scale, axis_left, drawing, label, rule
from tokenloom.page.charts import series
from tokenloom.page.markup import Markup, tag

__all__ = ["binned_lines"]

LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 232

LETTER = 7.5  # pixels of a letter beside an axis, at most


def binned_lines(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
    words: str = "{}",
) -> Markup:
    """Lines with a point in each bin.

    Args:
        names: of the bins, from left to right.
        values: of each line, by its name; not finite where there is none.
        width: pixels of the drawing.
        said: what is read aloud.
        below: name of the axis, with its unit.
        words: how a value at the left is written, such as ``"{} %"``.

    >>> drawn = binned_lines(["0", "1"], {"a": [1.0, float("inf")]}, 340, "toy", below="place")
    >>> drawn.count("<circle"), "a, 0: 1" in drawn
    (1, True)
    """
    known = [one for line in values.values() for one in line if math.isfinite(one)]
    up = Scale(0, max(known, default=0) or 1, BOTTOM, TOP)
    across = Scale(0, max(1, len(names)), LEFT, width - RIGHT)
    parts = [*axis_left(up, LEFT, width - RIGHT, words=words), *_axis(names, across, below)]
    for number, (name, line) in enumerate(values.items()):
        class_, path, pen = series(number), "", "M"
        for place, value in enumerate(line):
            if not math.isfinite(value):
                pen = "M"
                continue
            x, y = across(place + 0.5), up(value)
            path, pen = f"{path}{pen}{x:g} {y:g}", "L"
            title = tag("title", f"{name}, {names[place]}: {value:,.4g}")
            parts.append(tag("circle", title, cx=f"{x:g}", cy=f"{y:g}", r=3.5, class_=class_))
        if path:
            parts.append(tag("path", d=path, class_=f"line {class_}"))
    return drawing(width, BOTTOM + 44, said, parts)


def _axis(names: Sequence[str], across: Scale, below: str) -> list[Markup]:
    """As many names as fit, and what they are."""
    room = (across.last - across.first) / max(1, len(names))
    longest = LETTER * max((len(name) for name in names), default=1) + 12
    every = max(1, math.ceil(longest / room))
    parts = [rule(f"M{across.first:g} {BOTTOM}H{across.last:g}")]
    for place, name in enumerate(names):
        at = across(place + 0.5)
        parts.append(rule(f"M{at:g} {BOTTOM}v4"))
        if place % every == 0:
            anchor = "end" if at > across.last - longest / 2 else "middle"
            if at < across.first + longest / 2 - 20:
                anchor = "start"
            parts.append(label(at, BOTTOM + 6 + TEXT, name, anchor=anchor, soft=True))
    middle = (across.first + across.last) / 2
    parts.append(label(middle, BOTTOM + 10 + 2 * TEXT, below, anchor="middle"))
    return parts
