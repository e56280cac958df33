"""Real rows of the run: which documents are in them, what is trained, what is cut, what is empty.

A row is a strip (`tokenloom.page.strips`), and a dozen of them, from the first, the
middle and the last step, show more about a run than any number. Their spans are in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tokenloom.page.charts import SERIES
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import joined, tag
from tokenloom.page.numbers import plural, share
from tokenloom.page.strips import Strip, StripSegment, crowded, strip_legend, strips_html
from tokenloom.report.picked_rows import PickedRow, PickedSpan
from tokenloom.report.subject import RunSubject

HEAD = (
    *("example", "step", "row", "source", "document", "first cell", "cells", "first token"),
    *("tokens", "tokens of the document", "trained", "cut before", "cut after"),
)


def row_figure(subject: RunSubject) -> Figure | None:
    """Rows of three steps as strips; None for a run without rows."""
    rows = subject.rows
    if not rows:
        return None
    return Figure(
        name="rows",
        title="Rows as they are trained",
        message=_message(rows),
        drawing=joined(_drawn(rows, several=len(subject.run.sources) > 1)),
        numbers=(_numbers(rows),),
        notes=_notes(rows, subject.examples),
    )


def _notes(rows: Sequence[PickedRow], examples: int) -> tuple[str, ...]:
    if len(rows) == examples:
        return ()
    steps = plural(len({row.step for row in rows}), "step")
    told = f"Of {plural(examples, 'row')}, these are {plural(len(rows), 'row')} from {steps}"
    return (f"{told}; the numbers above are about them alone.",)


def _drawn(rows: Sequence[PickedRow], *, several: bool) -> Iterator[object]:
    strips = [strip_of(row, source=several) for row in rows]
    yield strip_legend(
        cut=any(one.before or one.after for row in rows for one in row.spans),
        filler=any(row.filler for row in rows),
        many=crowded(strips),
    )
    for step, some in groupby(zip(rows, strips, strict=True), key=lambda pair: pair[0].step):
        yield tag("h3", f"Step {step:,}")
        yield strips_html([strip for _, strip in some])


def strip_of(row: PickedRow, *, source: bool = True) -> Strip:
    """A row as a strip; `source` puts the name of its source above it."""
    about = [row.source] if source else []
    about.append(plural(len(row.spans), "document"))
    if row.filler:
        about.append(f"{share(row.filler, row.cells)} filler")
    return Strip(
        name=f"row {row.row:,}",
        cells=row.cells,
        segments=tuple(
            _segment(one, row, colour)
            for one, colour in zip(row.spans, _colours(row.spans), strict=True)
        ),
        trained=row.trained,
        about=" · ".join(about),
    )


def _colours(spans: Sequence[PickedSpan]) -> Iterator[int]:
    """A colour that a document keeps in other rows, unless its neighbour has it."""
    last = -1
    for one in spans:
        colour = one.document % SERIES
        last = colour if colour != last else (colour + 1) % SERIES
        yield last


def _segment(one: PickedSpan, row: PickedRow, colour: int) -> StripSegment:
    last = one.at + one.cells - 1
    tokens = f"tokens {one.start:,} to {one.start + one.length - 1:,} of {one.whole:,}"
    told = [
        f"{row.source}, document {one.document:,}: {tokens if one.length else 'no stored token'}",
        f"cells {one.at:,} to {last:,}",
        f"{int(row.trained[one.at : last + 1].sum()):,} trained",
    ]
    told += [f"{plural(one.inserted, 'inserted token')}"] if one.inserted else []
    told += ["cut before"] if one.before else []
    told += ["cut after"] if one.after else []
    return StripSegment(
        first=one.at,
        cells=one.cells,
        words=", ".join(told),
        before=one.before,
        after=one.after,
        series=colour,
    )


def _message(rows: Sequence[PickedRow]) -> str:
    spans = [one for row in rows for one in row.spans]
    cells = sum(row.cells for row in rows)
    filler, trained = sum(row.filler for row in rows), sum(int(row.trained.sum()) for row in rows)
    cut = sum(one.before or one.after for one in spans)
    torn = f"{share(cut, len(spans))} of them cut at an edge" if cut else "none of them cut"
    verb = "hold" if len(rows) > 1 else "holds"
    return (
        f"{plural(len(rows), 'row')} {verb} {plural(len(spans), 'piece')} of documents, {torn}; "
        f"{share(trained, cells)} of the cells are trained and {share(filler, cells)} are filler."
    )


def _numbers(rows: Sequence[PickedRow]) -> Numbers:
    listed = [
        (
            row.index,
            row.step,
            row.row,
            row.source,
            one.document,
            one.at,
            one.cells,
            one.start,
            one.length,
            one.whole,
            int(row.trained[one.at : one.at + one.cells].sum()),
            one.before,
            one.after,
        )
        for row in rows
        for one in row.spans
    ]
    return Numbers.of(HEAD, listed, "what these rows hold")
