"""For people with Grain: the steps of a run as a source by number, or as an iterator with a state.

One idea: an item is the finished batch of one step of this rank, so neither rows nor their order
pass through Grain, and its own batching and shuffling are not needed. A `source` has a `repr` that
says which run it is, and Grain refuses a checkpoint of another one; an `iterator` has the state of
`tokenloom.Loader`, which loads into any number of ranks and any batch size.

Epochs belong to the run: ``run.epochs(3)``, or ``run.epochs(None)`` without an end. Grain's
``repeat`` would give the same order again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any

import grain

from tokenloom.api.dataset import Dataset
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses
from tokenloom.batch.batch import Batch
from tokenloom.batch.views.named import fields_for
from tokenloom.errors import ConfigError, StateError
from tokenloom.loader.passes import StepLoop, StepReader, plain_state
from tokenloom.loader.steps import rank_rows
from tokenloom.order.schedule import Steps

__all__ = ["iterator", "source"]

ENDLESS = sys.maxsize // 2  # the length of a source without an end


class _Making:
    """What an item is: the arrays of a step, as a contract wants them."""

    def __init__(self, contract: str, fields: Sequence[str], accumulate: int | None) -> None:
        self.contract, self.fields, self.accumulate = contract, tuple(fields), accumulate

    def __call__(self, batch: Batch, rows: int = 0) -> dict[str, Any]:
        if self.accumulate is not None:
            batch = batch.folded(self.accumulate)
        return batch.to_numpy(contract=self.contract, fields=self.fields)

    def of(
        self, dataset: Dataset, batch_size: int | Sequence[tuple[int, int]] | None, **options: Any
    ) -> tuple[StepReader, _Making]:
        """What makes the batches of a run, and these arrays of them."""
        fields = fields_for(self.contract, self.fields)
        reader = StepReader(dataset, batch_size, fields=fields, **options)
        self._check(reader)
        return reader, self

    def _check(self, reader: StepReader) -> None:
        """Refuse micro-batches that do not divide the rows of a rank."""
        groups = self.accumulate
        if groups is None:
            return
        for size in Steps(reader.passes.batch_size).sizes:
            low, high = rank_rows(size, reader.rank, reader.world_size)
            if groups < 1 or (high - low) % groups:
                raise ConfigError(
                    f"accumulate: found {groups} for {high - low} rows of rank {reader.rank} "
                    f"(batch size {size}, {reader.world_size} ranks), allowed: a divisor of them."
                )

    def __repr__(self) -> str:
        more = f", fields={self.fields}" if self.fields else ""
        folded = "" if self.accumulate is None else f", accumulate={self.accumulate}"
        return f"contract={self.contract!r}{more}{folded}"


class StepSource:
    """A `RandomAccessDataSource` of Grain: step → the arrays of this rank; made by `source`.

    It pickles, and several threads may ask at once.
    """

    def __init__(self, reader: StepReader, making: _Making) -> None:
        self.reader, self._making = reader, making
        self._turn = reader.passes.turn(0)
        count = reader.passes.count(self._turn)
        self._count = ENDLESS if count is None else count

    def __len__(self) -> int:
        """Steps of the run; of one without an end, more than anybody trains."""
        return self._count

    def __getitem__(self, step: int) -> dict[str, Any]:
        """The arrays of a step."""
        number = operator.index(step)
        if not 0 <= number < self._count:
            raise IndexError(f"step: found {number}, allowed: 0 to {self._count - 1:,}.")
        return self._making(self.reader.batch(self._turn, number))

    def __repr__(self) -> str:
        """The run, and what decides what an item is: Grain compares it when a state is loaded."""
        passes = self.reader.passes
        dataset = passes.dataset
        return (
            f"StepSource(run={dataset.fingerprint}, render={dataset.render_fingerprint}, "
            f"batch_size={passes.batch_size!r}, end={passes.end!r}, {self._making!r})"
        )


class StepIterator(grain.DatasetIterator):  # type: ignore[misc]
    """A `DatasetIterator` of Grain over the steps of a run; made by `iterator`.

    It ends with the run; a loop over it after that is the next pass, in a fresh order. A state that
    was made at the end goes on with the next pass, too.
    """

    def __init__(self, loop: StepLoop) -> None:
        super().__init__()
        self.loop = loop
        self._stream: Any = None  # the running loop; begun when the first step is asked for
        self._over = False

    def __iter__(self) -> StepIterator:
        if self._over:
            self._stream, self._over = None, False
        return self

    def __next__(self) -> dict[str, Any]:
        self._assert_not_closed()
        if self._over:
            raise StopIteration
        if self._stream is None:
            self._stream = iter(self.loop)
        try:
            made: dict[str, Any] = next(self._stream)
        except StopIteration:
            self._over = True
            raise
        return made

    def get_state(self) -> dict[str, Any]:
        """The position after what was delivered: integers and strings under fixed keys."""
        return self.loop.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where a state was made, also one of a `tokenloom.Loader`."""
        if isinstance(state, dict) and "next_index" in state:
            raise StateError(
                f"state: found the one of a Grain dataset, {state}, which counts items of a "
                "source. Give it to the dataset that made it, or use run.state(examples)."
            )
        self.loop.load_state_dict(plain_state(state))
        self._stream, self._over = None, False

    def close(self) -> None:
        """Stop the thread that fetches ahead."""
        super().close()
        self.loop.reader.loader.close()

    def __str__(self) -> str:
        return f"StepIterator({self.loop.reader.passes.dataset.fingerprint[:12]})"


