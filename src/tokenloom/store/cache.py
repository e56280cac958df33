"""Decoded blocks kept in memory: bounded in bytes, shared by threads, each block loaded once.

One idea: a caller asks ``get(key, load)``. Whoever comes first loads; whoever comes while that is
under way waits for the same result (single flight). Values are read-only arrays, so nobody can
change what the next reader sees.

A load that an exception of any kind ends, at any moment, keeps nobody waiting: a flight that is
over counts for nothing, wherever it is still listed. In the child of a fork, loads of the parent's
threads are forgotten, and the blocks are, too, if one of these threads was changing them.

Blocks may be loaded ahead of time (`Fetchers`): a source that answers several requests at once (a
bucket: 20 ms each, 16 in parallel) is kept busy while earlier tokens are consumed. Such a block is
*promised* (`reserve`): it has its place among the others, and drops others, from the moment on that
it is planned. So what the cache keeps and drops follows from the order of the requests, and not
from how fast a source answers. Whoever needs a promised block before a thread has begun with it
loads it; what fails is tried again, and told, by whoever needs it.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, StoreError
from tokenloom.store.handles import LOOK_AGAIN, Bell, Lock, Single, lock_of

__all__ = ["DEFAULT_CACHE_BYTES", "BlockCache", "CacheStats", "Fetchers", "Job", "process_cache"]

DEFAULT_CACHE_BYTES = 640 << 20

Block = NDArray[np.generic]

Job = Callable[[], object]

BRIEFLY = 0.001  # seconds between two looks whether threads are done


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was made; `bytes` and `blocks` are what it holds now."""

    hits: int
    misses: int
    evictions: int
    blocks: int
    bytes: int
    capacity: int


class _Flight:
    """A load under way, of one or more blocks.

    Attributes:
        values: key → block, complete once it is over without an error.
        error: why it failed.
        is_over: whether it has ended, in whatever way.
        waiters: locks, each held by nobody and locked until the load is over.
    """

    __slots__ = ("error", "is_over", "values", "waiters")

    def __init__(self) -> None:
        self.values: dict[Hashable, Block] = {}
        self.error: BaseException | None = None
        self.is_over = False
        self.waiters: tuple[Lock, ...] = ()


class _Promised:
    """A block that is loaded by whoever takes it first; it has its size before that.

    Attributes:
        nbytes: its size.
    """

    __slots__ = ("_bell", "_make", "_value", "nbytes")

    def __init__(self, nbytes: int, make: Callable[[], Block]) -> None:
        self.nbytes, self._make, self._bell = nbytes, [make], Bell()
        self._value: Block | None = None

    def take(self) -> Block | None:
        """The block, loaded now or waited for; None if another thread failed to load it."""
        try:
            make = self._make.pop()
        except IndexError:
            self._bell.wait()
            return self._value
        try:
            self._value = make()
            self._value.setflags(write=False)
        finally:
            self._bell.ring()
        return self._value


