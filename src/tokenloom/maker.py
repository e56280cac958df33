"""Steps → batches of one rank, without a position: what a loader's thread runs.

One idea: which rows a step has, in which order, and which of them are a rank's, follows from the
step's number alone. It is worked out for thousands of rows at a time (`PLAN_ROWS`), and kept until
steps are asked for that lie elsewhere.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch import Batch
from tokenloom.dataset import Dataset
from tokenloom.errors import NoTrainedTokens
from tokenloom.prefetch import log
from tokenloom.render import Pending, Plan, Renderer
from tokenloom.schedule import Steps, rank_rows

__all__ = ["Maker"]

Int64 = NDArray[np.int64]
PLAN_ROWS = 8192  # examples that are planned together
SORTED_ROWS = 32768  # examples of all ranks that are sorted by lane together


class Maker:
    """Steps → batches, without a position; what the thread runs, so it knows no loader."""

    def __init__(
        self,
        dataset: Dataset,
        steps: Steps,
        rank: int,
        world_size: int,
        end: str,
        fields: tuple[str, ...],
        by_blocks: bool,
    ) -> None:
        self.run, self.steps, self.end = dataset.run, steps, end
        self.rank, self.world_size, self.fields = rank, world_size, fields
        self.renderer: Renderer = dataset.renderer(by_blocks=by_blocks)
        self._path, self._reader = dataset.path, dataset.reader
        self._planned: tuple[int, int, Plan, list[int]] | None = None

    def over(self, steps: Steps) -> Maker:
        """The same over other steps; batches of this one stay what they are."""
        made = copy.copy(self)
        made.steps, made._planned = steps, None
        return made

    @property
    def count(self) -> int | None:
        """Steps from the beginning of the run to its end; None is for ever."""
        n = self.run.n
        if n == 0:
            return 0
        if n is None or self.end == "wrap":
            return None
        return self.steps.count(n, partial=self.end == "pad")

    @property
    def limit(self) -> int | None:
        """The example behind the last one; None is for ever."""
        return None if self.end == "wrap" else self.run.n

    def examples_before(self, step: int) -> int:
        """Examples of the run in all steps before this one."""
        begin = self.steps.begin(step)
        return begin if self.limit is None else min(begin, self.limit)

    def batches(self, first: int, count: int) -> list[Pending]:
        """The batches of this rank for some steps, read; fewer at the end of the run."""
        total = self.count
        if total is not None:
            count = min(count, total - first)
        made: list[Pending] = []
        while count > len(made):
            step = first + len(made)
            begin, stop, plan, cuts = self._plan_for(step)
            last = min(first + count, stop)
            here = cuts[step - begin : last - begin + 1]
            padding = self._missing(last - 1)
            made += self.renderer.batches(plan, here, padding)
        return made

    def finish(self, step: int, pending: Pending) -> Batch:
        """The batch, with the arrays that were asked for."""
        batch = pending.make()
        batch.judge = _Judge(self, step)
        return batch.prepare(self.fields)

    def stalled(self, seconds: float) -> None:
        """Tell that nothing came for so long."""
        reads = self._reader.counters()
        log.warning(
            "%s: no batch for %.0f s. Since opening, %d reads gave %.1f MiB; the store may be slow "
            "or gone.",
            self._path,
            seconds,
            reads.read_ops,
            reads.bytes / 2**20,
        )

    def rows_of(self, step: int) -> Int64:
        """The indices of all rows of a step, in their order; padding is not among them."""
        return self._rows(step, step + 1, 0, self.steps.size(step))[0]

    def _rows(self, step: int, stop: int, low: int, high: int) -> tuple[Int64, list[int]]:
        """The indices of rows [low, high) of some steps of one size, and where each step ends."""
        size = self.steps.size(step)
        sorts = self.run.lanes > 1
        first, last = (0, size) if sorts else (low, high)
        # [steps, rows]: where each row stands on the line of examples
        line = self.steps.begin(step) + np.arange(stop - step)[:, None] * size
        line = line + np.arange(first, last)
        real = np.full(line.shape, True) if self.limit is None else line < self.limit
        if self.end == "wrap":
            line %= self.run.n or 1
        if sorts:
            fractions = np.full(line.shape, np.inf)  # what is behind the end stays last
            fractions[real] = self.run.fractions(line[real])
            line = np.take_along_axis(line, np.lexsort((line, fractions), axis=-1), -1)
            line, real = line[:, low:high], real[:, low:high]
        return line[real], [0, *np.cumsum(real.sum(axis=1)).tolist()]

    def _missing(self, step: int) -> int:
        """Rows of filler in this rank's share of a step."""
        low, high = rank_rows(self.steps.size(step), self.rank, self.world_size)
        real = self.examples_before(step + 1) - self.steps.begin(step)
        return max(0, high - max(low, real)) if self.end == "pad" else 0

    def _plan_for(self, step: int) -> tuple[int, int, Plan, list[int]]:
        """(first step, step behind, plan, cuts) of a stretch of steps that holds this one."""
        known = self._planned
        if known is not None and known[0] <= step < known[1]:
            return known
        size = self.steps.size(step)
        low, high = rank_rows(size, self.rank, self.world_size)
        most = PLAN_ROWS // (high - low)
        if self.run.lanes > 1:
            most = min(most, SORTED_ROWS // size)
        stop = min(step + max(1, most), self.steps.stretch_end(step))
        if self.count is not None:
            stop = min(stop, self.count)
        indices, cuts = self._rows(step, stop, low, high)
        self._planned = step, stop, self.renderer.plan(indices), cuts
        return self._planned


@dataclass(frozen=True, slots=True)
class _Judge:
    """Decides for a share of a step without a trained token whether the whole step has none."""

    maker: Maker
    step: int

    def __call__(self) -> None:
        renderer = self.maker.renderer
        rows = self.maker.rows_of(self.step)
        whole = renderer.batches(renderer.plan(rows), [0, len(rows)])[0].make()
        if not whole.trained().any():
            raise NoTrainedTokens(
                f"step {self.step}: none of its {len(rows)} rows has a token to train on. Look at "
                "ignore_id, at the loss columns of the store, and at documents of one token."
            )
