"""Fields of a batch that are computed on first use and kept.

One idea: a field is a method. `lazy` keeps its result. `by_row` lets each kind of rows compute its
own part and combines them, so a new array is written once, for rows of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_row", "lazy"]

Int64 = NDArray[np.int64]

Array = NDArray[Any]

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - reads like the decorator it replaces
    """An attribute that is computed on first use and kept.

    Like `functools.cached_property`, but without the lock that Python 3.11 still takes; a batch
    belongs to one thread.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class by_row(lazy[T]):  # noqa: N801
    """Like `lazy`, for an array of rows: each `Kind` computes its own rows.

    Rows that are shorter in one kind than in another are padded with -1 or False.
    """

    def __get__(self, instance: Any, owner: type) -> T:
        parts: list[tuple[Int64, Any]] = instance._parts
        if not parts:
            return super().__get__(instance, owner)
        made = [(rows, getattr(part, self._name)) for rows, part in parts]
        value = instance.__dict__[self._name] = _woven(made, len(instance))
        return cast(T, value)


def _woven(parts: Sequence[tuple[Int64, Array]], rows: int) -> Array:
    """An array [rows, …] combined from arrays of some of its rows."""
    widths, kind = {made.shape[1] for _, made in parts}, parts[0][1].dtype
    out = np.empty((rows, max(widths)), kind)
    if len(widths) > 1:
        out[:] = False if kind == np.bool_ else -1
    for where, made in parts:
        out[where, : made.shape[1]] = made
    return out
