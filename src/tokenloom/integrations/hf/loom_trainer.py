"""`attach(trainer, run)`: a Trainer of transformers that trains on a run, with an exact resume.

One idea: `attach` puts a class with a few methods (`run_methods`) in front of the class of any
Trainer, TRL's SFTTrainer included; `LoomTrainer` has them from the start.

What a step is, and which rows a rank and a micro-batch get, is in `trainer_feeds` beside it.
Nothing of a Trainer's own order is left: no sampler, no collator, no `remove_unused_columns`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import Trainer

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses, one_of
from tokenloom.errors import ConfigError, MissingExtra, warn
from tokenloom.integrations.fit import check_embedding, check_tokenizer
from tokenloom.integrations.hf.packing import OFFERED, check_packing, choose_contract
from tokenloom.integrations.hf.run_methods import Attached, PassEnds, RunMethods, are_runs
from tokenloom.integrations.hf.trainer_feeds import refuse_endless
from tokenloom.integrations.hf.training_args import check_arguments, ranks_of

__all__ = ["LoomMixin", "LoomTrainer", "attach", "placeholder"]


class LoomMixin(RunMethods):
    """In front of a Trainer class, makes it train on a run: ``class Mine(LoomMixin, SFTTrainer)``.

    Takes the arguments of the Trainer without `train_dataset`, and those of `attach` by name.

    >>> class Mine(LoomMixin, Trainer):
    ...     pass
    >>> issubclass(Mine, Trainer)
    True
    """

    def __init__(self, *args: Any, run: Any, eval_runs: Any = None, **options: Any) -> None:
        mine = {name: options.pop(name) for name in _OPTIONS if name in options}
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

_OPTIONS = (
    "contract",
    "num_workers",
    "fields",
    "rank",
    "world_size",
    "group",
    "end",
    "untrained",
    "check",
    "different_tokenizers",
    "allow_mismatch",
)


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
    _warn_of_unused(trainer.train_dataset, run)
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


def _warn_of_unused(dataset: Any, run: Dataset) -> None:
    if (
        dataset is None
        or dataset is run
        or isinstance(dataset, Dataset)
        or _is_placeholder(dataset)
    ):
        return
    warn(
        "attach: the Trainer has a train_dataset of its own, which is not used from now on: the "
        "run is. Leave it out, or give placeholder() to a Trainer that wants one."
    )
