"""The cells of a row as HTML: what is known about each, and the panel that tells about one.

A row may have a million cells, and a page shows some of them. Stretches are cut to these before
anything is made of them, so a page costs what it shows. A stretch is what
`tokenloom.trace.answers` calls one; cells without a document are stretches of filler. What is
known about a cell travels with it, as a list in the order of the panel's names; the script of the
page moves it there when a cell is pointed at or has the focus, and without a script a number in the
address does the same.

Label and weight of a cell are those of the prediction of *its* token. Arrays have the weight one
cell earlier, where the prediction is made (`Batch.loss_weights`), so it is moved by one here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.explore.session import ExploredRun
from tokenloom.order.run import Placed
from tokenloom.order.schedule import rows_in_steps
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.token_cells import (
    LETTER_BYTES,
    REST,
    cell_classes,
    directed,
    dotted_item,
    extra_classes,
    spelled,
    whole_letters,
)
from tokenloom.trace.answers import cell_runs

CELLS_OF_A_PAGE = 2048

NAMES = (
    *("cell", "text", "id", "source", "document", "offset", "epoch", "segment"),
    *("position", "label", "weight"),
)

COLOURINGS = ("segment", "source", "loss")

HINT = "Point at a token, or walk with the arrow keys. Label and weight are of predicting it."

FEW_FILLERS = 4  # more of them are shown as one


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """A stretch of cells of one document, or of filler.

    Attributes:
        document: number of the document in its store; -1 for filler.
        column: the first cell.
        length: number of cells.
        start: document offset of the first token; -1 is an inserted BOS.
        inserted, label_only, blank: see `tokenloom.trace.answers`.
    """

    document: int
    column: int
    length: int
    start: int = 0
    inserted: bool = False
    label_only: bool = False
    blank: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownRow:
    """Cells [first, last) of an example.

    Attributes:
        index: the example.
        step, row: where it is trained.
        source, epoch, item, layout_row: the way there.
        width: cells of the row, the look-ahead cell included.
        first, last: which of them are here.
        stretches: what they hold, in order, without gaps.
        ids: tokens [N].
        labels: the token itself where it is a target, else -100 [N].
        weights: weight of the prediction of each token, 0 where it is no target [N].
        segments: 1, 2, … for the documents of the row, 0 for filler [N].
        positions: position ids [N].
        texts: the tokens as strings [N].
        letters: the same with whole letters, as cells show them [N].
        told: the same with spaces that can be seen, as the panel tells them [N].
    """

    index: int
    step: int
    row: int
    source: str
    epoch: int
    item: int
    layout_row: int
    width: int
    first: int
    last: int
    stretches: tuple[Filled, ...]
    ids: NDArray[Any]
    labels: NDArray[Any]
    weights: NDArray[Any]
    segments: NDArray[Any]
    positions: NDArray[Any]
    texts: list[str]
    letters: list[str]
    told: list[str]

    def stretch_at(self, cell: int) -> Filled:
        """The stretch that holds a cell of the page."""
        return next(one for one in self.stretches if one.column <= cell < one.column + one.length)


def row_cells(
    explored: ExploredRun, index: int, first: int = 0, count: int = CELLS_OF_A_PAGE
) -> ShownRow:
    """Some cells of an example; reads the tokens of that row and no others."""
    run = explored.run.run
    batch = explored.run.batch([index])  # refuses an index outside of the run
    (part,) = run.placed(np.array([index]))
    first = min(first, max(0, run.width - 1) // count * count)
    last = min(first + count, run.width)
    cells = batch._cells[0]  # the look-ahead cell included
    ids = cells[first:last]
    source = part.run.name
    # letters may be spread over the edges of a page
    low, high = max(0, first - LETTER_BYTES + 1), last + LETTER_BYTES - 1
    texts, here = explored.strings(source, cells[low:high]), slice(first - low, last - low)
    weights = _of_targets(batch.loss_weights[0], run.width)[first:last]
    ((step, row),) = rows_in_steps(run, explored.steps, np.array([index]))
    return ShownRow(
        index=index,
        step=step,
        row=row,
        source=source,
        epoch=int(part.epoch[0]),
        item=int(part.item[0]),
        layout_row=int(part.row[0]),
        width=run.width,
        first=first,
        last=last,
        stretches=_stretches(part, first, last),
        ids=ids,
        labels=np.where(weights > 0, ids, -100),
        weights=weights,
        segments=_padded(batch.segment_ids[0], first, last, 0),
        positions=_padded(batch.position_ids[0], first, last, -1),
        texts=texts[here],
        letters=whole_letters(texts)[here],
        told=spelled(texts)[here],
    )


def _of_targets(weights: NDArray[Any], width: int) -> NDArray[Any]:
    """The weight of each token, from those of the cells that predict the next one [width].

    weights  [a b c d]    cell 0 predicts token 1 with weight a
    gives  [0 a b c d]    no cell predicts token 0; without a look-ahead cell, d is cut off
    """
    found = np.zeros(width, weights.dtype)
    found[1:] = weights[: width - 1]
    return found


def _padded(values: NDArray[Any], first: int, last: int, filler: int) -> NDArray[Any]:
    """Values of some cells; the look-ahead cell has none."""
    some = values[first:last]
    return np.append(some, np.full(last - first - len(some), filler, some.dtype))


def _stretches(part: Placed, first: int, last: int) -> tuple[Filled, ...]:
    """What cells [first, last) of the row hold."""
    spans = part.run.layout.spans(part.epoch, part.row)
    spans = spans.where((spans.at < last) & (spans.at + spans.cells > first))
    cut = cell_runs(spans, part.run.seq_len, part.run.layout.line.reader)
    blank = np.zeros(len(spans.document), np.bool_)
    if part.run.blanks is not None:
        blank = part.run.blanks.covers(spans.document, part.item[spans.row])
    found: list[Filled] = []
    done = first
    for span, column, start, length, label_only, inserted in zip(
        *(one.tolist() for one in cut), strict=True
    ):
        low, high = max(column, first), min(column + length, last)
        if low >= high:
            continue
        if low > done:
            found.append(Filled(document=-1, column=done, length=low - done))
        found.append(
            Filled(
                document=int(spans.document[span]),
                column=low,
                length=high - low,
                start=start + low - column,
                inserted=inserted,
                label_only=label_only,
                blank=bool(blank[span]),
            )
        )
        done = high
    if done < last:
        found.append(Filled(document=-1, column=done, length=last - done))
    return tuple(found)


def facts_of(shown: ShownRow, cell: int, one: Filled) -> tuple[str, ...]:
    """Everything about one cell, in the order of `NAMES`."""
    at = cell - shown.first
    return (
        f"{cell:,}",
        shown.told[at],
        str(shown.ids[at]),
        shown.source,
        "filler" if one.document < 0 else f"{one.document:,}",
        offset_words(one, cell),
        f"{shown.epoch:,}",
        str(shown.segments[at]),
        _or_none(int(shown.positions[at]), -1),
        _or_none(int(shown.labels[at]), -100),
        f"{float(shown.weights[at]):g}",
    )


def range_words(first: int, length: int) -> str:
    """Neighbouring numbers in words.

    >>> range_words(5, 1), range_words(5, 3)
    ('5', '5–7')
    """
    return f"{first:,}" if length == 1 else f"{first:,}–{first + length - 1:,}"


def offset_words(one: Filled, cell: int) -> str:
    """The document offset of a cell in words."""
    if one.document < 0:
        return "none"
    if one.inserted:
        return "BOS" if one.start < 0 else "EOS"
    more = ", label only" if one.label_only else ", blank" if one.blank else ""
    return f"{one.start + cell - one.column:,}{more}"


def _or_none(value: int, nothing: int) -> str:
    return "none" if value == nothing else f"{value:,}"


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


def tint_legend(named: Sequence[tuple[int, str | Markup]], *more: Markup) -> Markup:
    """What the tints of cells mean, and the dotted line of context."""
    items = (
        tag("li", tag("span", class_=f"swatch t{tint}", aria_hidden="true"), words)
        for tint, words in named
    )
    return tag("ul", *items, *more, dotted_item(), class_="legend")


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
