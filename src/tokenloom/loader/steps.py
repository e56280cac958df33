"""Ranks of a step: which rows of it belong to which rank, and runs that have no step at all.

Rank r of W takes rows [r B // W, (r + 1) B // W): all ranks together make up the step, for every W.
Which examples a step has is in `tokenloom.order.schedule`.

What a loader accepts: its settings, checked without a run.

A run file is checked before its stores exist, so the checks of a loader's settings are
here by themselves; `Loader` asks the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import check_between, one_of
from tokenloom.batch.views.named import all_fields, field_of
from tokenloom.errors import ConfigError
from tokenloom.order.schedule import Steps


def refuse_no_steps(steps: Steps, dataset: Dataset, end: str) -> None:
    """Refuse a run without a single step: a training loop over it would end at once, silently.

    Args:
        steps: the steps, counted from the start of the run.
        dataset: the run.
        end: what becomes of a short last step.
    """
    size, n, seq_len = steps.size(0), dataset.run.n, dataset.seq_len
    if n is None or (n > 0 and (n >= size or end != "drop")):
        return
    if n > 0:
        raise ConfigError(
            f"batch_size: found {size:,}, but the run has {n:,} examples and end='drop' leaves the "
            f"short step out, so there is no step at all. Use a batch_size of {n:,} or less, "
            "end='pad' or end='wrap'."
        )
    why = "Look at epochs, take and select, and at what the layout leaves out."
    tokens = sum(source.line.tokens for source in dataset.sources.values())
    if tokens < seq_len:
        why = (
            f"Its sources have {tokens:,} tokens in all, and seq_len is {seq_len:,}. Use a seq_len "
            f"of {tokens:,} or less, or a layout that keeps short rows: pack(...), or "
            "windows(..., tail='keep')."
        )
    if not tokens:
        why = "Its sources have no token: build or select documents that have some."
    raise ConfigError(f"Loader: the run has 0 examples, so there is no step at all. {why}")


def rank_rows(size: int, rank: int, world_size: int) -> tuple[int, int]:
    """The rows of one rank, [first, last).

    >>> [rank_rows(10, r, 4) for r in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    return rank * size // world_size, (rank + 1) * size // world_size


WORDS = {
    "end": ("drop", "pad", "wrap"),
    "fetch": ("auto", "blocks", "rows"),
    "untrained": ("raise", "zero"),
    "dtype": ("int32", "int64"),
}


def check_accepted(given: dict[str, Any]) -> None:
    """Raise ConfigError for the first setting of a loader that is not allowed.

    >>> check_accepted({"end": "dro"})
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: end: found 'dro', allowed: drop, pad, wrap. Did you mean 'drop'?
    """
    for name, allowed in WORDS.items():
        if name in given:
            one_of(name, given[name], allowed)
    accepted_fields(given.get("fields", ()))
    patience, prefetch = given.get("patience", 1), given.get("prefetch", 0)
    if not patience > 0:
        raise ConfigError(f"patience: found {patience}, allowed: more than 0 seconds.")
    check_between("prefetch", prefetch, 0, unit="batches")
    groups = given.get("accumulate")
    if groups is not None and groups < 1:
        raise ConfigError(f"accumulate: found {groups}, allowed: a divisor of the rows.")
    if given.get("batch_size") is not None:
        Steps(given["batch_size"])


def no_dataset(what: str, place: Any) -> str:
    """Why a loader was asked for an item, and what to use instead."""
    return (
        f"{what}: it was asked for item {place!r:.40}, but it is a loader, not a dataset. Iterate "
        "over it as it is. For a DataLoader of torch: tokenloom.integrations.torch.dataloader(run, "
        "batch_size); for a Trainer: tokenloom.integrations.hf.attach(trainer, run)."
    )


def accepted_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """The arrays to make before a batch is delivered, by our names for them."""
    found = tuple(field_of(name) for name in fields)
    for name in found:
        one_of("fields", name, (*all_fields(), "step_loss_tokens"))
    return found


def accepted_steps(batch_size: int | Sequence[tuple[int, int]] | None) -> Steps:
    """The steps of a batch size, which must be given."""
    if batch_size is None:
        raise ConfigError(
            "batch_size: found None, allowed: the rows of a step. Give them, or load the run from "
            "a file that has them: loader: {batch_size: 64}."
        )
    return Steps(batch_size)
