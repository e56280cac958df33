"""Which documents are in which rows, steps and cells, from spans; no token is read.

A *unit* is what has a loss of its own: a row, a step, or, with losses of tokens, a document in a
row. With these, what a prediction usually costs after that much context is taken away
first: the first tokens of a document are hard in every document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.errors import ConfigError
from tokenloom.inspect.suspects.findings import BlamedPosition
from tokenloom.inspect.suspects.given import GivenLosses
from tokenloom.inspect.suspects.score import Incidence
from tokenloom.limits import limits

__all__ = ["Incident", "incident_of", "token_units"]

Float64 = NDArray[np.float64]

Int64 = NDArray[np.int64]

MOST = 1 << 26  # spans

SHIFT = 40  # source << SHIFT | document

BINS = 16  # positions of a frame


class Incident(NamedTuple):
    """Units and their documents, with names.

    Attributes:
        known: which documents are in which units.
        key: source and document of each document [documents].
        tokens: tokens of each document in all units [documents].
        source: number of the only source of each unit; -1 if it has several [units].
        sources: names of the sources.
        row: the row of each unit; for steps, that is the unit itself [units].
    """

    known: Incidence
    key: Int64
    tokens: Int64
    source: Int64
    sources: tuple[str, ...]
    row: Int64

    def name(self, number: int) -> tuple[str, int]:
        """(source, document) of a document."""
        key = int(self.key[number])
        return self.sources[key >> SHIFT], key & ((1 << SHIFT) - 1)

    def moments(self, clock: Int64) -> Callable[[int], set[int]]:
        """Given a document, tells in which moments it is."""

        def of(number: int) -> set[int]:
            units = self.known.unit[self.known.document == number]
            return set(clock[self.row[units]].tolist())

        return of


class _Pieces(NamedTuple):
    """Documents in rows: row, source and document together, cells and place of each piece."""

    row: Int64
    key: Int64
    length: Int64
    at: Int64
    start: Int64
    source: Int64  # of each row


def _pieces(run: Dataset, rows: Int64) -> _Pieces:
    chunk = limits().inspected_chunk_examples
    found: list[tuple[Int64, ...]] = []
    total, source_of = 0, np.empty(len(rows), np.int64)
    for low in range(0, len(rows), chunk):
        some = rows[low : low + chunk]
        spans = run.run.spans(some)
        numbers = run.run.pick(some)[0]
        source_of[low : low + chunk] = numbers
        key = (numbers[spans.row] << SHIFT) + spans.document
        cells = np.minimum(spans.length, np.maximum(0, run.seq_len - spans.at))
        found.append((spans.row + low, key, cells, spans.at, spans.start))
        total += len(key)
        if total > MOST:
            raise ConfigError(
                f"losses: they are about more than {MOST:,} documents in rows, which is more than "
                "is judged at once. Give fewer steps."
            )
    row, document, cells, at, start = (np.concatenate(one) for one in zip(*found, strict=True))
    return _Pieces(row, document, cells, at, start, source_of)


def incident_of(run: Dataset, rows: Int64, unit: Int64, units: int) -> Incident:
    """The documents of units that are made of whole rows.

    Args:
        run: the run.
        rows: the example of each row [rows].
        unit: the unit of each row [rows].
        units: how many there are.
    """
    pieces = _pieces(run, rows)
    keys, document = np.unique(pieces.key, return_inverse=True)
    owner = unit[pieces.row]
    pair, place = np.unique(owner * len(keys) + document, return_inverse=True)
    tokens = np.bincount(place, pieces.length, len(pair))
    which, whose = np.divmod(pair, max(1, len(keys)))
    whole = np.bincount(which, tokens, units)
    share = tokens / np.maximum(whole[which], 1.0)
    known = Incidence(units, len(keys), which, whose, share)
    low = np.full(units, len(run.run.names), np.int64)
    high = np.full(units, -1, np.int64)
    np.minimum.at(low, unit, pieces.source)
    np.maximum.at(high, unit, pieces.source)
    source = np.where(low == high, low, -1)
    counts = np.bincount(document, pieces.length, len(keys)).astype(np.int64)
    return Incident(known, keys, counts, source, run.run.names, np.arange(units))


def token_units(
    run: Dataset, given: GivenLosses, usual: Float64, whole: Incident
) -> tuple[Incident, Float64, tuple[BlamedPosition, ...], tuple[BlamedPosition, ...]]:
    """Documents in rows as units: what each is above the usual, and losses by position.

    Returns:
        the units; their losses above the usual, times the root of their tokens; losses by
        position in the frame; and by position in the document.
    """
    pieces = _pieces(run, given.examples)
    width = given.values.shape[1]
    count = np.maximum(0, np.minimum(pieces.at + pieces.length, width) - pieces.at)
    owner = np.repeat(np.arange(len(count)), count)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    cell = pieces.at[owner] + step
    loss = given.values[pieces.row[owner], cell]
    good = np.isfinite(loss)
    owner, step, cell, loss = owner[good], step[good], cell[good], loss[good]
    inside = pieces.start[owner] + step
    above = loss - usual[pieces.row[owner]]
    # what is usual after so much context
    context = np.log2(step + 1).astype(np.int64)
    means = np.bincount(context, above) / np.maximum(np.bincount(context), 1)
    above = above - means[context]
    tokens = np.bincount(owner, minlength=len(count))
    unit, keep = np.bincount(owner, above, len(count)), tokens > 0
    root = np.sqrt(np.maximum(tokens, 1))
    keys, document = np.unique(pieces.key[keep], return_inverse=True)
    known = Incidence(int(keep.sum()), len(keys), np.arange(keep.sum()), document, root[keep])
    total = np.bincount(document, tokens[keep], len(keys)).astype(np.int64)
    source = pieces.source[pieces.row[keep]]
    found = Incident(known, keys, total, source, whole.sources, pieces.row[keep])
    return (
        found,
        (unit / root)[keep],
        _by_position(cell, loss, _even(width)),
        _by_position(inside, loss, _doubling(int(inside.max(initial=0)) + 1)),
    )


def _even(width: int) -> Int64:
    """Edges of equal stretches of a frame."""
    return np.unique(np.linspace(0, width, min(width, BINS) + 1).astype(np.int64))


def _doubling(last: int) -> Int64:
    """0, 1, 2, 4, 8 … up to `last`."""
    powers = 1 << np.arange(max(1, last - 1).bit_length() + 1)
    return np.unique(np.concatenate([[0], powers[powers < last], [last]]))


def _by_position(place: Int64, loss: Float64, edges: Int64) -> tuple[BlamedPosition, ...]:
    """Mean loss between edges."""
    which = np.searchsorted(edges, place, side="right") - 1
    count = np.bincount(which, minlength=len(edges) - 1)
    mean = np.bincount(which, loss, len(edges) - 1) / np.maximum(count, 1)
    square = np.bincount(which, (loss - mean[which]) ** 2, len(edges) - 1)
    error = np.sqrt(square / np.maximum(count, 1) / np.maximum(count, 1))
    columns = edges[:-1], edges[1:], mean, error, count
    return tuple(
        BlamedPosition(first=a, last=b, loss=m, error=e, count=n)
        for a, b, m, e, n in zip(*(one.tolist() for one in columns), strict=True)
        if n
    )
