"""The lengths of documents as a picture: a self-contained SVG string.

One idea: lengths differ by powers of ten, so a bar stands for a doubling; beside the documents of
each, a second bar shows their share of all tokens, which is what a model trains on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.inspect import svg
from tokenloom.store.derived.length_counts import Doubling, LengthCounts

__all__ = ["length_picture"]

WIDTH = 760  # pixels, like all below

LEFT, MIDDLE, RIGHT = 150, 440, 740  # bars of documents, bars of tokens, the end

TOP, ROW, BAR = 104, 22, 16

DOCUMENTS, TOKENS = "#39689f", "#8a5a1c"


def length_picture(title: str, counts: LengthCounts) -> str:
    """The histogram of lengths, with their statistics.

    >>> import numpy as np
    >>> drawn = length_picture("toy", LengthCounts(np.array([3, 9]), np.array([2, 1])))
    >>> drawn.count("<path"), "mean 5.0" in drawn
    (6, True)
    """
    bars = counts.doublings()
    caption = "no documents"
    if bars:
        caption = (
            f"{sum(bar.documents for bar in bars):,} documents; tokens each: "
            f"min {int(counts.length[0]):,}, median {counts.percentile(50):,.0f}, "
            f"mean {counts.mean:,.1f}, max {int(counts.length[-1]):,}, std {counts.std:,.1f}"
        )
    return svg.drawing(
        title=title,
        caption=[caption],
        size=(WIDTH, TOP + ROW * len(bars) + 16),
        left=24,
        parts=_bars(bars),
    )


def _bars(bars: list[Doubling]) -> Iterator[str]:
    yield svg.text(LEFT - 8, TOP - 12, "tokens", anchor="end", color=svg.GREY)
    yield svg.text(LEFT, TOP - 12, "documents", color=svg.GREY)
    yield svg.text(MIDDLE, TOP - 12, "share of all tokens", color=svg.GREY)
    most = max((bar.documents for bar in bars), default=1)
    largest = max((bar.share for bar in bars), default=1.0) or 1.0
    for row, bar in enumerate(bars):
        y = TOP + ROW * row
        yield svg.text(LEFT - 8, y + 12, bar.name, anchor="end")
        yield _bar(LEFT, y, bar.documents / most, f"{bar.documents:,}", DOCUMENTS)
        yield _bar(MIDDLE, y, bar.share / largest, f"{bar.share:.1%}", TOKENS)


def _bar(x: int, y: int, share: float, said: str, color: str) -> str:
    """A bar and, after it, its number."""
    width = round(share * (RIGHT - MIDDLE - 90), 2)
    drawn = svg.filled(svg.box(x, y, max(1, width) if share else 0, BAR), color)
    return drawn + "\n" + svg.text(x + width + 6, y + 12, said, color=svg.GREY)
