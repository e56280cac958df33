"""Packing: documents of a group → rows of a fixed width. A plan from lengths alone.

One idea: the documents of a store are divided into groups in stored order, and each group is packed
by itself (`tokenloom.layout.groups`). So row i costs the plan of one group, whatever the size of
the store, and a group is also what lies together on disk.

`plan_group` is pure: lengths in, spans (and a `Tally` of what became of every token) out.

    lengths ──usable──▶ documents ──cut_long──▶ pieces ──pack──▶ bins ──▶ rows
                  filters, caps, specials   split, truncate, drop   strategy

"sequential" knows no pieces: documents stand end to end and are cut where a row is full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.keys import check_seed, draws, key
from tokenloom.layout import cutting
from tokenloom.layout.cutting import Documents, Pieces, Tally
from tokenloom.layout.packers import check_strategy, pack
from tokenloom.spans import BOS
from tokenloom.words import near_miss

__all__ = ["OVERFLOWS", "PackSpec", "Rows", "plan_group", "stored_inside"]

Int64 = NDArray[np.int64]
SEQUENTIAL = "sequential"
OVERFLOWS = ("split", "truncate", "drop", "error")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackSpec:
    """How to pack; every field is part of a run's identity.

    Attributes:
        seq_len: tokens of a frame.
        strategy: "sequential", or one of `tokenloom.layout.packers.STRATEGIES`.
        overflow: what to do with a document longer than a frame: "split" (nothing is lost),
            "truncate", "drop" or "error".
        stride: tokens that neighbouring pieces of a split document share.
        mask_overlap: do not train shared tokens a second time.
        min_len, max_len: source tokens that a document must have, may have; others are left out.
        max_doc_tokens: use only that many tokens of a document.
        min_row_len: leave out rows with fewer tokens, inserted ones counted.
        max_docs_per_bin: segments of a row, at most.
        bos_id, eos_id: put before and behind every document; None is nothing.
        lookahead: give every row one more cell, as the label of its last one.
        overlap: tokens that neighbouring rows share, 0 or 1; sequential, with `lookahead`.
        shuffle_output: rows of a group in shuffled order.
        shuffle_seed: of that order.
        group_docs, group_tokens: a group ends with its 10,000th document, or with the one
            that makes it 2^25 tokens, whichever comes first.
    """

    seq_len: int
    strategy: str = "best_fit_decreasing"
    overflow: str = "split"
    stride: int = 0
    mask_overlap: bool = True
    min_len: int = 1
    max_len: int | None = None
    max_doc_tokens: int | None = None
    min_row_len: int = 1
    max_docs_per_bin: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    lookahead: bool = False
    overlap: int = 0
    shuffle_output: bool = False
    shuffle_seed: int = 0
    group_docs: int = 10_000
    group_tokens: int = 1 << 25

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.shuffle_seed)
        if not 2 <= self.seq_len <= 1 << 30:
            raise ConfigError(f"seq_len: found {self.seq_len}, allowed is 2 to 2^30 tokens.")
        if self.strategy != SEQUENTIAL:
            # an alias would be another identity of the same rows
            object.__setattr__(self, "strategy", check_strategy(self.strategy, (SEQUENTIAL,)))
        if self.overflow not in OVERFLOWS:
            raise ConfigError(
                f"overflow: found {self.overflow!r}, allowed: {', '.join(OVERFLOWS)}."
                f"{near_miss(self.overflow, OVERFLOWS)}"
            )
        _check_counts(self)
        if not 0 <= self.stride < self.width:
            raise ConfigError(
                f"stride: found {self.stride}, allowed is 0 to {self.width - 1}: a piece must have "
                f"something that the one before it has not."
            )
        if self.overlap not in (0, 1) or (self.overlap and not self.lookahead):
            raise ConfigError(
                f"overlap: found {self.overlap}, allowed is 0, and 1 with lookahead=True."
            )
        _check_together(self)

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.seq_len + self.lookahead


def _check_counts(spec: PackSpec) -> None:
    names = ("min_len", "max_len", "max_doc_tokens", "min_row_len", "max_docs_per_bin")
    for name in (*names, "group_docs", "group_tokens"):
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name}: found {value}, allowed is 1 or more.")
    if spec.max_len is not None and spec.max_len < spec.min_len:
        raise ConfigError(f"max_len: found {spec.max_len}, allowed is {spec.min_len} (min_len) up.")
    for name in ("bos_id", "eos_id"):
        value = getattr(spec, name)
        if value is not None and not 0 <= value < 1 << 31:
            raise ConfigError(f"{name}: found {value}, allowed is a token id, 0 to 2^31 - 1.")


def _check_together(spec: PackSpec) -> None:
    """Settings that mean nothing for the strategy are refused: they would be ignored silently."""
    wrong: dict[str, bool] = {
        "overlap": spec.strategy != SEQUENTIAL and spec.overlap > 0,
        "stride": spec.stride > 0 and (spec.strategy == SEQUENTIAL or spec.overflow != "split"),
        "overflow": spec.strategy == SEQUENTIAL and spec.overflow != "split",
        "max_docs_per_bin": spec.strategy == SEQUENTIAL and spec.max_docs_per_bin is not None,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigError(
                f"{name}: found {getattr(spec, name)} with strategy={spec.strategy!r} and "
                f"overflow={spec.overflow!r}, where it means nothing. Leave it out."
            )


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """The rows of one group.

    Attributes:
        edges: first piece of each row, and the number of pieces [rows + 1].
        pieces: of all rows, in order.
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
        """How many rows there are."""
        return len(self.edges) - 1


