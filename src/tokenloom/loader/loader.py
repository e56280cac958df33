"""`Loader`: the only object with a position. Step → indices → batch, ahead of time, resumable.

One idea: a step is a function of its number (`tokenloom.loader.steps`) and a batch is a function of
its indices, so the loader holds one integer: the number of examples delivered. Ranks, prefetch and
batch size decide who makes which batch and when, never what is in the run.

A step is delivered and counted in one motion: whatever is raised inside `next(loader)`, at whatever
instant, leaves the loader as it was before that call, and the next call delivers the same step. A
copy or a pickle of a loader is its dataset, its settings and its position.

Rank r of W takes rows [r B // W, (r + 1) B // W) of every step. With lanes, the rows of a step are
sorted by lane, so each rank stays in its own shuffle windows; a step has the same rows for every W.

What a loader has done: numbers for people, and a flat dict for loggers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import check_between, near_misses
from tokenloom.batch.batch import Batch
from tokenloom.batch.render import Pending
from tokenloom.errors import ConfigError, LoaderExhausted, StateError, warn
from tokenloom.limits import limits
from tokenloom.loader.forecast import Forecast, forecast_of, reading_of
from tokenloom.loader.maker import Maker
from tokenloom.loader.prefetch import Prefetcher, log
from tokenloom.loader.ranks import find_ranks, refuse_workers
from tokenloom.loader.state import check_state
from tokenloom.loader.steps import (
    accepted_fields,
    accepted_steps,
    check_accepted,
    no_dataset,
    rank_rows,
    refuse_no_steps,
)
from tokenloom.order.schedule import Steps
from tokenloom.order.working_set import RankShare
from tokenloom.page.document import table
from tokenloom.store.cache import CacheStats
from tokenloom.store.fetch import ReadCounters

TIDY_SECONDS = 10.0  # how long `close` waits for the thread, which ends by itself in any case


class _Books(NamedTuple):
    """What delivering a step changes, replaced as a whole: it is never half-changed.

    Attributes:
        maker: makes the steps; a resumed run counts them from where it was resumed.
        step: the next step.
        steps, rows: delivered by this loader.
    """

    maker: Maker
    step: int
    steps: int = 0
    rows: int = 0


class Loader:
    """Iterates over the batches of a dataset, in order, for one rank.

    Args:
        dataset: the dataset to load.
        batch_size: rows of a step over all ranks; or a schedule, pairs (examples, batch size).
            This and the other arguments default to the `loader` section of the run file that the
            dataset was loaded from, if there is one.
        rank: the number of this rank, from 0; None: found in torch.distributed, RANK or JAX, else
            0 (see `tokenloom.loader.ranks`).
        world_size: the number of ranks, given or found with `rank`; it may change from run to run.
        prefetch: batches to keep ready; 0 uses no thread.
        end: what to do with a short last step: "drop" it, "pad" it with rows of filler that have
            no loss, or "wrap" around to the first examples, endlessly.
        fields: arrays of a batch to make before it is delivered; others are made on first use.
        accumulate: shape every array of rows as [accumulate, rows / accumulate, …], for gradient
            accumulation; the rows of a rank must be divisible by it.
        fetch: how tokens are read: "blocks" (whole, through the cache), "rows" (one by one), or
            "auto": by blocks if the shuffle windows that this rank touches fit into the cache, or
            so nearly that blocks are still cheaper.
        patience: seconds between warnings while no batch arrives.
        untrained: what to do with a step in which no token of any rank is trained: "raise"
            NoTrainedTokens when its labels or masks are made, or deliver it with a mask of "zero"s,
            counted in `stats`. A loader of bare tokens never asks.
        dtype: of tokens and labels, "int32" or "int64", as most losses of torch want them.
        group: a process group of torch, or a DeviceMesh of one dimension, whose ranks share the
            rows of a step; instead of `rank` and `world_size`.

    Raises:
        ConfigError: an argument is not allowed, or the run has not a single step.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     with tl.Loader(store.windows(2), batch_size=2) as loader:
    ...         [batch.tokens.tolist() for batch in loader]
    [[[97, 98], [99, 100]], [[101, 102], [103, 104]]]
    """

    _anywhere = False  # whether it may be in a worker process

    @settings_of_file("Loader")
    @near_misses("Loader")
    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        prefetch: int = 16,
        end: str = "drop",
        fields: Sequence[str] = ("tokens",),
        accumulate: int | None = None,
        fetch: str = "auto",
        patience: float = 30.0,
        untrained: str = "raise",
        dtype: str = "int32",
        group: Any = None,
    ) -> None:
        self._check_place()
        self.dataset = dataset_of("Loader", dataset)
        self._steps = accepted_steps(batch_size)
        rank, world_size = find_ranks(rank, world_size, group)
        _check_rank(rank, world_size, self._steps.smallest)
        fields = accepted_fields(fields)
        settings: dict[str, Any] = {
            "prefetch": prefetch,
            "end": end,
            "fields": fields,
            "fetch": fetch,
            "patience": patience,
            "untrained": untrained,
            "dtype": dtype,
        }
        check_accepted(settings)
        self._settings = {**settings, "accumulate": accumulate}
        self.rank, self.world_size = rank, world_size
        self._accumulate = accumulate
        if accumulate is not None:
            for size in self._steps.sizes:
                _check_groups(size, rank, world_size, accumulate)
        self._patience = patience
        share = RankShare(rank, world_size, tuple(self._steps.sizes))
        self._reading = reading_of(dataset, share)
        by_blocks = fetch == "blocks" or (fetch == "auto" and self._reading.by_blocks)
        if fetch == "auto":
            self._reading.warn_if_too_large()
        maker = Maker(
            dataset, self._steps, rank, world_size, end, fields, by_blocks, untrained, dtype
        )
        self._prefetch, self._group = prefetch, max(1, prefetch)
        # batches kept ready then cost little memory
        if maker.renderer.in_place or (by_blocks and self._reading.by_blocks):
            batches = limits().lookup_examples * world_size // self._steps.smallest
            self._group = max(self._group, min(limits().lookup_batches, batches))
            self._prefetch = maker.ahead = self._group if prefetch else 0
        if by_blocks and self._reading.fits and prefetch:
            maker.budget = max(0, self._reading.capacity - self._reading.needed)
            maker.holds_all = self._reading.total <= self._reading.capacity
        self._books = _Books(maker, 0)
        self._producer: Prefetcher[Pending] | None = None
        self._begin: float | None = None
        self._waited = 0.0
        refuse_no_steps(self._steps, dataset, end)

    def __reduce__(self) -> tuple[Any, ...]:
        books, batch_size = self._books, self._steps.batch_size
        given = self.dataset, batch_size, self.rank, self.world_size
        make = functools.partial(Loader, **self._settings)
        return make, given, (books.maker.steps, books.step)

    def __setstate__(self, position: tuple[Steps, int]) -> None:
        self._move(*position)

    @property
    def _maker(self) -> Maker:
        return self._books.maker

    # -- batches ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        self._check_place()
        count = self._maker.count
        if count and self.step >= count:
            self._refuse_nothing(count)
        return self

    def __getitem__(self, place: Any) -> Any:
        """Refused, with what to use: others take a loader for a dataset."""
        raise TypeError(no_dataset("Loader", place))

    def _check_place(self) -> None:
        """Refuse to deliver in a worker of torch: the loader may have been made before that."""
        if not self._anywhere:
            refuse_workers()

    def _refuse_nothing(self, count: int) -> None:
        """A loop over a loader at its end would be empty, and nobody would notice."""
        if self._books.steps:
            raise LoaderExhausted(
                f"Loader: it has delivered all its {count:,} steps, so another loop over it would "
                "be empty. For more, give the run more epochs (run.epochs(2), or run.epochs(None) "
                "for an endless one); for the same again, loader.seek(0)."
            )
        warn(
            f"Loader: it is at step {self.step:,} of {count:,}, so a loop over it is empty. Give "
            "the run more epochs, or a larger take, to train on."
        )

    def __next__(self) -> Batch:
        while True:
            books = self._books
            try:
                made = self._made(books)
            except BaseException:
                self._drop()  # what was under way is made again
                raise
            if made is None:
                raise StopIteration
            batch, after = made
            if self._books is not books:
                continue  # another thread has taken this step
            try:
                # CPython handles signals after calls and before jumps back: not between these two
                self._books = after
                return batch
            except BaseException:  # a debugger may raise here
                self._books = books
                raise

    def _made(self, books: _Books) -> tuple[Batch, _Books] | None:
        """The next batch, and the books after it; None at the end. Counts nothing."""
        producer = self._producer
        if producer is None or producer.is_elsewhere:
            producer = self._start(books.maker)
        pending = producer.take(books.step)
        if pending is None:
            return None
        maker, step, steps, rows = books
        batch = maker.finish(step, pending)
        if self._accumulate is not None:
            batch = batch.folded(self._accumulate)
        return batch, _Books(maker, step + 1, steps + 1, rows + pending.rows.real)

    def _start(self, maker: Maker) -> Prefetcher[Pending]:
        self._check_place()  # every process starts a producer of its own
        self._begin = self._begin or time.perf_counter()
        self._producer = producer = Prefetcher(
            maker.batches,
            self._prefetch,
            group=self._group,
            at_hand=maker.at_hand,
            stalled=maker.stalled,
            patience=self._patience,
        )
        return producer

    def __len__(self) -> int:
        """The number of remaining steps."""
        count = self._maker.count
        if count is None:
            raise TypeError(
                "len: this loader is endless, so it has no length. Use take(n) for a finite run."
            )
        return max(0, count - self.step)

    # -- position --------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Steps delivered since the start of the run."""
        return self._books.step

    @property
    def examples(self) -> int:
        """Examples of the run delivered to all ranks together."""
        books = self._books
        return books.maker.examples_before(books.step)

    @property
    def epoch(self) -> int:
        """Complete epochs delivered; in a mix, those of the source that has the fewest."""
        return epoch_of(self.state_dict()["sources"])

    @property
    def steps_total(self) -> int | None:
        """Steps of the whole run, delivered or not; None: it is endless."""
        return self._maker.count

    def seek(self, step: int) -> Loader:
        """Move to a step; the next batch is that step's."""
        check_between("step", step, 0)
        self._move(self._steps, step)
        return self

    def _move(self, steps: Steps, step: int) -> None:
        self._enter(self._maker.over(steps), step)

    def _enter(self, maker: Maker, step: int) -> None:
        """Continue at a step of another maker."""
        self._drop()
        self._books = self._books._replace(maker=maker, step=step)

    def state_dict(self) -> dict[str, Any]:
        """The position of the run as JSON: what was delivered, not what was prefetched."""
        maker, step = self._books[:2]
        wrapped, examples = maker.end == "wrap", maker.examples_before(step)
        return maker.told.state(examples, step=step, wrapped=wrapped)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_mismatch: bool = False) -> None:
        """Resume where a state was saved, with any batch size and number of ranks.

        Args:
            state: what `state_dict` returned.
            allow_mismatch: take the position even if the state belongs to another run.

        Raises:
            StateError: the state is damaged or of another run, or iteration has started.
        """
        if self._books.steps:
            raise StateError(
                f"load_state_dict: this loader has delivered {self._books.steps} steps already; a "
                "state must be loaded before the first one. Make a new Loader, or use seek(step)."
            )
        run = self.dataset.run
        told = self.dataset.describe()
        examples = check_state(state, told, run.n, allow_mismatch=allow_mismatch)
        around = self._maker.end == "wrap" and (allow_mismatch or bool(state.get("wrapped")))
        if run.n is not None and examples > run.n and not around:
            raise StateError(
                f"state: it is {examples:,} examples into the run, but this run ends after "
                f"{run.n:,}. Give the dataset more epochs, or a larger take."
            )
        steps, step = self._steps, self._steps.step_at(examples)
        if step is None:  # no step of this batch size starts there: count from there
            step = int(state["step"])
            steps = Steps(self._steps.batch_size, (step, examples))
        self._move(steps, step)

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
        books, producer = self._books, self._producer
        waited = self._waited + (producer.waited if producer else 0.0)
        return LoaderStats(
            steps=books.steps,
            examples=books.rows,
            cells=books.rows * self.dataset.seq_len,
            seconds=time.perf_counter() - self._begin if self._begin else 0.0,
            wait_seconds=waited,
            untrained=len(self._maker.untrained),
            reads=self.dataset.counters(),
            cache=books.maker.renderer.cache.stats(),
        )

    def metrics(self, prefix: str = "data/") -> dict[str, float]:
        """The position and the health of the loader as a flat dict, for any logger.

        ``wandb.log(loader.metrics())`` or, with TensorBoard, one scalar for each. Step, examples,
        tokens (those of documents, without filler) and what every source gave are those of all
        ranks; cells (filler included), rates, waiting and reads are this rank's.
        """
        return metrics_of(prefix, self.state_dict(), self.stats())

    def forecast(self, steps: int = 1000) -> Forecast:
        """What the next steps will fetch, found by simulating them without reading.

        It says which of three it is: "fits" (the cache holds the shuffle windows that this rank
        touches, each block is fetched once), "thrashes" (blocks are evicted and fetched again) or
        "reads rows" (each row by itself), and what would mend it.

        With several ranks and lanes, a batch size that is a multiple of the ranks, and a number of
        lanes that is too, keep every rank in windows of its own: all ranks together fetch each
        block once. Other batch sizes shift a rank's rows over the windows of its neighbours. With
        eight lanes per rank and a cache for the windows it touches, all ranks together then fetch
        up to 1.2 times as much if a step has as many rows as there are lanes or more, and about
        twice as much with fewer rows. With a smaller cache it can be 10 to 40 times as much.
        """
        return forecast_of(self._maker, self._reading, self.step, steps, self._group)

    def close(self) -> None:
        """Stop the thread. The position is kept, and the next batch starts the thread again.

        Waits at most 10 seconds for a read that is under way; the thread ends after it.
        """
        self._drop(TIDY_SECONDS)

    def __repr__(self) -> str:
        total = "endless" if self.steps_total is None else f"of {self.steps_total:,}"
        return (
            f"Loader(step {self.step:,} {total}, batch size {self._steps.batch_size}, rank "
            f"{self.rank} of {self.world_size}, run {self.dataset.fingerprint[:12]})"
        )

    def _repr_html_(self) -> str:
        """Its position and health as a table, for notebooks."""
        return table(repr(self), [(name, one) for name, one in self.metrics("").items()])

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        producer = getattr(self, "_producer", None)
        if producer is not None:
            producer.stop()  # without waiting: this may happen in the middle of anything

    def _drop(self, seconds: float = 0.0) -> None:
        """Forget what was made ahead, and let the thread end."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._waited += producer.waited
            producer.stop(seconds)
            self._books.maker.renderer.drop_ahead()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """What a loader has done since it was made.

    Attributes:
        steps, examples: delivered to this rank.
        cells: of these examples, filler included: examples × seq_len.
        seconds: time since the first step was requested.
        wait_seconds: how much of that time the caller waited for a batch.
        untrained: steps found to have no trained token on any rank, with ``untrained="zero"``.
        reads: reads of the stores, by all their users.
        cache: use of the block cache, by all its users.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     with tl.Loader(store.windows(2), batch_size=2) as loader:
    ...         batch = next(loader)
    ...         stats = loader.stats()
    ...     stats.steps, stats.examples, stats.cells, stats.wait_seconds <= stats.seconds
    (1, 2, 4, True)
    """

    steps: int
    examples: int
    cells: int
    seconds: float
    wait_seconds: float
    untrained: int
    reads: ReadCounters
    cache: CacheStats

    @property
    def cells_per_second(self) -> float:
        """Cells delivered per second, filler included."""
        return self.cells / self.seconds if self.seconds else 0.0


def epoch_of(sources: Sequence[Mapping[str, Any]]) -> int:
    """Complete epochs of the source that has the fewest, of the `sources` of a state."""
    return min(int(one["epochs"]) for one in sources)


def metrics_of(prefix: str, state: Mapping[str, Any], stats: LoaderStats) -> dict[str, float]:
    """Position, rates and what each source has given, under one prefix.

    Tokens are those of documents; the cells of a frame, filler included, are counted as `cells`.

    Args:
        prefix: put before every name.
        state: the position, as `Loader.state_dict` tells it.
        stats: what the loader has done.
    """
    found: dict[str, float] = {
        "step": state["step"],
        "examples": state["examples"],
        "epoch": epoch_of(state["sources"]),
        "tokens": sum(one["tokens"] for one in state["sources"]),
        "cells": stats.cells,
        "cells_per_second": stats.cells_per_second,
        "wait_share": stats.wait_seconds / stats.seconds if stats.seconds else 0.0,
        "untrained_steps": stats.untrained,
        "read_bytes": stats.reads.bytes,
        "reads": stats.reads.read_ops,
    }
    for one in state["sources"]:
        for name in ("rows", "tokens", "epochs"):
            found[f"{one['name']}/{name}"] = one[name]
    return {prefix + name: value for name, value in found.items()}
