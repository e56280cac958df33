"""From indices to batches: plan in chunks, read once for a group, fill once for a batch.

One idea: everything that is arithmetic (order, runs, which block a row stands in) is done for
thousands of examples at a time, because a NumPy call costs more than the work of a batch. What is
left for a batch is one call that copies and casts: `np.concatenate` of views, or, where all blocks
lie in one region of memory, indexing into it.

Tokens come in one of two ways. *By blocks*: the layout's storage-local blocks are fetched whole and
kept, for orders that come back to them soon. *By ranges*: each row is read by itself, merged with
its neighbours, for indices in no order that the cache could hold.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom import masks
from tokenloom.batch import Batch, RenderSpec, new_array
from tokenloom.layout.runs import Runs
from tokenloom.order.windowed import distinct
from tokenloom.run import SourceRun, loss_columns
from tokenloom.spans import Spans
from tokenloom.store.cache import BlockCache
from tokenloom.store.source import REGION

__all__ = ["Pending", "Plan", "Renderer", "fill"]

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]
Array = NDArray[Any]


class Rows(NamedTuple):
    """Rows of a batch that lie anywhere in one array of all possible rows."""

    every: Array
    place: Int64


class Located(NamedTuple):
    """Runs in blocks: the blocks, which of them each run is in, and where it begins there."""

    blocks: list[Array]
    which: Int64
    low: Int64

    def views(self, runs: Runs) -> list[Array]:
        """The elements of each run."""
        high = self.low + runs.length
        places = zip(self.which.tolist(), self.low.tolist(), high.tolist(), strict=True)
        return [self.blocks[block][a:b] for block, a, b in places]


@dataclass(frozen=True, eq=False, slots=True)
class Pending:
    """A batch whose tokens have been read; `make` puts them into their array."""

    renderer: Renderer
    plan: Plan
    start: int
    stop: int
    extra: int
    views: Sequence[Array]
    rows: Rows | None = None

    def make(self) -> Batch:
        """The batch."""
        spec, layout = self.renderer.spec, self.plan.run.layout
        rows = self.stop - self.start + self.extra
        cells = new_array((rows, layout.width), np.int32)
        if self.rows is not None:
            cells[:] = self.rows.every[self.rows.place]
        elif self.plan.runs.full and not self.extra and rows:
            np.concatenate(self.views, out=cells.reshape(-1), casting="unsafe")
        else:
            fill(cells, self.plan.runs.frames(self.start, self.stop), self.views, spec.pad_id)
        index = self.plan.indices[self.start : self.stop]
        if self.extra:
            index = np.concatenate([index, np.full(self.extra, -1, np.int64)])
        # the batch has its tokens: without the views the blocks they came from can go
        light = Pending(self.renderer, self.plan, self.start, self.stop, self.extra, ())
        return Batch(cells, index, layout.seq_len, spec, light)

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


@dataclass(frozen=True, eq=False)
class Plan:
    """Some examples of a run, before any token is read.

    Attributes:
        indices: their indices [N].
        epoch, row: where they stand in the layout [N].
        runs: what to read for them.
    """

    indices: Int64
    epoch: Int64
    row: Int64
    runs: Runs
    run: SourceRun

    @functools.cached_property
    def spans(self) -> Spans:
        """The spans of all of them."""
        return self.run.layout.spans(0, self.row).named(self.run.name)

    def tiles(self, width: int) -> masks.Tiles:
        """The cells of all of them, as tiles."""
        known = self._tiles.get(width)
        if known is None:
            known = self._tiles[width] = masks.tile(self.spans, width)
        return known

    @functools.cached_property
    def _tiles(self) -> dict[int, masks.Tiles]:
        return {}

    @functools.cached_property
    def block(self) -> Int64:
        """The io block of each example [N]."""
        return self.run.io_blocks.of(self.row)


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
        self._placed: dict[int, tuple[weakref.ref[Array], int]] = {}

    def plan(self, indices: Int64) -> Plan:
        """Where these examples come from."""
        epoch, row = self.run.locate(indices)
        return Plan(indices, epoch, row, self.run.layout.runs(0, row), self.run)

    def batches(self, plan: Plan, cuts: Sequence[int], padding: int = 0) -> list[Pending]:
        """The examples between neighbouring cuts, each a batch that is read but not yet filled.

        Args:
            plan: the examples.
            cuts: places in the plan, ascending; all tokens between the first and the last come in
                one read.
            padding: rows to add to the last batch, which hold filler only.
        """
        first, last = cuts[0], cuts[-1]
        runs = plan.runs.frames(first, last)
        if self.by_blocks and last > first:
            located = self._located(plan, runs, first, last)
            rows = self._gathered(located, runs) if runs.single and not padding else None
            if rows is not None:
                every, place = rows
                parts = [(a, b, place[a - first : b - first]) for a, b in itertools.pairwise(cuts)]
                blocks = located.blocks
                return [Pending(self, plan, a, b, 0, blocks, Rows(every, p)) for a, b, p in parts]
            views = located.views(runs)
        else:
            views = self._views(plan, runs, first, last)
        if len(views) != len(runs.address):  # a run came in pieces: give each its own
            views = _joined(views, runs.length)
        edges = runs.edges.tolist()
        made: list[Pending] = []
        for start, stop in itertools.pairwise(cuts):
            extra = padding if len(made) == len(cuts) - 2 else 0
            here = views[edges[start - first] : edges[stop - first]]
            made.append(Pending(self, plan, start, stop, extra, here))
        return made

    def weights(self, plan: Plan, start: int, stop: int, extra: int) -> Float32 | None:
        """The stored loss weight of every cell; two columns multiply."""
        if not self._weights:
            return None
        runs = plan.runs.frames(start, stop)
        out = np.ones((stop - start + extra, runs.width), np.float32)
        for column in self._weights:
            values = np.zeros_like(out)
            fill(values, runs, self._views(plan, runs, start, stop, column), 0)
            out *= values
        return out

    def _gathered(self, located: Located, runs: Runs) -> Rows | None:
        """Rows that are one run each, in blocks that all lie in the read region; else None.

        Then a batch is one indexing operation: no view for any row.
        """
        blocks, which, low = located
        begin = np.array(self._offsets(blocks), np.int64)
        length = np.array([len(block) for block in blocks], np.int64)
        if (begin < 0).any() or (low < 0).any() or (low + runs.width > length[which]).any():
            return None
        return Rows(REGION.rows(runs.width, blocks[0].dtype), begin[which] + low)

    def _offsets(self, blocks: Sequence[Array]) -> list[int]:
        """Where in the region each block begins; those of the last group are remembered."""
        before, now = self._placed, {}
        for block in blocks:
            known = before.get(id(block))
            if known is None or known[0]() is not block:  # an id may belong to another by now
                known = weakref.ref(block), REGION.offset(block)
            now[id(block)] = known
        self._placed = now
        return [place for _, place in now.values()]

    def _views(
        self, plan: Plan, runs: Runs, start: int, stop: int, column: str = "input_ids"
    ) -> list[Array]:
        """The elements of all runs of these examples, in order; a run may come in several views."""
        if self.by_blocks and stop > start:
            return self._located(plan, runs, start, stop, column).views(runs)
        return self.run.layout.line.read(runs.address, runs.address + runs.length, column)

    def _located(
        self, plan: Plan, runs: Runs, start: int, stop: int, column: str = "input_ids"
    ) -> Located:
        """Where the runs of some examples, at least one, stand in their blocks."""
        numbers, found = distinct(plan.block[start:stop])
        which = np.zeros(stop - start, np.int64) if found is None else found
        first, last = self.run.layout.stretch(numbers, self.run.io_blocks)
        line = self.run.layout.line
        blocks = line.stretches(self._tag, numbers.tolist(), first, last, column, self.cache)
        if len(runs.address) != stop - start:
            which = np.repeat(which, np.diff(runs.edges))
        return Located(blocks, which, runs.address - first[which])


def _joined(views: Sequence[Array], lengths: Int64) -> list[Array]:
    """The same elements, one array for every length."""
    if not len(lengths):
        return []
    return np.split(np.concatenate(views), np.cumsum(lengths)[:-1].tolist())


def fill(cells: NDArray[Any], runs: Runs, views: Sequence[Array], filler: int) -> None:
    """Write runs into their cells [B, width], `filler` into all others."""
    cells.fill(filler)
    if not views:
        return
    rows = np.repeat(np.arange(len(runs.edges) - 1), np.diff(runs.edges))
    first = rows * runs.width + runs.at
    ends = np.cumsum(runs.length)
    # cell of token j of all runs: where its run begins, and how far j is behind that
    place = np.repeat(first - (ends - runs.length), runs.length) + np.arange(int(ends[-1]))
    cells.reshape(-1)[place] = np.concatenate(views)
