"""Documents → pieces: how much of each document is used, and what each slice of it holds.

One idea: a document with its BOS and EOS is a line of cells of its own. `slices` cuts such lines,
and a piece is a slice that tells its BOS and EOS from source tokens. So lengths alone decide
everything, and whatever ends up in no piece is counted.

Worked example: a document of 8 tokens with EOS is 9 cells; cut for frames of 4 with a stride of 1::

    cells       0 1 2 3 4 5 6 7 E
    pieces      [0 1 2 3]            adjacent pieces share `stride` cells; every piece has at least
                      [3 4 5 6]      one cell that the previous piece does not have
                            [6 7 E]

A piece that would consist only of EOS takes one token from the piece before it. Only in frames of 2
can that leave a BOS alone: B t E is cut as [B] [t E].
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
    """What became of documents and tokens. Every field is a count, so tallies can be added.

    Attributes:
        documents, tokens: total number of documents and of source tokens.
        empty: documents without a token.
        filtered, filtered_tokens: documents shorter than `min_len` or longer than `max_len`.
        truncated, truncated_tokens: documents of which only the start is used, and the tokens cut.
        overlong, overlong_tokens: documents that do not fit and were dropped.
        repeated: tokens placed a second time because pieces or rows overlap.
        inserted: inserted BOS and EOS tokens.
        rows, cells: frames, and their cells.
        short_rows, short_row_tokens: rows dropped because they have too few tokens.
        segments: pieces in rows.
        cut, cut_needlessly: documents in several pieces, and those that would have fit a frame.
        placed: cells that hold a stored or an inserted token.
        frame_tokens: cells that hold a stored token.
        trained: predictions that count toward the loss, with default rendering, if all tokens are
            trained on; `plan_packing` counts those of a store's loss columns.
        attention: sum over pieces of their squared number of cells.
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
        """Source tokens that are in no row."""
        dropped = self.filtered_tokens + self.truncated_tokens + self.overlong_tokens
        return dropped + self.short_row_tokens

    @property
    def fill(self) -> float:
        """Share of cells that hold a token."""
        return self.placed / self.cells if self.cells else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class Usable:
    """Documents that are used.

    Attributes:
        number: index among the documents given [documents].
        length: source tokens used [documents].
        cells: source tokens used, plus BOS and EOS [documents].
        flags: whether it has a BOS and an EOS [documents].
    """

    number: Int64
    length: Int64
    cells: Int64
    flags: UInt8

    def pick(self, keep: NDArray[np.bool_]) -> Usable:
        """Only the documents to keep."""
        return Usable(self.number[keep], self.length[keep], self.cells[keep], self.flags[keep])


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """Stretches of documents.

    Attributes:
        document: index among the documents given [pieces].
        start: first source token [pieces].
        length: source tokens [pieces].
        cells: source tokens, plus BOS and EOS [pieces].
        flags: whether it has a BOS and an EOS [pieces].
        seen: leading tokens that the previous piece also has [pieces].
    """

    document: Int64
    start: Int64
    length: Int64
    cells: Int64
    flags: UInt8
    seen: Int64

    def pick(self, which: Int64 | NDArray[np.bool_]) -> Pieces:
        """Only the given pieces, in that order."""
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
    """The documents that are used, how much of each, and a tally of the rest.

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
    """The documents after handling those that do not fit into a frame, and a tally of the loss.

    Args:
        documents: the documents to check.
        width: cells of a frame.
        overflow: what to do with a longer document: "split" it (later), "truncate" it (its end is
            lost, including its EOS), "drop" it, or "error".
        names: numbers that messages use for the documents; default: their index.
    """
    long = documents.cells > width
    tally = Tally()
    if overflow == "error" and long.any():
        which = int(np.flatnonzero(long)[0])
        place = int(documents.number[which])
        name = place if names is None else int(names[place])
        raise ConfigError(
            f"overflow: document {name:,} has {documents.cells[which]:,} tokens, specials "
            f"included, and a row holds {width:,} ({int(long.sum()):,} documents are too long). "
            "Use overflow='split', or a longer seq_len."
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
    """Slices of document cells as pieces, with source tokens, BOS and EOS told apart.

    Args:
        documents: the documents that were cut.
        slices: slices of their cells.
        seen: whether cells that a slice repeats count as seen, and so are not trained again.
    """
    if not documents.flags.any():  # cells are tokens
        cells = slices.stop - slices.start
        again = np.minimum(slices.repeated, cells) * seen
        number = documents.number[slices.document]
        none = np.zeros(len(cells), np.uint8)
        return Pieces(number, slices.start, cells, cells, none, again)
    flags, last = documents.flags[slices.document], slices.stop == documents.cells[slices.document]
    # a slice right after BOS continues its document, although its first token is token 0
    start = np.maximum(slices.start - (flags & BOS), 0)
    has = (flags & BOS) * (slices.start == 0) + (flags & EOS) * last
    has = (has + GOES_ON * ((slices.start > 0) & (start == 0))).astype(np.uint8)
    cells = slices.stop - slices.start
    length = cells - inserted(has)
    again = np.minimum(slices.repeated, length) * seen
    return Pieces(documents.number[slices.document], start, length, cells, has, again)
