"""Phases: where epochs start when not all of them have the same rows.

One idea: epochs of one kind are consecutive, so locating an index takes one search among the phases
and one division inside the phase. Most layouts have a single phase. A set of documents that grows
between epochs, or a curriculum, has several. A phase that starts at an example cuts the previous
epoch short and leaves all earlier examples unchanged.

Worked example: 10 rows per epoch, and 4 rows from example 25 on::

    example  0 … 9   10 … 19   20 … 24   25 … 28   29 … 32   …
    epoch    0       1         2 (cut)   3         4

`Reads`: what must be read for some frames, and where it goes. No documents, only addresses.

A frame has one or more stretches to read, in the order of the cells they fill; cells between them
are filler. Inserted tokens are not read: `tokenloom.batch.render` writes them from the spans.

`Layout`: the questions that every way of cutting rows answers.

One idea: a dataset asks for rows by number and never for how they are cut, so a new layout needs no
change anywhere else.

`Blocks`: where the storage-local blocks of a layout lie.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tokenloom.arguments import check_between
from tokenloom.arrays import Int64
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError
from tokenloom.layout.spans import BOS, Spans


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """Where the storage-local blocks of a layout lie; they have equal sizes or arbitrary ones.

    Attributes:
        rows: total rows.
        size: rows of every block but the last; 0 if block sizes vary.
        starts: first row of each block, then the end [blocks + 1]; empty for equal sizes.

    >>> len(Blocks.equal(1000, 128)), len(Blocks.cut([0, 3, 3, 10]))
    (8, 3)
    """

    rows: int
    size: int
    starts: Int64

    @staticmethod
    def equal(rows: int, size: int) -> Blocks:
        """Blocks of `size` rows; the last may be shorter."""
        check_between("io_block_size", size, 1)
        check_between("rows", rows, 0)
        return Blocks(rows, size, np.empty(0, np.int64))

    @staticmethod
    def cut(starts: Any) -> Blocks:
        """Blocks that start at these rows; the last number is the end."""
        edges = np.array(starts, np.int64)
        if not len(edges) or edges[0] != 0 or (edges[1:] < edges[:-1]).any():
            raise ConfigError(
                f"blocks: found starts {edges[:5].tolist()} …, allowed: from 0 on, never "
                "decreasing."
            )
        return Blocks(int(edges[-1]), 0, edges)

    def __len__(self) -> int:
        return -(-self.rows // self.size) if self.size else len(self.starts) - 1

    def of(self, rows: Int64) -> Int64:
        """The block of each row [N]."""
        if self.size:
            return rows // self.size
        return np.searchsorted(self.starts, rows, side="right") - 1

    def edges(self, blocks: Int64) -> tuple[Int64, Int64]:
        """First row of each block and the row after its last [N]."""
        if self.size:
            return blocks * self.size, np.minimum((blocks + 1) * self.size, self.rows)
        return self.starts[blocks], self.starts[blocks + 1]

    def merged(self, rows: int) -> Blocks:
        """Adjacent blocks joined until each has at least `rows` rows (the last may have fewer).

        >>> Blocks.equal(1000, 128).merged(500).size
        512
        """
        if self.size:
            return Blocks.equal(self.rows, max(1, -(-rows // self.size)) * self.size)
        kept = [0]
        for edge in self.starts[1:].tolist():
            if edge - kept[-1] >= rows:
                kept.append(edge)
        if kept[-1] != self.rows:
            kept.append(self.rows)
        return Blocks.cut(kept)


@dataclass(frozen=True, eq=False, slots=True)
class Phases:
    """Stretches of epochs with the same rows.

    Attributes:
        first: first example of each phase [phases].
        epoch: first epoch of each phase [phases].
        rows: rows per epoch of each phase [phases].
        counted_from: epoch from which a finite run counts its epochs.
    """

    first: Int64
    epoch: Int64
    rows: Int64
    counted_from: int = 0

    @staticmethod
    def constant(rows: int) -> Phases:
        """A single phase whose epochs all have `rows` rows."""
        nothing = np.zeros(1, np.int64)
        return Phases(nothing, nothing, np.array([rows], np.int64))

    @staticmethod
    def by_epoch(epochs: Sequence[int], rows: Sequence[int]) -> Phases:
        """Phases that start with these epochs, the first with epoch 0."""
        size = np.asarray(rows, np.int64)
        first = np.cumsum([0, *(np.diff(epochs) * size[:-1]).tolist()])
        return Phases(first, np.asarray(epochs, np.int64), size)

    @staticmethod
    def by_example(examples: Sequence[int], rows: Sequence[int]) -> Phases:
        """Phases that start at these examples, the first at 0; only the last one's epochs count."""
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
        return np.searchsorted(self.epoch, epoch, side="right") - 1

    def start(self, epoch: int) -> int:
        """The first example of an epoch."""
        phase = bisect.bisect_right(self.epoch, epoch) - 1 if len(self.first) > 1 else 0
        behind = epoch - int(self.epoch[phase])
        return int(self.first[phase]) + behind * int(self.rows[phase])

    def place(self, index: int) -> tuple[int, int]:
        """The epoch of an example, and how many examples of that epoch precede it."""
        phase = bisect.bisect_right(self.first, index) - 1 if len(self.first) > 1 else 0
        # an epoch may have no rows until documents are appended
        inner, rest = divmod(index - int(self.first[phase]), max(1, int(self.rows[phase])))
        return int(self.epoch[phase]) + inner, rest

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """The epoch of each example, and how many examples of that epoch precede it [N]."""
        if len(self.first) == 1:
            epoch = indices // self.rows[0]
            return epoch, indices - epoch * self.rows[0]
        phase = np.searchsorted(self.first, indices, side="right") - 1
        behind, rows = indices - self.first[phase], self.rows[phase]
        inner = behind // rows
        return self.epoch[phase] + inner, behind - inner * rows

    def end(self, epochs: int) -> int:
        """Number of examples in a run of `epochs` epochs."""
        return self.start(self.counted_from + epochs) if epochs or self.counted_from else 0


