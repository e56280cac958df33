"""Renders the rows of a run and judges every cell.

One idea: what a row must hold is known before it is rendered, from its spans
(`tokenloom.inspect.audit.plan_laws`) and from the store (`tokenloom.inspect.audit.stored_cells`).
So a batch is judged right after it was made and forgotten, and an audit needs no more memory than a
loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arrays import grouped
from tokenloom.batch.attention import to_numpy
from tokenloom.batch.batch import Batch
from tokenloom.batch.check import check_batch
from tokenloom.batch.spec import RenderSpec
from tokenloom.errors import NoTrainedTokens
from tokenloom.inspect.audit.cell_laws import FIELDS, Broken, RowTruth, judged_cells, truth_of
from tokenloom.inspect.audit.stored_cells import SourceRows, stored_tokens, stored_weights
from tokenloom.inspect.audit.verdicts import Findings
from tokenloom.layout.spans import Spans
from tokenloom.order.run import SourceRun

__all__ = ["ROWS", "ArrayLaws", "field_of", "rendered"]

Int64 = NDArray[np.int64]

Array = NDArray[Any]

ROWS = 128  # rows that are rendered and judged together

EVERY, SOME = 16, 8  # of every so many batches, these rows are judged by every law of a batch


def rendered(run: Dataset, indices: Int64) -> Iterator[Batch]:
    """The batches of some indices, made as a loader makes them."""
    renderer = run.renderer(by_blocks=False)
    cuts = [*range(0, len(indices), ROWS), len(indices)]
    for pending in renderer.batches(renderer.plan(indices), cuts, fields=FIELDS):
        yield pending.make(fields=FIELDS)


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

    def look(self, batch: Any, index: Int64, source: Int64, spans: Spans) -> None:
        """Judge a batch.

        Args:
            batch: its arrays, as attributes or by name.
            index: the indices that were asked for [B].
            source: the number of the source of each [B].
            spans: what must be in each.
        """
        self._judge_index(batch, index)
        arrays = {name: found for name in FIELDS if (found := field_of(batch, name)) is not None}
        shape = len(index), self._seq_len
        for name, array in list(arrays.items()):
            if array.shape != shape:
                found = f"{name} has shape {list(array.shape)}, right is {list(shape)}"
                self._findings.note(_LAW_OF[name], "cells", 1, [0], lambda _, found=found: found)
                del arrays[name]
        parts = self._parts(source, spans)
        cells = stored_tokens(parts, len(index), spans.width)
        weights = stored_weights(parts, len(index), spans.width)
        if weights is not None and (found := field_of(batch, "loss_weights")) is not None:
            arrays["loss_weights"] = found
        edges = [np.array([len(index) * self._seq_len], np.int64)]
        kinds = self._kind_of[source]
        for kind, here in grouped(kinds):
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
        self._judge_by_all_laws(batch, index)
        self._batches += 1

    def _parts(self, source: Int64, spans: Spans) -> list[SourceRows]:
        found = []
        for number, here in grouped(source):
            own = spans if len(here) == len(source) else spans.take(here)
            pad = self._renders[number].pad_id
            found.append(SourceRows(self._sources[number], here, own, pad))
        return found

    def _judge_index(self, batch: Any, index: Int64) -> None:
        found = field_of(batch, "index")
        if found is None:
            return
        found = found.reshape(-1)
        if len(found) != len(index):
            told = f"{len(found)} rows from index {index[0]} on, right is {len(index)}"
            self._findings.note("index", "rows", len(index), [0], lambda _: told)
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
        some = batch.part(0, min(SOME, len(batch)))
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
