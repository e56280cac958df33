"""Ranks of a step: which rows of it belong to which rank, and runs that have no step at all.

Rank r of W takes rows [r B // W, (r + 1) B // W): all ranks together make up the step, for every W.
Which examples a step has is in `tokenloom.order.schedule`.
"""

from __future__ import annotations

from tokenloom.errors import ConfigError
from tokenloom.order.schedule import Steps

__all__ = ["Steps", "rank_rows", "refuse_no_steps"]


def refuse_no_steps(steps: Steps, n: int | None, end: str, *, seq_len: int, tokens: int) -> None:
    """Refuse a run without a single step: a training loop over it would end at once, silently.

    Args:
        steps: the steps, counted from the start of the run.
        n: examples of the run; None is endless.
        end: what becomes of a short last step.
        seq_len: tokens of a frame.
        tokens: tokens of all sources together.
    """
    size = steps.size(0)
    if n is None or (n > 0 and (n >= size or end != "drop")):
        return
    if n > 0:
        raise ConfigError(
            f"batch_size: found {size:,}, but the run has {n:,} examples and end='drop' leaves the "
            f"short step out, so there is no step at all. Use a batch_size of {n:,} or less, "
            "end='pad' or end='wrap'."
        )
    why = "Look at epochs, take and select, and at what the layout leaves out."
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
