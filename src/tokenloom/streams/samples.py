"""One sample of a stream: how many tokens it has, and how it is written as JSON.

One idea: tokens are the input tokens of the row, without filler: T of them, not the T - 1 targets,
which `loss_tokens_of` counts. The sample is never converted and never copied: NumPy arrays, torch
tensors and lists are each counted in their own way.

========================================  ======================
a sample with                             has as many tokens as
========================================  ======================
`attention_mask`, or else `segment_ids`   cells that are not 0
`input_ids`, or else token ids alone      cells
========================================  ======================

If a source cannot be read again, a state must hold its samples as plain JSON. JSON types are
written as they are; arrays and tuples become objects marked by their first key, so that a sample is
restored exactly, including types. Everything else is refused: a state never runs code and never
loses a part of a sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.errors import InputError

ARRAY, TUPLE = "$array", "$tuple"


def to_plain(value: Any) -> Any:
    """A sample as JSON.

    >>> to_plain({"input_ids": np.array([5, 6], np.int32), "ends": (True, None)})
    {'input_ids': {'$array': [5, 6], 'dtype': '<i4', 'shape': [2]},
     'ends': {'$tuple': [True, None]}}

    Raises:
        TypeError: a part of it has a type that JSON cannot represent.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biu":
        return {ARRAY: value.ravel().tolist(), "dtype": value.dtype.str, "shape": [*value.shape]}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f":
        # bits as integers: exact, and NaN is not JSON
        bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
        return {ARRAY: bits.ravel().tolist(), "dtype": value.dtype.str, "shape": [*value.shape]}
    if type(value) is list:
        return [to_plain(each) for each in value]
    if type(value) is tuple:
        return {TUPLE: [to_plain(each) for each in value]}
    if type(value) is dict and all(type(k) is str and not k.startswith("$") for k in value):
        return {key: to_plain(each) for key, each in value.items()}
    raise TypeError(f"{type(value).__name__} is not JSON")


def revived(value: Any) -> Any:
    """The inverse of `to_plain`."""
    if type(value) is list:
        return [revived(each) for each in value]
    if type(value) is not dict:
        return value
    if TUPLE in value:
        return tuple(revived(each) for each in value[TUPLE])
    if ARRAY in value:
        dtype = np.dtype(value["dtype"])
        stored = np.dtype(f"{dtype.str[0]}u{dtype.itemsize}") if dtype.kind == "f" else dtype
        return np.array(value[ARRAY], stored).view(dtype).reshape(value["shape"])[()]
    return {key: revived(each) for key, each in value.items()}


IGNORED = -100  # the label of a cell that is not trained


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One sample of a mixed stream.

    Attributes:
        source: the name of its source.
        value: the sample as the source gave it.
        tokens: the number of its tokens.
        index: the number of the pick, over all ranks.
        epoch: the number of the pass over the source, from 0.
        row: the number of the sample in that pass, from 0.
    """

    source: str
    value: Any
    tokens: int
    index: int
    epoch: int
    row: int


def tokens_of(sample: Any) -> int:
    """The number of input tokens of a sample that are not filler.

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
            f"its tokens cannot be counted: found {_kind(sample)}, allowed: a mapping or an "
            "object with attention_mask, segment_ids or input_ids, or token ids. Pass length=, a "
            "function of a sample."
        )
    return _cells(ids)


def loss_tokens_of(sample: Any) -> int:
    """The number of trained cells of a sample: `loss_mask` is not 0, or `labels` are not -100.

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
            f"its loss tokens cannot be counted: found {_kind(inner)}, allowed: a sample "
            "with loss_mask or labels. Pass cost=, a function of a sample."
        )
    return _differing(labels, IGNORED)


def _field(sample: Any, name: str) -> Any:
    return sample.get(name) if isinstance(sample, Mapping) else getattr(sample, name, None)


def _kind(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return f"a mapping with {', '.join(map(str, sample)) or 'nothing'}"
    return type(sample).__name__


def _differing(cells: Any, value: int) -> int:
    """The number of cells that differ from `value`."""
    if isinstance(cells, (list, tuple)):
        if cells and hasattr(cells[0], "__len__"):
            return sum(_differing(row, value) for row in cells)
        return len(cells) - cells.count(value)
    return int((cells != value).sum())


def _cells(ids: Any) -> int:
    if isinstance(ids, (list, tuple)) and ids and hasattr(ids[0], "__len__"):
        return sum(map(_cells, ids))
    return math.prod(ids.shape) if hasattr(ids, "shape") else len(ids)
