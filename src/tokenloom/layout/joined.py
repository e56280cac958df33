"""Layouts one after the other: the existing rows, then those of appended documents.

One idea: appended documents get rows of their own, after the existing ones, cut by a layout of
their own, so no existing row changes. Rows, blocks and addresses of each part start where those of
the previous part end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tokenloom.arrays import Int64, grouped
from tokenloom.documents.line import Line
from tokenloom.layout.layout import Blocks, Epochs, Layout, Phases
from tokenloom.layout.spans import Spans


class Joined:
    """Rows of several layouts, one layout after the other.

    Args:
        parts: the layouts, in the order they were added.
        line: the documents of all parts, end to end.
    """

    is_constant: bool = True

    def __init__(self, parts: Sequence[Layout], line: Line) -> None:
        self.parts, self.line = tuple(parts), line
        first = parts[0]
        self.seq_len, self.width = first.seq_len, first.width
        self.inserted = first.inserted
        named = [f"{part.tag}/{part.line.identity}" for part in parts]
        self.tag = hashlib.sha256(repr(named).encode()).hexdigest()
        rows = [int(part.phases.rows[0]) for part in parts]
        self._row: Int64 = np.cumsum([0, *rows])
        self.phases = Phases.constant(int(self._row[-1]))
        self._address: Int64 = np.cumsum([0, *(part.line.tokens for part in parts)])
        self._blocks = [part.blocks() for part in parts]
        self._block: Int64 = np.cumsum([0, *(len(blocks) for blocks in self._blocks)])

    @property
    def row_tokens(self) -> tuple[int, int] | None:
        """Tokens of every row but the last, and of the last; None where rows differ."""
        found = {part.row_tokens for part in self.parts if int(part.phases.rows[0])}
        one = found.pop() if len(found) == 1 else None
        return one if one is not None and one[0] == one[1] else None

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie: the blocks of each part in turn."""
        edges = []
        for blocks, begin in zip(self._blocks, self._row.tolist(), strict=False):
            first, _ = blocks.edges(np.arange(len(blocks)))
            edges.append(first + begin)
        return Blocks.cut(np.unique(np.concatenate([*edges, self._row[-1:]])))  # none is empty

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block cover [N]."""
        first, last = blocks.edges(block)
        return self._edge(first, 0), self._edge(np.maximum(last - 1, first), 1)

    def _edge(self, rows: Int64, side: int) -> Int64:
        """Where on the line the block of each row starts (side 0) or ends (side 1) [N]."""
        out = np.empty_like(rows)
        for number, here in grouped(self._part(rows)):
            inner, part = self._blocks[number], self.parts[number]
            block = inner.of(np.minimum(rows[here] - self._row[number], max(0, inner.rows - 1)))
            out[here] = part.stretch(block, inner)[side] + self._address[number]
        return out

    def _part(self, rows: Int64) -> Int64:
        found: Int64 = np.searchsorted(self._row, rows, side="right") - 1
        return np.minimum(found, len(self.parts) - 1)

    def runs(self, epoch: Epochs, rows: Int64) -> None:
        """See `Layout`: the spans tell."""

    def spans(self, epoch: Epochs, rows: Int64) -> Spans:
        """The documents in each row."""
        found, places = [], []
        for number, here in grouped(self._part(rows)):
            part = self.parts[number].spans(0, rows[here] - self._row[number])
            found.append(replace(part, address=part.address + self._address[number]))
            places.append(here)
        if not found:
            return self.parts[0].spans(0, rows)
        return Spans.joined(found, places)

    def find(self, epoch: int, document: int) -> Int64:
        """See `Layout`: the rows that each part finds."""
        parts = zip(self.parts, self._row.tolist(), strict=False)
        return np.concatenate([part.find(0, document) + first for part, first in parts])

    def costs(self, epoch: Epochs, rows: Int64) -> Int64:
        """Tokens of each row [N]."""
        out = np.empty_like(rows)
        for number, here in grouped(self._part(rows)):
            out[here] = self.parts[number].costs(0, rows[here] - self._row[number])
        return out
