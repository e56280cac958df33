"""From a document to the places where it is trained: `places_of`.

One idea: a layout knows the rows that hold a document (`Layout.find`), every order has an inverse,
and a mix knows when an item comes. So places are computed epoch by epoch, a few items at a time, in
order of index, and nothing is searched. Only where a rule mixes items of a block, or a mix is
shuffled as a whole, places wait until no earlier one can come.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import plural
from tokenloom.limits import limits
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.schedule import Steps
from tokenloom.trace.answers import Place
from tokenloom.trace.cell_runs import cell_runs
from tokenloom.trace.reasons import Offsets, can_show, why_never
from tokenloom.trace.step_rows import rows_in_steps

__all__ = ["Places", "Search", "places_of"]

Int64 = NDArray[np.int64]

Column = NDArray[Any]

CELLS = ("column", "start", "length", "label_only", "inserted", "blank")  # of a place


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What is looked for, and where.

    Attributes:
        run: the run.
        number: number of the source in the run.
        document: number of the document in its store.
        tokens: only stretches that hold these document offsets, cut to them; None for all.
        epochs: epochs of the source, ascending; None for all.
        after, before: only examples with after < index < before; None has no end.
        steps: the steps to count in, for `Place.step` and `Place.row`.
    """

    run: Run
    number: int
    document: int
    tokens: Offsets | None = None
    epochs: Sequence[int] | None = None
    after: int = -1
    before: int | None = None
    steps: Steps | None = None

    @property
    def source(self) -> SourceRun:
        """The run of its source."""
        return self.run.sources[self.number]

    @property
    def first_epoch(self) -> int:
        """The first epoch that may have an example after `after`."""
        if self.after < 0:
            return 0
        begin = self.after + 1 if self.run.n is None else min(self.after + 1, self.run.n)
        return self.source.phases.place(self.run.items_before(self.number, begin))[0]

    def over(self, epochs: Sequence[int]) -> Search:
        """The same in some epochs only."""
        return replace(self, epochs=epochs)

    def reaches(self, epoch: int) -> bool:
        """Whether the run may show something of an epoch of the source, or of a later one."""
        return self.run.reaches(self.number, self.source.phases.start(epoch))

    @property
    def words(self) -> str:
        """What is looked for, in words."""
        return f"{self.source.name} document {self.document:,}"


class Places(Iterator[Place]):
    """Places in order of index, computed as they are asked for.

    Attributes:
        words: what is looked for.
        reason: why there is no place (or none at all so far); None while there may be some.

    Args:
        words: what is looked for.
        found: the places.
        reason: why there is none, if that is known.
    """

    def __init__(self, words: str, found: Iterator[Place], reason: str | None = None) -> None:
        self.words, self.reason, self._found, self._count = words, reason, found, 0

    def __iter__(self) -> Places:
        return self

    def __next__(self) -> Place:
        for place in self._found:
            self._count += 1
            return place
        if not self._count and self.reason is None:
            self.reason = f"no example in the range that was asked for shows {self.words}."
        raise StopIteration

    def to_dict(self) -> dict[str, Any]:
        """The places that are left, as plain JSON; an endless run needs a bound."""
        found = [place.to_dict() for place in self]
        return {"places": found, "reason": self.reason}

    def __repr__(self) -> str:
        if self.reason is not None:
            return f"Places of {self.words}: none, {self.reason}"
        return f"Places of {self.words}: {plural(self._count, 'place')} given, iterate for more"


class FoundRuns(NamedTuple):
    """Stretches of some items, in order of (index, column).

    Attributes:
        example: the index of each [N].
        epoch, column, start, length, label_only, inserted, blank: see `Place` [N].
    """

    example: Column
    epoch: Column
    column: Column
    start: Column
    length: Column
    label_only: Column
    inserted: Column
    blank: Column

    def only(self, keep: NDArray[np.bool_]) -> FoundRuns:
        """Some of them."""
        return FoundRuns(*(column[keep] for column in self))


