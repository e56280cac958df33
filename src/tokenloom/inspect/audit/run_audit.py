"""`audit_run`: streams a run, judges every law, and makes a certificate.

One idea: plan and arrays are looked at in the same pass, chunk after chunk, and each chunk is
forgotten. `audit_run(run, arrays=False)` stops before a token is read.

An audit is a sum over pieces, which are some stretches of rows each. What is carried from one row
to the next (items, costs, times) is known at the start of a piece, so pieces are looked at by
anybody, in any order (`tokenloom.cluster`): a piece gives counts, a few examples, sums by epoch and
the digests of its stretches, and the certificate is made of these. Which rows are a piece follows
from the scope, so a certificate does not tell who looked at what.

`python -m benchmarks audit` prints what both depths cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arrays import grouped
from tokenloom.batch.views.digest import plan_hashes
from tokenloom.inspect.audit.array_audit import (
    ArrayLaws,
    hashes_of,
    rendered,
    rows_together,
)
from tokenloom.inspect.audit.certificate import (
    FORMAT,
    Certificate,
    Digests,
    StretchDigests,
    made_here,
    subject_of,
)
from tokenloom.inspect.audit.chance import chances
from tokenloom.inspect.audit.item_laws import ItemLaws
from tokenloom.inspect.audit.plan_laws import ShownRows, SourceLaws, hidden_of, look_at, true_spans
from tokenloom.inspect.audit.scope import Scope, scope_of
from tokenloom.inspect.audit.spliced_sums import spliced_epochs, spliced_sum
from tokenloom.inspect.audit.verdicts import ARRAY_LAWS, PLAN_LAWS, Findings
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.progress import Progress

__all__ = ["Audit", "audit_run", "certified"]

Int64 = NDArray[np.int64]

PARTLY = "attention_mask, document_starts and continues, of most rows"


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
        arrays: True renders every row and judges every cell; "sample" renders a keyed 64th of
            them; False reads no token.
        sample: look at this many rows only, a keyed sample of the range. Laws about neighbours and
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
    whole = Audit(run, scope)
    pieces = whole.pieces()
    with Progress("audit", total=scope.rows, unit=" rows", show=progress) as bar:
        for piece in pieces:
            whole.add(Audit(run, scope, **piece).looked(bar.reach))
            bar.reach(piece["high"])
    return whole.certificate()


class Audit:
    """One audit under way, of all rows or of a piece.

    Args:
        run: the run.
        scope: what to look at.
        low, high: the places among its rows that are looked at here; none to add up others.
    """

    def __init__(self, run: Dataset, scope: Scope, low: int = 0, high: int = 0) -> None:
        self._run, self._scope, self._low, self._high = run, scope, low, high
        self._findings = Findings(PLAN_LAWS + ARRAY_LAWS)
        self._items = ItemLaws(run, scope, self._findings, (low, high))
        self._hidden = [hidden_of(run.edits, name) for name in run.run.names]
        sources = run.run.sources
        columns = zip(sources, self._hidden, self._items.ranges(), strict=True)
        self._laws = [SourceLaws(s, h, self._findings, whole) for s, h, whole in columns]
        renders = [source.render for source in run.sources.values()]
        self._arrays = ArrayLaws(sources, renders, run.seq_len, self._findings)
        block = self._items.block if scope.sample is None else 1
        self._plan_digests = StretchDigests(scope.rows, block=block)
        self._array_digests = StretchDigests(scope.rows, block=block)
        self._plan: list[str] = []  # digests of stretches, as they come
        self._hashes: list[str] = []
        self._rendered = self._hashed = 0

    def pieces(self) -> list[dict[str, int]]:
        """The places of the rows of each piece: whole stretches, and whole blocks of a mix."""
        rows, stretch = self._scope.rows, self._plan_digests.stretch
        most = limits().audit_piece_examples
        if self._scope.arrays == "all":
            most = limits().audit_piece_rendered_examples
        size = max(1, most // stretch) * stretch
        if self._scope.sample is None and self._scope.first % self._items.block:
            size = max(1, rows)  # stretches would cut blocks
        edges = [*range(0, rows, size), rows]
        return [{"low": a, "high": b} for a, b in itertools.pairwise(edges)]

    def looked(self, reach: Callable[[int], None]) -> dict[str, Any]:
        """Look at this piece; what was found, as plain data.

        Args:
            reach: told up to which place.
        """
        scope, size = self._scope, limits().audit_chunk_examples
        if scope.arrays == "all":
            size = limits().audit_chunk_rendered_examples
        size = max(1, size // self._items.block) * self._items.block
        place = self._low
        for indices in scope.chunks(size, self._items.cuts, self._low, self._high):
            self._look(indices, place)
            place += len(indices)
            reach(place)
        self._items.end()
        stretch = self._plan_digests.stretch
        mine = slice(self._low // stretch, -(-self._high // stretch))
        return {
            "findings": self._findings.plain(),
            "items": self._items.plain(),
            "sources": [laws.plain() for laws in self._laws],
            "plan": self._plan_digests.digests()[mine],
            "arrays": self._array_digests.digests()[mine],
            "rendered": self._rendered,
            "hashed": self._hashed,
        }

    def add(self, plain: Mapping[str, Any]) -> None:
        """Add what was found in the next piece."""
        self._findings.add(plain["findings"])
        self._items.add(plain["items"])
        for laws, one in zip(self._laws, plain["sources"], strict=True):
            laws.add(one)
        self._plan += plain["plan"]
        self._hashes += plain["arrays"]
        self._rendered += plain["rendered"]
        self._hashed += plain["hashed"]

    def certificate(self) -> Certificate:
        """Judge what only all pieces together show, and say what was found."""
        scope = self._scope
        self._items.finish()
        for laws in self._laws:
            laws.finish()
        self._judge_splices()
        sampled = scope.sample is not None
        return Certificate(
            format=FORMAT,
            subject=subject_of(self._run),
            scope=scope,
            laws=self._findings.verdicts(),
            counts=self._counts(),
            digests=Digests(
                stretch=self._plan_digests.stretch,
                plan=tuple(self._plan),
                arrays=tuple(self._hashes) if self._rendered else (),
            ),
            not_looked_at=tuple(self._left_out()),
            missed=chances(scope.last - scope.first, scope.rows) if sampled else {},
            made_with=made_here(),
        )

    def _look(self, indices: Int64, place: int) -> None:
        """Judge a chunk, whose first row is at `place` among all rows that are looked at."""
        shown = look_at(self._run.run, indices)
        parts = [self._laws[number].look(shown, here) for number, here in grouped(shown.source)]
        self._items.look(shown, parts)
        hashes = plan_hashes(shown.spans, shown.epoch, shown.source)
        self._plan_digests.add(hashes, range(place, place + len(indices)))
        some = self._scope.rendered(indices)
        if len(some):
            self._render(shown, some, place)

    def _render(self, shown: ShownRows, some: Int64, place: int) -> None:
        at = np.searchsorted(shown.index, some)
        rows = self._arrays.chunk(some, shown.source[at], self._true(shown, at))
        hashed, places = self._scope.hashed(some), (at + place).tolist()
        size = rows_together(self._run.seq_len)
        edges = np.searchsorted(hashed, np.arange(0, len(some) + size, size)).tolist()
        for number, batch in enumerate(rendered(self._run, some)):
            low, high = number * size, min((number + 1) * size, len(some))
            self._arrays.look(batch, rows, low, high)
            here = hashed[edges[number] : edges[number + 1]]
            if len(here):
                found = hashes_of(batch, here - low, weighted=self._arrays.weighted)
                self._array_digests.add(found, [places[one] for one in here.tolist()])
        self._arrays.finish()
        self._hashed += len(hashed)
        self._rendered += len(some)

    def _true(self, shown: ShownRows, at: Int64) -> Spans:
        """What the rows at some places of a chunk must show, by their items."""
        found, places = [], []
        every = len(at) == len(shown.index)  # then the laws of the plan have asked the layout
        for number, here in grouped(shown.source[at]):
            if every and (known := self._laws[number].true) is not None:
                found.append(known)
                places.append(here)
                continue
            source, hidden = self._run.run.sources[number], self._hidden[number]
            mine = at[here]
            epoch, inside = source.phases.locate(shown.item[mine])
            row = source.epochs.rows_at(epoch, inside)
            found.append(true_spans(source, hidden, shown.index[mine], epoch, row))
            places.append(here)
        same = [replace(one, sources=found[0].sources) for one in found]  # names play no part
        return Spans.joined(same, places) if len(same) > 1 else same[0]

    def _judge_splices(self) -> None:
        """Whole epochs of splices, against their closed form."""
        scope = self._scope
        if scope.sample is not None or not scope.rows:
            return
        epochs = spliced_epochs(self._run, scope.first, scope.last)
        if epochs:
            self._laws[0].compare_all(spliced_sum(self._run, epochs))

    def _counts(self) -> dict[str, Any]:
        sources = {}
        for name, laws in zip(self._run.run.names, self._laws, strict=True):
            sources[name] = {
                "rows": laws.rows,
                "tokens": laws.tokens,
                "epochs": len(laws.totals),
                "whole_epochs": laws.whole_epochs,
                "truth": laws.truth,
            }
        errors = {name: float(f"{error:.9g}") for name, error in self._items.errors.items()}
        return {
            "rows": self._scope.rows,
            "rendered": self._rendered,
            "hashed": self._hashed,
            "sources": sources,
            "mixture_error": errors,
        }

    def _left_out(self) -> Iterator[str]:
        scope, rows = self._scope, self._scope.last - self._scope.first
        if scope.sample is not None:
            yield f"{rows - scope.rows:,} of {rows:,} rows, and whether whole epochs are complete"
        if scope.arrays == "none":
            yield "tokens and arrays: no row was rendered"
        elif self._rendered:
            if self._rendered < scope.rows:
                left = scope.rows - self._rendered
                yield f"the arrays of {left:,} of {scope.rows:,} rows"
            yield PARTLY
        yield from self._items.not_looked_at
        n = self._run.run.n
        if n is None:
            yield f"rows from {scope.last:,} on: the run is endless"
        elif rows < n:
            yield f"{n - rows:,} rows outside of the range"
