"""Ranges of files out of fixed pieces of them: from a disk cache, or over the network.

What is kept must not depend on who asked first, so it is cut at multiples of 512
KiB. A range needs the pieces that it touches; those that are not kept are fetched, neighbours
together, and kept: whole requests of at most 512 pieces (256 MiB) at a time, in their order.

Worked example with pieces of 4 bytes, of which piece 1 is kept, and the ranges [3,6) and [9,14)::

    pieces    0 1 | 2 3
    fetched   [0,4) and [8,16)          pieces 2 and 3 are neighbours: one request
    answers   bytes 3 of piece 0, 0 and 1 of piece 1; bytes 1 to 3 of piece 2, 0 and 1 of piece 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits
from tokenloom.remote.disk_cache import DiskCache, PieceKey, most_claims
from tokenloom.store.byte_source import Range

__all__ = ["pieces_of", "read_aligned"]

Bytes = NDArray[np.uint8]

Piece = tuple[str, int]

Fetch = Callable[[Sequence[Range]], Sequence[Bytes]]


def read_aligned(
    ranges: Sequence[Range],
    *,
    cache: DiskCache,
    identity: str,
    sizes: Mapping[str, int],
    fetch: Fetch,
) -> tuple[list[Bytes], list[int]]:
    """The bytes of each range, and how many of them the cache had.

    Args:
        ranges: what is wanted.
        cache: what is kept.
        identity: of the snapshot that the files belong to.
        sizes: bytes of each file, which is not read beyond its end.
        fetch: asks for ranges over the network.
    """

    def kept(pieces: Iterable[Piece]) -> dict[Piece, Bytes | None]:
        return {
            one: cache.get(PieceKey(identity, *one), _length(sizes, *one)) for one in set(pieces)
        }

    found = kept(one for each in ranges for one in pieces_of(each))
    wanted = sorted(one for one, content in found.items() if content is None)
    fetched: set[Piece] = set()
    for some in _turns(wanted, sizes):
        with cache.claimed(PieceKey(identity, *one) for one in some):
            found |= kept(some)  # others may have fetched them by now
            missing = [one for one in some if found[one] is None]
            runs = list(_runs(missing, sizes))
            size = limits().disk_cache_piece_bytes
            for (name, start, _), data in zip(runs, fetch(runs), strict=True):
                for at in range(0, len(data), size):
                    number, content = (start + at) // size, data[at : at + size]
                    cache.put(PieceKey(identity, name, number), content)
                    found[name, number] = content
        fetched.update(missing)
    parts = [[_part(each, one, found[one]) for one in pieces_of(each)] for each in ranges]
    had = [
        sum(
            len(part) for one, part in zip(pieces_of(each), some, strict=True) if one not in fetched
        )
        for each, some in zip(ranges, parts, strict=True)
    ]
    return [some[0] if len(some) == 1 else np.concatenate([_NONE, *some]) for some in parts], had


_NONE = np.empty(0, np.uint8)


def _turns(wanted: Sequence[Piece], sizes: Mapping[str, int]) -> Iterator[list[Piece]]:
    """Pieces that are claimed together: those of whole requests, so that none is cut in two."""
    turn: list[Piece] = []
    most = most_claims()
    for run in _runs(wanted, sizes):
        pieces = list(pieces_of(run))
        if turn and len(turn) + len(pieces) > most:
            yield turn
            turn = []
        turn += pieces
    if turn:
        yield turn


def pieces_of(asked: Range) -> list[Piece]:
    """The pieces that a range touches.

    >>> pieces_of(("x", 524287, 2)), pieces_of(("x", 7, 0))
    ([('x', 0), ('x', 1)], [])
    """
    name, start, size = asked
    piece = limits().disk_cache_piece_bytes
    last = (start + size - 1) // piece if size else start // piece - 1
    return [(name, number) for number in range(start // piece, last + 1)]


def _length(sizes: Mapping[str, int], name: str, number: int) -> int:
    piece = limits().disk_cache_piece_bytes
    return min(piece, sizes[name] - number * piece)


def _runs(missing: Sequence[Piece], sizes: Mapping[str, int]) -> Iterator[Range]:
    """The requests for some pieces, sorted: neighbours together, up to the cap.

    >>> list(_runs([("x", 0), ("x", 1), ("x", 3)], {"x": 1572869}))
    [('x', 0, 1048576), ('x', 1572864, 5)]
    """
    most = limits().request_bytes
    first, piece = 0, limits().disk_cache_piece_bytes
    for place, (name, number) in enumerate(missing, 1):
        room = (place - first) * piece < most
        if room and place < len(missing) and missing[place] == (name, number + 1):
            continue
        start = missing[first][1] * piece
        yield name, start, min((number + 1) * piece, sizes[name]) - start
        first = place


def _part(asked: Range, piece: Piece, content: Bytes | None) -> Bytes:
    """What a piece gives to a range."""
    assert content is not None  # kept, or just fetched
    low = asked[1] - piece[1] * limits().disk_cache_piece_bytes
    return content[max(low, 0) : low + asked[2]]