@settings_of_file("source", own=["fields"])
@near_misses("source")
def source(
    dataset: Dataset,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    *,
    contract: str = "jax",
    fields: Sequence[str] = (),
    accumulate: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    end: str = "drop",
    untrained: str = "raise",
    fetch: str = "auto",
) -> StepSource:
    """A data source of Grain whose item is a whole step of this rank, as a dict of NumPy arrays.

    ``grain.MapDataset.source(source(run, 8))`` has the steps of the run in order; neither shuffle
    nor batch it. With ``mp_prefetch``, a state that Grain made with 2 workers and loads into 3 goes
    on at another step, without a word: keep the number of workers, or use `iterator`.

    Args:
        dataset: the run.
        batch_size: rows of a step over all ranks; or a schedule, pairs (examples, batch size).
            This and other arguments default to the `loader` section of the run's file.
        contract: which arrays: "jax" (inputs, targets, loss_mask, segment_ids, position_ids),
            "maxtext", "plain", …; see `tokenloom.batch.views.contracts`.
        fields: further arrays by name, such as "loss_weights" or "index".
        accumulate: shape arrays [accumulate, rows / accumulate, …], for micro-batches.
        rank: the number of this rank; None: found, see `tokenloom.Loader`.
        world_size: the number of ranks, given or found with `rank`.
        end: what becomes of a short last step: "drop", "pad" or "wrap" (endless).
        untrained: "raise" or "zero", for a step in which no token is trained.
        fetch: "auto", "blocks" or "rows"; see `tokenloom.Loader`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     steps = grain.MapDataset.source(source(store.windows(2), batch_size=2))
    ...     len(steps), steps[1]["inputs"].tolist()
    (2, [[101, 102], [103, 104]])
    """
    making = _Making(contract, fields, accumulate)
    given = {"rank": rank, "world_size": world_size, "end": end, "untrained": untrained}
    return StepSource(*making.of(dataset, batch_size, scattered=True, fetch=fetch, **given))


@settings_of_file("iterator", own=["fields"])
@near_misses("iterator")
def iterator(
    dataset: Dataset,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    *,
    contract: str = "jax",
    fields: Sequence[str] = (),
    accumulate: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    end: str = "drop",
    untrained: str = "raise",
    repeat: bool = False,
    prefetch: int = 16,
    fetch: str = "auto",
) -> StepIterator:
    """An iterator of Grain over the steps of this rank, with `get_state` and `set_state`.

    Args:
        dataset: the run.
        batch_size: rows of a step over all ranks; or a schedule, pairs (examples, batch size).
            This and other arguments default to the `loader` section of the run's file.
        contract: see `source`, like all up to `untrained`.
        fields: further arrays by name.
        accumulate: shape arrays [accumulate, rows / accumulate, …].
        rank: the number of this rank.
        world_size: the number of ranks.
        end: what becomes of a short last step.
        untrained: "raise" or "zero".
        repeat: every loop is the first pass again: for evaluation.
        prefetch: batches kept ready by a thread.
        fetch: "auto", "blocks" or "rows"; see `tokenloom.Loader`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     steps = iterator(store.windows(2), batch_size=1)
    ...     first, state, second = next(steps), steps.get_state(), next(steps)
    ...     steps.set_state(state)
    ...     (next(steps)["inputs"] == second["inputs"]).all().item()
    True
    """
    making = _Making(contract, fields, accumulate)
    given = {"rank": rank, "world_size": world_size, "end": end, "untrained": untrained}
    made = making.of(dataset, batch_size, prefetch=prefetch, fetch=fetch, **given)
    return StepIterator(StepLoop(*made, repeat=repeat))
