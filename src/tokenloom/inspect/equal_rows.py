"""Which examples of two runs are equal, from their plans; arrays are made only as a last resort.

One idea: two examples are equal if the same stretches of documents are in the same cells, trained
alike. Row numbers tell that if two sources have one layout, and spans if they read one content,
where documents go by their numbers; otherwise documents go by their hashes. No token is read. Only
where two sources are rendered differently, arrays are compared.

Epochs and names of sources are no part of an example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arrays import grouped, with_newest
from tokenloom.batch.views.digest import row_hashes
from tokenloom.layout.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.limits import limits
from tokenloom.order.run import Run, SourceRun
from tokenloom.store.hashes import stored_hashes
from tokenloom.store.reader import Reader

__all__ = ["EqualRows"]

Int64 = NDArray[np.int64]

UInt64 = NDArray[np.uint64]

Bools = NDArray[np.bool_]

BLOCK, KEPT = 1 << 14, 64  # documents whose hashes are read together, and such blocks in memory


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The rows that some examples of a run show.

    Attributes:
        run: the run.
        source, item, epoch, row: number of the source, item, epoch and row of each [N].
    """

    run: Run
    source: Int64
    item: Int64
    epoch: Int64
    row: Int64

    @staticmethod
    def of(run: Run, indices: Int64) -> ComparedRows:
        """The rows at some indices, looked up once."""
        found = ComparedRows(run, *(np.empty_like(indices) for _ in range(4)))
        for part in run.placed(indices):
            at = slice(None) if part.at is None else part.at
            found.source[at], found.item[at] = part.number, part.item
            found.epoch[at], found.row[at] = part.epoch, part.row
        return found

    def only(self, places: Int64) -> ComparedRows:
        """Some of them."""
        columns = (self.source, self.item, self.epoch, self.row)
        return ComparedRows(self.run, *(column[places] for column in columns))

    @property
    def spans(self) -> Spans:
        """The documents in each row; names of sources are left out."""
        parts, places = [], []
        for number, here in grouped(self.source):
            source = self.run.sources[number]
            parts.append(source.spans_of(self.item[here], self.epoch[here], self.row[here]))
            places.append(here)
        return Spans.joined([part.named("") for part in parts], places)


