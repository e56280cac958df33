"""Coverage: how often each token of a document is context and target, and each start is shown.

A span is an interval of its document, so counts are sums of intervals: +1 where it starts, -1 after
its end, and one running sum after all rows have been visited. That takes three integers for each
token of the requested documents, whatever the number of examples.

A token is *context* wherever it is in a frame, and a *target* where its prediction is trained. The
first token of a splice is not a target, because no token precedes it, unless BOS is inserted; a
token that the store's loss columns leave out never is. Exclusions by `ignore_id` or `train_on_eos`
are ignored: no token is read.

Measured: 10^7 splices of one document in 1.7 s of one shared core.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import check_between
from tokenloom.arrays import Int64
from tokenloom.errors import plural
from tokenloom.inspect.picture import (
    COLUMNS,
    LINES,
    Axis,
    Grid,
    bars,
    draw,
    even_bins,
    exact_bins,
    heat_lines,
    table,
)
from tokenloom.inspect.splices import examples_of, rows_of, spliced
from tokenloom.layout.spans import BOS, JOINED, Spans
from tokenloom.layout.splice.rows import Spliced
from tokenloom.order.working_set import loss_columns

Bool = NDArray[np.bool_]

BINS = 128, 128  # default bins of a grid: starts, offsets

MAP_BINS = 64, 16  # characters of a map

BAR = 32  # characters of a histogram of starts

LISTED = 40  # documents in a table

HEAD = ("document", "length", "splices", "targets min", "mean", "max", "CV", "starts shown")


class Starts(NamedTuple):
    """Starts of a document.

    Attributes:
        t: every possible start, ascending [T].
        shown: how often each is shown [T].
    """

    t: Int64
    shown: Int64


def coverage(ds: Dataset, *, documents: Iterable[int] | None = None, epochs: int = 1) -> Coverage:
    """What the first epochs of a spliced dataset show of each document.

    Splices are counted one by one; that takes 24 bytes of memory for each token.

    Args:
        ds: a spliced dataset.
        documents: numbers in the store; default: all documents of the dataset.
        epochs: number of epochs, from the first on; no more than the dataset has.

    Raises:
        ConfigError: the dataset is not spliced.
        IndexError: a document is not in the dataset.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefg"}], folder + "/toy", tokenizer="bytes")
    ...     found = coverage(store.splice(8, content_length=4))
    ...     found.targets(0).tolist(), found.starts(0).shown.tolist()
    ([0, 1, 2, 3, 3, 2, 1], [1, 1, 1, 1])
    """
    layout, examples = spliced(ds), examples_of(ds, epochs)
    every, edges = layout.line.bounds(0, layout.line.documents)
    lengths = np.diff(edges)
    if documents is not None:
        asked = list(dict.fromkeys(documents))
        place = {document: place for place, document in enumerate(every.tolist())}
        for document in asked:
            if document not in place:
                raise IndexError(_unknown(document, len(every)))
        here = np.array([place[document] for document in asked], np.int64)
        every, lengths = every[here], lengths[here]
    (source,) = ds.sources.values()
    counts = _count(ds, every, lengths, examples)
    most = source.config.epochs
    epochs = epochs if most is None else min(epochs, most)
    return Coverage(dataset=ds, epochs=epochs, examples=examples, counts=counts)


def _unknown(document: int, among: int) -> str:
    return f"document {document}: it is not among the {plural(among, 'document')} of this coverage."


def _find(documents: Int64, document: int) -> int:
    """The place of a document; -1 if it is not among them. Documents usually ascend."""
    guess = int(np.searchsorted(documents, document))
    if guess < len(documents) and documents[guess] == document:
        return guess
    found = np.flatnonzero(documents == document)
    return int(found[0]) if len(found) else -1


def _variation(found: Int64) -> float:
    """Standard deviation over mean; NaN if that is not defined."""
    mean = float(found.mean()) if len(found) else 0.0
    return float(found.std()) / mean if mean else float("nan")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True, repr=False)
class Coverage:
    """What some epochs show of each document; `print` it for a table.

    Attributes:
        dataset: the dataset that was counted.
        epochs: number of epochs, from the first on.
        examples: frames in them.
        counts: counts of all documents.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefg"}], folder + "/toy", tokenizer="bytes")
    ...     found = coverage(store.splice(8, content_length=4))
    ...     print(found.lines()[0])
    ...     found.context(0).tolist(), found.starts(0).t.tolist()
    1 epoch, 4 examples: 4 splices of 1 document
    ([1, 2, 3, 4, 3, 2, 1], [0, 1, 2, 3])
    """

    dataset: Dataset
    epochs: int
    examples: int
    counts: _Counts

    # -- arrays ----------------------------------------------------------------------------

    @property
    def documents(self) -> Int64:
        """Their numbers in the store [N]."""
        return self.counts.documents

    @property
    def lengths(self) -> Int64:
        """Tokens of each document [N]."""
        return self.counts.lengths

    @property
    def splices(self) -> Int64:
        """How often each document is shown [N]."""
        return self.counts.splices

    def context(self, document: int) -> Int64:
        """How often each token of a document is in a frame [L]."""
        counts, place = self.counts, self._place(document)
        return counts.of(counts.context, place)

    def targets(self, document: int) -> Int64:
        """How often the prediction of each token of a document is trained [L]."""
        counts, place = self.counts, self._place(document)
        found = counts.of(counts.targets, place)
        allowed = self._allowed(document)
        return found if allowed is None else np.where(allowed, found, 0)

    def _allowed(self, document: int) -> NDArray[np.bool_] | None:
        """Which tokens the loss columns of the store train [L]; None: it has none."""
        reader = spliced(self.dataset).line.reader
        names = loss_columns(reader)
        if not names:
            return None
        (start,), (stop,) = (edge.tolist() for edge in reader.bounds(np.array([document])))
        columns = [reader.read_one(start, stop, name) > 0 for name in names]
        trained: NDArray[np.bool_] = np.logical_and.reduce(columns)
        return trained

    def trained(self, document: int) -> Int64:
        """Target counts of the tokens that can be one: by place, and by the loss columns."""
        (source,) = self.dataset.sources.values()
        spec, render = spliced(self.dataset).spec, source.render
        across = spec.fill == "pack" and not render.mask_boundary_loss
        every = spec.bos_id is not None or spec.roll_loss or across
        counts, place = self.counts, self._place(document)
        found, allowed = counts.of(counts.targets, place), self._allowed(document)
        possible = slice(0 if every else 1, None)
        return found[possible] if allowed is None else found[possible][allowed[possible]]

    def variation(self, document: int) -> float:
        """Coefficient of variation of `trained`: 0 if every token is a target equally often."""
        return _variation(self.trained(document))

    def starts(self, document: int) -> Starts:
        """Every start of a document, and how often it is shown."""
        counts, place = self.counts, self._place(document)
        t = self._all_starts(document)
        return Starts(t, counts.starts[counts.zero[place] + t])

    def grid(self, document: int, bins: tuple[int, int] | None = None) -> Grid:
        """How often splices of a document start at t and are placed at s.

        Args:
            document: its number in the store.
            bins: number of bins for starts and for offsets, at most one per value; default: up to
                128 each, all of one size but the last.
        """
        if bins is None:
            return self._even_grid(document, *BINS)
        check_between("bins", min(bins), 1, why=" of each")
        t, s = self._values(document)
        axes = exact_bins(t, bins[0]), exact_bins(s, bins[1])
        return _count_grid(self.dataset, document, self.examples, *axes)

    def _even_grid(self, document: int, n_t: int, n_s: int) -> Grid:
        t, s = self._values(document)
        axes = even_bins(t, n_t), even_bins(s, n_s)
        return _count_grid(self.dataset, document, self.examples, *axes)

    def _values(self, document: int) -> tuple[Int64, Int64]:
        """All possible starts and offsets."""
        layout = spliced(self.dataset)
        self._place(document)
        return self._all_starts(document), _offsets_of(layout)

    def _all_starts(self, document: int) -> Int64:
        layout = spliced(self.dataset)
        return _starts_of(layout, _find(layout.documents, document), self.examples)

    def _place(self, document: int) -> int:
        found = _find(self.documents, document)
        if found < 0:
            raise IndexError(_unknown(document, len(self.documents)))
        return found

    # -- for people ------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, most: int = LISTED) -> list[str]:
        """A table with one line per document; bars show how often its starts are shown."""
        hidden, left = int((self.splices == 0).sum()), len(self.documents) - most
        head = f"{plural(self.epochs, 'epoch')}, {plural(self.examples, 'example')}: "
        head += f"{plural(int(self.splices.sum()), 'splice')} of "
        head += plural(len(self.documents), "document")
        head += f"; not shown: {plural(hidden, 'document')}" if hidden else ""
        rows = [self._row(document) for document in self.documents[:most].tolist()]
        more = [f"… {plural(left, 'more document')}"] if left > 0 else []
        return [head, *table([(*HEAD, "starts t"), *rows]), *more]

    def _row(self, document: int) -> tuple[str, ...]:
        about, starts = self.about(document), self.starts(document)
        targets, drawn = about["targets"], ""
        if len(starts.t):
            axis = even_bins(starts.t, BAR)
            shown = np.add.reduceat(starts.shown, np.cumsum(axis.size) - axis.size)
            drawn = f"{starts.t[0]:,} {bars(shown / axis.size)} {starts.t[-1]:,}"
        return (
            f"{document:,}",
            f"{about['length']:,}",
            f"{about['splices']:,}",
            f"{targets['min']:,}",
            f"{targets['mean']:,.1f}",
            f"{targets['max']:,}",
            "-" if targets["cv"] is None else f"{targets['cv']:.3f}",
            f"{about['starts_shown']:,} of {about['starts']:,}",
            drawn,
        )

    def map(self, document: int) -> str:
        """The counts over (t, s) as characters: t from left to right, s from below."""
        return "\n".join(heat_lines(self._even_grid(document, *MAP_BINS)))

    def svg(self, document: int) -> str:
        """A picture: counts over (t, s), targets over the document, offsets over the frame."""
        about = self.about(document)
        counted = f"{plural(about['splices'], 'splice')} in {plural(self.epochs, 'epoch')}"
        targets = about["targets"]
        said = f"targets of a token: {targets['min']:,} to {targets['max']:,}"
        said += f", mean {targets['mean']:,.1f}"
        even = "" if targets["cv"] is None else f"coefficient of variation {targets['cv']:.3f}; "
        return draw(
            title=f"Document {document:,}: {plural(about['length'], 'token')}, {counted}",
            caption=(
                said,
                f"{even}starts shown: {about['starts_shown']:,} of {about['starts']:,}",
            ),
            grid=self._even_grid(document, COLUMNS, LINES),
            targets=self.targets(document),
            seq_len=self.dataset.seq_len,
        )

    def about(self, document: int) -> dict[str, Any]:
        """The line of a document as plain JSON; undefined values are None."""
        place, found, starts = self._place(document), self.trained(document), self.starts(document)
        variation = _variation(found)
        return {
            "document": int(document),
            "length": int(self.lengths[place]),
            "splices": int(self.splices[place]),
            "targets": {
                "min": int(found.min()) if len(found) else 0,
                "mean": float(found.mean()) if len(found) else 0.0,
                "max": int(found.max(initial=0)),
                "cv": None if np.isnan(variation) else variation,
            },
            "starts": len(starts.t),
            "starts_shown": int((starts.shown > 0).sum()),
        }

    def as_json(self) -> dict[str, Any]:
        """The whole table as JSON."""
        return {
            "epochs": self.epochs,
            "examples": self.examples,
            "splices": int(self.splices.sum()),
            "documents": [self.about(document) for document in self.documents.tolist()],
        }


# -- counting ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class _Counts:
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
    def none(documents: Int64, lengths: Int64, reach: Int64) -> _Counts:
        """All counts 0; starts may be up to `reach` tokens before a document [N]."""
        slots, begins = np.cumsum(lengths + 1), np.cumsum(lengths + reach)
        size, starts = (int(ends[-1]) if len(ends) else 0 for ends in (slots, begins))
        return _Counts(
            documents=documents,
            lengths=lengths,
            splices=np.zeros_like(lengths),
            first=slots - lengths - 1,
            zero=begins - lengths,
            context=np.zeros(size, np.int64),
            targets=np.zeros(size, np.int64),
            starts=np.zeros(starts, np.int64),
        )

    def frozen(self) -> _Counts:
        """The same; nobody can change them by mistake any more."""
        for counts in (self.splices, self.context, self.targets, self.starts):
            counts.flags.writeable = False
        return self

    def of(self, counts: Int64, place: int) -> Int64:
        """The counts of one document, by token [L]."""
        first = int(self.first[place])
        return counts[first : first + int(self.lengths[place])]


def _count(ds: Dataset, documents: Int64, lengths: Int64, examples: int) -> _Counts:
    """What the first examples show of these documents.

    Args:
        ds: a spliced dataset.
        documents: numbers in the store, each once [N].
        lengths: tokens of each [N].
        examples: number of examples, from index 0 on.
    """
    layout = spliced(ds)
    made = _Counts.none(documents, lengths, _reach_of(layout, documents))
    order = np.argsort(documents)
    known = documents[order]
    across = not next(iter(ds.sources.values())).render.mask_boundary_loss
    asked = None if len(documents) == len(layout.documents) else documents.tolist()
    for epoch, rows in rows_of(ds, examples, asked):
        spans = layout.spans(epoch, rows)
        place, here = _located(known, order, spans.document)
        first = (made.first[place] + spans.start)[here]
        begin = _first_target(spans, across)[here]
        length = spans.length[here]
        _add_intervals(made.context, first, first + length)
        _add_intervals(made.targets, first + begin, first + length)
        _, document, t, _ = layout.triples(epoch, rows)
        place, here = _located(known, order, document)
        np.add.at(made.splices, place[here], 1)
        np.add.at(made.starts, (made.zero[place] + t)[here], 1)
    for counts in (made.context, made.targets):
        np.cumsum(counts, out=counts)
    return made.frozen()


def _reach_of(layout: Spliced, documents: Int64) -> Int64:
    """How many tokens before each document a window may start [N]."""
    spec = layout.spec
    reach = np.zeros(len(layout.documents), np.int64)
    if spec.edge == "clip":
        content = np.max([part.content for part in layout.parts], axis=0)
        reach = np.maximum(content - spec.min_copy_len, 0)
    order = np.argsort(layout.documents)
    place, _ = _located(layout.documents[order], order, documents)
    found: Int64 = reach[place] + layout.lead
    return found


def _located(known: Int64, order: Int64, documents: Int64) -> tuple[Int64, Bool]:
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
def _starts_of(layout: Spliced, place: int, examples: int) -> Int64:
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


def _offsets_of(layout: Spliced) -> Int64:
    """Every frame offset, or only those that are swept [n]."""
    spec = layout.spec
    swept = spec.sweeps and spec.grid is None
    return np.arange(0, spec.seq_len, spec.offset_stride if swept else 1)


def _count_grid(ds: Dataset, document: int, examples: int, t: Axis, s: Axis) -> Grid:
    """How often the first examples show a document from t at s, in bins."""
    layout = spliced(ds)
    counts = np.zeros(len(t) * len(s), np.int64)
    for epoch, rows in rows_of(ds, examples, [document]):
        shown = layout.triples(epoch, rows)
        here = shown.document == document
        start, offset = shown.t[here], shown.s[here]
        counts += np.bincount(t.of(start) * len(s) + s.of(offset), minlength=len(counts))
    return Grid(t, s, counts.reshape(len(t), len(s)))
