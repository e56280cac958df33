"""One sample of a stream, and how many tokens it has.

One idea: tokens are the input tokens of the row that is emitted, without filler: T of them, not the
T - 1 that are targets, which `loss_tokens_of` counts. The sample is never converted and never
copied: a NumPy array, a torch tensor and a list are all asked in their own way.

========================================  ======================
a sample with                             has as many tokens as
========================================  ======================
`attention_mask`, or else `segment_ids`   cells that are not 0
`input_ids`, or else token ids alone      cells
========================================  ======================

Samples as plain JSON and back: what a state must hold of a source that cannot be read again.

One idea: what JSON has is itself; arrays and tuples are objects whose first key says so, so that a
sample comes back as it was, types included. Everything else is refused by name: a state never runs
code and never loses a part of a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.errors import InputError

__all__ = ["Sample", "loss_tokens_of", "revived", "to_plain", "tokens_of"]

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

IGNORED = -100  # the label of what is not trained


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One sample of a mixed stream.

    Attributes:
        source: the name of its source.
        value: what the source gave.
        tokens: how many it has.
        index: number of the pick, over all ranks.
        epoch: which pass over the source, from 0.
        row: which sample of that pass, from 0.
    """

    source: str
    value: Any
    tokens: int
    index: int
    epoch: int
    row: int


def tokens_of(sample: Any) -> int:
    """Input tokens of a sample that are not filler.

    >>> tokens_of({"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 1, 0]})
    3
    >>> tokens_of([5, 6, 7])
    3
    """
    if isinstance(sample, Sample):
        return sample.tokens
    for name in ("attention_mask", "segment_ids"):
        mask = _field(sample, name)
        if mask is not None:
            return _differing(mask, 0)
    ids = _field(sample, "input_ids")
    if ids is None:
        ids = sample
    if isinstance(ids, (str, bytes, Mapping)) or not hasattr(ids, "__len__"):
        raise InputError(
            f"its tokens cannot be counted: found {_kind(sample)}, allowed is a mapping or an "
            "object with attention_mask, segment_ids or input_ids, or token ids. Pass length=, a "
            "function of a sample."
        )
    return _cells(ids)


def loss_tokens_of(sample: Any) -> int:
    """Cells of a sample that are trained: where `loss_mask` is not 0, or `labels` are not -100.

    >>> loss_tokens_of({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]})
    2
    """
    inner = sample.value if isinstance(sample, Sample) else sample
    mask = _field(inner, "loss_mask")
    if mask is not None:
        return _differing(mask, 0)
    labels = _field(inner, "labels")
    if labels is None:
        raise InputError(
            f"its loss tokens cannot be counted: found {_kind(inner)}, allowed is what has "
            "loss_mask or labels. Pass cost=, a function of a sample."
        )
    return _differing(labels, IGNORED)


def _field(sample: Any, name: str) -> Any:
    return sample.get(name) if isinstance(sample, Mapping) else getattr(sample, name, None)


def _kind(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return f"a mapping with {', '.join(map(str, sample)) or 'nothing'}"
    return type(sample).__name__


def _differing(cells: Any, value: int) -> int:
    """How many cells are not this value."""
    if isinstance(cells, (list, tuple)):
        if cells and hasattr(cells[0], "__len__"):
            return sum(_differing(row, value) for row in cells)
        return len(cells) - cells.count(value)
    return int((cells != value).sum())


def _cells(ids: Any) -> int:
    if isinstance(ids, (list, tuple)) and ids and hasattr(ids[0], "__len__"):
        return sum(map(_cells, ids))
    return math.prod(ids.shape) if hasattr(ids, "shape") else len(ids)
