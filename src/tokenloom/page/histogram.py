"""Columns over bins, one or two in each: how values are spread.

One idea: bins are places on an axis, whatever their values, so doublings and equal steps are drawn
alike. Names stand below the bins as often as there is room for them; a mark stands between two bins
where its value would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenloom.page.axes import TEXT, Scale, axis_left, drawing, label, rule
from tokenloom.page.charts import Mark, series
from tokenloom.page.markup import Markup, tag

__all__ = ["columns"]

LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 192  # pixels

THICKEST = 56  # pixels of a column

LETTER = 7.5  # pixels of a letter's width, about


def columns(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    width: int,
    said: str,
    *,
    below: str,
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
        top: the largest value that can be drawn; default: the largest there is.
        words: how a value at the left is written, such as ``"{} %"``.
        titles: what is shown over a column, by series.
        marks: lines between bins; bin 3 is from 3 to 4.

    >>> drawn = columns(["1", "2"], {"documents": [3, 4]}, 340, "lengths", below="tokens")
    >>> drawn.count("<rect")
    2
    """
    most = top or max((max(one, default=0) for one in values.values()), default=0) or 1
    up = Scale(0, most, BOTTOM, TOP)
    each = (width - LEFT - RIGHT) / max(1, len(names))
    parts = axis_left(up, LEFT, width - RIGHT, words=words)
    thick = min(each * 0.86, THICKEST) / max(1, len(values))
    for number, (name, heights) in enumerate(values.items()):
        for place, value in enumerate(heights):
            if not value:
                continue
            x = LEFT + each * place + (each - thick * len(values)) / 2 + thick * number
            y = min(up(value), BOTTOM - 1.5)  # the least of something is seen
            size = {"x": f"{x:.2f}", "y": f"{y:g}", "width": f"{max(thick - 0.4, 0.6):.2f}"}
            told = tag("title", titles[name][place]) if titles else None
            height = f"{BOTTOM - y:.2f}"
            parts.append(tag("rect", told, **size, height=height, class_=series(number)))
    parts.append(rule(f"M{LEFT} {BOTTOM}H{width - RIGHT}"))
    parts += _names(names, each)
    parts.append(label((LEFT + width - RIGHT) / 2, BOTTOM + 10 + 2 * TEXT, below, anchor="middle"))
    for number, one in enumerate(marks):
        at = LEFT + each * min(max(one.at, 0), len(names))
        anchor = "end" if at > (LEFT + width) / 2 else "start"
        shift = -5 if anchor == "end" else 5
        parts.append(rule(f"M{at:g} {TOP}V{BOTTOM}", "mark"))
        y = TOP + 10 + number * (TEXT + 4)
        parts.append(tag("g", label(at + shift, y, one.words, anchor=anchor), class_="marked"))
    return drawing(width, BOTTOM + 44, said, parts)


def _names(names: Sequence[str], each: float) -> list[Markup]:
    """Names at the left edges of their bins, as many as fit."""
    room = LETTER * max((len(one) for one in names), default=1) + 10
    step = max(1, -(-int(room) // max(1, int(each))))
    found = []
    for place in range(0, len(names), step):
        x = LEFT + each * place
        found.append(rule(f"M{x:g} {BOTTOM}v4"))
        found.append(label(x, BOTTOM + 6 + TEXT, names[place], soft=True, anchor="middle"))
    return found
