"""What looking into a run answers, as plain records.

One idea: the unit of an answer is a stretch of cells: ``length`` cells of a frame from ``column``
on hold the tokens of a document from ``start`` on. `Example` lists the stretches of one example,
`Place` is one stretch of one document, and both are cut the same way (`tokenloom.trace.answers`),
so that every stretch of a document is found from either side.

Inserted tokens have document offsets outside the document: a BOS has -1, an EOS the number of its
tokens. A cell that is only the label of the cell before it is a stretch of its own.

Spans as stretches of cells: tokens, inserted tokens and look-ahead cells apart.

A span is cut into at most four stretches, all of them at once in arrays. Both directions
of looking use the same cut, so what one finds the other finds.

Worked example: a span of 3 tokens of a document of 8 with BOS and EOS, at cell 0 of a frame of 4
cells and a look-ahead cell::

    cell     0    1 2 3    4          column  start  length
    holds    BOS  0 1 2    EOS        0       -1     1       inserted
                                      1       0      3
                                      4       8      1       inserted, label_only
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, overload

import numpy as np

from tokenloom.arrays import Array, Bool
from tokenloom.errors import plural
from tokenloom.layout.spans import BOS, EOS, Spans
from tokenloom.store.reader import Reader

SHOWN = 8  # examples of which a person sees the spans

LETTERS = 60  # of a text, in one line


class CellRun(NamedTuple):
    """A stretch of cells of one document.

    Attributes:
        column: the first cell of the frame.
        start: the document offset of its token; -1 is an inserted BOS, the number of tokens of the
            document an inserted EOS.
        length: number of cells.
        label_only: whether it is the look-ahead cell, which is a label and never an input.
        inserted: whether it is a BOS or an EOS that is not stored.
    """

    column: int
    start: int
    length: int
    label_only: bool = False
    inserted: bool = False

    @property
    def words(self) -> str:
        """The tokens in words: "BOS", "EOS", or the first and the last document offset."""
        if self.inserted:
            return "BOS" if self.start < 0 else "EOS"
        return _range(self.start, self.length)


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSpan:
    """What one example holds of one document.

    Attributes:
        source: name of the source.
        epoch: epoch of the source.
        document: number of the document in its store.
        cells: where its tokens are, in order.
        blank: whether it is quarantined: its cells are filler without loss.
        text: its stored tokens as text, if asked for.
        metadata: what was kept about the document, if asked for.
    """

    source: str
    epoch: int
    document: int
    cells: tuple[CellRun, ...]
    blank: bool = False
    text: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def tokens(self) -> int:
        """Cells that it takes in the frame."""
        return sum(one.length for one in self.cells)

    def to_dict(self) -> dict[str, Any]:
        """The span as plain JSON."""
        return {
            "source": self.source,
            "epoch": self.epoch,
            "document": self.document,
            "cells": [one._asdict() for one in self.cells],
            "blank": self.blank,
            "text": self.text,
            "metadata": self.metadata,
        }


class Route(NamedTuple):
    """The way from an index to its row, as numbers.

    Attributes:
        stage: number of edits (and stages of weights) up to this index.
        time: virtual time of the item in the mix; None for a single source.
        item: which example of its source it is.
        epoch: the epoch of that source.
        band, lane: where it is in a block shuffle; None in other orders.
        row: the row of the layout.
    """

    stage: int
    time: float | None
    item: int
    epoch: int
    band: int | None
    lane: int | None
    row: int

    @property
    def words(self) -> str:
        """The route in one line."""
        named = {name: value for name, value in self._asdict().items() if value is not None}
        shown = ((name, f"{v:,.6g}" if name == "time" else f"{v:,}") for name, v in named.items())
        return " → ".join(f"{name} {value}" for name, value in shown)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Example:
    """One example: what it holds and how it came to be there.

    Attributes:
        index: its index in the run.
        source: name of its source.
        width: cells of the frame, including a look-ahead cell.
        route: the way there.
        spans: its documents, in the order of their cells; other cells are filler.
        step: the step that trains it, with a batch size; None without one.
        row: its row of that step.
    """

    index: int
    source: str
    width: int
    route: Route
    spans: tuple[TracedSpan, ...]
    step: int | None = None
    row: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The example as plain JSON."""
        return {
            "index": self.index,
            "step": self.step,
            "row": self.row,
            "source": self.source,
            "width": self.width,
            "route": self.route._asdict(),
            "spans": [span.to_dict() for span in self.spans],
        }

    def __repr__(self) -> str:
        step = "" if self.step is None else f" (step {self.step:,}, row {self.row:,})"
        head = f"Example {self.index:,}{step}: source {self.source}, epoch {self.route.epoch:,}"
        table = [("cells", "document", "tokens", ""), *self._lines()]
        sizes = [max(len(line[k]) for line in table) for k in range(3)]
        lines = [
            "  ".join([*(one.ljust(size) for one, size in zip(line, sizes, strict=False)), line[3]])
            for line in table
        ]
        return "\n".join([head, f"  {self.route.words}", *(f"  {one.rstrip()}" for one in lines)])

    def _lines(self) -> Iterator[tuple[str, str, str, str]]:
        """Cells, document, tokens and a remark, from the first cell to the last."""
        done = 0
        for span in self.spans:
            for number, one in enumerate(span.cells):
                if one.column > done:
                    yield _filler(done, one.column)
                done = one.column + one.length
                cells, document = _range(one.column, one.length), f"{span.document:,}"
                yield cells, document, one.words, _remark(span, number)
        if done < self.width:
            yield _filler(done, self.width)


