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
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.rebuild import rebuild
from tokenloom.api.source import Source
from tokenloom.arrays import grouped, with_newest
from tokenloom.batch.plan import Plan, PlanPart
from tokenloom.batch.render import Pending, Ready, Renderer
from tokenloom.documents.select import line_of
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.windows import Windows
from tokenloom.limits import limits
from tokenloom.loader.forecast import RankReading
from tokenloom.loader.loader import Loader
from tokenloom.loader.maker import Maker, Planned
from tokenloom.order.run import Placed, Run
from tokenloom.store.derived.pretended import PretendedReader, Touched
from tokenloom.store.derived.pretended_cache import PretendedCache
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.reader import Reader

__all__ = ["GroupRead", "LoaderSettings", "RankReads", "SharedSteps", "shadow_of"]

Int64 = NDArray[np.int64]

KEPT = 32  # stretches of steps, located for all ranks


class LoaderSettings(NamedTuple):
    """The settings of the loaders that are simulated; see `tokenloom.Loader`."""

    batch_size: int | Sequence[tuple[int, int]]
    ranks: int = 1
    cache_bytes: int | None = None
    prefetch: int = 16
    fetch: str = "auto"
    end: str = "drop"


class GroupRead(NamedTuple):
    """What a rank reads for steps [first, stop).

    Attributes:
        first, stop: the steps.
        reads, bytes: read operations and the bytes they give.
        counts: all that the rank has read by then: ranges, reads, bytes, useful bytes, requests;
            and hits, misses and evictions of its caches.
    """

    first: int
    stop: int
    reads: int
    bytes: int
    counts: tuple[int, ...]


class _CountingRenderer(Renderer):
    """Asks for the tokens of examples and makes no batch of them."""

    def __init__(self, like: Renderer, readers: Sequence[PretendedReader]) -> None:
        specs = [like._specs[number] for number in range(len(like._readers))]
        super().__init__(like._run, like._readers, specs)
        self._payloads = [reader.payloads for reader in readers]
        self._made: list[Touched] = []

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
        layout, blanks = part.placed.run.layout, part.placed.run.blanks
        if self.by_blocks:
            if blanks is not None or not isinstance(layout, Windows):
                _ = part.reads  # may look up where documents start, through the cache
            self._readers[part.number]._blocks(part, start, stop, "input_ids")
            return
        line = layout.line
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


Table = tuple[Int64, ...]

"""All rows of some steps, for all ranks: example, source and item, unless there is one source,
epoch and row of each [steps, rows]."""


