"""How often rows and documents come: epochs and repeats of every source.

One idea: rows come again with the epochs of their source, documents with their rows. Both are
counted by the simulation; a run of one source has them as its figure, a mix as a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.inspect.simulate.answer import Simulation, SourceRepeats
from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.subject import RunSubject

__all__ = ["repeats_table", "times_figure"]

HEAD = (
    *("source", "tokens", "rows", "rows of an epoch", "epochs", "least times of a row"),
    *("most times of a row", "documents followed", "rows of a document"),
    *("steps to its next row: least", "median", "mean", "most"),
)


def times_figure(subject: RunSubject) -> Figure | None:
    """How often rows of a run of one source come; None for a run without a step."""
    found = subject.simulation
    if found is None or not found.repeats or not found.repeats[0].rows:
        return None
    (one,), rows = found.repeats, found.examples
    bar = [Bar(*some) for some in _times(one, rows)]
    return Figure(
        name="mixture",
        title="How often rows come",
        message=_message(found, one),
        drawing=both(lambda width: bars(bar, width, "rows by how often they come", top=one.rows)),
        numbers=(repeats_table(subject),),
        notes=tuple(_notes(one)),
    )


def _times(one: SourceRepeats, shown: int) -> Iterator[tuple[str, float, str, str]]:
    """(name, rows, words, class) for each number of times; only rows that are there."""
    often = shown - one.least * one.rows if one.most > one.least else one.rows
    for times, rows in ((one.most, often), (one.least, one.rows - often)):
        if rows > 0:
            name = "never" if not times else "once" if times == 1 else f"{times:,} times"
            told = f"{plural(rows, 'row')}, {share(rows, one.rows)}"
            yield name, rows, told, "s1" if times else "rest"


def _message(found: Simulation, one: SourceRepeats) -> str:
    epochs = amount(found.examples / one.rows, "epoch")
    verb = "shows" if found.steps == 1 else "show"
    return (
        f"{plural(found.steps, 'step')} {verb} {plural(found.examples, 'row')} of "
        f"{one.rows:,}, {epochs}: {amount(found.tokens, 'token')}."
    )


def repeats_table(subject: RunSubject) -> Numbers:
    """Rows, epochs and repeats by source, as `simulate` counts them."""
    found = subject.simulation
    if found is None:
        return Numbers.of(HEAD, [], "how often rows and documents come")
    totals = {one.name: one for one in found.sources}
    rows = []
    for one in sorted(found.repeats, key=lambda some: -totals[some.name].tokens):
        shown = totals[one.name]
        epochs = shown.rows / one.rows if one.rows else 0.0
        gaps = one.gaps or (None,) * 4
        row = (one.name, shown.tokens, shown.rows, one.rows, epochs, one.least, one.most)
        rows.append((*row, one.documents, one.shown, *gaps))
    return Numbers.of(HEAD, rows, "how often rows and documents come")


def _notes(one: SourceRepeats) -> Iterator[str]:
    if one.is_sample and one.documents:
        yield f"Documents were followed in a keyed sample of {plural(one.documents, 'document')}."
    if one.note:
        yield one.note
