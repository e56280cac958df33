"""From indices to batches: plan in chunks, read once for a group, fill once for a batch.

One idea: everything that is arithmetic (order, runs, which block a row stands in) is done for
thousands of examples at a time, because a NumPy call costs more than the work of a batch. What is
left for a batch is one call that copies and widens (`tokenloom.cells`).

Tokens come in one of two ways. *By blocks*: the layout's storage-local blocks are fetched whole and
kept, for orders that come back to them soon. *By ranges*: each row is read by itself, merged with
its neighbours, for indices in no order that the cache could hold.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom import masks
from tokenloom.batch import Batch
from tokenloom.cells import Copier, copier, new_array
from tokenloom.layout.runs import Runs
from tokenloom.order.windowed import distinct
from tokenloom.rendering import RenderSpec
from tokenloom.run import SourceRun, loss_columns
from tokenloom.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.store.cache import BlockCache

__all__ = ["Pending", "Plan", "Renderer"]

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
    rows: _Rows

    def make(self) -> Batch:
        """The batch. It keeps none of the blocks that its tokens come from."""
        copier, first, last, base, rows = self
        cells = new_array((len(rows), rows.plan.runs.width), np.int32)
        spec = rows.renderer.spec
        copier.fill(cells, first, last, base, spec.pad_id)
        if rows.plan.inserts:
            where, what = rows.plan.inserted(rows.start, rows.stop)
            cells.reshape(-1)[where] = what
        return Batch(cells, rows.index(), rows.plan.run.layout.seq_len, spec, rows)


class _Rows:
    """Some rows of a plan, and some of filler behind them: the `Details` of a batch."""

    __slots__ = ("extra", "plan", "renderer", "start", "stop")

    def __init__(self, renderer: Renderer, plan: Plan, start: int, stop: int, extra: int) -> None:
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


@dataclass(frozen=True, eq=False)
class Plan:
    """Some examples of a run, before any token is read.

    Attributes:
        indices: their indices [N].
        epoch, row: where they stand in the layout [N].
        run: what they are of.
    """

    indices: Int64
    epoch: Int64
    row: Int64
    run: SourceRun

    @functools.cached_property
    def runs(self) -> Runs:
        """What to read for them."""
        return self.run.layout.runs(self.epoch, self.row)

    @functools.cached_property
    def spans(self) -> Spans:
        """The spans of all of them."""
        return self.run.layout.spans(self.epoch, self.row).named(self.run.name)

    def tiles(self, width: int) -> masks.Tiles:
        """The cells of all of them, as tiles."""
        known = self._tiles.get(width)
        if known is None:
            known = self._tiles[width] = masks.tile(self.spans, width)
        return known

    @functools.cached_property
    def _tiles(self) -> dict[int, masks.Tiles]:
        return {}

    @property
    def inserts(self) -> bool:
        """Whether some tokens of the frames are not stored: BOS and EOS."""
        return self.run.layout.inserted != (None, None)

    def inserted(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """Inserted tokens of some examples: cells, counted from their first one, and ids."""
        cell, token = self._inserted
        width = self.runs.width
        low, high = np.searchsorted(cell, (start * width, stop * width)).tolist()
        return cell[low:high] - start * width, token[low:high]

    @functools.cached_property
    def _inserted(self) -> tuple[Int64, Int64]:
        spans, (bos, eos) = self.spans, self.run.layout.inserted
        first = spans.row * spans.width + spans.at
        begins, ends = (spans.flags & BOS) > 0, (spans.flags & EOS) > 0
        before = (spans.flags & EOS_BEFORE) > 0
        cells = first[begins], (first + spans.cells - 1)[ends], (first - 1)[before]
        ids = [
            np.full(len(some), token or 0)
            for some, token in zip(cells, (bos, eos, eos), strict=True)
        ]
        cell = np.concatenate(cells)
        order = np.argsort(cell)
        return cell[order], np.concatenate(ids)[order]

    @functools.cached_property
    def block(self) -> Int64:
        """The io block of each example [N]."""
        return self.run.block_of(self.epoch, self.row)


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
        first, last = cuts[0], cuts[-1]
        copies, edges = self._copies(plan, first, last, "input_ids")
        width = plan.runs.width
        made: list[Pending] = []
        for start, stop in itertools.pairwise(cuts):
            extra = padding if len(made) == len(cuts) - 2 else 0
            rows = _Rows(self, plan, start, stop, extra)
            low, high = edges[start - first], edges[stop - first]
            made.append(Pending(copies, low, high, (start - first) * width, rows))
        return made

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
        out = np.ones((stop - start + extra, plan.runs.width), np.float32)
        for column in self._weights:
            values = np.empty_like(out)
            copies, edges = self._copies(plan, start, stop, column)
            copies.fill(values, 0, edges[-1], 0, 0)
            if plan.inserts:  # the store says nothing about these
                values.reshape(-1)[plan.inserted(start, stop)[0]] = 1
            out *= values
        return out

    def _copies(self, plan: Plan, start: int, stop: int, column: str) -> tuple[Copier, list[int]]:
        """The runs of some examples, read; and the first run of each example, and their number."""
        runs = plan.runs.frames(start, stop)
        frame = np.repeat(np.arange(stop - start), np.diff(runs.edges))
        cell = frame * runs.width + runs.at
        if self.by_blocks and stop > start:
            blocks, found, first = self._blocks(plan, start, stop, column)
            which = np.zeros(len(frame), np.int64) if found is None else found[frame]
            low = runs.address - first[which]
            return copier(blocks, which, low, runs.length, cell), runs.edges.tolist()
        views = self.run.layout.line.read(runs.address, runs.address + runs.length, column)
        return _in_pieces(views, runs, cell)

    def _blocks(
        self, plan: Plan, start: int, stop: int, column: str
    ) -> tuple[list[Array], Int64 | None, Int64]:
        """The blocks of some examples, which of them each is in (None: all in one), their begin."""
        numbers, which = distinct(plan.block[start:stop])
        first, last = self.run.stretch(numbers)
        line = self.run.layout.line
        blocks = line.stretches(self._tag, numbers.tolist(), first, last, column, self.cache)
        return blocks, which, first


def _in_pieces(views: list[Array], runs: Runs, cell: Int64) -> tuple[Copier, list[int]]:
    """A copier of runs that came one after the other, each in one view or several."""
    views = [view for view in views if len(view)]
    length = np.array([len(view) for view in views], np.int64)
    begin = np.cumsum(length) - length  # tokens before each view
    ends = np.cumsum(runs.length)
    owner = np.searchsorted(ends, begin, side="right")
    places = (cell - (ends - runs.length))[owner] + begin
    which, low = np.arange(len(views)), np.zeros(len(views), np.int64)
    before = np.concatenate([[0], ends])[runs.edges]  # tokens before each frame
    edges: list[int] = np.searchsorted(begin, before).tolist()
    return copier(views, which, low, length, places), edges
