"""`audit_run`: looks at the rows of a run, judges every law, and makes a certificate.

Rows are asked for chunk by chunk, and each chunk is forgotten. What a row should be follows from
something other than the answer that is judged: its index from the inverse of the order, its tokens
from the offsets and tokens of the store, whole epochs from the lengths of documents
(`tokenloom.inspect.audit.boundary_sums`), shares from `consumed`, masks and labels from the laws of
`tokenloom.check_batch`. Memory does not depend on the number of rows.

`python -m benchmarks audit` prints what it costs, with and without arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arrays import Int64, grouped
from tokenloom.batch.batch import Batch
from tokenloom.batch.check import check_batch
from tokenloom.batch.views.digest import plan_hashes, row_hashes
from tokenloom.inspect.audit.boundary_sums import (
    Covered,
    boundary_sum,
    epoch_covered,
    number_sum,
)
from tokenloom.inspect.audit.certificate import (
    FORMAT,
    Certificate,
    Digests,
    Scope,
    StretchDigests,
    chances,
    made_here,
    scope_of,
    subject_of,
)
from tokenloom.inspect.audit.laws import MEANINGS, Findings
from tokenloom.layout.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.limits import limits
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import Edit
from tokenloom.mixture.stages import Stage
from tokenloom.order.run import Blanks, Run, SourceRun
from tokenloom.progress import Progress

Bool = NDArray[np.bool_]

LOOKED_UP = 1 << 14  # rows of a mix times its sources, whose index is looked up

POINTS = 16  # at which the error of a mixture is measured in each chunk

WORD = 1 << 64  # sums are modulo this


def audit_run(
    run: Dataset,
    first: int | None = None,
    last: int | None = None,
    *,
    arrays: bool | str = True,
    sample: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Certificate:
    """Whether a run shows what it promises; nothing is raised, everything is in the certificate.

    Args:
        run: the run.
        first: the first row to look at; default: 0.
        last: the row after the last one; default: the end of the run, or of the first epoch if it
            is an endless run of one source.
        arrays: True renders every row of up to 2^26 tokens and judges every cell; of more tokens it
            renders a keyed sample of about as many. "all" renders every row; False reads no token.
        sample: look at this many rows only, a keyed sample of the range. Laws about shares and
            whole epochs are then not looked at.
        seed: names the samples.
        progress: show a bar; default: if standard error is a terminal.

    Raises:
        ConfigError: there are no such rows, or an endless mix has no `last`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     found = audit_run(store.windows(4).shuffle().epochs(2))
    ...     found.ok, found.counts["sources"]["main"]["whole_epochs"]
    (True, 2)
    """
    scope = scope_of(dataset_of("audit", run), first, last, arrays, sample, seed)
    return certified(run, scope, progress=progress)


def certified(run: Dataset, scope: Scope, progress: bool | None = None) -> Certificate:
    """Look at everything in a scope, and say what was found.

    Args:
        run: the run.
        scope: what to look at.
        progress: show a bar; default: if standard error is a terminal.
    """
    audit, place = _RunAudit(run, scope), 0
    with Progress("audit", total=scope.rows, unit=" rows", show=progress) as bar:
        for indices in scope.chunks(limits().audit_chunk_examples, audit.cuts):
            audit.look(rows_at(run.run, indices), place)
            place += len(indices)
            bar.reach(place)
    return audit.certificate()


@dataclass(frozen=True, eq=False, slots=True)
class RowsShown:
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

    def take(self, here: Int64) -> RowsShown:
        """Some of the rows."""
        if len(here) == len(self.index):
            return self
        return RowsShown(
            self.index[here],
            self.source[here],
            self.item[here],
            self.epoch[here],
            self.row[here],
            self.spans.take(here),
        )


def rows_at(run: Run, indices: Int64) -> RowsShown:
    """Ask a run about some indices."""
    source, item = run.pick(indices)
    epoch, row = run.locate(indices)
    return RowsShown(indices, source, item, epoch, row, run.spans(indices))


def rendered(run: Dataset, indices: Int64) -> Iterator[tuple[Int64, Batch]]:
    """The batches of some indices, and the places of their rows among them."""
    size = max(1, limits().audit_chunk_cells // max(run.seq_len, 64))
    for low in range(0, len(indices), size):
        here = np.arange(low, min(low + size, len(indices)))
        yield here, run.batch(indices[here])


class _RunAudit:
    """One audit under way.

    Attributes:
        cuts: indices that no chunk may cross: where edits change the mix.
    """

    def __init__(self, run: Dataset, scope: Scope) -> None:
        self._run, self._scope = run, scope
        self._findings = Findings(MEANINGS)
        self._shares = None
        if run.rule is not None and scope.sample is None:
            self._shares = _Shares(cast(MixedRun, run.run), scope.first, self._findings)
        self.cuts = [] if self._shares is None else self._shares.cuts
        self._sources = [
            _SourceAudit(source, _hidden(run.edits, source.name), whole, self._findings)
            for source, whole in zip(run.run.sources, _item_ranges(run, scope), strict=True)
        ]
        self._renders = [source.render for source in run.sources.values()]
        self._plan, self._arrays = StretchDigests(scope.rows), StretchDigests(scope.rows)
        self._looked_up = self._rendered = 0

    def look(self, shown: RowsShown, place: int) -> None:
        """Judge some rows, whose first is at `place` among all that are looked at."""
        self._look_up(shown)
        for number, here in grouped(shown.source):
            self._sources[number].look(shown.take(here))
        if self._shares is not None:
            self._shares.look(shown)
        places = np.arange(place, place + len(shown.index))
        self._plan.add(plan_hashes(shown.spans, shown.epoch, shown.source), places)
        some = self._scope.rendered(shown.index, self._run.seq_len)
        self._rendered += len(some)
        for here, batch in rendered(self._run, shown.index[some]):
            self._judge_batch(batch, shown.take(some[here]))
            self._arrays.add(row_hashes(batch), places[some[here]])

    def _look_up(self, shown: RowsShown) -> None:
        """Every item has its place at the index that shows it."""
        run = self._run.run
        if self._run.rule is not None:
            most = LOOKED_UP // len(run.sources)  # it takes longer the more sources there are
            shown = shown.take(self._scope.share(shown.index, most, "places"))
        self._looked_up += len(shown.index)
        found = np.empty_like(shown.index)
        for number, here in grouped(shown.source):
            found[here] = run.index(number, shown.item[here])
        self._findings.record(
            "items",
            "rows",
            len(found),
            np.flatnonzero(found != shown.index),
            lambda p: (
                f"index {shown.index[p]:,}: it shows item {shown.item[p]:,} of source "
                f"{run.names[shown.source[p]]}, which comes at index {found[p]:,}"
            ),
        )

    # -- arrays ----------------------------------------------------------------------------

    def _judge_batch(self, batch: Batch, shown: RowsShown) -> None:
        width, runs = self._run.seq_len, self._run.run.sources
        for number, here in grouped(shown.source):
            pad_id = self._renders[number].pad_id
            right = stored_tokens(runs[number], shown.spans.take(here), pad_id)[:, :width]
            self._findings.record_cells("tokens", batch.tokens[here], right, shown.index[here])
        strict = all(render.mask_boundary_loss for render in batch.renders)
        report = check_batch(batch, seq_len=width, strict=strict)
        start = f"batch from index {shown.index[0]:,} on"
        problems = [f"{start}, {one.law}: {one}" for one in report.problems if one.law != "trained"]
        self._findings.record(
            "batch_laws",
            "rows",
            len(batch),
            np.arange(len(problems)),
            problems.__getitem__,
            broken=sum(count for law, count in report.totals.items() if law != "trained"),
        )

    # -- the end ---------------------------------------------------------------------------

    def certificate(self) -> Certificate:
        """Judge what only all rows together show, and say what was found."""
        scope = self._scope
        for source in self._sources:
            source.finish()
        rows, missed = scope.last - scope.first, {}
        if scope.sample is not None:
            missed = chances(rows, scope.rows)
        elif scope.arrays == "sample":
            missed = chances(rows, self._rendered)
        arrays = self._arrays.digests() if self._rendered else ()
        return Certificate(
            format=FORMAT,
            subject=subject_of(self._run),
            scope=scope,
            laws=self._findings.verdicts,
            counts=self._counts(),
            digests=Digests(stretch=self._plan.stretch, plan=self._plan.digests(), arrays=arrays),
            not_looked_at=tuple(self._left_out()),
            missed=missed,
            made_with=made_here(),
        )

    def _counts(self) -> dict[str, Any]:
        errors = {} if self._shares is None else self._shares.errors
        return {
            "rows": self._scope.rows,
            "rendered": self._rendered,
            "sources": {
                name: {
                    "rows": source.rows,
                    "tokens": source.tokens,
                    "epochs": len(source.totals),
                    "whole_epochs": source.whole_epochs,
                    "truth": source.truth,
                }
                for name, source in zip(self._run.run.names, self._sources, strict=True)
            },
            "mixture_error": {name: float(f"{error:.9g}") for name, error in errors.items()},
        }

    def _left_out(self) -> Iterator[str]:
        scope, rows = self._scope, self._scope.last - self._scope.first
        if scope.sample is not None:
            yield f"{rows - scope.rows:,} of {rows:,} rows, and whether whole epochs are complete"
            if self._run.rule is not None:
                yield "the mixture: it is judged over ranges, not samples"
        if self._looked_up < scope.rows:
            yield f"the place in the mix of {scope.rows - self._looked_up:,} of {scope.rows:,} rows"
        if scope.arrays == "none":
            yield "tokens and arrays: no row was rendered"
        elif self._rendered < scope.rows:
            yield f"the arrays of {scope.rows - self._rendered:,} of {scope.rows:,} rows"
        n = self._run.run.n
        if n is None:
            yield f"rows from {scope.last:,} on: the run is endless"
        elif rows < n:
            yield f"{n - rows:,} rows outside of the range"


# -- what cells must hold --------------------------------------------------------------------


def stored_tokens(source: SourceRun, spans: Spans, pad_id: int) -> Int64:
    """The tokens of some rows of a source, read by document [rows, width].

    Args:
        source: the run of the source.
        spans: what is in the rows.
        pad_id: the token of filler.
    """
    cells = np.full(len(spans) * spans.width, pad_id, np.int64)
    bos, eos = source.layout.inserted
    first = spans.row * spans.width + spans.at
    last = first + spans.cells - 1
    for bit, place, token in ((BOS, first, bos), (EOS, last, eos), (EOS_BEFORE, first - 1, eos)):
        cells[place[(spans.flags & bit) > 0]] = token or 0
    reader = source.layout.line.reader
    start = reader.bounds(spans.document)[0] + spans.start
    before = np.cumsum(spans.length) - spans.length
    place = np.repeat(first + (spans.flags & BOS) - before, spans.length)
    stored = reader.read(start, start + spans.length)
    cells[place + np.arange(len(place))] = np.concatenate([cells[:0], *stored])
    return cells.reshape(len(spans), spans.width)


# -- shares of a mix -------------------------------------------------------------------------


class _Shares:
    """Judges how many rows of a mix come from each source.

    Attributes:
        cuts: the indices at which edits change the mix.
        errors: the largest error of every source: what it has consumed less its share of what all
            have, since the start of the range or the last edit, in units of cost. It is looked at
            `POINTS` times a chunk. A source that ends leaves its share to the others; then there
            are none, and so in a mix that is shuffled as a whole.
    """

    def __init__(self, mix: MixedRun, first: int, findings: Findings) -> None:
        self._mix, self._findings = mix, findings
        self.cuts = [stage.at for stage in mix.stages]
        self.errors: dict[str, float] = {}
        self._rows = self._since = self._consumed(first)
        self._stage: Stage | None = None

    def _consumed(self, index: int) -> Int64:
        return np.array([one.rows for one in self._mix.consumed(index)], np.int64)

    def look(self, shown: RowsShown) -> None:
        """Judge a chunk; it lies between two edits."""
        names, end = self._mix.names, int(shown.index[-1]) + 1
        stage = self._mix.stages[int(np.searchsorted(self.cuts, end - 1, side="right")) - 1]
        if stage is not self._stage:
            self._stage, self._since = stage, self._rows
        for part in np.array_split(shown.source, POINTS):
            self._rows = self._rows + np.bincount(part, minlength=len(names))
            if self._mix.shuffle is None:
                self._measure(stage)
        found, self._rows = self._rows, self._consumed(end)
        right = self._rows
        self._findings.record(
            "mixture",
            "rows",
            len(shown.index),
            np.flatnonzero(found != right),
            lambda n: (
                f"source {names[n]}: {found[n]:,} rows were shown before index {end:,}, "
                f"`consumed` says {right[n]:,}"
            ),
        )

    def _measure(self, stage: Stage) -> None:
        clocks, costs = [], []
        for clock, now, before in zip(stage.merge.clocks, self._rows, self._since, strict=False):
            if clock.costs.n is None:
                clocks.append(clock)
                costs.append(clock.costs.upto(int(now)) - clock.costs.upto(int(before)))
            elif clock.costs.n > clock.first:
                return
        share = sum(costs) / sum(clock.weight for clock in clocks)
        for clock, cost in zip(clocks, costs, strict=True):
            error = abs(cost - clock.weight * share)
            self.errors[clock.name] = max(self.errors.get(clock.name, 0.0), error)


def _item_ranges(run: Dataset, scope: Scope) -> list[tuple[int, int]]:
    """Of every source, items [low, high) that are all looked at."""
    first, last, mix = scope.first, scope.last, cast(MixedRun, run.run)
    if scope.sample is not None:
        return [(0, 0)] * len(mix.sources)
    if run.rule is None:
        return [(first, last)]
    end, block = mix.stages[-1].end, run.rule.edges or 1
    if mix.shuffle is not None and (first or last != end):
        return [(0, 0)] * len(mix.sources)
    ranges = []
    for number, (before, after) in enumerate(
        zip(mix.consumed(first), mix.consumed(last), strict=True)
    ):
        # inside a block the items that were shown may be any of it
        low, high = mix.items_before(number, first), mix.items_before(number, last)
        low += block if low != before.rows else 0
        ranges.append((low, after.rows if last == end else high))
    return ranges


# -- one source ------------------------------------------------------------------------------


def _hidden(edits: Sequence[Edit], name: str) -> Blanks:
    """What the edits of a run hide of a source, from the edits alone, by index, not by item."""
    since: dict[int, int] = {}
    for edit in edits:
        for source, document in edit.quarantine:
            if source == name:
                since.setdefault(document, edit.at)
    document = sorted(since)
    return Blanks(np.array(document, np.int64), np.array([since[d] for d in document], np.int64))


@dataclass(slots=True)
class _EpochTotals:
    """What was seen of an epoch so far; sums are modulo 2^64.

    Attributes:
        rows: rows shown.
        numbers: sum of the hashes of their numbers.
        edges: boundary sum of their stretches, hidden ones included.
        tokens: stored tokens in their cells, hidden ones included.
    """

    rows: int = 0
    numbers: int = 0
    edges: int = 0
    tokens: int = 0


class _SourceAudit:
    """Judges the rows of one source, chunk after chunk.

    Args:
        source: the run of the source on its own.
        hidden: what edits hide of it.
        whole: the items [first, last) that are all looked at.
        findings: where to note what was found.

    Attributes:
        totals: what was seen of each epoch.
        rows, tokens: rows that were looked at, and stored tokens in their cells.
        whole_epochs: epochs that were seen from start to end.
        truth: what these were compared with.
    """

    def __init__(
        self, source: SourceRun, hidden: Blanks, whole: tuple[int, int], findings: Findings
    ) -> None:
        self._source, self._hidden, self._whole = source, hidden, whole
        self._findings = findings
        self.totals: dict[int, _EpochTotals] = {}
        self.rows = self.tokens = self.whole_epochs = 0
        self.truth = ""

    def look(self, shown: RowsShown) -> None:
        """Judge the rows of this source in a chunk."""
        self.rows += len(shown.index)
        self.tokens += int(shown.spans.length.sum())
        found = np.empty_like(shown.item)
        for epoch, here in grouped(shown.epoch):
            found[here] = self._source.items(epoch, shown.row[here])
            totals = self._totals_of(epoch)
            totals.rows += len(here)
            totals.numbers += number_sum(shown.row[here])
        self._findings.record(
            "order",
            "rows",
            len(found),
            np.flatnonzero(found != shown.item),
            lambda p: (
                f"{self._at(shown, p)}: it shows row {shown.row[p]} of epoch {shown.epoch[p]}, "
                f"which is not item {shown.item[p]}"
            ),
        )
        self._add(shown.epoch, shown.spans)
        if len(self._hidden.document):
            self._judge_hidden(shown)

    def _at(self, shown: RowsShown, place: int) -> str:
        return f"source {self._source.name}, index {shown.index[place]:,}"

    def _judge_hidden(self, shown: RowsShown) -> None:
        """No stretch is of a document that was quarantined."""
        spans = shown.spans
        self._findings.record(
            "quarantine",
            "spans",
            len(spans.document),
            np.flatnonzero(self._covers(spans, shown.index)),
            lambda p: f"{self._at(shown, spans.row[p])}: document {spans.document[p]} is shown",
        )
        # hidden stretches count as shown: their cells are filler, the plan is the same
        every = self._source.layout.spans(shown.epoch, shown.row)
        self._add(shown.epoch, every.where(self._covers(every, shown.index)))

    def _covers(self, spans: Spans, index: Int64) -> Bool:
        """Whether each span is of a document that its row must not show [spans]."""
        return self._hidden.covers(spans.document, index[spans.row])

    def _add(self, epoch: Int64, spans: Spans) -> None:
        """Add the stretches of some rows to their epochs."""
        for number, here in grouped(np.repeat(epoch, np.diff(spans.frame))):
            totals = self._totals_of(number)
            totals.edges += boundary_sum(spans.address[here], spans.length[here])
            totals.tokens += int(spans.length[here].sum())

    def _totals_of(self, epoch: int) -> _EpochTotals:
        """The totals of an epoch; of one that an append extended, those of the epoch before it."""
        while epoch in self._source.epochs.extended:
            epoch -= 1
        return self.totals.setdefault(epoch, _EpochTotals())

    def finish(self) -> None:
        """Judge the epochs that were seen from their start to their end."""
        name, size = self._source.name, limits().audit_chunk_examples
        known: dict[int, Covered] = {}
        for epoch, last in self._whole_epochs():
            self.whole_epochs += 1
            totals, rows = self.totals[epoch], self._source.epochs.rows_in(last)
            numbers = sum(
                number_sum(np.arange(low, min(low + size, rows))) for low in range(0, rows, size)
            )
            same = totals.rows == rows and (totals.numbers - numbers) % WORD == 0
            problem = (
                f"source {name}, epoch {epoch}: {totals.rows:,} rows were shown, and they are not "
                f"the {rows:,} rows once each"
            )
            self._findings.record_whole("rows", "rows", rows, "" if same else problem)
            right = epoch_covered(self._source.layout, last, rows, known)
            self.truth = right.truth
            same = totals.tokens == right.tokens and (totals.edges - right.total) % WORD == 0
            problem = (
                f"source {name}, epoch {epoch}: {totals.tokens:,} tokens were shown, and they are "
                f"not the {right.tokens:,} of {right.truth}"
            )
            self._findings.record_whole("coverage", "tokens", right.tokens, "" if same else problem)

    def _whole_epochs(self) -> Iterator[tuple[int, int]]:
        """(first, last) epoch of everything between the first and the last item."""
        low, high = self._whole
        phases, extended = self._source.phases, self._source.epochs.extended
        for epoch in sorted(self.totals):
            last = epoch
            while last + 1 in extended:
                last += 1
            first, end = phases.start(epoch), phases.start(last + 1)
            is_inside = low <= first and end <= high
            if is_inside and end - first == self._source.epochs.rows_in(last):
                yield epoch, last
