"""What a Trainer of transformers does otherwise once a run is attached.

One idea: a Trainer asks itself for its loaders, saves and resumes by methods of its own, so a class
in front of its class answers these few questions (`RunMethods`) and leaves the rest alone. Its only
epoch is the whole training, so a callback tells it when a pass over the run ends (`PassEnds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from transformers import TrainerCallback

from tokenloom.api.dataset import Dataset
from tokenloom.batch.paint import IGNORE
from tokenloom.batch.views.named import fields_for
from tokenloom.errors import StateError
from tokenloom.integrations.hf.checkpoints import (
    newest_checkpoint,
    state_in,
    steps_in,
    write_place,
)
from tokenloom.integrations.hf.trainer_feeds import EvalFeed, TrainFeed, step_loader
from tokenloom.integrations.hf.training_args import steps_in_all, tell_dropped, worker_settings
from tokenloom.loader.ranks import Ranks
from tokenloom.loader.step_reader import StepReader

__all__ = ["Attached", "PassEnds", "RunMethods", "are_runs"]

if TYPE_CHECKING:
    _InFront: TypeAlias = Any  # a Trainer
else:
    _InFront = object  # it goes in front of any Trainer, and has no base of its own


@dataclass(kw_only=True)
class Attached:
    """What was attached, and where training is.

    Attributes:
        epochs: passes over the run, from `num_train_epochs`; None: `max_steps` decides.
        resume: the checkpoint that training goes on from.
        feed: what the Trainer reads, while it trains.
        losses: sums of losses and numbers of tokens, while it evaluates.
    """

    run: Dataset
    contract: str
    fields: tuple[str, ...]
    num_workers: int | None
    ranks: Ranks
    end: str
    untrained: str
    allow_mismatch: bool
    epochs: float | None
    resume: str | None = None
    feed: TrainFeed | None = None
    losses: list[tuple[Any, Any]] | None = None
    passes: dict[int, EvalFeed] = field(default_factory=dict)


class RunMethods(_InFront):  # type: ignore[misc]
    """What a Trainer does otherwise once a run is attached; in front of its class."""

    if TYPE_CHECKING:
        eval_dataset: Any
        gather_function: Any
    _loom: Attached | None = None

    # -- loaders ---------------------------------------------------------------------------

    def get_train_dataloader(self) -> Any:
        """Micro-batches of the run without end, from where training is."""
        loom = self._loom
        if loom is None:
            return super().get_train_dataloader()
        groups = self.args.gradient_accumulation_steps
        rows = self._train_batch_size * groups * loom.ranks.world_size
        loader = step_loader(
            self._reader(loom, loom.run, rows, loom.end, loom.untrained),
            loom.contract,
            loom.fields,
            groups,
            workers=worker_settings(self.args, loom.num_workers),
        )
        if not self.is_in_train:
            return TrainFeed(loader, lambda: 0, lambda: 1)
        done = 0
        if loom.resume is not None:
            done, state = steps_in(loom.resume), state_in(loom.resume)
            loader.load_state_dict(state, allow_mismatch=loom.allow_mismatch)
        place = loader.place
        tell_dropped(place.passes)
        self.args.max_steps = steps_in_all(
            place.passes, self.args, done, place.examples, loom.epochs
        )
        loom.feed = TrainFeed(
            loader, lambda: int(self.state.global_step), lambda: int(self.args.max_steps)
        )
        return loom.feed

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The pass over an evaluation run, or the Trainer's own loader for another dataset."""
        found = self.eval_dataset if eval_dataset is None else eval_dataset
        found = self.eval_dataset[found] if isinstance(found, str) else found
        if self._loom is None or not isinstance(found, Dataset):
            return super().get_eval_dataloader(eval_dataset)
        return self._pass_over(self._loom, found)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The pass over a run to predict, or the Trainer's own loader for another dataset."""
        if self._loom is None or not isinstance(test_dataset, Dataset):
            return super().get_test_dataloader(test_dataset)
        return self._pass_over(self._loom, test_dataset)

    def _reader(
        self, loom: Attached, run: Dataset, rows: int, end: str, untrained: str
    ) -> StepReader:
        return StepReader(
            run,
            rows,
            *loom.ranks,
            end=end,
            untrained=untrained,
            fields=fields_for(loom.contract, loom.fields),
            dtype="int64",
        )

    def _pass_over(self, loom: Attached, run: Dataset) -> EvalFeed:
        rows = self.args.eval_batch_size * loom.ranks.world_size
        made = loom.passes.get(id(run))
        if made is None or made.batch_size != rows:
            loader = step_loader(
                self._reader(loom, run, rows, "pad", "zero"),
                loom.contract,
                loom.fields,
                repeat=True,
                workers=worker_settings(self.args, loom.num_workers),
            )
            made = loom.passes[id(run)] = EvalFeed(loader)
        return made

    # -- training --------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
        """Train, from the start or exactly where a checkpoint was saved.

        Args:
            resume_from_checkpoint: a folder; True: the newest complete one in `output_dir`; "auto":
                that one, or the start if there is none, so that a command can be given again;
                refused if there are only checkpoints that were saved without a run.
            args: further arguments of the Trainer's `train`.
            options: the same, by name.
        """
        loom = self._loom
        if loom is None:
            return super().train(resume_from_checkpoint, *args, **options)
        if resume_from_checkpoint in (True, "auto"):
            newest = newest_checkpoint(self.args.output_dir)
            if newest is None and resume_from_checkpoint is True:
                raise StateError(
                    "resume_from_checkpoint: there is no complete checkpoint in "
                    f'{self.args.output_dir}. Start without it, or with "auto".'
                )
            resume_from_checkpoint = newest
        loom.resume = str(resume_from_checkpoint) if resume_from_checkpoint else None
        if loom.resume is not None:
            state_in(loom.resume)  # before anything is loaded
        told = self.args.max_steps, self.args.ignore_data_skip
        self.args.ignore_data_skip = True  # the run is entered where it was left
        try:
            return super().train(loom.resume, *args, **options)
        finally:
            self.args.max_steps, self.args.ignore_data_skip = told
            loom.feed = loom.resume = None

    def _save_checkpoint(self, model: Any, trial: Any, *args: Any, **options: Any) -> None:
        """Write the place in the run, then what the Trainer writes."""
        feed = None if self._loom is None else self._loom.feed
        if feed is not None and self.args.should_save:
            step = int(self.state.global_step)
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{step}"
            write_place(feed.state(step), folder)
        super()._save_checkpoint(model, trial, *args, **options)

    # -- evaluation ------------------------------------------------------------------------

    def evaluate(self, eval_dataset: Any = None, *args: Any, **options: Any) -> Any:
        """Evaluate on the runs that were attached, or on those given."""
        if self._loom is None or not are_runs(eval_dataset):
            return super().evaluate(eval_dataset, *args, **options)
        before = self.eval_dataset
        self.eval_dataset = eval_dataset
        try:
            return super().evaluate(None, *args, **options)
        finally:
            self.eval_dataset = before

    def evaluation_loop(self, dataloader: Any, *args: Any, **options: Any) -> Any:
        """The Trainer's loop; the loss is the mean over trained tokens, for every batch size."""
        if self._loom is None or not isinstance(dataloader, EvalFeed):
            return super().evaluation_loop(dataloader, *args, **options)
        losses: list[tuple[Any, Any]] = []
        self._loom.losses = losses
        gather = self.gather_function
        self.gather_function = lambda value: _first(gather(value), dataloader.real_rows)
        try:
            output = super().evaluation_loop(dataloader, *args, **options)
        finally:
            self._loom.losses, self.gather_function = None, gather
        total, tokens = self._summed(losses)
        for name in output.metrics if tokens else ():
            if name.endswith("_loss") and name[:-5] == options.get("metric_key_prefix", "eval"):
                output.metrics[name] = total / tokens
        return output

    def _summed(self, losses: list[tuple[Any, Any]]) -> tuple[float, float]:
        """The sum of losses and the number of tokens, over all steps and ranks."""
        sums = torch.tensor([[float(loss), float(count)] for loss, count in losses]).double().sum(0)
        if self.args.world_size > 1:
            gathered = self.accelerator.gather(sums.float().to(self.args.device)[None])
            sums = gathered.cpu().double().sum(0)
        return float(sums[0]), float(sums[1])

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """The Trainer's loss; in evaluation the mean over the tokens of this rank's rows."""
        if self._loom is not None and self._loom.losses is not None:
            options["num_items_in_batch"] = None
        return super().compute_loss(model, inputs, *args, **options)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """The Trainer's step, whose loss is kept with the number of its tokens."""
        losses = None if self._loom is None else self._loom.losses
        if losses is None:
            return super().prediction_step(model, inputs, *args, **options)
        count = inputs["labels"][..., 1:].ne(IGNORE).sum()
        loss, *rest = super().prediction_step(model, inputs, *args, **options)
        if loss is not None:
            if not count:  # the mean over no tokens: rows that fill up a step
                loss = torch.zeros_like(loss)
            losses.append((loss.detach() * count.to(loss.device), count))
        return (loss, *rest)


