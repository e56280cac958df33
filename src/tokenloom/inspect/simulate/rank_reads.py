"""The reads of one rank, found by running its loader over stores that give no tokens.

One idea: nothing is modelled. A rank is a real `Loader` over a copy of the run whose readers only
pretend to read (`tokenloom.store.derived.pretended`): the same plans, groups of steps, coalescing,
checks, cache and read-ahead decide what is read, so the counts are those of the loader, to the
read. Each rank starts like a new process: nothing is cached, and nothing has been checked.

A group is what a loader reads together: one step first, then twice as many each time, up to the
loader's limit or the end of a plan.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.rebuild import rebuild
from tokenloom.arrays import grouped, with_newest
from tokenloom.batch.plan import Plan, PlanPart
from tokenloom.batch.render import Pending, Ready, Renderer
from tokenloom.loader.forecast import RankReading
from tokenloom.loader.loader import Loader
from tokenloom.order.run import Placed, Run
from tokenloom.store.derived.pretended import PretendedCache, PretendedReader, Touched
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.reader import Reader

__all__ = ["GroupRead", "LoaderSettings", "RankReads", "SharedRows"]

Int64 = NDArray[np.int64]

CHUNK, KEPT = 1 << 16, 32  # examples located together, and how many times as many are kept


class LoaderSettings(NamedTuple):
    """The settings of the loaders that are simulated; see `tokenloom.Loader`."""

    batch_size: int | Sequence[tuple[int, int]]
    ranks: int = 1
    cache_bytes: int | None = None
    prefetch: int = 16
    fetch: str = "auto"
    end: str = "drop"


class GroupRead(NamedTuple):
    """What a rank reads for steps [first, stop), and for what it reads ahead of them.

    Attributes:
        first, stop: the steps.
        reads, bytes: read operations and the bytes they give.
    """

    first: int
    stop: int
    reads: int
    bytes: int


class LocatedRows:
    """Source, item, epoch and row of consecutive examples, worked out once for all ranks."""

    def __init__(self) -> None:
        self._known: dict[int, NDArray[np.int64]] = {}

    def of(self, run: Run, chunk: int) -> NDArray[np.int64]:
        """[4, N]: source, item, epoch and row of the examples of a chunk."""
        known = self._known.get(chunk)
        if known is None:
            last = (chunk + 1) * CHUNK if run.n is None else min((chunk + 1) * CHUNK, run.n)
            known = np.zeros((4, last - chunk * CHUNK), np.int64)
            for part in run.placed(np.arange(chunk * CHUNK, last)):
                at = slice(None) if part.at is None else part.at
                known[0, at] = part.number
                known[1, at], known[2, at], known[3, at] = part.item, part.epoch, part.row
            self._known = with_newest(self._known, chunk, known, KEPT)
        return known


class LocatedRun:
    """A run whose examples were located before; see `Run.placed`."""

    def __init__(self, run: Run, known: LocatedRows) -> None:
        self._run, self._known, self.width = run, known, run.width
        self._alone = len(run.sources) == 1 and run.sources[0] is run

    def placed(self, indices: Int64) -> list[Placed]:
        """See `Run`."""
        found = np.empty((4, len(indices)), np.int64)
        for chunk, here in grouped(indices // CHUNK):
            known = self._known.of(self._run, chunk)
            found[:, here] = known[:, indices[here] - chunk * CHUNK]
        source, item, epoch, row = found
        if self._alone:
            return [Placed(0, self._run.sources[0], None, indices, epoch, row)]
        return [
            Placed(number, self._run.sources[number], at, item[at], epoch[at], row[at])
            for number, at in grouped(source)
        ]


class SharedRows:
    """What the ranks of one simulation share: located examples, and sorted rows of steps."""

    def __init__(self) -> None:
        self.located = LocatedRows()
        self.tables: dict[tuple[int, int], Any] = {}


class _CountingRenderer(Renderer):
    """Asks for the tokens of examples and makes no batch of them."""

    def __init__(
        self, like: Renderer, readers: Sequence[PretendedReader], known: LocatedRows
    ) -> None:
        specs = [like._specs[number] for number in range(len(like._readers))]
        super().__init__(like._run, like._readers, specs)
        self._payloads = [reader.payloads for reader in readers]
        self._made: list[Touched] = []
        self._located: Any = LocatedRun(like._run, known)

    def plan(self, indices: Int64) -> Plan:
        """Where these examples come from; ranks locate them together."""
        return Plan(self._located, indices)

    def fetch(self, plan: Plan, start: int, stop: int) -> Ready:
        """Look for the tokens of some examples; what is found in files is remembered."""
        if self._together is not None:
            self._together.fetched(plan, start, stop, "input_ids")
        else:
            for part, low, high in plan.shares(start, stop):
                self._ask(part, low, high)
        touched: Any = [one for payloads in self._payloads for one in payloads.take()]
        return Ready(touched, [])

    def _ask(self, part: PlanPart, start: int, stop: int) -> None:
        """Examples [start, stop) of a part, as `RowReader.fetched` asks for them."""
        line = part.placed.run.layout.line
        if self.by_blocks:
            self._readers[part.number].fetched(part, start, stop, "input_ids")
            return
        reads = part.reads.frames(start, stop)
        first, last = line.to_store(reads.address, reads.address + reads.length)
        reader = line.reader
        assert isinstance(reader, PretendedReader)
        if reader.payloads.find(first, last, "input_ids") is None:
            reader.ask(first, last)

    def batches(
        self,
        plan: Plan,
        cuts: Sequence[int],
        padding: int = 0,
        fields: Sequence[str] = (),
        ready: Ready | None = None,
    ) -> list[Pending]:
        """As many as there are steps, without content."""
        found: Any = (ready or self.fetch(plan, cuts[0], cuts[-1])).copier
        self._made += found
        nothing: Any = [None] * (len(cuts) - 1)
        return list(nothing)

    def deliver(self) -> None:
        """All batches that were made have been delivered: what they copied was checked."""
        for one in self._made:
            one.check()
        self._made = []


class RankReads:
    """A rank that loads steps [first, stop) and reads no token.

    Args:
        run: the run.
        settings: of the loader.
        rank: the number of the rank.
        first: its first step.
        stop: one past its last step.
        shared: what it shares with other ranks.

    Attributes:
        counters: what it has read.
        step: its next step.
    """

    def __init__(
        self,
        run: Dataset,
        settings: LoaderSettings,
        rank: int,
        first: int,
        stop: int,
        shared: SharedRows,
    ) -> None:
        self.counters = ReadCounters()
        shadow, readers = _shadow(run, settings.cache_bytes, self.counters)
        with warnings.catch_warnings():  # what does not fit is told in the answer
            warnings.simplefilter("ignore")
            loader = Loader(
                shadow,
                settings.batch_size,
                rank,
                settings.ranks,
                prefetch=settings.prefetch,
                fetch=settings.fetch,
                end=settings.end,
            )
        self._loader, self._maker = loader, loader._maker.over(loader._maker.steps)
        self._renderer = _CountingRenderer(self._maker.renderer, readers, shared.located)
        self._maker.renderer, self._maker.tables = self._renderer, shared.tables
        self._maker.until, self.step, self._size = stop, first, 1
        self._caches = list({id(one): one for one in shadow._caches}.values())

    def groups(self) -> Iterator[GroupRead]:
        """Load group after group, and tell what each took."""
        while True:
            reads, size = self.counters.read_ops, self.counters.bytes
            made = len(self._maker.batches(self.step, self._size))
            if not made:
                return
            self._renderer.deliver()
            first, self.step = self.step, self.step + made
            self._size = min(2 * self._size, self._loader._group)
            reads, size = self.counters.read_ops - reads, self.counters.bytes - size
            yield GroupRead(first, self.step, reads, size)

    @property
    def reading(self) -> RankReading:
        """What it needs in memory, and how it reads."""
        return self._loader._reading

    @property
    def by_blocks(self) -> bool:
        """Whether it reads whole blocks through the cache."""
        return self._renderer.by_blocks

    @property
    def ready_steps(self) -> int:
        """Steps that the loader keeps ready."""
        return self._loader._prefetch

    @property
    def count(self) -> int | None:
        """Steps of the whole run; None: endless."""
        return self._maker.count

    def cache_counts(self) -> tuple[int, int, int]:
        """(hits, misses, evictions) of its caches."""
        found = [one.stats() for one in self._caches]
        hits, misses = sum(one.hits for one in found), sum(one.misses for one in found)
        return hits, misses, sum(one.evictions for one in found)


def _shadow(
    run: Dataset, cache_bytes: int | None, ledger: ReadCounters
) -> tuple[Dataset, list[PretendedReader]]:
    """The run again, over readers of its own that only pretend to read."""
    caches: dict[int, PretendedCache] = {}
    readers: dict[int, PretendedReader] = {}

    def pretended(like: Reader) -> PretendedReader:
        if id(like) not in readers:
            whose = id(like.cache) if cache_bytes is None else id(like)
            size = like.cache.capacity if cache_bytes is None else cache_bytes
            cache = caches.setdefault(whose, PretendedCache(size))
            readers[id(like)] = PretendedReader(like, cache, ledger)
        return readers[id(like)]

    known = {(0, name): source.reader for name, source in run.sources.items()} | run._appended
    shadows = {key: pretended(reader) for key, reader in known.items()}
    made = rebuild(run.describe(), None, {}, shadows)._but(stages=run._stages)
    return made, list(readers.values())


def added(parts: Sequence[ReadCounters]) -> ReadCounters:
    """The counts of several ranks together."""
    return ReadCounters(*(sum(column) for column in zip(*map(astuple, parts), strict=True)))
