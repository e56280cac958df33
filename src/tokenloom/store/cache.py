"""Decoded blocks kept in memory: bounded in bytes, shared by threads, each block loaded once.

A caller asks ``get(key, load)``. Whoever comes first loads; whoever comes while that is under way
waits for the same result. Values are read-only arrays, so nobody can change what the next reader
sees. If a load fails, its waiters are released and the key can be loaded again. The child of a fork
starts with an empty cache.

Blocks may be loaded ahead of time (`tokenloom.store.ahead`). Such a block has its place among the
others (`reserve`), and drops others, from the moment on that it is planned. So what the cache keeps
and drops follows from the order of the requests, and not from how fast a source answers. Whoever
needs such a block before a thread has begun with it loads it; what failed ahead of time is loaded
again, and its error raised, by whoever needs it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.store.handles import Pending, lock_of

DEFAULT_CACHE_BYTES = 640 << 20

Block = NDArray[np.generic]

Job = Callable[[], object]

Load = Pending[dict[Hashable, Block]]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was made; `bytes` and `blocks` are what it holds now."""

    hits: int
    misses: int
    evictions: int
    blocks: int
    bytes: int
    capacity: int


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
        self._blocks: OrderedDict[Hashable, Block | Pending[Block]] = OrderedDict()
        self._loads: dict[Hashable, Load] = {}
        self._lock = lock_of(self)
        self._bytes = 0
        self._hits = self._misses = self._evictions = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (process_cache, ()) if self is _PROCESS else (BlockCache, (self._capacity,))

    def _forked(self, torn: bool) -> None:
        """Start empty: another thread may have been loading a block, or changing the books."""
        self._blocks, self._loads, self._bytes = OrderedDict(), {}, 0

    def get(self, key: Hashable, load: Callable[[], Block]) -> Block:
        """The block of `key`, loaded by `load` if it is not here; always read-only."""
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
        found: dict[int, Block | Pending[Block]] = {}
        theirs: dict[int, Load] = {}
        mine: list[int] = []
        ours: Load = Pending(lambda: self._loaded([keys[place] for place in mine], load, mine))
        with self._lock:
            for place, key in enumerate(keys):
                block, other = self._blocks.get(key), self._loads.get(key)
                if block is not None:
                    self._blocks.move_to_end(key)
                    found[place] = block
                elif other is not None and not other.is_over:
                    theirs[place] = other
                else:
                    mine.append(place)
                    if self._capacity:
                        self._loads[key] = ours
            self._misses += len(mine)
            self._hits += len(keys) - len(mine)
        if mine:  # first, as another thread may be waiting for these
            loaded = ours.take()
            found |= {place: loaded[keys[place]] for place in mine}
        found |= {place: other.take()[keys[place]] for place, other in theirs.items()}
        return [
            self._fulfilled(keys[place], found[place], functools.partial(again or load, [place]))
            for place in range(len(keys))
        ]

    def _loaded(
        self,
        keys: list[Hashable],
        load: Callable[[list[int]], Sequence[Block]],
        places: list[int],
    ) -> dict[Hashable, Block]:
        """Key → block, loaded, and kept from now on."""
        try:
            blocks = dict(zip(keys, map(_read_only, load(places)), strict=True))
            with self._lock:
                for key, block in blocks.items():
                    if block.nbytes <= self._capacity:
                        self._keep(key, block)
        except BaseException:
            with self._lock:  # it may have been raised between a change and its count
                self._bytes = sum(block.nbytes for block in self._blocks.values())
            raise
        finally:
            with self._lock:
                for key in keys:
                    self._loads.pop(key, None)
        return blocks

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
                pending = Pending(make, size)
                if size <= self._capacity and key not in self._blocks:
                    self._keep(key, pending)
                jobs.append(functools.partial(self._fulfilled, key, pending))
        return jobs

    def _fulfilled(
        self,
        key: Hashable,
        block: Block | Pending[Block],
        again: Callable[[], Sequence[Block]] | None = None,
    ) -> Block:
        """A block itself; one that was reserved is loaded, and takes its place if it has one."""
        if isinstance(block, np.ndarray):
            return block
        try:
            made = block.take()
        except Exception:
            if again is None:
                raise
            (made,) = again()  # it failed ahead of time
        made = _read_only(made)
        with self._lock:
            if self._blocks.get(key) is block:
                self._blocks[key] = made
        return made

    def holds(self, keys: Sequence[Hashable]) -> bool:
        """Whether all these are here now; says nothing about how soon they go."""
        blocks = self._blocks
        with self._lock:
            return all(isinstance(blocks.get(key), np.ndarray) for key in keys)

    def missing(self, keys: Sequence[Hashable]) -> list[int]:
        """The places in `keys` of what is neither here nor reserved; the others stay longer."""
        blocks, loads = self._blocks, self._loads
        with self._lock:
            for key in keys:
                if key in blocks:
                    blocks.move_to_end(key)
            return [i for i, key in enumerate(keys) if key not in blocks and key not in loads]

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

    def _keep(self, key: Hashable, block: Block | Pending[Block]) -> None:
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


def _read_only(block: Block) -> Block:
    block.setflags(write=False)
    return block


_PROCESS = BlockCache(DEFAULT_CACHE_BYTES)


def process_cache() -> BlockCache:
    """The cache that all stores of this process share unless told otherwise (640 MiB)."""
    return _PROCESS
