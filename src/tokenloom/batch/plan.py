"""Plans: which frames come from where, worked out for thousands of examples at a time.

One idea: everything that is arithmetic (order, runs, which block a row stands in) is done before
any token is read, and kept until the examples are made.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch import tiles as masks
from tokenloom.layout.layout import Reads
from tokenloom.layout.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.order.run import SourceRun

__all__ = ["Blanks", "Plan", "Planned", "Tiled", "blank_rows"]

Int64 = NDArray[np.int64]

LOOKED_AT, TOGETHER = 1 << 22, 1 << 16  # rows that are searched for blank ones, and at a time


class Planned(Protocol):
    """Some examples, before any token is read; as a `Plan`, or of several sources."""

    @property
    def indices(self) -> Int64:
        """Their indices [N]."""

    @property
    def width(self) -> int:
        """Cells of a frame."""

    @property
    def spans(self) -> Spans:
        """The spans of all of them."""

    def tiles(self, width: int) -> masks.Tiles:
        """The cells of all of them, as tiles."""

    @property
    def inserts(self) -> bool:
        """Whether some tokens of the frames are not stored: BOS and EOS."""

    def inserted(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """Inserted tokens of some examples: cells, counted from their first one, and ids."""


class Blanks(NamedTuple):
    """Documents that are not shown any more.

    Attributes:
        document: their numbers, ascending [N].
        since: the index from which on each is left out [N].
    """

    document: Int64
    since: Int64

    def hide(self, spans: Spans, indices: Int64) -> Spans:
        """The spans without theirs; the cells become filler."""
        place = np.minimum(np.searchsorted(self.document, spans.document), len(self.document) - 1)
        known = self.document[place] == spans.document
        return spans.where(~(known & (indices[spans.row] >= self.since[place])))


class Tiled(ABC):
    """The cells of some examples as tiles, worked out once for each width."""

    @property
    @abstractmethod
    def spans(self) -> Spans:
        """The spans of all of them."""

    def tiles(self, width: int) -> masks.Tiles:
        """The cells of all of them, as tiles."""
        known = self._tiles.get(width)
        if known is None:
            known = self._tiles[width] = masks.tile(self.spans, width)
        return known

    @functools.cached_property
    def _tiles(self) -> dict[int, masks.Tiles]:
        return {}


@dataclass(frozen=True, eq=False)
class Plan(Tiled):
    """Some examples of a run, before any token is read.

    Attributes:
        indices: their indices [N].
        epoch, row: where they stand in the layout [N].
        run: what they are of.
        blanks: documents that are left out, and in `since` from which index on.
    """

    indices: Int64
    epoch: Int64
    row: Int64
    run: SourceRun
    blanks: Blanks | None = None

    @property
    def width(self) -> int:
        """Cells of a frame."""
        return self.run.layout.width

    @functools.cached_property
    def runs(self) -> Reads:
        """What to read for them."""
        if self.blanks is not None:
            return Reads.of(self.spans)
        return self.run.layout.runs(self.epoch, self.row)

    @functools.cached_property
    def spans(self) -> Spans:
        """The spans of all of them."""
        spans = self.run.layout.spans(self.epoch, self.row).named(self.run.name)
        return spans if self.blanks is None else self.blanks.hide(spans, self.indices)

    @property
    def inserts(self) -> bool:
        """Whether some tokens of the frames are not stored: BOS and EOS."""
        return self.run.layout.inserted != (None, None)

    def inserted(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """Inserted tokens of some examples: cells, counted from their first one, and ids."""
        cell, token = self._inserted
        low, high = np.searchsorted(cell, (start * self.width, stop * self.width)).tolist()
        return cell[low:high] - start * self.width, token[low:high]

    @functools.cached_property
    def _inserted(self) -> tuple[Int64, Int64]:
        spans, (bos, eos) = self.spans, self.run.layout.inserted
        first = spans.row * spans.width + spans.at
        begins, ends = (spans.flags & BOS) > 0, (spans.flags & EOS) > 0
        before = (spans.flags & EOS_BEFORE) > 0
        cells = first[begins], (first + spans.cells - 1)[ends], (first - 1)[before]
        ids = [
            np.full(len(some), token or 0)
            for some, token in zip(cells, (bos, eos, eos), strict=True)
        ]
        cell = np.concatenate(cells)
        order = np.argsort(cell)
        return cell[order], np.concatenate(ids)[order]

    @functools.cached_property
    def block(self) -> Int64:
        """The io block of each example [N]."""
        return self.run.block_of(self.epoch, self.row)


def blank_rows(run: SourceRun, blanks: Blanks) -> tuple[int, int]:
    """Rows that consist of hidden documents alone, and how many rows were looked at."""
    looked, found = min(run.rows, LOOKED_AT), 0
    last = int(run.phases.epoch[-1])
    for low in range(0, looked, TOGETHER):
        spans = run.layout.spans(last, np.arange(low, min(low + TOGETHER, looked)))
        hidden = np.isin(spans.document, blanks.document)
        sums = np.concatenate([[0], np.cumsum(~hidden)])[spans.frame]
        found += int(((np.diff(sums) == 0) & (np.diff(spans.frame) > 0)).sum())
    return found, looked
