"""Runs: what must be read for some frames, and where it goes. No documents, only addresses.

A frame has one run or several, in order of the cells they fill; cells between runs are filler.
Inserted tokens are no runs: they are written by `tokenloom.render` from the spans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.spans import BOS, Spans

__all__ = ["Runs"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Runs:
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
    def one_each(address: Int64, length: Int64, width: int) -> Runs:
        """One run for every frame, from its first cell on."""
        edges = np.arange(len(address) + 1)
        at = np.zeros(len(address), np.int64)
        return Runs(width, edges, address, length, at, bool((length == width).all()))

    @staticmethod
    def of(spans: Spans) -> Runs:
        """The runs of spans; spans without a token of a document give none."""
        at = spans.at + (spans.flags & BOS)
        keep = spans.length > 0
        edges = np.concatenate([[0], np.cumsum(keep)])[spans.frame]
        length = spans.length[keep]
        filled = np.concatenate([[0], np.cumsum(length)])[edges]
        full = bool((np.diff(filled) == spans.width).all())
        return Runs(spans.width, edges, spans.address[keep], length, at[keep], full)

    @property
    def single(self) -> bool:
        """Whether every frame is one run that fills it."""
        return self.full and len(self.address) == len(self.edges) - 1

    def frames(self, start: int, stop: int) -> Runs:
        """Frames [start, stop) alone; arrays are views."""
        first, last = int(self.edges[start]), int(self.edges[stop])
        part = slice(first, last)
        return Runs(
            self.width,
            self.edges[start : stop + 1] - first,
            self.address[part],
            self.length[part],
            self.at[part],
            self.full,
        )
