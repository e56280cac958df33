"""CPU-seconds of rivals that take turns, and the tables that show them.

One idea: a shared machine is never quiet, so a limit and what is compared with it alternate inside
one run. The best round and the median are both shown (of many rounds, the best after leaving out
the fastest twentieth); the median decides whether a goal is met. Times are CPU-seconds of this
process, of all its threads, and of child processes that have ended; wall times are recorded with
them.

A *case* is a function without arguments, or a `Case` whose `prepare` is not timed.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

__all__ = [
    "Case",
    "Row",
    "Table",
    "Timing",
    "absent",
    "against",
    "amount",
    "columns",
    "cost",
    "cpu_seconds",
    "interleave",
    "machine",
    "rate",
    "render",
    "short",
    "timed",
    "timing_of",
    "total",
    "typical",
    "want",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Something to time: only `run` is, and it is given what `prepare` gave."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """CPU-seconds over all rounds, and the shortest wall time in seconds.

    `rounds` are the CPU-seconds of every round, in order, where they are still known, and `walls`
    their wall times.
    """

    best: float
    median: float
    wall: float
    rounds: tuple[float, ...] = ()
    walls: tuple[float, ...] = ()

    def less(self, other: Timing) -> Timing:
        """What is left when `other` (a start-up) is taken off."""
        return Timing(
            best=self.best - other.best,
            median=self.median - other.median,
            wall=self.wall - other.wall,
            rounds=tuple(a - b for a, b in zip(self.rounds, other.rounds, strict=True)),
            walls=tuple(a - b for a, b in zip(self.walls, other.walls, strict=True))
            if self.walls
            else (),
        )

    def times(self, share: float) -> Timing:
        """A share of this time."""
        return Timing(best=self.best * share, median=self.median * share, wall=self.wall * share)

    def by_wall(self) -> Timing:
        """The wall times in place of the CPU-seconds, for what only they can tell."""
        return timing_of(self.walls)

    def over(self, other: Timing) -> float:
        """The median of the rounds' own ratios.

        For passes of many seconds: the load of a machine changes between rounds, so the best of
        one rival may come from a quiet minute that the other did not see.
        """
        return statistics.median(a / b for a, b in zip(self.rounds, other.rounds, strict=True))


def total(timings: Iterable[Timing]) -> Timing:
    """The sum of times that were taken one after another."""
    listed = list(timings)
    return Timing(
        best=sum(one.best for one in listed),
        median=sum(one.median for one in listed),
        wall=sum(one.wall for one in listed),
    )


def cpu_seconds() -> float:
    """CPU-seconds used so far by this process and by its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(run: Callable[[], object], cpu: Callable[[], float] = cpu_seconds) -> tuple[float, float]:
    """CPU-seconds and wall seconds of one call."""
    wall, before = time.perf_counter(), cpu()
    run()
    return cpu() - before, time.perf_counter() - wall


def interleave(
    cases: Mapping[str, Callable[[], object] | Case],
    rounds: int,
    *,
    warm_up: bool = True,
    cpu: Callable[[], float] = cpu_seconds,
) -> dict[str, Timing]:
    """The time of every case; each round runs all of them once, beginning with another one.

    Args:
        cases: name → what to time.
        rounds: how often each of them is timed.
        warm_up: run a round before that, which does not count.
        cpu: CPU-seconds used so far, by whoever works.
    """
    names = list(cases)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(-int(warm_up), rounds):
        gc.collect()  # once per round: between short passes it would empty the CPU's cache
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            took = _one(cases[name], cpu)
            if number >= 0:
                seen[name].append(took)
    return {name: _timing(samples) for name, samples in seen.items()}


def _one(
    case: Callable[[], object] | Case, cpu: Callable[[], float] = cpu_seconds
) -> tuple[float, float]:
    if isinstance(case, Case):
        prepared, run = case.prepare(), case.run
        return timed(lambda: run(prepared), cpu)
    return timed(case, cpu)


def timing_of(seconds: Sequence[float]) -> Timing:
    """The time of something whose rounds were taken elsewhere."""
    return replace(_timing([(one, one) for one in seconds]), walls=())


