"""Phases: where epochs begin when not all of them have the same rows.

One idea: epochs of one kind follow each other, so an index is found by one search among the phases
and one division inside. Most layouts have a single phase. A set of documents that grows between
epochs, or a curriculum, has several; a phase that begins at an example cuts the epoch before it
short, and what was before stays as it was.

Worked example: 10 rows an epoch, and from example 25 on 4 rows::

    example  0 … 9   10 … 19   20 … 24   25 … 28   29 … 32   …
    epoch    0       1         2 (cut)   3         4

Runs: what must be read for some frames, and where it goes. No documents, only addresses.

A frame has one run or several, in order of the cells they fill; cells between runs are filler.
Inserted tokens are no runs: they are written by `tokenloom.batch.render` from the spans.

`Layout`: what every way to cut rows answers.

One idea: a run asks for rows by their number and never how they are cut, so a new layout needs no
change anywhere else.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.documents.line import Line
from tokenloom.layout.blocks import Blocks
from tokenloom.layout.spans import BOS, Spans

__all__ = ["Epochs", "Layout", "Phases", "Reads"]

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


@dataclass(frozen=True, eq=False, slots=True)
class Reads:
    """Stretches of the line for some frames.

    Attributes:
        width: cells of a frame.
        edges: first run of each frame, and the number of runs [frames + 1].
        address: first token of each run [runs].
        length: its tokens [runs].
        at: frame offset of its first token [runs].
        full: whether the runs of every frame fill all its cells.
    """

    width: int
    edges: Int64
    address: Int64
    length: Int64
    at: Int64
    full: bool

    @staticmethod
    def one_each(address: Int64, length: Int64, width: int) -> Reads:
        """One run for every frame, from its first cell on."""
        edges = np.arange(len(address) + 1)
        at = np.zeros(len(address), np.int64)
        return Reads(width, edges, address, length, at, bool((length == width).all()))

    @staticmethod
    def of(spans: Spans) -> Reads:
        """The runs of spans; spans without a token of a document give none."""
        at = spans.at + (spans.flags & BOS)
        keep = spans.length > 0
        edges = np.concatenate([[0], np.cumsum(keep)])[spans.frame]
        length = spans.length[keep]
        filled = np.concatenate([[0], np.cumsum(length)])[edges]
        full = bool((np.diff(filled) == spans.width).all())
        return Reads(spans.width, edges, spans.address[keep], length, at[keep], full)

    @property
    def single(self) -> bool:
        """Whether every frame is one run that fills it."""
        return self.full and len(self.address) == len(self.edges) - 1

    def frames(self, start: int, stop: int) -> Reads:
        """Frames [start, stop) alone; arrays are views."""
        first, last = int(self.edges[start]), int(self.edges[stop])
        part = slice(first, last)
        return Reads(
            self.width,
            self.edges[start : stop + 1] - first,
            self.address[part],
            self.length[part],
            self.at[part],
            self.full,
        )


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

    def runs(self, epoch: Epochs, rows: Int64) -> Reads:
        """The tokens of each row."""

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block take in epochs of a phase."""

    def spans(self, epoch: Epochs, rows: Int64) -> Spans:
        """The documents in each row."""

    def costs(self, epoch: Epochs, rows: Int64) -> Int64:
        """Tokens of each row."""

    def warn_if_unaligned(self) -> None:
        """Say so when rows and io blocks do not fit each other."""
