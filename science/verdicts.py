"""Which orderings hold over seeds: means, intervals, and checks in words.

One idea: arms with the same seed share their data and first weights, so they are compared in
pairs. An ordering holds if the 95 % interval (Student's t) of the paired differences excludes
zero; with one seed, if the difference has the right sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["Check", "Found", "Interval", "interval", "verdict"]

# two-sided 95 % quantiles of Student's t by degrees of freedom
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}


class Interval(NamedTuple):
    """A mean, half the width of its 95 % interval (nan with one value), and how many values."""

    mean: float
    half: float
    number: int

    @property
    def low(self) -> float:
        """The lower end; the mean itself with one value."""
        return self.mean - (0.0 if math.isnan(self.half) else self.half)

    @property
    def high(self) -> float:
        """The upper end; the mean itself with one value."""
        return self.mean + (0.0 if math.isnan(self.half) else self.half)


def interval(values: Iterable[float]) -> Interval:
    """The mean of some values and where it lies.

    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, half=2.48433820832296, number=3)
    >>> interval([5.0])
    Interval(mean=5.0, half=nan, number=1)
    """
    every = list(values)
    count = len(every)
    mean = math.fsum(every) / count
    if count == 1:
        return Interval(mean, math.nan, 1)
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in every) / (count - 1))
    wide = STUDENT.get(count - 1, 1.96)
    return Interval(mean, wide * spread / math.sqrt(count), count)


class Check(NamedTuple):
    """An ordering, whether it holds, and the numbers.

    Attributes:
        says: what should hold.
        holds: whether it does; None if an arm that it needs has not been measured.
        numbers: what was found.
        control: whether this shows that the experiment could have failed, and claims nothing.
        leans: whether means are in the order that was asked for, though it is not shown to hold.
    """

    says: str
    holds: bool | None
    numbers: str
    control: bool = False
    leans: bool = False

    @property
    def answer(self) -> str:
        """Whether it holds, in one or two words."""
        if self.holds is None:
            return "not measured"
        return "yes" if self.holds else "not shown" if self.leans else "no"


class Found:
    """Figures of an experiment by arm and seed.

    Args:
        records: as `science.records` keeps them.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self.records = list(records)
        self._figures: dict[str, dict[int, Mapping[str, float]]] = {}
        for one in self.records:
            self._figures.setdefault(one["arm"], {})[one["seed"]] = one["figures"]

    @property
    def arms(self) -> list[str]:
        """Arms that were measured, in order of their first record."""
        return list(self._figures)

    def values(self, arm: str, figure: str) -> dict[int, float]:
        """A figure of an arm by seed; empty if it was not measured."""
        seeds = self._figures.get(arm, {})
        return {seed: seeds[seed][figure] for seed in sorted(seeds) if figure in seeds[seed]}

    def interval(self, arm: str, figure: str) -> Interval | None:
        """Its mean over seeds; None if it was not measured."""
        values = self.values(arm, figure)
        return interval(values.values()) if values else None

    def gap(self, arm: str, other: str, figure: str) -> Interval | None:
        """How much larger a figure is than another arm's, paired by seed."""
        ours, theirs = self.values(arm, figure), self.values(other, figure)
        both = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        return interval(both) if both else None

    def curves(self, arm: str, name: str) -> list[tuple[float, float]]:
        """A curve of an arm, the mean over its seeds."""
        some = [one["curves"][name] for one in self.records if one["arm"] == arm]
        if not some:
            return []
        return [
            (points[0][0], math.fsum(y for _, y in points) / len(points))
            for points in zip(*some, strict=True)
        ]

    # -- what may be asked ---------------------------------------------------------------------

    def below(self, arm: str, other: str, figure: str, says: str, *, factor: float = 1.0) -> Check:
        """Whether an arm's figure is below `factor` times that of another."""
        ours, theirs = self.values(arm, figure), self.values(other, figure)
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds:
            return Check(says, None, "not measured")
        gap = interval(factor * theirs[seed] - ours[seed] for seed in seeds)
        means = (
            f"{interval(ours.values()).mean:.4g} against {interval(theirs.values()).mean:.4g}"
            f"{'' if factor == 1 else f' × {factor:g}'}"
        )
        numbers = f"{means}; difference {_range(gap)}, {_seeds(gap.number)}"
        return Check(says, gap.low > 0, numbers, leans=gap.mean > 0)

    def always_below(self, arm: str, other: str, figure: str, says: str, *, factor: float) -> Check:
        """Whether an arm's figure is below `factor` times that of another for every seed.

        For counts, which have no error: their spread over seeds is theirs.
        """
        ours, theirs = self.values(arm, figure), self.values(other, figure)
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds:
            return Check(says, None, "not measured")
        parts = [ours[seed] / theirs[seed] for seed in seeds]
        words = f"{min(parts):.3g} to {max(parts):.3g} of the other's, {_seeds(len(seeds))}"
        return Check(says, max(parts) < factor, words)

    def under(self, arm: str, figure: str, limit: float, says: str) -> Check:
        """Whether a figure is below a limit for every seed."""
        values = self.values(arm, figure)
        if not values:
            return Check(says, None, "not measured")
        worst = max(values.values())
        return Check(says, worst < limit, f"at most {worst:.3g}, {_seeds(len(values))}")

    def over(self, arm: str, figure: str, limit: float, says: str) -> Check:
        """Whether a figure is above a limit for every seed."""
        values = self.values(arm, figure)
        if not values:
            return Check(says, None, "not measured")
        least = min(values.values())
        return Check(says, least > limit, f"at least {least:.3g}, {_seeds(len(values))}")

    def as_good(self, arm: str, other: str, figure: str, says: str) -> Check:
        """Whether an arm is not worse than another by more than the spread of the other's seeds."""
        ours, theirs = self.interval(arm, figure), self.interval(other, figure)
        if ours is None or theirs is None:
            return Check(says, None, "not measured")
        spread = self.spread(other, figure)
        words = f"{ours.mean:.4f} against {theirs.mean:.4f}, spread of seeds {spread:.4f}"
        gap = self.gap(arm, other, figure)
        words += f"; difference {_range(gap)}" if gap is not None else ""
        return Check(says, ours.mean <= theirs.mean + spread, f"{words}, {_seeds(ours.number)}")

    def spread(self, arm: str, figure: str) -> float:
        """Twice the standard deviation over seeds; with one seed, 2 % of the figure instead."""
        one = interval(self.values(arm, figure).values())
        if one.number == 1:
            return 0.02 * one.mean
        return 2 * one.half * math.sqrt(one.number) / STUDENT.get(one.number - 1, 1.96)


def verdict(checks: Iterable[Check]) -> str:
    """One of: holds, holds in part, does not hold, not measured, or that a control fails.

    >>> verdict([Check("a", True, ""), Check("b", False, "")])
    'holds in part'
    >>> verdict([Check("a", True, ""), Check("b", False, "", control=True)])
    'shows nothing: a control fails'
    """
    every = list(checks)
    if any(one.control and one.holds is False for one in every):
        return "shows nothing: a control fails"
    known = [one.holds for one in every if one.holds is not None and not one.control]
    if not known:
        controls = [one for one in every if one.control and one.holds]
        return "its control holds, no claim was measured" if controls else "not measured"
    if all(known):
        return "holds"
    return "holds in part" if any(known) else "does not hold"


def _range(one: Interval) -> str:
    return f"{one.mean:.3g}" if one.number == 1 else f"{one.low:.3g} to {one.high:.3g}"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
