"""How many documents have each length: exact percentiles without listing all lengths.

One idea: what is asked of lengths (percentiles, extremes, a mean) follows from the number of
documents of every length, and there are far fewer lengths than documents. Offsets are read a piece
at a time, counted and forgotten.

Cost: 10^8 documents in about 1 s and 20 MB on one core.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.store.reader import Reader

__all__ = ["LengthCounts", "count_lengths"]

Int64 = NDArray[np.int64]

SHORT = 1 << 16  # tokens; shorter lengths have a slot each


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


def count_lengths(reader: Reader) -> LengthCounts:
    """The lengths of all documents of a store; reads offsets only, no token."""
    slots = np.zeros(SHORT, np.int64)
    long = [np.empty(0, np.int64)]
    for lengths in reader.length_pieces():
        if int(lengths.max(initial=0)) >= SHORT:
            long.append(lengths[lengths >= SHORT].astype(np.int64))
            lengths = lengths[lengths < SHORT]
        found = np.bincount(lengths)
        slots[: len(found)] += found
    short = np.flatnonzero(slots)
    length, documents = np.unique(np.concatenate(long), return_counts=True)
    return LengthCounts(np.concatenate([short, length]), np.concatenate([slots[short], documents]))
