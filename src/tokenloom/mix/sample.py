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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenloom.errors import InputError

__all__ = ["Sample", "loss_tokens_of", "tokens_of"]

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
