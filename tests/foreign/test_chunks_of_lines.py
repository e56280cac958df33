"""Where ranges are in decoded chunks: all at once is what one range after the other gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.foreign.pieces import CodedPiece, PieceLine, RawPiece
from tokenloom.store.cache import BlockCache


def line_of(sizes, capacity=1 << 20):
    """A line of coded pieces of (elements, chunk); element i is i."""
    pieces, first = [], 0
    for elements, chunk in sizes:
        decode = lambda low, high, first=first: np.arange(first + low, first + high)  # noqa: E731
        pieces.append(CodedPiece(file="x", elements=elements, decode=decode, chunk=chunk))
        first += elements
    cache = BlockCache(capacity)
    return PieceLine(pieces, "uint32", None, source=None, cache=cache, key=("k",), root="/x")


@given(data=st.data())
def test_many_ranges_at_once_are_those_one_by_one(data):
    piece = st.tuples(st.integers(0, 30), st.integers(1, 9))
    line = line_of(
        data.draw(st.lists(piece, min_size=1, max_size=4)),
        data.draw(st.sampled_from([0, 64, 9999])),
    )
    places = st.integers(0, len(line))
    ranges = [sorted(pair) for pair in data.draw(st.lists(st.tuples(places, places), max_size=9))]
    low, high = np.array(ranges, np.int64).reshape(-1, 2).T
    found = line.chunks(low, high)
    parts = zip(found.which.tolist(), found.low.tolist(), found.length.tolist(), strict=True)
    joined = [one for w, a, n in parts for one in found.chunks[w][a : a + n].tolist()]
    assert joined == [one for a, b in ranges for one in line.read(a, b).tolist()]
    assert joined == [one for a, b in ranges for one in range(a, b)]
    assert (found.length > 0).all()
    assert len(found.chunks) == len(set(found.which.tolist()))  # each chunk once


def test_a_piece_that_is_read_in_place_is_left_to_others():
    raw = RawPiece(file="x", first_byte=0, elements=9, dtype="<u4")
    coded = CodedPiece(file="y", elements=9, decode=lambda a, b: np.arange(a, b), chunk=4)
    kept = {"source": None, "cache": BlockCache(0), "key": ("k",), "root": "/x"}
    line = PieceLine([raw, coded], "uint32", None, **kept)
    assert line.chunks(np.array([9]), np.array([18])) is not None
    assert line.chunks(np.array([8]), np.array([18])) is None
