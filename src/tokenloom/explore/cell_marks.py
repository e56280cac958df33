"""Cells of a row or of a document as HTML, and the panel that tells about one of them.

One idea: what is known about a cell travels with it, as a list in the order of the panel's names.
The script of the page only moves it there when a cell is pointed at or has the focus; without a
script, a number in the address does the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from tokenloom.explore.cell_facts import Filled, ShownRow, facts_of
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.token_cells import REST, cell_classes, directed, extra_classes, whole_letters

__all__ = [
    "COLOURINGS",
    "cell_html",
    "cells_html",
    "marked_cells",
    "panel",
    "tint_of",
]

COLOURINGS = ("segment", "source", "loss")

FEW_FILLERS = 4  # more of them are shown as one


def tint_of(shown: ShownRow, by: str, colour: int) -> Callable[[Filled, int], int]:
    """The number of the tint of each cell, given its stretch and its place on the page."""
    if by == "source":
        return lambda one, at: colour if one.document >= 0 else 0
    if by == "loss":
        return lambda one, at: _loss_tint(float(shown.weights[at]))
    return lambda one, at: (int(shown.segments[at]) - 1) % 8 + 1 if shown.segments[at] else 0


def _loss_tint(weight: float) -> int:
    return 0 if not weight else 3 if weight == 1 else 2 if weight < 1 else 6


def marked_cells(texts: Sequence[str], wanted: str) -> set[int]:
    """Which of some cells hold a part of a text, wherever it is found in all of them together.

    >>> sorted(marked_cells(["ab", "c", "abc"], "bc"))
    [0, 1, 2]
    """
    if not wanted:
        return set()
    plain = [one.replace("↵", "").replace(REST, "") for one in whole_letters(texts)]
    together, found, at = "".join(plain), set(), 0
    edges = [0]
    for one in plain:
        edges.append(edges[-1] + len(one))
    cell = 0
    while (at := together.find(wanted, at)) >= 0:
        while edges[cell + 1] <= at:
            cell += 1
        last = cell
        while last < len(plain) and edges[last] < at + len(wanted):
            found.add(last)
            last += 1
        at += 1
    return found


def cells_html(
    shown: ShownRow,
    tint: Callable[[Filled, int], int],
    *,
    found: Iterable[int] = (),
    differs: Iterable[int] = (),
    chosen: int | None = None,
) -> Markup:
    """The cells of a page.

    Args:
        shown: the cells.
        tint: number of the tint of a cell.
        found: places on the page that hold what is looked for.
        differs: places on the page that differ from another row.
        chosen: the cell that the panel is about.
    """
    marks = dict.fromkeys(found, "found") | dict.fromkeys(differs, "differs")
    return joined(
        directed(_stretch(shown, one, tint, marks, chosen), _letters(shown, one))
        for one in shown.stretches
    )


def _letters(shown: ShownRow, one: Filled) -> Sequence[str]:
    """What the cells of a stretch show; filler has no letters."""
    first = one.column - shown.first
    return shown.letters[first : first + one.length] if one.document >= 0 else ()


def _stretch(
    shown: ShownRow,
    one: Filled,
    tint: Callable[[Filled, int], int],
    marks: Mapping[int, str],
    chosen: int | None,
) -> Iterable[Markup]:
    low = one.column - shown.first
    together = one.document < 0 and one.length > FEW_FILLERS
    if together and (shown.ids[low : low + one.length] == shown.ids[low]).all():
        facts = facts_of(shown, one.column, one)
        yield cell_html(f"filler × {one.length:,}", "t0 first", facts, chosen == one.column)
        return
    extra = extra_classes(shown.letters[low : low + one.length])
    for cell in range(one.column, one.column + one.length):
        at = cell - shown.first
        is_first, is_target = cell == one.column, bool(shown.weights[at])
        classes = cell_classes(tint(one, at), target=is_target, first=is_first) + extra[at - low]
        if at in marks:
            classes += f" {marks[at]}"
        facts = facts_of(shown, cell, one)
        yield cell_html(shown.letters[at] or "·", classes, facts, chosen == cell)


def cell_html(text: str, classes: str, facts: Sequence[str], chosen: bool = False) -> Markup:
    """One cell; `facts` are in the order of the panel's names."""
    if chosen:
        classes += " chosen"
    told = json.dumps(facts, ensure_ascii=True)
    return tag("span", text, class_=f"cell {classes}", data_f=told)


def panel(names: Sequence[str], facts: Sequence[str] | None, hint: str) -> Markup:
    """The panel about one cell; its lines are there from the start, so nothing moves."""
    values = facts or ["–"] * len(names)
    lines = (
        tag("div", tag("dt", name), tag("dd", value, dir="auto"))
        for name, value in zip(names, values, strict=True)
    )
    title = tag("h2", "This token", id="panel-title")
    # on a phone it lies over the text, so it waits until a token is chosen
    about = {"id": "panel", "aria_labelledby": "panel-title"}
    about["class_"] = "panel" if facts else "panel empty"
    return tag("aside", title, tag("p", hint, class_="soft"), tag("dl", *lines), **about)
