"""Curves over steps as a picture: one line for each figure, on one pair of axes.

One idea: values that people compare belong into one picture, with the axes that they share. The
file is SVG without anything from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tokenloom.inspect.svg import GREY, drawing, line, text

__all__ = ["curves"]

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948")

LEFT, TOP, WIDE, HIGH = 64, 70, 520, 260


def curves(
    title: str,
    named: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str = "step",
    caption: str = "",
) -> str:
    """A picture of several curves.

    Args:
        title: what it shows.
        named: points (x, y) of each curve, by its name; values that are not finite are left out.
        across: what the horizontal axis is.
        caption: a line below the title.

    >>> picture = curves("Losses", {"train": [(0, 3.0), (10, 1.0)], "held out": [(0, 3.1)]})
    >>> picture.startswith("<svg"), picture.count("<path"), "held out" in picture
    (True, 3, True)
    """
    known = {
        name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in named.items()
    }
    every = [point for points in known.values() for point in points] or [(0.0, 0.0)]
    low_x, high_x = _range([x for x, _ in every])
    low_y, high_y = _range([0.0, *(y for _, y in every)])

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + WIDE * (x - low_x) / (high_x - low_x),
            TOP + HIGH * (1 - (y - low_y) / (high_y - low_y)),
        )

    parts = [line(f"M{LEFT} {TOP}V{TOP + HIGH}H{LEFT + WIDE}", GREY)]
    for value in _marks(low_y, high_y):
        _, y = place(low_x, value)
        parts.append(text(LEFT - 8, y + 4, f"{value:g}", anchor="end", color=GREY))
    for value in _marks(low_x, high_x):
        x, _ = place(value, low_y)
        parts.append(text(x, TOP + HIGH + 18, f"{value:g}", anchor="middle", color=GREY))
    parts.append(text(LEFT + WIDE, TOP + HIGH + 36, across, anchor="end", color=GREY))
    for number, (name, points) in enumerate(known.items()):
        colour = COLOURS[number % len(COLOURS)]
        if points:
            path = " ".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in points)
            head, _, rest = path.partition(" ")
            parts.append(line(f"M{head} {rest}", colour))
        parts.append(text(LEFT + WIDE + 16, TOP + 14 + 18 * number, name, color=colour))
    longest = max(map(len, known), default=0)
    size = (LEFT + WIDE + 40 + 8 * longest, TOP + HIGH + 50)
    return drawing(
        title=title, caption=[caption] if caption else [], size=size, left=LEFT, parts=parts
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low, low + 1.0)


def _marks(low: float, high: float) -> list[float]:
    """Four to eight round numbers between two bounds.

    >>> _marks(0, 3.4), _marks(0, 1000)
    ([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0], [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0])
    """
    step = 10.0 ** math.floor(math.log10(high - low))
    for part in (0.2, 0.5, 1.0, 2.0):
        if (high - low) / (step * part) <= 8:
            step *= part
            break
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]
