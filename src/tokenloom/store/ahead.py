"""Reads that are made ahead of time, by threads, while what came before is being looked at.

From a source that answers several requests at once (`parallel`, see `tokenloom.store.byte_source`:
a bucket takes 20 ms for each, 16 in parallel) things are fetched before they are needed. Who is
faster must not decide what is read: `Underway` plans all reads of a request at once, and threads
then only make these reads, each once, in whatever order. `in_turn` gives things in order, with
those to come bounded in bytes, so memory does not depend on the size of the store.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.limits import limits
from tokenloom.store.byte_source import ByteSource, checking, parallel_reads, read_exactly
from tokenloom.store.cache import Job
from tokenloom.store.fetch import FetchRules, joined, plan_fetch, ranges_of
from tokenloom.store.handles import Pending, Single, lock_of
from tokenloom.store.shard import Array, OpenColumn, check_chunk

Bytes = NDArray[np.uint8]

T = TypeVar("T")

BRIEFLY = 0.001  # seconds between two looks whether threads are done

WAITING = 2  # times as many things as are fetched at once: a slow one keeps no thread idle


class Fetchers(Single):
    """Runs jobs in order of their arrival, several at a time, in threads that end with the work.

    Args:
        parallel: most jobs at a time.
    """

    def __init__(self, parallel: int) -> None:
        self._parallel, self._running = parallel, 0
        self._jobs: deque[Job] = deque()
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """The threads are in the parent; what they had left to do is theirs."""
        self._jobs, self._running = deque(), 0

    @property
    def _busy(self) -> bool:
        return self._running > 0

    def _leave(self) -> None:
        self.drop()

    def put(self, jobs: Iterable[Job]) -> None:
        """Have these done; where no thread can be started, nothing is done ahead of time."""
        with self._lock:
            self._jobs.extend(jobs)
            wanted = min(len(self._jobs), self._parallel - self._running)
            for _ in range(wanted):
                try:
                    _thread.start_new_thread(self._work, ())
                except RuntimeError:
                    break
                self._running += 1

    def drop(self) -> None:
        """Forget what has not been started."""
        self._jobs.clear()

    def finish(self) -> None:
        """Return when all is done that was not dropped."""
        while self._jobs or self._busy:
            if not self._one():
                time.sleep(BRIEFLY)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                job = self._jobs.popleft()
            with contextlib.suppress(BaseException):  # whoever needs it meets the error again
                job()
            del job

    def _one(self) -> bool:
        """Do the next job in this thread, if one is waiting."""
        with self._lock:
            job = self._jobs.popleft() if self._jobs else None
        if job is not None:
            with contextlib.suppress(Exception):
                job()
        return job is not None


def in_turn(
    makes: Iterable[tuple[int, Callable[[], T]]],
    source: ByteSource,
    *,
    most: int | None = None,
) -> Iterator[T]:
    """What some functions give, in their order; several are called at the same time.

    Args:
        makes: (bytes of what it gives, function) of each; asked for one after the other.
        source: what they read from; it says how many requests it answers at once.
        most: bytes that may be ready or under way, unless one thing alone has more; None for 64
            MiB.

    Raises:
        Exception: what a function raised, when it is its turn.

    >>> from tokenloom.store.byte_source import LocalSource
    >>> list(in_turn([(1, lambda: "a"), (1, lambda: "b")], LocalSource(".")))
    ['a', 'b']
    """
    parallel = parallel_reads(source)
    most = limits().read_ahead_bytes if most is None else most
    if parallel < 2:
        yield from (make() for _, make in makes)
        return
    fetchers, waiting, held = Fetchers(parallel), deque[Pending[T]](), 0
    left = iter(makes)
    ahead = next(left, None)
    try:
        while waiting or ahead is not None:
            while ahead is not None and len(waiting) < WAITING * parallel:
                if waiting and held + ahead[0] > most:
                    break
                nbytes, make = ahead
                waiting.append(Pending(make, nbytes))
                held += nbytes
                ahead = next(left, None)
                if ahead is not None or len(waiting) > 1:  # the only one needs no thread
                    fetchers.put([waiting[-1].take])
            first = waiting.popleft()
            held -= first.nbytes
            found = first.take()
            del first
            yield found
            del found  # what was given is whose it was given to
    finally:
        fetchers.drop()


def read_through(
    source: ByteSource, name: str, size: int, root: str, *, step: int | None = None
) -> Iterator[NDArray[np.uint8]]:
    """The first `size` bytes of a file, in order, `step` at a time (2 MiB).

    >>> import pathlib, tempfile
    >>> from tokenloom.store.byte_source import LocalSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "x").write_bytes(b"hello")
    ...     parts = read_through(LocalSource(folder), "x", 5, folder, step=4)
    ...     [part.tobytes() for part in parts]
    [b'hell', b'o']
    """
    step = limits().read_ahead_step_bytes if step is None else step
    asked = [(name, low, min(step, size - low)) for low in range(0, size, step)]
    makes = ((one[2], functools.partial(read_exactly, source, [one], root)) for one in asked)
    return (part for (part,) in in_turn(makes, source))


class _Part(NamedTuple):
    """What one array of a request needs.

    Attributes:
        first, last: its pieces.
        reads: the reads that have its pieces and its chunks, by their numbers.
        chunks: the chunks below it that must be checked, by their numbers.
    """

    first: int
    last: int
    reads: dict[int, Pending[Bytes]]
    chunks: list[int]


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
        self._sizes = sizes
        self.plan = plan = plan_fetch(columns, file, low, high, rules, cut)
        reads, ranges = plan.reads, len(file)
        self._ranges = ranges_of(columns, reads)
        self._read, self._low, self._high = (
            x.tolist() for x in (reads.read, reads.low, reads.high)
        )
        every = np.arange(ranges + len(plan.doubt_chunk) + 1)
        pieces = np.searchsorted(reads.request, every).tolist()
        self._chunk_pieces = pieces[ranges:]
        self._chunks = list(zip(plan.doubt_file.tolist(), plan.doubt_chunk.tolist(), strict=True))
        self._parts = self._divided(file, low, high, pieces)

    def _divided(self, file: Int64, low: Int64, high: Int64, pieces: list[int]) -> list[_Part]:
        """What each array needs; a read is held by the arrays that need it, and goes with them."""
        # ranges and arrays lie end to end: an array has the ranges that start inside it
        begin = np.cumsum(high - low) - (high - low)
        edges = np.searchsorted(begin, np.concatenate([[0], np.cumsum(self._sizes)])).tolist()
        below = self._chunks_below(file, low, high)
        made = [
            Pending(functools.partial(self._made, number)) for number in range(len(self._ranges))
        ]
        found = []
        for start, stop in itertools.pairwise(edges):
            first, last = pieces[start], pieces[stop]
            chunks = sorted(set(itertools.chain.from_iterable(below[start:stop])))
            reads = set(self._read[first:last])
            for one in chunks:
                reads |= set(self._read[self._chunk_pieces[one] : self._chunk_pieces[one + 1]])
            found.append(_Part(first, last, {one: made[one] for one in sorted(reads)}, chunks))
        return found

    def _chunks_below(self, file: Int64, low: Int64, high: Int64) -> list[list[int]]:
        """Of each range, the numbers of the chunks below it that must be checked."""
        if not self._chunks:
            return [[]] * len(file)
        inner = self._columns[0].inner
        numbers = {which: number for number, which in enumerate(self._chunks)}
        last = np.where(high > low, -(-high // inner), 0)  # an empty range has none
        ranges = zip(file.tolist(), (low // inner).tolist(), last.tolist(), strict=True)
        return [
            [numbers[name, chunk] for chunk in range(a, b) if (name, chunk) in numbers]
            for name, a, b in ranges
        ]

    def _made(self, number: int) -> Bytes:
        try:
            return read_exactly(self._source, [self._ranges[number]], self._root)[0]
        finally:
            self._count(self._ranges[number][2])

    def array(self, number: int) -> Array:
        """One array, once, with memory of its own; waits for reads that others have begun.

        Raises:
            OSError: or whatever the source raises; also where another thread met it.
            StoreCorrupt: a chunk below it differs from what was published.
        """
        part = self._parts[number]
        self._parts[number] = _Part(0, 0, {}, [])
        buffers, failed = dict[int, Bytes](), list[Exception]()
        for read, pending in part.reads.items():
            try:
                buffers[read] = pending.take()
            except Exception as error:  # noqa: BLE001 - raised below: all reads are made first
                failed.append(error)
        if failed:
            raise failed[0]
        for chunk in part.chunks:
            self._check(chunk, buffers)
        column = self._columns[0]
        views = [
            buffers[self._read[p]].view(column.dtype)[
                self._low[p] // column.item : self._high[p] // column.item
            ]
            for p in range(part.first, part.last)
        ]
        return joined(iter(views), int(self._sizes[number]), column.dtype)

    def _check(self, number: int, buffers: dict[int, Bytes]) -> None:
        name, chunk = self._chunks[number]
        places = range(self._chunk_pieces[number], self._chunk_pieces[number + 1])
        parts = [buffers[self._read[p]][self._low[p] : self._high[p]] for p in places]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        with checking(self._source, [self._ranges[self._read[p]] for p in places]):
            check_chunk(self._columns[name], chunk, whole, self._root)
