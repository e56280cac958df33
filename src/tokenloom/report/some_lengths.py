"""Lengths of the documents of a source: all of them, or of a keyed sample that says so.

Offsets lie in chunks, so a sample takes whole stretches of neighbours: a few reads,
whether a store has a million documents or a hundred billion. Their places are keyed by the line of
documents, so the same run gives the same numbers everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.pack.rows import Bounded
from tokenloom.limits import limits
from tokenloom.random.keys import draws, key
from tokenloom.store.length_counts import LengthCounts, count_pieces

Int64 = NDArray[np.int64]

EXACT = 1 << 22  # documents whose lengths are all looked at: 40 ms

STRETCHES, SIZE = 24, 1 << 15  # of a sample


class Stretch(NamedTuple):
    """Documents [first, last) of a line."""

    first: int
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SomeLengths:
    """Lengths that were looked at.

    Attributes:
        counts: how many documents have each length; of a sample, scaled to all documents.
        looked: documents that were looked at.
        documents, tokens: of all documents, exactly.
    """

    counts: LengthCounts
    looked: int
    documents: int
    tokens: int

    @property
    def is_sample(self) -> bool:
        """Whether there are others."""
        return self.looked < self.documents


def some_stretches(
    line: Bounded, most: int, *, size: int, name: str = "lengths"
) -> tuple[Stretch, ...]:
    """Stretches of documents: the whole line if it has at most `most`, else a keyed choice.

    Args:
        line: the documents.
        most: documents to look at, about.
        size: documents of a stretch.
        name: what it is for; another name is another sample.
    """
    if line.documents <= most:
        return (Stretch(0, line.documents),)
    blocks = line.documents // size
    wanted = min(blocks, max(1, most // size))
    stream = key(0, "report", name, line.identity)
    # one in each of `wanted` equal parts, so that they are spread over the line
    edges = np.arange(wanted + 1) * blocks // wanted
    inside = draws(stream, np.arange(wanted, dtype=np.uint64)) % np.diff(edges).astype(np.uint64)
    chosen = (edges[:-1] + inside.astype(np.int64)).tolist()
    return tuple(Stretch(one * size, (one + 1) * size) for one in chosen)


def some_lengths(line: Bounded, most: int = EXACT) -> SomeLengths:
    """The lengths of a line; reads offsets only, no token."""
    size = max(1, min(SIZE, most // STRETCHES))
    whole = line.documents <= most
    stretches = some_stretches(line, most if whole else STRETCHES * size, size=size)
    counts = count_pieces(_pieces(line, stretches))
    looked = sum(one.last - one.first for one in stretches)
    if looked < line.documents:
        scaled = np.rint(counts.documents * (line.documents / looked)).astype(np.int64)
        counts = LengthCounts(counts.length, np.maximum(scaled, 1))
    return SomeLengths(counts=counts, looked=looked, documents=line.documents, tokens=line.tokens)


def other_lengths(lines: Sequence[Bounded]) -> SomeLengths:
    """The lengths of many lines as one: of all documents, or of a sample of each line's."""
    documents = sum(one.documents for one in lines)
    each = EXACT if documents <= EXACT else EXACT // len(lines)
    found = [some_lengths(one, each) for one in lines]
    return SomeLengths(
        counts=together([one.counts for one in found]),
        looked=sum(one.looked for one in found),
        documents=documents,
        tokens=sum(one.tokens for one in lines),
    )


def together(found: Sequence[LengthCounts]) -> LengthCounts:
    """The lengths of several lines as one.

    >>> one = LengthCounts(np.array([2, 5]), np.array([1, 3]))
    >>> together([one, one]).documents.tolist()
    [2, 6]
    """
    lengths = np.concatenate([np.empty(0, np.int64), *(one.length for one in found)])
    counts = np.concatenate([np.empty(0, np.int64), *(one.documents for one in found)])
    length, place = np.unique(lengths, return_inverse=True)
    documents = np.zeros(len(length), np.int64)
    np.add.at(documents, place, counts)
    return LengthCounts(length, documents)


def _pieces(line: Bounded, stretches: tuple[Stretch, ...]) -> Iterator[Int64]:
    chunk = limits().offset_chunk_documents
    for first, last in stretches:
        for low in range(first, last, chunk):
            yield np.diff(line.bounds(low, min(low + chunk, last))[1])
