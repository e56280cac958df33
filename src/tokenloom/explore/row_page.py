"""A row: its cells with their tokens, in colours, and what is known about each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokenloom.explore.cells import (
    CELLS_OF_A_PAGE,
    COLOURINGS,
    HINT,
    NAMES,
    Filled,
    ShownRow,
    cells_html,
    facts_of,
    marked_cells,
    offset_words,
    panel,
    range_words,
    row_cells,
    tint_legend,
    tint_of,
)
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import (
    Elsewhere,
    ExplorerPage,
    Query,
    button,
    link,
    listing,
    mark_form,
    number_form,
    pager,
    turns_of_steps,
)
from tokenloom.explore.step_page import go_to, named_source
from tokenloom.order.schedule import examples_of_step, row_of_step
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural

LISTED = 200  # stretches in the table


def row_page(session: Session, query: Query) -> ExplorerPage:
    """The page of a row, by example or by step and row."""
    explored = session.run(query.whole("run", 0, 1))
    index = _index(explored, query)
    first = query.whole("first", 0)
    chosen = query.whole("cell", -1) if query.has("cell") else None
    if chosen is not None:
        first = chosen // CELLS_OF_A_PAGE * CELLS_OF_A_PAGE
    shown = row_cells(explored, index, first)
    by = query.word("by", COLOURINGS)
    wanted = query.text("text")
    found = marked_cells(shown.texts, wanted)
    colour = explored.colours([shown.source])[shown.source]
    cells = cells_html(shown, tint_of(shown, by, colour), found=found, chosen=chosen)
    facts = None
    if chosen is not None and shown.first <= chosen < shown.last:
        facts = facts_of(shown, chosen, shown.stretch_at(chosen))
    keep = {"index": index, "run": explored.number or None}
    said = f"cells {shown.first:,} to {shown.last - 1:,}"
    here = {**keep, "by": by, "text": wanted}
    beside = [
        tag("div", cells, class_="cells", role="group", aria_label=said),
        pager("row", shown.first, CELLS_OF_A_PAGE, shown.width, "cells", **here),
        _table(explored, shown),
    ]
    parts = [
        _ways(explored, shown, keep, by),
        go_to(explored, step=shown.step, index=index),
        _tools(shown, keep, by, wanted, len(found)),
        _legend(by, shown, colour),
        tag("div", tag("div", *beside), panel(NAMES, facts, HINT), class_="beside"),
    ]
    way = (
        f", epoch {shown.epoch:,} · item {shown.item:,} → row {shown.layout_row:,} of its layout · "
        f"{shown.width:,} cells"
    )
    to = link("step", step=shown.step, run=keep["run"])
    step = tag("a", f"Step {shown.step:,}", href=to)
    lead = joined([step, f", row {shown.row:,} · ", tag("bdi", shown.source), way])
    return ExplorerPage(
        title=f"Example {index:,}",
        body=joined(parts),
        way="step",
        lead=lead,
        turns=tuple(_turns(explored, shown)),
        run=explored.number,
    )


def _index(explored: ExploredRun, query: Query) -> int:
    if query.has("index") or not query.has("step"):
        return query.whole("index", 0)
    run, step = explored.run.run, query.whole("step", 0)
    return row_of_step(run, explored.steps, step, query.whole("row", 0))


def _turns(explored: ExploredRun, shown: ShownRow) -> list[tuple[str, str]]:
    """Links that keys follow: rows of the step up and down, steps before and after."""
    number, steps = explored.number or None, explored.steps
    line = examples_of_step(explored.run.run, steps, shown.step)
    found = []
    if shown.row + 1 < len(line):
        found.append(("down", link("row", index=int(line[shown.row + 1]), run=number)))
    if shown.row:
        found.append(("up", link("row", index=int(line[shown.row - 1]), run=number)))
    return found + turns_of_steps(explored, shown.step)


def _ways(explored: ExploredRun, shown: ShownRow, keep: Mapping[str, object], by: str) -> Markup:
    """The rows beside it."""
    turns = dict(_turns(explored, shown))
    words = {"up": "‹ row before", "down": "row after ›"}
    ways = [button(said, turns.get(rel, ""), there=rel in turns) for rel, said in words.items()]
    if shown.width > CELLS_OF_A_PAGE:
        label = f"Cell 0 to {shown.width - 1:,}"
        ways.append(number_form("row", "cell", shown.first, label, "Cell", {**keep, "by": by}))
    return tag("nav", joined(ways), class_="pager", aria_label="rows")


def _tools(shown: ShownRow, keep: Mapping[str, object], by: str, wanted: str, found: int) -> Markup:
    """Colours, and a search in what is shown."""
    at = {**keep, "first": shown.first or None, "text": wanted}
    choices = (button(one, link("row", **at, by=one), now=one == by) for one in COLOURINGS)
    kept = {**keep, "first": shown.first, "by": by}
    said = f"{plural(found, 'token')} marked" if wanted else ""
    search = mark_form("row", wanted, said, kept)
    colours = tag(
        "div",
        tag("span", "Colour by ", class_="soft"),
        joined(choices),
        class_="choices",
        role="group",
        aria_label="Colour by",
    )
    return tag("div", colours, search, class_="tools")


def _legend(by: str, shown: ShownRow, colour: int) -> Markup:
    """What the colours mean."""
    named: Sequence[tuple[int, str | Markup]]
    if by == "loss":
        named = [
            (3, "target, weight 1"),
            (2, "weight below 1"),
            (6, "weight above 1"),
            (0, "no target"),
        ]
    elif by == "segment":
        named = [(1, "one colour a document, in turn"), (0, "filler")]
    else:
        named = [(colour, tag("bdi", shown.source)), (0, "filler")]
    return tint_legend(named)


def _table(explored: ExploredRun, shown: ShownRow) -> Markup:
    """The stretches of the page, with ways to their documents."""
    rows = [_line(explored, shown, one) for one in shown.stretches[:LISTED]]
    more = len(shown.stretches) - len(rows)
    head = ("cells", "document", "tokens", "remark")
    last = tag("p", f"and {more:,} more", class_="more") if more > 0 else None
    return tag(
        "section",
        tag("h2", "What these cells hold"),
        listing(head, rows, "Documents of these cells"),
        last,
        class_="figure",
    )


def _line(explored: ExploredRun, shown: ShownRow, one: Filled) -> tuple[object, ...]:
    cells = range_words(one.column, one.length)
    if one.document < 0:
        return cells, "filler", None, None
    to = link(
        "document",
        source=shown.source,
        document=one.document,
        after=shown.index,
        first=max(0, one.start) // CELLS_OF_A_PAGE * CELLS_OF_A_PAGE or None,
        run=explored.number or None,
    )
    tokens = offset_words(one, one.column) if one.inserted else range_words(one.start, one.length)
    said = ["blank (quarantined)"] if one.blank else []
    said += ["label only"] if one.label_only else []
    name = tag("a", f"{one.document:,}", href=to)
    return cells, name, tokens, ", ".join(said)


def next_of_source(session: Session, query: Query) -> Elsewhere | ExplorerPage:
    """The way to the next row of a source after an example."""
    explored = session.run(query.whole("run", 0, 1))
    run, name = explored.run.run, named_source(explored, query.text("source"))
    after = query.whole("after", 0)
    number = run.names.index(name)
    if run.n is not None:
        after = min(after, run.n - 1)
    item = run.items_before(number, after + 1)
    # items of a source come in order, but for rules that mix those of a block
    some = (
        run.index(number, np.arange(item, item + 64))
        if run.reaches(number, item)
        else np.array([-1])
    )
    later = some[some > after]
    if not len(later):
        body = tag(
            "p",
            f"After example {after:,}, the run shows no row of ",
            tag("bdi", name),
            ".",
            class_="reason",
        )
        return ExplorerPage(title="No such row", body=body, way="step", run=explored.number)
    return Elsewhere(link("row", index=int(later.min()), run=explored.number or None))
