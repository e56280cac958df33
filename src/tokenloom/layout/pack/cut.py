"""Documents → pieces: what of each document is used, and what a slice of it holds.

One idea: a document with its BOS and EOS is a line of cells of its own, `slices` cuts such lines,
and a piece is a slice with its BOS and EOS told apart from source tokens. So lengths alone decide
everything, and what is not in any piece is counted.

Worked example: a document of 8 tokens with EOS is 9 cells; cut for frames of 4 with a stride of 1::

    cells       0 1 2 3 4 5 6 7 E
    pieces      [0 1 2 3]            the stride is what neighbours share; no piece is nothing but
                      [3 4 5 6]      what the one before it has
                            [6 7 E]

A piece that would be nothing but EOS takes one token from the piece before it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.layout.pack.slices import Slices
from tokenloom.layout.spans import BOS, EOS, GOES_ON

__all__ = ["Pieces", "Tally", "Usable", "fitted", "inserted", "sliced", "usable"]

Int64 = NDArray[np.int64]

UInt8 = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """What became of documents and tokens; every number is a count, and two add up.

    Attributes:
        documents, tokens: there were.
        empty: documents without a token.
        filtered, filtered_tokens: documents shorter than `min_len` or longer than `max_len`.
        truncated, truncated_tokens: documents of which only the beginning is used, and the rest.
        overlong, overlong_tokens: documents that do not fit and were dropped.
        repeated: tokens that stand in two pieces, counted once more.
        inserted: BOS and EOS.
        rows, cells: of the frames.
        short_rows, short_row_tokens: rows that were dropped for having too few tokens.
        segments: pieces in rows.
        cut, cut_needlessly: documents in several pieces, and those of them that would fit a frame.
        placed: cells that hold a token or an inserted one.
        frame_tokens: those of them that are stored tokens.
        trained: predictions that count, as rendered by default.
        attention: sum over pieces of the square of their cells.
    """

    documents: int = 0
    tokens: int = 0
    empty: int = 0
    filtered: int = 0
    filtered_tokens: int = 0
    truncated: int = 0
    truncated_tokens: int = 0
    overlong: int = 0
    overlong_tokens: int = 0
    repeated: int = 0
    inserted: int = 0
    rows: int = 0
    cells: int = 0
    short_rows: int = 0
    short_row_tokens: int = 0
    segments: int = 0
    cut: int = 0
    cut_needlessly: int = 0
    placed: int = 0
    frame_tokens: int = 0
    trained: int = 0
    attention: int = 0

    def __add__(self, other: Tally) -> Tally:
        names = [one.name for one in fields(self)]
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def lost(self) -> int:
        """Source tokens that stand in no row."""
        dropped = self.filtered_tokens + self.truncated_tokens + self.overlong_tokens
        return dropped + self.short_row_tokens

    @property
    def fill(self) -> float:
        """Share of cells that hold something."""
        return self.placed / self.cells if self.cells else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class Usable:
    """Documents that are used.

    Attributes:
        number: which of those given [documents].
        length: source tokens used [documents].
        cells: these, with BOS and EOS [documents].
        flags: which of both it has [documents].
    """

    number: Int64
    length: Int64
    cells: Int64
    flags: UInt8

    def pick(self, keep: NDArray[np.bool_]) -> Usable:
        """Some of them."""
        return Usable(self.number[keep], self.length[keep], self.cells[keep], self.flags[keep])


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """Stretches of documents.

    Attributes:
        document: which of those given [pieces].
        start: first source token [pieces].
        length: source tokens [pieces].
        cells: these, with BOS and EOS [pieces].
        flags: which of both it has [pieces].
        seen: first tokens that the piece before has, too [pieces].
    """

    document: Int64
    start: Int64
    length: Int64
    cells: Int64
    flags: UInt8
    seen: Int64

    def pick(self, which: Int64 | NDArray[np.bool_]) -> Pieces:
        """Some of them, in that order."""
        return Pieces(*(getattr(self, one.name)[which] for one in fields(self)))


def usable(
    lengths: Int64,
    *,
    min_len: int = 1,
    max_len: int | None = None,
    max_doc_tokens: int | None = None,
    bos: bool = False,
    eos: bool = False,
) -> tuple[Usable, Tally]:
    """The documents that are used, and how much of each.

    A document cut at `max_doc_tokens` does not end there, so it gets no EOS.
    """
    kept = (lengths >= max(1, min_len)) & (lengths <= (lengths if max_len is None else max_len))
    number = np.flatnonzero(kept)
    whole = lengths[kept]
    length = whole if max_doc_tokens is None else np.minimum(whole, max_doc_tokens)
    flags = np.full(len(number), BOS * bos, np.uint8)
    flags[length == whole] |= EOS * eos
    filtered = lengths[~kept & (lengths > 0)]
    tally = Tally(
        documents=len(lengths),
        tokens=int(lengths.sum()),
        empty=int((lengths == 0).sum()),
        filtered=len(filtered),
        filtered_tokens=int(filtered.sum()),
        truncated=int((length < whole).sum()),
        truncated_tokens=int((whole - length).sum()),
    )
    return Usable(number, length, length + inserted(flags), flags), tally


def inserted(flags: UInt8) -> Int64:
    """Cells that BOS and EOS take."""
    return ((flags & BOS) + ((flags & EOS) >> 1)).astype(np.int64)


def fitted(
    documents: Usable, width: int, overflow: str, names: Int64 | None = None
) -> tuple[Usable, Tally]:
    """What is left of documents when too long ones are dealt with.

    Args:
        documents: what to look at.
        width: cells of a frame.
        overflow: what to do with a document that has more: "split" it (later), "truncate" it (its
            end is lost, and its EOS with it), "drop" it, or "error".
        names: what messages call the documents given; their place by default.
    """
    long = documents.cells > width
    tally = Tally()
    if overflow == "error" and long.any():
        which = int(np.flatnonzero(long)[0])
        place = int(documents.number[which])
        name = place if names is None else int(names[place])
        raise ConfigError(
            f"overflow: document {name:,} has {documents.cells[which]:,} tokens with its "
            f"specials, a frame {width:,} cells ({int(long.sum()):,} such documents). Use "
            "overflow='split', or a longer seq_len."
        )
    if overflow == "drop":
        gone = documents.length[long]
        tally = Tally(overlong=len(gone), overlong_tokens=int(gone.sum()))
        documents = documents.pick(~long)
    elif overflow == "truncate":
        documents, tally = _truncated(documents, long, width)
    return documents, tally


def _truncated(documents: Usable, long: NDArray[np.bool_], width: int) -> tuple[Usable, Tally]:
    flags = np.where(long, documents.flags & BOS, documents.flags).astype(np.uint8)
    length = np.where(long, width - (flags & BOS).astype(np.int64), documents.length)
    lost = documents.length - length
    tally = Tally(truncated=int((lost > 0).sum()), truncated_tokens=int(lost.sum()))
    return Usable(documents.number, length, length + inserted(flags), flags), tally


def sliced(documents: Usable, slices: Slices, *, seen: bool) -> Pieces:
    """Slices of the cells of documents as pieces: their source tokens, and their BOS and EOS.

    Args:
        documents: what was cut.
        slices: of their cells.
        seen: whether cells that a slice repeats count as seen, and so are not trained again.
    """
    flags, last = documents.flags[slices.document], slices.stop == documents.cells[slices.document]
    # a slice that starts after BOS, at the first token, goes on although its first token is 0
    start = np.maximum(slices.start - (flags & BOS), 0)
    has = (flags & BOS) * (slices.start == 0) + (flags & EOS) * last
    has = (has + GOES_ON * ((slices.start > 0) & (start == 0))).astype(np.uint8)
    cells = slices.stop - slices.start
    length = cells - inserted(has)
    again = np.minimum(slices.repeated, length) * seen
    return Pieces(documents.number[slices.document], start, length, cells, has, again)
