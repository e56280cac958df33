"""Samples as plain JSON and back: what a state must hold of a source that cannot be read again.

One idea: what JSON has is itself; arrays and tuples are objects whose first key says so, so that a
sample comes back as it was, types included. Everything else is refused by name: a state never runs
code and never loses a part of a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["revived", "to_plain"]

ARRAY, TUPLE = "$array", "$tuple"


def to_plain(value: Any) -> Any:
    """A sample as JSON.

    >>> to_plain({"input_ids": np.array([5, 6], np.int32), "ends": (True, None)})
    {'input_ids': {'$array': [5, 6], 'dtype': '<i4', 'shape': [2]},
     'ends': {'$tuple': [True, None]}}

    Raises:
        TypeError: a part of it has a type that JSON cannot hold.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biu":
        return {ARRAY: value.ravel().tolist(), "dtype": value.dtype.str, "shape": [*value.shape]}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f":
        # as the bits of integers: exact, and NaN is no JSON
        bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
        return {ARRAY: bits.ravel().tolist(), "dtype": value.dtype.str, "shape": [*value.shape]}
    if type(value) is list:
        return [to_plain(each) for each in value]
    if type(value) is tuple:
        return {TUPLE: [to_plain(each) for each in value]}
    if type(value) is dict and all(type(k) is str and not k.startswith("$") for k in value):
        return {key: to_plain(each) for key, each in value.items()}
    raise TypeError(f"{type(value).__name__} is no JSON")


def revived(value: Any) -> Any:
    """What `to_plain` was given.

    Raises:
        ValueError: it is not what `to_plain` gives.
    """
    if type(value) is list:
        return [revived(each) for each in value]
    if type(value) is not dict:
        return value
    for key, revive in _TAGGED.items():
        if key in value:
            try:
                return revive(value)
            except (KeyError, TypeError, OverflowError) as error:
                raise ValueError(f"a damaged {key} ({error})") from None
    return {key: revived(each) for key, each in value.items()}


def _array(value: dict[str, Any]) -> Any:
    dtype, shape = np.dtype(value["dtype"]), tuple(value["shape"])
    if dtype.kind not in "biuf" or not all(type(n) is int and n >= 0 for n in shape):
        raise TypeError("neither numbers nor truth values")
    stored = np.dtype(f"{dtype.str[0]}u{dtype.itemsize}") if dtype.kind == "f" else dtype
    cells = value[ARRAY]
    if type(cells) is not list or not set(map(type, cells)) <= {int, bool}:
        raise TypeError("cells that are no integers")
    return np.array(cells, stored).view(dtype).reshape(shape)[()]


def _tuple(value: dict[str, Any]) -> Any:
    return tuple(revived(each) for each in value[TUPLE])


_TAGGED: dict[str, Callable[[dict[str, Any]], Any]] = {ARRAY: _array, TUPLE: _tuple}
