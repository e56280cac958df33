"""Fields of a batch that are computed on first use and kept.

One idea: a field is a method. `tokenloom.store.handles.lazy` keeps its result. `by_row` lets each
kind of rows compute its own part and combines them, so a new array is written once, for rows of one
kind. It registers the name, so that loaders, mappings and micro-batches know the array, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tokenloom.store.handles import lazy

__all__ = ["ROWWISE", "by_row"]

Int64 = NDArray[np.int64]

Array = NDArray[Any]

T = TypeVar("T")

ROWWISE: dict[str, None] = {}  # names of public arrays of rows, in the order of their definition


class by_row(lazy[T]):  # noqa: N801
    """Like `lazy`, for an array of rows: each `Kind` computes its own rows.

    Rows that are shorter in one kind than in another are padded with -1 or False.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        if not name.startswith("_"):
            ROWWISE[name] = None

    def compute(self, instance: Any) -> T:
        """The array of all rows."""
        parts: list[tuple[Int64, Any]] = instance._parts
        if not parts:
            return super().compute(instance)
        made = [(rows, getattr(part, self._name)) for rows, part in parts]
        return cast(T, _woven(made, len(instance)))


def _woven(parts: Sequence[tuple[Int64, Array]], rows: int) -> Array:
    """An array [rows, …] combined from arrays of some of its rows."""
    widths, kind = {made.shape[1] for _, made in parts}, parts[0][1].dtype
    out = np.empty((rows, max(widths)), kind)
    if len(widths) > 1:
        out[:] = False if kind == np.bool_ else -1
    for where, made in parts:
        out[where, : made.shape[1]] = made
    return out
