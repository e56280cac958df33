"""The modes of streaming packers: documents → pieces, pieces that wait → rows. Pure rules.

`tokenloom.layout.streaming` says what each mode is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.packers import Bins, pack
from tokenloom.layout.stream_state import PackerSpec, Piece

__all__ = ["MODES", "Mode"]

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Pieces = list[Piece]


def _whole(number: int, cells: Int32, ends: bool, spec: PackerSpec) -> Pieces:
    return [Piece(number, False, cells)]


def _cut(number: int, cells: Int32, ends: bool, spec: PackerSpec) -> Pieces:
    """A document in pieces of a row at most, each with at least one token of the source.

    Rows of 4, overlap 0: a b c d EOS would leave EOS alone, so it is a b c | d EOS.
    """
    size, width = len(cells), spec.width
    if size <= width:
        return [Piece(number, False, cells)]
    starts = list(range(0, size - spec.shared, width - spec.shared))
    stops = [min(start + width, size) for start in starts]
    alone = stops[-1] - starts[-1] == 1 and ends
    before = stops[-2] - starts[-2] - 1 - (len(starts) == 2 and spec.bos_id is not None)
    if alone and before > 0:  # otherwise BOS would be alone instead
        starts[-1] -= 1
        stops[-2] -= 1
    edges = zip(starts, stops, strict=True)
    return [Piece(number, start > 0, cells[start:stop].copy()) for start, stop in edges]


def _window(pending: Pieces, spec: PackerSpec) -> tuple[list[Pieces], Pieces]:
    """The first row of the pieces end to end; the piece at its end goes on in the next."""
    row: Pieces = []
    room = spec.width
    while room:
        piece = pending[len(row)]
        row.append(Piece(piece.document, piece.continues, piece.tokens[:room].copy()))
        room -= len(row[-1])
    last = pending[len(row) - 1]
    tail = last.tokens[len(row[-1]) - spec.shared :]
    rest = pending[len(row) :]
    return [row], [Piece(last.document, True, tail), *rest] if len(tail) else rest


def _last_window(pending: Pieces, spec: PackerSpec) -> list[Pieces]:
    """What is left, unless it is only the token that the row before ended with."""
    fresh = sum(map(len, pending)) - spec.shared * sum(piece.continues for piece in pending)
    return [pending] if fresh else []


def _filled(pending: Pieces, spec: PackerSpec) -> tuple[list[Pieces], Pieces]:
    """The oldest pieces open the bins; the others fill them up, longest first.

    `pack` knows no opened bins, so bins are given twice the room and openers a row more: 5 of 8
    becomes 13 of 16, which leaves the same room of 3, and two openers never share a bin. Pieces in
    the bins behind those wait; being behind, they did not change what went into the first ones.
    """
    count, width = spec.bins_per_pack, spec.width
    lengths = np.array([len(piece) for piece in pending])
    order = np.concatenate([np.arange(count), count + _longest_first(lengths[count:])])
    sizes = lengths[order]
    sizes[:count] += width
    made = pack(sizes, 2 * width, "first_fit", spec.packing_max_docs_per_bin)
    bins = [order[items] for items in _split(made)]
    rows = [items[_longest_first(lengths[items])] for items in bins[:count]]
    left = np.sort(np.concatenate([np.empty(0, np.int64), *bins[count:]]))
    return [[pending[i] for i in row] for row in rows], [pending[i] for i in left]


def _decreasing(pending: Pieces, spec: PackerSpec) -> list[Pieces]:
    lengths = np.array([len(piece) for piece in pending], np.int64)
    made = pack(lengths, spec.width, "first_fit_decreasing", spec.packing_max_docs_per_bin)
    return [[pending[i] for i in items] for items in _split(made)]


def _group(pending: Pieces, spec: PackerSpec) -> tuple[list[Pieces], Pieces]:
    return _decreasing(pending, spec), []


def _longest_first(lengths: Int64) -> Int64:
    return np.argsort(-lengths, kind="stable")


def _split(made: Bins) -> list[Int64]:
    return np.split(made.items, made.edges[1:-1]) if len(made) else []


@dataclass(frozen=True, slots=True)
class Mode:
    """The three rules of a mode, and when the second is asked."""

    cut: Callable[[int, Int32, bool, PackerSpec], Pieces]  # a document → pieces
    enough: Callable[[int, int, PackerSpec], bool]  # pieces that wait, their cells → pack now?
    take: Callable[[Pieces, PackerSpec], tuple[list[Pieces], Pieces]]  # → rows, what waits on
    rest: Callable[[Pieces, PackerSpec], list[Pieces]]  # the same when nothing more comes


MODES = {
    "sequential": Mode(_whole, lambda _, cells, spec: cells >= spec.width, _window, _last_window),
    "bin": Mode(_cut, lambda n, _, spec: n >= spec.packing_buffer_docs, _filled, _decreasing),
    "multipack": Mode(_cut, lambda n, _, spec: n >= spec.group_docs, _group, _decreasing),
    "one_doc": Mode(_cut, lambda n, _, spec: n > 0, lambda p, spec: ([p], []), lambda p, spec: []),
}
