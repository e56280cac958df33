"""Token windows: the line of tokens cut every `seq_len` tokens; documents may cross the cuts.

Row i covers ``[i step, i step + width)`` of the line. Without `lookahead`, width = step = seq_len.
With it, a row has one more token, which is only a label: width = seq_len + 1 and step = width -
overlap, so with overlap 1 every token but the first of the line is predicted exactly once.

Worked example, 10 tokens, seq_len 4: rows [0, 4) [4, 8), and with ``tail="keep"`` [8, 10), whose
last two cells are filler. With lookahead and overlap 1: [0, 5) [4, 9), and [8, 10) if the tail is
kept.

A locality block is ``chunk_tokens // step`` rows, at least one: about what one io block of the
store holds. Cost: a row is arithmetic; its document boundaries are looked up only on request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenloom.arguments import check_between, one_of
from tokenloom.arrays import Int64
from tokenloom.bind import check_fields
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError, warn
from tokenloom.layout.layout import Blocks, Phases, Reads
from tokenloom.layout.spans import Spans


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowsSpec:
    """How to cut token windows; every field is part of a run's identity.

    Attributes:
        seq_len: tokens of a frame.
        tail: "drop" the short last row, or "keep" it and fill it up.
        lookahead: give every row one more token, as the label of its last cell.
        overlap: tokens that adjacent rows share, 0 or 1; only with `lookahead`.
        align: end locality blocks at multiples of this many tokens of the line, so that they may
            differ by one row; 0 does not align.
    """

    seq_len: int
    tail: str = "drop"
    lookahead: bool = False
    overlap: int = 0
    align: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_between("seq_len", self.seq_len, 1, 1 << 30, unit="tokens")
        one_of("tail", self.tail, ("drop", "keep"))
        check_between("align", self.align, 0)
        if self.overlap not in (0, 1) or (self.overlap and not self.lookahead):
            raise ConfigError(
                f"overlap: found {self.overlap}, allowed: 0, or 1 with lookahead=True."
            )

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.seq_len + self.lookahead

    @property
    def step(self) -> int:
        """Tokens from the start of one row to the start of the next."""
        return self.width - self.overlap

    def warn_if_unaligned(self, chunk_tokens: int) -> None:
        """Warn when rows and io blocks of that many tokens do not end together."""
        rows, left = divmod(chunk_tokens, self.step)
        if left and rows and not self.align:
            warn(
                f"seq_len: an io block of {chunk_tokens:,} tokens holds {rows} rows of "
                f"{self.step:,} tokens and {left:,} tokens more, so blocks of {rows} rows drift "
                "across io blocks. align=True makes them end together."
            )


class Windows:
    """Token windows over a line.

    Args:
        spec: how to cut.
        line: what to cut.
        chunk_tokens: tokens per io block.
    """

    inserted: tuple[int | None, int | None] = None, None

    def __init__(self, spec: WindowsSpec, line: Line, chunk_tokens: int) -> None:
        self.spec, self.line = spec, line
        self.seq_len, self.width = spec.seq_len, spec.width
        self.tag = f"{spec}/{chunk_tokens}"
        whole = max(0, (line.tokens - spec.width) // spec.step + 1)
        left = line.tokens - (whole * spec.step + spec.overlap if whole else 0)
        self._rows = whole + (spec.tail == "keep" and left > 0)
        self.phases = Phases.constant(self._rows)
        self._block_rows = max(1, chunk_tokens // spec.step)

    @property
    def row_tokens(self) -> tuple[int, int]:
        """Tokens of every row but the last, and of the last."""
        usual, last = self.costs(0, np.array([0, max(0, self._rows - 1)])).tolist()
        return usual, last

    is_constant: bool = True

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie."""
        if not self.spec.align:
            return Blocks.equal(self._rows, self._block_rows)
        # counted on the line, so that the order does not depend on how a store is sharded
        ends = np.arange(self.spec.align, self.line.tokens + self.spec.align, self.spec.align)
        starts = np.minimum(-(-ends // self.spec.step), self._rows)
        return Blocks.cut(np.unique(np.concatenate([[0], starts, [self._rows]])))

    def runs(self, epoch: Int64 | int, rows: Int64) -> Reads:
        """The tokens of each row: one stretch of the line."""
        start = rows * self.spec.step
        stop = np.minimum(start + self.width, self.line.tokens)
        return Reads.one_each(start, stop - start, self.width)

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block cover [N]."""
        first, last = blocks.edges(block)
        stop = np.minimum((last - 1) * self.spec.step + self.width, self.line.tokens)
        return first * self.spec.step, stop

    def spans(self, epoch: Int64 | int, rows: Int64) -> Spans:
        """The documents in each row."""
        start = rows * self.spec.step
        stop = np.minimum(start + self.width, self.line.tokens)
        pieces = self.line.pieces(start, stop)
        row = np.repeat(np.arange(len(rows)), np.diff(pieces.edges))
        return Spans(
            width=self.width,
            frame=pieces.edges,
            document=pieces.document,
            start=pieces.start,
            length=pieces.length,
            at=pieces.address - start[row],
            address=pieces.address,
            flags=np.zeros(len(pieces.document), np.uint8),
            seen=np.zeros(len(pieces.document), np.int64),
            source=np.zeros(len(rows), np.int32),
        )

    def find(self, epoch: int, document: int) -> Int64:
        """See `Layout`: the rows that touch its stretch of the line."""
        found = [np.empty(0, np.int64)]
        for place in self.line.places(document).tolist():
            begin, end = self.line.bounds(place, place + 1)[1].tolist()
            # the first row that ends after `begin`, and the first that starts at `end` or later
            low = max(0, (begin - self.width) // self.spec.step + 1)
            high = min(self._rows, -(-end // self.spec.step))
            found.append(np.arange(low, high if begin < end else low))
        return np.unique(np.concatenate(found))

    def costs(self, epoch: Int64 | int, rows: Int64) -> Int64:
        """Tokens of each row that are in its frame, without the look-ahead token [N]."""
        start = rows * self.spec.step
        stop = np.minimum(start + self.seq_len, self.line.tokens)
        return np.maximum(stop - start, 1)