def _filler(first: int, last: int) -> tuple[str, str, str, str]:
    return _range(first, last - first), "", "filler", ""


def _range(first: int, length: int) -> str:
    return f"{first:,}" if length == 1 else f"{first:,}–{first + length - 1:,}"


def _remark(span: TracedSpan, number: int) -> str:
    """What else there is to say about a stretch; the text is said once."""
    said = ["blank (quarantined)"] if span.blank else []
    said += ["label only"] if span.cells[number].label_only else []
    if span.text is not None and not number:
        short = span.text[:LETTERS] + ("…" if len(span.text) > LETTERS else "")
        said.append(repr(short))
    if span.metadata is not None and not number:
        said.append(str(span.metadata)[:LETTERS])
    return ", ".join(said)


@dataclass(frozen=True, slots=True, repr=False)
class Examples(Sequence[Example]):
    """Several examples, in the order asked for.

    Attributes:
        examples: the examples.
    """

    examples: tuple[Example, ...]

    def __len__(self) -> int:
        return len(self.examples)

    @overload
    def __getitem__(self, place: int) -> Example: ...

    @overload
    def __getitem__(self, place: slice) -> Examples: ...

    def __getitem__(self, place: int | slice) -> Example | Examples:
        if isinstance(place, slice):
            return Examples(self.examples[place])
        return self.examples[place]

    def to_dict(self) -> list[dict[str, Any]]:
        """The examples as plain JSON."""
        return [one.to_dict() for one in self.examples]

    def __repr__(self) -> str:
        left = len(self) - SHOWN
        more = [f"… and {plural(left, 'example')} more"] if left > 0 else []
        return "\n".join([plural(len(self), "example"), *map(repr, self.examples[:SHOWN]), *more])


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Place:
    """A stretch of cells that holds tokens of a document.

    Attributes:
        index: the example.
        source: name of the source.
        document: number of the document in its store.
        epoch: epoch of the source.
        column, start, length, label_only, inserted: see `CellRun`.
        blank: whether the document is quarantined there: the cells are filler without loss.
        step: the step that trains the example, with a batch size; None without one.
        row: its row of that step.
    """

    index: int
    source: str
    document: int
    epoch: int
    column: int
    start: int
    length: int
    label_only: bool
    inserted: bool
    blank: bool
    step: int | None = None
    row: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The place as plain JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        step = "" if self.step is None else f" (step {self.step:,}, row {self.row:,})"
        cells, tokens = _range(self.column, self.length), _range(self.start, self.length)
        hold = f"cell {cells} holds token" if self.length == 1 else f"cells {cells} hold tokens"
        if self.inserted:
            hold, tokens = f"cell {cells} holds", "BOS" if self.start < 0 else "EOS"
        said = [word for word in ("blank", "label_only") if getattr(self, word)]
        return (
            f"Place {self.index:,}{step}: {hold} {tokens} of {self.source} document "
            f"{self.document:,}, epoch {self.epoch:,}"
            + "".join(f", {word.replace('_', ' ')}" for word in said)
        )


@dataclass(frozen=True, slots=True, repr=False)
class Nowhere:
    """No place: it is false, and says why.

    Attributes:
        reason: why there is none.
    """

    reason: str

    def __bool__(self) -> bool:
        return False

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON."""
        return {"reason": self.reason}

    def __repr__(self) -> str:
        return f"Nowhere: {self.reason}"


class CellRuns(NamedTuple):
    """Stretches of cells, in order of their spans and columns.

    Attributes:
        span: the span of each [N].
        column, start, length, label_only, inserted: see `tokenloom.trace.answers.CellRun` [N].
    """

    span: Array
    column: Array
    start: Array
    length: Array
    label_only: Array
    inserted: Array

    def only(self, keep: Bool) -> CellRuns:
        """Some of them."""
        return CellRuns(*(column[keep] for column in self))

    def clipped(self, first: int, last: int) -> CellRuns:
        """The parts that hold document offsets [first, last)."""
        low = np.maximum(self.start, first)
        length = np.minimum(self.start + self.length, last) - low
        moved = self._replace(column=self.column + low - self.start, start=low, length=length)
        return moved.only(length > 0)


def cell_runs(spans: Spans, seq_len: int, reader: Reader) -> CellRuns:
    """The stretches of all spans.

    Args:
        spans: the spans.
        seq_len: cells of the frame without the look-ahead cell.
        reader: the store of their documents.
    """
    bos = (spans.flags & BOS) > 0
    eos = (spans.flags & EOS) > 0
    every = np.arange(len(spans.document))
    ends = np.zeros_like(every)
    if eos.any():
        begin, end = reader.bounds(spans.document[eos])
        ends[eos] = end - begin
    column = spans.at + bos
    inside = np.clip(seq_len - column, 0, spans.length)  # stored tokens before the look-ahead cell
    one = np.ones_like(every)
    kinds = [  # (which, column, start, length, inserted), in order of columns
        (bos, spans.at, -one, one, True),
        (inside > 0, column, spans.start, inside, False),
        (
            spans.length > inside,
            column + inside,
            spans.start + inside,
            spans.length - inside,
            False,
        ),
        (eos, column + spans.length, ends, one, True),
    ]
    parts = [
        (every[keep], at[keep], start[keep], length[keep], np.full(int(keep.sum()), inserted))
        for keep, at, start, length, inserted in kinds
    ]
    span, at, start, length, inserted = (np.concatenate(one) for one in zip(*parts, strict=True))
    order = np.lexsort((at, span))
    span, at, start, length, inserted = (x[order] for x in (span, at, start, length, inserted))
    return CellRuns(span, at, start, length, at >= seq_len, inserted)
