"""What sources have given at some points of a run, and when they end.

These are a few questions to the run at sixty indices, whatever its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenloom.mixture.run import MixedRun
from tokenloom.order.run import Consumed, Run
from tokenloom.order.schedule import Steps

STAGES = 16  # whose starts are points


class Point(NamedTuple):
    """What the first `examples` have taken from each source."""

    examples: int
    taken: tuple[Consumed, ...]


def consumption_of(
    run: Run, steps: Steps, count: int, examples: int, points: int
) -> tuple[Point, ...]:
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
    return tuple(Point(at, tuple(run.consumed(at))) for at in sorted(marks))


class End(NamedTuple):
    """When a source has shown everything once, and when it shows nothing more.

    Attributes:
        first_epoch: examples of the run by then; None if it does not get there, or nobody knows.
        runs_out: the same for its last row; None if it goes on to the end of the run.
    """

    first_epoch: int | None
    runs_out: int | None


def ends_of(run: Run, end: Point, sources: Sequence[int]) -> list[End]:
    """When these sources end, exactly: the index of their last items, one look-up each.

    Args:
        run: the run.
        end: what was taken where the look at the run ends; later ends are left open.
        sources: numbers of the sources.
    """
    if isinstance(run, MixedRun) and run.shuffle is not None:
        return [End(None, None) for _ in sources]  # rows of all epochs come from the start on
    return [_end(run, number, end.taken[number].rows) for number in sources]


def _end(run: Run, number: int, taken: int) -> End:
    source = run.sources[number]
    first = source.end_of(1) if source.rows else 0
    last = None
    if isinstance(run, MixedRun):
        clocks = run.stages[-1].merge.clocks
        last = clocks[number].costs.n if number < len(clocks) else None
    return End(*(_after(run, number, n) if n and n <= taken else None for n in (first, last)))


def _after(run: Run, number: int, items: int) -> int | None:
    """Examples after which the first `items` of a source have come; None if they do not."""
    (index,) = run.index(number, np.array([items - 1])).tolist()
    if index < 0:
        return None
    if isinstance(run, MixedRun):
        # items of a block change places: the whole block has come for sure
        stage = run.stages[int(np.searchsorted([one.at for one in run.stages], index, "right")) - 1]
        index = stage.around(index, index + 1)[1] - 1
    return int(index) + 1
