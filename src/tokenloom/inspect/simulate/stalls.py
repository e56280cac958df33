"""How long steps wait for data, given what each group of steps reads.

One idea: a loader is a queue. A thread reads the next group of steps while the ones before it are
trained on, as soon as no more than half of the steps that it keeps ready are left; a step starts
when every rank has its rows. So the times of groups and steps follow from each other, group by
group, without a clock.

Worked example, one rank, groups of 1, 2 and 2 steps that take 3 s each to read, a step takes 2 s,
and two steps are kept ready::

    read   [0 ─ 3) [3 ─ 6) [6 ─ 9)
    step           0       1  2   3  4           step 0 starts at 3, 1 at 6, 2 at 8, 3 at 10
    waits  3 s     1 s     0  0   0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tokenloom.inspect.simulate.result import Stalls

ROUNDING = 1e-9  # seconds; less is no wait

SourceSpeed = tuple[float, float, int]

"""(seconds of latency, bytes per second, requests at a time)."""


class GroupRead(NamedTuple):
    """What a rank reads for steps [first, stop).

    Attributes:
        first, stop: the steps.
        reads, bytes: read operations and the bytes they give.
    """

    first: int
    stop: int
    reads: int
    bytes: int


def group_seconds(reads: int, size: int, speed: SourceSpeed) -> float:
    """Seconds until a source has answered some reads of some bytes together.

    Ten reads of 1 MB, 20 ms each, at 100 MB/s: the line is full with three at a time.

    >>> [round(group_seconds(10, 10**7, (0.02, 1e8, n)), 3) for n in (1, 2, 3, 16)]
    [0.3, 0.15, 0.1, 0.1]
    """
    latency, bandwidth, parallel = speed
    if not reads:
        return 0.0
    moving = size / bandwidth
    return max(moving, (reads * latency + moving) / parallel, latency)


def simulate_stalls(
    groups: Sequence[Sequence[GroupRead]],
    ready: Sequence[int],
    speed: SourceSpeed,
    step_seconds: float,
) -> Stalls:
    """Waiting of all ranks together.

    Args:
        groups: of each rank, in order, over the same steps [ranks].
        ready: steps that each rank's loader keeps ready; 0: it reads when it is asked [ranks].
        speed: of the source of every rank.
        step_seconds: time that a step takes once it has its data.
    """
    first, stop = groups[0][0].first, groups[0][-1].stop
    took = [[group_seconds(one.reads, one.bytes, speed) for one in rank] for rank in groups]
    place, landed = [0] * len(groups), [0.0] * len(groups)
    starts: list[float] = []  # when each step starts
    waited = longest = 0.0
    stalled, now = 0, 0.0
    edges = sorted({one.first for rank in groups for one in rank} | {stop})
    for begin, end in itertools.pairwise(edges):
        arrival = 0.0
        for rank, own in enumerate(groups):
            number = place[rank]
            if number < len(own) and own[number].first == begin:
                asked = _asked(begin, first, ready[rank], starts, now)
                landed[rank] = max(landed[rank], asked) + took[rank][number]
                place[rank] += 1
            arrival = max(arrival, landed[rank])
        wait = arrival - now if arrival - now > ROUNDING else 0.0
        if begin == first:
            first_wait = wait
        elif wait > 0:
            stalled, longest = stalled + 1, max(longest, wait)
        waited, now = waited + wait, now + wait
        starts += [now + step * step_seconds for step in range(end - begin)]
        now += (end - begin) * step_seconds
    return Stalls(
        latency=speed[0],
        bandwidth=speed[1] if math.isfinite(speed[1]) else None,
        parallel=speed[2],
        step_seconds=step_seconds,
        steps=stop - first,
        seconds=now,
        waited=waited,
        first_wait=first_wait,
        longest_wait=longest,
        stalled_steps=stalled,
        fetch_seconds=tuple(map(sum, took)),
    )


def _asked(begin: int, first: int, ready: int, starts: list[float], now: float) -> float:
    """When a loader starts to read the group that begins with a step."""
    if begin == first:
        return 0.0
    if not ready:
        return now
    # as soon as a step is taken that leaves half of the ready ones, or fewer
    step = begin - 1 - ready // 2
    return starts[max(0, step - first)]
