"""What a Trainer gets instead of its DataLoaders, and what its arguments mean for a run.

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

A setting of a Trainer is either honoured or refused with a sentence. Many shape the order of
examples; with a run the order is the run's, so those that ask for another one would be ignored
without a word.

The place in the run is beside a Trainer's checkpoint: `checkpoint-N/tokenloom.json`. A Trainer's
folder is a checkpoint once `trainer_state.json`, which it writes last, is whole. Our state is there
before, so whatever a kill leaves behind is either complete or passed over, with a warning, for the
newest one that is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.state import GradientState

from tokenloom.api.dataset import Dataset
from tokenloom.errors import ConfigError, StateError, StoreError, warn
from tokenloom.integrations.torch.data_loader import StepDataLoader, StepDataset, StepKey
from tokenloom.loader.passes import LoopPlace, Passes, StepReader
from tokenloom.loader.prefetch import log
from tokenloom.loader.ranks import Ranks, find_ranks
from tokenloom.loader.state import read_state, write_state
from tokenloom.store.files import LOCAL

STATE = "tokenloom.json"

TRAINER_STATE = "trainer_state.json"

LARGEST = 1 << 30  # bytes of it: the logs of a long training are in there

NO_PLACE = f"it has no {STATE}"

UNFINISHED = (
    "checkpoint-is-incomplete.txt"  # a Trainer that is told to stop leaves it until it is done
)


def newest_checkpoint(folder: str | Path) -> str | None:
    """The newest complete checkpoint in a Trainer's output_dir; None if there is none.

    Raises:
        StateError: there are only checkpoints that were saved without a run: training that starts
            anew would overwrite them.
    """
    root = Path(folder)
    numbered = {
        int(match[1]): one
        for one in (root.iterdir() if root.is_dir() else ())
        if (match := re.fullmatch(r"checkpoint-([0-9]+)", one.name)) and one.is_dir()
    }
    found = [numbered[number] for number in sorted(numbered, reverse=True)]
    lacks = list(map(_lacks, found))
    usable = [one for one, lack in zip(found, lacks, strict=True) if lack is None]
    if not usable:
        for one, lack in zip(found, lacks, strict=True):
            if lack == NO_PLACE:
                state_in(one)  # says what to do
    used = f"{usable[0].name} is used" if usable else "None is left: there is nothing to resume"
    for one, lack in zip(found, lacks, strict=True):
        if lack is None:
            break
        warn(
            f"{one}: {lack}, so it is passed over: its writing was cut off, or no run was "
            f"attached. {used}; remove this one."
        )
    return str(usable[0]) if usable else None


def _lacks(checkpoint: Path) -> str | None:
    """What keeps a folder from being a checkpoint; None if it is complete."""
    if (checkpoint / UNFINISHED).exists():
        return f"it holds {UNFINISHED}"
    try:
        steps_in(checkpoint)
    except StateError:
        return f"it has no whole {TRAINER_STATE}"
    return None if (checkpoint / STATE).exists() else NO_PLACE


def steps_in(checkpoint: str | Path) -> int:
    """Optimizer steps done in a checkpoint.

    Raises:
        StateError: it does not say.
    """
    path = Path(checkpoint) / TRAINER_STATE
    try:
        return int(json.loads(LOCAL.read(path, LARGEST) or b"")["global_step"])
    except (StoreError, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{path}: it cannot be read ({error}). It is no checkpoint. Name another folder, or "
            "start without one."
        ) from None


def state_in(checkpoint: str | Path) -> dict[str, Any]:
    """The place in the run that a checkpoint was saved at.

    Raises:
        StateError: it has none; with the line that makes one.
    """
    path = Path(checkpoint) / STATE
    if not path.exists():
        raise StateError(
            f"{path}: there is no such file, so the place in the run is unknown: no run was "
            "attached when this checkpoint was saved. Write one, if you know how many examples it "
            "has seen: "
            f"tokenloom.loader.write_state(run.state(examples), {str(path)!r})."
        )
    return read_state(path)


def write_place(state: Mapping[str, Any], checkpoint: Path) -> None:
    """Write a state into the folder of a checkpoint, which is incomplete from now on."""
    LOCAL.remove(checkpoint / TRAINER_STATE)
    write_state(state, checkpoint / STATE)


OFF = (None, False)

# a setting that cannot be honoured → what it may be, and why
RULES: dict[str, tuple[tuple[Any, ...], str]] = {
    "accelerator_config.split_batches": (
        OFF,
        "it reads per_device_train_batch_size as that of all ranks; give the one of a device",
    ),
    "accelerator_config.dispatch_batches": (
        OFF,
        "every rank reads its own rows of the run; leave it out",
    ),
    "group_by_length": (OFF, "the order is the run's, and its rows are equally long; leave it out"),
    "train_sampling_strategy": (
        (None, "random", "sequential"),
        "the order is the run's (run.shuffle()); leave it out",
    ),
    "completion_only_loss": (
        OFF,
        "which tokens are trained is in the store (`messages`, `completion_mask`); leave it out",
    ),
}


def check_arguments(args: Any, contract: str, ranks: Ranks, run: Dataset) -> None:
    """Refuse what cannot be honoured; warn of what changes results."""
    for name, (allowed, why) in RULES.items():
        found = _value(args, name)
        if found not in allowed:
            raise ConfigError(f"args.{name}: found {found!r}; with a run, {why}.")
    if contract == "flash" and args.n_gpu > 1:
        raise ConfigError(
            "contract: found 'flash' with several GPUs in one process, which cut a batch into "
            "parts that its edges do not fit. Start one process for each GPU: torchrun."
        )
    counted = str(_value(args, "include_num_input_tokens_seen"))
    if contract == "sdpa" and counted == "non_padding":
        raise ConfigError(
            "args.include_num_input_tokens_seen: found 'non_padding', which adds up the attention "
            "mask; that of contract='sdpa' holds no counts. Use 'all'."
        )
    if ranks.world_size > 1 and not _value(args, "average_tokens_across_devices"):
        warn(
            "args.average_tokens_across_devices is off: every rank takes the mean over its own "
            "tokens, so losses and gradients depend on the number of ranks. Set it to True."
        )
    weighted = [
        name
        for name, source in run.sources.items()
        if "loss_weights" in source.line.reader.manifest.columns
    ]
    if weighted:
        warn(
            f"loss_weights of {', '.join(weighted)}: a model of transformers takes labels, which "
            "say that a token is trained but not how much, so weights above 0 all count as 1."
        )


def _value(args: Any, path: str) -> Any:
    """A setting by its path; None where this version or kind of arguments has none."""
    for name in path.split("."):
        args = getattr(args, name, None)
    return args


def ranks_of(trainer: Any, rank: int | None, world_size: int | None, group: Any) -> Ranks:
    """This process among the data-parallel ones.

    Raises:
        ConfigError: some of the processes share their rows, and it is not said which.
    """
    if rank is not None or group is not None:
        found = find_ranks(rank, world_size, group)
        if not 0 <= found.rank < found.world_size:
            raise ConfigError(
                f"rank: found {found.rank} of world_size {found.world_size}, allowed: 0 to "
                f"{found.world_size - 1}."
            )
        return found
    for kind in ("tp", "cp", "sp"):
        size = getattr(trainer, f"get_{kind}_size", lambda: 1)()
        if size > 1:
            raise ConfigError(
                f"rank: found {kind}_size {size}, so several processes share their rows. Name "
                'those that do not: attach(…, group=mesh["dp"]), or rank=…, world_size=….'
            )
    return Ranks(int(trainer.args.process_index), int(trainer.args.world_size))


def steps_in_all(passes: Passes, args: Any, done: int, examples: int, epochs: float | None) -> int:
    """The optimizer step after which training ends.

    Args:
        passes: the passes of the run in optimizer steps.
        args: a Trainer's arguments.
        done: optimizer steps done before.
        examples: examples of the run before the next step.
        epochs: passes over the run; None: `max_steps` decides.

    Raises:
        ConfigError: there is no such number, or the run has no second pass.
    """
    turn = passes.turn_at(examples, done)
    rest = passes.count(turn)
    if epochs is None:
        total = int(args.max_steps)
    elif rest is None:
        raise ConfigError(
            "args.max_steps: missing; the run is endless, so num_train_epochs means nothing. Set "
            "max_steps, or give the run an end: run.epochs(1)."
        )
    else:
        whole = passes.count(passes.turn(0)) or 0
        left = rest + (epochs - turn.number - 1) * whole
        total = done + max(0, math.ceil(left - 1e-9))
    if rest is not None and total - done > rest:
        passes.turn(turn.number + 1)  # says why there is no further pass
    return total


def tell_dropped(passes: Passes) -> None:
    """Log which examples of a pass no step has."""
    if passes.n is None or passes.end != "drop" or not isinstance(passes.batch_size, int):
        return
    left = passes.n % passes.batch_size
    if left:
        log.info(
            "each pass over the run has %d steps of %d examples; its last %d are left out "
            "(end='pad' keeps them)",
            passes.n // passes.batch_size,
            passes.batch_size,
            left,
        )


def worker_settings(args: Any, num_workers: int | None) -> dict[str, Any]:
    """The DataLoader options of a Trainer, for ours."""
    workers = int(args.dataloader_num_workers) if num_workers is None else num_workers
    pins = bool(args.dataloader_pin_memory) and _accelerator_is_there()
    found: dict[str, Any] = {"num_workers": workers, "pin_memory": pins}
    if workers:
        found["prefetch_factor"] = args.dataloader_prefetch_factor
        found["persistent_workers"] = bool(args.dataloader_persistent_workers)
        context = getattr(args, "dataloader_multiprocessing_context", None)
        found["multiprocessing_context"] = context
    return found


def _accelerator_is_there() -> bool:
    return bool(getattr(torch, "accelerator", torch.cuda).is_available())


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
