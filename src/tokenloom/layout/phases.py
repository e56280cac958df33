"""Phases: where epochs begin when not all of them have the same rows.

One idea: epochs of one kind follow each other, so an index is found by one search among the phases
and one division inside. Most layouts have a single phase. A set of documents that grows between
epochs, or a curriculum, has several; a phase that begins at an example cuts the epoch before it
short, and what was before stays as it was.

Worked example: 10 rows an epoch, and from example 25 on 4 rows::

    example  0 … 9   10 … 19   20 … 24   25 … 28   29 … 32   …
    epoch    0       1         2 (cut)   3         4
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Phases"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Phases:
    """Stretches of epochs with the same rows.

    Attributes:
        first: the first example of each phase [phases].
        epoch: its first epoch [phases].
        rows: the rows of its epochs [phases].
        counted_from: the epoch from which the epochs of a finite run are counted.
    """

    first: Int64
    epoch: Int64
    rows: Int64
    counted_from: int = 0

    @staticmethod
    def constant(rows: int) -> Phases:
        """Every epoch has these rows."""
        nothing = np.zeros(1, np.int64)
        return Phases(nothing, nothing, np.array([rows], np.int64))

    @staticmethod
    def by_epoch(epochs: Sequence[int], rows: Sequence[int]) -> Phases:
        """Phases that begin with these epochs, the first with epoch 0."""
        size = np.asarray(rows, np.int64)
        first = np.cumsum([0, *(np.diff(epochs) * size[:-1]).tolist()])
        return Phases(first, np.asarray(epochs, np.int64), size)

    @staticmethod
    def by_example(examples: Sequence[int], rows: Sequence[int]) -> Phases:
        """Phases that begin at these examples, the first at 0; epochs are those of the last."""
        size = np.asarray(rows, np.int64)
        spent = -(-np.diff(examples) // np.maximum(size[:-1], 1))
        epoch = np.cumsum([0, *spent.tolist()])
        return Phases(np.asarray(examples, np.int64), epoch, size, int(epoch[-1]))

    def __len__(self) -> int:
        return len(self.first)

    def of(self, epoch: Int64 | int) -> Int64:
        """The phase of each epoch."""
        if len(self.first) == 1:
            return np.zeros_like(epoch)
        found: Int64 = np.searchsorted(self.epoch, epoch, side="right") - 1
        return found

    def start(self, epoch: int) -> int:
        """The first example of an epoch."""
        phase = bisect.bisect_right(self.epoch, epoch) - 1 if len(self.first) > 1 else 0
        behind = epoch - int(self.epoch[phase])
        return int(self.first[phase]) + behind * int(self.rows[phase])

    def place(self, index: int) -> tuple[int, int]:
        """The epoch of an example, and how many of the epoch are before it."""
        phase = bisect.bisect_right(self.first, index) - 1 if len(self.first) > 1 else 0
        inner, rest = divmod(index - int(self.first[phase]), int(self.rows[phase]))
        return int(self.epoch[phase]) + inner, rest

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """The epoch of each example, and how many of the epoch are before it [N]."""
        if len(self.first) == 1:
            epoch = indices // self.rows[0]
            return epoch, indices - epoch * self.rows[0]
        phase = np.searchsorted(self.first, indices, side="right") - 1
        behind, rows = indices - self.first[phase], self.rows[phase]
        inner = behind // rows
        return self.epoch[phase] + inner, behind - inner * rows

    def end(self, epochs: int) -> int:
        """Examples of a run of so many epochs."""
        return self.start(self.counted_from + epochs) if epochs or self.counted_from else 0
