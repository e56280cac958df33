"""`simulate_run`: what the next steps of a run will show, read and wait for.

Each rank is a real `Loader` over a copy of the run whose readers give zeros instead of tokens
(`tokenloom.store.dry_run`), so reads, bytes and cache hits are those of the loader, to the read.
The first steps are simulated one by one; the others are taken to read like the later half of them.
What steps show (tokens by source, repeats) follows from the run alone and is exact.
`python -m benchmarks simulate` prints what it costs.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.rebuild import rebuild
from tokenloom.api.source import Source
from tokenloom.arguments import check_between, integer, near_misses
from tokenloom.documents.select import line_of
from tokenloom.errors import ConfigError
from tokenloom.inspect.simulate.repeats import repeats_of
from tokenloom.inspect.simulate.result import (
    RankTotals,
    Simulation,
    SourceTotals,
    TimePoint,
)
from tokenloom.inspect.simulate.stalls import GroupRead, simulate_stalls
from tokenloom.layout.pack.rows import Packed
from tokenloom.limits import limits
from tokenloom.loader.forecast import FITS, ROWS, THRASHES, RankReading
from tokenloom.loader.loader import Loader
from tokenloom.loader.steps import rank_rows
from tokenloom.order.run import Run
from tokenloom.order.schedule import Steps
from tokenloom.store.cache import BlockCache
from tokenloom.store.dry_run import DryReader
from tokenloom.store.reader import Reader

EXACT_EXAMPLES = 1 << 23  # of all ranks; the reads of later ones are extrapolated

SHOWN = ("steps", "examples", "tokens", "sources", "over_time", "repeats.least", "repeats.most")

READ = ("ranks.reads", "ranks.ranges", "ranks.bytes", "ranks.useful_bytes", "ranks.hits")

READS, BYTES = 1, 2  # places among the counts of a rank


class LoaderSettings(NamedTuple):
    """The settings of the loaders that are simulated; see `tokenloom.Loader`."""

    batch_size: int | Sequence[tuple[int, int]]
    ranks: int
    cache_bytes: int | None
    prefetch: int
    fetch: str
    end: str


class RankReads(NamedTuple):
    """What the loader of one rank has read.

    Attributes:
        rank: its number.
        reading: what it needs in memory.
        by_blocks: whether it reads whole blocks through the cache.
        ready_steps: steps that it keeps ready.
        groups: the steps that it loads together, and what it reads for them.
        counts: ranges, reads, bytes, useful bytes, requests; and hits, misses and evictions of its
            caches.
    """

    rank: int
    reading: RankReading
    by_blocks: bool
    ready_steps: int
    groups: list[GroupRead]
    counts: tuple[int, ...]


@near_misses("simulate")
def simulate_run(
    run: Dataset,
    steps: int | None = None,
    *,
    batch_size: int | Sequence[tuple[int, int]],
    ranks: int = 1,
    first: int = 0,
    cache_bytes: int | None = None,
    latency: float | None = None,
    bandwidth: float | None = None,
    step_seconds: float | None = None,
    parallel: int = 1,
    prefetch: int = 16,
    fetch: str = "auto",
    end: str = "drop",
    points: int = 10,
    exact_examples: int = EXACT_EXAMPLES,
) -> Simulation:
    """What steps [first, first + steps) of a run show, read and wait for; reads no token.

    Reads, bytes and cache hits are those of `tokenloom.Loader` in new processes that load these
    steps and no more, to the read. They are simulated step by step up to `exact_examples`; later
    steps are taken to read like the second half of those, and the answer names these numbers.

    Args:
        run: the run.
        steps: how many steps; None is all that remain of a finite run.
        batch_size: rows of a step over all ranks, or a schedule, as for `Loader`.
        ranks: processes that share every step.
        first: the step to start with, as after a resume.
        cache_bytes: memory for decoded blocks of each store; default: as the run's stores have it.
        latency: seconds from a request to its first byte.
        bandwidth: bytes per second that a rank's source delivers, all requests together.
        step_seconds: time that a step takes once it has its data; needed to tell stalls.
        parallel: requests of a rank that are answered at the same time.
        prefetch: as for `Loader`, like the following two.
        fetch: "auto", "blocks" or "rows".
        end: what becomes of a short last step: "drop", "pad" or "wrap".
        points: at how many steps tokens by source are told.
        exact_examples: examples of all ranks to simulate step by step; at least one step is.

    Raises:
        ConfigError: an argument is not allowed, or the run has fewer steps.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3)
    ...     found = simulate_run(run, batch_size=2)
    ...     found.steps, found.tokens, found.useful_bytes, store.reads.bytes
    (6, 24, 16, 0)
    """
    run = dataset_of("simulate", run)
    counted = Steps(batch_size)
    integer("ranks", ranks, 1)
    integer("parallel", parallel, 1)
    first, last = _stretch(run.run, counted, first, steps, end)
    _check_speed(latency, bandwidth, step_seconds)
    limit = integer("exact_examples", exact_examples, 1)
    exact = last
    if (last - first) * counted.size(last - 1) > limit:
        exact = min(last, first + max(1, limit // counted.size(last - 1)))
    settings = LoaderSettings(batch_size, ranks, cache_bytes, prefetch, fetch, end)
    read = [_read(run, settings, rank, first, exact) for rank in range(ranks)]
    alone = totals = tuple(_totals(one, one.counts, counted, (first, exact), ranks) for one in read)
    if exact < last:
        middle = (first + exact) // 2
        times = (last - exact) / (exact - middle)
        halves = [_read(run, settings, rank, first, middle) for rank in range(ranks)]
        ends = [_extended(*pair, times) for pair in zip(halves, read, strict=True)]
        pairs = zip(read, ends, strict=True)
        totals = tuple(_totals(one, at, counted, (first, last), ranks) for one, at in pairs)
    looked = dry_copy(run, cache_bytes).run  # its cache is nobody else's
    begin, stop = (_examples(looked, counted, step, end) for step in (first, last))
    before, after = _consumed(looked, begin), _consumed(looked, stop)
    shown = tuple(
        SourceTotals(name=name, rows=b[0] - a[0], tokens=b[1] - a[1], epochs=b[2])
        for name, a, b in zip(looked.names, before, after, strict=True)
    )
    items = [(a[0], b[0]) for a, b in zip(before, after, strict=True)]
    stalls = None
    if latency is not None or bandwidth is not None:
        stalls = simulate_stalls(
            [one.groups for one in read],
            [one.ready_steps for one in read],
            (latency or 0.0, bandwidth or float("inf"), parallel),
            step_seconds or 0.0,
        )
    notes = _notes(run, read, exact if exact < last else None, first, end)
    if stalls is not None and step_seconds is None:
        notes.append("without step_seconds a step takes no time: all time is waiting")
    return Simulation(
        first=first,
        steps=last - first,
        examples=stop - begin,
        tokens=sum(one.tokens for one in shown),
        batch_size=_plain_sizes(batch_size),
        sources=shown,
        over_time=_over_time(looked, counted, (first, last), points, end),
        ranks=totals,
        repeats=() if end == "wrap" else repeats_of(looked, items, counted),
        stalls=stalls,
        exact_steps=exact - first,
        exact_ranks=alone,
        exact=(*SHOWN, *(READ if exact == last else ())),
        estimated=() if exact == last else READ,
        notes=tuple(notes),
    )


def _stretch(run: Run, counted: Steps, first: int, steps: int | None, end: str) -> tuple[int, int]:
    """The first step, and one past the last; steps after the end of the run are refused."""
    first = integer("first", first)
    count = None
    if run.n is not None and end != "wrap":
        count = counted.count(run.n, partial=end == "pad")
    if steps is None and count is None:
        raise ConfigError("steps is required: the run is endless.")
    last = count if steps is None else first + integer("steps", steps, 1)
    if last is None or (count is not None and last > count) or last <= first:
        of = f"the run has {count:,} steps of this batch size"
        raise ConfigError(
            f"steps: found steps {first:,} to {last or 0:,}, but {of}. Ask for fewer, or give the "
            "run more epochs."
        )
    return first, last


def _check_speed(
    latency: float | None, bandwidth: float | None, step_seconds: float | None
) -> None:
    check_between("latency", latency, 0, unit="seconds")
    check_between("step_seconds", step_seconds, 0, unit="seconds")
    if bandwidth is not None and not 0 < bandwidth < float("inf"):
        raise ConfigError(
            f"bandwidth: found {bandwidth}, allowed: more than 0 bytes per second; None for no "
            "limit."
        )


# -- what a rank reads ---------------------------------------------------------------------


def dry_copy(run: Dataset, cache_bytes: int | None) -> Dataset:
    """The run again, over readers of its own that read no token."""
    caches: dict[int, BlockCache] = {}
    readers: dict[int, DryReader] = {}

    def dry(like: Reader) -> DryReader:
        if id(like) not in readers:
            whose = id(like.cache) if cache_bytes is None else id(like)
            size = like.cache.capacity if cache_bytes is None else cache_bytes
            readers[id(like)] = DryReader(like, caches.setdefault(whose, BlockCache(size)))
        return readers[id(like)]

    known = {(0, name): source.reader for name, source in run.sources.items()} | run._appended
    copies = {key: dry(reader) for key, reader in known.items()}
    planned = [_planned(one, copies[0, name]) for name, one in run.sources.items()]
    laid_out = [one for one in planned if one is not None]
    return rebuild(run.describe(), None, {}, copies, laid_out)._but(stages=run._stages)


def _planned(source: Source, reader: DryReader) -> Source | None:
    """The source over another reader with the plan it has; None if planning again is quick."""
    layout = source.layout
    fewest = limits().min_cached_packing_documents
    if not isinstance(layout, Packed) or layout.line.documents < fewest:
        return None
    line = line_of(reader, source.config.choice)
    return replace(source, reader=reader, layout=Packed(layout.spec, line, layout.groups))


def _read(run: Dataset, settings: LoaderSettings, rank: int, first: int, stop: int) -> RankReads:
    """Load steps [first, stop) of a rank, and count what that reads."""
    copy = dry_copy(run, settings.cache_bytes)
    with warnings.catch_warnings():  # the notes say what does not fit
        warnings.simplefilter("ignore")
        loader = Loader(
            copy,
            settings.batch_size,
            rank,
            settings.ranks,
            prefetch=settings.prefetch,
            fetch=settings.fetch,
            end=settings.end,
        )
    maker, caches = loader._maker, list({id(one): one for one in copy._caches}.values())
    maker.last = stop
    groups, step, size = [], first, 1
    counts = _counts(copy, caches)
    while step < stop:  # as the loader's thread does it, but without the thread
        made, before = maker.batches(step, size), counts
        maker.renderer.finish_ahead()
        if maker.renderer.in_place:  # tokens are read, and checked, when a batch is made
            for pending in made:
                pending.make()
        counts, after = _counts(copy, caches), step + len(made)
        reads, read_bytes = (counts[k] - before[k] for k in (READS, BYTES))
        groups.append(GroupRead(step, after, reads, read_bytes))
        step, size = after, min(2 * size, loader._group)
    for cache in caches:
        cache.clear()  # the next rank needs the memory
    by_blocks = maker.renderer.by_blocks
    return RankReads(rank, loader._reading, by_blocks, loader._prefetch, groups, counts)


def _counts(run: Dataset, caches: Sequence[BlockCache]) -> tuple[int, ...]:
    """What has been read so far; see `RankReads`."""
    one, stats = run.counters(), [cache.stats() for cache in caches]
    return (
        *(one.ranges, one.read_ops, one.bytes, one.useful_bytes, one.examples),
        *(sum(getattr(cache, name) for cache in stats) for name in ("hits", "misses", "evictions")),
    )


def _extended(half: RankReads, whole: RankReads, times: float) -> tuple[int, ...]:
    """The counts of a rank after `times` as many steps more as `whole` has beyond `half`."""
    more = [times * (b - a) for a, b in zip(half.counts, whole.counts, strict=True)]
    share = 1.0
    if whole.by_blocks and whole.reading.total <= whole.reading.capacity:
        # the cache holds the whole run: nothing is read twice
        room = max(0, whole.reading.total - whole.counts[BYTES])
        share = min(1.0, room / max(1.0, more[BYTES]))
    return tuple(a + round(share * b) for a, b in zip(whole.counts, more, strict=True))


def _totals(
    one: RankReads, counts: tuple[int, ...], counted: Steps, steps: tuple[int, int], ranks: int
) -> RankTotals:
    """What a rank reads in some steps, given its counts at their end."""
    ranges, reads, size, useful, requests, hits, misses, evictions = counts
    step, rows = steps[0], 0
    while step < steps[1]:
        stop = min(steps[1], counted.stretch_end(step))
        low, high = rank_rows(counted.size(step), one.rank, ranks)
        rows, step = rows + (stop - step) * (high - low), stop
    return RankTotals(
        rank=one.rank,
        how=ROWS if not one.by_blocks else FITS if one.reading.fits else THRASHES,
        examples=rows,
        requests=requests,
        ranges=ranges,
        reads=reads,
        bytes=size,
        useful_bytes=useful,
        hits=hits,
        misses=misses,
        evictions=evictions,
        needed_bytes=one.reading.needed,
        cache_bytes=one.reading.capacity,
    )


def _notes(
    run: Dataset, ranks: Sequence[RankReads], exact: int | None, first: int, end: str
) -> list[str]:
    """What to know about the numbers; `exact` is the step at which extrapolation starts."""
    found = []
    if exact is not None:
        found.append(
            f"the reads of the first {exact - first:,} steps are exact; later steps are taken to "
            f"read like steps {(first + exact) // 2:,} to {exact:,}"
        )
        if any(one.reader.rules.verify == "first" for one in run.sources.values()):
            found.append(
                "what is read for the first time is checked, which may read more; later steps are "
                "taken to check as much"
            )
        if any(one.by_blocks and one.reading.total <= one.reading.capacity for one in ranks):
            found.append("the cache holds the whole run, so reads end once it is there")
    if end == "wrap":
        found.append("repeats are not told with end='wrap'")
    worst = max(ranks, key=lambda one: one.reading.needed)
    if not worst.reading.fits and worst.reading.advice:
        found.append(f"rank {worst.rank} has too little cache: {worst.reading.advice}")
    return found


# -- what steps show -----------------------------------------------------------------------


def _examples(run: Run, counted: Steps, step: int, end: str) -> int:
    """Examples before a step."""
    begin = counted.begin(step)
    return begin if run.n is None or end == "wrap" else min(begin, run.n)


def _consumed(run: Run, examples: int) -> list[tuple[int, int, int]]:
    """(rows, tokens, epochs) of every source in the first examples; with "wrap" they go round."""
    times, rest = (0, examples) if not run.n or examples <= run.n else divmod(examples, run.n)
    part = [(one.rows, one.tokens, one.epochs) for one in run.consumed(rest)]
    if not times:
        return part
    whole = _consumed(run, run.n or 0)
    return [
        (a + times * x, b + times * y, c + times * z)
        for (a, b, c), (x, y, z) in zip(part, whole, strict=True)
    ]


def _over_time(
    run: Run, counted: Steps, steps: tuple[int, int], points: int, end: str
) -> tuple[TimePoint, ...]:
    """Tokens of every source at evenly spaced steps, both ends included."""
    found = []
    for step in np.unique(np.linspace(*steps, max(2, points + 1)).astype(np.int64)).tolist():
        examples = _examples(run, counted, step, end)
        tokens = [one[1] for one in _consumed(run, examples)]
        named = dict(zip(run.names, tokens, strict=True))
        found.append(TimePoint(step=step, examples=examples, tokens=named))
    return tuple(found)


def _plain_sizes(batch_size: Any) -> int | tuple[tuple[int, int], ...]:
    if hasattr(batch_size, "__index__"):
        return operator.index(batch_size)
    return tuple((int(a), int(b)) for a, b in batch_size)
