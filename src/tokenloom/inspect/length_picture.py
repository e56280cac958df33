"""The lengths of documents as a drawing, and as a picture in a file.

One idea: lengths differ by powers of ten, so a column stands for a doubling; the second column
shows the share of all tokens, which is what a model trains on. A line marks the length of a frame:
what lies to its right does not fit into one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenloom.page.axes import Mark
from tokenloom.page.charts import series
from tokenloom.page.histogram import columns
from tokenloom.page.markup import Markup
from tokenloom.page.numbers import plural, share
from tokenloom.page.standalone import DRAWN, Panel, standalone
from tokenloom.store.length_counts import Doubling, LengthCounts

SHARES = "share of documents", "share of tokens"  # what the two columns are


def length_picture(title: str, counts: LengthCounts) -> str:
    """The histogram of lengths, with their statistics.

    >>> import numpy as np
    >>> drawn = length_picture("toy", LengthCounts(np.array([3, 9]), np.array([2, 1])))
    >>> drawn.count("of all documents"), "mean 5.0" in drawn
    (2, True)
    """
    bars = counts.doublings()
    caption = ["no documents"]
    if bars:
        least, most, middle = int(counts.length[0]), int(counts.length[-1]), counts.percentile(50)
        each = f"min {least:,}, median {middle:,.0f}, mean {counts.mean:,.1f}, max {most:,}"
        caption = [
            plural(sum(bar.documents for bar in bars), "document"),
            f"tokens each: {each}, std {counts.std:,.1f}",
        ]
    names = [(said, series(number)) for number, said in enumerate(SHARES)]
    return standalone(title, caption, [Panel(lengths_chart(bars, DRAWN), legend=names)])


def lengths_chart(doublings: Sequence[Doubling], width: int, frame: int | None = None) -> Markup:
    """Two columns for every doubling: documents, and their share of tokens.

    Args:
        doublings: the histogram.
        width: pixels of the drawing.
        frame: tokens of a frame, to be marked; None for no mark.
    """
    total = sum(one.documents for one in doublings) or 1
    low = _digits(doublings[0]) if doublings else 0
    values = {
        "documents": [100 * one.documents / total for one in doublings],
        "tokens": [100 * one.share for one in doublings],
    }
    titles = {
        name: [
            f"{one.name} tokens: {share(value / 100)} of all {name}"
            for one, value in zip(doublings, shares, strict=True)
        ]
        for name, shares in values.items()
    }
    return columns(
        [_short(low + number) for number in range(len(doublings))],
        values,
        width,
        "share of documents and of tokens by length",
        below="tokens of a document, from … on",
        beside="share of all",
        words="{} %",
        titles=titles,
        marks=[] if frame is None else [Mark(_place(frame, low), f"a frame: {frame:,} tokens")],
    )


def _digits(one: Doubling) -> int:
    """Binary digits of the lengths of a doubling."""
    return int(one.name.split("-")[0].replace(",", "")).bit_length()


def _place(length: int, low: int) -> float:
    """Where a length lies among doublings that start with `low` binary digits."""
    return math.log2(max(length, 1)) + 1 - low


def _short(digits: int) -> str:
    """The shortest length with this number of binary digits; a thousand is 1,024.

    >>> [_short(n) for n in (0, 1, 5, 11, 15, 21)]
    ['0', '1', '16', '1k', '16k', '1M']
    """
    low = (1 << digits) >> 1
    for power, letter in ((30, "G"), (20, "M"), (10, "k")):
        if low >> power:
            return f"{low >> power}{letter}"
    return str(low)
