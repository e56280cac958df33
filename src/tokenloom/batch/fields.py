"""Fields of a batch that are made when they are first asked for, and kept.

One idea: a field is a method. `lazy` keeps what it gives; `by_row` lets each kind of rows make its
own and puts them together, so whoever adds an array writes it once, for rows of one kind.
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
    """An attribute that is computed when first asked for and kept.

    As `functools.cached_property`, without the lock that it still takes in Python 3.11; a batch
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
    """The same for an array of rows, which each `Kind` makes for its own.

    Rows that are shorter in one kind than in another are padded with -1, or False.
    """

    def __get__(self, instance: Any, owner: type) -> T:
        parts: list[tuple[Int64, Any]] = instance._parts
        if not parts:
            return super().__get__(instance, owner)
        made = [(rows, getattr(part, self._name)) for rows, part in parts]
        value = instance.__dict__[self._name] = _woven(made, len(instance))
        return cast(T, value)


def _woven(parts: Sequence[tuple[Int64, Array]], rows: int) -> Array:
    """An array [rows, …] from parts of its rows."""
    widths, kind = {made.shape[1] for _, made in parts}, parts[0][1].dtype
    out = np.empty((rows, max(widths)), kind)
    if len(widths) > 1:
        out[:] = False if kind == np.bool_ else -1
    for where, made in parts:
        out[where, : made.shape[1]] = made
    return out
