"""Rows of several sources in one batch: plan, read and fill as for one.

One idea: each source plans and reads its own rows; where they go is one list of runs, in order of
their cells, and the fill is the same as for a single source. Rows may be rendered differently
(positions of a spliced row are those of the frame, of a packed one those of its documents): then
each way makes its own rows of an array, and they are put together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped
from tokenloom.batch import tiles as masks
from tokenloom.batch.batch import Batch, Details
from tokenloom.batch.plan import Blanks, Plan, Tiled
from tokenloom.batch.render import Fetched, Pending, Renderer, Rows, cut_batches
from tokenloom.batch.spec import RenderSpec
from tokenloom.layout.spans import Spans
from tokenloom.mixture.run import MixedRun
from tokenloom.store.cache import BlockCache

__all__ = ["MixedPlan", "MixedRenderer"]

Int64 = NDArray[np.int64]

Int32 = NDArray[np.int32]

Float32 = NDArray[np.float32]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class MixedPlan(Tiled):
    """Some examples of a mixed run, before any token is read.

    Attributes:
        indices: their indices [N].
        source: of each [N].
        parts: source → the places of its examples, ascending, and their plan.
        width: cells of a frame.
    """

    indices: Int64
    source: Int64
    parts: dict[int, tuple[Int64, Plan]]
    width: int

    @functools.cached_property
    def spans(self) -> Spans:
        """The spans of all of them."""
        parts = [self.parts[number] for number in sorted(self.parts)]
        if not parts:
            return Spans.none(self.width)
        joined = Spans.joined([plan.spans for _, plan in parts], [place for place, _ in parts])
        which = np.empty(len(self.indices), np.int32)
        for number, (place, _) in enumerate(parts):
            which[place] = number
        return joined.of_sources(which, tuple(plan.run.name for _, plan in parts))

    @property
    def inserts(self) -> bool:
        """Whether some tokens of the frames are not stored: BOS and EOS."""
        return any(plan.inserts for _, plan in self.parts.values())

    def inserted(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """Inserted tokens of some examples: cells, counted from their first one, and ids."""
        cells, tokens = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for place, plan in self.parts.values():
            if plan.inserts:
                low, high = np.searchsorted(place, (start, stop)).tolist()
                cell, token = plan.inserted(low, high)
                row, at = np.divmod(cell, self.width)
                cells.append((place[low + row] - start) * self.width + at)
                tokens.append(token)
        return np.concatenate(cells), np.concatenate(tokens)


class MixedRenderer:
    """Batches of a mixed run.

    Args:
        run: index → (source, item).
        renderers: of the sources.
        specs: how each source is rendered.
        blanks: documents of each source that are left out; None for none.
    """

    def __init__(
        self,
        run: MixedRun,
        renderers: Sequence[Renderer],
        specs: Sequence[RenderSpec],
        blanks: Sequence[Blanks | None],
    ) -> None:
        self.run, self._renderers, self._specs, self._blanks = run, renderers, specs, blanks
        self.spec, self.by_blocks = specs[0], renderers[0].by_blocks
        self.cache: BlockCache = renderers[0].cache
        kinds = list(dict.fromkeys(specs))
        self._kind = np.array([kinds.index(spec) for spec in specs])
        self._kinds = kinds

    def plan(self, indices: Int64) -> MixedPlan:
        """Where these examples come from."""
        source, item = self.run.pick(indices)
        parts = {}
        for number, here in grouped(source):
            place = np.sort(here)
            run = self.run.sources[number]
            epoch, row = run.locate(item[place])
            parts[number] = place, Plan(indices[place], epoch, row, run, self._blanks[number])
        return MixedPlan(indices, source, parts, self.run.sources[0].layout.width)

    def batches(self, plan: MixedPlan, cuts: Sequence[int], padding: int = 0) -> list[Pending]:
        """The examples between neighbouring cuts, each a batch that is read but not yet filled."""
        return cut_batches(self, plan, cuts, padding)

    def found(self, plan: MixedPlan, start: int, stop: int, column: str) -> Fetched:
        """The runs of some examples, read: those of every source, in order of their cells."""
        views: list[Array] = []
        parts = []
        for number, low, high in self._shares(plan, start, stop):
            place, own = plan.parts[number]
            found = self._renderers[number].found(own, low, high, column)
            row, at = np.divmod(found.cell, plan.width)
            cell = (place[low + row] - start) * plan.width + at
            parts.append((found.which + len(views), found.low, found.length, cell))
            views += found.views
        if not parts:
            none = np.empty(0, np.int64)
            return Fetched([], none, none, none, none, [0] * (stop - start + 1))
        which, low_, length, cell = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(cell, kind="stable")
        cell = cell[order]
        edges = np.searchsorted(cell, np.arange(stop - start + 1) * plan.width).tolist()
        return Fetched(views, which[order], low_[order], length[order], cell, edges)

    def _shares(self, plan: MixedPlan, start: int, stop: int) -> list[tuple[int, int, int]]:
        """(source, first, behind the last of its examples) that stand among some examples."""
        found = []
        for number, (place, _) in plan.parts.items():
            low, high = np.searchsorted(place, (start, stop)).tolist()
            if high > low:
                found.append((number, low, high))
        return found

    def at_hand(self, plan: MixedPlan, start: int, stop: int) -> bool:
        """Whether the tokens of some examples are in memory."""
        return all(
            self._renderers[number].at_hand(plan.parts[number][1], low, high)
            for number, low, high in self._shares(plan, start, stop)
        )

    def pretend(self, plan: MixedPlan, start: int, stop: int, cache: BlockCache) -> None:
        """Fetch the blocks of some examples through a cache, without reading anything."""
        for number, low, high in self._shares(plan, start, stop):
            self._renderers[number].pretend(plan.parts[number][1], low, high, cache)

    def look_up(self, plan: MixedPlan, start: int, stop: int, fields: Sequence[str]) -> None:
        """Have at hand what these fields of some examples need beside tokens."""
        if fields != ("tokens",):
            plan.tiles(self.run.seq_len)
        for number, low, high in self._shares(plan, start, stop):
            self._renderers[number].look_up(plan.parts[number][1], low, high, ("tokens", *fields))

    def weights(self, plan: MixedPlan, start: int, stop: int, extra: int) -> Float32 | None:
        """The stored loss weight of every cell, 1 where a source has none."""
        out: Float32 | None = None
        for number, low, high in self._shares(plan, start, stop):
            place, own = plan.parts[number]
            found = self._renderers[number].weights(own, low, high, 0)
            if found is not None:
                if out is None:
                    out = np.ones((stop - start + extra, plan.width), np.float32)
                out[place[low:high] - start] = found
        return out

    def batch_of(self, cells: Int32, rows: Rows) -> Batch:
        """The batch whose cells have been filled."""
        index, seq_len = rows.index(), self.run.seq_len
        if len(self._kinds) == 1:
            return Batch(cells, index, seq_len, self.spec, rows)
        plan = rows.plan
        assert isinstance(plan, MixedPlan)
        kind = np.zeros(len(rows), np.int64)
        kind[: rows.real] = self._kind[plan.source[rows.start : rows.stop]]
        groups = [(self._kinds[number], here) for number, here in grouped(kind)]
        return _Woven(cells, index, seq_len, self.spec, rows, groups)


class _Some:
    """Some rows of a batch: the `Details` of those."""

    def __init__(self, details: Details, rows: Int64) -> None:
        self._details, self._rows = details, rows

    @functools.cached_property
    def _spans(self) -> Spans:
        return self._details.spans().take(self._rows)

    def spans(self) -> Spans:
        """See `Details`."""
        return self._spans

    def tiles(self, width: int) -> masks.Tiles:
        """See `Details`."""
        return masks.tile(self._spans, width)

    def weights(self) -> Float32 | None:
        """See `Details`."""
        found = self._details.weights()
        return None if found is None else found[self._rows]


def _rowwise(name: str) -> Any:
    """A field whose rows each way makes for itself."""

    def made(self: _Woven) -> Array:
        return self.woven(lambda part: getattr(part, name))

    return functools.cached_property(made)


class _Woven(Batch):
    """A batch whose rows are rendered in different ways."""

    segment_ids = _rowwise("segment_ids")
    position_ids = _rowwise("position_ids")
    attention_mask = _rowwise("attention_mask")
    loss_weights = _rowwise("loss_weights")

    def __init__(
        self,
        cells: Int32,
        index: Int64,
        seq_len: int,
        render: RenderSpec,
        details: Details,
        groups: Sequence[tuple[RenderSpec, Int64]],
    ) -> None:
        super().__init__(cells, index, seq_len, render, details)
        self._parts: list[tuple[Int64, Batch]] = []
        for spec, rows in groups:
            part = Batch(cells[rows], index[rows], seq_len, spec, _Some(details, rows))
            part.judge = _nobody
            if spec.pad_id != render.pad_id:
                tiles = part._tiles_of(cells.shape[1])
                filler = np.repeat(tiles.segment == 0, tiles.length).reshape(part._cells.shape)
                part._cells[filler] = spec.pad_id
                cells[rows] = part._cells
            self._parts.append((rows, part))

    def woven(self, make: Callable[[Batch], Array]) -> Array:
        """Rows of an array, each made in its own way."""
        first = make(self._parts[0][1])
        out = np.empty((len(self), *first.shape[1:]), first.dtype)
        out[self._parts[0][0]] = first
        for rows, part in self._parts[1:]:
            out[rows] = make(part)
        return out

    def trained(self) -> Any:
        """As `loss_mask`, without the judgement."""
        return self.woven(lambda part: part.trained())

    @functools.cached_property
    def labels(self) -> Int32:
        """Targets in the `label_layout`, -100 where not trained [B, S]."""
        _ = self.loss_mask  # judges
        return self.woven(lambda part: part.labels)

    @functools.cached_property
    def cu_seqlens(self) -> Int32:
        """Edges of all documents and filler stretches over the flattened [B S] cells."""
        width = self.shape[1]
        edges = [np.array([len(self) * width], np.int64)]
        for rows, part in self._parts:
            row, at = np.divmod(part.cu_seqlens[:-1].astype(np.int64), width)
            edges.append(rows[row] * width + at)
        return np.sort(np.concatenate(edges)).astype(np.int32)

    @property
    def plain(self) -> Batch:
        """The same with segment 0 for all filler and positions from 0: what laws are about."""
        return self

    def prepare(self, fields: Sequence[str]) -> Batch:
        """This batch, with these fields made."""
        for name in fields:
            getattr(self, name)
        return self


def _nobody() -> None:
    """Judges nothing: a part of a batch may well have no trained token."""
