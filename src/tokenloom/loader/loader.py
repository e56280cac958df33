"""`Loader`: the only object with a position. Step → indices → batch, ahead of time, resumable.

One idea: a step is a function of its number (`tokenloom.loader.steps`) and a batch is a function of
its indices, so the loader holds one integer: the number of examples delivered. Ranks, prefetch and
batch size decide who makes which batch and when, never what is in the run.

Rank r of W takes rows [r B // W, (r + 1) B // W) of every step. With lanes, the rows of a step are
sorted by lane, so each rank stays in its own shuffle windows; a step has the same rows for every W.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import near_misses, one_of
from tokenloom.batch.batch import FIELDS, Batch
from tokenloom.batch.render import Pending
from tokenloom.errors import ConfigError, StateError
from tokenloom.loader.maker import Maker
from tokenloom.loader.prefetch import Prefetcher, log
from tokenloom.loader.state import check_state, make_state
from tokenloom.loader.steps import Steps, rank_rows, refuse_no_steps
from tokenloom.store.cache import BlockCache, CacheStats
from tokenloom.store.fetch import ReadCounters

__all__ = ["Forecast", "Loader", "LoaderStats"]

GROUP_ROWS, GROUP_BATCHES = 8192, 256  # maximum rows and batches looked up together


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """What a loader has done since it was made.

    Attributes:
        steps, examples, tokens: delivered to this rank.
        seconds: time since the first step was requested.
        wait_seconds: how much of that time the caller waited for a batch.
        reads: reads of the stores, by all their users.
        cache: use of the block cache, by all its users.
    """

    steps: int
    examples: int
    tokens: int
    seconds: float
    wait_seconds: float
    reads: ReadCounters
    cache: CacheStats

    @property
    def tokens_per_second(self) -> float:
        """Tokens delivered per second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the next steps of a rank will fetch, if nothing else uses the cache.

    Attributes:
        steps, examples: the steps simulated, and their examples on this rank.
        blocks: distinct blocks they need.
        fetches: fetches of blocks; a block that was evicted is fetched again.
    """

    steps: int
    examples: int
    blocks: int
    fetches: int

    def __str__(self) -> str:
        each = self.fetches / self.examples if self.examples else 0.0
        times = self.fetches / self.blocks if self.blocks else 0.0
        return (
            f"{self.steps:,} steps, {self.examples:,} rows of this rank: {self.fetches:,} fetches "
            f"of {self.blocks:,} blocks, {each:.4f} a row, each block {times:.2f} times"
        )


class Loader:
    """Iterates over the batches of a dataset, in order, for one rank.

    Args:
        dataset: the dataset to load.
        batch_size: rows of a step over all ranks; or a schedule, pairs (examples, batch size).
        rank: the number of this rank, from 0.
        world_size: the number of ranks; it may change from run to run.
        prefetch: batches to keep ready; 0 uses no thread.
        end: what to do with a short last step: "drop" it, "pad" it with rows of filler that have
            no loss, or "wrap" around to the first examples, endlessly.
        fields: arrays of a batch to make before it is delivered; others are made on first use.
        accumulate: shape every array of rows as [accumulate, rows / accumulate, …], for gradient
            accumulation; the rows of a rank must be divisible by it.
        fetch: how tokens are read: "blocks" (whole, through the cache), "rows" (one by one), or
            "auto": by blocks if this rank's share of the shuffle window fits into the cache.
        patience: seconds between warnings while no batch arrives.

    Raises:
        ConfigError: an argument is not allowed, or the run has not a single step.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     with tl.Loader(store.windows(2), batch_size=2) as loader:
    ...         [batch.tokens.tolist() for batch in loader]
    [[[97, 98], [99, 100]], [[101, 102], [103, 104]]]
    """

    @near_misses("Loader")
    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | Sequence[tuple[int, int]],
        rank: int = 0,
        world_size: int = 1,
        *,
        prefetch: int = 16,
        end: str = "drop",
        fields: Sequence[str] = ("tokens",),
        accumulate: int | None = None,
        fetch: str = "auto",
        patience: float = 30.0,
    ) -> None:
        self.dataset, self._steps = dataset, Steps(batch_size)
        _check_rank(rank, world_size, self._steps.smallest)
        one_of("end", end, ("drop", "pad", "wrap"))
        one_of("fetch", fetch, ("auto", "blocks", "rows"))
        for name in fields:
            one_of("fields", name, FIELDS)
        if not patience > 0:
            raise ConfigError(f"patience: found {patience}, allowed: more than 0 seconds.")
        if prefetch < 0:
            raise ConfigError(f"prefetch: found {prefetch}, allowed: 0 or more batches.")
        self.rank, self.world_size = rank, world_size
        self._accumulate = accumulate
        if accumulate is not None:
            for size in self._steps.sizes:
                _check_groups(size, rank, world_size, accumulate)
        self._patience = patience
        fits = dataset.run.share_bytes(world_size) <= dataset.cache_bytes
        by_blocks = fetch == "blocks" or (fetch == "auto" and fits)
        if fetch == "auto" and dataset.run.lanes > 1:
            dataset.run.warn_if_too_large(dataset.cache_bytes, world_size)
        self._maker = Maker(dataset, self._steps, rank, world_size, end, tuple(fields), by_blocks)
        self._prefetch, self._group = prefetch, max(1, prefetch)
        if by_blocks and fits:  # batches kept ready then cost no memory beyond the cache
            group = min(GROUP_BATCHES, GROUP_ROWS * world_size // self._steps.smallest)
            self._group = max(self._group, group)
            self._prefetch = self._group if prefetch else 0
        self._step = 0
        self._producer: Prefetcher[Pending] | None = None
        self._steps_given = self._rows_given = 0
        self._begin: float | None = None
        self._waited = 0.0
        refuse_no_steps(
            self._steps,
            dataset.run.n,
            end,
            seq_len=dataset.seq_len,
            tokens=sum(source.line.tokens for source in dataset.sources.values()),
        )

    # -- batches ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._producer is None or self._producer.is_elsewhere:
            self._begin = self._begin or time.perf_counter()
            self._producer = Prefetcher(
                self._maker.batches,
                self._step,
                self._prefetch,
                group=self._group,
                at_hand=self._maker.at_hand,
                stalled=self._maker.stalled,
                patience=self._patience,
            )
        pending = self._producer.take()
        if pending is None:
            raise StopIteration
        try:
            batch = self._maker.finish(self._step, pending)
        except BaseException:
            self._stop()  # so that the undelivered batch is made again
            raise
        self._step += 1
        self._steps_given += 1
        self._rows_given += pending.rows.real
        return batch if self._accumulate is None else batch.folded(self._accumulate)

    def __len__(self) -> int:
        """The number of remaining steps."""
        count = self._maker.count
        if count is None:
            raise TypeError("this loader is endless, so it has no length.")
        return max(0, count - self._step)

    # -- position --------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Steps delivered since the start of the run."""
        return self._step

    @property
    def examples(self) -> int:
        """Examples of the run delivered to all ranks together."""
        return self._maker.examples_before(self._step)

    def seek(self, step: int) -> Loader:
        """Move to a step; the next batch is that step's."""
        if step < 0:
            raise ConfigError(f"step: found {step}, allowed: 0 or more.")
        self._stop()
        self._maker = self._maker.over(self._steps)
        self._step = step
        return self

    def state_dict(self) -> dict[str, Any]:
        """The position of the run as JSON: what was delivered, not what was prefetched."""
        run, examples = self.dataset.run, self.examples
        rounds, rest = divmod(examples, run.n) if run.n else (0, examples)
        sources = self.dataset.consumed(rest)
        if rounds:  # wrapped around: the whole run `rounds` times
            for one, whole in zip(sources, self.dataset.consumed(run.n or 0), strict=True):
                for name in ("rows", "tokens", "epochs"):
                    one[name] += rounds * whole[name]
        return make_state(self.dataset, examples, self._step, sources)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_mismatch: bool = False) -> None:
        """Resume where a state was saved, with any batch size and number of ranks.

        Args:
            state: what `state_dict` returned.
            allow_mismatch: take the position even if the state belongs to another run.

        Raises:
            StateError: the state is damaged or of another run, or iteration has started.
        """
        if self._begin is not None:
            raise StateError(
                f"load_state_dict: this loader has delivered {self._steps_given} steps already; a "
                "state must be loaded before the first one. Make a new Loader, or use seek(step)."
            )
        run = self.dataset.run
        told = self.dataset.describe()
        examples = check_state(state, told, run.n, allow_mismatch=allow_mismatch)
        around = self._maker.end == "wrap" and (allow_mismatch or "wrapped" in state)
        if run.n is not None and examples > run.n and not around:
            raise StateError(
                f"state: it is {examples:,} examples into the run, but this run ends after "
                f"{run.n:,}. Give the dataset more epochs, or a larger take."
            )
        steps, step = self._steps, self._steps.step_at(examples)
        if step is None:  # no step of this batch size starts there: count from there
            step = int(state["step"])
            steps = Steps(self._steps.batch_size, (step, examples))
        self._maker = self._maker.over(steps)
        self._step = step

    def position(self) -> list[str]:
        """The position of the run, one line per source: rows, tokens, percent of its rows."""
        lines = []
        for one in self.state_dict()["sources"]:
            total = self.dataset.rows_of(one["name"])
            share = f" ({one['rows'] / total:.1%})" if total else ""
            of = f"/{total:,}" if total else ""
            lines.append(
                f"{one['name']}: rows={one['rows']:,}{of} tokens={one['tokens']:,}{share} "
                f"epochs={one['epochs']}"
            )
        return lines

    def log_position(self) -> None:
        """Log a line for the whole run, then `position`."""
        log.info("Dataset Position: step=%d examples=%d", self.step, self.examples)
        for line in self.position():
            log.info("  %s", line)

    # -- health ----------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """What was delivered, and the time and reads it took."""
        waited = self._waited + (self._producer.waited if self._producer else 0.0)
        return LoaderStats(
            steps=self._steps_given,
            examples=self._rows_given,
            tokens=self._rows_given * self.dataset.seq_len,
            seconds=time.perf_counter() - self._begin if self._begin else 0.0,
            wait_seconds=waited,
            reads=self.dataset.counters(),
            cache=self._maker.renderer.cache.stats(),
        )

    def forecast(self, steps: int = 1000) -> Forecast:
        """What the next steps will fetch, found by simulating them without reading.

        With several ranks, each rank needs blocks of its own shuffle windows only if there are
        enough lanes: eight per rank keep fetches within 1.15 times those of one rank.
        """
        maker, limit = self._maker.over(self._maker.steps), self._maker.renderer.cache.capacity
        if not maker.renderer.by_blocks:
            step, rows = maker.pretend(self._step, steps, self._group, BlockCache(limit))
            return Forecast(steps=step, examples=rows, blocks=rows, fetches=rows)
        real, endless = BlockCache(limit), BlockCache(1 << 62)
        step, rows = maker.pretend(self._step, steps, self._group, real)
        maker.pretend(self._step, steps, self._group, endless)
        needed, fetched = endless.stats().misses, real.stats().misses
        return Forecast(steps=step, examples=rows, blocks=needed, fetches=fetched)

    def close(self) -> None:
        """Stop the thread. The position is kept, and the next batch starts the thread again."""
        self._stop()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_producer", None) is not None:
            self._stop()

    def _stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            self._waited += producer.waited
            producer.stop()


def _check_rank(rank: int, world_size: int, smallest: int) -> None:
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError(
            f"rank, world_size: found {rank} of {world_size}, allowed: rank 0 to world_size - 1."
        )
    if smallest < world_size:
        raise ConfigError(
            f"batch_size: found {smallest} rows for {world_size} ranks; the batch size is global, "
            "so it must be at least the number of ranks."
        )


def _check_groups(size: int, rank: int, world_size: int, groups: int) -> None:
    low, high = rank_rows(size, rank, world_size)
    if groups < 1 or (high - low) % groups:
        raise ConfigError(
            f"accumulate: found {groups} for {high - low} rows of rank {rank} (batch size {size}, "
            f"{world_size} ranks), allowed: a divisor of the rows."
        )
