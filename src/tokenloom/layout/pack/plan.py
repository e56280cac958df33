"""Packing: documents of a group → rows of a fixed width. A plan made from lengths alone.

One idea: the documents of a store are divided into groups in stored order, and each group is packed
by itself (`tokenloom.layout.pack.rows`). So row i costs the plan of one group, however large the
store, and the documents of a group lie together on disk.

`plan_group` is pure: lengths in, rows (and a `Tally` of what became of every token) out.

    lengths ──usable──▶ documents ──fitted──▶ documents ──slice_each──▶ slices ──in_bins──▶ rows
          filters, caps, specials     truncate, drop        split            strategy

"sequential" uses `slice_line` instead: documents end to end, cut where a row is full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.pack import cut as cutting
from tokenloom.layout.pack.cut import Pieces, Tally, Usable
from tokenloom.layout.pack.slices import in_bins, slice_each, slice_line, starts_apart
from tokenloom.layout.pack.spec import SEQUENTIAL, PackSpec
from tokenloom.layout.spans import BOS, EOS
from tokenloom.random.keys import draws, key

__all__ = ["PackedRows", "plan_group", "stored_inside"]

Int64 = NDArray[np.int64]


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
    documents, tally = cutting.usable(
        lengths,
        min_len=spec.min_len,
        max_len=spec.max_len,
        max_doc_tokens=spec.max_doc_tokens,
        bos=spec.bos_id is not None,
        eos=spec.eos_id is not None,
    )
    width = spec.width
    if spec.strategy == SEQUENTIAL:
        starts = starts_apart(int(documents.cells.sum()), width, spec.overlap)
        slices = slice_line(documents.cells, width, starts)
        repeated = int(slices.repeated.sum())
        pieces = cutting.sliced(documents, slices, seen=False)
    else:
        left, lost = cutting.fitted(documents, width, spec.overflow, names)
        slices = slice_each(left.cells, width, spec.stride, eos=(left.flags & EOS) != 0)
        slices = in_bins(slices, width, spec.strategy, spec.max_docs_per_bin)
        pieces, tally = cutting.sliced(left, slices, seen=True), tally + lost
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
    inside: Int64 = np.maximum(np.minimum(begin + length, seq_len) - begin, 0)
    return inside


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
        inserted=int(cutting.inserted(pieces.flags).sum()),
        frame_tokens=stored,
        repeated=repeated,
        cut=int(cut.sum()),
        cut_needlessly=int((cut & (documents.cells <= spec.width)).sum()),
        trained=int(trained.sum()),
        attention=int((inside * inside).sum()),
    )
