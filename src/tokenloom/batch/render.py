"""From indices to batches: plan in chunks, read once for a group, fill once for a batch.

One idea: everything that is arithmetic (order, runs, which block a row stands in) is done for
thousands of examples at a time, because a NumPy call costs more than the work of a batch. What is
left for a batch is one call that copies and widens (`tokenloom.batch.cells`).

Tokens come in one of two ways. *By blocks*: the layout's storage-local blocks are fetched whole and
kept, for orders that come back to them soon. *By ranges*: each row is read by itself, merged with
its neighbours, for indices in no order that the cache could hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import distinct
from tokenloom.batch import tiles as masks
from tokenloom.batch.batch import Batch
from tokenloom.batch.cells import Copier, copier, new_array
from tokenloom.batch.plan import Plan, Planned
from tokenloom.batch.spec import RenderSpec
from tokenloom.layout.layout import Reads
from tokenloom.layout.spans import Spans
from tokenloom.order.run import SourceRun, loss_columns
from tokenloom.store.cache import BlockCache

__all__ = ["Fetched", "Pending", "Renderer", "Rendering", "Rows", "cut_batches"]

Int64 = NDArray[np.int64]

Float32 = NDArray[np.float32]

Array = NDArray[Any]

LOSS = frozenset({"labels", "loss_mask", "loss_weights"})  # fields that look at loss columns


class Pending(NamedTuple):
    """A batch whose tokens have been read; `make` puts them into their array."""

    copier: Copier
    first: int
    last: int
    base: int
    rows: Rows

    def make(self) -> Batch:
        """The batch. It keeps none of the blocks that its tokens come from."""
        copier, first, last, base, rows = self
        plan, renderer = rows.plan, rows.renderer
        cells = new_array((len(rows), plan.width), np.int32)
        copier.fill(cells, first, last, base, renderer.spec.pad_id)
        if plan.inserts:
            where, what = plan.inserted(rows.start, rows.stop)
            cells.reshape(-1)[where] = what
        return renderer.batch_of(cells, rows)


class Rows:
    """Some rows of a plan, and some of filler behind them: the `Details` of a batch."""

    __slots__ = ("extra", "plan", "renderer", "start", "stop")

    def __init__(
        self, renderer: Rendering, plan: Planned, start: int, stop: int, extra: int
    ) -> None:
        self.renderer, self.plan = renderer, plan
        self.start, self.stop, self.extra = start, stop, extra

    def __len__(self) -> int:
        return self.stop - self.start + self.extra

    @property
    def real(self) -> int:
        """Rows that are no filler."""
        return self.stop - self.start

    def index(self) -> Int64:
        """The index of each row, -1 for filler."""
        index = self.plan.indices[self.start : self.stop]
        return np.append(index, np.full(self.extra, -1, np.int64)) if self.extra else index

    def spans(self) -> Spans:
        """See `Details`."""
        spans = self.plan.spans.frames(self.start, self.stop)
        return spans.padded(self.extra) if self.extra else spans

    def tiles(self, width: int) -> masks.Tiles:
        """See `Details`."""
        if self.extra:
            return masks.tile(self.spans(), width)
        return self.plan.tiles(width).slice(self.start, self.stop)

    def weights(self) -> Float32 | None:
        """See `Details`."""
        return self.renderer.weights(self.plan, self.start, self.stop, self.extra)


class Rendering(Protocol):
    """What makes batches, of one source or of several."""

    spec: RenderSpec

    def found(self, plan: Any, start: int, stop: int, column: str) -> Fetched:
        """The runs of some examples, read."""

    def batch_of(self, cells: NDArray[np.int32], rows: Rows) -> Batch:
        """The batch whose cells have been filled."""

    def weights(self, plan: Any, start: int, stop: int, extra: int) -> Float32 | None:
        """The stored loss weight of every cell; two columns multiply."""


class Fetched(NamedTuple):
    """Runs of tokens that were read, and where they go.

    Attributes:
        views: where they are.
        which, low, length, cell: see `tokenloom.batch.cells.copier` [runs].
        edges: the first run of each example, and their number [examples + 1].
    """

    views: list[Array]
    which: Int64
    low: Int64
    length: Int64
    cell: Int64
    edges: list[int]

    @property
    def copier(self) -> Copier:
        """What puts them into cells."""
        return copier(self.views, self.which, self.low, self.length, self.cell)


class Renderer:
    """Batches of a run.

    Args:
        run: index → row.
        spec: how to derive what is not a token.
        by_blocks: fetch whole blocks through the cache, or each row by itself.
        cache: keeps the blocks.
    """

    def __init__(
        self, run: SourceRun, spec: RenderSpec, *, by_blocks: bool, cache: BlockCache
    ) -> None:
        self.run, self.spec, self.by_blocks, self.cache = run, spec, by_blocks, cache
        self._weights = loss_columns(run.layout.line.reader)
        # all that decides where a block begins and ends: two datasets may share the cache
        self._tag = f"{run.layout.tag}/{run.io_blocks.size}"

    def plan(self, indices: Int64) -> Plan:
        """Where these examples come from."""
        epoch, row = self.run.locate(indices)
        return Plan(indices, epoch, row, self.run)

    def batches(self, plan: Plan, cuts: Sequence[int], padding: int = 0) -> list[Pending]:
        """The examples between neighbouring cuts, each a batch that is read but not yet filled.

        Args:
            plan: the examples.
            cuts: places in the plan, ascending; all tokens between the first and the last come in
                one read.
            padding: rows to add to the last batch, which hold filler only.
        """
        return cut_batches(self, plan, cuts, padding)

    def at_hand(self, plan: Plan, start: int, stop: int) -> bool:
        """Whether the tokens of some examples are in memory."""
        if not self.by_blocks or start == stop:
            return False
        numbers, _ = distinct(plan.block[start:stop])
        keys = self.run.layout.line.keys(self._tag, numbers.tolist(), "input_ids")
        return self.cache.holds(keys)

    def pretend(self, plan: Plan, start: int, stop: int, cache: BlockCache) -> None:
        """Fetch the blocks of some examples through a cache, without reading anything."""
        numbers, _ = distinct(plan.block[start:stop])
        first, last = self.run.stretch(numbers)
        line = self.run.layout.line
        nothing = np.zeros(1, line.reader.dtype("input_ids"))

        def load(places: list[int]) -> list[Array]:
            return [np.broadcast_to(nothing, int(last[i] - first[i])) for i in places]

        cache.get_many(line.keys(self._tag, numbers.tolist(), "input_ids"), load)

    def look_up(self, plan: Plan, start: int, stop: int, fields: Sequence[str]) -> None:
        """Have at hand what these fields of some examples need beside tokens."""
        if self.spec.segments == "documents" and fields != ("tokens",):
            plan.tiles(self.run.layout.seq_len)
        if self.by_blocks and stop > start and LOSS.intersection(fields):
            for column in self._weights:
                self._blocks(plan, start, stop, column)

    def weights(self, plan: Plan, start: int, stop: int, extra: int) -> Float32 | None:
        """The stored loss weight of every cell; two columns multiply."""
        if not self._weights:
            return None
        out = np.ones((stop - start + extra, plan.width), np.float32)
        for column in self._weights:
            values = np.empty_like(out)
            found = self.found(plan, start, stop, column)
            found.copier.fill(values, 0, found.edges[-1], 0, 0)
            if plan.inserts:  # the store says nothing about these
                values.reshape(-1)[plan.inserted(start, stop)[0]] = 1
            out *= values
        return out

    def found(self, plan: Plan, start: int, stop: int, column: str) -> Fetched:
        """The runs of some examples, read."""
        runs = plan.runs.frames(start, stop)
        frame = np.repeat(np.arange(stop - start), np.diff(runs.edges))
        cell = frame * runs.width + runs.at
        if self.by_blocks and stop > start:
            blocks, found, first = self._blocks(plan, start, stop, column)
            which = np.zeros(len(frame), np.int64) if found is None else found[frame]
            low = runs.address - first[which]
            return Fetched(blocks, which, low, runs.length, cell, runs.edges.tolist())
        views = self.run.layout.line.read(runs.address, runs.address + runs.length, column)
        return _in_pieces(views, runs, cell)

    def batch_of(self, cells: NDArray[np.int32], rows: Rows) -> Batch:
        """The batch whose cells have been filled."""
        return Batch(cells, rows.index(), self.run.layout.seq_len, self.spec, rows)

    def _blocks(
        self, plan: Plan, start: int, stop: int, column: str
    ) -> tuple[list[Array], Int64 | None, Int64]:
        """The blocks of some examples, which of them each is in (None: all in one), their begin."""
        numbers, which = distinct(plan.block[start:stop])
        first, last = self.run.stretch(numbers)
        line = self.run.layout.line
        blocks = line.stretches(self._tag, numbers.tolist(), first, last, column, self.cache)
        return blocks, which, first


def _in_pieces(views: list[Array], runs: Reads, cell: Int64) -> Fetched:
    """Runs that came one after the other, each in one view or several."""
    views = [view for view in views if len(view)]
    length = np.array([len(view) for view in views], np.int64)
    begin = np.cumsum(length) - length  # tokens before each view
    ends = np.cumsum(runs.length)
    owner = np.searchsorted(ends, begin, side="right")
    places = (cell - (ends - runs.length))[owner] + begin
    which, low = np.arange(len(views)), np.zeros(len(views), np.int64)
    before = np.concatenate([[0], ends])[runs.edges]  # tokens before each frame
    edges: list[int] = np.searchsorted(begin, before).tolist()
    return Fetched(views, which, low, length, places, edges)


def cut_batches(
    renderer: Rendering, plan: Planned, cuts: Sequence[int], padding: int
) -> list[Pending]:
    """See `Renderer.batches`."""
    first, last = cuts[0], cuts[-1]
    found = renderer.found(plan, first, last, "input_ids")
    copies, edges, width = found.copier, found.edges, plan.width
    made: list[Pending] = []
    for start, stop in itertools.pairwise(cuts):
        extra = padding if len(made) == len(cuts) - 2 else 0
        rows = Rows(renderer, plan, start, stop, extra)
        low, high = edges[start - first], edges[stop - first]
        made.append(Pending(copies, low, high, (start - first) * width, rows))
    return made
