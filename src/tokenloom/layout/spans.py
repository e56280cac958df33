"""Spans: which stretch of which document goes where in which frame.

One idea: everything about an example except its token ids follows from its spans, so boundaries are
never guessed from token values. `Spans` is a struct of arrays over many frames in CSR form: frame f
has spans ``frame[f]`` to ``frame[f + 1]``.

Worked example: documents 4 (5 tokens) and 7 (9 tokens) in a frame of 8 cells, the last one filler::

    span   document  start  length  at        cell   0 1 2 3 4 5 6 7
    0      4         2      3       0         holds  c d e a b c d .
    1      7         0      4       3

Laws (`check`): spans of a frame are in order of `at` and do not overlap; each has at least one cell
and lies inside the frame; `start` and `length` are inside the document.

The *width* of a frame is its number of cells: `seq_len`, or one more where the last cell is only a
label. Inserted BOS and EOS belong to their span: they are cells before and after its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError

SHOWN = 12  # spans

BOS, EOS, GOES_ON, JOINED, EOS_BEFORE = 1, 2, 4, 8, 16  # bits of `Spans.flags`


@dataclass(frozen=True, eq=False, slots=True, kw_only=True, repr=False)
class Spans:
    """Spans of some frames.

    Attributes:
        width: cells of every frame.
        frame: first span of each frame, then the number of spans [frames + 1].
        document: index of the document in its store [spans].
        start: document offset of the first token [spans].
        length: tokens taken from the document [spans].
        at: frame offset of the first cell, including an inserted BOS [spans].
        address: position of the first token on the line that is cut (`documents.line`) [spans].
        flags: `BOS`: one comes before the tokens; `EOS`: one comes after them; `GOES_ON`: continues
            a document of which an earlier frame has only the BOS; `JOINED`: forms one segment with
            the previous span; `EOS_BEFORE`: the filler cell before it holds an EOS [spans].
        seen: leading cells that repeat an earlier span and are not trained again [spans].
        source: index into `sources` of each frame [frames].
        sources: names of the sources.
    """

    width: int
    frame: Int64
    document: Int64
    start: Int64
    length: Int64
    at: Int64
    address: Int64
    flags: NDArray[np.uint8]
    seen: Int64
    source: NDArray[np.int32]
    sources: tuple[str, ...] = ("main",)

    @staticmethod
    def none(width: int) -> Spans:
        """Spans of zero frames."""
        nothing = np.empty(0, np.int64)
        return Spans(
            width=width,
            frame=np.zeros(1, np.int64),
            document=nothing,
            start=nothing,
            length=nothing,
            at=nothing,
            address=nothing,
            flags=np.empty(0, np.uint8),
            seen=nothing,
            source=np.empty(0, np.int32),
        )

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.frame) - 1

    def __repr__(self) -> str:
        """The first spans as a table; cells that no span covers are filler."""
        head = f"{len(self)} frames of {self.width} cells, {len(self.document)} spans"
        names = ("frame", "document", "start", "length", "at", "flags")
        columns = (self.row, self.document, self.start, self.length, self.at, self.flags)
        shown = zip(*(column[:SHOWN].tolist() for column in columns), strict=True)
        lines = ["  ".join(f"{one:>8}" for one in line) for line in (names, *shown)]
        if len(self.document) > SHOWN:
            lines.append(f"{'…':>8}")
        return "\n".join([f"Spans: {head}", *lines])

    @property
    def cells(self) -> Int64:
        """Cells that each span takes, including inserted tokens [spans]."""
        inserted = (self.flags & BOS) + ((self.flags & EOS) >> 1)
        return self.length + inserted.astype(np.int64)

    @property
    def continues(self) -> NDArray[np.bool_]:
        """Whether each span continues a document that started in an earlier frame [spans]."""
        return (self.start > 0) | ((self.flags & GOES_ON) != 0)

    @property
    def row(self) -> Int64:
        """The frame of each span [spans]."""
        return np.repeat(np.arange(len(self)), np.diff(self.frame))

    def frames(self, start: int, stop: int) -> Spans:
        """Only the frames [start, stop); arrays are views."""
        first, last = int(self.frame[start]), int(self.frame[stop])
        edges = self.frame[start : stop + 1] - first
        return self._picked(slice(first, last), edges, self.source[start:stop])

    def take(self, frames: Int64) -> Spans:
        """The given frames, in this order; a repeated number repeats its frame."""
        counts = np.diff(self.frame)[frames]
        edges = np.concatenate([[0], np.cumsum(counts)])
        # span k of the result: its frame's first span, plus how far k is past it
        part = np.repeat(self.frame[frames] - edges[:-1], counts) + np.arange(edges[-1])
        return self._picked(part, edges, self.source[frames])

    def where(self, keep: NDArray[np.bool_]) -> Spans:
        """A copy with the same frames but only the spans to keep."""
        edges = np.concatenate([[0], np.cumsum(keep)])[self.frame]
        return self._picked(np.flatnonzero(keep), edges, self.source)

    def _picked(self, part: slice | Int64, frame: Int64, source: NDArray[np.int32]) -> Spans:
        return replace(
            self,
            frame=frame,
            document=self.document[part],
            start=self.start[part],
            length=self.length[part],
            at=self.at[part],
            address=self.address[part],
            flags=self.flags[part],
            seen=self.seen[part],
            source=source,
        )

    @staticmethod
    def joined(parts: Sequence[Spans], places: Sequence[Int64] | None = None) -> Spans:
        """The frames of several parts, which must have the same width and sources.

        Args:
            parts: the frames of each part.
            places: where the frames of each part go; default: one part after the other.
        """
        if places is not None:
            place = np.concatenate(places)
            back = np.empty_like(place)
            back[place] = np.arange(len(place))
            return Spans.joined(parts).take(back)
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(len(part.document) for part in parts)]).tolist()
        edges = [part.frame[:-1] + first for part, first in zip(parts, before, strict=False)]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("document", "start", "length", "at", "address", "flags", "seen", "source")
        }
        return replace(parts[0], frame=np.concatenate([*edges, before[-1:]]), **columns)

    def padded(self, frames: int) -> Spans:
        """A copy with `frames` empty frames appended."""
        return replace(
            self,
            frame=np.append(self.frame, np.full(frames, self.frame[-1])),
            source=np.append(self.source, np.zeros(frames, np.int32)),
        )

    def of_sources(self, source: NDArray[np.int32], names: tuple[str, ...]) -> Spans:
        """A copy with other sources: an index into `names` for each frame."""
        return replace(self, source=source, sources=names)

    def named(self, source: str) -> Spans:
        """A copy whose frames all belong to one source."""
        return replace(self, sources=(source,), source=np.zeros(len(self), np.int32))

    def check(self) -> None:
        """Raise a ConfigError that names the frame if a law does not hold."""
        if len(self.frame) < 1 or self.frame[0] != 0 or self.frame[-1] != len(self.document):
            raise ConfigError(
                f"spans: `frame` is {self.frame[:1]} to {self.frame[-1:]}, allowed: 0 to "
                f"{len(self.document)}, the number of spans."
            )
        if (np.diff(self.frame) < 0).any():
            frame = int(np.flatnonzero(np.diff(self.frame) < 0)[0])
            raise ConfigError(f"spans: `frame` decreases at frame {frame}, allowed: never.")
        row, cells = self.row, self.cells
        inside = (self.at >= 0) & (self.at + cells <= self.width) & (cells >= 1)
        inside &= (self.start >= 0) & (self.length >= 0)
        inside &= (self.seen >= 0) & (self.seen <= cells)
        if not inside.all():
            raise ConfigError(
                f"spans: a span of frame {row[~inside][0]} is not inside it, allowed: 1 to "
                f"{self.width} cells from its start."
            )
        same = row[1:] == row[:-1]
        overlap = same & (self.at[1:] < (self.at + cells)[:-1])
        if overlap.any():
            raise ConfigError(
                f"spans: two spans of frame {row[1:][overlap][0]} overlap, allowed: each after "
                "the last."
            )
