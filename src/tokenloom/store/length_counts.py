"""How many documents have each length: exact percentiles without listing all lengths.

What is asked of lengths (percentiles, extremes, a mean) follows from the number of
documents of every length, and there are far fewer lengths than documents. Offsets are read a piece
at a time, counted and forgotten.

Cost: 10^8 documents in about 1 s and 20 MB on one core.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.limits import limits
from tokenloom.store.reader import Reader


class Doubling(NamedTuple):
    """The documents whose lengths have the same number of binary digits.

    Attributes:
        name: the lengths, such as "8-15".
        documents: how many they are.
        share: their part of all tokens, from 0 to 1.
    """

    name: str
    documents: int
    share: float


class LengthCounts(NamedTuple):
    """Lengths of documents, each with its number of documents.

    Attributes:
        length: in tokens, ascending, only those that occur [L].
        documents: how many documents have it [L].
    """

    length: Int64
    documents: Int64

    def percentile(self, percent: float) -> float:
        """The length below which a share of the documents lies, as `numpy.percentile`.

        >>> LengthCounts(np.array([1, 4]), np.array([3, 1])).percentile(75)
        1.75
        """
        ends = np.cumsum(self.documents)
        place = percent / 100 * (int(ends[-1]) - 1)
        low = math.floor(place)
        part = place - low
        ranks = np.minimum([low, low + 1], int(ends[-1]) - 1)
        a, b = self.length[np.searchsorted(ends, ranks, side="right")].tolist()
        # the two forms of an interpolation, so that it is exact at both ends
        return float(b - (b - a) * (1 - part) if part >= 0.5 else a + (b - a) * part)

    @property
    def mean(self) -> float:
        """Tokens of a document on average."""
        tokens = sum(map(int.__mul__, self.length.tolist(), self.documents.tolist()))
        return tokens / int(self.documents.sum())

    @property
    def std(self) -> float:
        """Standard deviation of the lengths, in tokens.

        >>> round(LengthCounts(np.array([1, 5]), np.array([3, 1])).std, 3)  # of 1, 1, 1, 5
        1.732
        """
        away = (self.length - self.mean) ** 2
        return math.sqrt(float(np.dot(away, self.documents)) / int(self.documents.sum()))

    def doublings(self) -> list[Doubling]:
        """A histogram: one bin per doubling of length, from the first that has documents.

        >>> LengthCounts(np.array([0, 3, 9]), np.array([1, 2, 1])).doublings()[-1]
        Doubling(name='8-15', documents=1, share=0.6)
        """
        if not len(self.length):
            return []
        # 0 → bin 0, 1 → 1, 2-3 → 2, 4-7 → 3: the number of binary digits
        bins = np.array([length.bit_length() for length in self.length.tolist()], np.int64)
        documents = np.bincount(bins, self.documents).astype(np.int64)
        tokens = np.bincount(bins, weights=self.length * self.documents)
        every = max(1.0, float(tokens.sum()))
        found = []
        for b in range(int(np.flatnonzero(documents)[0]), len(documents)):
            low, high = (1 << b) >> 1, max((1 << b) - 1, 0)
            name = str(low) if low == high else f"{low:,}-{high:,}"
            found.append(Doubling(name, int(documents[b]), float(tokens[b]) / every))
        return found


def count_lengths(reader: Reader) -> LengthCounts:
    """The lengths of all documents of a store; reads offsets only, no token."""
    return count_pieces(reader.length_pieces())


def count_pieces(pieces: Iterable[NDArray[Any]]) -> LengthCounts:
    """The lengths of documents that are given some at a time.

    >>> count_pieces([np.array([3, 1]), np.array([3])]).documents.tolist()
    [1, 2]
    """
    slots = np.zeros(limits().short_length_tokens, np.int64)
    long = [np.empty(0, np.int64)]
    for lengths in pieces:
        if int(lengths.max(initial=0)) >= len(slots):
            long.append(lengths[lengths >= len(slots)].astype(np.int64))
            lengths = lengths[lengths < len(slots)]
        found = np.bincount(lengths)
        slots[: len(found)] += found
    short = np.flatnonzero(slots)
    length, documents = np.unique(np.concatenate(long), return_counts=True)
    return LengthCounts(np.concatenate([short, length]), np.concatenate([slots[short], documents]))
