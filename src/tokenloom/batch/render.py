"""From plans to batches: read once per group, fill once per batch.

One idea: a plan lists which tokens go where. Each source reads its own tokens
(`tokenloom.batch.read`), and their destinations are one list in cell order. So a batch is one call
that copies and widens (`tokenloom.batch.cells`), whichever sources its rows come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenloom.arrays import Float32, Int64, grouped
from tokenloom.batch.batch import Batch, Details, Kind
from tokenloom.batch.cells import Copier, Runs, fill, new_array
from tokenloom.batch.paint import SomeTiles, Tiles, tile, weave
from tokenloom.batch.plan import Plan
from tokenloom.batch.read import Fetched, FetchedRows, RowReader, merged, together
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.trained import trained_count
from tokenloom.batch.views.named import Step
from tokenloom.layout.spans import Spans
from tokenloom.order.run import Run
from tokenloom.store.cache import BlockCache
from tokenloom.store.reader import Reader

TOKENS = ("tokens",)  # what every batch has

ASKED = "step_loss_tokens: it counts the rows of all ranks, and"

REMEDY = "Add up batch.loss_tokens over the ranks instead."

LOSS = frozenset({"labels", "loss_mask", "loss_weights"})  # fields that need loss columns


class Pending(NamedTuple):
    """A batch whose tokens have been read; `make` puts them into their array.

    Attributes:
        copier: copies the tokens of all batches that were read together.
        first, last: the runs of this batch.
        base: its first cell, counted over all these batches.
        rows: its rows.
        names: arrays to paint in the same pass.
    """

    copier: Copier
    first: int
    last: int
    base: int
    rows: RowsOf
    names: tuple[str, ...] = ()

    def make(self, step: Step | None = None, fields: Sequence[str] = TOKENS) -> Batch:
        """The batch. It keeps no reference to the blocks its tokens come from.

        Args:
            step: the step of a loader that it is a share of; see `Batch`.
            fields: arrays to make now.
        """
        copier, first, last, base, rows, names = self
        renderer, width = rows.renderer, rows.plan.width
        kinds, shape = renderer.kinds_of(rows), (len(rows), width)
        runs = Runs(first, last, base, kinds[0].render.pad_id)
        if names:
            woven = weave(copier, runs, rows.some_tiles(width), names, shape, renderer.dtype)
            cells = woven.arrays[0]
        else:
            woven, cells = None, new_array(shape, renderer.dtype)
            fill(copier, cells, runs)
        batch = Batch(cells, rows.index(), renderer.seq_len, kinds, rows, step, woven)
        return batch if fields == TOKENS else batch.prepare(fields)


class Ready(NamedTuple):
    """The tokens of some examples: what copies them, and the first run of each, and their end."""

    copier: Copier
    edges: list[int]


class RowsOf(Details):
    """Some rows of a plan, followed by rows of filler: the `Details` of a batch."""

    __slots__ = ("extra", "plan", "renderer", "start", "stop")

    def __init__(self, renderer: Renderer, plan: Plan, start: int, stop: int, extra: int) -> None:
        self.renderer, self.plan = renderer, plan
        self.start, self.stop, self.extra = start, stop, extra

    def __len__(self) -> int:
        return self.stop - self.start + self.extra

    @property
    def real(self) -> int:
        """The number of rows that are not filler."""
        return self.stop - self.start

    def index(self) -> Int64:
        """The index of each row, -1 for filler."""
        index = self.plan.indices[self.start : self.stop]
        return np.append(index, np.full(self.extra, -1, np.int64)) if self.extra else index

    def spans(self) -> Spans:
        """See `Details`."""
        spans = self.plan.spans.frames(self.start, self.stop)
        return spans.padded(self.extra) if self.extra else spans

    def tiles(self, width: int) -> Tiles:
        """See `Details`."""
        if self.extra:
            return tile(self.spans(), width)
        return self.plan.tiles(width).slice(self.start, self.stop)

    def some_tiles(self, width: int) -> SomeTiles:
        """The same, as a part of the tiles of the whole plan."""
        if self.extra:
            tiles = self.tiles(width)
            return SomeTiles(tiles, 0, len(tiles.first), 0)
        tiles = self.plan.tiles(width)
        edges = tiles.edges
        return SomeTiles(tiles, edges[self.start], edges[self.stop], self.start * width)

    def weights(self) -> Float32 | None:
        """See `Details`."""
        return self.renderer.weights(self.plan, self.start, self.stop, self.extra)

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        return self.renderer.metadata(self.spans())

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        return self.renderer.readers()


class Renderer:
    """Given a plan of a run, makes its batches.

    Args:
        run: the run of the plans.
        readers: one for each source.
        specs: how each source is rendered.
        dtype: of tokens and labels, int32 or int64.
    """

    def __init__(
        self,
        run: Run,
        readers: Sequence[RowReader],
        specs: Sequence[RenderSpec],
        dtype: Any = np.int32,
    ) -> None:
        self._run, self._readers, self.dtype = run, readers, np.dtype(dtype)
        self.seq_len = run.seq_len
        self.by_blocks, self.cache = readers[0].by_blocks, readers[0].cache
        self._specs, self._kinds = specs, list(dict.fromkeys(specs))
        self._kind_of = np.array([self._kinds.index(spec) for spec in specs])
        self._alone = [Kind(self._kinds[0], None)] if len(self._kinds) == 1 else None
        self._together = together(run, readers)
        self._has_tiles = any(spec.segments == "documents" for spec in specs)

    def plan(self, indices: Int64) -> Plan:
        """Where these examples come from."""
        return Plan(self._run, indices)

    def batches(
        self,
        plan: Plan,
        cuts: Sequence[int],
        padding: int = 0,
        fields: Sequence[str] = TOKENS,
        ready: Ready | None = None,
    ) -> list[Pending]:
        """One batch for the examples between each pair of adjacent cuts, read but not yet filled.

        Args:
            plan: the examples.
            cuts: places in the plan, ascending; all tokens between the first and the last cut are
                fetched in one read.
            padding: rows of filler to add to the last batch.
            fields: arrays that will be made at once.
            ready: what `fetch` gave for these examples, if it was asked before.
        """
        first, last = cuts[0], cuts[-1]
        copies, edges = ready or self.fetch(plan, first, last)
        width = plan.width
        names = self._painted_with_tokens(plan, fields)
        made: list[Pending] = []
        for start, stop in itertools.pairwise(cuts):
            extra = padding if len(made) == len(cuts) - 2 else 0
            rows = RowsOf(self, plan, start, stop, extra)
            low, high = edges[start - first], edges[stop - first]
            made.append(Pending(copies, low, high, (start - first) * width, rows, names))
        return made

    def _painted_with_tokens(self, plan: Plan, fields: Sequence[str]) -> tuple[str, ...]:
        """The arrays among `fields` that are painted in one pass with the tokens of a plan."""
        whole = plan.width == self.seq_len and self._has_tiles
        if self._alone is None or fields == TOKENS or not whole:
            return ()
        weighed = any(reader.has_weights for reader in self._readers)
        usual = not weighed and not len(plan.tiles(plan.width).blank)
        return self._alone[0].render.painted_of(tuple(fields), usual=usual)

    def batch(self, indices: Int64) -> Batch:
        """These examples, in this order."""
        return self.batches(self.plan(indices), [0, len(indices)])[0].make()

    def loss_tokens(self, plan: Plan) -> Int64:
        """How many predictions count in each example of a plan, without reading tokens [N].

        Sources that the plan does not show must not depend on token values either: which examples
        are planned together depends on internal sizes.
        """
        counts = [
            trained_count(one.name, spec, ASKED, REMEDY)
            for one, spec in zip(self._run.sources, self._specs, strict=True)
        ]
        found = np.zeros(len(plan.indices), np.int64)
        for part in plan.parts:
            run, at = part.placed.run, slice(None) if part.at is None else part.at
            found[at] = counts[part.number](part.spans, run.seq_len, run.layout.line)
        return found

    @property
    def in_place(self) -> bool:
        """Whether tokens are read when a batch is made, and nothing is read before."""
        return all(reader.in_place for reader in self._readers)

    def fetch(self, plan: Plan, start: int, stop: int) -> Ready:
        """The tokens of some examples, read, or found in files."""
        found = self._fetched(plan, start, stop, "input_ids")
        if plan.inserts:
            found = merged([found, _inserted(plan, start, stop)], stop - start, plan.width)
        return Ready(found.copier(), found.edges)

    def _fetched(self, plan: Plan, start: int, stop: int, column: str) -> Fetched | FetchedRows:
        if len(plan.parts) == 1 and plan.parts[0].at is None:
            part = plan.parts[0]
            return self._readers[part.number].fetched(part, start, stop, column)
        if self._together is not None:
            return self._together.fetched(plan, start, stop, column)
        found = []
        for part, low, high in plan.shares(start, stop):
            one = self._readers[part.number].fetched(part, low, high, column).by_reads()
            found.append(one._replace(cell=part.cells(one.cell, low, start, plan.width)))
        return merged(found, stop - start, plan.width)

    def at_hand(self, plan: Plan, start: int, stop: int) -> bool:
        """Whether the tokens of some examples are in memory."""
        if self._together is not None:
            return self._together.at_hand(plan, start, stop)
        shares = plan.shares(start, stop)
        held = (self._readers[p.number].at_hand(p, low, high) for p, low, high in shares)
        return bool(shares) and all(held)

    @property
    def caches(self) -> list[BlockCache]:
        """The cache of each source."""
        return [reader.cache for reader in self._readers]

    def pretend(self, plan: Plan, start: int, stop: int, caches: Sequence[BlockCache]) -> None:
        """Fetch the blocks of some examples through other caches, without reading anything."""
        for part, low, high in plan.shares(start, stop):
            self._readers[part.number].pretend(part, low, high, caches[part.number])

    def fetch_ahead(self, plan: Plan, fields: Sequence[str], *, keep: bool = False) -> int:
        """Have the blocks of a plan fetched that are not in memory; see `RowReader`."""
        weights = bool(LOSS.intersection(fields))
        if self._together is not None and not weights and not self._together.lacks(plan):
            return 0
        parts = [(self._readers[part.number], part) for part in plan.parts]
        return sum(one.fetch_ahead(part, weights=weights, keep=keep) for one, part in parts)

    def drop_ahead(self) -> None:
        """Fetch nothing more ahead of time."""
        for reader in self._readers:
            reader.drop_ahead()

    def finish_ahead(self) -> None:
        """Return when everything has been fetched that was to be fetched ahead of time."""
        for reader in self._readers:
            reader.finish_ahead()

    def look_up(self, plan: Plan, start: int, stop: int, fields: Sequence[str]) -> None:
        """Prepare what these fields of some examples need in addition to tokens."""
        if self._has_tiles and fields != TOKENS:
            plan.tiles(self.seq_len)
        if LOSS.intersection(fields):
            for part, low, high in plan.shares(start, stop):
                self._readers[part.number].look_up_weights(part, low, high)

    def weights(self, plan: Plan, start: int, stop: int, extra: int) -> Float32 | None:
        """The stored loss weight of every cell, 1 where a source has none; None if none has any."""
        out: Float32 | None = None
        if start == stop and any(reader.has_weights for reader in self._readers):
            return np.ones((extra, plan.width), np.float32)  # filler alone
        for part, low, high in plan.shares(start, stop):
            found = self._readers[part.number].weights(part, low, high)
            if found is None:
                continue
            if out is None:
                out = np.ones((stop - start + extra, plan.width), np.float32)
            out[slice(stop - start) if part.at is None else part.at[low:high] - start] = found
        return out

    def metadata(self, spans: Spans) -> list[list[dict[str, Any]]]:
        """What the stores keep about the documents of each frame; rows of filler have none."""
        readers = self.readers()
        names = [spans.sources[number] for number in spans.source.tolist()]
        found: dict[tuple[str, int], dict[str, Any]] = {}
        out: list[list[dict[str, Any]]] = [[] for _ in names]
        for row, document in zip(spans.row.tolist(), spans.document.tolist(), strict=True):
            which = names[row], document
            if which not in found:
                found[which] = readers[which[0]].named_metadata(document)
            out[row].append(found[which])
        return out

    def readers(self) -> dict[str, Reader]:
        """The store of each source, by name."""
        return dict(zip(self._run.names, (one.store for one in self._readers), strict=True))

    def kinds_of(self, rows: RowsOf) -> list[Kind]:
        """How the rows of a batch are rendered."""
        if self._alone is not None:
            return self._alone
        kind = np.zeros(len(rows), np.int64)
        kind[: rows.real] = self._kind_of[rows.plan.source[rows.start : rows.stop]]
        return [Kind(self._kinds[number], here) for number, here in grouped(kind)]


def _inserted(plan: Plan, start: int, stop: int) -> Fetched:
    """The tokens of some examples that no store has, as reads of one token each."""
    cell, token = plan.inserted(start, stop)
    which, one = np.zeros(len(cell), np.int64), np.ones(len(cell), np.int64)
    return Fetched([token.astype(np.int32)], which, np.arange(len(cell)), one, cell, [])
