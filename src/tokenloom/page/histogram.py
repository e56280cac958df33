"""Columns over bins, one or two in each: how values are spread.

One idea: bins are places on an axis, whatever their values, so doublings and equal steps are drawn
alike. Names stand below their bins, as often as there is room for them; a mark stands between two
bins where its value would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from tokenloom.page.axes import (
    TEXT,
    Scale,
    axis_below,
    axis_left,
    drawing,
    label,
    named_below,
    rule,
    wide,
)
from tokenloom.page.charts import ABOVE, HIGH, LEFT, NAMED, RIGHT, series
from tokenloom.page.marks import Mark, placed
from tokenloom.page.markup import Markup, tag

__all__ = ["columns"]

TOP, BOTTOM = ABOVE, ABOVE + HIGH  # pixels of a drawing without marks and a name at its left

THICKEST = 56  # pixels of a column


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
