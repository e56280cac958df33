"""Packing: documents of a group → rows of a fixed width. A plan made from lengths alone.

One idea: the documents of a store are divided into groups in stored order, and each group is packed
by itself (`tokenloom.layout.pack.rows`). So row i costs the plan of one group, however large the
store, and the documents of a group lie together on disk.

`plan_group` is pure: lengths in, rows (and a `Tally` of what became of every token) out.

    lengths ──usable──▶ documents ──fitted──▶ documents ──slice_each──▶ slices ──in_bins──▶ rows
          filters, caps, specials     truncate, drop        split            strategy

"sequential" uses `slice_line` instead: documents end to end, cut where a row is full.

Documents → pieces: how much of each document is used, and what each slice of it holds.

A document with its BOS and EOS is a line of cells of its own. `slices` cuts such lines,
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

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64, UInt8
from tokenloom.errors import ConfigError
from tokenloom.layout.pack.slices import Slices, in_bins, slice_each, slice_line, starts_apart
from tokenloom.layout.pack.spec import SEQUENTIAL, PackSpec
from tokenloom.layout.spans import BOS, EOS, GOES_ON
from tokenloom.random.keys import draws, key


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


def usable(lengths: Int64, spec: PackSpec) -> tuple[Usable, Tally]:
    """The documents that are used, how much of each, and a tally of the rest.

    A document cut at `max_doc_tokens` does not end there, so it gets no EOS.
    """
    kept = lengths >= max(1, spec.min_len)
    if spec.max_len is not None:
        kept &= lengths <= spec.max_len
    number = np.flatnonzero(kept)
    whole = lengths[kept]
    length = whole if spec.max_doc_tokens is None else np.minimum(whole, spec.max_doc_tokens)
    flags = np.full(len(number), BOS * (spec.bos_id is not None), np.uint8)
    flags[length == whole] |= EOS * (spec.eos_id is not None)
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


@dataclass(frozen=True, eq=False, slots=True)
class PackedRows:
    """The rows of one group.

    Attributes:
        edges: first piece of each row, then the number of pieces [rows + 1].
        pieces: the pieces of all rows, in order.
        at: first cell of each piece in its row [pieces].
        tokens: stored tokens in the frame of each row [rows].
        tally: what became of the group's documents.
    """

    edges: Int64
    pieces: Pieces
    at: Int64
    tokens: Int64
    tally: Tally

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.edges) - 1


def plan_group(
    lengths: Int64, spec: PackSpec, group: int = 0, names: Int64 | None = None
) -> PackedRows:
    """The rows of some documents.

    Args:
        lengths: source tokens of each document [documents].
        spec: how to pack.
        group: number of the group; each group is shuffled differently.
        names: numbers that messages use for the documents; default: their index.

    >>> rows = plan_group(np.array([3, 2, 3]), PackSpec(seq_len=8))
    >>> rows.pieces.document.tolist(), rows.at.tolist(), len(rows)
    ([0, 2, 1], [0, 3, 6], 1)
    """
    documents, tally = usable(lengths, spec)
    width = spec.width
    if spec.strategy == SEQUENTIAL:
        starts = starts_apart(int(documents.cells.sum()), width, spec.overlap)
        slices = slice_line(documents.cells, width, starts)
        repeated = int(slices.repeated.sum())
        pieces = sliced(documents, slices, seen=False)
    else:
        left, lost = fitted(documents, width, spec.overflow, names)
        slices = slice_each(left.cells, width, spec.stride, eos=(left.flags & EOS) != 0)
        slices = in_bins(slices, width, spec.strategy, spec.max_docs_per_bin)
        pieces, tally = sliced(left, slices, seen=True), tally + lost
        repeated = int(pieces.seen.sum())
    if not spec.mask_overlap:
        pieces = replace(pieces, seen=np.zeros_like(pieces.seen))
    edges, pieces, short = _without_short(slices.edges, pieces, spec.min_row_len)
    if spec.shuffle_output:
        edges, pieces = _shuffled(edges, pieces, key(spec.shuffle_seed, "pack", "rows", group))
    before = np.cumsum(pieces.cells) - pieces.cells
    at = before - np.repeat(np.append(before, 0)[edges[:-1]], np.diff(edges))
    inside = stored_inside(at, pieces.length, pieces.flags, spec.seq_len)
    tokens = np.diff(np.concatenate([[0], np.cumsum(inside)])[edges])
    counted = _counted(spec, documents, edges, pieces, at, repeated, int(inside.sum()))
    return PackedRows(edges, pieces, at, tokens, tally + short + counted)


def _without_short(edges: Int64, pieces: Pieces, least: int) -> tuple[Int64, Pieces, Tally]:
    """Only the rows with at least `least` tokens, and a tally of the others."""
    before = np.concatenate([[0], np.cumsum(pieces.cells)])
    tokens = np.diff(before[edges])
    keep = tokens >= least
    if keep.all():
        return edges, pieces, Tally()
    count = np.diff(edges)
    left = pieces.pick(np.repeat(keep, count))
    lost = _covered(pieces) - _covered(left)
    tally = Tally(short_rows=int((~keep).sum()), short_row_tokens=lost)
    return np.concatenate([[0], np.cumsum(count[keep])]), left, tally


def _covered(pieces: Pieces) -> int:
    """Number of distinct source tokens in some pieces."""
    order = np.lexsort((pieces.start, pieces.document))
    document, start = pieces.document[order], pieces.start[order]
    end = start + pieces.length[order]
    again = document[1:] == document[:-1]
    start[1:][again] = np.maximum(start[1:], end[:-1])[again]
    return int(np.maximum(end - start, 0).sum())


def _shuffled(edges: Int64, pieces: Pieces, stream: int) -> tuple[Int64, Pieces]:
    """The rows in an order drawn from `stream`."""
    count = np.diff(edges)
    order = np.argsort(draws(stream, np.arange(len(count), dtype=np.uint64)), kind="stable")
    moved = np.concatenate([[0], np.cumsum(count[order])])
    part = np.repeat(edges[:-1][order] - moved[:-1], count[order]) + np.arange(moved[-1])
    return moved, pieces.pick(part)


def stored_inside(at: Int64, length: Int64, flags: NDArray[np.uint8], seq_len: int) -> Int64:
    """Stored tokens of each piece that are in the frame, not counting the look-ahead cell."""
    begin = at + (flags & BOS)
    return np.maximum(np.minimum(begin + length, seq_len) - begin, 0)


def _counted(
    spec: PackSpec,
    documents: Usable,
    edges: Int64,
    pieces: Pieces,
    at: Int64,
    repeated: int,
    stored: int,
) -> Tally:
    rows = len(edges) - 1
    # cells inside the frame; a cell that is only a label does not count
    inside = np.minimum(at + pieces.cells, spec.seq_len) - np.minimum(at, spec.seq_len)
    times = np.bincount(pieces.document, minlength=int(documents.number.max(initial=-1)) + 1)
    cut = times[documents.number] > 1
    targets = pieces.cells if spec.lookahead else inside
    trained = np.maximum(targets - np.maximum(pieces.seen, 1), 0)
    return Tally(
        rows=rows,
        cells=rows * spec.seq_len,
        segments=int((inside > 0).sum()),
        placed=int(inside.sum()),
        inserted=int(inserted(pieces.flags).sum()),
        frame_tokens=stored,
        repeated=repeated,
        cut=int(cut.sum()),
        cut_needlessly=int((cut & (documents.cells <= spec.width)).sum()),
        trained=int(trained.sum()),
        attention=int((inside * inside).sum()),
    )
