"""The result of a simulation as frozen records: for people as text, for programs as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tokenloom.errors import binary_size, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTotals:
    """What the steps show of a source; exact.

    Attributes:
        name: name of the source.
        rows: examples.
        tokens: stored tokens in them.
        epochs: complete epochs at the end of the steps.
    """

    name: str
    rows: int
    tokens: int
    epochs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePoint:
    """How many tokens each source has given by the start of a step, from the start of the run."""

    step: int
    examples: int
    tokens: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTotals:
    """What one rank reads.

    Attributes:
        rank: number of the rank.
        how: "fits": the cache holds all blocks needed at the same time; "thrashes": it holds most
            of them, and some are fetched again; "reads rows": rows are read one by one.
        examples: rows that it gets.
        requests: ranges that it asks the store for.
        ranges, reads, bytes, useful_bytes: gap-free stretches, read operations, bytes read (its
            egress) and bytes that were asked for, as `Store.reads` counts them.
        hits, misses, evictions: of its block cache.
        needed_bytes, cache_bytes: memory for the blocks needed at the same time, and of the cache.
    """

    rank: int
    how: str
    examples: int
    requests: int
    ranges: int
    reads: int
    bytes: int
    useful_bytes: int
    hits: int
    misses: int
    evictions: int
    needed_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRepeats:
    """How often rows and documents of a source come, and how far apart.

    Attributes:
        name: name of the source.
        rows: rows of an epoch.
        least, most: how often the steps show a row; exact where every epoch shows each row once.
        documents: documents that were followed; all of the source, or a sample of whole blocks.
        is_sample: whether there are others.
        epochs: epochs in which they were followed.
        shown: how often one of these documents is in a row, on average.
        gaps: steps from one such row to the next: least, median, mean and most; None without any.
        note: what was not looked at, and why.
    """

    name: str
    rows: int
    least: int
    most: int
    documents: int
    is_sample: bool
    epochs: int
    shown: float
    gaps: tuple[float, float, float, float] | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """How long training waits for data, in a simple model of the source.

    A request takes `latency` seconds and its bytes at `bandwidth`; `parallel` of them are answered
    at a time, and share the bandwidth. A loader reads groups of steps ahead, as far as it keeps
    steps ready; a step starts when every rank has its rows, and takes `step_seconds`.

    Attributes:
        latency, bandwidth, parallel, step_seconds: as given; a bandwidth of None is no limit.
        steps: steps that were simulated.
        seconds: time they take.
        waited: how much of it is waiting for data, the first step included.
        first_wait: seconds until the first step starts.
        longest_wait: the longest wait after it.
        stalled_steps: steps after the first that had to wait.
        fetch_seconds: for each rank, how long its source is busy.
    """

    latency: float
    bandwidth: float | None
    parallel: int
    step_seconds: float
    steps: int
    seconds: float
    waited: float
    first_wait: float
    longest_wait: float
    stalled_steps: int
    fetch_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Simulation:
    """What steps [first, first + steps) of a run show, read and wait for; no token was read.

    Attributes:
        first, steps: the steps.
        examples, tokens: examples and stored tokens in them.
        batch_size: rows of a step over all ranks, or a schedule.
        sources: what they show of each source.
        over_time: tokens of each source at some steps.
        ranks: what each rank reads.
        repeats: how often rows and documents come.
        stalls: waiting, if latency, bandwidth and step_seconds were given.
        exact_steps: steps whose reads were simulated one by one.
        exact_ranks: what each rank reads if it loads these steps and no more.
        exact, estimated: the names of the numbers that are exact, and of those that are not.
        notes: what to know about these numbers.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     found = store.windows(2).shuffle().simulate(batch_size=2)
    ...     found.steps, found.examples, found.tokens, len(found.ranks)
    (2, 4, 8, 1)
    """

    first: int
    steps: int
    examples: int
    tokens: int
    batch_size: int | tuple[tuple[int, int], ...]
    sources: tuple[SourceTotals, ...]
    over_time: tuple[TimePoint, ...]
    ranks: tuple[RankTotals, ...]
    repeats: tuple[SourceRepeats, ...]
    stalls: Stalls | None
    exact_steps: int
    exact_ranks: tuple[RankTotals, ...]
    exact: tuple[str, ...]
    estimated: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def reads(self) -> int:
        """Read operations of all ranks."""
        return sum(one.reads for one in self.ranks)

    @property
    def bytes(self) -> int:
        """Bytes read by all ranks."""
        return sum(one.bytes for one in self.ranks)

    @property
    def useful_bytes(self) -> int:
        """Bytes that all ranks asked for."""
        return sum(one.useful_bytes for one in self.ranks)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON."""
        found = {"reads": self.reads, "bytes": self.bytes, "useful_bytes": self.useful_bytes}
        plain: dict[str, Any] = _plain(asdict(self) | found)
        return plain

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        world = plural(len(self.ranks), "rank")
        last, size = self.first + self.steps, f"{self.examples:,} examples, {self.tokens:,} tokens"
        lines = [f"Simulation: steps {self.first:,} to {last:,} on {world}, {size}"]
        for one in self.sources:
            share = one.tokens / self.tokens if self.tokens else 0.0
            lines.append(
                f"├─ source  {one.name}: {one.tokens:,} tokens ({share:.1%}), {one.rows:,} rows, "
                f"{plural(one.epochs, 'epoch')} complete"
            )
        lines += [f"├─ repeats {_repeats_in_words(one)}" for one in self.repeats]
        mark = "about " if self.estimated else ""
        useful = self.useful_bytes / self.bytes if self.bytes else 1.0
        lines.append(
            f"├─ reads   {mark}{self.reads:,} reads, {binary_size(self.bytes)}, {useful:.1%} of "
            f"it asked for, {self.reads / max(1, self.examples):.4f} reads a row"
        )
        lines += [f"│  {_rank_in_words(one)}" for one in self._extremes()]
        if self.stalls is not None:
            lines.append(f"├─ stalls  {_stalls_in_words(self.stalls)}")
        lines += [f"├─ note    {note}" for note in self.notes]
        lines.append(f"└─ exact   {', '.join(self.exact)}")
        if self.estimated:
            lines[-1] = lines[-1].replace("└─", "├─")
            lines.append(f"└─ extrapolated: {', '.join(self.estimated)}")
        return lines

    def _extremes(self) -> list[RankTotals]:
        """The rank that reads least, and the one that reads most."""
        ordered = sorted(self.ranks, key=lambda one: one.bytes)
        return ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]