class EqualRows:
    """Compares examples of two runs by index.

    Args:
        a: a run.
        b: another one.
    """

    def __init__(self, a: Dataset, b: Dataset) -> None:
        self._runs = a, b
        self._alike = a.run.width == b.run.width and a.seq_len == b.seq_len
        readers = [one.layout.line.reader for ds in (a, b) for one in ds.run.sources]
        first = readers[0].manifest
        self._one_content = all(one.manifest.digest == first.digest for one in readers)
        # hashes of documents say nothing about further columns
        self._columns = not self._one_content and any(one.manifest.columns for one in readers)
        self._hashes = [_Hashes(one.layout.line.reader) for ds in (a, b) for one in ds.run.sources]
        mine, yours = ([one.render for one in ds.sources.values()] for ds in (a, b))
        # [sources of a, sources of b]: whether two of them are rendered differently, and whether
        # they have the same rows, none of them hidden
        self._differs = np.array([[x != y for y in yours] for x in mine])
        pairs = ([_rows_of(one) for one in ds.run.sources] for ds in (a, b))
        left, right = pairs
        self._same_rows = np.array([[x is not None and x == y for y in right] for x in left])

    def of(self, indices: Int64) -> Bools:
        """Whether the examples at each index, inside both runs, are equal [N]."""
        chunk = limits().compared_chunk_examples
        if not self._alike or not len(indices):
            return np.zeros(len(indices), np.bool_)
        a, b = (ComparedRows.of(ds.run, indices) for ds in self._runs)
        equal = self._by_plans(a, b)
        unsure = equal & (self._differs[a.source, b.source] | self._columns)
        for low in range(0, int(unsure.sum()), chunk):
            some = np.flatnonzero(unsure)[low : low + chunk]
            equal[some] = self._arrays(indices[some])
        return equal

    def _by_plans(self, a: ComparedRows, b: ComparedRows) -> Bools:
        """Whether the plans of both examples are the same [N]."""
        if self._columns:  # only arrays tell
            return np.ones(len(a.row), np.bool_)
        alike = self._same_rows[a.source, b.source]
        equal: Bools = alike & (a.row == b.row)
        other = np.flatnonzero(~alike)
        if len(other):
            mine, yours = a.only(other), b.only(other)
            equal[other] = self._plans(mine.spans, yours.spans, [mine.source, yours.source])
        return equal

    def _plans(self, a: Spans, b: Spans, sources: list[Int64]) -> Bools:
        """Whether the spans of each row hold the same tokens in the same cells [rows]."""
        count = np.diff(a.frame)
        equal = count == np.diff(b.frame)
        mine, yours = a.take(np.flatnonzero(equal)), b.take(np.flatnonzero(equal))
        left, right = (source[equal] for source in sources)
        same = (mine.start == yours.start) & (mine.length == yours.length) & (mine.at == yours.at)
        same &= (mine.flags == yours.flags) & (mine.seen == yours.seen)
        same &= self._inserted(mine, left, right)
        if self._one_content:
            same &= mine.document == yours.document
        else:
            many = len(self._runs[0].run.sources)
            keys = self._keys(mine, left, 0), self._keys(yours, right, many)
            same &= (keys[0] == keys[1]).all(axis=1)
        wrong = np.concatenate([[0], np.cumsum(~same)])[mine.frame]
        equal[np.flatnonzero(equal)] = np.diff(wrong) == 0
        found: Bools = equal
        return found

    def _inserted(self, spans: Spans, left: Int64, right: Int64) -> Bools:
        """Whether the tokens that both layouts insert are the same where they insert some."""
        flagged = (spans.flags & (BOS | EOS | EOS_BEFORE)) > 0
        if not flagged.any():
            return ~flagged
        known = [[one.layout.inserted for one in ds.run.sources] for ds in self._runs]
        names = sorted({str(one) for some in known for one in some})
        mine, yours = (np.array([names.index(str(one)) for one in some]) for some in known)
        differs: Bools = mine[left[spans.row]] != yours[right[spans.row]]
        return ~(flagged & differs)

    def _keys(self, spans: Spans, source: Int64, first: int) -> UInt64:
        """The hash of the document of each span [spans, 2]."""
        out = np.empty((len(spans.document), 2), np.uint64)
        for number, here in grouped(source[spans.row]):
            out[here] = self._hashes[first + number].of(spans.document[here])
        return out

    def _arrays(self, indices: Int64) -> Bools:
        """Whether the arrays of both examples at each index are the same [N]."""
        a, b = (ds.batch(indices) for ds in self._runs)
        pairs = zip(row_hashes(a), row_hashes(b), strict=True)
        same: Bools = np.array([x == y for x, y in pairs]) & (a.labels == b.labels).all(axis=1)
        return same


def _rows_of(run: SourceRun) -> tuple[Any, ...] | None:
    """What names the rows of a source; None if they depend on the epoch, or some are hidden."""
    layout = run.layout
    if run.blanks is not None or not layout.is_constant:
        return None
    return layout.line.identity, layout.tag, layout.inserted


class _Hashes:
    """Hashes of documents of a store, read a block at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._blocks: dict[int, UInt64] = {}

    def of(self, documents: Int64) -> UInt64:
        """The hash of each document [N, 2]."""
        out = np.empty((len(documents), 2), np.uint64)
        for block, here in grouped(documents // BLOCK):
            out[here] = self._block(block)[documents[here] - block * BLOCK]
        return out

    def _block(self, number: int) -> UInt64:
        found = self._blocks.get(number)
        if found is None:
            last = min((number + 1) * BLOCK, self._reader.manifest.documents)
            found = stored_hashes(self._reader, number * BLOCK, last)[:, 0]
            self._blocks = with_newest(self._blocks, number, found, KEPT)
        return found
