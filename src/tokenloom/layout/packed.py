"""`Packed`: rows of packed documents by their number.

One idea: row i belongs to one group; the plan of that group says which documents stand in it. Plans
are kept while they are used, so rows that lie together cost one plan.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped
from tokenloom.layout.groups import Groups, group_rows, groups_of, tokens_of
from tokenloom.layout.pack import PackSpec
from tokenloom.layout.phases import Phases
from tokenloom.layout.runs import Runs
from tokenloom.line import Line
from tokenloom.order import Blocks
from tokenloom.spans import Spans

__all__ = ["Packed"]

Int64 = NDArray[np.int64]
KEPT_PIECES = 4_000_000  # of all plans that are kept: some 200 MB


class Packed:
    """Packed documents of a line.

    Args:
        spec: how to pack.
        line: what to pack.
    """

    def __init__(self, spec: PackSpec, line: Line) -> None:
        self.spec, self.line = spec, line
        self.seq_len, self.width = spec.seq_len, spec.width
        self.inserted: tuple[int | None, int | None] = spec.bos_id, spec.eos_id
        self.tag = f"{spec}"
        self.groups: Groups = groups_of(line, spec)
        self._plans: OrderedDict[int, Spans] = OrderedDict()
        self._pieces = 0
        self._lock = threading.Lock()

    row_tokens: tuple[int, int] | None = None

    is_constant: bool = True

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs have as many tokens."""
        return True

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""
        return Phases.constant(int(self.groups.first_row[-1]))

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie: every group is one."""
        return Blocks.cut(self.groups.first_row)

    def warn_if_unaligned(self) -> None:
        """Groups end with documents, so there is nothing to say."""

    def runs(self, epoch: Int64 | int, rows: Int64) -> Runs:
        """The tokens of each row."""
        return Runs.of(self.spans(epoch, rows))

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block take [N]."""
        first, last = blocks.edges(block)
        low = self._group_of(first)
        high = np.where(last > first, self._group_of(np.maximum(last - 1, 0)) + 1, low)
        return self.groups.address[low], self.groups.address[high]

    def spans(self, epoch: Int64 | int, rows: Int64) -> Spans:
        """The documents in each row."""
        group = self._group_of(rows)
        parts, places = [], []
        for number, here in grouped(group):
            parts.append(self._plan(number).take(rows[here] - self.groups.first_row[number]))
            places.append(here)
        if not parts:
            return Spans.none(self.width)
        if len(parts) == 1:
            return parts[0]  # `grouped` keeps the order of what it puts together
        return Spans.joined(parts, places)

    def costs(self, epoch: Int64 | int, rows: Int64) -> Int64:
        """Source tokens of each row that stand in its frame [N]."""
        return self._tokens[rows].astype(np.int64)

    @functools.cached_property
    def _tokens(self) -> NDArray[Any]:
        return tokens_of(self.line, self.spec, self.groups)

    def _group_of(self, rows: Int64) -> Int64:
        """The group of each row [N]; groups without rows have none."""
        last = max(0, len(self.groups) - 1)
        found = np.searchsorted(self.groups.first_row, rows, side="right") - 1
        return np.minimum(found, last)

    def _plan(self, number: int) -> Spans:
        with self._lock:
            known = self._plans.get(number)
            if known is not None:
                self._plans.move_to_end(number)
                return known
        made = self._spans_of(number)
        with self._lock:
            if number not in self._plans:
                self._plans[number] = made
                self._pieces += len(made.document)
            while self._pieces > KEPT_PIECES and len(self._plans) > 1:
                _, old = self._plans.popitem(last=False)
                self._pieces -= len(old.document)
        return made

    def _spans_of(self, number: int) -> Spans:
        documents, begin, rows = group_rows(self.line, self.spec, self.groups, number)
        pieces = rows.pieces
        return Spans(
            width=self.width,
            frame=rows.edges,
            document=documents[pieces.document],
            start=pieces.start,
            length=pieces.length,
            at=rows.at,
            address=begin[pieces.document] + pieces.start,
            flags=pieces.flags,
            seen=pieces.seen,
            source=np.zeros(len(rows), np.int32),
        )
