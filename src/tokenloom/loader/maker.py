"""Given steps, makes the batches of one rank, without a position: what a loader's thread runs.

One idea: which rows a step has, in which order, and which of them belong to a rank, follows from
the number of the step alone. It is computed for thousands of rows at a time, and kept until other
steps are requested.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.arrays import Bool, Int64
from tokenloom.batch.batch import Batch
from tokenloom.batch.cells import announce
from tokenloom.batch.plan import Plan
from tokenloom.batch.render import Pending, Ready, Renderer
from tokenloom.errors import NoTrainedTokens, warn
from tokenloom.limits import limits
from tokenloom.loader.prefetch import log
from tokenloom.loader.steps import rank_rows
from tokenloom.order.run import Run
from tokenloom.order.schedule import Steps
from tokenloom.store.cache import BlockCache

END = 1 << 63  # examples are counted by 64-bit integers

SHOWN = 8  # examples that a message names


class Planned(NamedTuple):
    """Steps [first, stop) of a rank.

    Attributes:
        first, stop: the steps.
        plan: their examples.
        cuts: the first example of each step in the plan, and the end.
        fetched: bytes of blocks that are fetched ahead of time for it.
    """

    first: int
    stop: int
    plan: Plan
    cuts: list[int]
    fetched: int = 0


class Counted(NamedTuple):
    """Predictions that count in some steps, from `first` on."""

    first: int
    counts: list[int]


class StepShare:
    """The `Step` of a batch: a number, and who knows about it."""

    __slots__ = ("_maker", "number")

    def __init__(self, maker: Maker, number: int) -> None:
        self._maker, self.number = maker, number

    @property
    def examples_after(self) -> int:
        """See `Step`."""
        return self._maker.examples_after(self.number)

    def judge(self) -> None:
        """See `Step`."""
        self._maker.judge(self.number)

    def loss_tokens(self) -> int:
        """See `Step`."""
        return self._maker.loss_tokens(self.number)

    def state(self) -> dict[str, Any]:
        """See `Step`."""
        maker, wrapped = self._maker, self._maker.end == "wrap"
        return maker.told.state(self.examples_after, step=self.number + 1, wrapped=wrapped)


class Maker:
    """Given steps, makes batches; the thread runs it, so it has no reference to the loader."""

    def __init__(
        self,
        dataset: Dataset,
        steps: Steps,
        rank: int,
        world_size: int,
        end: str,
        fields: tuple[str, ...],
        by_blocks: bool,
        untrained: str = "raise",
        dtype: str = "int32",
    ) -> None:
        self.run: Run = dataset.run
        self.told = dataset  # whose states these steps have
        self.steps, self.end = steps, end
        self.stop = self.run.n  # one past the last example; None: endless
        self.is_pass = False  # whether another pass over the run starts at `stop`
        self.rank, self.world_size, self.fields = rank, world_size, fields
        self.renderer: Renderer = dataset.renderer(by_blocks=by_blocks, dtype=dtype)
        self._paths = ", ".join(source.path for source in dataset.sources.values())
        self._counters = dataset.counters
        # ascending; replaced as a whole, because a thread that was left behind may do it, too
        self._planned: tuple[Planned, ...] = ()
        self.budget = 0  # bytes of blocks that may be fetched ahead of time
        self.holds_all = False  # whether the cache holds all blocks of the run
        self._announced: tuple[int, int, Ready] | None = None  # steps, found and not yet made
        self._counted: Counted | None = None
        self.ahead = 0  # most steps to announce before they are made
        self.last = END  # one past the last step to make, if the run has more
        self._raises = untrained == "raise"
        self.untrained: set[int] = set()  # steps that were found to have no trained token

    def over(self, steps: Steps) -> Maker:
        """A copy over other steps; batches already made stay valid."""
        made = copy.copy(self)
        made.steps, made._planned, made._announced, made._counted = steps, (), None, None
        return made

    def through(self, steps: Steps, stop: int | None, told: Dataset) -> Maker:
        """A copy over the steps of one pass, which ends at example `stop` of the run `told`."""
        made = self.over(steps)
        made.stop, made.told, made.is_pass = stop, told, True
        return made

    @property
    def count(self) -> int | None:
        """Steps from the start of the run to its end; None: endless."""
        if self.stop == 0:
            return 0
        if self.limit is None:
            return None
        return self.steps.count(self.limit, partial=self.end == "pad")

    @property
    def limit(self) -> int | None:
        """One past the last example; None: endless."""
        return None if self.end == "wrap" else self.stop

    def examples_before(self, step: int) -> int:
        """Examples of the run in all steps before this one."""
        begin = self.steps.begin(step)
        return begin if self.limit is None else min(begin, self.limit)

    def examples_after(self, step: int) -> int:
        """Examples up to the end of a step; after the last one of a pass, those of the pass."""
        if self.is_pass and self.stop is not None and step + 1 == self.count:
            return self.stop
        return self.examples_before(step + 1)

    def batches(self, first: int, count: int) -> list[Pending]:
        """This rank's batches of some steps, read; at least one, or none past the end."""
        if self._is_over(first):
            self.renderer.finish_ahead()  # so that all that is read has been counted
            return []
        plan, cuts, last = self._part(first, count)
        known, self._announced = self._announced, None
        ready = known[2] if known is not None and known[:2] == (first, last) else None
        self.renderer.look_up(plan, cuts[0], cuts[-1], self.fields)
        made = self.renderer.batches(plan, cuts, self._missing(last - 1), self.fields, ready)
        if self.ahead and self.renderer.in_place:
            self._announce(last, min(2 * count, self.ahead))
        elif self.budget and count > 1:
            self._fetch_ahead(last - 1)
        return made

    def _fetch_ahead(self, step: int) -> None:
        """Plan further steps, and have their blocks fetched while these are consumed.

        As long as what is on its way stays within the budget, and some plans ahead at most; where
        the cache holds the whole run, no further than to the first plan that lacks nothing.
        """
        most_plans = limits().plans_ahead
        here = self._plan_for(step, 1)
        planned = tuple(one for one in self._planned if one.first >= here.first)
        size = sum(one.fetched for one in planned[1:])
        for one in planned[1:]:  # otherwise blocks that were just used would be kept instead
            self.renderer.fetch_ahead(one.plan, self.fields, keep=True)
        idle = self.holds_all and len(planned) > 1 and not planned[-1].fetched
        while size < self.budget and len(planned) <= most_plans and not idle:
            if self._is_over(planned[-1].stop):
                break
            last = planned[-1]
            new = self._new_plan(last.stop, 2 * (last.stop - last.first))
            new = new._replace(fetched=self.renderer.fetch_ahead(new.plan, self.fields))
            planned, size = (*planned, new), size + new.fetched
            idle = self.holds_all and not new.fetched
        self._planned = planned

    def _announce(self, first: int, count: int) -> None:
        """Tell the system what the next steps need, if that is not in memory."""
        if self._is_over(first):
            return
        plan, cuts, last = self._part(first, count)
        ready = self.renderer.fetch(plan, cuts[0], cuts[-1])
        announce(ready.copier)
        self._announced = first, last, ready

    def at_hand(self, first: int, count: int) -> bool:
        """Whether all tokens of these steps are in memory."""
        if self._is_over(first):
            return True
        plan, cuts, _ = self._part(first, count)
        return self.renderer.at_hand(plan, cuts[0], cuts[-1])

    def pretend(
        self, first: int, steps: int, group: int, caches: Sequence[BlockCache] | None
    ) -> tuple[int, int]:
        """Fetch the blocks of some steps like a loader, without reading: (steps, examples)."""
        step, rows, size = first, 0, 1
        while step < first + steps and not self._is_over(step):
            plan, cuts, last = self._part(step, min(size, first + steps - step))
            if caches is not None:
                self.renderer.pretend(plan, cuts[0], cuts[-1], caches)
            rows, step, size = rows + cuts[-1] - cuts[0], last, min(2 * size, group)
        return step - first, rows

    def finish(self, step: int, pending: Pending) -> Batch:
        """The batch, with the requested arrays."""
        return pending.make(StepShare(self, step), self.fields)

    def batch_at(self, step: int) -> Batch:
        """The batch of one step, whichever came before it; the plan of its neighbours is kept."""
        self._plan_for(step, limits().plan_groups)
        return self.finish(step, self.batches(step, 1)[0])

    def loss_tokens(self, step: int) -> int:
        """Predictions that count in a step, over all ranks; counted for several steps at once."""
        known = self._counted
        if known is None or not known.first <= step < known.first + len(known.counts):
            most = max(1, limits().plan_examples // self.steps.size(step))
            most = min(limits().counted_steps, most)
            stop = min(step + most, self.steps.stretch_end(step), self._end)
            indices, cuts = self._rows(step, stop, 0, self.steps.size(step))
            found = self.renderer.loss_tokens(self.renderer.plan(indices))
            sums = np.concatenate([[0], np.cumsum(found)])[cuts]
            self._counted = known = Counted(step, np.diff(sums).tolist())
        return known.counts[step - known.first]

    def judge(self, step: int) -> None:
        """Tell if no row of a step has a trained token; a single rank's share may have none."""
        rows = self.rows_of(step)
        if self.renderer.batch(rows).trained().any():
            return
        shown = ", ".join(map(str, rows[:SHOWN].tolist())) + (", …" if len(rows) > SHOWN else "")
        what = (
            f"step {step}: none of its {len(rows)} rows (examples {shown}) has a token to train on"
        )
        if self._raises:
            raise NoTrainedTokens(
                f"{what}. Check ignore_id, the loss columns of the store, and documents of one "
                'token; a larger batch_size makes it rarer; Loader(untrained="zero") delivers such '
                "a step with a mask of zeros."
            )
        if not self.untrained:
            warn(f"{what}; it is delivered with a mask of zeros, and so is every other such step.")
        self.untrained.add(step)

    def stalled(self, seconds: float) -> None:
        """Warn that no batch has arrived for `seconds`."""
        reads = self._counters()
        log.warning(
            "%s: no batch for %.0f s. Since opening, %d reads gave %.1f MiB; the store may be slow "
            "or gone.",
            self._paths,
            seconds,
            reads.read_ops,
            reads.bytes / 2**20,
        )

    def rows_of(self, step: int) -> Int64:
        """The indices of all rows of a step, in order, without padding."""
        return self._rows(step, step + 1, 0, self.steps.size(step))[0]

    def _rows(self, step: int, stop: int, low: int, high: int) -> tuple[Int64, list[int]]:
        """The indices of rows [low, high) of some steps of one size, and where each step ends."""
        if self.run.lanes > 1:
            line, real = self.whole_steps(step, stop)
            line, real = line[:, low:high], real[:, low:high]
        else:
            line, real = self._line(step, stop, low, high)
        return line[real], [0, *np.cumsum(real.sum(axis=1)).tolist()]

    def whole_steps(self, step: int, stop: int) -> tuple[Int64, Bool]:
        """The rows of some steps of one size, for all ranks, and which are real [steps, rows]."""
        line, real = self._line(step, stop, 0, self.steps.size(step))
        if self.run.lanes == 1:
            return line, real
        if self._is_periodic(step, stop):  # one step is sorted like the others
            fractions = self.run.fractions(line[0])
            order = np.argsort(np.asarray(fractions), kind="stable")
            return line[:, order], real
        fractions = np.full(line.shape, np.inf)  # rows past the end stay last
        fractions[real] = self.run.fractions(line[real])
        if self.end == "wrap":
            order = np.lexsort((line, fractions), axis=-1)
        else:  # they ascend already
            order = np.argsort(fractions, axis=-1, kind="stable")
        return np.take_along_axis(line, order, -1), real

    def _is_periodic(self, step: int, stop: int) -> bool:
        """Whether all these steps have rows of the same lanes in the same order."""
        first, last, size = self.steps.begin(step), self.steps.begin(stop), self.steps.size(step)
        if self.run.n is not None and last > self.run.n:
            return False
        period = self.run.fraction_period(first, last)
        return period > 0 and size % period == 0

    def _line(self, step: int, stop: int, first: int, last: int) -> tuple[Int64, Bool]:
        """Rows [first, last) of some steps in order of index, and which of them are real."""
        size = self.steps.size(step)
        # [steps, rows]: the example of each row, before sorting and wrapping
        line = self.steps.begin(step) + np.arange(stop - step)[:, None] * size
        line = line + np.arange(first, last)
        real = np.full(line.shape, True) if self.limit is None else line < self.limit
        if self.end == "wrap" and self.run.n:
            line %= self.run.n
        return line, real

    def _missing(self, step: int) -> int:
        """The rows of filler in this rank's share of a step."""
        low, high = rank_rows(self.steps.size(step), self.rank, self.world_size)
        real = self.examples_before(step + 1) - self.steps.begin(step)
        return max(0, high - max(low, real)) if self.end == "pad" else 0

    @property
    def _end(self) -> int:
        """One past the last step; no run has more than 2^63 examples."""
        most = self.steps.count(END, partial=False) if self.count is None else self.count
        return min(most, self.last)

    def _is_over(self, step: int) -> bool:
        return step >= self._end

    def _part(self, first: int, count: int) -> tuple[Plan, list[int], int]:
        """A plan, its cuts between some steps, and one past the last step that it covers."""
        begin, end, plan, cuts, _ = self._plan_for(first, count)
        last = min(first + count, end)
        return plan, cuts[first - begin : last - begin + 1], last

    def _plan_for(self, step: int, count: int) -> Planned:
        """The plan of a stretch of steps that contains `step`.

        The fewer steps are requested, the shorter it is, so that the first batch is ready soon.
        """
        for known in self._planned:
            if known.first <= step < known.stop:
                return known
        made = self._new_plan(step, limits().plan_groups * count)
        self._planned = (made,)
        return made

    def _new_plan(self, step: int, most: int) -> Planned:
        """The plan of at most `most` steps."""
        size = self.steps.size(step)
        low, high = rank_rows(size, self.rank, self.world_size)
        most = min(limits().plan_examples // (high - low), most)
        if self.run.lanes > 1:
            most = min(most, limits().lane_sort_examples // size)
        stop = min(step + max(1, most), self.steps.stretch_end(step), self._end)
        return self._planned_rows(step, stop, low, high)

    def _planned_rows(self, step: int, stop: int, low: int, high: int) -> Planned:
        """The plan of rows [low, high) of some steps of one size."""
        indices, cuts = self._rows(step, stop, low, high)
        return Planned(step, stop, self.renderer.plan(indices), cuts)