@dataclass(frozen=True, eq=False, slots=True)
class Reads:
    """Stretches of the line to read for some frames.

    Attributes:
        width: cells of a frame.
        edges: first stretch of each frame, then the number of stretches [frames + 1].
        address: position on the line of the first token of each stretch [stretches].
        length: tokens of each stretch [stretches].
        at: frame offset of the first token of each stretch [stretches].
    """

    width: int
    edges: Int64
    address: Int64
    length: Int64
    at: Int64

    @staticmethod
    def one_each(address: Int64, length: Int64, width: int) -> Reads:
        """One stretch per frame, from its first cell on."""
        edges = np.arange(len(address) + 1)
        at = np.zeros(len(address), np.int64)
        return Reads(width, edges, address, length, at)

    @staticmethod
    def of(spans: Spans) -> Reads:
        """The stretches that spans need; a span without stored tokens needs none."""
        at = spans.at + (spans.flags & BOS) if spans.flags.any() else spans.at
        keep = spans.length > 0
        if keep.all():
            return Reads(spans.width, spans.frame, spans.address, spans.length, at)
        edges = np.concatenate([[0], np.cumsum(keep)])[spans.frame]
        return Reads(spans.width, edges, spans.address[keep], spans.length[keep], at[keep])

    def frames(self, start: int, stop: int) -> Reads:
        """Only the frames [start, stop); arrays are views."""
        first, last = int(self.edges[start]), int(self.edges[stop])
        part = slice(first, last)
        return Reads(
            self.width,
            self.edges[start : stop + 1] - first,
            self.address[part],
            self.length[part],
            self.at[part],
        )


Epochs = Int64 | int  # one epoch for each row, or one for all rows


class Layout(Protocol):
    """Turns row numbers into spans.

    Rows may depend on the epoch, so every method about rows takes the epoch of each row.
    """

    line: Line
    seq_len: int
    width: int
    tag: str
    """Identifies the layout in the cache: everything that decides which tokens are in a row."""

    @property
    def inserted(self) -> tuple[int | None, int | None]:
        """Token ids inserted before and after documents without being stored: BOS, EOS."""

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""

    @property
    def row_tokens(self) -> tuple[int, int] | None:
        """Tokens of every row but the last, and of the last; None where rows differ."""

    @property
    def is_constant(self) -> bool:
        """Whether a row is the same in every epoch."""

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie in epochs of a phase."""

    def runs(self, epoch: Epochs, rows: Int64) -> Reads | None:
        """The tokens of each row, where they are known without spans; else `Reads.of` tells."""

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block cover in epochs of a phase."""

    def spans(self, epoch: Epochs, rows: Int64) -> Spans:
        """The documents in each row."""

    def find(self, epoch: int, document: int) -> Int64:
        """The rows of an epoch that hold a document of the store, ascending; the spans tell where.

        None of the others holds it; a row that holds only its neighbours may be among them.
        """

    def costs(self, epoch: Epochs, rows: Int64) -> Int64:
        """Tokens of each row."""