class SharedSteps:
    """What the ranks of one simulation share: where the rows of steps come from."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Table | None] = {}

    def table(self, maker: Maker, step: int, stop: int) -> Table | None:
        """The rows of some steps of one size; None if some of them are after the end."""
        which = step, stop
        if which not in self._known:
            line, real = maker.whole_steps(step, stop)
            found = _located(maker.run, line) if real.all() else None
            self._known = with_newest(self._known, which, found, KEPT)
        return self._known[which]


def _located(run: Run, line: Int64) -> Table:
    """Where these examples come from."""
    parts = run.placed(line.reshape(-1))
    if parts[0].at is None:
        return line, parts[0].epoch.reshape(line.shape), parts[0].row.reshape(line.shape)
    source, item, epoch, row = np.empty((4, line.size), np.int64)
    for part in parts:
        at = part.at
        source[at], item[at], epoch[at], row[at] = part.number, part.item, part.epoch, part.row
    return line, *(one.reshape(line.shape) for one in (source, item, epoch, row))


class _GivenRows(NamedTuple):
    """A run of which only some examples are asked for, and they are known."""

    width: int
    parts: list[Placed]

    def placed(self, indices: Int64) -> list[Placed]:
        """See `Run`."""
        return self.parts


class _RankMaker(Maker):
    """Plans the steps of a rank as its loader does, with what other ranks have worked out."""

    def __init__(self, loader: Loader, shadow: Dataset, last: int, shared: SharedSteps) -> None:
        like = loader._maker
        by_blocks = like.renderer.by_blocks
        super().__init__(
            shadow, like.steps, like.rank, like.world_size, like.end, like.fields, by_blocks
        )
        self.ahead, self.budget, self.holds_all = like.ahead, like.budget, like.holds_all
        self._last, self._shared = last, shared
        self._alone = self.run.sources[0] is self.run

    @property
    def _end(self) -> int:
        """One past the last step that is simulated."""
        return min(super()._end, self._last)

    def _planned_rows(self, step: int, stop: int, low: int, high: int) -> Planned:
        table = self._shared.table(self, step, stop)
        if table is None:
            return super()._planned_rows(step, stop, low, high)
        sources, mine = self.run.sources, [one[:, low:high].reshape(-1) for one in table]
        index, epoch, row = mine[0], mine[-2], mine[-1]
        if self._alone:
            parts = [Placed(0, sources[0], None, index, epoch, row)]
        else:
            source, item = mine[1], mine[2]
            parts = [
                Placed(number, sources[number], at, item[at], epoch[at], row[at])
                for number, at in grouped(source)
            ]
        given: Any = _GivenRows(self.run.width, parts)
        cuts = list(range(0, len(index) + 1, high - low))
        return Planned(step, stop, Plan(given, index), cuts)


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
        rank, world_size: its number, and that of all ranks.
        start: its counts before the first step.
    """

    def __init__(
        self,
        run: Dataset,
        settings: LoaderSettings,
        rank: int,
        first: int,
        stop: int,
        shared: SharedSteps,
    ) -> None:
        self.counters = ReadCounters()
        shadow, readers = shadow_of(run, settings.cache_bytes, self.counters)
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
        self._loader, self.step, self._size = loader, first, 1
        self._maker = _RankMaker(loader, shadow, stop, shared)
        self._renderer = _CountingRenderer(self._maker.renderer, readers)
        self._maker.renderer = self._renderer
        self.rank, self.world_size = rank, settings.ranks
        self._caches = list({id(one): one for one in shadow._caches}.values())
        self.start = self.counts()  # opening a run may use its cache

    def groups(self) -> Iterator[GroupRead]:
        """Load group after group, and tell what each took."""
        while True:
            before = self.counters.read_ops, self.counters.bytes
            made = len(self._maker.batches(self.step, self._size))
            if not made:
                return
            self._renderer.deliver()
            first, self.step = self.step, self.step + made
            self._size = min(2 * self._size, self._loader._group)
            reads, size = self.counters.read_ops - before[0], self.counters.bytes - before[1]
            yield GroupRead(first, self.step, reads, size, self.counts())

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

    def counts(self) -> tuple[int, ...]:
        """What it has read; see `GroupRead`."""
        one, caches = self.counters, [cache.stats() for cache in self._caches]
        hits, misses = sum(cache.hits for cache in caches), sum(cache.misses for cache in caches)
        evicted = sum(cache.evictions for cache in caches)
        read = one.ranges, one.read_ops, one.bytes, one.useful_bytes, one.examples
        return *read, hits, misses, evicted


def shadow_of(
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
    planned = [_planned(one, shadows[0, name]) for name, one in run.sources.items()]
    laid_out = [one for one in planned if one is not None]
    made = rebuild(run.describe(), None, {}, shadows, laid_out)._but(stages=run._stages)
    return made, list(readers.values())


def _planned(source: Source, reader: PretendedReader) -> Source | None:
    """The source over another reader with the plan it has; None if planning again is quick."""
    layout = source.layout
    fewest = limits().min_cached_packing_documents
    if not isinstance(layout, Packed) or layout.line.documents < fewest:
        return None
    line = line_of(reader, source.config.choice)
    return replace(source, reader=reader, layout=Packed(layout.spec, line, layout.groups))
