"""`Spliced`: spliced documents by row number.

One idea: a row is a unit of a document (`phase`), a unit is one of its choices (`turns`), and a
choice is (t, s) (`choices`). Each step is arithmetic on document lengths, so any row of any epoch
takes the same time, and memory is a handful of integers per document.

Internally, a document with an inserted BOS is one token longer and starts with it.

How many stored tokens whole epochs of a phase have, without visiting their rows.

The units of a document nearly all have the same number of tokens. Which choices differ follows from
lengths, so the choices of a document fall into a few pieces of equal tokens. What whole epochs add
up to is closed: how often the choices of a piece were shown, times their tokens.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Int64, grouped
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError
from tokenloom.layout.layout import Blocks, Phases
from tokenloom.layout.spans import BOS, EOS_BEFORE, JOINED, Spans
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.splice.turns import Even, Wrapped
from tokenloom.store.handles import lazy

BLOCK_TOKENS = 1 << 18  # adjacent documents of about this many tokens are fetched together


class Triples(NamedTuple):
    """Splices in the letters of the published design.

    Attributes:
        row: index of the row among those requested [N].
        document: index in the store [N].
        t: start of the splice window in the document; negative if it lies before the document,
            with edge="clip" or (as -1) with an inserted BOS [N].
        s: frame offset [N].
    """

    row: Int64
    document: Int64
    t: Int64
    s: Int64


class Spliced:
    """Spliced documents of a line.

    Attributes:
        lead: tokens inserted before the first stored token of a document.
        documents: document numbers in the store [documents].
        parts: documents, quotas and rows of every phase.

    Args:
        spec: how to splice.
        line: the documents.
    """

    def __init__(self, spec: SpliceSpec, line: Line) -> None:
        self.spec, self.line = spec, line
        self.seq_len, self.width = spec.seq_len, spec.width
        self.inserted: tuple[int | None, int | None] = spec.bos_id, spec.eos_id
        self.tag = hashlib.sha256(repr(spec).encode()).hexdigest()[:16]
        self.documents, self._edges = line.bounds(0, line.documents)
        length = np.diff(self._edges)
        self.lead = int(spec.bos_id is not None)
        self._length = np.where(length > 0, length + self.lead, 0)
        self._block = np.unique(self._edges[:-1] // BLOCK_TOKENS, return_inverse=True)[1]
        blocks = int(self._block.max(initial=-1)) + 1
        self._block_edges = self._edges[np.searchsorted(self._block, np.arange(blocks + 1))]
        self.parts = [
            SplicePhase(spec, self._length, self.documents, self._block, content, active)
            for content, active in _settings(spec, len(length))
        ]
        self.phases = _phases(spec, [part.slots.rows for part in self.parts])

    @property
    def row_tokens(self) -> tuple[int, int] | None:
        """Tokens of every row but the last, and of the last; None where rows differ."""
        sizes = {part.row_tokens for part in self.parts}
        size = sizes.pop() if len(sizes) == 1 and self.spec.bos_id is None else None
        return None if size is None else (size, size)

    is_constant: bool = False

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs of that epoch's phase have the same number of tokens."""
        return self.parts[int(self.phases.of(epoch))].steady

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie: adjacent documents, about 256 Ki tokens."""
        return Blocks.cut(self.parts[phase].slots.block_row)

    def runs(self, epoch: Int64 | int, rows: Int64) -> None:
        """See `Layout`: the spans tell."""

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block cover [N]."""
        first, last = blocks.edges(block)
        starts = self.parts[phase].slots.block_row
        low = np.searchsorted(starts, first, side="right") - 1
        high = np.searchsorted(starts, np.maximum(last - 1, first), side="right")
        most = len(starts) - 1
        return self._block_edges[np.minimum(low, most)], self._block_edges[np.minimum(high, most)]

    # -- rows ------------------------------------------------------------------------------

    def spans(self, epoch: Int64 | int, rows: Int64) -> Spans:
        """The documents in each row."""
        epochs = np.broadcast_to(np.asarray(epoch, np.int64), rows.shape)
        if len(self.parts) == 1:
            return self._spans(self.parts[0], epochs, rows)
        found, places = [], []
        for phase, here in grouped(self.phases.of(epochs)):
            found.append(self._spans(self.parts[phase], epochs[here], rows[here]))
            places.append(here)
        if not found:
            return self._spans(self.parts[0], epochs, rows)
        return Spans.joined(found, places)

    def triples(self, epoch: Int64 | int, rows: Int64) -> Triples:
        """(document, t, s) of every splice of these rows."""
        epochs = np.broadcast_to(np.asarray(epoch, np.int64), rows.shape)
        if len(self.parts) == 1:
            return self._triples(self.parts[0], epochs, rows)
        found = []
        for phase, here in grouped(self.phases.of(epochs)):
            part = self._triples(self.parts[phase], epochs[here], rows[here])
            found.append(part._replace(row=here[part.row]))
        nothing = Triples(*[np.empty(0, np.int64)] * 4)
        columns = [np.concatenate(column) for column in zip(nothing, *found, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Triples(*(column[order] for column in columns))

    def _triples(self, part: SplicePhase, epoch: Int64, rows: Int64) -> Triples:
        shown = part.show(epoch, rows)
        at = _packed(shown.frame, shown.length) if part.packed else shown.at
        return Triples(shown.frame, self.documents[shown.place], shown.t - self.lead, at)

    def find(self, epoch: int, document: int, t: int | None = None) -> Int64:
        """The rows of an epoch that show a document, or one start of it; ascending."""
        part = self.parts[int(self.phases.of(epoch))]
        places = np.flatnonzero(self.documents == document)
        inside = None if t is None else t + self.lead
        found = [part.rows_of(int(place), epoch, inside) for place in places.tolist()]
        rows = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
        fresh = np.append(True, rows[1:] != rows[:-1])[: len(rows)]  # two may share a frame
        return rows[fresh]

    def costs(self, epoch: Int64 | int, rows: Int64) -> Int64:
        """Stored tokens of each row [N]."""
        spans = self.spans(epoch, rows)
        return np.diff(np.concatenate([[0], np.cumsum(spans.length)])[spans.frame])

    def tokens_between(self, first: int, last: int, least: int) -> int | None:
        """Stored tokens of whole epochs [first, last) of one phase.

        None where only spans tell, or where a row may have fewer tokens than `least`.
        """
        tokens = self._tokens[int(self.phases.of(first))]
        if tokens is None or tokens.least < least:
            return None
        return tokens.upto(last) - tokens.upto(first)

    @lazy
    def _tokens(self) -> list[UnitTokens | None]:
        return [UnitTokens.of(part) for part in self.parts]

    def _spans(self, part: SplicePhase, epoch: Int64, rows: Int64) -> Spans:
        shown = part.show(epoch, rows)
        frame, place, start, length = shown.frame, shown.place, shown.start, shown.length
        at = _packed(frame, length) if part.packed else shown.at
        seam = start + length > self._length[place]  # a ring continues with its first token
        flags = np.zeros(len(frame), np.uint8)
        seen = np.zeros(len(frame), np.int64)
        if seam.any():
            twice = np.repeat(np.arange(len(frame)), 1 + seam)
            again = np.append(False, twice[1:] == twice[:-1])
            cut = (self._length[place] - start)[twice]
            frame, place = frame[twice], place[twice]
            size = np.where(seam[twice], np.where(again, length[twice] - cut, cut), length[twice])
            at = at[twice] + np.where(again, cut, 0)
            start = np.where(again, 0, start[twice])
            length, flags = size, np.where(again, JOINED, 0).astype(np.uint8)
            seen = (again & (not self.spec.roll_loss)).astype(np.int64)
        if self.spec.bos_id is not None:  # token 0 of the lengthened document is not stored
            begins = start == 0
            flags |= np.where(begins, BOS, 0).astype(np.uint8)
            start, length = np.maximum(start - 1, 0), length - begins
        if self.spec.eos_id is not None:
            before = (at > 0) & ((flags & JOINED) == 0)
            if part.packed:
                before[:] = False
            flags |= np.where(before, EOS_BEFORE, 0).astype(np.uint8)
        return Spans(
            width=self.width,
            frame=np.searchsorted(frame, np.arange(len(rows) + 1)),
            document=self.documents[place],
            start=start,
            length=length,
            at=at,
            address=self._edges[place] + start,
            flags=flags,
            seen=seen,
            source=np.zeros(len(rows), np.int32),
        )


def _packed(frame: Int64, length: Int64) -> Int64:
    """Frame offsets of splices that are placed side by side [N]."""
    ends = np.cumsum(length)
    begins = ends - length
    first = np.flatnonzero(np.append(True, np.diff(frame) != 0))[: len(frame)]
    return begins - np.repeat(begins[first], np.diff(np.append(first, len(frame))))


def _settings(spec: SpliceSpec, documents: int) -> list[tuple[int | None, int]]:
    """K and the number of documents of every phase."""
    _check_schedules(spec, documents)
    return [(content, active) for _, content, active in _stages(spec, documents)]


def _check_schedules(spec: SpliceSpec, documents: int) -> None:
    for name in ("doc_schedule", "doc_growth"):
        most = max((pair[1] for pair in getattr(spec, name)), default=0)
        if most > documents:
            raise ConfigError(
                f"{name}: found {most} documents, but {documents} were selected. Select more, or "
                f"end the schedule with {documents}."
            )


def _stages(spec: SpliceSpec, documents: int) -> list[tuple[int, int | None, int]]:
    """(start, K, documents) of every phase."""
    schedules = (spec.content_schedule, spec.doc_schedule, spec.doc_growth)
    begins = sorted({0, *(pair[0] for pairs in schedules for pair in pairs)})
    stages = []
    for begin in begins:
        content = _last(spec.content_schedule, begin, spec.content_length)
        grown = _last(spec.doc_growth, begin, documents)
        active = _last(spec.doc_schedule, begin, grown)
        stages.append((begin, content, active or documents))
    return stages


def _last(pairs: tuple[tuple[int, ...], ...], begin: int, usual: int | None) -> int | None:
    """The value of the last entry that starts at `begin` or earlier."""
    return next((value for at, value in reversed(pairs) if at <= begin), usual)


def _phases(spec: SpliceSpec, rows: list[int]) -> Phases:
    begins = [begin for begin, _, _ in _stages(spec, 1)]
    make = Phases.by_epoch if spec.doc_growth else Phases.by_example
    return make(begins, rows)


WORTH = 4  # rows for each piece; with fewer, adding up rows is as fast

FEW, OWN = 1 << 12, 16  # pieces that are always worth it: in all, and for each document


class UnitTokens(NamedTuple):
    """Stored tokens of the units of a phase, in pieces: choices of a document with equal tokens.

    Attributes:
        part: the phase.
        way: how documents visit their choices; None if every document is one piece.
        place: the document of each piece, ascending [pieces].
        first, last: its choices are [first, last) [pieces].
        tokens: stored tokens of each of its units [pieces].
    """

    part: SplicePhase
    way: Even | Wrapped | None
    place: Int64
    first: Int64
    last: Int64
    tokens: Int64

    @staticmethod
    def of(part: SplicePhase) -> UnitTokens | None:
        """The pieces of a phase; None if there are too many, or choices that come in no order."""
        shown = np.flatnonzero(part.quota > 0)
        if part.is_even:
            first = np.zeros_like(shown)
            return UnitTokens(part, None, shown, first, part.shown[shown], part.content[shown])
        way, breaks = part.way, part.breaks(shown)
        if way is None or breaks is None:
            return None
        keep = breaks[:, :-1] < breaks[:, 1:]
        place, first, last = shown[np.nonzero(keep)[0]], breaks[:, :-1][keep], breaks[:, 1:][keep]
        tokens = part.unit_tokens(place, first)
        # tokens change evenly from the first choice to the last: all equal if these two are
        size = np.where(tokens == part.unit_tokens(place, last - 1), 1, last - first)
        if size.sum() > max(FEW, OWN * len(shown), part.slots.rows // WORTH):
            return None
        each = np.repeat(np.arange(len(size)), size)
        inner = np.arange(len(each)) - (np.cumsum(size) - size)[each]
        single = size[each] > 1
        last = np.where(single, first[each] + inner + 1, last[each])
        place, first = place[each], first[each] + inner
        tokens = np.where(single, part.unit_tokens(place, first), tokens[each])
        new = np.append(True, (place[1:] != place[:-1]) | (tokens[1:] != tokens[:-1]))
        end = np.append(new[1:], True)
        return UnitTokens(part, way, place[new], first[new], last[end], tokens[new])

    @property
    def least(self) -> int:
        """The fewest tokens of a unit."""
        return int(self.tokens.min())

    def upto(self, epoch: int) -> int:
        """Stored tokens of all epochs before `epoch`, as if the phase started with epoch 0."""
        whole = self.last - self.first == self.part.shown[self.place]  # all choices of a document
        shown = self.part.quota[self.place] * epoch
        if self.way is not None and not whole.all():
            rest = np.flatnonzero(~whole)
            place, first, last = self.place[rest], self.first[rest], self.last[rest]
            shown[rest] = self.way.shown(place, first, last, epoch)
        pairs = zip(shown.tolist(), self.tokens.tolist(), strict=True)
        return sum(count * tokens for count, tokens in pairs)  # may exceed 64 bits
