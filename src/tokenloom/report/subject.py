"""What a report is about, and what was found out about it once for all its figures.

Figures are pure functions of a subject. What several of them need, such as the simulation of the
run, is computed here when the first one asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.inspect.simulate.result import RankTotals, Simulation
from tokenloom.inspect.simulate.simulation import simulate_run
from tokenloom.mixture.run import MixedRun
from tokenloom.order.run import Consumed, Run, SourceRun
from tokenloom.order.schedule import Steps
from tokenloom.page.figure import MOST_ROWS
from tokenloom.page.numbers import plural
from tokenloom.report.leftovers import Leftovers, leftovers_of
from tokenloom.report.order_sample import OrderLook, look_at_order
from tokenloom.report.picked_rows import PickedRow, picked_rows
from tokenloom.store.handles import lazy

STAGES = 16  # whose starts are points


class Point(NamedTuple):
    """What the first `examples` have taken from each source."""

    examples: int
    taken: tuple[Consumed, ...]


class End(NamedTuple):
    """When a source has shown everything once, and when it shows nothing more.

    Attributes:
        first_epoch: examples of the run by then; None if it does not get there, or nobody knows.
        runs_out: the same for its last row; None if it goes on to the end of the run.
    """

    first_epoch: int | None
    runs_out: int | None


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


POINTS = 60  # of the run at which shares are told

BATCH_SIZE = 64  # if nobody says another one

LOOKED_AT = 16  # sources whose orders are judged

EXACT_EXAMPLES = 1 << 17  # examples whose reads are simulated one by one


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The settings that a report was asked with.

    Attributes:
        batch_size: rows of a step over all ranks, or a schedule; None: as the run file says, or 64.
        ranks: processes that share every step.
        latency: seconds from a request to its first byte.
        bandwidth: bytes per second of a rank's source; None: no limit.
        cache_bytes: memory for decoded blocks of each store; None: as its stores have it.
        step_seconds: time that a step takes once it has its data; None: not known.
        examples: examples already trained, as a state says; None: not known.
        certificate: of the last audit, or None.
        evaluations: what evaluations found, by name (`tokenloom.evaluate`).
        command: the command that made the report, to be shown.
        name: what the subject is called.
        tell: called with what is about to be done, for whoever waits.
    """

    batch_size: int | Sequence[tuple[int, int]] | None = None
    ranks: int = 1
    latency: float | None = None
    bandwidth: float | None = None
    cache_bytes: int | None = None
    step_seconds: float | None = None
    examples: int | None = None
    certificate: Certificate | None = None
    evaluations: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    name: str = "run"
    tell: Callable[[str], None] = lambda _: None


