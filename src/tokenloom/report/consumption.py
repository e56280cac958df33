"""What sources have given at some points of a run, how far from their weights, and when they end.

One idea: these are a few questions to the run at sixty indices, whatever its length. Where sums of
an epoch are not kept and too long to make, the answers are estimates that say what they lack.

A mix gives every source its share by a clock (`tokenloom.mixture.merge`): a source that has
consumed C is at the moment ``base + (C - ref) / weight``. If all shares were exact, all sources
would be at the same moment; how far one is off, times its weight, is its error in rows or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenloom.errors import NotKept
from tokenloom.layout.allowance import at_most
from tokenloom.mixture.run import MixedRun
from tokenloom.order.run import Consumed, Run

__all__ = [
    "Consumption",
    "Deviation",
    "End",
    "Point",
    "consumption_of",
    "deviation_of",
    "ends_of",
    "taken_at",
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
        missing: the sums that were missing; None if all numbers are exact.
    """

    points: tuple[Point, ...]
    missing: NotKept | None


def taken_at(run: Run, examples: int) -> tuple[tuple[Consumed, ...], NotKept | None]:
    """What the first examples take, or an estimate and what it lacks."""
    try:
        return tuple(run.consumed(examples)), None
    except NotKept as missing:
        return tuple(run.consumed_about(examples)), missing


def consumption_of(run: Run, examples: int, points: int) -> Consumption:
    """A run at evenly spaced points, and where its first stages start."""
    marks = {int(at) for at in np.linspace(0, examples, points + 1).astype(np.int64)}
    if isinstance(run, MixedRun):
        marks |= {stage.at for stage in run.stages[:STAGES] if stage.at < examples}
    found, lacks = [], None
    with at_most():
        for at in sorted(marks):
            taken, missing = taken_at(run, at)
            lacks = lacks or missing
            found.append(Point(at, taken))
    return Consumption(tuple(found), lacks)


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
    """The largest error against the weights at the points, in what the mix shares.

    None for a run of one source, one that is shuffled as a whole, or one whose sums are missing.
    Points after a source has run out are left out: its share cannot be kept.
    """
    if not isinstance(run, MixedRun) or run.shuffle is not None or consumption.missing is not None:
        return None
    worst: Deviation | None = None
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
        try:
            with at_most():
                moments = np.array(
                    [c.base + (c.costs.upto(k) - c.ref) / c.weight for c, k, _ in live]
                )
        except NotKept:
            return None
        weights = np.array([clock.weight for clock, _, _ in live])
        errors = (moments - (moments * weights).sum() / weights.sum()) * weights
        at = int(np.abs(errors).argmax())
        if worst is None or abs(errors[at]) > abs(worst.amount):
            worst = Deviation(live[at][2], point.examples, float(errors[at]))
    return worst


class End(NamedTuple):
    """When a source has shown everything once, and when it shows nothing more.

    Attributes:
        first_epoch: examples of the run by then; None if it does not get there, or nobody knows.
        runs_out: the same for its last row; None if it goes on to the end of the run.
        missing: the sums that are missing to tell; None if nothing is.
    """

    first_epoch: int | None
    runs_out: int | None
    missing: NotKept | None = None


def ends_of(run: Run, sources: Sequence[int]) -> list[End]:
    """When these sources end, exactly: the index of their last items, one look-up each."""
    if isinstance(run, MixedRun) and run.shuffle is not None:
        return [End(None, None) for _ in sources]  # rows of all epochs come from the start on
    found = []
    with at_most():
        for number in sources:
            try:
                found.append(_end(run, number))
            except NotKept as missing:
                found.append(End(None, None, missing))
    return found


def _end(run: Run, number: int) -> End:
    source = run.sources[number]
    first = source.end_of(1) if source.rows else 0
    last = None
    if isinstance(run, MixedRun):
        clocks = run.stages[-1].merge.clocks
        last = clocks[number].costs.n if number < len(clocks) else None
    return End(_after(run, number, first), _after(run, number, last) if last else None)


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
