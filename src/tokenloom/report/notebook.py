"""What `view()` shows in a notebook: pieces of a report, and the rows of a batch token by token.

A notebook has the same pieces as a report, in the same colours, and no script: what a
token is stands in its title. Every view also has words, for a terminal.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.arguments import integer
from tokenloom.batch.batch import Batch
from tokenloom.errors import plural
from tokenloom.layout.spans import BOS
from tokenloom.page.charts import SERIES
from tokenloom.page.document import SHOWN, View, inline
from tokenloom.page.figure import figure_html
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.strips import Strip, StripSegment, crowded, strip_legend, strips_html
from tokenloom.page.token_cells import (
    LETTER_BYTES,
    cell_classes,
    directed,
    dotted_item,
    extra_classes,
    whole_letters,
)
from tokenloom.report.assembled import run_report
from tokenloom.report.picked_rows import segments_of, targets_of
from tokenloom.report.report_file import Report, said_html
from tokenloom.report.store_report import store_report
from tokenloom.report.subject import Asked, RunSubject

MOST_CELLS = 512  # of a row that are shown one by one

FILLER = "·"  # a cell that holds no token

WORDS = 16  # tokens of a row in a terminal

OF_RUN = frozenset({"mixture", "rows", "packing", "lengths"})  # figures that a notebook shows


def view_run(
    run: Dataset,
    *,
    step: int | None = None,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    rows: int = 8,
) -> View:
    """A run for a notebook; see `Dataset.view`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     view_run(store.windows(4), step=1, batch_size=1)
    step 1, 1 row
    row 0, index 1: e f g h
    """
    asked = Asked(batch_size=batch_size)
    if step is None:
        return _view_report(run_report(run, asked), OF_RUN)
    subject = RunSubject(run, asked)
    first, last = subject.steps.begin(step), subject.steps.begin(integer("step", step) + 1)
    found = run.at(step=step, batch_size=subject.batch_size)
    batch = run.batch([one.index for one in found][: integer("rows", rows, 1)])
    return _view_rows(batch, rows, f"step {step:,}, {plural(last - first, 'row')}")


def view_store(store: Store) -> View:
    """A store for a notebook; see `Store.view`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     print(repr(view_store(store)).splitlines()[-1][:58])
    What can be made of it? 0 rows of 2,048 tokens as windows;
    """
    return _view_report(store_report(store))


def view_batch(batch: Batch, rows: int = 8) -> View:
    """Rows for a notebook; see `Batch.view`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     print(view_batch(store.windows(4)[1]).words.splitlines()[1])
    row 0, index 1: e f g h
    """
    return _view_rows(batch, integer("rows", rows, 1), repr(batch))


def show_batch(batch: Batch) -> str:
    """What a notebook shows of a batch that nobody asked to view: strips, without its tokens.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     "document 1 of the row: cells 0 to 3" in show_batch(store.windows(4)[:2])
    True
    """
    more = len(batch) - SHOWN
    rest = tag("p", f"and {more:,} more rows", class_="more") if more > 0 else EMPTY
    segments = enumerate(batch.segment_ids[:SHOWN])
    drawn = strips_html([strip_of(number, row) for number, row in segments])
    return inline(tag("pre", repr(batch), class_="tree"), drawn, rest)


def strip_of(
    number: int, row: NDArray[Any], trained: NDArray[np.bool_] | None = None, about: str = ""
) -> Strip:
    """A row of a batch as a strip, from the segment of every cell.

    >>> strip = strip_of(0, np.array([1, 1, 2, 0, 0]))
    >>> strip.name, [(one.first, one.cells, one.series) for one in strip.segments]
    ('row 0', [(0, 2, 0), (2, 1, 1)])
    """
    found = []
    for first, last, segment in segments_of(row):
        words = f"document {segment} of the row: cells {first:,} to {last - 1:,}"
        if segment:
            colour = (segment - 1) % SERIES
            found.append(StripSegment(first=first, cells=last - first, words=words, series=colour))
    return Strip(
        name=f"row {number}", cells=len(row), segments=tuple(found), trained=trained, about=about
    )


def _view_report(report: Report, names: frozenset[str] | None = None) -> View:
    """The head of a report, and some of its figures."""
    shown = [one for one in report.figures if names is None or one.name in names]
    # several views of one notebook have figures of the same name
    own = f"-{zlib.crc32(f'{report.title} {report.lead}'.encode()):08x}"
    content = joined(
        [
            *said_html(report, {one.name: f"{one.name}{own}" for one in shown}),
            tag("pre", report.tree, class_="tree"),
            *(figure_html(replace(one, name=f"{one.name}{own}"), level=3) for one in shown),
        ]
    )
    lines = [*(f"warning: {one.words} {one.remedy}" for one in report.cautions)]
    lines += [f"{one.question} {one.sentence}" for one in report.answers]
    return View(content, "\n".join([report.tree, *lines]))


def _view_rows(batch: Batch, rows: int, head: str) -> View:
    """Rows as strips, and below each other token by token."""
    count = min(rows, len(batch))
    strings, targets = batch.token_strings(count), targets_of(batch.trained()[:count])
    strips = [
        strip_of(
            number,
            batch.segment_ids[number],
            targets[number],
            f"index {batch.index[number]}, {batch.source[number]}",
        )
        for number in range(count)
    ]
    more = len(batch) - count
    rest = tag("p", f"and {more:,} more rows", class_="more") if more else None
    content = joined(
        [
            tag("p", tag("b", head)),
            strip_legend(cut=False, many=crowded(strips)),
            strips_html(strips),
            tag("ul", dotted_item(), class_="legend"),
            *(_row(batch, number, strings[number], targets[number]) for number in range(count)),
            rest,
        ]
    )
    lines = [
        f"row {number}, index {batch.index[number]}: {_line(strings[number])}"
        for number in range(count)
    ]
    return View(content, "\n".join([head, *lines, *([f"and {more:,} more rows"] if more else [])]))


def _line(strings: Sequence[str]) -> str:
    more = len(strings) - WORDS
    shown = " ".join(one if one.isprintable() else ascii(one)[1:-1] for one in strings[:WORDS])
    return f"{shown} … {more:,} more" if more > 0 else shown


def _row(batch: Batch, number: int, strings: Sequence[str], targets: NDArray[np.bool_]) -> Markup:
    """The cells of one row; those whose token is no target are dotted below."""
    source = tag("bdi", batch.source[number])
    about = joined([f"row {number} · index {batch.index[number]} · ", source])
    more = len(strings) - MOST_CELLS
    cells = tag("div", *_cells(batch, number, strings, targets), class_="cells")
    rest = tag("p", f"and {more:,} more cells", class_="more") if more > 0 else None
    return joined([tag("p", about, class_="soft"), cells, rest])


def _cells(
    batch: Batch, number: int, strings: Sequence[str], targets: NDArray[np.bool_]
) -> Iterator[Markup]:
    """The cells of each document of a row together, in its direction."""
    segments = batch.segment_ids[number][:MOST_CELLS]
    letters = whole_letters(strings[: MOST_CELLS + LETTER_BYTES - 1])
    documents, offsets = _places(batch, number)
    for first, last, segment in segments_of(segments):
        some = letters[first:last] if segment else [FILLER] * (last - first)
        extra = extra_classes(some)
        cells = (
            _cell(
                some[cell - first],
                segment,
                bool(targets[cell]),
                cell == first,
                extra[cell - first],
                _title(batch, number, cell, (int(documents[cell]), int(offsets[cell]))),
            )
            for cell in range(first, last)
        )
        yield directed(cells, some)


def _cell(text: str, segment: int, target: bool, first: bool, extra: str, title: str) -> Markup:
    tint = (segment - 1) % SERIES + 1 if segment else 0
    classes = cell_classes(tint, target=target, first=first and segment > 0) + extra
    words = f"{title}, {'target' if target else 'no target'}"
    return tag("span", text, class_=f"cell {classes}", title=words)


def _title(batch: Batch, number: int, cell: int, place: tuple[int, int]) -> str:
    """Where the token of a cell comes from."""
    segment, position = (array[number, cell] for array in (batch.segment_ids, batch.position_ids))
    words = [f"cell {cell}, id {batch.tokens[number, cell]}"]
    if place[0] >= 0:
        words.append(f"document {place[0]}, token {place[1]}")
    words.append(f"segment {segment}, position {position}" if segment else "filler")
    return ", ".join(words)


def _places(batch: Batch, number: int) -> tuple[Any, Any]:
    """The document of each cell of a row and the token in it; -1 where none is stored [S]."""
    width, spans = batch.shape[1], batch.spans
    document, offset = np.full(width, -1, np.int64), np.full(width, -1, np.int64)
    for span in range(int(spans.frame[number]), int(spans.frame[number + 1])):
        at = int(spans.at[span]) + bool(spans.flags[span] & BOS)
        last = min(width, at + int(spans.length[span]))
        document[at:last] = spans.document[span]
        offset[at:last] = np.arange(last - at) + spans.start[span]
    return document, offset
