"""A batch with its rows in groups, for gradient accumulation.

One idea: a folded batch is its micro-batches, stacked. An array of rows gets one more axis in
front; what differs in shape from one micro-batch to the next is a list with one for each, so that
attention of variable length works on each of them; what belongs to the whole step stays as it is.
"""

from __future__ import annotations

from typing import Any

from tokenloom.batch.fields import ROWWISE
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.views.named import Named

__all__ = ["Folded"]

STACKED = frozenset({"tokens", "labels", "loss_mask", "document"})  # beside arrays by row

LISTED = frozenset({"cu_seqlens", "max_seqlen", "source", "spans", "metadata"})


class Folded(Named):
    """A batch in groups of rows.

    Args:
        whole: the batch.
        groups: micro-batches; they divide its rows.
    """

    def __init__(self, whole: Any, groups: int) -> None:
        self.whole, self.groups = whole, groups
        self.index = whole.index.reshape(groups, -1)
        self._step = whole._step

    def __reduce__(self) -> tuple[Any, ...]:
        return Folded, (self.whole, self.groups)

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(groups, B / groups, S)."""
        rows, seq_len = self.whole.shape
        return self.groups, rows // self.groups, seq_len

    @property
    def micro_batches(self) -> list[Any]:
        """Each group of rows as a batch of the same step."""
        rows = len(self.whole) // self.groups
        return [self.whole.part(k * rows, (k + 1) * rows) for k in range(self.groups)]

    @property
    def renders(self) -> list[RenderSpec]:
        """How its rows are rendered."""
        found: list[RenderSpec] = self.whole.renders
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by copy and pickle, before there is a batch
            raise AttributeError(name)
        if name in LISTED:
            return [getattr(one, name) for one in self.micro_batches]
        value = getattr(self.whole, name)
        if name not in STACKED and name not in ROWWISE:
            return value
        return value.reshape(self.groups, -1, *value.shape[1:])

    def __repr__(self) -> str:
        return f"{self.whole!r} in {self.groups} groups"
