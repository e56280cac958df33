"""Lengths counted a piece at a time say exactly what a list of all lengths says."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toydata import ToyStore, numbered

from tokenloom.cli.printing import PERCENTS, histogram, percentiles
from tokenloom.errors import StoreCorrupt
from tokenloom.store.derived.length_counts import LengthCounts, count_lengths
from tokenloom.testing import tiny


def counted(lengths):
    return LengthCounts(*np.unique(np.array(lengths, np.int64), return_counts=True))


class ToyReader:
    """Lengths in pieces, as a reader gives them."""

    def __init__(self, lengths, piece):
        self._lengths, self._piece = np.array(lengths, np.uint32), piece

    def length_pieces(self):
        for low in range(0, len(self._lengths), self._piece):
            yield self._lengths[low : low + self._piece]


@given(st.lists(st.integers(0, 50) | st.integers(0, 10**6), min_size=1, max_size=60))
def test_statistics_equal_those_of_numpy_to_the_last_bit(lengths):
    found, array = percentiles(counted(lengths)), np.array(lengths)
    wanted = np.percentile(array, PERCENTS).tolist()
    assert [found[f"p{percent}"] for percent in PERCENTS] == wanted
    assert (found["min"], found["max"]) == (array.min(), array.max())
    assert found["mean"] == array.mean()


@given(st.lists(st.integers(0, 9) | st.integers(0, 300_000), max_size=40), st.integers(1, 9))
def test_pieces_of_any_size_are_counted_alike(lengths, piece):
    found, wanted = count_lengths(ToyReader(lengths, piece)), counted(lengths)
    assert found.length.tolist() == wanted.length.tolist()
    assert found.documents.tolist() == wanted.documents.tolist()


@given(st.lists(st.integers(0, 70), min_size=1, max_size=40))
def test_bars_count_every_doubling_of_length(lengths):
    """Slow: a loop over the documents."""
    rows = [row.split() for row in histogram(counted(lengths))]
    bins = [length.bit_length() for length in lengths]
    for row, b in zip(rows, range(min(bins), max(bins) + 1), strict=True):
        here = [length for length, one in zip(lengths, bins, strict=True) if one == b]
        assert row[1] == str(len(here))
        assert row[2] == f"{sum(here) / max(1, sum(lengths)):.1%}"


def test_no_documents_have_no_statistics():
    assert percentiles(counted([])) == {}
    assert histogram(counted([])) == []


@tiny(offset_chunk_documents=3)
def test_a_store_is_counted_and_listed_in_pieces():
    with ToyStore(numbered([[3, 0, 7, 7, 1, 2, 9], [4], [5, 5, 0, 1]])) as toy:
        wanted = [len(document) for document in toy.documents]
        assert toy.store.lengths.tolist() == wanted
        sizes = [len(piece) for piece in toy.store.reader.length_pieces()]
        assert sizes == [3, 3, 1, 1, 3, 1]
        assert count_lengths(toy.store.reader).length.tolist() == sorted(set(wanted))


@tiny(offset_chunk_documents=3)
def test_offsets_that_run_backwards_are_refused_in_every_piece():
    with ToyStore(numbered([[3, 1, 7, 7, 1, 2, 9]])) as toy:
        reader = toy.store.reader
        right = reader.offsets._read

        def wrong(number, low, high):
            found = right(number, low, high).copy()
            if low == 3:
                found[2] = found[1] - 1
            return found

        reader.offsets._read = wrong
        with pytest.raises(StoreCorrupt, match="run backwards"):
            count_lengths(reader)


@pytest.mark.parametrize("documents", [200_000, 800_000])
@tiny(short_length_tokens=1 << 10)
def test_memory_does_not_grow_with_the_documents(documents):
    """The slots of short lengths and one piece, whatever their number; a list would take 8 each."""
    lengths = np.arange(documents, dtype=np.uint32) % 700

    class Many:
        def length_pieces(self):
            for low in range(0, documents, 1 << 12):
                yield lengths[low : low + (1 << 12)]

    tracemalloc.start()
    found = count_lengths(Many())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.documents.sum() == documents
    assert peak < 200_000
