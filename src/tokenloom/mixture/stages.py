"""Stages of a mixed run: what an edit changes from its index on, and what it leaves alone.

One idea: a run is cut at the index of an edit. Before the cut is the old merge, untouched. After it
is a merge whose sources start with the items they have not shown yet. A source that joins starts at
the moment of the cut, so it does not catch up. A source whose weight changes keeps the share of its
pending item that it has already waited for.

So one more edit is one more stage (`next_stage`), however many there were. A stage may know fewer
sources than its run has: those that joined later come last, and have no items in it.

Stages of Levanter's rule start at the edge of a block with new counts, and nothing is waited for.

Rounds: every block of a mix has a fixed number of items of each source.

A block has the same items as under the `weights` rule, in another order. So quotas are
never negative, errors do not accumulate, and no source is lost, however small its weight. Inside a
block the sources come one after the other, or shuffled in a keyed order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.mixture.levanter_rule import LevanterBlocks
from tokenloom.mixture.merge import Clock, Merge
from tokenloom.mixture.spec import Edit, MixSpec
from tokenloom.order.costs import Costs, EqualCosts
from tokenloom.order.run import SourceRun
from tokenloom.random.keys import children, key
from tokenloom.random.permute import permutations

NOTHING = EqualCosts(1, 0)

EXACT_BLOCKS = 1 << 33  # of Levanter's


class Rounds:
    """Blocks of a merge.

    Args:
        merge: a merge by weights that starts at the edge of a block.
        block: items of a block.
        end: total number of items; None is endless.
        shuffled: whether the items of a block come in a keyed order.
        seed: seed of these orders.
    """

    def __init__(
        self, merge: Merge, block: int, end: int | None, *, shuffled: bool, seed: int
    ) -> None:
        self.merge, self.block, self._end = merge, block, end
        self._shuffled, self._root = shuffled, key(seed, "mix", "rounds")

    def items(self, first: int, last: int) -> tuple[Int64, Int64]:
        """(source, item) of indices [first, last)."""
        begin = first // self.block * self.block
        end = -(-last // self.block) * self.block
        source, item = self.merge.items(begin, end if self._end is None else min(end, self._end))
        block = np.arange(len(source)) // self.block
        order = np.lexsort((source, block))  # stable: items of one source keep their order
        if self._shuffled:
            order = order[self._shuffle(begin // self.block, len(order))]
        chosen = order[first - begin : last - begin]
        return source[chosen], item[chosen]

    def _shuffle(self, number: int, count: int) -> Int64:
        """The places of `count` items from block `number` on, shuffled inside each block."""
        out = np.arange(count)
        whole = count // self.block * self.block
        for low, high, size in ((0, whole, self.block), (whole, count, count - whole)):
            if low < high:
                block = (out[low:high] // self.block).astype(np.uint64)
                keys = children(self._root, np.unique(block) + np.uint64(number))
                inside = (out[low:high] - low) % size
                moved = permutations(size, keys).forward(
                    inside.astype(np.uint64), (block - block[0]).astype(np.int64)
                )
                out[low:high] += moved.view(np.int64) - inside
        return out

    def cut(self, index: int) -> Int64:
        """The number of items of every source before an index [sources]."""
        begin = index // self.block * self.block
        before = self.merge.cut(begin)
        if begin == index:
            return before
        source, _ = self.items(begin, index)
        return before + np.bincount(source, minlength=len(before))

    def whole(self, index: int) -> int:
        """See `Merge`."""
        return index // self.block * self.block if self._shuffled else index

    def index(self, source: int, item: int) -> int:
        """The index of an item of a source in the run."""
        begin = self.merge.index(source, item) // self.block * self.block
        sources, items = self.items(begin, begin + self.block)  # at the end, those that are left
        return begin + int(np.flatnonzero((sources == source) & (items == item))[0])


Merged = Merge | Rounds | LevanterBlocks
"""The order of a stage: index → (source, item) and back."""


@dataclass(frozen=True, slots=True)
class TimedSource:
    """A source of a mix, as far as time is concerned.

    Attributes:
        name: name of the source.
        costs: costs of all items it may show.
        declared: number of items after which it counts as exhausted; None is never.
        initial: what it had consumed before the run started.
        joins: number of the edit that adds it, 0 for the start.
        run: its rows; time depends only on their costs.
    """

    name: str
    run: SourceRun
    costs: Costs
    declared: int | None
    initial: int = 0
    joins: int = 0


Grow = Callable[[TimedSource, int], TimedSource]
"""Given a source whose store grew and the first item concerned, answers the grown source."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of a mixed run.

    Attributes:
        at: its first index.
        end: the index after its last one if there were no further changes; None is endless.
        order: the order of its items.
        merge: that order without blocks.
    """

    at: int
    end: int | None
    order: Merged
    merge: Merge

    def settled(self, index: int) -> int:
        """No later item of the source at an index comes before this one."""
        block = self.order.block
        return index + 1 if block == 1 else index // block * block

    def around(self, first: int, last: int) -> tuple[int, int]:
        """The stretch that has all items at [first, last) of the merge: whole blocks."""
        block = self.order.block
        low, high = first // block * block, -(-last // block) * block
        return low, high if self.end is None else min(high, self.end)


def first_stage(sources: Sequence[TimedSource], spec: MixSpec) -> Stage:
    """The start of a run."""
    weights: Mapping[str, float] = spec.weights
    if spec.rule == "levanter":
        nothing = np.zeros(len(sources), np.int64)
        return _stage(0, sources, _of_counts(0, sources, weights, nothing, spec), spec)
    clocks = [
        Clock(s.name, s.costs, weights[s.name], base=s.initial / weights[s.name])
        if not s.joins
        else Clock(s.name, NOTHING, 1.0)
        for s in sources
    ]
    return _stage(0, sources, clocks, spec)


def next_stage(
    sources: Sequence[TimedSource],
    stage: Stage,
    edit: Edit,
    number: int,
    spec: MixSpec,
    grow: Mapping[str, Grow],
) -> tuple[Stage, list[TimedSource]]:
    """The stage that starts with edit `number`, and the sources from there on.

    Args:
        sources: the sources until then; those that join now and are not in `stage` come last.
        stage: the stage before.
        edit: what changes.
        number: the number of the edit, from 1 on.
        spec: how sources are merged.
        grow: how each source grows whose store did.
    """
    _check(edit.at, stage, spec.edges)
    grown = _grown(sources, stage, edit.at, grow)
    if spec.rule == "levanter":
        counts = stage.order.cut(edit.at)
        clocks = _of_counts(edit.at, grown, edit.weights, counts, spec)
    else:
        clocks = _changed(grown, stage, edit, number)
    return _stage(edit.at, grown, clocks, spec), grown


def _grown(
    sources: Sequence[TimedSource], stage: Stage, at: int, grow: Mapping[str, Grow]
) -> list[TimedSource]:
    """The sources with their appended documents; the costs of shown items stay the same."""
    if not grow:
        return list(sources)
    made = []
    counts = stage.merge.cut(at).tolist()
    for source, k in itertools.zip_longest(sources, counts, fillvalue=0):
        assert isinstance(source, TimedSource)  # a stage never knows more sources
        grows = grow.get(source.name)
        made.append(source if grows is None else grows(source, k))
    return made


def check_moment(at: int, before: int, end: int | None) -> None:
    """Refuse an edit before the last one, or after the end of the run."""
    if at < before:
        raise ConfigError(
            f"edit: at={at:,} is before the last edit (at={before:,}), which cannot be undone. "
            f"Allowed: {before:,} or more."
        )
    if end is not None and at > end:
        raise ConfigError(
            f"edit: at={at:,} is after the end of the run, which has {end:,} examples."
            " Give an earlier one."
        )


def _check(at: int, stage: Stage, block: int) -> None:
    check_moment(at, stage.at, stage.end)
    if at > stage.merge.longest:
        raise ConfigError(
            f"edit: at={at:,} is further than a run can be counted, allowed: at most "
            f"{stage.merge.longest:,}."
        )
    if block and at % block:
        low = at // block * block
        raise ConfigError(
            f"edit: at={at:,} is inside a block of {block:,} examples, whose shares "
            "the rules 'rounds', 'random' and 'levanter' decide as a whole. Allowed: its edges, "
            f"{low:,} or {low + block:,}. The rules 'weights' and 'least_consumed' take an "
            "edit anywhere."
        )


def _changed(sources: Sequence[TimedSource], stage: Stage, edit: Edit, number: int) -> list[Clock]:
    """The clocks after a cut."""
    counts = stage.merge.cut(edit.at).tolist()
    now = stage.merge.moment(edit.at)
    made = []

    def joined(source: TimedSource) -> Clock:
        return Clock(source.name, source.costs, edit.weights[source.name], base=now)

    for source, clock, k in zip(sources, stage.merge.clocks, counts, strict=False):
        if source.joins == number:
            made.append(joined(source))
            continue
        ends = source.name in edit.remove
        costs = source.costs if source.name in edit.append else clock.costs
        kept = replace(clock, first=k, costs=EqualCosts(1, k) if ends else costs)
        weight = edit.weights.get(source.name, clock.weight)
        if not ends and weight != clock.weight:
            consumed = clock.costs.upto(k)
            pending = clock.base + (consumed - clock.ref) / clock.weight
            base = now + (pending - now) * clock.weight / weight
            kept = replace(kept, weight=weight, base=base, ref=consumed)
        made.append(kept)
    return [*made, *map(joined, sources[len(counts) :])]


def _of_counts(
    at: int,
    sources: Sequence[TimedSource],
    weights: Mapping[str, float],
    counts: Int64,
    spec: MixSpec,
) -> list[Clock]:
    """The clocks of a stage of Levanter's: a block takes one unit of time, and all start anew."""
    made = []
    for source, k in zip(sources, counts.tolist(), strict=True):
        weight = weights.get(source.name, 0.0)
        costs = source.costs if weight else EqualCosts(1, k)
        base = float(at // spec.edges)
        made.append(Clock(source.name, costs, weight or 1.0, base=base, ref=k, first=k))
    return made


def _stage(
    at: int, sources: Sequence[TimedSource], clocks: Sequence[Clock], spec: MixSpec
) -> Stage:
    seed, block, listed = spec.seed or 0, spec.edges, spec.rule == "round_robin"
    merge = Merge(clocks, seed=seed, midpoint=spec.midpoint, listed=listed)
    end = _end(sources, merge, spec.stop)
    if not block:
        return Stage(at, end, merge, merge)
    if spec.rule == "levanter":
        # floats tell the items of two blocks apart up to here
        merge.longest = min(merge.longest, EXACT_BLOCKS * block)
        drawn = [clock.weight if clock.costs.n is None else 0 for clock in clocks]
        order = LevanterBlocks(np.array(drawn, np.int64), merge.cut(at), at, seed)
        return Stage(at, None if end is None else -(-end // block) * block, order, merge)
    rounds = Rounds(merge, block, end, shuffled=spec.rule != "rounds", seed=seed)
    return Stage(at, end, rounds, merge)


def _end(sources: Sequence[TimedSource], merge: Merge, stop: str) -> int | None:
    """The index after the last item; None if the run is endless."""
    live = [
        (source, clock)
        for source, clock in zip(sources, merge.clocks, strict=True)
        if clock.costs.n is None or clock.costs.n > clock.first
    ]
    if stop == "all_exhausted":
        ends = [clock.costs.n for clock in merge.clocks]
        return None if None in ends else sum(end for end in ends if end is not None)
    if not live:
        return sum(clock.first for clock in merge.clocks)
    moments = [
        np.inf
        if source.declared is None
        else clock.base + (clock.costs.upto(source.declared) - clock.ref) / clock.weight
        for source, clock in live
    ]
    moment = float(min(moments) if stop == "first_exhausted" else max(moments))
    if moment == np.inf:
        return None
    end = merge.count(moment)
    if end > merge.longest:
        raise ConfigError(
            f"mix: it would take about {end:.1e} examples to reach {stop!r}, allowed: at most "
            f"{merge.longest:,}. Weights or epochs of sources differ too much; set max_epochs, or "
            "use stop='first_exhausted'."
        )
    return end
