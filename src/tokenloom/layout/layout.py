"""`Layout`: what every way to cut rows answers.

One idea: a run asks for rows by their number and never how they are cut, so a new layout needs no
change anywhere else.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.phases import Phases
from tokenloom.layout.runs import Runs
from tokenloom.line import Line
from tokenloom.order import Blocks
from tokenloom.spans import Spans

__all__ = ["Epochs", "Layout"]

Int64 = NDArray[np.int64]
Epochs = Int64 | int  # of each row, or one for all of them


class Layout(Protocol):
    """What turns rows into spans.

    Rows may depend on the epoch, so every question about rows names the epoch of each.
    """

    line: Line
    seq_len: int
    width: int
    tag: str
    """Names the layout in the cache: everything that decides which tokens are in a row."""

    @property
    def inserted(self) -> tuple[int | None, int | None]:
        """Tokens that stand before and behind documents without being stored: BOS, EOS."""

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""

    @property
    def row_tokens(self) -> tuple[int, int] | None:
        """Tokens of every row but the last, and of the last; None where each has its own."""

    @property
    def is_constant(self) -> bool:
        """Whether a row is the same in every epoch."""

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs of that epoch's phase have as many tokens."""

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie in epochs of a phase."""

    def runs(self, epoch: Epochs, rows: Int64) -> Runs:
        """The tokens of each row."""

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block take in epochs of a phase."""

    def spans(self, epoch: Epochs, rows: Int64) -> Spans:
        """The documents in each row."""

    def costs(self, epoch: Epochs, rows: Int64) -> Int64:
        """Tokens of each row."""

    def warn_if_unaligned(self) -> None:
        """Say so when rows and io blocks do not fit each other."""
