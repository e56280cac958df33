"""What the first items of an order add up to, when rows have one number each, in steps.

One idea: most orders permute rows inside *stretches*: a band of blocks, an era, all rows at once.
The rows of whole stretches are known as ranges, and sums over ranges are closed. So only one
stretch is looked at, from whichever side is nearer; and if nearly all of its rows have the same
number, only the others.

Measured: 13 ns for each row that is looked at.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.splice.slots import StepSums
from tokenloom.limits import limits
from tokenloom.order.orders import Order

__all__ = ["Stretched", "sum_of_first"]

Int64 = NDArray[np.int64]


@runtime_checkable
class Stretched(Protocol):
    """An order that permutes rows inside stretches of indices."""

    def stretch(self, index: int) -> tuple[int, int]:
        """The first index of the stretch around an index, and the first of the next one."""

    def rows_before(self, index: int) -> tuple[Int64, Int64]:
        """The rows at all indices before the start of a stretch, as ranges: starts and stops."""


def sum_of_first(order: Order, steps: StepSums, count: int, most: int) -> int | None:
    """The sum of the numbers of the rows at the first `count` indices of an order.

    Args:
        order: where rows come.
        steps: their numbers.
        count: how many indices, from the first on.
        most: look at no more rows than this; None is returned if more are needed.
    """
    if not isinstance(order, Stretched):
        return None
    start, stop = order.stretch(count)
    usual, others = _usual(steps)
    near = min(count - start, stop - count)
    if min(near, others) > most:
        return None
    if others < near:
        return _sum_before(order, steps, start) + _by_others(order, steps, usual, start, count)
    if near == count - start:
        return _sum_before(order, steps, start) + _visited(order, steps, start, count)
    return _sum_before(order, steps, stop) - _visited(order, steps, count, stop)


def _sum_before(order: Stretched, steps: StepSums, index: int) -> int:
    starts, stops = order.rows_before(index)
    return int((steps.upto(stops) - steps.upto(starts)).sum())


def _usual(steps: StepSums) -> tuple[int, int]:
    """The number that most rows have, and how many rows have another one."""
    values, which = np.unique(steps.value, return_inverse=True)
    rows = np.bincount(which, np.diff(steps.edges)).astype(np.int64)
    return int(values[rows.argmax()]), int(rows.sum() - rows.max())


def _visited(order: Order, steps: StepSums, first: int, last: int) -> int:
    """The sum over indices [first, last), each looked at."""
    chunk = limits().cost_chunk_items
    listed = None
    if last - first > chunk and steps.edges[-1] <= limits().listed_cost_rows:
        kind = np.min_scalar_type(int(steps.value.max()))
        listed = np.repeat(steps.value.astype(kind), np.diff(steps.edges))
    total = 0
    for low in range(first, last, chunk):
        rows = order.map(np.arange(low, min(low + chunk, last)))
        found = steps.at(rows) if listed is None else listed[rows]
        total += int(found.sum(dtype=np.int64))
    return total


def _by_others(order: Order, steps: StepSums, usual: int, first: int, last: int) -> int:
    """The same where nearly all rows have the usual number: only the others are looked at."""
    chunk = limits().cost_chunk_items
    other = np.flatnonzero(steps.value != usual)
    size = np.diff(steps.edges)[other]
    total, ends = usual * (last - first), np.cumsum(size)
    cuts = np.searchsorted(ends, np.arange(chunk, (ends[-1] if len(ends) else 0), chunk))
    for some in np.split(np.arange(len(other)), cuts):
        rows = np.repeat(steps.edges[other[some]], size[some])
        begins = np.cumsum(size[some]) - size[some]
        rows += np.arange(len(rows)) - np.repeat(begins, size[some])
        index = order.inverse(rows)
        shown = (index >= first) & (index < last)
        differs = np.repeat(steps.value[other[some]] - usual, size[some])
        total += int(differs[shown].sum())
    return total