class BlockCache:
    """Least recently used blocks go first when `capacity` bytes are exceeded.

    A copy is an empty cache of the same capacity; that of a process is the one of its process.

    >>> cache = BlockCache(1 << 20)
    >>> int(cache.get("a", lambda: np.arange(3))[1])
    1
    >>> int(cache.get("a", lambda: np.arange(9))[1]), cache.stats().hits  # served from memory
    (1, 1)
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ConfigError(f"cache_bytes: found {capacity}, allowed: 0 (no cache) or more.")
        self._capacity = capacity
        self._blocks: OrderedDict[Hashable, Block | _Promised] = OrderedDict()
        self._flights: dict[Hashable, _Flight] = {}
        self._lock = lock_of(self)
        self._bytes = 0
        self._hits = self._misses = self._evictions = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (process_cache, ()) if self is _PROCESS else (BlockCache, (self._capacity,))

    def _forked(self, torn: bool) -> None:
        """Forget the loads of threads that are not here, and blocks that may be half-changed."""
        self._flights = {}
        kept = {} if torn else self._blocks
        here = ((key, one) for key, one in kept.items() if not isinstance(one, _Promised))
        self._blocks = OrderedDict(here)
        self._bytes = sum(block.nbytes for block in self._blocks.values())

    def get(self, key: Hashable, load: Callable[[], Block]) -> Block:
        """The block of `key`, loaded by `load` if it is not here; always read-only."""
        if not self._capacity:  # nothing can be kept, so there is nothing to share either
            with self._lock:
                self._misses += 1
            fresh = load()
            fresh.setflags(write=False)
            return fresh
        with self._lock:
            block = self._blocks.get(key)
            if isinstance(block, np.ndarray):
                self._blocks.move_to_end(key)
                self._hits += 1
                return block
        return self.get_many((key,), lambda _: [load()])[0]

    def get_many(
        self,
        keys: Sequence[Hashable],
        load: Callable[[list[int]], Sequence[Block]],
        again: Callable[[list[int]], Sequence[Block]] | None = None,
    ) -> list[Block]:
        """The blocks of several different keys; those missing are loaded in one call.

        Args:
            keys: what to look for.
            load: is given the places in `keys` of the missing ones, and gives their blocks.
            again: the same, for those that could not be loaded ahead of time; default: `load`.
        """
        with self._lock:
            here = [self._blocks.get(key) for key in keys]
            blocks = [block for block in here if isinstance(block, np.ndarray)]
            if len(blocks) == len(keys):  # nothing is missing: no more than this
                for key in keys:
                    self._blocks.move_to_end(key)
                self._hits += len(keys)
                return blocks
        flight = _Flight()
        try:
            found, promised, mine, theirs = self._look(keys, flight)
            if mine:
                some = [keys[place] for place in mine]
                flight.values = _loaded(some, load(mine))
                self._land(flight, some)
                found |= {place: flight.values[keys[place]] for place in mine}
        except BaseException as error:
            flight.error, flight.is_over = error, True  # before anything that may fail again
            with self._lock:  # it may have been raised between a change and its count
                self._bytes = sum(block.nbytes for block in self._blocks.values())
            self._land(flight, [key for key, one in self._flights.copy().items() if one is flight])
            raise
        for place, block in promised.items():
            found[place] = self._fulfilled(
                keys[place], block, functools.partial(again or load, [place])
            )
        for place, (other, landed) in theirs.items():
            value = _awaited(other, landed, keys[place])
            if value is None:  # whoever was loading it was interrupted
                value = self.get(keys[place], functools.partial(_first, load, place))
            found[place] = value
        return [found[place] for place in range(len(keys))]

    def _look(
        self, keys: Sequence[Hashable], flight: _Flight
    ) -> tuple[dict[int, Block], dict[int, _Promised], list[int], dict[int, tuple[_Flight, Lock]]]:
        """Places → blocks that are here, or promised; places that `flight` loads; others' loads."""
        found: dict[int, Block] = {}
        promised: dict[int, _Promised] = {}
        mine: list[int] = []
        theirs: dict[int, tuple[_Flight, Lock]] = {}
        with self._lock:
            for place, key in enumerate(keys):
                block, other = self._blocks.get(key), self._flights.get(key)
                if block is not None:
                    self._blocks.move_to_end(key)
                    if isinstance(block, _Promised):
                        promised[place] = block
                    else:
                        found[place] = block
                elif other is not None and not other.is_over:
                    theirs[place] = other, _waiting_for(other)
                else:
                    mine.append(place)
                    if self._capacity:
                        self._flights[key] = flight
            self._misses += len(mine)
            self._hits += len(found) + len(promised) + len(theirs)
        return found, promised, mine, theirs

    def reserve(
        self, keys: Sequence[Hashable], sizes: Sequence[int], makes: Sequence[Callable[[], Block]]
    ) -> list[Job]:
        """Keep places for blocks that are loaded later; the oldest others go now.

        Args:
            keys: of blocks that are `missing`.
            sizes: bytes of each.
            makes: what loads each.

        Returns:
            what to do for each of them, at any time, in any thread; it need not be done.
        """
        jobs: list[Job] = []
        with self._lock:
            self._misses += len(keys)
            for key, size, make in zip(keys, sizes, makes, strict=True):
                promised = _Promised(size, make)
                if size <= self._capacity and key not in self._blocks:
                    self._keep(key, promised)
                jobs.append(functools.partial(self._fulfilled, key, promised))
        return jobs

    def _fulfilled(
        self,
        key: Hashable,
        promised: _Promised,
        again: Callable[[], Sequence[Block]] | None = None,
    ) -> Block:
        """A promised block, loaded; it takes the place that was kept for it, if it still is."""
        block: Block | None = None
        try:
            block = promised.take()
        except Exception:
            if again is None:
                raise
        if block is None:  # it failed, here or in another thread
            if again is None:
                raise StoreError(f"{key}: another thread could not read it. Read it again.")
            (block,) = again()
            block.setflags(write=False)
        with self._lock:
            if self._blocks.get(key) is promised:
                self._blocks[key] = block
        return block

    def holds(self, keys: Sequence[Hashable]) -> bool:
        """Whether all these are here now; says nothing about how soon they go."""
        blocks = self._blocks
        with self._lock:
            return all(isinstance(blocks.get(key), np.ndarray) for key in keys)

    def missing(self, keys: Sequence[Hashable]) -> list[int]:
        """The places in `keys` of what is neither here nor promised; the others stay longer."""
        blocks, flights = self._blocks, self._flights
        with self._lock:
            for key in keys:
                if key in blocks:
                    blocks.move_to_end(key)
            return [i for i, key in enumerate(keys) if key not in blocks and key not in flights]

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Let what is here of these stay longer."""
        blocks = self._blocks
        with self._lock:
            for key in keys:
                if key in blocks:
                    blocks.move_to_end(key)

    @property
    def capacity(self) -> int:
        """Bytes that it may hold."""
        return self._capacity

    def stats(self) -> CacheStats:
        """Counts so far."""
        with self._lock:
            return CacheStats(
                self._hits,
                self._misses,
                self._evictions,
                len(self._blocks),
                self._bytes,
                self._capacity,
            )

    def clear(self) -> None:
        """Forget every block; counts stay."""
        with self._lock:
            self._blocks, self._bytes = OrderedDict(), 0

    def _land(self, flight: _Flight, keys: list[Hashable]) -> None:
        """Keep what a flight has loaded, and wake everybody who waits for it.

        It may be called again if it was interrupted.
        """
        with self._lock:
            for key, block in flight.values.items():
                if block.nbytes <= self._capacity:
                    self._keep(key, block)
            flight.is_over = True
            for key in keys:
                if self._flights.get(key) is flight:
                    del self._flights[key]
        for landed in flight.waiters:
            with contextlib.suppress(RuntimeError):  # it was woken already
                landed.release()

    def _keep(self, key: Hashable, block: Block | _Promised) -> None:
        """Keep a block and let the oldest go; the lock is held."""
        old = self._blocks.get(key)
        size = block.nbytes - (0 if old is None else old.nbytes)
        self._blocks[key] = block
        self._bytes += size
        while self._bytes > self._capacity:
            oldest = next(iter(self._blocks))
            size = self._blocks[oldest].nbytes
            self._bytes -= size
            del self._blocks[oldest]
            self._evictions += 1


def _loaded(keys: list[Hashable], blocks: Sequence[Block]) -> dict[Hashable, Block]:
    """Key → block, read-only."""
    for block in blocks:
        block.setflags(write=False)
    return dict(zip(keys, blocks, strict=True))


def _first(load: Callable[[list[int]], Sequence[Block]], place: int) -> Block:
    return load([place])[0]


def _waiting_for(flight: _Flight) -> Lock:
    """A lock that is locked until the load is over; the cache's lock is held."""
    landed = Lock()
    landed.acquire()
    flight.waiters += (landed,)
    return landed


def _awaited(flight: _Flight, landed: Lock, key: Hashable) -> Block | None:
    """A block that another thread loads; None if that thread was interrupted."""
    while not flight.is_over:  # asked again and again: who rings may be interrupted, too
        landed.acquire(timeout=LOOK_AGAIN)
    if isinstance(flight.error, Exception):
        raise flight.error
    return flight.values.get(key)


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

    @property
    def waiting(self) -> int:
        """Jobs that have not been started."""
        return len(self._jobs)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                job = self._jobs.popleft()
            with contextlib.suppress(Exception):  # whoever needs it meets the error again
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


_PROCESS = BlockCache(DEFAULT_CACHE_BYTES)


def process_cache() -> BlockCache:
    """The cache that all stores of this process share unless told otherwise (640 MiB)."""
    return _PROCESS
