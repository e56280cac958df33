"""Losses as they were given: of steps, of rows or of tokens, and which examples they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.errors import ConfigError
from tokenloom.loader.loader import Loader

__all__ = ["GivenLosses", "given_losses", "rows_of_steps"]

Float64 = NDArray[np.float64]

Int64 = NDArray[np.int64]

STEP, ROW, TOKEN = "step", "row", "token"


class GivenLosses(NamedTuple):
    """Losses, and what they are about.

    Attributes:
        per: "step", "row" or "token".
        values: [steps], [rows] or [rows, S]; NaN where nothing was trained.
        examples: the example of each row; empty for steps [rows].
        step: the step of each step, or row; empty if no batch size is known.
    """

    per: str
    values: Float64
    examples: Int64
    step: Int64


def rows_of_steps(run: Dataset, batch_size: Any, steps: Int64) -> tuple[Int64, Int64]:
    """The examples of some ascending steps, in the order of their rows, and the step of each."""
    maker = Loader(run, batch_size, 0, 1, prefetch=0)._maker
    count = maker.count
    if count is not None and len(steps) and int(steps[-1]) >= count:
        raise ConfigError(
            f"losses: found one of step {int(steps[-1]):,}, but the run has {count:,} steps of "
            "this batch size. Look at batch_size and first."
        )
    rows, which = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    place = 0
    while place < len(steps):
        step = int(steps[place])
        stop = place + 1
        most = max(1, (1 << 16) // maker.steps.size(step))
        end = maker.steps.stretch_end(step)
        while (
            stop < len(steps)
            and int(steps[stop]) == step + stop - place < end
            and stop - place < most
        ):
            stop += 1
        line, real = maker.whole_steps(step, step + stop - place)
        rows.append(line[real])
        which.append(np.repeat(steps[place:stop], real.sum(axis=1)))
        place = stop
    return np.concatenate(rows), np.concatenate(which)


def given_losses(
    run: Dataset,
    losses: Any,
    *,
    batch_size: Any,
    index: Any,
    steps: Any,
    first: int,
    per: str | None,
) -> GivenLosses:
    """What these losses are about; see `blame`."""
    if isinstance(losses, Mapping):
        steps = np.array(sorted(losses), np.int64)
        losses = [losses[step] for step in sorted(losses)]
    values = _numbers(losses)
    known = None if steps is None else np.asarray(steps, np.int64).reshape(-1)
    if index is not None:
        return _by_index(run, values, np.asarray(index, np.int64).reshape(-1), batch_size, per)
    if batch_size is None:
        raise ConfigError(
            "batch_size: losses without index= are about steps, so none says which rows. Give the "
            "batch size of the "
            "loader that made them."
        )
    if known is None:
        known = first + np.arange(len(values))
    if len(known) != len(values) or (np.diff(known) <= 0).any():
        raise ConfigError(
            f"steps: found {len(known):,} of them for {len(values):,} losses, allowed: one for "
            "each, ascending."
        )
    if values.ndim == 1 and per in (None, STEP):
        return GivenLosses(STEP, values, np.empty(0, np.int64), known)
    rows, which = rows_of_steps(run, batch_size, known)
    if values.ndim in (2, 3) and values.shape[0] * values.shape[1] == len(rows):
        flat = values.reshape(len(rows), *values.shape[2:])
        return _checked(run, GivenLosses(ROW if flat.ndim == 1 else TOKEN, flat, rows, which), per)
    raise ConfigError(
        f"losses: found shape {values.shape}, allowed: [steps], [steps, rows] or [steps, rows, "
        f"tokens], where these {len(known):,} steps have {len(rows):,} rows; or rows with index=."
    )


def _by_index(
    run: Dataset, values: Float64, index: Int64, batch_size: Any, per: str | None
) -> GivenLosses:
    if len(values) != len(index) or values.ndim > 2:
        raise ConfigError(
            f"index: found {len(index):,} for losses of shape {values.shape}, allowed: one for "
            "each row."
        )
    run._wanted(index)  # refuses what is outside the run
    order = np.argsort(index, kind="stable")
    index, values = index[order], values[order]
    step = np.empty(0, np.int64)
    if batch_size is not None:
        begins = Loader(run, batch_size, 0, 1, prefetch=0)._maker.steps
        step = begins.steps_of(index)
    per_row = ROW if values.ndim == 1 else TOKEN
    return _checked(run, GivenLosses(per_row, values, index, step), per)


def _checked(run: Dataset, given: GivenLosses, per: str | None) -> GivenLosses:
    """Losses of tokens have one for each cell of a frame, or for each but the last."""
    if per is not None and per != given.per:
        raise ConfigError(
            f"per: found {per!r}, but the shape {given.values.shape} is that of one per "
            f"{given.per}. Leave it out, or give losses of that shape."
        )
    if given.per == TOKEN and given.values.shape[1] not in (run.seq_len, run.seq_len - 1):
        raise ConfigError(
            f"losses: found {given.values.shape[1]:,} for each row, allowed: {run.seq_len:,}, one "
            "for the prediction made at each cell, or all but the last."
        )
    return given


def _numbers(losses: Any) -> Float64:
    try:
        values = np.asarray(losses, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"losses: found {type(losses).__name__}, allowed: an array of numbers of one shape, a "
            "mapping from step to loss, or the path of a file."
        ) from None
    if values.ndim == 0 or values.ndim > 3 or not values.size:
        raise ConfigError(
            f"losses: found shape {values.shape}, allowed: [steps], [steps, rows] or [steps, "
            "rows, tokens], and at least one."
        )
    return np.where(np.isfinite(values), values, np.nan)
