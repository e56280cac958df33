"""A request that is planned now and read later, by several threads.

One idea: who is faster must not decide what is read. All reads of a request, and the chunks that it
checks, are planned at once (`tokenloom.store.fetch.plan_fetch`); threads then only make these
reads, each once, in whatever order. Chunks that it is going to check are claimed from then on, so
the next request is planned as if they were checked already, and waits for the verdict.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreError
from tokenloom.store.byte_source import ByteSource, checking, read_exactly
from tokenloom.store.fetch import (
    CHECKED,
    CLAIMED,
    Claimed,
    FetchRules,
    chunks_below,
    joined,
    plan_fetch,
    ranges_of,
    settled,
)
from tokenloom.store.handles import Bell, Single
from tokenloom.store.shard import Array, OpenColumn, check_chunk

__all__ = ["Underway"]

Int64 = NDArray[np.int64]


class _Part(NamedTuple):
    """What one array of a request needs.

    Attributes:
        first, last: its pieces.
        reads: the reads that have its pieces and its doubtful chunks.
        doubts: the numbers of these chunks in the request.
        claimed: chunks that others check.
    """

    first: int
    last: int
    reads: list[int]
    doubts: list[int]
    claimed: list[Claimed]


class Underway(Single):
    """A request that is planned now and read later, read by read, by whoever needs one first.

    Args:
        source: where the bytes are.
        columns: see `fetch`, like the others.
        file: the column of each range.
        low: its first element.
        high: the element after its last.
        sizes: elements of each array: the ranges, in order, make them up [arrays].
        rules: how to read.
        root: the store, for messages.
        cut: most bytes of a read.
        count: told the bytes of every read that was tried.
    """

    def __init__(
        self,
        source: ByteSource,
        columns: Sequence[OpenColumn],
        file: Int64,
        low: Int64,
        high: Int64,
        sizes: Int64,
        *,
        rules: FetchRules,
        root: str,
        cut: int | None,
        count: Callable[[int], None],
    ) -> None:
        self._source, self._columns, self._root, self._count = source, columns, root, count
        self._always, self._sizes = rules.verify == "always", sizes
        self.plan = plan = plan_fetch(columns, file, low, high, rules, cut)
        reads, ranges = plan.reads, len(plan.start)
        self._ranges = ranges_of(columns, reads)
        self._read, self._low, self._high = (
            x.tolist() for x in (reads.read, reads.low, reads.high)
        )
        every = np.arange(ranges + len(plan.doubt_chunk) + 1)
        pieces = np.searchsorted(reads.request, every).tolist()
        self._doubt_pieces = pieces[ranges:]
        self._doubts = list(zip(plan.doubt_file.tolist(), plan.doubt_chunk.tolist(), strict=True))
        self._untaken = dict.fromkeys(range(len(self._ranges)))
        self._landed: dict[int, NDArray[np.uint8] | BaseException | None] = {}
        self._bells = [Bell() for _ in self._ranges]  # rung when a read is over
        self._parts = self._divided(file, low, high, sizes, pieces)
        # one None for each array that needs a read
        self._uses: list[list[None]] = [[] for _ in self._ranges]
        for read in itertools.chain.from_iterable(part.reads for part in self._parts):
            self._uses[read].append(None)
        if rules.verify == "first":
            self._claim()

    def _divided(
        self, file: Int64, low: Int64, high: Int64, sizes: Int64, pieces: list[int]
    ) -> list[_Part]:
        """What each array needs."""
        # ranges and arrays lie end to end: an array has the ranges that start inside it
        begin = np.cumsum(high - low) - (high - low)
        edges = np.searchsorted(begin, np.concatenate([[0], np.cumsum(sizes)])).tolist()
        places = {which: number for number, which in enumerate(self._doubts)}
        is_quiet = not places and not any(column.claims for column in self._columns)
        below = [] if is_quiet else list(chunks_below(self._columns, file, low, high))
        found = []
        for start, stop in itertools.pairwise(edges):
            first, last = pieces[start], pieces[stop]
            doubts = {
                places[n, c] for n, some in below[start:stop] for c in some if (n, c) in places
            }
            claimed = {
                (n, c): (self._columns[n], c)
                for n, some in below[start:stop]
                for c in some
                if self._columns[n].checked[c] == CLAIMED
            }
            reads = set(self._read[first:last])
            for one in doubts:
                reads |= set(self._read[self._doubt_pieces[one] : self._doubt_pieces[one + 1]])
            found.append(_Part(first, last, sorted(reads), sorted(doubts), list(claimed.values())))
        return found

    def _claim(self) -> None:
        for place, (number, chunk) in enumerate(self._doubts):
            column = self._columns[number]
            column.claims[chunk] = functools.partial(self._check, place)
            column.checked[chunk] = CLAIMED

    def array(self, number: int) -> Array:
        """One array, with memory of its own; waits for reads that others have begun.

        Raises:
            OSError: or whatever the source raises; also where another thread met it.
            StoreCorrupt: a chunk below it differs from what was published.
        """
        part, dtype = self._parts[number], self._columns[0].dtype
        return joined(iter(self._views(part)), int(self._sizes[number]), dtype)

    def _views(self, part: _Part) -> list[Array]:
        """The elements of one array, in order."""
        try:
            self._read_all(part.reads)
            for doubt in part.doubts:
                self._check(doubt)
            if part.claimed and not settled(part.claimed):
                raise StoreError(
                    f"{self._root}: a chunk was not checked: its read failed. Read it again."
                )
            dtype, item = self._columns[0].dtype, self._columns[0].item
            return [
                self._buffer(self._read[p]).view(dtype)[
                    self._low[p] // item : self._high[p] // item
                ]
                for p in range(part.first, part.last)
            ]
        finally:
            for doubt in part.doubts:
                self._unclaim(doubt)
            self._release(part)

    def _read_all(self, reads: Sequence[int]) -> None:
        """Make all these reads, also where one fails: what is read depends on nothing else."""
        failed: Exception | None = None
        for read in reads:
            try:
                self._buffer(read)
            except Exception as error:  # noqa: BLE001 - raised below
                failed = failed or error
        if failed is not None:
            raise failed

    def _check(self, doubt: int) -> None:
        """Check a chunk, unless that was done; its pieces are read if they are not there."""
        number, chunk = self._doubts[doubt]
        column = self._columns[number]
        if column.checked[chunk] == CHECKED and not self._always:
            return
        places = range(self._doubt_pieces[doubt], self._doubt_pieces[doubt + 1])
        parts = [self._buffer(self._read[p])[self._low[p] : self._high[p]] for p in places]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        with checking(self._source, [self._ranges[self._read[p]] for p in places]):
            check_chunk(column, chunk, whole, self._root)

    def _unclaim(self, doubt: int) -> None:
        """Nobody needs to wait for a chunk any more; if it was not checked, others check it."""
        number, chunk = self._doubts[doubt]
        column = self._columns[number]
        if column.checked[chunk] == CLAIMED:
            column.checked[chunk] = 0
        column.claims.pop(chunk, None)

    def _buffer(self, read: int) -> NDArray[np.uint8]:
        """The bytes of a read: made now, or waited for if another thread is about it."""
        if self._untaken.pop(read, read) is None:
            try:
                self._landed[read] = read_exactly(self._source, [self._ranges[read]], self._root)[0]
            except BaseException as error:
                self._landed[read] = error
                raise
            finally:
                self._count(self._ranges[read][2])
                self._bells[read].ring()
        self._bells[read].wait()
        found = self._landed[read]
        if not isinstance(found, np.ndarray):
            raise StoreError(
                f"{self._root}: a read failed, or its bytes are no longer kept. Read them again."
            ) from found
        return found

    def _release(self, part: _Part) -> None:
        """Let go of the bytes that no other array needs."""
        for read in part.reads:
            self._uses[read].pop()
            if not self._uses[read]:
                self._landed[read] = None
