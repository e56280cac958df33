"""Whether a mix follows its rule at every prefix.

One idea: the rule gives every item a time, ``t = base + (C - ref) / w`` with C the cost consumed
before it (ruled by `tokenloom.mixture.merge`). If items come in order of time, each source's own in
order, and no source has a pending item that is earlier than the last one shown, then every prefix
is the one the rule asks for: nothing else has to be compared. Costs are added up here from the rows
that were shown, so a wrong row also shows as a wrong time.

With "rounds" and "random" the same holds for blocks: no item of a block is later than one of the
next.

The *error* of a source at a prefix is what it has consumed, less its share of what all have. It is
largest right before or right after one of the source's own items, so it is looked at there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenloom.inspect.audit.verdicts import Findings
from tokenloom.mixture.merge import Clock
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import MixSpec
from tokenloom.mixture.stages import Stage
from tokenloom.order.run import Placed
from tokenloom.random.keys import children, key, named

__all__ = ["MixTimes"]

Int64 = NDArray[np.int64]

Float64 = NDArray[np.float64]


@dataclass(kw_only=True, slots=True)
class _Stretch:
    """What is carried from one chunk of a stage to the next."""

    last: float = -np.inf  # the latest time so far
    tie: int = -1  # the hash of the last item
    consumed: dict[int, int] = field(default_factory=dict)
    total: int = 0


class MixTimes:
    """Looks at the items of a mix, chunk after chunk; with "rounds" and "random", whole blocks.

    Args:
        run: the mix.
        rule: its settings.
        first: the first index that is looked at here.
        since: the first that is looked at at all; errors are counted from there, or from the start
            of a stage.
        findings: where to note what was found.
    """

    def __init__(
        self, run: MixedRun, rule: MixSpec, first: int, since: int, findings: Findings
    ) -> None:
        self._run, self._rule, self._findings = run, rule, findings
        self._midpoint = rule.midpoint
        stage = self._stage_at(first)
        counts = stage.order.cut(first).tolist()
        late = len(run.sources) - len(counts)
        self._items = [*counts, *([0] * late)]
        clocks = stage.merge.clocks
        self._cost = [c.costs.upto(k) for c, k in zip(clocks, counts, strict=True)] + [0] * late
        self._ties = named(key(rule.seed or 0, "mix", "ties"), list(run.names))
        self._now = self._start(stage, since)
        self._stage: Stage | None = None
        self.errors: dict[str, float] = {}

    def _start(self, stage: Stage, since: int) -> _Stretch:
        """What was consumed before the first index, by the rule."""
        before = stage.order.cut(max(since, stage.at)).tolist()
        clocks = zip(stage.merge.clocks, before, strict=True)
        consumed = {n: self._cost[n] - c.costs.upto(k) for n, (c, k) in enumerate(clocks)}
        return _Stretch(consumed=consumed, total=sum(consumed.values()))

    def _stage_at(self, index: int) -> Stage:
        starts = [stage.at for stage in self._run.stages]
        return self._run.stages[int(np.searchsorted(starts, index, side="right")) - 1]

    def look(self, indices: Int64, parts: Sequence[Placed]) -> None:
        """Judge the next indices, all in one stage; `parts` are their rows, source by source."""
        stage = self._stage_at(int(indices[0]))
        known = len(stage.merge.clocks)
        early = [part for part in parts if part.number >= known]
        if early:
            self._note_early(indices, early)
            return
        if stage is not self._stage:
            if self._stage is not None:
                self.finish(int(indices[0]))
                self._now = _Stretch()
            self._stage = stage
        times = np.empty(len(indices))
        ties = np.zeros(len(indices), np.uint64)
        cost = np.zeros(len(indices), np.int64)
        source = np.zeros(len(indices), np.int64)
        for part in parts:
            at = np.arange(len(indices)) if part.at is None else part.at
            clock = stage.merge.clocks[part.number]
            inner = np.argsort(part.item, kind="stable")  # "random" shuffles inside its blocks
            at, part = at[inner], _sorted(part, inner)
            cost[at] = self._costs(part, clock)
            before = self._cost[part.number] + np.cumsum(cost[at]) - cost[at]
            times[at] = self._times(clock, before, cost[at])
            ties[at] = children(int(self._ties[part.number]), times[at].view(np.uint64))
            source[at] = part.number
            self._cost[part.number] = int(before[-1] + cost[at][-1])
            self._items[part.number] += len(at)
        if self._rule.rule == "round_robin":  # ties go to the source that is listed first
            ties = source.astype(np.uint64)
        self._judge(indices, times, ties, source)
        self._measure(stage, parts, cost)

    def _costs(self, part: Placed, clock: Clock) -> Int64:
        """What each item costs."""
        if self._rule.cost == "rows":
            return np.ones(len(part.item), np.int64)
        if self._rule.cost == "tokens":
            return np.maximum(part.run.layout.costs(part.epoch, part.row), 1)
        first = self._items[part.number]
        return clock.costs.items(first, first + len(part.item))

    def _times(self, clock: Clock, before: Int64, cost: Int64) -> Float64:
        begins = before - clock.ref
        if self._midpoint:
            return clock.base + (2 * begins + cost) / (2 * clock.weight)
        return clock.base + begins / clock.weight

    # -- order of times --------------------------------------------------------------------

    def _judge(
        self, indices: Int64, times: Float64, ties: NDArray[np.uint64], source: Int64
    ) -> None:
        if self._rule.edges:
            self._judge_blocks(indices, times, source)
            return
        before = np.concatenate([[self._now.last], times[:-1]])
        wrong = times < before
        same = np.flatnonzero(times[1:] == times[:-1]) + 1
        wrong[same] |= ties[same] < ties[same - 1]
        if len(times) and times[0] == self._now.last and int(ties[0]) < self._now.tie:
            wrong[0] = True
        self._note(indices, wrong, times, before)
        self._now.last, self._now.tie = float(times.max(initial=before[0])), int(ties[-1])

    def _judge_blocks(self, indices: Int64, times: Float64, source: Int64) -> None:
        """The same for whole blocks: none has an item that is earlier than one before it."""
        block = indices // self._rule.block
        edges = np.flatnonzero(np.diff(block, prepend=-1))
        latest = np.maximum.accumulate(
            np.concatenate([[self._now.last], np.maximum.reduceat(times, edges)])
        )
        before = np.repeat(latest[:-1], np.diff(np.append(edges, len(times))))
        wrong = times < before
        if self._rule.rule == "rounds":  # inside a block, one source after the other
            wrong[1:] |= (source[1:] < source[:-1]) & (block[1:] == block[:-1])
        self._note(indices, wrong, times, before)
        self._now.last = float(latest[-1])

    def _note(
        self, indices: Int64, wrong: NDArray[np.bool_], times: Float64, before: Float64
    ) -> None:
        def tell(place: int) -> str:
            return (
                f"index {indices[place]}: its item has the time {times[place]:.6g}, but one of "
                f"{before[place]:.6g} came before it"
            )

        self._findings.note("mixture", "items", len(indices), np.flatnonzero(wrong), tell)

    def _note_early(self, indices: Int64, early: Sequence[Placed]) -> None:
        """Rows of a source that has not joined yet; times mean nothing then."""
        places = np.concatenate([part.at for part in early if part.at is not None])
        names = ", ".join(self._run.names[part.number] for part in early)
        self._findings.note(
            "mixture",
            "items",
            len(indices),
            places,
            lambda place: f"index {indices[place]}: it is of {names}, which joins later",
        )

    def finish(self, index: int) -> None:
        """Judge what is pending at an index: nothing earlier than the last item shown."""
        stage = self._stage
        if stage is None:
            return
        wrong = []
        for number, clock in enumerate(stage.merge.clocks):
            k = self._items[number]
            if clock.costs.n is not None and k >= clock.costs.n:
                continue
            cost = clock.costs.items(k, k + 1)
            pending = self._times(clock, np.array([self._cost[number]]), cost)[0]
            if pending < self._now.last:
                wrong.append(number)
        names = self._run.names
        self._findings.note(
            "mixture",
            "items",
            len(stage.merge.clocks),
            wrong,
            lambda number: f"source {names[number]}: before index {index:,} its next item is due",
        )

    # -- how far from the weights ------------------------------------------------------------

    def _measure(self, stage: Stage, parts: Sequence[Placed], cost: Int64) -> None:
        """The largest error of each source so far, in units of cost."""
        clocks = stage.merge.clocks
        live = [c for c in clocks if c.costs.n is None or c.costs.n > c.first]
        if any(c.costs.n is not None for c in live):
            return  # a source that ends leaves its share to the others
        weight = sum(clock.weight for clock in live)
        after = np.cumsum(cost) + self._now.total
        self._now.total = int(after[-1])
        for part in parts:
            at = np.arange(len(cost)) if part.at is None else part.at
            own = np.cumsum(cost[at]) + self._now.consumed.get(part.number, 0)
            self._now.consumed[part.number] = int(own[-1])
            share = clocks[part.number].weight / weight
            low = own - cost[at] - share * (after[at] - cost[at])
            high = own - share * after[at]
            worst = float(max(np.abs(low).max(), np.abs(high).max()))
            name = self._run.names[part.number]
            self.errors[name] = max(self.errors.get(name, 0.0), worst)


def _sorted(part: Placed, order: Int64) -> Placed:
    """The rows of a source in order of item; `at` is left alone."""
    return part._replace(item=part.item[order], epoch=part.epoch[order], row=part.row[order])
