"""Decoded blocks kept in memory: bounded in bytes, shared by threads, each block loaded once.

One idea: a caller asks ``get(key, load)``. Whoever comes first loads; whoever comes while that is
under way waits for the same result (single flight). Values are read-only arrays, so nobody can
change what the next reader sees.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError

__all__ = ["DEFAULT_CACHE_BYTES", "BlockCache", "CacheStats", "process_cache"]

DEFAULT_CACHE_BYTES = 640 << 20

Block = NDArray[np.generic]


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
    """A load under way. `waiters` are locks, each held until the load has ended."""

    value: Block | None = None
    error: BaseException | None = None
    waiters: tuple[threading.Lock, ...] = ()


class BlockCache:
    """Least recently used blocks go first when `capacity` bytes are exceeded.

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
        self._blocks: OrderedDict[Hashable, Block] = OrderedDict()
        self._flights: dict[Hashable, _Flight] = {}
        self._lock = threading.Lock()
        self._bytes = 0
        self._hits = self._misses = self._evictions = 0

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
            if block is not None:
                self._blocks.move_to_end(key)
                self._hits += 1
                return block
            flight = self._flights.get(key)
            if flight is not None:
                self._hits += 1
                landed = _waiting_for(flight)
            else:
                self._misses += 1
                landed = None
                flight = self._flights[key] = _Flight()
        if landed is None:
            return self._load(key, load, flight)
        with landed:
            return _result(flight)

    def get_many(
        self, keys: Sequence[Hashable], load: Callable[[list[int]], Sequence[Block]]
    ) -> list[Block]:
        """The blocks of several different keys; those missing are loaded in one call.

        Args:
            keys: what to look for.
            load: is given the places in `keys` of the missing ones, and gives their blocks.
        """
        found: dict[int, Block] = {}
        mine: dict[int, _Flight] = {}
        theirs: dict[int, tuple[_Flight, threading.Lock]] = {}
        with self._lock:
            here = [self._blocks.get(key) for key in keys]
            blocks = [block for block in here if block is not None]
            if len(blocks) == len(keys):  # nothing is missing: no more than this
                for key in keys:
                    self._blocks.move_to_end(key)
                self._hits += len(keys)
                return blocks
            for place, key in enumerate(keys):
                block, flight = self._blocks.get(key), self._flights.get(key)
                if block is not None:
                    self._blocks.move_to_end(key)
                    found[place] = block
                elif flight is not None:
                    theirs[place] = flight, _waiting_for(flight)
                else:
                    mine[place] = _Flight()
                    if self._capacity:
                        self._flights[key] = mine[place]
            self._misses += len(mine)
            self._hits += len(found) + len(theirs)
        if mine:
            self._land(keys, mine, load)
            found |= {place: _result(flight) for place, flight in mine.items()}
        for place, (flight, landed) in theirs.items():
            with landed:
                found[place] = _result(flight)
        return [found[place] for place in range(len(keys))]

    def holds(self, keys: Sequence[Hashable]) -> bool:
        """Whether all these are here now; says nothing about how soon they go."""
        blocks = self._blocks
        with self._lock:
            return all(key in blocks for key in keys)

    def _land(
        self,
        keys: Sequence[Hashable],
        flights: dict[int, _Flight],
        load: Callable[[list[int]], Sequence[Block]],
    ) -> None:
        """Load all these, and let everybody know who waits for them."""
        try:
            for flight, block in zip(flights.values(), load(list(flights)), strict=True):
                block.setflags(write=False)
                flight.value = block
        except BaseException as error:
            for flight in flights.values():
                flight.value, flight.error = None, error  # nothing of a failed load is kept
            raise
        finally:
            with self._lock:
                for place, flight in flights.items():
                    self._flights.pop(keys[place], None)
                    if flight.value is not None and flight.value.nbytes <= self._capacity:
                        self._keep(keys[place], flight.value)
            for flight in flights.values():
                for landed in flight.waiters:
                    landed.release()

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
            self._blocks.clear()
            self._bytes = 0

    def _load(self, key: Hashable, load: Callable[[], Block], flight: _Flight) -> Block:
        self._land([key], {0: flight}, lambda _: [load()])
        return _result(flight)

    def _keep(self, key: Hashable, block: Block) -> None:
        """Keep a block and let the oldest go; the lock is held."""
        self._blocks[key] = block
        self._bytes += block.nbytes
        while self._bytes > self._capacity:
            _, old = self._blocks.popitem(last=False)
            self._bytes -= old.nbytes
            self._evictions += 1


def _waiting_for(flight: _Flight) -> threading.Lock:
    """A lock that is held until the load has ended; the cache's lock is held."""
    landed = threading.Lock()
    landed.acquire()
    flight.waiters += (landed,)
    return landed


def _result(flight: _Flight) -> Block:
    """What a load that has ended gave."""
    if flight.error is not None:
        raise flight.error
    assert flight.value is not None  # set unless there is an error
    return flight.value


_process_cache: BlockCache | None = None

_process_lock = threading.Lock()


def process_cache() -> BlockCache:
    """The cache that all stores of this process share unless told otherwise (640 MiB)."""
    global _process_cache
    with _process_lock:
        if _process_cache is None:
            _process_cache = BlockCache(DEFAULT_CACHE_BYTES)
        return _process_cache
