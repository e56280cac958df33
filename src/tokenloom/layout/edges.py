"""Edge weights: starts near the ends of a document are shown more often, exactly.

One idea: tokens at the ends stand in few of the windows that lie inside a document, so starts are
weighted by ``(K / d)^alpha``, d being the distance to the nearer end. Weights are integers; a
weight depends on the distance alone and is 1 from distance K on, so sums are closed forms.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["Edges", "edge_weights", "floor_sum"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

TOTAL_BITS = 30  # of the weights of one document together


def edge_weights(length: int, content_length: int, alpha: float, stride: int = 1) -> Float64:
    """``(K / d)^alpha`` of every start, d being its distance to the nearer end, at most K.

    >>> edge_weights(7, 4, 1.0).tolist()
    [4.0, 2.0, 2.0, 4.0]
    """
    t = np.arange(0, length - content_length + 1, stride)
    d = np.minimum(np.minimum(t + 1, length - content_length - t + 1), content_length)
    weights: Float64 = (content_length / d) ** alpha
    return weights


@functools.lru_cache(maxsize=1024)
def _edge_sum(content_length: int, alpha: float) -> float:
    """All weights near one end, with a stride of 1."""
    d = np.arange(1, content_length + 1, dtype=np.float64)
    return float(((content_length / d) ** alpha).sum())


class Edges:
    """Edge weights of documents of one content length, stride and alpha, by closed form.

    Weights depend on the distance to an end alone and are 1 from distance K on, so one table of K
    sums serves every document, however long.

    Args:
        content_length: K.
        stride: between starts.
        alpha: how strongly ends are preferred.
        scale: what weight 1 becomes; integers follow by rounding.
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
        """A power of 2 with which all weights of a document stay below 2^30 together."""
        total = (length - content_length) / stride + 1 + 2 * _edge_sum(content_length, alpha)
        return 2.0 ** min(10, TOTAL_BITS - math.ceil(math.log2(max(2.0, total))))

    def sums(self, starts: Int64, residue: Int64) -> Int64:
        """Weight of so many starts from an end, the outermost `residue` tokens inside it [N]."""
        near = np.minimum(starts, self._columns)
        found: Int64 = self._sums[residue, near] + (starts - near) * self._one
        return found

    def _count(self, weight: Int64, residue: Int64) -> Int64:
        """Whole starts from an end within a weight: the inverse of `sums` [N]."""
        most = self._sums[residue, -1]
        inside = np.minimum(weight, most - 1) + residue * self._step
        near = np.searchsorted(self._flat, inside, side="right") - 1 - residue * (self._columns + 1)
        far = self._columns + (weight - most) // self._one
        found: Int64 = np.where(weight < most, near, far)
        return found

    def halves(self, room: Int64, starts: Int64) -> tuple[Int64, Int64]:
        """Starts that are nearer to the begin, and the residue at the end; `room` is L - K [N]."""
        return np.minimum(room // (2 * self.stride) + 1, starts), room % self.stride

    def total(self, room: Int64, starts: Int64) -> Int64:
        """Weight of all starts of each document [N]."""
        left, residue = self.halves(room, starts)
        return self.sums(left, 0 * room) + self.sums(starts - left, residue)

    def before(self, choice: Int64, room: Int64, starts: Int64) -> Int64:
        """Weight of the starts before each [N]."""
        left, residue = self.halves(room, starts)
        behind = self.total(room, starts) - self.sums(starts - choice, residue)
        return np.where(choice <= left, self.sums(choice, 0 * room), behind)

    def at(self, weight: Int64, room: Int64, starts: Int64) -> Int64:
        """The start at each weight: the last one with no more than that before it [N]."""
        left, residue = self.halves(room, starts)
        half, total = self.sums(left, 0 * room), self.total(room, starts)
        low = self._count(np.minimum(weight, half - 1), 0 * room)
        high = starts - 1 - self._count(np.maximum(total - 1 - weight, 0), residue)
        return np.where(weight < half, low, high)


def floor_sum(n: Int64, m: Int64, a: Int64, b: Int64) -> Int64:
    """Sum of floor((a i + b) / m) for i from 0 to n - 1 [N], in as many steps as Euclid takes."""
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
        # what is left are lattice points in a triangle, counted from its other side
        n, b = np.divmod(a * n + b, m)
        m, a = np.maximum(a, 1), m
