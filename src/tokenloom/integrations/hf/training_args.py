"""What a Trainer's arguments mean for a run: batch, ranks, number of steps; what is refused.

One idea: a setting is either honoured or refused with a sentence. A Trainer has many that shape the
order of examples; with a run the order is the run's, so those that ask for another one would be
ignored without a word.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tokenloom.api.dataset import Dataset
from tokenloom.errors import ConfigError, warn
from tokenloom.loader.passes import Passes
from tokenloom.loader.prefetch import log
from tokenloom.loader.ranks import Ranks, find_ranks


class _Rule(NamedTuple):
    """A setting that cannot be honoured."""

    name: str  # where it is in TrainingArguments
    allowed: tuple[Any, ...]
    why: str


RULES = (
    _Rule(
        "accelerator_config.split_batches",
        (None, False),
        "it reads per_device_train_batch_size as that of all ranks; give the one of a device",
    ),
    _Rule(
        "accelerator_config.dispatch_batches",
        (None, False),
        "every rank reads its own rows of the run; leave it out",
    ),
    _Rule(
        "group_by_length",
        (None, False),
        "the order is the run's, and its rows are equally long; leave it out",
    ),
    _Rule(
        "train_sampling_strategy",
        (None, "random", "sequential"),
        "the order is the run's (run.shuffle()); leave it out",
    ),
    _Rule(
        "completion_only_loss",
        (None, False),
        "which tokens are trained is in the store (`messages`, `completion_mask`); leave it out",
    ),
)


def check_arguments(args: Any, contract: str, ranks: Ranks, run: Dataset) -> None:
    """Refuse what cannot be honoured; warn of what changes results."""
    for rule in RULES:
        found = _value(args, rule.name)
        if found not in rule.allowed:
            raise ConfigError(f"args.{rule.name}: found {found!r}; with a run, {rule.why}.")
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
