"""The two parts of a DataLoader: a dataset whose item is a whole step, and a sampler of steps.

One idea: the item of a `StepDataset` is the finished batch of one step of this rank, so neither
rows nor their order ever pass through torch. The sampler yields which steps there are; it has no
random state, and starting at step 10^9 costs as much as starting at step 0. So the order is the
same for every number of workers and every way to start them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Sampler

from tokenloom.integrations.torch.context import RowPart, context_slice
from tokenloom.loader.passes import LoopPlace, Passes, Turn
from tokenloom.loader.step_reader import StepReader

__all__ = ["StepDataset", "StepKey", "StepSampler"]


class StepKey(NamedTuple):
    """Which step: what a sampler yields and a dataset answers."""

    turn: Turn
    step: int


class StepDataset(TorchDataset):  # type: ignore[misc]
    """A map-style dataset of torch: step → the finished batch of this rank, as a dict of tensors.

    Args:
        reader: makes the batches.
        contract: what the model wants, see `tokenloom.batch.views.contracts`.
        fields: further arrays by name.
        context: the part of every row that this rank gets; None: whole rows.
    """

    def __init__(
        self,
        reader: StepReader,
        contract: str = "hf",
        fields: Sequence[str] = (),
        context: RowPart | None = None,
    ) -> None:
        self.reader, self.contract, self.fields = reader, contract, tuple(fields)
        self.context = context

    def __getitem__(self, key: StepKey) -> dict[str, Any]:
        """The batch of a step."""
        batch = self.reader.batch(*key)
        made: dict[str, Any] = batch.torch(contract=self.contract, fields=self.fields)
        return made if self.context is None else context_slice(made, *self.context)

    def __len__(self) -> int:
        """Steps of a pass."""
        count = self.reader.passes.count(self.reader.passes.turn(0))
        if count is None:
            raise TypeError("this run is endless, so it has no length.")
        return count

    def __repr__(self) -> str:
        dataset = self.reader.passes.dataset
        return f"StepDataset({dataset.fingerprint[:12]}, contract={self.contract!r})"


class StepSampler(Sampler):  # type: ignore[misc]
    """Yields the steps of a pass, from a place on.

    Args:
        place: where the loop is.
    """

    def __init__(self, place: LoopPlace) -> None:
        self.place = place
        self.turn: Turn | None = None  # set by the loader that has begun a loop

    @property
    def passes(self) -> Passes:
        """How the run is cut into passes and steps."""
        return self.place.passes

    def __iter__(self) -> Iterator[StepKey]:
        turn = self.place.turn if self.turn is None else self.turn
        count = self.passes.count(turn)
        step = turn.step
        while count is None or step < turn.step + count:
            yield StepKey(turn, step)
            step += 1

    def __len__(self) -> int:
        """Steps of the whole pass, wherever it was entered."""
        count = self.passes.count(self.passes.turn(self.place.epoch))
        if count is None:
            raise TypeError("this run is endless, so it has no length.")
        return count
