"""Edge weights: starts near the ends of a document are shown more often, in exact proportion.

One idea: few of the splice windows inside a document contain the tokens at its ends, so starts are
weighted by ``(K / d)^alpha``, where d is the distance to the nearer end. Weights are integers; a
weight depends on the distance alone and is 1 from distance K on, so sums are closed forms.

Quotas: how many examples of an epoch each document gets.

One idea: shares are exact. Weights are integers, quotas are allotted by largest remainder, and
nothing is drawn at random, so counts are known before a run and hold on every machine.

Worked example: lengths 7, 5, 3 and an epoch of 12, in proportion to length ** 0.7: 5, 4, 3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tokenloom.arrays import Float64, Int64
from tokenloom.errors import ConfigError

TOTAL_BITS = 30  # of the sum of all weights of one document


@functools.lru_cache(maxsize=1024)
def _edge_sum(content_length: int, alpha: float) -> float:
    """The sum of all weights near one end, with a stride of 1."""
    d = np.arange(1, content_length + 1, dtype=np.float64)
    with np.errstate(over="ignore"):  # the caller refuses infinity, in words
        return float(((content_length / d) ** alpha).sum())


class Edges:
    """Edge weights of documents of one content length, stride and alpha, by closed form.

    Weights depend only on the distance to an end and are 1 from distance K on, so one table of K
    sums serves every document, however long.

    Args:
        content_length: K.
        stride: tokens between starts.
        alpha: how strongly ends are preferred.
        scale: factor applied to all weights before they are rounded to integers.
    """

    def __init__(self, content_length: int, stride: int, alpha: float, scale: float) -> None:
        self.stride, self._one = stride, max(1, round(scale))
        columns = -(-content_length // stride)
        d = np.arange(stride)[:, None] + np.arange(columns) * stride + 1  # [residue, starts]
        w = (content_length / np.minimum(d, content_length)) ** alpha
        rounded = np.maximum(1, np.rint(w * scale).astype(np.int64))
        self._sums = np.concatenate([np.zeros((stride, 1), np.int64), rounded.cumsum(axis=1)], 1)
        self._columns = columns
        self._step = int(self._sums.max()) + 1
        steps = np.arange(stride)[:, None] * self._step
        self._flat = (self._sums + steps).reshape(-1)  # ascending through all residues

    @staticmethod
    def scale_for(length: int, content_length: int, stride: int, alpha: float) -> float:
        """A power of 2 that keeps the sum of all weights of a document below 2^30."""
        total = (length - content_length) / stride + 1 + 2 * _edge_sum(content_length, alpha)
        if not math.isfinite(total):
            raise ConfigError(
                f"alpha: found {alpha:g}, but ({content_length} / 1)^alpha is beyond every number. "
                "Allowed: small numbers, such as 0.8."
            )
        return 2.0 ** min(10, TOTAL_BITS - math.ceil(math.log2(max(2.0, total))))

    def sums(self, starts: Int64, residue: Int64) -> Int64:
        """Weight of `starts` starts counted from an end, the outermost `residue` tokens in [N]."""
        near = np.minimum(starts, self._columns)
        return self._sums[residue, near] + (starts - near) * self._one

    def _count(self, weight: Int64, residue: Int64) -> Int64:
        """Number of whole starts from an end that a weight covers: the inverse of `sums` [N]."""
        most = self._sums[residue, -1]
        inside = np.minimum(weight, most - 1) + residue * self._step
        near = np.searchsorted(self._flat, inside, side="right") - 1 - residue * (self._columns + 1)
        far = self._columns + (weight - most) // self._one
        return np.where(weight < most, near, far)

    def halves(self, room: Int64, starts: Int64) -> tuple[Int64, Int64]:
        """Starts in the first half, and the residue at the other end; `room` is L - K [N]."""
        return np.minimum(room // (2 * self.stride) + 1, starts), room % self.stride

    def total(self, room: Int64, starts: Int64) -> Int64:
        """Weight of all starts of each document [N]."""
        left, residue = self.halves(room, starts)
        return self.sums(left, 0 * room) + self.sums(starts - left, residue)

    def before(self, choice: Int64, room: Int64, starts: Int64) -> Int64:
        """Total weight of the starts before each start [N]."""
        left, residue = self.halves(room, starts)
        behind = self.total(room, starts) - self.sums(starts - choice, residue)
        return np.where(choice <= left, self.sums(choice, 0 * room), behind)

    def at(self, weight: Int64, room: Int64, starts: Int64) -> Int64:
        """The start at each weight: the last one with at most that weight before it [N]."""
        left, residue = self.halves(room, starts)
        half, total = self.sums(left, 0 * room), self.total(room, starts)
        low = self._count(np.minimum(weight, half - 1), 0 * room)
        high = starts - 1 - self._count(np.maximum(total - 1 - weight, 0), residue)
        return np.where(weight < half, low, high)


def floor_sum(n: Int64, m: Int64, a: Int64, b: Int64) -> Int64:
    """Sum of floor((a i + b) / m) for i from 0 to n - 1 [N], in the steps of Euclid's algorithm."""
    n, m, a, b = (np.array(one, np.int64) for one in np.broadcast_arrays(n, m, a, b))
    out, here = np.zeros_like(n), np.arange(len(n))
    while True:
        live = n > 0
        if not live.all():
            here, n, m, a, b = (one[live] for one in (here, n, m, a, b))
        if not len(here):
            return out
        steps, a = np.divmod(a, m)
        rows, b = np.divmod(b, m)
        out[here] += steps * (n * (n - 1) // 2) + rows * n
        # the rest are lattice points in a triangle; count them from its other side
        n, b = np.divmod(a * n + b, m)
        m, a = np.maximum(a, 1), m


WEIGHT_BITS = 40  # of the largest weight


def largest_remainder(weights: Sequence[int] | Int64, total: int) -> Int64:
    """Divides `total` in proportion to integer weights; the rest goes to the largest remainders.

    Ties go to the lowest index; the sum is always `total`.

    >>> largest_remainder([7, 5, 3], 7).tolist()
    [3, 2, 2]
    """
    exact = [int(weight) for weight in weights]
    whole = sum(exact)
    if not whole:
        raise ConfigError("balance: no document has a weight above 0. Give one to some of them.")
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
        measure: length, or number of starts, of each document [N].
        tau: 1 is proportional, 0 is equal.
        weights: further factors [N].
        groups: group number of each document; groups get equal mass, divided by weight inside [N].

    >>> temperature_weights([7, 5, 3], 1)
    [7, 5, 3]
    """
    size = np.asarray(measure, np.int64)
    if weights is None and groups is None and tau in (0, 1):
        return [int(one) if tau else int(one > 0) for one in size]
    top = int(size.max(initial=1)) or 1  # only proportions matter, so scale freely
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
    """Examples of each document in an epoch of `total`; `caps` limits each document.

    What a capped document cannot take goes to the others, in proportion. If all documents are
    capped, the epoch is shorter than `total`.
    """
    if caps is None:
        return largest_remainder(weights, total)
    total = min(total, int(caps[np.asarray(weights) > 0].sum()))
    open_ = np.ones(len(weights), np.bool_)  # never empty: not all of them can be over their caps
    out = np.zeros(len(open_), np.int64)
    while True:  # each round caps at least one document or is the last
        free = np.flatnonzero(open_)
        left = total - int(out[~open_].sum())
        out[free] = largest_remainder([weights[i] for i in free.tolist()], left)
        over = open_ & (out > caps)
        if not over.any():
            return out
        out[over] = caps[over]
        open_ &= ~over


def framed(
    weights: Sequence[int], frames: int, group: Int64, together: Int64, caps: Int64 | None = None
) -> Int64:
    """Units of each document in an epoch of exactly `frames` frames.

    Frames go to groups first, then the units that fill them to the documents inside, both by
    largest remainder. A document whose frames hold one unit each is a group of its own, so with one
    splice per frame these are the `quotas` of an epoch of `frames`.

    Args:
        weights: units are in proportion to these [N].
        frames: frames of the epoch.
        group: documents that share frames have the same number [N].
        together: units in one frame, the same for a whole group [N].
        caps: most units of each document [N].

    >>> framed([7, 5, 3], 12, np.array([0, 0, 1]), np.array([4, 4, 5])).tolist()
    [23, 17, 10]
    """
    if (together == 1).all():
        return quotas(weights, frames, caps)
    _, first, which = np.unique(group, return_index=True, return_inverse=True)
    order = np.argsort(first)  # groups in the order of their first documents
    members = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    unit = math.lcm(*np.unique(together).tolist())
    inside = [[weights[i] for i in members[one].tolist()] for one in order.tolist()]
    many = together[first[order]]
    mass = [sum(own) * (unit // m) for own, m in zip(inside, many.tolist(), strict=True)]
    most = None
    if caps is not None:
        usable = np.where(np.array([weight > 0 for weight in weights]), caps, 0)
        most = -(-np.bincount(which, usable).astype(np.int64)[order] // many)
    out = np.zeros(len(group), np.int64)
    shares = quotas(mass, frames, most) * many
    for one, own, units in zip(order.tolist(), inside, shares.tolist(), strict=True):
        if units:
            here = members[one]
            out[here] = quotas(own, units, None if caps is None else caps[here])
    return out
