"""Rounds of trying mutants: which tests each one gets, and which verdicts count.

One idea: a test that fails, hangs or crashes in a fork without a mutant would seem to kill
everything. So the tests that decided are run once more with nothing changed; where one of them
fails, it is unfit, and what it decided is tried again without it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from mutation.cover import ANY, Lines
from mutation.forks import Progress, say, tried
from mutation.kept import ALIVE, Kept, Told
from mutation.mutants import Mutant


class Rounds:
    """What became of mutants so far.

    Attributes:
        verdicts: by name of the mutant.
        unfit: tests that do not count.
    """

    def __init__(
        self, lines: Lines, seconds: dict[str, float], kept: Kept, folder: Path, workers: int
    ) -> None:
        self.lines, self.seconds = lines, seconds
        self.kept, self.folder, self.workers = kept, folder, workers
        self.verdicts: dict[str, str] = {}
        self.unfit: set[str] = set()
        self._fit: set[str] = set()
        self._passed: dict[str, set[str]] = defaultdict(set)

    def run(self, name: str, mutants: list[Mutant], budget: float) -> None:
        """Give each mutant more tests, of `budget` seconds."""
        work: dict[str, Told] = {}
        for mutant in mutants:
            without = self.unfit | self._passed[mutant.name]
            plan = plan_of(mutant, self.lines, self.seconds, budget, without)
            if plan["tests"]:
                work[mutant.name] = plan
            else:
                self.verdicts.setdefault(mutant.name, "not run by any test")
        told = self._told(name, {m.name: m for m in mutants}, work)
        self._check([test for one in told for test in one["failed"]])
        again = []
        for one in told:
            if self.unfit.isdisjoint(one["failed"]):
                self.verdicts[one["name"]] = one["verdict"]
            else:
                again.append(one["name"])
            if one["verdict"] == "survived":
                self._passed[one["name"]].update(work[one["name"]]["tests"])
        if again:
            self.run(f"{name}, again", [m for m in mutants if m.name in again], budget)

    def _told(self, name: str, mutants: dict[str, Mutant], work: dict[str, Told]) -> list[Told]:
        """What became of each, as it is kept or as it turns out."""
        usable = self.seconds.keys() - self.unfit
        known = {
            one: kept
            for one, plan in work.items()
            if (kept := self.kept.of(one, plan)) and usable.issuperset(kept["failed"])
        }
        new = [plan for one, plan in work.items() if one not in known]
        progress = Progress(len(new), name)

        def seen(one: Told) -> None:
            self.kept.add(work[one["name"]], one)
            if one["verdict"] in ALIVE:
                say(f"{one['verdict']}: {mutants[one['name']]}\n    {one['name']}")
            progress.add(one["verdict"])

        say(f"{name}: {len(new)} mutants to try, {len(known)} known")
        return [*known.values(), *tried(new, self.folder, self.workers, seen)]

    def _check(self, tests: list[str]) -> None:
        """Run tests that decided once more, with nothing changed."""
        used = sorted(set(tests) - self._fit - self.unfit)
        parts = [used[number :: self.workers] for number in range(self.workers)]
        progress = Progress(len(parts), "the tests that decided, without a mutant")
        work = [planned(None, part, self.seconds) for part in parts if part]
        told = tried(work, self.folder, self.workers, lambda one: progress.add(one["verdict"]))
        self.unfit |= {name for one in told for name in one["failed"]}
        self._fit |= set(used) - self.unfit
        if any(one["verdict"] in ("hung", "crashed") and one["failed"] for one in told):
            self._fit.clear()  # a fork ended early: of what came after it nothing is known
            self._check(tests)


def planned(mutant: Mutant | None, tests: list[str], seconds: dict[str, float]) -> dict[str, Any]:
    """The work of a fork; each test may compute for many times its usual seconds, then it hangs."""
    limits = [10 + 10 * seconds[test] for test in tests]
    told = dataclasses.asdict(mutant) if mutant else None
    return {"mutant": told, "tests": tests, "limits": limits}


def plan_of(
    mutant: Mutant,
    lines: Lines,
    seconds: dict[str, float],
    budget: float,
    without: AbstractSet[str] = frozenset(),
) -> dict[str, Any]:
    """The tests of a mutant, its own room's first, within a budget; at least one if there is."""
    room = mutant.module.split("/")[2]
    known = lines.get(mutant.module, {})
    places = range(mutant.first, mutant.last + 1)
    if known.keys().isdisjoint(places):
        places = range(mutant.opens, mutant.opens + 1)
    sure = {test for place in places for test in known.get(place, ())} - without
    tests = sure | set(known.get(ANY, ())) - without

    def rank(test: str) -> tuple[bool, float, str]:
        return test not in sure, seconds[test], test

    own = f"tests/{room}/"
    ordered = sorted(tests, key=lambda test: (test not in sure, own not in test, rank(test)))
    # the quickest of its room, then whatever is quick: each sort of tests gets half of the time
    taken: dict[str, None] = {}  # in order
    spent = 0.0
    for order in (ordered, sorted(tests, key=rank)):
        until = spent + budget / 2
        for test in order:
            if test not in taken and spent + seconds[test] <= until:
                taken[test] = None
                spent += seconds[test]
    return planned(mutant, list(taken) or ordered[:1], seconds)
