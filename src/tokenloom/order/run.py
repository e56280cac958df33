"""One source as a run: index → (epoch, row) → spans, and back; no token is read.

One idea: an epoch is a stretch of indices with an order of its own (`tokenloom.order.epochs`), so
an index is divided by the rows of an epoch and that epoch's order maps the remainder. Nothing else
decides what is trained on when.

`Run` is the interface that everything else uses. `SourceRun` implements it here for one source,
`tokenloom.mixture.run` for several. *Items* are the examples of one source, counted in its own
order; in a run of one source they are the examples themselves.

The run of a source whose store grew in the middle of the run.

Appended documents get rows of their own, after the existing rows
(`tokenloom.layout.joined`), and the orders of the epochs continue (`tokenloom.order.epochs`). What
was shown stays as it was.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64, checked, grouped
from tokenloom.documents.line import ChosenLine, Line, WholeLine
from tokenloom.documents.select import choose_documents
from tokenloom.documents.spec import Choice, SelectSpec
from tokenloom.errors import ConfigError
from tokenloom.layout.joined import Joined
from tokenloom.layout.layout import Layout, Phases
from tokenloom.layout.spans import Spans
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.limits import limits
from tokenloom.order.block_order import BlockOrder, golden
from tokenloom.order.costs import MOST, TokenCount
from tokenloom.order.epochs import EpochOrders, FreshEpochs, GrownEpochs
from tokenloom.order.orders import Order
from tokenloom.order.shuffle import FullShuffle, Shuffle
from tokenloom.order.spec import LayoutSpec, make_layout
from tokenloom.order.working_set import WorkingSet
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader


class Blanks(NamedTuple):
    """Documents that are no longer shown.

    Attributes:
        document: their numbers, ascending [N].
        since: the first item that leaves each one out [N].
    """

    document: Int64
    since: Int64

    def hide(self, spans: Spans, items: Int64) -> Spans:
        """The spans without those of hidden documents; their cells become filler."""
        return spans.where(~self.covers(spans.document, items[spans.row]))

    def covers(self, document: Int64, item: Int64) -> NDArray[np.bool_]:
        """Whether each document is left out of the item that would show it [N]."""
        place = np.minimum(np.searchsorted(self.document, document), len(self.document) - 1)
        hidden: NDArray[np.bool_] = self.document[place] == document
        return hidden & (item >= self.since[place])


class Consumed(NamedTuple):
    """What a run has taken from a source.

    Attributes:
        name: name of the source.
        rows: number of examples.
        tokens: stored tokens in their frames.
        epochs: number of complete epochs.
    """

    name: str
    rows: int
    tokens: int
    epochs: int


class Placed(NamedTuple):
    """The rows of one source that some examples show.

    Attributes:
        number: number of the source in its run.
        run: the run of the source.
        at: positions of its examples in the request, ascending [N]; None for all, as requested.
        item: the item of each [N].
        epoch, row: the epoch and the row of each in its layout [N].
    """

    number: int
    run: SourceRun
    at: Int64 | None
    item: Int64
    epoch: Int64
    row: Int64

    def spans(self) -> Spans:
        """The documents in each example."""
        return self.run.spans_of(self.item, self.epoch, self.row)


class Run(Protocol):
    """Given indices, answers which documents the examples hold, before any token is read.

    Attributes:
        n: total number of examples; None is endless.
        lanes: windows that are open at once, in the source that has the most.
        seq_len: tokens of a frame.
        width: cells of a frame, including the look-ahead cell if there is one.
    """

    n: int | None
    lanes: int
    seq_len: int
    width: int

    @property
    def sources(self) -> tuple[SourceRun, ...]:
        """The run of each source on its own."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sources."""

    def pick(self, indices: Int64) -> tuple[Int64, Int64]:
        """(number of the source, item) of each index [N]."""

    def index(self, source: int, items: Int64) -> Int64:
        """The index of each item of a source; -1 for items that never come [N]."""

    def reaches(self, source: int, item: int) -> bool:
        """Whether an item of a source, or a later one, may come."""

    def settled(self, index: int) -> int:
        """No later item of the source at an index comes before this one."""

    def items_before(self, source: int, index: int) -> int:
        """The number of leading items of a source that all come before an index."""

    def moment(self, source: int, item: int) -> float | None:
        """The virtual time of an item of a source; None for a run without a rule."""

    def placed(self, indices: Int64) -> list[Placed]:
        """The rows that these examples show, one record per source."""

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index, in its source [N]."""

    def spans(self, indices: Int64) -> Spans:
        """The documents in each example."""

    def consumed(self, examples: int) -> list[Consumed]:
        """What the first `examples` take from each source."""

    def tokens_in(self, examples: int) -> int:
        """Stored tokens of the first `examples`."""

    def fractions(self, indices: Int64) -> NDArray[np.float64] | None:
        """Lane over lanes of each index [N]; None for a run without lanes."""

    def fraction_period(self, first: int, last: int) -> int:
        """After how many indices the fractions of [first, last) repeat; 0 if that is not known."""

    def warn_if_too_large(self, capacity: int) -> None:
        """Warn when the shuffle windows do not fit into the cache."""


class SourceRun:
    """The run of one source; see `Run`.

    Args:
        layout: rows → spans.
        epochs: the order of every epoch.
        working: the io blocks of the layout under its shuffle.
        n: total number of examples; None is endless.
        blanks: documents that are left out, and from which item on.

    Attributes:
        name: name of the source.
        rows: rows of one epoch; if phases differ, of the last one.
    """

    def __init__(
        self,
        layout: Layout,
        epochs: EpochOrders,
        working: WorkingSet,
        n: int | None,
        blanks: Blanks | None = None,
    ) -> None:
        self.layout, self.epochs, self.working = layout, epochs, working
        self.name, self.n, self.blanks = epochs.name, n, blanks
        self.phases: Phases = epochs.phases
        self.shuffle, self.seed = epochs.shuffle, epochs.seed
        self.rows: int = int(self.phases.rows[-1])
        self.seq_len, self.width = layout.seq_len, layout.width
        self.lanes = working.lanes

    @property
    def sources(self) -> tuple[SourceRun, ...]:
        """This one."""
        return (self,)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name."""
        return (self.name,)

    @property
    def identity(self) -> dict[str, Any]:
        """Names the rows and their order: equal for equal runs."""
        line = self.layout.line.identity
        return {"line": line, "layout": self.layout.tag, **self.epochs.identity}

    def ending(self, n: int | None) -> SourceRun:
        """A copy with another end."""
        return SourceRun(self.layout, self.epochs, self.working, n, self.blanks)

    def hiding(self, blanks: Blanks) -> SourceRun:
        """A copy with these documents left out."""
        return SourceRun(self.layout, self.epochs, self.working, self.n, blanks)

    # -- index → row -----------------------------------------------------------------------

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""
        return self.epochs.order(epoch)

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index [N]."""
        flat = checked(indices, self.n, "index")
        if not len(flat):
            return flat, flat
        epoch, inside = self.phases.locate(flat)
        return epoch, self.epochs.rows_at(epoch, inside)

    def rows_from(self, first: int, last: int) -> tuple[Int64 | int, Int64]:
        """(epochs, rows) of indices [first, last), which may lie after the end of the run."""
        epoch, inside = self.phases.place(first)
        if first < last <= self.phases.start(epoch + 1):
            return epoch, self.order(epoch).map(np.arange(inside, inside + last - first))
        epochs, place = self.phases.locate(np.arange(first, last))
        crossed = int(epochs[-1]) - epoch if len(epochs) else 1
        if last - first < limits().min_mapped_epoch_rows * crossed:
            return epochs, self.epochs.rows_at(epochs, place)  # many short epochs
        cuts = [0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist(), len(epochs)]
        parts = [
            self.order(int(epochs[a])).map(place[a:b]) for a, b in itertools.pairwise(cuts) if b > a
        ]
        return epochs, np.concatenate([np.empty(0, np.int64), *parts])

    def pick(self, indices: Int64) -> tuple[Int64, Int64]:
        """(0, the index itself) of each index [N]."""
        return np.zeros_like(indices), indices

    def placed(self, indices: Int64) -> list[Placed]:
        """See `Run`."""
        return [Placed(0, self, None, indices, *self.locate(indices))]

    def spans(self, indices: Int64) -> Spans:
        """See `Run`."""
        return self.spans_of(indices, *self.locate(indices))

    def spans_of(self, items: Int64, epoch: Int64, row: Int64) -> Spans:
        """The documents in each row; `items` are the items that show them."""
        spans = self.layout.spans(epoch, row).named(self.name)
        return spans if self.blanks is None else self.blanks.hide(spans, items)

    @property
    def goes_by_epochs(self) -> bool:
        """Whether every epoch in a request has a cost of its own, however few its rows."""
        usual = isinstance(self.shuffle, FullShuffle) and self.shuffle.perm_type == "feistel"
        ordered = self.shuffle is not None and not self.epochs.repeats
        return ordered and not usual and self.rows > 1

    # -- row → index -----------------------------------------------------------------------

    def items(self, epoch: int, rows: Int64) -> Int64:
        """The item that shows each row in an epoch; -1 for rows that the epoch does not show.

        Items may lie after the end of the run [N].
        """
        start, end = self.phases.start(epoch), self.phases.start(epoch + 1)
        inside = np.full_like(rows, -1)
        known = rows < self.epochs.rows_in(epoch)
        inside[known] = self.order(epoch).inverse(rows[known])
        return np.where((inside >= 0) & (inside < end - start), inside + start, -1)

    def index(self, source: int, items: Int64) -> Int64:
        """See `Run`: the items themselves, up to the end."""
        return items if self.n is None else np.where(items < self.n, items, -1)

    def reaches(self, source: int, item: int) -> bool:
        """See `Run`."""
        return self.n is None or item < self.n

    def settled(self, index: int) -> int:
        """See `Run`: examples come in the order of their items."""
        return index + 1

    def items_before(self, source: int, index: int) -> int:
        """See `Run`."""
        return index

    def moment(self, source: int, item: int) -> None:
        """See `Run`: a single source has no clock."""
        return

    # -- how much --------------------------------------------------------------------------

    def end_of(self, epochs: int) -> int:
        """Examples of `epochs` epochs; an epoch that an append extended counts once."""
        if not self.epochs.extended:
            return self.phases.end(epochs)
        last = epochs - 1
        for extended in self.epochs.extended:
            last += extended <= last + 1
        return self.phases.start(last + 1) if epochs else 0

    def epochs_in(self, examples: int) -> int:
        """Complete epochs in the first `examples`; an epoch that an append extended counts once."""
        if not self.rows:
            return 0
        epoch = self.phases.place(examples)[0]
        return epoch - sum(extended <= epoch for extended in self.epochs.extended)

    def tokens_in(self, examples: int) -> int:
        """See `Run`."""
        most = MOST if self.n is None else self.n
        if int(checked(examples, None, "examples")) > most:
            raise IndexError(
                f"examples {examples}: out of range, allowed: 0 to {most:,}, the examples of the "
                "run."
            )
        return self._tokens.upto(int(examples))

    def consumed(self, examples: int) -> list[Consumed]:
        """See `Run`."""
        epochs = self.epochs_in(examples)
        return [Consumed(self.name, examples, self.tokens_in(examples), epochs)]

    @lazy
    def _tokens(self) -> TokenCount:
        return TokenCount(self)

    # -- lanes and memory ------------------------------------------------------------------

    def fractions(self, indices: Int64) -> NDArray[np.float64] | None:
        """See `Run`."""
        if self.lanes == 1:
            return None
        out = np.zeros(len(indices), np.float64)
        epoch, inside = self.phases.locate(indices)
        for number, here in grouped(epoch):
            found = self.order(number).fractions(inside[here])
            out[here] = golden(indices[here]) if found is None else found
        return out

    def fraction_period(self, first: int, last: int) -> int:
        """See `Run`."""
        epoch, inside = self.phases.place(first)
        if self.lanes == 1 or last > self.phases.start(epoch + 1):
            return 0
        order = self.order(epoch)
        if not isinstance(order, BlockOrder):
            return 0
        return order.fraction_period(inside, inside + last - first)

    def warn_if_too_large(self, capacity: int) -> None:
        """See `Run`."""
        self.working.warn_if_too_large(capacity)


def source_run(
    *,
    name: str,
    layout: Layout,
    shuffle: Shuffle | None = None,
    epochs: int | None = 1,
    seed: int = 0,
    take: int | None = None,
    repeats: bool = False,
) -> SourceRun:
    """The run of a source.

    Args:
        name: name of the source, part of its keys.
        layout: rows → spans.
        shuffle: how rows are ordered; None is stored order.
        epochs: how often the rows are shown; None is endless.
        seed: seed of the keys.
        take: the maximum number of examples.
        repeats: every epoch has the order of the first.
    """
    phases = layout.phases
    rows = int(phases.rows[-1])
    blocks = [layout.blocks(phase) for phase in range(len(phases))]
    # counted in rows, not on the line: tokens that are in no row must not change the order
    mean = rows * layout.seq_len / max(1, len(blocks[-1]))
    resolved = shuffle.resolve(blocks[-1], mean) if shuffle else None
    whole = None if epochs is None else phases.end(epochs)
    if not rows:
        whole = 0
    n = whole if take is None else take if whole is None else min(take, whole)
    working = WorkingSet(layout, phases, blocks, resolved)
    orders = FreshEpochs(phases, blocks, resolved, seed, name, repeats=repeats)
    return SourceRun(layout, orders, working, n)


def check_grown(name: str, old: Reader, new: Reader) -> None:
    """Refuse a store that is not the old one with documents appended."""
    before, after = old.manifest, new.manifest
    more = after.documents - before.documents
    if more <= 0 or after.parts[: len(before.parts)] != before.parts:
        raise ConfigError(
            f"edit.append.{name}: found a store of {after.documents:,} documents, which is not the "
            f"one of {before.documents:,} with others appended. Open the store again after "
            "tokenloom.build(..., append=True)."
        )


def grown_run(
    before: SourceRun, spec: LayoutSpec, choice: Choice | None, reader: Reader, at: int
) -> SourceRun:
    """The run of a source with the documents that its store has now, shown from item `at` on."""
    if isinstance(spec, SpliceSpec):
        raise ConfigError(
            f"edit.append.{before.name}: it is spliced, and its quotas are shares of all its "
            "documents, so new ones would change what every document still gets. Splice the new "
            "documents as a source of their own: add={...}; doc_growth plans growth in advance."
        )
    if isinstance(choice, SelectSpec):
        raise ConfigError(
            f"edit.append.{before.name}: its documents were selected one by one, so there are no "
            "new ones. Add them as a source of their own: add={...}."
        )
    known, layout = before.layout.line, before.layout
    first = known.reader.manifest.documents
    every = choose_documents(reader, choice).documents if choice else None
    fresh = np.arange(first, reader.manifest.documents) if every is None else every[every >= first]
    line: Line = WholeLine(reader)
    if every is not None:
        old, _ = known.bounds(0, known.documents)
        both = np.concatenate([old, fresh])
        line = ChosenLine(reader, both)
    added = make_layout(spec, ChosenLine(reader, fresh))
    parts = layout.parts if isinstance(layout, Joined) else (layout,)
    joined, shuffle = Joined([*parts, added], line), before.shuffle
    blocks, phases = [joined.blocks()], joined.phases
    # with the numbers already resolved, because they are part of the identity
    later = FreshEpochs(phases, blocks, shuffle, before.seed, before.name)
    epochs = GrownEpochs(before.epochs, later, added.blocks(), at)
    working = WorkingSet(joined, phases, blocks, shuffle)
    return SourceRun(joined, epochs, working, None, before.blanks)
