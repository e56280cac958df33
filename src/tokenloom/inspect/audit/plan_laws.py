"""The laws of a plan: what every index shows, judged without reading a token.

One idea: a run says of every index which item, epoch, row and spans it shows. Each of these is
compared with what follows from something else: items with counting, epochs with the phases, rows
with the inverse of the order, spans with the layout and with the documents of the store, and whole
epochs with the lengths of documents (`tokenloom.inspect.audit.boundary_sums`). So a defect of one
row is found in that row, and a defect that every row shares is found in the sums.

Memory does not depend on the number of rows: an epoch takes a few integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped
from tokenloom.inspect.audit.boundary_sums import (
    Covered,
    boundary_sum,
    covered_by,
    number_sum,
    parts_of,
)
from tokenloom.inspect.audit.verdicts import Findings
from tokenloom.layout.spans import Spans
from tokenloom.mixture.spec import Edit
from tokenloom.order.run import Placed, Run, SourceRun
from tokenloom.random.keys import GOLDEN, mixed

__all__ = ["EpochTotals", "Hidden", "ShownRows", "SourceLaws", "hidden_of", "look_at", "true_spans"]

Int64 = NDArray[np.int64]

Bool = NDArray[np.bool_]

MANY = 64  # epochs in a chunk; more are judged by the order itself, not by its inverse

COLUMNS = ("document", "start", "length", "at", "address", "flags", "seen")

TELLING = 20  # rows; two fair orders of that many rows never agree

WORD = 1 << 64  # sums are modulo this

KEPT = 1 << 12  # epochs of a source whose coverage is kept for the next time


@dataclass(frozen=True, eq=False, slots=True)
class ShownRows:
    """What a run says about some indices.

    Attributes:
        index: the indices [N].
        source: the number of each one's source [N].
        item, epoch, row: which item of it, and the epoch and row of that item [N].
        spans: what is in each.
    """

    index: Int64
    source: Int64
    item: Int64
    epoch: Int64
    row: Int64
    spans: Spans


def look_at(run: Run, indices: Int64) -> ShownRows:
    """Ask a run about some indices."""
    source, item = run.pick(indices)
    epoch, row = run.locate(indices)
    return ShownRows(indices, source, item, epoch, row, run.spans(indices))


class Hidden(NamedTuple):
    """Documents of one source that edits quarantine.

    Attributes:
        document: their numbers, ascending [N].
        since: the first index that must not show each one [N].
    """

    document: Int64
    since: Int64

    def covers(self, spans: Spans, index: Int64) -> Bool:
        """Whether each span is of a document that its row must not show [spans]."""
        if not len(self.document):
            return np.zeros(len(spans.document), np.bool_)
        place = np.minimum(np.searchsorted(self.document, spans.document), len(self.document) - 1)
        known = self.document[place] == spans.document
        covered: Bool = known & (index[spans.row] >= self.since[place])
        return covered


def hidden_of(edits: Sequence[Edit], name: str) -> Hidden:
    """What the edits of a run hide of a source, from the edits alone."""
    since: dict[int, int] = {}
    for edit in edits:
        for source, document in edit.quarantine:
            if source == name:
                since.setdefault(document, edit.at)
    document = np.array(sorted(since), np.int64)
    return Hidden(document, np.array([since[one] for one in document.tolist()], np.int64))


def true_spans(source: SourceRun, hidden: Hidden, index: Int64, epoch: Int64, row: Int64) -> Spans:
    """What rows of a source must show: those of its layout without what is hidden."""
    spans = source.layout.spans(epoch, row).named(source.name)
    return spans.where(~hidden.covers(spans, index)) if len(hidden.document) else spans


@dataclass(slots=True)
class EpochTotals:
    """What was seen of an epoch so far; sums are modulo 2^64.

    Attributes:
        rows: rows shown.
        numbers: sum of the hashes of their numbers.
        edges: boundary sum of their stretches, hidden ones included.
        tokens: stored tokens in their cells, hidden ones included.
        order: sum of the hashes of (place, row): names the order.
    """

    rows: int = 0
    numbers: int = 0
    edges: int = 0
    tokens: int = 0
    order: int = 0


class SourceLaws:
    """Judges the rows of one source, chunk after chunk.

    Args:
        source: the run of the source on its own.
        hidden: what edits hide of it.
        findings: where to note what was found.
        whole: the first and the last item that are looked at, [first, last), if it is all between
            them; None for a sample.

    Attributes:
        totals: what was seen of each epoch.
        rows, tokens: rows that were looked at, and stored tokens in their cells.
        whole_epochs: epochs that were seen from start to end.
        truth: what these were compared with.
    """

    def __init__(
        self, source: SourceRun, hidden: Hidden, findings: Findings, whole: tuple[int, int] | None
    ) -> None:
        self._source, self._hidden, self._findings = source, hidden, findings
        self._whole = whole
        self.totals: dict[int, EpochTotals] = {}
        self.rows = self.tokens = self.whole_epochs = 0
        self.truth = ""
        self.true: Spans | None = None  # of the rows looked at last, if they are the right rows
        self._known: dict[tuple[int, int], Covered] = {}

    def look(self, shown: ShownRows, here: Int64) -> Placed:
        """Judge the rows of this source in a chunk; `here` are their places.

        Returns:
            the rows, as far as they exist, for whoever looks at the mix.
        """
        source, note = self._source, self._findings.note
        index, item = shown.index[here], shown.item[here]
        epoch, row = shown.epoch[here], shown.row[here]
        right, inside = source.phases.locate(item)
        note(
            "epochs",
            "rows",
            len(here),
            np.flatnonzero(epoch != right),
            lambda p: f"{self._at(index[p])}: it is told as of epoch {epoch[p]}, not {right[p]}",
        )
        found = self._places(right, inside, item, row)
        note(
            "order",
            "rows",
            len(here),
            np.flatnonzero(found != item),
            lambda p: (
                f"{self._at(index[p])}: it shows row {row[p]} of epoch {right[p]}, which is not "
                f"item {item[p]}"
            ),
        )
        right_rows = bool((found == item).all())
        if not right_rows:  # the layout is asked about rows that exist
            limits = {e: source.epochs.rows_in(e) - 1 for e in np.unique(right).tolist()}
            row = np.clip(row, 0, [limits[e] for e in right.tolist()])
        true = true_spans(source, self._hidden, index, right, row)
        self.true = true if right_rows else None
        self._compare(shown, here, true)
        self._documents(shown, here)
        self._add(shown, here, right, inside, row)
        return Placed(int(shown.source[here[0]]), source, here, item, right, row)

    def _at(self, index: int) -> str:
        return f"source {self._source.name}, index {index:,}"

    def _places(self, epoch: Int64, inside: Int64, item: Int64, row: Int64) -> Int64:
        """The item that each row really is in its epoch; -1 for none [N]."""
        source, found = self._source, np.full_like(row, -1)
        groups = list(grouped(epoch))
        if len(groups) > MANY:
            return np.where(source.epochs.rows_at(epoch, inside) == row, item, -1)
        for number, here in groups:
            real = here[(row[here] >= 0) & (row[here] < source.epochs.rows_in(number))]
            found[real] = source.items(number, row[real])
        return found

    # -- spans -----------------------------------------------------------------------------

    def _compare(self, shown: ShownRows, here: Int64, true: Spans) -> None:
        """The spans shown are the spans of the layout, and of this source."""
        own = shown.spans if len(here) == len(shown.index) else shown.spans.take(here)
        index = shown.index[here]
        names = np.array([name == self._source.name for name in own.sources])
        wrong = np.union1d(different_rows(own, true), np.flatnonzero(~names[own.source]))
        self._findings.note(
            "spans",
            "rows",
            len(here),
            wrong,
            lambda p: f"{self._at(index[p])}: {_words(own, p)}, right is {_words(true, p)}",
        )
        if len(self._hidden.document):
            covered = np.flatnonzero(self._hidden.covers(own, index))
            self._findings.note(
                "quarantine",
                "spans",
                len(own.document),
                covered,
                lambda p: f"{self._at(index[own.row[p]])}: document {own.document[p]} is shown",
            )

    def _documents(self, shown: ShownRows, here: Int64) -> None:
        """Every stretch lies on the line where its document has it."""
        own = shown.spans if len(here) == len(shown.index) else shown.spans.take(here)
        line = self._source.layout.line
        some = np.flatnonzero(own.length > 0)  # inserted tokens alone have no address
        low, high = own.address[some], (own.address + own.length)[some]
        good = (low >= 0) & (high <= line.tokens)
        inner = some[good]
        pieces = line.pieces(low[good], high[good])
        first = np.minimum(pieces.edges[:-1], max(0, len(pieces.document) - 1))
        if len(inner):
            good[good] = (
                (np.diff(pieces.edges) == 1)
                & (pieces.document[first] == own.document[inner])
                & (pieces.start[first] == own.start[inner])
            )
        index = shown.index[here]
        self._findings.note(
            "documents",
            "spans",
            len(own.document),
            some[~good],
            lambda p: (
                f"{self._at(index[own.row[p]])}: document {own.document[p]} from {own.start[p]} "
                f"on has no {own.length[p]} tokens at {own.address[p]}"
            ),
        )

    # -- whole epochs ----------------------------------------------------------------------

    def _add(self, shown: ShownRows, here: Int64, epoch: Int64, inside: Int64, row: Int64) -> None:
        """Add what was shown to its epochs."""
        own = shown.spans if len(here) == len(shown.index) else shown.spans.take(here)
        self.rows += len(here)
        self.tokens += int(own.length.sum())
        if self._whole is None:
            return
        span_row = own.row
        groups = list(grouped(self._group(epoch)))
        for group, some in groups:
            totals = self.totals.setdefault(group, EpochTotals())
            totals.rows += len(some)
            totals.numbers += number_sum(row[some])
            places = mixed(inside[some].astype(np.uint64) * np.uint64(GOLDEN))
            totals.order += int(mixed(places + row[some].astype(np.uint64)).sum(dtype=np.uint64))
            address, length = own.address, own.length
            if len(groups) > 1:
                member = np.zeros(len(here), np.bool_)
                member[some] = True
                mine = np.flatnonzero(member[span_row])
                address, length = address[mine], length[mine]
            totals.edges += boundary_sum(address, length)
            totals.tokens += int(length.sum())
        if len(self._hidden.document):
            self._add_hidden(shown.index[here], epoch, row)

    def _add_hidden(self, index: Int64, epoch: Int64, row: Int64) -> None:
        """Quarantined stretches count as shown: their cells are filler, the plan is the same."""
        every = self._source.layout.spans(epoch, row)
        hidden = self._hidden.covers(every, index)
        if not hidden.any():
            return
        some = np.flatnonzero(hidden)
        for group, here in grouped(self._group(epoch[every.row[some]])):
            mine, totals = some[here], self.totals[group]
            totals.edges += boundary_sum(every.address[mine], every.length[mine])
            totals.tokens += int(every.length[mine].sum())

    def _group(self, epoch: Int64) -> Int64:
        """The epoch that each one continues, if an append extended it; else itself [N]."""
        out = epoch.copy()
        for extended in sorted(self._source.epochs.extended, reverse=True):
            out[out == extended] = extended - 1
        return out

    def plain(self) -> dict[str, Any]:
        """What was seen here, as plain data; sums are modulo 2^64."""
        totals = {
            epoch: [one.rows, one.numbers % WORD, one.edges % WORD, one.tokens, one.order % WORD]
            for epoch, one in self.totals.items()
        }
        return {"rows": self.rows, "tokens": self.tokens, "totals": totals}

    def add(self, plain: Mapping[str, Any]) -> None:
        """Add what was seen elsewhere."""
        self.rows += plain["rows"]
        self.tokens += plain["tokens"]
        for epoch, more in plain["totals"].items():
            known = self.totals.get(epoch, EpochTotals())
            sums = [known.rows, known.numbers, known.edges, known.tokens, known.order]
            self.totals[epoch] = EpochTotals(*(a + b for a, b in zip(sums, more, strict=True)))

    def finish(self) -> None:
        """Judge the epochs that were seen from their start to their end."""
        orders: dict[int, int] = {}
        for group, last in self._whole_epochs():
            totals = self.totals.get(group, EpochTotals())
            self.whole_epochs += 1
            self._finish_rows(group, last, totals)
            self._finish_coverage(group, last, totals)
            if self._source.shuffle is not None and totals.rows >= TELLING:
                before = orders.setdefault(totals.order % (1 << 64), group)
                told = f"source {self._source.name}: epoch {group} has the order of epoch {before}"
                self._findings.tell("fresh_orders", "epochs", 1, told if before != group else "")

    def _whole_epochs(self) -> Iterator[tuple[int, int]]:
        """(first, last) epoch of everything between the first and the last item."""
        if self._whole is None or not self._source.rows:
            return
        first, end = self._whole
        phases, extended = self._source.phases, set(self._source.epochs.extended)
        for group in sorted(self.totals):
            last = group
            while last + 1 in extended:
                last += 1
            inside = phases.start(group) >= first and phases.start(last + 1) <= end
            length = phases.start(last + 1) - phases.start(group)
            if inside and length == self._source.epochs.rows_in(last):
                yield group, last

    def _finish_rows(self, group: int, last: int, totals: EpochTotals) -> None:
        rows = self._source.epochs.rows_in(last)
        right = sum(
            number_sum(np.arange(low, min(low + (1 << 16), rows)))
            for low in range(0, rows, 1 << 16)
        )
        same = totals.rows == rows and (totals.numbers - right) % (1 << 64) == 0
        told = (
            f"source {self._source.name}, epoch {group}: {totals.rows:,} rows were shown, and they "
            f"are not the {rows:,} rows once each"
        )
        self._findings.tell("rows", "rows", rows, "" if same else told)

    def _finish_coverage(self, group: int, last: int, totals: EpochTotals) -> None:
        right = self.covered(last)
        self.truth = right.truth
        same = totals.tokens == right.tokens and (totals.edges - right.total) % (1 << 64) == 0
        told = (
            f"source {self._source.name}, epoch {group}: {totals.tokens:,} tokens were shown, and "
            f"they are not the {right.tokens:,} of {right.truth}"
        )
        self._findings.tell("coverage", "tokens", right.tokens, "" if same else told)

    def compare_all(self, right: Covered) -> None:
        """Judge all epochs together by what they must show."""
        edges = sum(totals.edges for totals in self.totals.values())
        tokens = sum(totals.tokens for totals in self.totals.values())
        self.truth = right.truth
        same = tokens == right.tokens and (edges - right.total) % (1 << 64) == 0
        told = (
            f"source {self._source.name}: {tokens:,} tokens were shown, and they are not the "
            f"{right.tokens:,} of {right.truth}"
        )
        self._findings.tell("coverage", "tokens", right.tokens, "" if same else told)

    def covered(self, epoch: int) -> Covered:
        """What a whole epoch must show."""
        source, total, tokens, rows = self._source, 0, 0, 0
        truth = ""
        for number, (part, begin) in enumerate(parts_of(source.layout)):
            if rows >= source.epochs.rows_in(epoch):
                break  # appended later
            which = number, 0 if part.is_constant else epoch
            if which not in self._known:
                if len(self._known) > KEPT:
                    self._known.clear()
                self._known[which] = covered_by(part, epoch, begin)
            found = self._known[which]
            total, tokens, truth = total + found.total, tokens + found.tokens, found.truth
            rows += int(part.phases.rows[part.phases.of(epoch)])
        return Covered(total % (1 << 64), tokens, truth)


def different_rows(one: Spans, other: Spans) -> Int64:
    """The frames in which two spans of the same number of frames differ, ascending."""
    columns = [(getattr(one, name), getattr(other, name)) for name in COLUMNS]
    if np.array_equal(one.frame, other.frame):
        wrong = np.zeros(len(one.document), np.bool_)
        for a, b in columns:
            wrong |= a != b
        return np.unique(one.row[wrong])
    counts, others = np.diff(one.frame), np.diff(other.frame)
    same = counts == others
    a_keep, b_keep = np.repeat(same, counts), np.repeat(same, others)
    wrong = np.zeros(int(a_keep.sum()), np.bool_)
    for a, b in columns:
        wrong |= a[a_keep] != b[b_keep]
    return np.union1d(np.flatnonzero(~same), one.row[a_keep][wrong])


def _words(spans: Spans, frame: int) -> str:
    """The spans of a frame in words."""
    low, high = int(spans.frame[frame]), int(spans.frame[frame + 1])
    some = [
        f"{spans.document[p]}[{spans.start[p]}:{spans.start[p] + spans.length[p]}] at {spans.at[p]}"
        for p in range(low, min(high, low + 3))
    ]
    return (", ".join(some) or "nothing") + (" …" if high - low > 3 else "")