class PassEnds(TrainerCallback):  # type: ignore[misc]
    """Tells a Trainer, whose only epoch is the whole training, when a pass over the run ends.

    Args:
        loom: what is attached.
    """

    def __init__(self, loom: Attached) -> None:
        self.loom, self.told = loom, -1

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Set `state.epoch` to the passes done, and ask for what is due at the end of one."""
        feed = self.loom.feed
        if feed is None or not feed.passes.n:
            return
        examples = feed.examples(int(state.global_step))
        state.epoch = examples / feed.passes.n
        if examples % feed.passes.n == 0:
            self.told = int(state.global_step)
            _ask(args, state, control, due=True)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Ask for nothing twice: the last step may have ended a pass."""
        if self.told == int(state.global_step):
            _ask(args, state, control, due=False)


def _ask(args: Any, state: Any, control: Any, *, due: bool) -> None:
    if args.logging_strategy == "epoch":
        control.should_log = due
    if args.eval_strategy == "epoch" and args.eval_delay <= state.epoch:
        control.should_evaluate = due
    if args.save_strategy == "epoch":
        control.should_save = due


def are_runs(found: Any) -> bool:
    """Whether it is a run, or several by name."""
    many = isinstance(found, Mapping) and bool(found)
    return all(isinstance(one, Dataset) for one in (found.values() if many else [found]))


def _first(value: Any, rows: int) -> Any:
    """The first rows of gathered tensors, also in tuples and mappings."""
    if isinstance(value, list | tuple):
        return type(value)(_first(one, rows) for one in value)
    if isinstance(value, Mapping):
        return {name: _first(one, rows) for name, one in value.items()}
    return value[:rows] if hasattr(value, "shape") and value.shape else value
