"""Quotas: how many examples of an epoch each document gets.

One idea: shares are exact. Weights are integers, quotas are their largest remainders, and no number
is drawn, so that counts can be stated before a run and hold on every machine.

Worked example: lengths 7, 5, 3 and an epoch of 12, in proportion to length ** 0.7: 5, 4, 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.errors import ConfigError

__all__ = ["largest_remainder", "quotas", "temperature_weights"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

WEIGHT_BITS = 40  # of the largest weight


def largest_remainder(weights: Sequence[int] | Int64, total: int) -> Int64:
    """`total` divided in proportion to integer weights, the rest to the largest remainders.

    Ties go to the lowest index; the sum is always `total`.

    >>> largest_remainder([7, 5, 3], 7).tolist()
    [3, 2, 2]
    """
    exact = [int(weight) for weight in weights]
    whole = sum(exact)
    if not whole:
        raise ConfigError("balance: no document has a weight above 0.")
    shares = [divmod(total * weight, whole) for weight in exact]
    out = np.array([share for share, _ in shares], np.int64)
    left = total - int(out.sum())
    for i in sorted(range(len(shares)), key=lambda i: (-shares[i][1], i))[:left]:
        out[i] += 1
    return out


def temperature_weights(
    measure: ArrayLike,
    tau: float,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> list[int]:
    """Integer weights in proportion to ``measure ** tau``.

    Args:
        measure: length, or starts, of each document [N].
        tau: 1 is in proportion, 0 is equal.
        weights: further factors [N].
        groups: a number for each document; groups get equal mass, documents of one as weighted [N].

    >>> temperature_weights([7, 5, 3], 1)
    [7, 5, 3]
    """
    size = np.asarray(measure, np.int64)
    if weights is None and groups is None and tau in (0, 1):
        return [int(one) if tau else int(one > 0) for one in size]
    top = int(size.max(initial=1)) or 1  # of shares only the proportion counts
    heat: Float64 = np.where(size > 0, (np.maximum(size, 1) / top) ** tau, 0.0)
    if weights is not None:
        heat = heat * np.asarray(weights, np.float64)
    if groups is not None:
        _, group = np.unique(np.asarray(groups), return_inverse=True)
        mass = np.bincount(group, heat)
        heat = heat / np.where(mass > 0, mass, 1.0)[group]
    most = float(heat.max(initial=0.0))
    scale = 2.0**WEIGHT_BITS / most if most > 0 else 0.0
    return [max(1, round(one * scale)) if one > 0 else 0 for one in heat.tolist()]


def quotas(weights: Sequence[int], total: int, caps: Int64 | None = None) -> Int64:
    """Examples of each document in an epoch of `total`; `caps` are the most that each may have.

    What a capped document cannot take goes to the others, in proportion; if all are capped the
    epoch is shorter than asked.
    """
    if caps is None:
        return largest_remainder(weights, total)
    total = min(total, int(caps[np.asarray(weights) > 0].sum()))
    open_ = np.array([weight > 0 for weight in weights])
    out = np.zeros(len(open_), np.int64)
    while True:  # each round closes a document or is the last
        free = np.flatnonzero(open_)
        left = total - int(out[~open_].sum())
        out[free] = largest_remainder([weights[i] for i in free.tolist()], left)
        over = open_ & (out > caps)
        if not over.any():
            return out
        out[over] = caps[over]
        open_ &= ~over
        if not open_.any():
            return out
