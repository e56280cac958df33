"""Attention of one row as a map: which cell may look at which.

One idea: causal attention inside a segment is a triangle on the diagonal, so a map of any length is
a few corners. Triangles of one colour are one path; the smallest is drawn large enough to be seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tokenloom.page.axes import drawing, label, rule
from tokenloom.page.markup import Markup, tag

__all__ = ["Block", "attention_map"]

LEFT, TOP, SIDE, SEEN = 22, 24, 240, 1.6  # pixels


class Block(NamedTuple):
    """Cells [first, last) that look at each other, and their class."""

    first: int
    last: int
    class_: str


def attention_map(blocks: Sequence[Block], cells: int, said: str, *, all_pairs: bool) -> Markup:
    """A map: the cell that looks from top to bottom, the cell it looks at from left to right.

    Args:
        blocks: the segments, and stretches of filler.
        cells: cells of the row.
        said: what is read aloud.
        all_pairs: also every pair of cells of different segments, as without boundaries.

    >>> drawn = attention_map([Block(0, 2, "s1"), Block(2, 4, "s2")], 4, "two", all_pairs=True)
    >>> drawn.count("crossing"), "M22 24L142 144L22 144z" in drawn
    (1, True)
    """
    paths: dict[str, list[str]] = defaultdict(list)
    real = [one for one in blocks if one.class_ != "filler"]
    for one in blocks:
        paths[one.class_].append(_triangle(one.first, one.last, cells))
    parts = [tag("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, class_="ground")]
    if all_pairs and real:
        whole = _triangle(real[0].first, real[-1].last, cells)
        parts.append(tag("path", d=whole, class_="crossing"))
    parts += [tag("path", d="".join(some), class_=class_) for class_, some in paths.items()]
    parts.append(rule(f"M{LEFT} {TOP}V{TOP + SIDE}H{LEFT + SIDE}"))
    parts.append(label(LEFT, 14, "cell that is looked at →", soft=True))
    turned = f"rotate(-90 14 {TOP + SIDE})"
    parts.append(
        tag(
            "text",
            "← cell that looks",
            x=14,
            y=TOP + SIDE,
            transform=turned,
            class_="soft",
        )
    )
    return drawing(LEFT + SIDE + 2, TOP + SIDE + 4, said, parts)


def _triangle(first: int, last: int, cells: int) -> str:
    whole = max(1, cells)
    low = SIDE * first / whole
    high = min(max(SIDE * last / whole, low + SEEN), SIDE)
    low = min(low, high - SEEN)
    a, b, c, d = LEFT + low, TOP + low, LEFT + high, TOP + high
    return f"M{a:.5g} {b:.5g}L{c:.5g} {d:.5g}L{a:.5g} {d:.5g}z"
