"""What a Trainer gets instead of its DataLoaders: micro-batches to train on, passes to evaluate.

One idea: a step of the run is a step of the optimizer. Its rows are those that `tokenloom.Loader`
gives for batch size per device × accumulation × ranks; rank r of W has the r-th contiguous share
(ruling 5), and its micro-batches are that share in order, cut into equal parts::

    4 rows per device, accumulation 2, 2 ranks: a step is 16 examples of the run, in order
    rank 0   micro-batches [0 1 2 3] [4 5 6 7]
    rank 1   micro-batches [8 9 10 11] [12 13 14 15]

So an optimizer step has the same examples for every accumulation and number of ranks whose product
is the same. `TrainFeed` never ends and has no length (a Trainer miscounts steps around the ends of
finite loaders) and remembers where the run stands after every step, so that a checkpoint gets the
state of the batch that was *trained*, whatever was prefetched. `EvalFeed` is the same pass each
time; rows that fill up its last step have no loss, and are cut off from predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from accelerate.state import GradientState

from tokenloom.api.dataset import Dataset
from tokenloom.errors import ConfigError, StateError
from tokenloom.integrations.torch.data_loader import StepDataLoader
from tokenloom.integrations.torch.parts import StepDataset, StepKey
from tokenloom.loader.passes import LoopPlace, Passes, StepReader
from tokenloom.loader.prefetch import log

Inputs = dict[str, Any]


class MicroSteps(StepDataset):
    """A step as the list of its micro-batches, and the examples of the run after it.

    Args:
        reader: makes the batches.
        contract: what the model wants.
        fields: further arrays by name.
        groups: micro-batches of a step.
    """

    def __init__(
        self, reader: StepReader, contract: str, fields: tuple[str, ...], groups: int
    ) -> None:
        super().__init__(reader, contract, fields)
        self.groups = groups

    def __getitem__(self, key: StepKey) -> dict[str, Any]:
        """The micro-batches of a step."""
        batch = self.reader.batch(*key)
        rows = len(batch) // self.groups
        parts = [batch.part(k * rows, (k + 1) * rows) for k in range(self.groups)]
        made = [
            part._tensors(self._wanted, self.fields, None)
            for part in (parts if self.groups > 1 else [batch])
        ]
        for one in made:
            del one["examples_after"]  # the model has no such argument
        return {"examples_after": batch.examples_after, "micro_batches": made}


def step_loader(
    reader: StepReader,
    contract: str,
    fields: tuple[str, ...],
    groups: int = 1,
    *,
    repeat: bool = False,
    workers: Mapping[str, Any],
) -> StepDataLoader:
    """A DataLoader of whole steps."""
    steps = MicroSteps(reader, contract, fields, groups)
    return StepDataLoader(steps, LoopPlace(reader.passes, repeat=repeat), None, **workers)


class TrainFeed:
    """The micro-batches of this rank, without end and without a length.

    Args:
        loader: gives steps.
        step_now: optimizer steps done.
        last: the last optimizer step of the training.
    """

    def __init__(
        self, loader: StepDataLoader, step_now: Callable[[], int], last: Callable[[], int]
    ) -> None:
        self.loader, self._step_now, self._last = loader, step_now, last
        self._after: dict[int, int] = {}  # optimizer steps → examples of the run

    @property
    def passes(self) -> Passes:
        """How the run is cut into passes and steps."""
        return self.loader.place.passes

    @property
    def dataset(self) -> Dataset:
        """The run."""
        return self.passes.dataset

    def __iter__(self) -> Iterator[Inputs]:
        step = self._step_now()
        if step >= self._last():  # a Trainer that is asked to go on at the end would do one more
            log.warning("training is complete: %d steps are done, and no more were asked for", step)
            return
        if not self._after:
            self._after[step] = self.loader.place.examples
        else:  # an epoch was left early: go on after the last step that was trained
            self.loader.load_state_dict(self.state(step))
        while True:
            for whole in self.loader:
                step += 1
                self._after[step] = whole["examples_after"]
                for old in [one for one in self._after if one < self._step_now()]:
                    del self._after[old]
                yield from whole["micro_batches"]

    def examples(self, step: int) -> int:
        """Examples of the run after an optimizer step.

        Raises:
            StateError: steps and batches do not go together.
        """
        newest = max(self._after, default=step)
        if step not in self._after or newest > step + 1:
            raise StateError(
                f"tokenloom.json: the Trainer is at step {step:,}, but batches of "
                f"{newest:,} steps were taken, so the place in the run is unknown. Do not change "
                "gradient_accumulation_steps while training; save, and resume with another."
            )
        return self._after[step]

    def state(self, step: int) -> dict[str, Any]:
        """The state that resumes after an optimizer step."""
        wrapped = self.passes.end == "wrap"
        return self.dataset.state(self.examples(step), step=step, wrapped=wrapped)


class EvalFeed:
    """One pass over a finite run, the same every time; all ranks have equal numbers of rows.

    Accelerate asks the loader that is being read whether it is at its end (`end_of_dataloader`), so
    it is told which one is read.

    Args:
        loader: gives steps, the short last one filled up.
    """

    def __init__(self, loader: StepDataLoader) -> None:
        self._loader, self._accelerate = loader, GradientState()
        self.dataset = loader.place.passes.dataset
        self.end_of_dataloader, self.remainder = False, 0  # nothing for Accelerate to cut off
        self.real_rows = 0  # rows of the current step, over all ranks, that are not filled up
        self.batch_size: int = loader.place.passes.batch_size  # type: ignore[assignment]
        refuse_endless(self.dataset)

    def __len__(self) -> int:
        """Steps of the pass."""
        return len(self._loader.dataset)

    def __iter__(self) -> Iterator[Inputs]:
        steps, before = len(self), 0
        self.end_of_dataloader = False
        self._accelerate._add_dataloader(self)
        try:
            for number, whole in enumerate(self._loader, start=1):
                self.real_rows = whole["examples_after"] - before
                before = whole["examples_after"]
                self.end_of_dataloader = number == steps
                yield from whole["micro_batches"]
        finally:
            self._accelerate._remove_dataloader(self)


def refuse_endless(run: Dataset) -> None:
    """Refuse to evaluate on a run without an end."""
    if run.run.n is None:
        raise ConfigError(
            "eval_runs: found an endless run, allowed: finite ones. Take a part: run.take(1000)."
        )