def _timing(samples: Sequence[tuple[float, float]]) -> Timing:
    taken = tuple(seconds for seconds, _ in samples)
    cpu = sorted(taken)
    # of many, the fastest twentieth is left out: the CPU clock of a virtual machine may jump
    best = cpu[len(cpu) // 20]
    walls = tuple(seconds for _, seconds in samples)
    return Timing(
        best=best, median=statistics.median(cpu), wall=min(walls), rounds=taken, walls=walls
    )


# -- rows and tables -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of a table; `ratio` is its value over that of the limit or peer `of`.

    `median_ratio` is the same of the medians, where both have one. `samples` are the values of all
    rounds, and `wall` and `wall_median` the same figure by the clock on the wall, where they are
    known.
    """

    what: str
    value: float
    unit: str
    median: float | None = None
    ratio: float | None = None
    median_ratio: float | None = None
    of: str = ""
    goal: str = ""
    met: bool | None = None
    samples: tuple[float, ...] = ()
    wall: float | None = None
    wall_median: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What one benchmark found; `notes` say what the figures are of."""

    title: str
    command: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON."""
        return asdict(self)


def rate(what: str, timing: Timing, done: float, unit: str) -> Row:
    """A row with how much was `done` per CPU-second."""
    return _row(what, timing, lambda seconds: done / seconds, unit)


def cost(what: str, timing: Timing, times: int, unit: str = "µs") -> Row:
    """A row with the CPU time of one of `times` equal things."""
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}[unit] / times
    return _row(what, timing, lambda seconds: seconds * scale, unit)


def _row(what: str, timing: Timing, figure: Callable[[float], float], unit: str) -> Row:
    walls = timing.walls
    return Row(
        what=what,
        value=figure(timing.best),
        median=figure(timing.median),
        unit=unit,
        samples=tuple(figure(seconds) for seconds in timing.rounds),
        wall=figure(min(walls)) if walls else None,
        wall_median=figure(statistics.median(walls)) if walls else None,
    )


def amount(what: str, value: float, unit: str) -> Row:
    """A row with a plain figure."""
    return Row(what=what, value=value, unit=unit)


def absent(what: str, reason: str, goal: str) -> Row:
    """A row that misses its goal because what it compares with is not there.

    >>> row = absent("its own reader", "not installed (make peers)", "at least 5x")
    >>> row.what, row.goal, row.met
    ('its own reader: not installed (make peers)', 'at least 5x', False)
    """
    return Row(what=f"{what}: {reason}", value=0, unit="rows", goal=goal, met=False)


def typical(row: Row) -> float:
    """The median, or the value where there is no other."""
    return row.value if row.median is None else row.median


def against(row: Row, peer: Row, of: str) -> Row:
    """The row with its ratio to another one: of the bests, and of the medians."""
    medians = None
    if row.median is not None and peer.median is not None:
        medians = row.median / peer.median
    return replace(row, ratio=row.value / peer.value, median_ratio=medians, of=of)


def want(row: Row, sign: str, bound: float, *, of_ratio: bool = False, unit: str = "") -> Row:
    """The row with a goal: its figure (or its ratio) is to be ">=" or "<=" `bound`.

    The median is judged, and the only figure that there is where there is no median.

    >>> ours = Row(what="ours", value=9.0, median=6.0, unit="Mtok/s")
    >>> theirs = Row(what="theirs", value=10.0, median=8.0, unit="Mtok/s")
    >>> row = want(against(ours, theirs, "theirs"), ">=", 0.8, of_ratio=True)
    >>> row.ratio, row.median_ratio, row.met
    (0.9, 0.75, False)
    """
    value: float | None = typical(row)
    if of_ratio:
        value = row.ratio if row.median_ratio is None else row.median_ratio
    if value is None:
        raise ValueError(f"{row.what}: a goal for a ratio, but there is none.")
    words = f"{'at least' if sign == '>=' else 'at most'} {bound:g}"
    words += "x" if of_ratio else f" {unit or row.unit}"
    met = value >= bound if sign == ">=" else value <= bound
    return replace(row, goal=words, met=met)


HEAD = ("what", "best", "median", "wall", "median", "unit", "ratio", "goal", "met?")


def render(table: Table) -> str:
    """The table as text, below the command that makes it again.

    Best and median are in CPU time, the next two by the clock on the wall, if any row has it. A
    ratio is that of the bests, with that of the medians in brackets.

    >>> print(render(Table(title="t", command="run it", rows=[amount("files", 3, "files")])))
    ## t
    $ run it
    | what  | best | median | unit  | ratio | goal | met? |
    |-------|------|--------|-------|-------|------|------|
    | files | 3    |        | files |       |      |      |
    """
    notes = [f"- {note}" for note in table.notes]
    lines = [HEAD, *(_cells(row) for row in table.rows)]
    if all(row.wall is None for row in table.rows):
        lines = [(*line[:3], *line[5:]) for line in lines]
    cells = columns(lines)
    return "\n".join([f"## {table.title}", f"$ {table.command}", cells, *notes])


def columns(cells: Sequence[Sequence[str]]) -> str:
    """Lines of cells, the first of which is the head, as a table."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    medians = "" if row.median_ratio is None else f" ({short(row.median_ratio)}x)"
    ratio = "" if row.ratio is None else f"{short(row.ratio)}x{medians} {row.of}"
    met = {None: "", True: "yes", False: "NO"}[row.met]
    known = ("" if one is None else short(one) for one in (row.median, row.wall, row.wall_median))
    return row.what, short(row.value), *known, row.unit, ratio, row.goal, met


def short(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 2 if abs(value) >= 1 else 3
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.{digits}f}"


def machine() -> str:
    """What the figures were taken on, without naming it."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{load}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}"
    )
