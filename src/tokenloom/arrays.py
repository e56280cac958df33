"""Small pieces of work that several rooms need: groups of numbers, what was asked for last."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["grouped", "with_newest"]

Int64 = NDArray[np.int64]
K = TypeVar("K")
V = TypeVar("V")


def grouped(numbers: Int64) -> Iterator[tuple[int, Int64]]:
    """Each different number with the places where it stands.

    >>> [(n, where.tolist()) for n, where in grouped(np.array([5, 3, 5]))]
    [(3, [1]), (5, [0, 2])]
    """
    if not len(numbers):
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        yield low, np.arange(len(numbers))
        return
    if (numbers[1:] >= numbers[:-1]).all():  # as neighbours are asked for
        order = np.arange(len(numbers))
        ordered = numbers
    else:
        near = high - low < 1 << 16  # then digits are sorted: a fraction of the time
        order = np.argsort((numbers - low).astype(np.uint16) if near else numbers, kind="stable")
        ordered = numbers[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    edges = [0, *cuts.tolist(), len(order)]
    for start, stop in itertools.pairwise(edges):
        yield int(ordered[start]), order[start:stop]


def with_newest(known: dict[K, V], key: K, value: V, most: int) -> dict[K, V]:
    """The last `most` things that were put there, this one included.

    A new mapping each time: another thread may be reading the old one.

    >>> with_newest({1: "a", 2: "b"}, 3, "c", most=2)
    {2: 'b', 3: 'c'}
    """
    return dict([*known.items()][max(0, len(known) - most + 1) :]) | {key: value}
