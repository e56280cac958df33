"""Renders the rows of a run and judges every cell.

One idea: what a row must hold is known before it is rendered, from its spans
(`tokenloom.inspect.audit.plan_laws`) and from the store (`tokenloom.inspect.audit.stored_cells`).
So a batch is judged right after it was made and forgotten, and an audit needs no more memory than a
loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arrays import grouped
from tokenloom.batch.attention import to_numpy
from tokenloom.batch.batch import Batch
from tokenloom.batch.check import check_batch
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.views.digest import row_hashes
from tokenloom.errors import NoTrainedTokens
from tokenloom.inspect.audit.cell_laws import (
    FIELDS,
    Broken,
    RowTiles,
    RowTruth,
    is_usual,
    judged_cells,
    row_tiles,
    truth_of,
    usual_holds,
)
from tokenloom.inspect.audit.stored_cells import SourceRows, StoredCells
from tokenloom.inspect.audit.verdicts import Findings
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.order.run import SourceRun
from tokenloom.order.working_set import loss_columns

__all__ = ["ArrayLaws", "AuditedRows", "field_of", "hashes_of", "rendered", "rows_together"]

Int64 = NDArray[np.int64]

Int32 = NDArray[np.int32]

Array = NDArray[Any]

EVERY, SOME = 256, 1 << 14  # one batch of this many has this many cells judged by every law


def rows_together(seq_len: int) -> int:
    """The number of rows that are rendered and judged together.

    >>> rows_together(2048), rows_together(1 << 20)
    (128, 1)
    """
    return max(1, limits().audit_chunk_cells // max(seq_len, 64))


def rendered(run: Dataset, indices: Int64) -> Iterator[Batch]:
    """The batches of some indices, made as a loader makes them."""
    renderer = run.renderer(by_blocks=False)
    cuts = [*range(0, len(indices), rows_together(run.seq_len)), len(indices)]
    for pending in renderer.batches(renderer.plan(indices), cuts, fields=FIELDS):
        yield pending.make(fields=FIELDS)


def hashes_of(batch: Any, here: Int64, *, weighted: bool) -> list[bytes]:
    """The hashes of some rows of a batch; see `tokenloom.batch.views.digest`.

    Args:
        batch: the batch.
        here: the places of the rows.
        weighted: whether a store has loss weights of its own.
    """
    if weighted or not isinstance(batch, Batch):
        every = row_hashes(batch)
        return [every[place] for place in here.tolist()]
    names = {"input_ids": "tokens", "segment_ids": "segment_ids", "position_ids": "position_ids"}
    some: dict[str, Any] = {name: getattr(batch, own)[here] for name, own in names.items()}
    return row_hashes(some | {"loss_weights": batch.trained()[here]})


@dataclass(frozen=True, eq=False, slots=True)
class AuditedRows:
    """What some rows must be.

    Attributes:
        index: their indices [N].
        kinds: how each one is rendered, by number [N].
        spans: what must be in each.
        stored: reads what their cells must hold.
        tiles: documents and filler, if they are all rendered in the usual way; else None.
        edges: the first tile of each, and the number of tiles [N + 1].
    """

    index: Int64
    kinds: Int64
    spans: Spans
    stored: StoredCells
    tiles: RowTiles | None
    edges: list[int] | None


class ArrayLaws:
    """Judges batches, one after the other.

    Args:
        sources: the run of every source.
        renders: how each of them is rendered.
        seq_len: cells of a row.
        findings: where to note what was found.
    """

    def __init__(
        self,
        sources: Sequence[SourceRun],
        renders: Sequence[RenderSpec],
        seq_len: int,
        findings: Findings,
    ) -> None:
        self._sources, self._renders, self._seq_len = sources, renders, seq_len
        self._kinds = list(dict.fromkeys(renders))
        self._kind_of = np.array([self._kinds.index(render) for render in renders])
        self._findings, self._batches = findings, 0
        self._usual = self._indexed = 0  # cells and rows that are right, not noted yet

    def chunk(self, index: Int64, source: Int64, spans: Spans) -> AuditedRows:
        """What some rows must be, before any of them is looked at.

        Args:
            index: their indices [N].
            source: the number of the source of each [N].
            spans: what must be in each.
        """
        parts = []
        for number, here in grouped(source):
            own = spans if len(here) == len(source) else spans.take(here)
            pad = self._renders[number].pad_id
            parts.append(SourceRows(self._sources[number], here, own, pad))
        stored = StoredCells(parts, len(index), spans.width)
        kinds = self._kind_of[source]
        alone = len(kinds) and (kinds == kinds[0]).all() and stored.weights(0, 0) is None
        usual = alone and is_usual(self._kinds[kinds[0]], spans, self._seq_len)
        tiles = row_tiles(spans, self._seq_len) if usual else None
        edges = None
        if tiles is not None:
            edges = np.searchsorted(tiles.first, np.arange(len(index) + 1) * tiles.width).tolist()
        return AuditedRows(index, kinds, spans, stored, tiles, edges)

    def finish(self) -> None:
        """Note what was right."""
        for name in FIELDS:
            self._findings.note(_LAW_OF[name], "cells", self._usual)
        self._findings.note("index", "rows", self._indexed)
        self._usual = self._indexed = 0

    @property
    def weighted(self) -> bool:
        """Whether a store has loss weights of its own."""
        return any(loss_columns(source.layout.line.reader) for source in self._sources)

    def look(self, batch: Any, rows: AuditedRows, low: int, high: int) -> None:
        """Judge a batch that should have rows [low, high) of a chunk."""
        index = rows.index[low:high]
        self._judge_index(batch, index)
        arrays = self._arrays(batch, (high - low, self._seq_len))
        cells = rows.stored.tokens(low, high)
        if not self._is_usual(batch, rows, low, high, cells, arrays):
            self._look_again(batch, rows, low, high, cells, arrays)
        self._judge_by_all_laws(batch, index)
        self._batches += 1

    def _arrays(self, batch: Any, shape: tuple[int, int]) -> dict[str, Array]:
        """The arrays of a batch that have the right shape; the others are noted."""
        arrays = {}
        for name in FIELDS:
            found = field_of(batch, name)
            if found is None:
                continue
            if found.shape == shape:
                arrays[name] = found
                continue
            told = f"{name} has shape {list(found.shape)}, right is {list(shape)}"
            self._findings.tell(_LAW_OF[name], "cells", 1, told)
        return arrays

    def _is_usual(
        self,
        batch: Any,
        rows: AuditedRows,
        low: int,
        high: int,
        cells: Int32,
        arrays: dict[str, Array],
    ) -> bool:
        """Whether everything is as usual, and right; noted if it is."""
        if rows.tiles is None or rows.edges is None:
            return False
        part = slice(rows.edges[low], rows.edges[high])
        first = rows.tiles.first[part] - low * self._seq_len
        end = (high - low) * self._seq_len
        tiles = first, rows.tiles.length[part], rows.tiles.segment[part]
        if not usual_holds(tiles, cells, arrays):
            return False
        edges = field_of(batch, "cu_seqlens")
        if edges is not None:
            ends = len(edges) == len(first) + 1 and edges[-1] == end
            if not ends or not (edges[:-1] == first).all():
                return False
        self._usual += cells.size
        return True

    def _look_again(
        self,
        batch: Any,
        rows: AuditedRows,
        low: int,
        high: int,
        cells: Int32,
        arrays: dict[str, Array],
    ) -> None:
        """Every cell of every array, by the laws."""
        index, spans = rows.index[low:high], rows.spans.frames(low, high)
        weights = rows.stored.weights(low, high)
        if weights is not None and (found := field_of(batch, "loss_weights")) is not None:
            arrays = arrays | {"loss_weights": found}
        edges = [np.array([len(index) * self._seq_len], np.int64)]
        for kind, here in grouped(rows.kinds[low:high]):
            alone = len(here) == len(index)
            truth = truth_of(
                spans if alone else spans.take(here),
                cells if alone else cells[here],
                self._kinds[kind],
                self._seq_len,
                weights if alone or weights is None else weights[here],
            )
            some = arrays if alone else {name: array[here] for name, array in arrays.items()}
            for broken in judged_cells(truth, some):
                self._note(broken, index[here])
            edges.append(_moved(truth, here))
        self._judge_edges(batch, np.sort(np.concatenate(edges)), index)

    def _judge_index(self, batch: Any, index: Int64) -> None:
        found = field_of(batch, "index")
        if found is None:
            return
        found = found.reshape(-1)
        if np.array_equal(found, index):
            self._indexed += len(index)
            return
        if len(found) != len(index):
            told = f"{len(found)} rows from index {index[0]} on, right is {len(index)}"
            self._findings.tell("index", "rows", len(index), told)
            return
        self._findings.note(
            "index",
            "rows",
            len(index),
            np.flatnonzero(found != index),
            lambda p: f"row {p} of the batch: it is index {found[p]}, right is {index[p]}",
        )

    def _note(self, broken: Broken, index: Int64) -> None:
        width = self._seq_len
        self._findings.note(
            broken.law,
            "cells",
            broken.looked_at,
            broken.cells,
            lambda cell: (
                f"index {index[cell // width]}, cell {cell % width}: found {broken.found(cell)}, "
                f"right is {broken.right(cell)}"
            ),
        )

    def _judge_edges(self, batch: Any, right: Int64, index: Int64) -> None:
        found = field_of(batch, "cu_seqlens")
        if found is None:
            return
        odd = np.setxor1d(found, right) if not np.array_equal(found, right) else right[:0]
        if not len(odd) and len(found) != len(right):
            odd = right[:1]
        width = self._seq_len
        self._findings.note(
            "segments",
            "cells",
            0,
            odd,
            lambda edge: (
                f"index {index[min(edge // width, len(index) - 1)]}, cell {edge % width}: "
                f"{'an edge' if edge in found else 'no edge'} of cu_seqlens is wrong there"
            ),
        )

    def _judge_by_all_laws(self, batch: Any, index: Int64) -> None:
        if self._batches % EVERY or not isinstance(batch, Batch):
            return
        some = batch.part(0, min(max(1, SOME // self._seq_len), len(batch)))
        strict = all(render.mask_boundary_loss for render in some.renders)
        report = check_batch(some, strict=strict)
        problems = [one for one in report.problems if one.law != "trained"]
        self._findings.note(
            "batch_laws",
            "rows",
            len(some),
            np.arange(len(problems)),
            lambda p: f"from index {index[0]} on, {problems[p].law}: {problems[p]}",
        )


_LAW_OF = {
    "tokens": "tokens",
    "labels": "labels",
    "loss_mask": "loss_mask",
    "segment_ids": "segments",
    "position_ids": "positions",
}


def _moved(truth: RowTruth, rows: Int64) -> Int64:
    """Where the sequences of some rows of a batch start, counted over the whole batch."""
    row, at = np.divmod(truth.edges[:-1], truth.seq_len)
    found: Int64 = rows[row] * truth.seq_len + at
    return found


def field_of(batch: Any, name: str) -> Array | None:
    """An array of a batch, or None; `input_ids` is another name of `tokens`."""
    if isinstance(batch, Batch) and name not in ("loss_mask", "labels"):
        return np.asarray(getattr(batch, name))  # those two may raise
    names = (name, "input_ids") if name == "tokens" else (name,)
    get: Callable[[str], Any] = (
        batch.get if isinstance(batch, dict) else lambda one: getattr(batch, one, None)
    )
    for one in names:
        try:
            found = get(one)
        except NoTrainedTokens:
            return batch.trained() if one == "loss_mask" else None
        if found is not None:
            return to_numpy(found)
    return None
