"""Rows of a run as strips: which documents they hold, what is trained, where documents are cut.

Places are shares of the strip's width, so one drawing fits a phone and a desk, and marks
keep their size. A document is a colour; its cells are pale where they are only looked at and full
where their token is a target; an edge at which a document is cut is torn. Where neighbours share a
colour, every second one is lighter. What a strip holds is counted, so a row of thousands of
documents has no more marks than one of a hundred. Reports, the explorer and notebooks draw rows by
this module alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.page.charts import SERIES, legend, series
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import plural

MOST_SEGMENTS = 120  # of a strip; more are drawn together

BINS = 480  # places of a strip at which trained cells are told apart

HEIGHT, BODY, TICK = 28, 22, 5  # pixels

TORN = "M-1 0L3 0L0 4L4 8L0 12L4 16L0 20L3 22L-1 22z"

TORN_FROM = 0.025  # share of a strip; a smaller segment keeps its whole body


@dataclass(frozen=True, kw_only=True, slots=True)
class StripSegment:
    """A stretch of one document in a row; cells in no segment are filler.

    Attributes:
        first: first cell.
        cells: number of cells.
        words: what is said about it.
        before, after: whether the document is cut at its left or right edge.
        series: number of its colour; None: by its place in the row.
    """

    first: int
    cells: int
    words: str
    before: bool = False
    after: bool = False
    series: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """A row.

    Attributes:
        name: what stands above it.
        cells: cells of the row.
        segments: what it holds, from left to right.
        trained: whether the token of each cell is a target [cells]; None: not told.
        about: more about it, in soft letters after the name.
    """

    name: str
    cells: int
    segments: tuple[StripSegment, ...]
    trained: NDArray[np.bool_] | None = None
    about: str = ""


def strips_html(strips: Sequence[Strip]) -> Markup:
    """Rows below each other, each with its name, and an axis under the last.

    >>> one = StripSegment(first=0, cells=6, words="document 4: tokens 0 to 5", after=True)
    >>> drawn = strips_html([Strip(name="row 0", cells=8, segments=(one,))])
    >>> drawn.count("<rect"), drawn.count("torn"), "document 4" in drawn
    (3, 1, True)
    """
    items = (
        tag(
            "li",
            tag("p", tag("strong", one.name), " ", one.about, class_="strip-name"),
            strip_svg(one),
        )
        for one in strips
    )
    axis = strip_axis(strips[-1].cells) if strips else None
    return tag("div", tag("ol", *items, class_="strips"), axis, class_="strip-list")


def strip_svg(strip: Strip) -> Markup:
    """One row as a drawing as wide as its place."""
    whole = max(1, strip.cells)
    parts = [_rect(0, whole, whole, "filler", tag("title", "filler"))]
    before, is_odd = "", False
    for number, one in enumerate(_joined(strip)):
        colour = series(number % SERIES if one.series is None else one.series)
        is_odd, before = colour == before and not is_odd, colour
        parts += _segment(one, f"{colour} odd" if is_odd else colour, whole, strip.trained)
    said = f"{strip.name}: {plural(len(strip.segments), 'segment')} in {strip.cells:,} cells"
    size = {"width": "100%", "height": HEIGHT}
    return tag("svg", *parts, **size, role="img", aria_label=said, class_="strip")


def strip_axis(cells: int) -> Markup:
    """The cells below a strip: the first, the middle and the end."""
    ends = ((0, "start"), (0.5, "middle"), (1, "end"))
    names = [
        tag(
            "text",
            f"{round(cells * share):,}" + (" cells" if share == 1 else ""),
            x=f"{share:.0%}",
            y=13,
            text_anchor=anchor,
        )
        for share, anchor in ends
    ]
    return tag("svg", *names, width="100%", height=18, class_="strip", aria_hidden="true")


def crowded(strips: Sequence[Strip]) -> bool:
    """Whether documents of one of the rows are drawn together."""
    return any(len(_joined(one)) < len(one.segments) for one in strips)


def strip_legend(*, cut: bool = True, filler: bool = True, many: bool = False) -> Markup:
    """What colours and edges stand for; `many` is whether documents are drawn together."""
    names = {"full": "trained: each colour is a document", "pale": "context only, no loss"}
    if many:
        names["rest"] = "grey: several documents, too thin to be told apart"
    if filler:
        names["filler"] = "filler"
    if cut:
        names["cut"] = "torn edge, tick below: the document is cut"
    return legend(list(names.values()), classes=list(names))


def _joined(strip: Strip) -> list[StripSegment]:
    """The segments, neighbours drawn together where there are too many of them."""
    if len(strip.segments) <= MOST_SEGMENTS:
        return list(strip.segments)
    least = -(-strip.cells // MOST_SEGMENTS)
    found: list[StripSegment] = []
    held: list[StripSegment] = []
    for one in strip.segments:
        held.append(one)
        if one.first + one.cells - held[0].first >= least or one is strip.segments[-1]:
            found.append(held[0] if len(held) == 1 else _together(held))
            held = []
    return found


def _together(held: Sequence[StripSegment]) -> StripSegment:
    first, last = held[0].first, held[-1].first + held[-1].cells
    said = f"{plural(len(held), 'segment')} in cells {first:,} to {last - 1:,}"
    before, after = any(one.before for one in held), any(one.after for one in held)
    return StripSegment(
        first=first, cells=last - first, words=said, before=before, after=after, series=SERIES
    )


def _segment(
    one: StripSegment, colour: str, whole: int, trained: NDArray[np.bool_] | None
) -> list[Markup]:
    last, title = one.first + one.cells, tag("title", one.words)
    if trained is None:
        parts = [_rect(one.first, last, whole, colour, title)]
    else:
        parts = [_rect(one.first, last, whole, f"{colour} pale", title)]
        told = _runs(trained, one.first, last, whole)
        parts += [_rect(low, high, whole, f"{colour} on") for low, high in told]
    wide = one.cells >= TORN_FROM * whole
    for cut, at, turned in ((one.before, one.first, False), (one.after, last, True)):
        if cut:
            parts.append(_cut(at / whole, turned, torn=wide))
    return parts


def _runs(
    trained: NDArray[np.bool_], first: int, last: int, whole: int
) -> list[tuple[float, float]]:
    """Stretches of trained cells, as coarse as the drawing."""
    here = trained[first:last]
    step = max(1, whole // BINS)
    edges = np.arange(0, len(here), step)
    if not len(edges):
        return []
    mostly = np.add.reduceat(here.astype(np.int64), edges) * 2 > np.diff(
        np.append(edges, len(here))
    )
    flips = np.flatnonzero(np.diff(np.concatenate([[0], mostly.astype(np.int8), [0]])))
    ends = np.append(edges, len(here))[flips] + first
    return [(float(low), float(high)) for low, high in ends.reshape(-1, 2).tolist()]


def _rect(
    first: float, last: float, whole: int, class_: str, title: Markup | None = None
) -> Markup:
    place = {"x": f"{100 * first / whole:.5g}%", "width": f"{100 * (last - first) / whole:.5g}%"}
    return tag("rect", title, **place, height=BODY, class_=class_)


def _cut(share: float, turned: bool, *, torn: bool) -> Markup:
    """A torn edge, and a tick below it, which is seen under the smallest segment, too."""
    side = "-1.5" if turned else "0"
    tick = tag("rect", x=side, y=BODY + 1, width=1.5, height=TICK, class_="tick")
    edge = tag("path", d=TORN, class_="torn", transform="scale(-1 1)" if turned else None)
    return tag("svg", edge if torn else None, tick, x=f"{100 * share:.5g}%", overflow="visible")