class RunSubject:
    """A run that a report is about.

    Attributes:
        run: the run.
        asked: the settings of the report.
    """

    def __init__(self, run: Dataset, asked: Asked) -> None:
        self.run, self.asked = run, asked

    @lazy
    def batch_size(self) -> int | Sequence[tuple[int, int]]:
        """Rows of a step: as asked, as the run file says, or 64."""
        given = self.asked.batch_size
        if given is None and self.run.file is not None:
            given = self.run.file.loader.get("batch_size")
        if given is not None:
            return given
        return BATCH_SIZE if self.run.run.n is None else max(1, min(BATCH_SIZE, self.run.run.n))

    @lazy
    def steps(self) -> Steps:
        """Which examples each step has."""
        return Steps(self.batch_size)

    @lazy
    def examples(self) -> int:
        """Examples that the report counts: all of a run that ends, else those of the first epoch.

        Of an endless mix, as many for each source as the largest one has; whole steps in any case.
        """
        n = self.run.run.n
        if n is not None:
            return n
        epoch = max(one.rows for one in self.run.run.sources) * len(self.run.run.sources)
        return self.steps.begin(max(1, self.steps.count(epoch, partial=False))) if epoch else 0

    @lazy
    def step_count(self) -> int:
        """Whole steps in these examples."""
        return self.steps.count(self.examples, partial=False)

    @lazy
    def trained(self) -> int:
        """Examples of these steps; all, where there is not a single one."""
        begin = self.steps.begin(self.step_count)
        return min(begin, self.examples) if self.step_count else self.examples

    def step_at(self, examples: int) -> int:
        """Steps that have started by then."""
        return self.steps.count(examples, partial=True)

    @lazy
    def simulation(self) -> Simulation | None:
        """What these steps show, read and wait for; None for a run without a whole step."""
        if not self.step_count:
            return None
        asked = self.asked
        asked.tell(f"simulating {plural(self.step_count, 'step')}")
        return simulate_run(
            self.run,
            self.step_count,
            batch_size=self.batch_size,
            ranks=asked.ranks,
            latency=asked.latency,
            bandwidth=asked.bandwidth,
            cache_bytes=asked.cache_bytes,
            step_seconds=asked.step_seconds,
            points=1,  # `consumption` has the others
            exact_examples=EXACT_EXAMPLES,
        )

    @lazy
    def first_step(self) -> tuple[RankTotals, ...]:
        """What each rank reads for the first step alone, which nothing was fetched ahead for.

        Ranks that continue read ahead for later steps, so theirs are other numbers.
        """
        found = self.simulation
        if found is None or found.exact_steps == 1:
            return () if found is None else found.exact_ranks
        alone = simulate_run(
            self.run,
            1,
            batch_size=self.batch_size,
            ranks=self.asked.ranks,
            cache_bytes=self.asked.cache_bytes,
            points=1,
            exact_examples=self.steps.size(0),
        )
        return alone.exact_ranks

    @lazy
    def largest(self) -> tuple[SourceRun, ...]:
        """The sources by their rows in an epoch, the largest first."""
        return tuple(sorted(self.run.run.sources, key=lambda one: -one.rows))

    @lazy
    def looks(self) -> dict[str, OrderLook]:
        """What the orders of the largest sources look like."""
        size = self.steps.size(0)
        return {
            one.name: look_at_order(one.order(0), one.working.blocks, size, one.name)
            for one in self.largest[:LOOKED_AT]
        }

    @lazy
    def consumption(self) -> tuple[Point, ...]:
        """What every source has given at the start, at some steps, around stages, and at the end.

        These are a few questions to the run, whatever its length.
        """
        run, steps, examples = self.run.run, self.steps, self.trained
        marks = {0, examples}
        if self.step_count:
            count = self.step_count
            spaced = np.linspace(0, count, min(POINTS, count) + 1).round().astype(np.int64)
            marks |= {min(steps.begin(step), examples) for step in spaced.tolist()}
        if isinstance(run, MixedRun):
            starts = [stage.at for stage in run.stages[:STAGES] if stage.at < examples]
            around = [steps.count(at, partial=some) for at in starts for some in (False, True)]
            marks |= {*starts, *(min(steps.begin(step), examples) for step in around)}
        return tuple(Point(at, tuple(run.consumed(at))) for at in sorted(marks))

    def is_whole(self, examples: int) -> bool:
        """Whether a step starts there, or the report's look ends."""
        at = min(self.steps.begin(self.step_at(examples)), self.trained)
        return examples == at

    @lazy
    def by_tokens(self) -> tuple[int, ...]:
        """Numbers of the sources, those with most tokens first; as many as a table has."""
        last = self.consumption[-1].taken
        return tuple(sorted(range(len(last)), key=lambda one: -last[one].tokens)[:MOST_ROWS])

    @lazy
    def ends(self) -> tuple[End, ...]:
        """When each of them has shown everything once, and when it runs out."""
        if self.is_shuffled_whole:  # rows of all epochs come from the start on
            return tuple(End(None, None) for _ in self.by_tokens)
        taken = self.consumption[-1].taken
        return tuple(_end(self.run.run, number, taken[number].rows) for number in self.by_tokens)

    @property
    def is_shuffled_whole(self) -> bool:
        """Whether the order of a mix is shuffled once more, over all its sources."""
        return isinstance(self.run.run, MixedRun) and self.run.run.shuffle is not None

    @lazy
    def rows(self) -> list[PickedRow]:
        """A few rows of the run, read and rendered."""
        return picked_rows(self.run, self.steps, self.examples, self.step_count)

    @lazy
    def leftovers(self) -> Leftovers:
        """What these steps leave out."""
        file = self.run.file
        end = "drop" if file is None else str(file.loader.get("end", "drop"))
        return leftovers_of(self.run, self.simulation, end)


def capital(text: str) -> str:
    """A sentence that starts with a capital, whatever it starts with.

    >>> capital("below 0.01 % are lost"), capital("3 rows")
    ('Below 0.01 % are lost', '3 rows')
    """
    return text[:1].upper() + text[1:]