def places_of(asked: Search) -> Places:
    """All places of a document, in order of index; an empty answer has its reason at once."""
    reason, n = why_never(asked.source.layout, asked.document, asked.tokens), asked.run.n
    if n == 0 and reason is None:
        reason = "the run has no examples."
    elif n is not None and asked.after + 1 >= n and reason is None:
        reason = f"the run ends before {asked.after + 1:,}."
    found = iter(()) if reason is not None else _places(asked)
    return Places(asked.words, found, reason)


def _places(asked: Search) -> Iterator[Place]:
    """The places, as soon as no earlier one can come."""
    held: list[FoundRuns] = []
    for found in _by_item(asked):
        held.append(found)
        ready = asked.run.settled(int(found.example.max()))
        together = _sorted(held)
        now = together.example < ready
        yield from _records(asked, together.only(now))
        held = [] if now.all() else [together.only(~now)]
    if held:
        yield from _records(asked, _sorted(held))


def _sorted(parts: Sequence[FoundRuns]) -> FoundRuns:
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[2], columns[0]))
    return FoundRuns(*(column[order] for column in columns))


def _records(asked: Search, found: FoundRuns) -> Iterator[Place]:
    inside = found.example > asked.after
    if asked.before is not None:
        inside &= found.example < asked.before
    found = found.only(inside)
    name, steps = asked.source.name, asked.steps
    rows: Sequence[tuple[int | None, int | None]] = [(None, None)] * len(found.example)
    if steps is not None:
        rows = rows_in_steps(asked.run, steps, found.example)
    lines = zip(*(column.tolist() for column in found), strict=True)
    for (index, epoch, *rest), (step, row) in zip(lines, rows, strict=True):
        yield Place(
            index=index,
            source=name,
            document=asked.document,
            epoch=epoch,
            **dict(zip(CELLS, rest, strict=True)),
            step=step,
            row=row,
        )


def _by_item(asked: Search) -> Iterator[FoundRuns]:
    """The stretches of some items at a time, in the order of the items of the source."""
    run, source = asked.run, asked.source
    for epoch in _epochs(asked):
        rows = source.layout.find(epoch, asked.document)
        item = source.items(epoch, rows)
        order = np.argsort(item, kind="stable")[int((item < 0).sum()) :]
        low, size, most = 0, limits().searched_first_items, limits().searched_chunk_items
        while low < len(order):
            some = order[low : low + size]
            index = run.index(asked.number, item[some])
            comes = index >= 0
            some, index, low, size = some[comes], index[comes], low + size, min(4 * size, most)
            if not len(some):
                continue
            found = _found(asked, epoch, rows[some], item[some], index)
            if len(found.example):
                yield found
            if asked.before is not None and run.settled(int(index.max())) > asked.before:
                return


def _found(asked: Search, epoch: int, rows: Int64, item: Int64, index: Int64) -> FoundRuns:
    """The stretches of a document in some rows, which come at these indices."""
    source = asked.source
    spans = source.layout.spans(epoch, rows)
    spans = spans.where(spans.document == asked.document)
    cut = cell_runs(spans, source.seq_len, source.layout.line.reader)
    if asked.tokens is not None:
        cut = cut.clipped(*asked.tokens)
    row = spans.row[cut.span]
    blank = np.zeros(len(row), np.bool_)
    if source.blanks is not None:
        blank = source.blanks.covers(np.full(len(row), asked.document), item[row])
    return FoundRuns(index[row], np.full(len(row), epoch), *cut[1:], blank)


def _epochs(asked: Search) -> Iterator[int]:
    """The epochs that may show the document, ascending, until the run ends."""
    phases, layout, first = asked.source.phases, asked.source.layout, asked.first_epoch
    last = int(phases.epoch[-1])  # the epochs from here on are alike
    for epoch in itertools.count(first) if asked.epochs is None else asked.epochs:
        if epoch < first:
            continue
        if not asked.reaches(epoch):
            return
        if epoch >= last and not can_show(layout, _phase(asked), asked.document, asked.tokens):
            return
        yield epoch


def _phase(asked: Search) -> int:
    """The last phase of the layout; a source that grew has a single one."""
    return len(asked.source.layout.phases) - 1