def _rank_in_words(one: RankTotals) -> str:
    lookups = one.hits + one.misses
    hits = f", {one.hits / lookups:.1%} cache hits" if lookups and one.how != "reads rows" else ""
    return (
        f"rank {one.rank}: {one.how}, {one.reads:,} reads, {binary_size(one.bytes)}{hits}; needs "
        f"{binary_size(one.needed_bytes)} at once, the cache has {binary_size(one.cache_bytes)}"
    )


def _repeats_in_words(one: SourceRepeats) -> str:
    times = f"{one.least}" if one.least == one.most else f"{one.least} to {one.most}"
    told = f"{one.name}: each of {one.rows:,} rows {times} times"
    if one.gaps is not None:
        of = "sampled " if one.is_sample else ""
        low, middle, mean, high = one.gaps
        told += (
            f"; {plural(one.documents, 'document').replace(' ', f' {of}', 1)} in "
            f"{one.shown:.1f} rows each, {low:,.0f} to {high:,.0f} steps apart (median "
            f"{middle:,.0f}, mean {mean:,.1f})"
        )
    return f"{told}. {one.note}" if one.note else told


def _stalls_in_words(one: Stalls) -> str:
    share = one.waited / one.seconds if one.seconds else 0.0
    return (
        f"{one.waited:,.1f} of {one.seconds:,.1f} s ({share:.1%}) in {one.steps:,} steps of "
        f"{one.step_seconds:g} s; {one.stalled_steps:,} steps wait, the first "
        f"{one.first_wait:.2f} s, later ones up to {one.longest_wait:.2f} s"
    )


def _plain(value: Any) -> Any:
    """Tuples as lists, at any depth."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
