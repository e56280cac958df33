"""`attach(trainer, run)`: a Trainer of transformers that trains on a run, with an exact resume.

A Trainer asks itself for its loaders, saves and resumes by methods of its own. So `attach` puts a
class that answers these few questions (`RunMethods`) in front of the class of any Trainer, TRL's
SFTTrainer included; `LoomTrainer` has them from the start. A Trainer's only epoch is the whole
training, so a callback (`PassEnds`) tells it when a pass over the run ends; another one
(`TrainerEvaluation`) evaluates every few steps.

What a step is, and which rows a rank and a micro-batch get, is in `trainer_feeds` beside it.
Nothing of a Trainer's own order is left: no sampler, no collator, no `remove_unused_columns`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from transformers import Trainer, TrainerCallback

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses, one_of
from tokenloom.batch.paint import IGNORE
from tokenloom.batch.views.named import fields_for
from tokenloom.errors import ConfigError, MissingExtra, StateError, warn
from tokenloom.evaluate.periodic import Periodic
from tokenloom.integrations.fit import check_embedding, check_tokenizer
from tokenloom.integrations.hf.packing import OFFERED, check_packing, choose_contract
from tokenloom.integrations.hf.trainer_feeds import (
    EvalFeed,
    TrainFeed,
    check_arguments,
    newest_checkpoint,
    ranks_of,
    refuse_endless,
    state_in,
    step_loader,
    steps_in,
    steps_in_all,
    tell_dropped,
    worker_settings,
    write_place,
)
from tokenloom.loader.passes import StepReader
from tokenloom.loader.ranks import Ranks

if TYPE_CHECKING:
    _InFront: TypeAlias = Any  # a Trainer
else:
    _InFront = object  # it goes in front of any Trainer, and has no base of its own


class TrainerEvaluation(TrainerCallback):  # type: ignore[misc]
    """Evaluates the model every few steps of ``trainer.train()``.

    It works in any Trainer of Transformers or TRL, with or without a run of ours. Steps are those
    of the optimizer. A training that resumes continues the files, and what was evaluated after
    its checkpoint is replaced.

    Args:
        periodic: what is evaluated, and when.

    >>> from tokenloom.evaluate import Periodic
    >>> periodic = Periodic({"zero": lambda model: {"loss": 0.0}}, every=100)
    >>> callback = TrainerEvaluation(periodic)  # Trainer(…, callbacks=[callback])
    >>> callback.periodic.every
    100
    """

    def __init__(self, periodic: Periodic) -> None:
        self.periodic = periodic

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate before the first step, if that was asked for."""
        if state.global_step == 0:
            self.periodic(given["model"], 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate after a step that is due."""
        self.periodic(given["model"], state.global_step)


@dataclass(kw_only=True)
class Attached:
    """What was attached, and where training is.

    Attributes:
        epochs: passes over the run, from `num_train_epochs`; None: `max_steps` decides.
        resume: the checkpoint that training continues from.
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


class LoomMixin(RunMethods):
    """In front of a Trainer class, makes it train on a run: ``class Mine(LoomMixin, SFTTrainer)``.

    Takes the arguments of the Trainer without `train_dataset`, and those of `attach` by name.

    >>> class Mine(LoomMixin, Trainer):
    ...     pass
    >>> issubclass(Mine, Trainer)
    True
    """

    def __init__(self, *args: Any, run: Any, eval_runs: Any = None, **options: Any) -> None:
        of_attach = inspect.signature(attach).parameters
        mine = {name: options.pop(name) for name in of_attach if name in options}
        if options.get("train_dataset") is not None:
            raise ConfigError("train_dataset: found it beside run, allowed: one. Drop it.")
        is_trl = any(kind.__module__.startswith("trl.") for kind in type(self).__mro__)
        options["train_dataset"] = placeholder() if is_trl else None
        if eval_runs is not None:
            options["eval_dataset"] = placeholder() if is_trl else eval_runs
        super().__init__(*args, **options)
        attach(self, run, eval_runs=eval_runs, **mine)


class LoomTrainer(LoomMixin, Trainer):  # type: ignore[misc]
    """A Trainer of transformers on a run: the arguments of both `Trainer` and `attach`.

    ::

        trainer = LoomTrainer(model=model, args=args, run=run, eval_runs={"web": web})
        trainer.train(resume_from_checkpoint="auto")

    >>> LoomTrainer(run=None, train_dataset=[1])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: train_dataset: found it beside run, allowed: one. Drop it.
    """


OF_ARGUMENTS = {
    "batch_size": "per_device_train_batch_size × gradient_accumulation_steps × ranks decides",
    "accumulate": "gradient_accumulation_steps decides",
}


@settings_of_file("attach", run="run", own=["fields"], instead=OF_ARGUMENTS)
@near_misses("attach")
def attach(
    trainer: Any,
    run: Dataset,
    *,
    eval_runs: Dataset | Mapping[str, Dataset] | None = None,
    contract: str = "hf",
    num_workers: int | None = None,
    fields: Sequence[str] = (),
    rank: int | None = None,
    world_size: int | None = None,
    group: Any = None,
    end: str = "drop",
    untrained: str = "raise",
    check: bool = True,
    different_tokenizers: bool = False,
    allow_mismatch: bool = False,
) -> Any:
    """Let a Trainer of transformers, or of a class derived from it, train on a run.

    A step of the run is a step of the optimizer: per_device_train_batch_size ×
    gradient_accumulation_steps × ranks examples, in the order of `tokenloom.Loader`. Rank r of W
    has the r-th contiguous share of them, cut into micro-batches in order. A checkpoint holds the
    place in the run (`tokenloom.json`), so ``trainer.train(resume_from_checkpoint="auto")`` goes on
    with the next example, also with another batch size, accumulation or number of ranks.
    `num_train_epochs` counts passes over the run, each in a fresh order; "epoch" in
    `save_strategy`, `eval_strategy` and `logging_strategy` is the end of such a pass.

    Args:
        trainer: the Trainer.
        run: what to train on. `end` and `untrained` default to the `loader` section of its file.
        eval_runs: finite runs to evaluate on, one or several by name (``eval_web_loss``), each the
            same pass every time; None: the Trainer's `eval_dataset`.
        contract: what the model gets: "hf", "sdpa" (a mask), "flash" (for FlashAttention), or
            "auto": the first that keeps documents apart.
        num_workers: worker processes; None: `dataloader_num_workers`.
        fields: further arrays, which the model gets as arguments.
        rank: the number of this rank; None: the Trainer's.
        world_size: the number of ranks, given with `rank`.
        group: processes whose rows differ, where others share theirs (tensor parallelism).
        end: what becomes of the short last step of a pass: "drop", "pad" or "wrap".
        untrained: "raise" or "zero", for a step in which no token is trained.
        check: try whether documents stay apart inside the model (`check_packing`).
        different_tokenizers: accept a Trainer whose tokenizer is not that of the run's stores.
        allow_mismatch: resume at the place of a checkpoint of another run.

    Returns:
        The trainer.

    Raises:
        ConfigError: an argument of the Trainer cannot be honoured, documents that share a row see
            each other, the model has no embedding for some ids, or ids mean other tokens in the
            Trainer's tokenizer.

    >>> import tempfile, tokenloom as tl
    >>> from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    >>> sizes = dict(hidden_size=16, intermediate_size=16, vocab_size=256)
    >>> tiny = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "the loom holds the thread " * n} for n in range(1, 20)]
    ...     run = tl.build(texts, folder + "/toy", tokenizer="bytes").pack(64).shuffle()
    ...     told = dict(per_device_train_batch_size=4, disable_tqdm=True, report_to="none")
    ...     args = TrainingArguments(folder, save_strategy="no", logging_strategy="no", **told)
    ...     trainer = attach(Trainer(LlamaForCausalLM(tiny), args), run)
    ...     next(iter(trainer.get_train_dataloader()))["input_ids"].shape
    torch.Size([4, 64])
    """
    if not isinstance(trainer, Trainer):
        raise ConfigError(
            f"trainer: found {type(trainer).__name__}, allowed: a transformers.Trainer, or a class "
            "derived from it (TRL's SFTTrainer). For your own loop: integrations.hf.prepare."
        )
    run = dataset_of("attach", run)
    one_of("contract", contract, (*OFFERED, "auto"))
    one_of("end", end, ("drop", "pad", "wrap"))
    evaluated = _eval_runs(trainer, eval_runs)
    ranks = ranks_of(trainer, rank, world_size, group)
    contract = _checked_contract(trainer, contract, check)
    check_arguments(trainer.args, contract, ranks, run)
    runs = {"run": run} | _named_runs(evaluated)
    check_embedding("attach", runs, trainer.model)
    if not different_tokenizers:
        check_tokenizer("attach", runs, _tokenizer_of(trainer))
    run.batch([0]).torch(contract=contract)  # refuses rows that the contract cannot express
    kind = type(trainer)
    if not isinstance(trainer, RunMethods):
        named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        trainer.__class__ = type(kind.__name__, (RunMethods, kind), named)
    _warn_of_unused(trainer.train_dataset)
    trainer.train_dataset, trainer.eval_dataset = run, evaluated
    trainer._loom = Attached(
        run=run,
        contract=contract,
        fields=tuple(fields),
        num_workers=num_workers,
        ranks=ranks,
        end=end,
        untrained=untrained,
        allow_mismatch=allow_mismatch,
        epochs=None if trainer.args.max_steps > 0 else float(trainer.args.num_train_epochs),
    )
    trainer.remove_callback(PassEnds)
    trainer.add_callback(PassEnds(trainer._loom))
    return trainer


def placeholder() -> Any:
    """A dataset of one row, for a Trainer that wants one when it is made; never trained on.

    TRL's SFTTrainer refuses to be made without a `train_dataset` of its own kind. Give it this one,
    then `attach` the run; a Trainer without it that asks for a batch gets an error.

    >>> placeholder().num_rows
    1
    """
    return _placeholder_class().from_dict({"input_ids": [[0, 0]], "labels": [[0, 0]]})


@functools.cache
def _placeholder_class() -> Any:
    """A class of datasets that gives no batch, also after a Trainer has prepared it."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise MissingExtra("placeholder", "datasets", "hf") from None

    class Placeholder(datasets.Dataset):  # type: ignore[misc, name-defined]
        def map(self, *args: Any, **options: Any) -> Any:
            made = super().map(*args, **options)
            made.__class__ = Placeholder
            return made

        def __getitems__(self, keys: Any) -> Any:
            raise ConfigError(
                "placeholder: a Trainer asked it for a batch, but it is not trained on. Attach "
                "the run that is, before train() or evaluate(): attach(trainer, run, eval_runs=…)."
            )

    return Placeholder


def _is_placeholder(dataset: Any) -> bool:
    if dataset is None or isinstance(dataset, Dataset | Mapping) or not hasattr(dataset, "__len__"):
        return False
    return len(dataset) == 1 and "input_ids" in dataset[0] and dataset[0]["input_ids"] == [0, 0]


def _eval_runs(trainer: Any, eval_runs: Any) -> Any:
    """What the Trainer evaluates on from now on."""
    found = trainer.eval_dataset if eval_runs is None else eval_runs
    found = dict(found) if isinstance(found, Mapping) else found
    if eval_runs is not None and not are_runs(found):
        raise ConfigError(
            "eval_runs: found something that is no run, allowed: a run, or several by name, such "
            "as {'web': web_run}. Other datasets stay in the Trainer's eval_dataset."
        )
    many = found.values() if isinstance(found, dict) else [found]
    if any(_is_placeholder(one) for one in many):
        raise ConfigError(
            "eval_runs: missing; the Trainer's eval_dataset is a placeholder. Give the runs to "
            "evaluate on."
        )
    for one in many:
        if isinstance(one, Dataset):
            refuse_endless(one)
    return found


def _named_runs(evaluated: Any) -> dict[str, Dataset]:
    """The runs that are evaluated, by what messages call them."""
    many = evaluated if isinstance(evaluated, dict) else {None: evaluated}
    return {
        "eval_runs" if name is None else f"eval_runs[{name!r}]": one
        for name, one in many.items()
        if isinstance(one, Dataset)
    }


def _tokenizer_of(trainer: Any) -> Any:
    """The tokenizer of a Trainer, which older versions call by that name."""
    found = getattr(trainer, "processing_class", None)
    return vars(trainer).get("tokenizer") if found is None else found


def _checked_contract(trainer: Any, contract: str, check: bool) -> str:
    if not check:
        if contract == "auto":
            raise ConfigError(
                "contract: found 'auto' with check=False, which it needs. Name a contract, or "
                "leave check on."
            )
        return contract
    weights = list(trainer.model.parameters())
    if any(one.is_meta or hasattr(one, "ds_id") or hasattr(one, "device_mesh") for one in weights):
        warn(
            "check_packing: the model is spread over several processes, so it was not tried "
            "whether documents stay apart in it. Try the same model on one: check_packing(model)."
        )
        return "hf" if contract == "auto" else contract
    if contract == "auto":
        return choose_contract(trainer.model)
    check_packing(trainer.model, contract=contract)
    return contract


def _warn_of_unused(dataset: Any) -> None:
    if dataset is None or isinstance(dataset, Dataset) or _is_placeholder(dataset):
        return
    warn(
        "attach: the Trainer has a train_dataset of its own, which is not used from now on: the "
        "run is. Leave it out, or give placeholder() to a Trainer that wants one."
    )
