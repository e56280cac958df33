"""Two steps side by side, of one run or of two: which rows differ, and where inside them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.explore.cells import (
    CELLS_OF_A_PAGE,
    HINT,
    NAMES,
    ShownRow,
    cells_html,
    panel,
    row_cells,
    tint_legend,
    tint_of,
)
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import ExplorerPage, Query, button, field, link, pager
from tokenloom.explore.step_page import (
    StripRow,
    by_share,
    rows_of_step,
    source_legend,
    strip_rows,
)
from tokenloom.order.schedule import examples_of_step
from tokenloom.page.charts import SERIES
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural, share

ROWS_OF_A_PAGE = 16


def compare_page(session: Session, query: Query) -> ExplorerPage:
    """Two steps, or two rows of them."""
    left, right = session.run(0), session.other
    if left.step_count == 0 or right.step_count == 0:
        body = tag("p", "A run without examples has no steps to compare.", class_="reason")
        return ExplorerPage(title="Compare", body=body, way="compare")
    a = query.whole("a", 0)
    usual = a if right is not left else min(a + 1, (right.step_count or a + 2) - 1)
    b = query.whole("b", usual)
    lines = [
        examples_of_step(one.run.run, one.steps, step) for one, step in ((left, a), (right, b))
    ]
    if query.has("row"):
        body, title = _two_rows(session, lines, query, a, b)
    else:
        body, title = _two_steps(session, lines, query, a, b)
    head = _asking(left, right, a, b)
    whole = None
    if len(session.runs) > 1:
        words = "compare all examples and settings"
        whole = tag("p", button(words, "diff"), class_="soft")
    turns = []
    ends = ((left.step_count, a), (right.step_count, b))
    if all(count is None or step + 1 < count for count, step in ends):
        turns.append(("next", link("compare", a=a + 1, b=b + 1)))
    if a and b:
        turns.append(("prev", link("compare", a=a - 1, b=b - 1)))
    return ExplorerPage(
        title=title, body=joined([head, body, whole]), way="compare", turns=tuple(turns)
    )


def _asking(left: ExploredRun, right: ExploredRun, a: int, b: int) -> Markup:
    names = (
        (joined(["Step of ", tag("bdi", one.name)]) for one in (left, right))
        if left is not right
        else ("Step", "and step")
    )
    first, second = names
    return tag(
        "form",
        field("a", first, a, inputmode="numeric", id="go"),
        field("b", second, b, inputmode="numeric"),
        tag("button", "Compare"),
        action="compare",
        class_="goto",
    )


def same_rows(
    left: ExploredRun, right: ExploredRun, a: NDArray[np.int64], b: NDArray[np.int64]
) -> list[bool]:
    """Whether rows of two steps hold the same tokens of the same documents, by their plans."""
    size = min(len(a), len(b))
    one, two = left.run.run.spans(a[:size]), right.run.run.spans(b[:size])
    same = []
    stores = [[run.stores[name].digest for name in run.run.run.names] for run in (left, right)]
    digests = [
        [stores[k][run.run.run.names.index(spans.sources[n])] for n in spans.source.tolist()]
        for k, (run, spans) in enumerate(((left, one), (right, two)))
    ]
    for number in range(size):
        x, y = one.frames(number, number + 1), two.frames(number, number + 1)
        pairs = ((x.document, y.document), (x.start, y.start), (x.length, y.length), (x.at, y.at))
        equal = len(x.document) == len(y.document) and x.width == y.width
        equal = equal and digests[0][number] == digests[1][number]
        same.append(equal and all(bool((p == q).all()) for p, q in pairs))
    return same


def _two_steps(
    session: Session, lines: list[NDArray[np.int64]], query: Query, a: int, b: int
) -> tuple[Markup, str]:
    left, right = session.run(0), session.other
    rows = max(map(len, lines))
    first = min(query.whole("first", 0), (rows - 1) // ROWS_OF_A_PAGE * ROWS_OF_A_PAGE)
    shown = [line[first : first + ROWS_OF_A_PAGE] for line in lines]
    same, size = same_rows(left, right, *shown), min(map(len, lines))
    drawn = [rows_of_step(one, some, first) for one, some in zip((left, right), shown, strict=True)]
    odd = [first + k for k in range(max(map(len, shown))) if k >= len(same) or not same[k]]
    equal = sum(same)
    rows_here = plural(max(map(len, shown)), "row")
    said = (
        f"{equal:,} of {rows_here} on this page hold the same; the others have a line at the left. "
        "A row leads to its cells."
    )
    both = [row for side in drawn for row in side]
    # one colour for a source, also where two runs have other sources
    known = left.colours if left is right else _colours
    colours = known(name for name, _ in by_share(both))
    columns = [
        tag(
            "section",
            tag("h2", _side(one, step, left is right)),
            strip_rows(
                one, strips, colours=colours, differs=odd, to=lambda at: _pair_link(at, a, b, size)
            ),
        )
        for one, step, strips in zip((left, right), (a, b), drawn, strict=True)
    ]
    parts = [
        tag("p", said, class_="message", role="status"),
        source_legend(both, colours, "of the rows of both sides"),
        tag("div", *columns, class_="sides"),
        pager("compare", first, ROWS_OF_A_PAGE, rows, "rows", a=a, b=b),
    ]
    return joined(parts), f"Steps {a:,} and {b:,}"


def _pair_link(at: StripRow, a: int, b: int, size: int) -> str:
    """The way to both rows of a number; to the row itself where one step has no such row."""
    return link("compare", a=a, b=b, row=at.row) if at.row < size else link("row", index=at.index)


def _colours(names: Iterable[str]) -> dict[str, int]:
    """Colours of the sources of two runs, the largest share first."""
    return {name: min(k, SERIES + 1) for k, name in enumerate(names, 1)}


def _side(one: ExploredRun, step: int, alone: bool) -> Markup:
    return joined(
        [f"Step {step:,}"] if alone else [tag("bdi", one.name), f", step {step:,}"],
    )


def _two_rows(
    session: Session, lines: list[NDArray[np.int64]], query: Query, a: int, b: int
) -> tuple[Markup, str]:
    """Two rows of the same number, cell by cell."""
    left, right = session.run(0), session.other
    row = query.whole("row", 0, min(map(len, lines)) - 1)
    first = query.whole("first", 0)
    pair = [
        row_cells(one, int(line[row]), first)
        for one, line in zip((left, right), lines, strict=True)
    ]
    odd = _odd_cells(*pair)
    columns = [
        tag(
            "section",
            tag("h2", _side(one, shown.step, left is right), f", row {shown.row:,}"),
            tag(
                "p",
                tag(
                    "a",
                    f"example {shown.index:,}",
                    href=link("row", index=shown.index, run=one.number or None),
                ),
                " · ",
                tag("bdi", shown.source),
                f", epoch {shown.epoch:,}",
                class_="soft",
            ),
            tag(
                "div",
                cells_html(shown, tint_of(shown, "segment", 1), differs=odd),
                class_="cells",
                role="group",
                aria_label=f"cells of {one.name}, step {shown.step:,}",
            ),
        )
        for one, shown in zip((left, right), pair, strict=True)
    ]
    both = max(one.last - one.first for one in pair)
    said = f"{len(odd):,} of {plural(both, 'cell')} differ, {share(len(odd), both)}."
    width = max(one.width for one in pair)
    parts = [
        tag("p", said, class_="message", role="status"),
        tag("p", tag("a", "‹ all rows", href=link("compare", a=a, b=b), class_="button")),
        _legend(),
        tag("div", *columns, class_="sides"),
        panel(NAMES, None, HINT),
        pager("compare", pair[0].first, CELLS_OF_A_PAGE, width, "cells", a=a, b=b, row=row),
    ]
    return joined(parts), f"Row {row:,} of steps {a:,} and {b:,}"


def _legend() -> Markup:
    """What the marks of two rows mean."""
    differs = tag("span", "a", class_="cell differs", aria_hidden="true")
    marked = tag("li", differs, "line above: another token, segment or weight")
    return tint_legend([(1, "one colour a document, in turn"), (0, "filler")], marked)


def _odd_cells(one: ShownRow, two: ShownRow) -> list[int]:
    """Places on the page where tokens, segments or weights differ."""
    size = min(len(one.ids), len(two.ids))
    differs = np.ones(max(len(one.ids), len(two.ids)), np.bool_)
    differs[:size] = (
        (one.ids[:size] != two.ids[:size])
        | (one.segments[:size] != two.segments[:size])
        | (one.weights[:size] != two.weights[:size])
    )
    found: list[int] = np.flatnonzero(differs).tolist()
    return found


def difference_page(session: Session, query: Query) -> ExplorerPage:
    """How the two runs differ as a whole; found once, in some seconds."""
    if len(session.runs) < 2:
        raise ConfigError("diff: found one run, allowed: two. `tokenloom explore RUN OTHER`.")
    found = session.difference()
    names = joined([tag("bdi", session.run(0).name), " and ", tag("bdi", session.other.name)])
    about = {"tabindex": 0, "role": "region", "aria_label": "How the runs differ"}
    parts = [tag("p", names, class_="message"), tag("pre", repr(found), class_="tree", **about)]
    if found.first is not None:
        steps = [one.steps.step_of(found.first) for one in session.runs]
        to = link("compare", a=steps[0], b=steps[1])
        parts.append(tag("p", button("the first step that differs", to)))
    return ExplorerPage(title="The whole runs", body=joined(parts), way="compare")
