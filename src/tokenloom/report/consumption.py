"""What sources have given at some points of a run, how far from their weights, and when they end.

These are a few questions to the run at sixty indices, whatever its length.

A mix gives every source its share by a clock (`tokenloom.mixture.merge`): a source that has
consumed C is at the moment ``base + (C - ref) / weight``. If all shares were exact, all sources
would be at the same moment; how far one is off, times its weight, is its error in rows or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenloom.mixture.run import MixedRun
from tokenloom.order.run import Consumed, Run
from tokenloom.order.schedule import Steps

__all__ = [
    "Consumption",
    "Deviation",
    "End",
    "Point",
    "consumption_of",
    "deviation_of",
    "deviations_of",
    "ends_of",
]


STAGES = 16  # whose starts are points


class Point(NamedTuple):
    """What the first `examples` have taken from each source."""

    examples: int
    taken: tuple[Consumed, ...]


class Consumption(NamedTuple):
    """A run at some of its points, both ends included.

    Attributes:
        points: in order.
    """

    points: tuple[Point, ...]


def consumption_of(run: Run, steps: Steps, count: int, examples: int, points: int) -> Consumption:
    """A run at the starts of evenly spaced steps, and where its first stages start.

    Args:
        run: the run.
        steps: which examples each step has.
        count: whole steps to look at.
        examples: examples to look at, which are those of these steps; all, if there is none.
        points: stretches between points.
    """
    marks = {0, examples}
    if count:
        spaced = np.linspace(0, count, min(points, count) + 1).round().astype(np.int64)
        marks |= {min(steps.begin(step), examples) for step in spaced.tolist()}
    if isinstance(run, MixedRun):
        starts = [stage.at for stage in run.stages[:STAGES] if stage.at < examples]
        around = [steps.count(at, partial=some) for at in starts for some in (False, True)]
        marks |= {*starts, *(min(steps.begin(step), examples) for step in around)}
    return Consumption(tuple(Point(at, tuple(run.consumed(at))) for at in sorted(marks)))


class Deviation(NamedTuple):
    """The largest error of a share.

    Attributes:
        source: name of the source.
        examples: where, in examples.
        amount: how much more (or less, if negative) it had than its share, in the run's cost.
    """

    source: str
    examples: int
    amount: float


def deviation_of(run: Run, consumption: Consumption) -> Deviation | None:
    """The largest error against the weights at the points; None where `deviations_of` has none."""
    found = deviations_of(run, consumption)
    return max(found.values(), key=lambda one: abs(one.amount), default=None)


def deviations_of(run: Run, consumption: Consumption) -> dict[str, Deviation]:
    """The largest error of each source against the weights at the points, in what the mix shares.

    Empty for a run of one source, or one that is shuffled as a whole.
    Points after a source has run out are left out: its share cannot be kept.
    """
    worst: dict[str, Deviation] = {}
    if not isinstance(run, MixedRun) or run.shuffle is not None:
        return worst
    starts = np.array([stage.at for stage in run.stages])
    for point in consumption.points[1:]:
        number = int(np.searchsorted(starts, point.examples, side="right")) - 1
        clocks = run.stages[number].merge.clocks
        rows = [one.rows for one in point.taken[: len(clocks)]]
        live = [
            (clock, k, name)
            for clock, k, name in zip(clocks, rows, run.names, strict=False)
            if clock.costs.n is None or clock.costs.n > clock.first
        ]
        if any(clock.costs.n is not None and k >= clock.costs.n for clock, k, _ in live):
            continue
        if len(live) < 2:
            continue
        moments = np.array([c.base + (c.costs.upto(k) - c.ref) / c.weight for c, k, _ in live])
        weights = np.array([clock.weight for clock, _, _ in live])
        errors = (moments - (moments * weights).sum() / weights.sum()) * weights
        for (_, _, name), error in zip(live, errors.tolist(), strict=True):
            if name not in worst or abs(error) > abs(worst[name].amount):
                worst[name] = Deviation(name, point.examples, error)
    return worst


class End(NamedTuple):
    """When a source has shown everything once, and when it shows nothing more.

    Attributes:
        first_epoch: examples of the run by then; None if it does not get there, or nobody knows.
        runs_out: the same for its last row; None if it goes on to the end of the run.
    """

    first_epoch: int | None
    runs_out: int | None


def ends_of(run: Run, sources: Sequence[int]) -> list[End]:
    """When these sources end, exactly: the index of their last items, one look-up each.

    Args:
        run: the run.
        sources: numbers of the sources.
    """
    if isinstance(run, MixedRun) and run.shuffle is not None:
        return [End(None, None) for _ in sources]  # rows of all epochs come from the start on
    return [_end(run, number) for number in sources]


def _end(run: Run, number: int) -> End:
    source = run.sources[number]
    first = source.end_of(1) if source.rows else 0
    last = None
    if isinstance(run, MixedRun):
        clocks = run.stages[-1].merge.clocks
        last = clocks[number].costs.n if number < len(clocks) else None
    out = _after(run, number, last) if last else None
    return End(_after(run, number, first), out)


def _after(run: Run, number: int, items: int) -> int | None:
    """Examples after which the first `items` of a source have come; None if they do not."""
    if not items:
        return None
    (index,) = run.index(number, np.array([items - 1])).tolist()
    if index < 0:
        return None
    if isinstance(run, MixedRun):
        # items of a block change places: the whole block has come for sure
        stage = run.stages[int(np.searchsorted([one.at for one in run.stages], index, "right")) - 1]
        index = stage.around(index, index + 1)[1] - 1
    return int(index) + 1
