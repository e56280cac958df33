"""Counts over starts and offsets, in bins: the plain record behind maps and pictures.

One idea: a bin holds a whole number of the values that there can be (starts of a document, offsets
of a frame), all bins equally many but the last, so that a stride never looks like a pattern.

Worked example: starts 0 3 6 9 12 in at most 3 bins: 0 3 | 6 9 | 12.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axis", "Grid", "even_bins", "exact_bins"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """Values in bins.

    Attributes:
        edges: the first value of every bin, and where the last one ends [bins + 1].
        size: values that there can be in each [bins].
        last: the last value.
    """

    edges: Int64
    size: Int64
    last: int

    def __len__(self) -> int:
        return len(self.size)

    def of(self, values: Int64) -> Int64:
        """The bin of each value [N]."""
        found: Int64 = np.searchsorted(self.edges[:-1], values, side="right") - 1
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """How often splices begin at t and stand at s.

    Attributes:
        t: starts, in bins.
        s: offsets of a frame, in bins.
        counts: splices in each [n_t, n_s].
    """

    t: Axis
    s: Axis
    counts: Int64

    @property
    def density(self) -> Float64:
        """Splices of a start, in as many offsets as a bin has, on average [n_t, n_s]."""
        found: Float64 = self.counts / self.t.size[:, None] * (self.s_width / self.s.size)
        return found

    @property
    def s_width(self) -> int:
        """Offsets of a bin; the last one may have fewer."""
        return int(self.s.size.max(initial=1))


def even_bins(values: Int64, most: int) -> Axis:
    """At most so many bins with equally many values, but for the last.

    >>> even_bins(np.array([0, 3, 6, 9, 12]), 3).edges.tolist()
    [0, 6, 12, 15]
    """
    width = max(1, -(-len(values) // max(1, most)))
    return _axis(values, np.append(np.arange(0, len(values), width), len(values)))


def exact_bins(values: Int64, bins: int) -> Axis:
    """Exactly so many bins, or as many as there are values, their sizes at most one apart."""
    bins = min(bins, len(values))
    return _axis(values, np.arange(bins + 1) * len(values) // max(1, bins))


def _axis(values: Int64, first: Int64) -> Axis:
    """Bins that begin at these numbers of values."""
    step = values[-1] - values[-2] if len(values) > 1 else 1
    end = values[-1:] + step
    edges = np.append(values[first[:-1]], end if len(end) else 0)
    return Axis(edges, np.diff(first), int(values[-1]) if len(values) else 0)