def plan_group(lengths: Int64, spec: PackSpec, group: int = 0, names: Int64 | None = None) -> Rows:
    """The rows of some documents.

    Args:
        lengths: source tokens of each document [documents].
        spec: how to pack.
        group: number of the group; another one is shuffled otherwise.
        names: what messages call the documents; their place if nothing is said.

    >>> rows = plan_group(np.array([3, 2, 3]), PackSpec(seq_len=8))
    >>> rows.pieces.document.tolist(), rows.at.tolist(), len(rows)
    ([0, 2, 1], [0, 3, 6], 1)
    """
    documents, tally = cutting.usable(
        lengths,
        min_len=spec.min_len,
        max_len=spec.max_len,
        max_doc_tokens=spec.max_doc_tokens,
        bos=spec.bos_id is not None,
        eos=spec.eos_id is not None,
    )
    if spec.strategy == SEQUENTIAL:
        edges, pieces = _end_to_end(documents, spec.width, spec.width - spec.overlap)
        repeated = int(pieces.cells.sum() - documents.cells.sum())
    else:
        cut, lost = cutting.cut_long(documents, spec.width, spec.overflow, spec.stride, names)
        bins = pack(cut.cells, spec.width, spec.strategy, spec.max_docs_per_bin)
        edges, pieces, tally = bins.edges, cut.pick(bins.items), tally + lost
        repeated = int(pieces.seen.sum())
    if not spec.mask_overlap:
        pieces = replace(pieces, seen=np.zeros_like(pieces.seen))
    edges, pieces, short = _without_short(edges, pieces, spec.min_row_len)
    if spec.shuffle_output:
        edges, pieces = _shuffled(edges, pieces, key(spec.shuffle_seed, "pack", "rows", group))
    before = np.cumsum(pieces.cells) - pieces.cells
    row = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    at = before - np.append(before, 0)[edges[:-1]][row] if len(row) else before
    inside = stored_inside(at, pieces.length, pieces.flags, spec.seq_len)
    tokens = np.diff(np.concatenate([[0], np.cumsum(inside)])[edges])
    counted = _counted(spec, documents, edges, pieces, at, repeated, int(inside.sum()))
    return Rows(edges, pieces, at, tokens, tally + short + counted)


def _end_to_end(documents: Documents, width: int, step: int) -> tuple[Int64, Pieces]:
    """Documents as one line of cells, cut into rows of `width` that begin `step` apart."""
    ends = np.cumsum(documents.cells)
    total = int(ends[-1]) if len(ends) else 0
    count = 0 if total == 0 else max(1, 1 - (width - total) // step)
    low = np.arange(count) * step
    high = np.minimum(low + width, total)
    first = np.searchsorted(ends, low, side="right")
    last = np.searchsorted(ends, high - 1, side="right")
    pieces_of = last - first + 1
    row = np.repeat(np.arange(count), pieces_of)
    edges = np.concatenate([[0], np.cumsum(pieces_of)]).astype(np.int64)
    which = np.arange(len(row)) - edges[row] + first[row]
    start = (ends - documents.cells)[which]  # of the document, on the line of cells
    begin = np.maximum(low[row], start) - start
    end = np.minimum(high[row], ends[which]) - start
    flags = documents.flags[which].astype(np.int64)
    source, has = cutting.stretch_of(flags, begin, end == documents.cells[which])
    length = end - begin - cutting.inserted(has)
    nothing = np.zeros(len(which), np.int64)
    return edges, Pieces(documents.number[which], source, length, end - begin, has, nothing)


def _without_short(edges: Int64, pieces: Pieces, least: int) -> tuple[Int64, Pieces, Tally]:
    """Rows with at least so many tokens."""
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
    """Different source tokens in some pieces."""
    order = np.lexsort((pieces.start, pieces.document))
    document, start = pieces.document[order], pieces.start[order]
    end = start + pieces.length[order]
    again = document[1:] == document[:-1]
    start[1:][again] = np.maximum(start[1:], end[:-1])[again]
    return int(np.maximum(end - start, 0).sum())


def _shuffled(edges: Int64, pieces: Pieces, stream: int) -> tuple[Int64, Pieces]:
    """The rows in another order."""
    count = np.diff(edges)
    order = np.argsort(draws(stream, np.arange(len(count), dtype=np.uint64)), kind="stable")
    moved = np.concatenate([[0], np.cumsum(count[order])])
    part = np.repeat(edges[:-1][order] - moved[:-1], count[order]) + np.arange(moved[-1])
    return moved, pieces.pick(part)


def stored_inside(at: Int64, length: Int64, flags: NDArray[np.uint8], seq_len: int) -> Int64:
    """Stored tokens of each piece that stand in the frame, not only in its look-ahead cell."""
    begin = at + (flags & BOS)
    inside: Int64 = np.maximum(np.minimum(begin + length, seq_len) - begin, 0)
    return inside


def _counted(
    spec: PackSpec,
    documents: Documents,
    edges: Int64,
    pieces: Pieces,
    at: Int64,
    repeated: int,
    stored: int,
) -> Tally:
    rows = len(edges) - 1
    # cells inside the frame; what is only looked at as a label is not one of them
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
        inserted=int(cutting.inserted(pieces.flags).sum()),
        frame_tokens=stored,
        repeated=repeated,
        cut=int(cut.sum()),
        cut_needlessly=int((cut & (documents.cells <= spec.width)).sum()),
        trained=int(trained.sum()),
        attention=int((inside * inside).sum()),
    )
