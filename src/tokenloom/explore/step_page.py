"""A step: its rows as strips, its sources, and ways to any other step, row, source or document."""

from __future__ import annotations

from tokenloom.errors import ConfigError
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import (
    ExplorerPage,
    Query,
    button,
    field,
    hidden,
    link,
    number_form,
    pager,
    select,
    turns_of_steps,
)
from tokenloom.explore.strip_list import (
    by_share,
    rows_of_step,
    source_legend,
    strip_rows,
)
from tokenloom.order.schedule import examples_of_step
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural, share

ROWS_OF_A_PAGE = 32

LISTED_SOURCES = 200  # of a choice


def step_page(session: Session, query: Query) -> ExplorerPage:
    """The page of a step."""
    explored = session.run(query.whole("run", 0, 1))
    step = query.whole("step", 0)
    count = explored.step_count
    if not count and count is not None:
        body = joined([tag("p", "This run has no examples.", class_="reason"), go_to(explored)])
        return ExplorerPage(title="Steps", body=body, way="step", run=explored.number)
    indices = examples_of_step(explored.run.run, explored.steps, step)
    first = query.whole("first", 0)
    first = min(first, max(0, len(indices) - 1) // ROWS_OF_A_PAGE * ROWS_OF_A_PAGE)
    rows = rows_of_step(explored, indices[first : first + ROWS_OF_A_PAGE], first)
    number = explored.number or None
    colours = explored.colours(name for name, _ in by_share(rows))
    note = "" if len(rows) == len(indices) else "of the rows on this page"
    parts = [
        _turns(explored, step, count),
        go_to(explored, step=step),
        source_legend(rows, colours, note),
        strip_rows(explored, rows, colours=colours),
        pager("step", first, ROWS_OF_A_PAGE, len(indices), "rows", step=step, run=number),
    ]
    turns = turns_of_steps(explored, step)
    if rows:
        turns.append(("down", link("row", index=rows[0].index, run=number)))
    low, high = int(indices.min()), int(indices.max())
    last = "The run is endless" if count is None else f"The last step is {count - 1:,}"
    return ExplorerPage(
        title=f"Step {step:,}",
        body=joined(parts),
        way="step",
        lead=f"{plural(len(indices), 'row')} of {explored.run.seq_len:,} tokens, examples {low:,} "
        f"to {high:,} · {last}.{_short(explored, step, len(indices))}",
        turns=tuple(turns),
        run=explored.number,
    )


def _short(explored: ExploredRun, step: int, rows: int) -> str:
    """What becomes of a last step with too few rows; nothing for the others."""
    if rows == explored.steps.size(step):
        return ""
    file = explored.run.file
    end = "drop" if file is None else str(file.loader.get("end", "drop"))
    kept = "a loader drops it, unless it has end='pad' or end='wrap'"
    return f" This step is short: {kept if end == 'drop' else f'end={end!r} fills it'}."


def _turns(explored: ExploredRun, step: int, count: int | None) -> Markup:
    """Ways to the steps around and to any other, and how far the run has come."""
    number, last = explored.number or None, None if count is None else count - 1
    places = (
        ("« first", 0, step > 0),
        ("‹ previous", step - 1, step > 0),
        ("next ›", step + 1, last is None or step < last),
        ("last »", last, last is not None and step < last),
    )
    ways = [
        button(words, link("step", step=at, run=number), there=there) for words, at, there in places
    ]
    bar = None
    if count is not None:
        said = f"{share(step + 1, count)} of the run"
        bar = tag("progress", value=step + 1, max=count, aria_label=said, title=said)
    # the key "/" leads to the box
    box = number_form("step", "step", step, "Step", "Step", {"run": number}, id="go")
    return tag("nav", joined(ways), box, bar, class_="pager", aria_label="steps")


def go_to(explored: ExploredRun, *, step: int = 0, index: int | None = None) -> Markup:
    """Forms that lead to an example, a row of a step, a source or a document; folded.

    Args:
        explored: the run.
        step: the step that is shown.
        index: the example that is shown, on the page of a row; only there is a step asked for, too.
    """
    after = explored.steps.begin(step + 1) - 1 if index is None else index
    number = {"run": explored.number or None}
    numeric = {"inputmode": "numeric"}
    example = "" if index is None else index
    forms = [
        ("row", [field("index", "Example", example, **numeric), field("cell", "Cell", **numeric)]),
        ("row", [field("step", "Step", step, **numeric), field("row", "Row", **numeric)]),
        ("goto", [source_field(explored, "Next row of"), *hidden({"after": after})]),
        ("document", [source_field(explored, "Source"), field("document", "Document", **numeric)]),
    ]
    if index is not None:
        forms.insert(0, ("step", [field("step", "Step", step, **numeric, id="go")]))
    lines = (
        tag("form", *parts, *hidden(number), tag("button", "Go"), action=page)
        for page, parts in forms
    )
    summary = tag("summary", "Go to a row, cell, source or document")
    return tag("details", summary, tag("div", *lines, class_="goto"), class_="elsewhere")


def source_field(explored: ExploredRun, label: str, chosen: str = "", first: str = "") -> Markup:
    """A choice among the sources; a box to type in where there are very many."""
    names = list(explored.run.run.names)
    if len(names) > LISTED_SOURCES:
        return field("source", label, chosen)
    return select("source", label, names, chosen, first)


def named_source(explored: ExploredRun, name: str) -> str:
    """A source by its name; a single one need not be named."""
    names = explored.run.run.names
    if not name and len(names) == 1:
        return names[0]
    if name not in names:
        raise ConfigError(f"source: found {name!r:.80}, allowed: a source of the run.")
    return name
