"""Small helpers that several rooms share: index checks, groups of numbers, a bounded cache."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Array = NDArray[Any]
Bool = NDArray[np.bool_]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]
UInt8 = NDArray[np.uint8]
FEW = 4096  # a range of up to this many numbers is counted rather than sorted
MOST = (1 << 63) - 1  # indices of an endless run are below this

K = TypeVar("K")

V = TypeVar("V")


def grouped(numbers: Int64) -> Iterator[tuple[int, Int64]]:
    """Each distinct number with the places where it occurs.

    >>> [(n, where.tolist()) for n, where in grouped(np.array([5, 3, 5]))]
    [(3, [1]), (5, [0, 2])]
    """
    if not len(numbers):
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        yield low, np.arange(len(numbers))
        return
    if (numbers[1:] >= numbers[:-1]).all():  # usual: requests for neighbours are sorted
        order = np.arange(len(numbers))
        ordered = numbers
    else:
        near = high - low < 1 << 16  # 16-bit keys are radix-sorted, which is much faster
        order = np.argsort((numbers - low).astype(np.uint16) if near else numbers, kind="stable")
        ordered = numbers[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    edges = [0, *cuts.tolist(), len(order)]
    for start, stop in itertools.pairwise(edges):
        yield int(ordered[start]), order[start:stop]


def with_newest(known: dict[K, V], key: K, value: V, most: int) -> dict[K, V]:
    """A copy of `known` with `key` added, holding only the `most` newest entries.

    It is a new mapping each time because another thread may be reading the old one.

    >>> with_newest({1: "a", 2: "b"}, 3, "c", most=2)
    {2: 'b', 3: 'c'}
    """
    return dict([*known.items()][max(0, len(known) - most + 1) :]) | {key: value}


def checked(values: Any, n: int | None, what: str) -> Int64:
    """Integers from 0 to n - 1 as int64, in the shape given; `n` None has no upper bound."""
    array = np.asarray(values)
    if array.size:
        if array.dtype.kind not in "iu":
            array = _all_integers(values, array.dtype, what)
        low, high = int(array.min()), int(array.max())
        last = (1 << 63) if n is None else n
        if low < 0 or high >= last:
            wrong = low if low < 0 else high
            allowed = f"0 to {last - 1:,}" if last else "none, it is empty"
            of = "" if n is None else f" ({n:,} in all)"
            raise IndexError(f"{what} {wrong}: out of range, allowed: {allowed}{of}.")
    return array.astype(np.int64)


def _all_integers(values: Any, found: np.dtype[Any], what: str) -> NDArray[Any]:
    """Integers that fit no NumPy type, such as [0, 2**63] or 2**70, as Python integers."""
    array = np.asarray(values, object)
    if found.kind == "O" and hasattr(values, "__index__") and not array.ndim:
        return np.asarray(operator.index(values), object)
    if found.kind not in "fO" or any(type(value) is not int for value in array.flat):
        raise TypeError(f"{what}: found {found}, allowed: integers.")
    return array


def sliced(wanted: slice, n: int | None) -> Int64:
    """The indices of a slice of n examples; like all indices, its ends are not negative.

    >>> sliced(slice(1, 9, 2), 6).tolist(), sliced(slice(None, 3), None).tolist()
    ([1, 3, 5], [0, 1, 2])
    """
    for end in (wanted.start, wanted.stop):
        if end is not None and operator.index(end) < 0:
            raise IndexError(f"index {end}: found in a slice, allowed: 0 or more.")
    backwards = wanted.step is not None and operator.index(wanted.step) < 0
    if n is None and (wanted.start if backwards else wanted.stop) is None:
        raise IndexError("slice: it has no end, and neither have the examples. Give one.")
    return np.arange(*wanted.indices(MOST if n is None else n), dtype=np.int64)


def answered(values: Any, n: int | None, what: str, answer: Callable[[Int64], Int64]) -> Int64:
    """`answer` of the checked values: it sees them flat, the result has their shape."""
    good = checked(values, n, what)
    return answer(good.reshape(-1)).reshape(good.shape) if good.size else good


def distinct(numbers: Int64) -> tuple[Int64, Int64 | None]:
    """The distinct numbers, sorted, and which of them each number is (None if all are equal)."""
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return numbers[:1], None
    if high - low > max(FEW, 4 * len(numbers)):
        present, which = np.unique(numbers, return_inverse=True)
        return present, which
    local = numbers - low
    seen = np.zeros(high - low + 1, np.bool_)
    seen[local] = True
    place = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + low, place[local]
