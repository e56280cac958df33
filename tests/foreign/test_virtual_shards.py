"""Virtual shards against a slow oracle that walks token by token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenloom.errors import StoreCorrupt
from tokenloom.foreign.described import Described
from tokenloom.foreign.locations import LocalFolder
from tokenloom.foreign.pieces import CodedPiece, PieceLine, RawPiece
from tokenloom.foreign.virtual import VirtualShard, check_shards, cut_shards
from tokenloom.store.cache import BlockCache
from tokenloom.testing import tiny


def described(sizes, kinds):
    pieces = []
    for number, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        if kind == "coded":
            pieces.append(CodedPiece(file="c", elements=size, decode=lambda a, b: np.zeros(b - a)))
        else:
            dtype = {"raw": "<i4", "other": "<i8"}[kind]
            one = RawPiece(file=f"f{number}", first_byte=0, elements=size, dtype=dtype)
            pieces.append(one)
    return Described(
        kind="toy",
        folder=LocalFolder("/toy"),
        files=(),
        tokens=tuple(pieces),
        lengths=lambda: np.zeros(0, int),
    )


def slow_home(sizes, kinds, start, stop):
    """The piece that holds tokens [start, stop) in place; -1 if none does; None of no tokens."""
    owners = [n for n, size in enumerate(sizes) for _ in range(size)][start:stop]
    if not owners:
        return None
    same = len(set(owners)) == 1 and kinds[owners[0]] == "raw"
    return owners[0] if same else -1


@settings(max_examples=40)
@given(st.data())
def test_shards_hold_whole_documents_and_are_in_place_where_they_can_be(data):
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    kind = st.sampled_from(["raw", "raw", "other", "coded"])
    kinds = data.draw(st.lists(kind, min_size=len(sizes), max_size=len(sizes)))
    total, lengths = sum(sizes), []
    while sum(lengths) < total:
        lengths.append(data.draw(st.integers(0, total - sum(lengths))))
    lengths += data.draw(st.lists(st.just(0), max_size=2))
    cap = data.draw(st.integers(1, 20))
    with tiny(foreign_shard_tokens=cap):
        toy = described(sizes, kinds)
        shards = cut_shards(toy, np.array(lengths, np.int64), looked=True)
    check_shards(toy, shards)
    counted = [range(one.first_document, one.first_document + one.documents) for one in shards]
    assert [number for held in counted for number in held] == list(range(len(lengths)))
    ends = np.cumsum([0, *lengths]).tolist()
    for shard in shards:
        held = range(shard.first_document, shard.first_document + shard.documents)
        assert shard.tokens == sum(lengths[n] for n in held)
        assert shard.tokens <= cap or sum(lengths[n] > 0 for n in held) == 1
        homes = {slow_home(sizes, kinds, ends[n], ends[n + 1]) for n in held} - {None}
        assert homes <= {shard.piece}


@pytest.mark.parametrize(
    "shards",
    [
        [(0, 0, 4, 1, 0)],  # too few tokens
        [(0, 0, 5, 1, 0), (5, 1, 5, 1, 0)],  # the second leaves its piece
        [(0, 0, 10, 1, 0)],  # over the end of a piece
        [(0, 0, 5, 1, 7)],  # no such piece
        [(1, 0, 9, 1, -1)],  # a gap
        [(0, 0, -1, 1, -1), (-1, 1, 11, 1, -1)],
    ],
)
def test_shards_that_the_files_do_not_have_are_refused(shards):
    with pytest.raises(StoreCorrupt):
        check_shards(described([5, 5], ["raw", "raw"]), [VirtualShard(*one) for one in shards])


@given(st.data())
def test_a_line_gives_any_range_of_its_pieces(data):
    chunk = data.draw(st.integers(1, 7))
    parts = data.draw(st.lists(st.lists(st.integers(0, 99), max_size=20), min_size=1, max_size=4))
    asked = []

    def decoder(values):
        def decode(low, high):
            asked.append((low % chunk, high % chunk == 0 or high == len(values)))
            return np.array(values, ">i8")[low:high]

        return decode

    pieces = [
        CodedPiece(file="x", elements=len(one), decode=decoder(one), chunk=chunk) for one in parts
    ]
    cache = BlockCache(data.draw(st.sampled_from([0, 1 << 16])))
    line = PieceLine(pieces, "uint16", 100, source=None, cache=cache, key=("k",), root="/x")
    flat = [value for one in parts for value in one]
    low = data.draw(st.integers(0, len(flat)))
    high = data.draw(st.integers(low, len(flat)))
    assert line.read(low, high).tolist() == flat[low:high]
    assert all(first == 0 and whole for first, whole in asked)
