"""Counts of spliced tokens: how often each is context and target, and each start is shown.

One idea: a span is an interval of its document, so counts are sums of intervals: +1 where it
starts, -1 after its end, and one running sum after all rows have been visited. That takes three
integers per token of the requested documents, whatever the number of examples.

Measured: 10^7 splices of one document in 1.7 s of one shared core.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.inspect.grids import Axis, Grid
from tokenloom.inspect.splices import rows_of, spliced
from tokenloom.layout.spans import BOS, JOINED, Spans
from tokenloom.layout.splice.rows import Spliced

__all__ = [
    "Counts",
    "all_offsets",
    "all_starts",
    "count",
    "count_grid",
    "locate_documents",
    "reach_of",
]

Int64 = NDArray[np.int64]

Bool = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Counts:
    """Counts of some documents, end to end.

    Attributes:
        documents: their numbers in the store [N].
        lengths: tokens of each [N].
        splices: how often each is shown [N].
        first: the slot of token 0 of each; the slot after its last token is unused [N].
        zero: the slot of start 0 of each; starts before the document are in slots before it [N].
        context, targets: counts by token [slots].
        starts: counts by start [slots of starts].
    """

    documents: Int64
    lengths: Int64
    splices: Int64
    first: Int64
    zero: Int64
    context: Int64
    targets: Int64
    starts: Int64

    @staticmethod
    def none(documents: Int64, lengths: Int64, reach: Int64) -> Counts:
        """All counts 0; starts may be up to `reach` tokens before a document [N]."""
        slots, begins = np.cumsum(lengths + 1), np.cumsum(lengths + reach)
        size, starts = (int(ends[-1]) if len(ends) else 0 for ends in (slots, begins))
        return Counts(
            documents=documents,
            lengths=lengths,
            splices=np.zeros_like(lengths),
            first=slots - lengths - 1,
            zero=begins - lengths,
            context=np.zeros(size, np.int64),
            targets=np.zeros(size, np.int64),
            starts=np.zeros(starts, np.int64),
        )

    def frozen(self) -> Counts:
        """The same; nobody can change them by mistake any more."""
        for counts in (self.splices, self.context, self.targets, self.starts):
            counts.flags.writeable = False
        return self

    def near(self, place: int) -> tuple[Counts, int]:
        """Counts that have a document, and its place in them: these, and its place here."""
        return self, place

    def of(self, counts: Int64, place: int) -> Int64:
        """The counts of one document, by token [L]."""
        first = int(self.first[place])
        return counts[first : first + int(self.lengths[place])]


def count(ds: Dataset, documents: Int64, lengths: Int64, examples: int) -> Counts:
    """What the first examples show of these documents.

    Args:
        ds: a spliced dataset.
        documents: numbers in the store, each once [N].
        lengths: tokens of each [N].
        examples: number of examples, from index 0 on.
    """
    layout = spliced(ds)
    made = Counts.none(documents, lengths, reach_of(layout, documents))
    order = np.argsort(documents)
    known = documents[order]
    across = not next(iter(ds.sources.values())).render.mask_boundary_loss
    asked = None if len(documents) == len(layout.documents) else documents.tolist()
    for epoch, rows in rows_of(ds, examples, asked):
        spans = layout.spans(epoch, rows)
        place, here = locate_documents(known, order, spans.document)
        first = (made.first[place] + spans.start)[here]
        begin = _first_target(spans, across)[here]
        length = spans.length[here]
        _add_intervals(made.context, first, first + length)
        _add_intervals(made.targets, first + begin, first + length)
        _, document, t, _ = layout.triples(epoch, rows)
        place, here = locate_documents(known, order, document)
        np.add.at(made.splices, place[here], 1)
        np.add.at(made.starts, (made.zero[place] + t)[here], 1)
    for counts in (made.context, made.targets):
        np.cumsum(counts, out=counts)
    return made.frozen()


def reach_of(layout: Spliced, documents: Int64) -> Int64:
    """How many tokens before each document a window may start [N]."""
    spec = layout.spec
    reach = np.zeros(len(layout.documents), np.int64)
    if spec.edge == "clip":
        content = np.max([part.content for part in layout.parts], axis=0)
        reach = np.maximum(content - spec.min_copy_len, 0)
    order = np.argsort(layout.documents)
    place, _ = locate_documents(layout.documents[order], order, documents)
    found: Int64 = reach[place] + layout.lead
    return found


def locate_documents(known: Int64, order: Int64, documents: Int64) -> tuple[Int64, Bool]:
    """The place of each document, and whether it has one; `known` are sorted [N]."""
    if not len(known):
        return np.zeros_like(documents), np.zeros(len(documents), np.bool_)
    at = np.minimum(np.searchsorted(known, documents), len(known) - 1)
    return order[at], known[at] == documents


def _first_target(spans: Spans, across: bool) -> Int64:
    """The first token of each span that is a target, counted from the span's first [spans].

    Args:
        spans: spans of some rows.
        across: whether a document's first token is predicted from the document before it.
    """
    led = (spans.flags & JOINED) > 0
    if across:
        row, end = spans.row, spans.at + spans.cells
        led[1:] |= (row[1:] == row[:-1]) & (spans.at[1:] == end[:-1])
    cells = np.maximum(spans.seen, ~led)  # leading cells whose prediction does not count
    found: Int64 = np.clip(cells - ((spans.flags & BOS) > 0), 0, spans.length)
    return found


def _add_intervals(counts: Int64, start: Int64, stop: Int64) -> None:
    """Mark where intervals start and end; a running sum turns the marks into counts."""
    np.add.at(counts, start, 1)
    np.add.at(counts, stop, -1)


# -- what is possible ----------------------------------------------------------------------
def all_starts(layout: Spliced, place: int, examples: int) -> Int64:
    """Every start that the first examples can show of a document, ascending [T].

    Args:
        layout: says what is shown.
        place: the document, by its place on the line.
        examples: number of examples, from index 0 on.
    """
    found = [np.empty(0, np.int64)]
    for part, first in zip(layout.parts, layout.phases.first.tolist(), strict=True):
        if first >= examples or not part.choices[place]:
            continue
        choices = part.choices_of(place)
        length = part.length[place : place + 1]
        numbers = np.arange(int(choices.place(choices.count(length) - 1, length)[0][0]) + 1)
        at_once = choices.splice(numbers, 0 * numbers, np.full_like(numbers, length[0]))
        found.append(at_once.t - layout.lead)
    return found[-1] if len(found) <= 2 else np.unique(np.concatenate(found))


def all_offsets(layout: Spliced) -> Int64:
    """Every frame offset, or only those that are swept [n]."""
    spec = layout.spec
    swept = spec.sweeps and spec.grid is None
    return np.arange(0, spec.seq_len, spec.offset_stride if swept else 1)


def count_grid(ds: Dataset, document: int, examples: int, t: Axis, s: Axis) -> Grid:
    """How often the first examples show a document from t at s, in bins."""
    layout = spliced(ds)
    counts = np.zeros(len(t) * len(s), np.int64)
    for epoch, rows in rows_of(ds, examples, [document]):
        shown = layout.triples(epoch, rows)
        here = shown.document == document
        start, offset = shown.t[here], shown.s[here]
        counts += np.bincount(t.of(start) * len(s) + s.of(offset), minlength=len(counts))
    return Grid(t, s, counts.reshape(len(t), len(s)))
