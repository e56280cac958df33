"""From a document to the places where it is trained: `places_of`.

One idea: a layout knows the rows that hold a document (`Layout.find`), every order has an inverse,
and a mix knows when an item comes. So places are computed epoch by epoch, a few items at a time, in
order of index, and nothing is searched. Only where a rule mixes items of a block, or a mix is
shuffled as a whole, places wait until no earlier one can come.

Whether any row can show a document, and why not.

What a layout leaves out follows from lengths and settings, so a document that no row of
any epoch holds is told at once, with the setting that keeps it out, instead of being looked for in
an endless run.

`Offsets` are document offsets [first, last); an inserted BOS has offset -1, an EOS the number of
tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Array, Int64
from tokenloom.errors import plural
from tokenloom.layout.joined import Joined
from tokenloom.layout.layout import Layout
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.windows import Windows
from tokenloom.limits import limits
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.schedule import Steps, rows_in_steps
from tokenloom.trace.answers import Place, cell_runs

Offsets = tuple[int, int]

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

    example: Array
    epoch: Array
    column: Array
    start: Array
    length: Array
    label_only: Array
    inserted: Array
    blank: Array

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
    last, parts = int(phases.epoch[-1]), len(layout.phases)  # the epochs from `last` on are alike
    goes_on = parts == 1 or can_show(layout, parts - 1, asked.document, asked.tokens)
    for epoch in itertools.count(first) if asked.epochs is None else asked.epochs:
        if epoch < first:
            continue
        if not asked.reaches(epoch) or (epoch >= last and not goes_on):
            return
        yield epoch


def can_show(layout: Layout, phase: int, document: int, tokens: Offsets | None) -> bool:
    """Whether a row of an epoch of a phase holds a document, or some of these tokens of it.

    Args:
        layout: the layout.
        phase: number of the phase.
        document: its number in the store.
        tokens: document offsets; None for any.
    """
    if isinstance(layout, Spliced):
        return _is_spliced(layout, phase, document, tokens)
    rows = layout.find(0, document)
    if tokens is None or not len(rows):
        return bool(len(rows))
    low, high = _in_rows(layout, document, rows)
    return bool(((low < tokens[1]) & (high > tokens[0])).any())


def _in_rows(layout: Layout, document: int, rows: Int64) -> tuple[Int64, Int64]:
    """The document offsets of the stretches of a document in some rows of a constant layout [N]."""
    spans = layout.spans(0, rows)
    cut = cell_runs(spans.where(spans.document == document), layout.seq_len, layout.line.reader)
    return cut.start, cut.start + cut.length


def _is_spliced(layout: Spliced, phase: int, document: int, tokens: Offsets | None) -> bool:
    part = layout.parts[phase]
    for place in layout.line.places(document).tolist():
        if not part.quota[place]:
            continue
        if tokens is None:
            return True
        low, high = _choices(part, place, layout.lead)
        end = int(part.length[place]) - layout.lead
        # a ring continues after the end with its first token
        wraps = (low < tokens[1] + end + layout.lead) & (high > tokens[0] + end + layout.lead)
        if (((low < tokens[1]) & (high > tokens[0])) | wraps).any():
            return True
    return False


def _choices(part: SplicePhase, place: int, lead: int) -> tuple[Int64, Int64]:
    """The document offsets of every choice that a document has [choices]."""
    choices, count = part.choices_of(place), int(part.choices[place])
    length = np.full(count, part.length[place])
    found = choices.splice(*choices.place(np.arange(count), length), length)
    return found.start - lead, found.start - lead + found.length


def why_never(layout: Layout, document: int, tokens: Offsets | None) -> str | None:
    """Why no row of any epoch shows a document, or these tokens of it; None if one does."""
    phases = len(layout.parts) if isinstance(layout, Spliced) else 1
    if any(can_show(layout, phase, document, tokens) for phase in range(phases)):
        return None
    line = layout.line
    places = line.places(document).tolist()
    if not places:
        every = line.reader.manifest.documents
        return (
            f"document {document:,} is not selected: the source takes {line.documents:,} of the "
            f"{plural(every, 'document')} of its store."
        )
    begin, end = line.bounds(places[0], places[0] + 1)[1].tolist()
    if begin == end:
        return f"document {document:,} is empty: it has no token to show."
    size = end - begin
    if tokens is not None and any(
        can_show(layout, phase, document, None) for phase in range(phases)
    ):
        return _cut_off(layout, document, size, tokens)
    return f"document {document:,}, of {plural(size, 'token')}, is " + _left_out(layout, document)


def _cut_off(layout: Layout, document: int, size: int, tokens: Offsets) -> str:
    """Why some tokens of a document that is shown are not."""
    asked = f"tokens {tokens[0]:,} to {tokens[1] - 1:,} of document {document:,}"
    if tokens[0] >= size + 1 or tokens[1] <= -1:
        return f"{asked} do not exist: it has {plural(size, 'token')}."
    if isinstance(layout, Spliced):
        return f"{asked} are cut off: no start of a splice shows them."
    low, high = _in_rows(layout, document, layout.find(0, document))
    shown = f"{int(low.min()):,} to {int(high.max()) - 1:,}"
    return f"{asked} are cut off: rows have its tokens {shown} only."


def _left_out(layout: Layout, document: int) -> str:
    """What a layout does with a document that it does not show."""
    if isinstance(layout, Joined):
        parts = [part for part in layout.parts if len(part.line.places(document))]
        return _left_out(parts[0], document)
    if isinstance(layout, Windows):
        return "in the tail: it is after the last whole row, and tail='drop' leaves that out."
    (place, *_) = layout.line.places(document).tolist()
    begin, end = layout.line.bounds(place, place + 1)[1].tolist()
    if isinstance(layout, Packed):
        return _not_packed(layout.spec, end - begin)
    assert isinstance(layout, Spliced)
    return _not_spliced(layout, place)


def _not_packed(spec: PackSpec, size: int) -> str:
    if size < spec.min_len:
        return f"dropped: min_len={spec.min_len:,} leaves it out."
    if spec.max_len is not None and size > spec.max_len:
        return f"dropped: max_len={spec.max_len:,} leaves it out."
    if spec.overflow == "drop":
        return f"dropped: it is longer than a frame of {spec.width:,} cells, and overflow='drop'."
    return f"dropped: its row has fewer than min_row_len={spec.min_row_len:,} tokens."


def _not_spliced(layout: Spliced, place: int) -> str:
    if not any(part.length[place] for part in layout.parts):
        return "not selected: the schedule of documents never takes it in."
    if not any(part.content[place] for part in layout.parts):
        spec = layout.spec
        return (
            f"dropped: it is too short for content_length={spec.content_length} and "
            f"min_copy_len={spec.min_copy_len}; adaptive_k=True would take it in."
        )
    return "left out with quota 0: its share of an epoch is less than one example."
