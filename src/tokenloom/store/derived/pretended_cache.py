"""A cache that keeps, drops and counts like `BlockCache`, and has no blocks.

One idea: what a cache drops follows from the order in which its blocks were used. So a use is a
number: `used[b]` is when block b was used last, 0 if it is not held, and a log lists all uses in
order. Whatever must go is at the head of the log; entries of blocks that were used again since are
skipped. Uses, log and sizes are arrays, so that a request costs a few array operations, however
many blocks it has.

It belongs to one thread. A law compares it with what loaders read (`tests/laws/test_look_laws.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tokenloom.store.cache import BlockCache, CacheStats, Job

__all__ = ["BlockKeys", "PretendedCache"]

Int64 = NDArray[np.int64]

Array = NDArray[Any]

ROOM = 1 << 10  # blocks that a new cache has places for

TOGETHER = 16  # entries of the log that are looked at together

MOST_ENTRIES = 1 << 12  # of the log


class BlockKeys(Sequence[Hashable]):
    """The keys of numbered blocks, without a Python object for each.

    >>> list(BlockKeys("a", np.array([3, 5])))
    [('a', 3), ('a', 5)]
    """

    __slots__ = ("known", "numbers", "whose")

    def __init__(self, whose: str, numbers: Int64) -> None:
        self.whose, self.numbers = whose, numbers
        self.known: tuple[PretendedCache, Int64] | None = None  # their places in a cache

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return self.whose, int(self.numbers[place])

    def __iter__(self) -> Iterator[Hashable]:
        return ((self.whose, number) for number in self.numbers.tolist())


class PretendedCache(BlockCache):
    """A cache for one thread, of blocks of which only the sizes matter.

    Blocks of `BlockKeys` are not kept, and nobody is given them; others are.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._places: dict[str, Int64] = {}  # whose → place of each number, -1: none yet
        self._other: dict[Hashable, int] = {}  # other keys → place
        self._values: dict[int, Array] = {}  # place → what is kept of these
        self._used = np.zeros(ROOM, np.int64)
        self._sizes = np.zeros(ROOM, np.int64)
        self._log: deque[tuple[Int64, int]] = deque()  # places, and when the first was used
        self._next_place, self._clock = 0, 1

    def __reduce__(self) -> tuple[Any, ...]:
        return PretendedCache, (self._capacity,)

    def get(self, key: Hashable, load: Callable[[], Array]) -> Array:
        """See `BlockCache`."""
        return self.get_many((key,), lambda _: [load()])[0]

    def get_many(
        self,
        keys: Sequence[Hashable],
        load: Callable[[list[int]], Sequence[Array]],
        again: Callable[[list[int]], Sequence[Array]] | None = None,
    ) -> list[Array]:
        """See `BlockCache`; nothing is given for `BlockKeys`."""
        places = self._places_of(keys)
        held = self._used[places] > 0
        if held.all():
            self._use(places)
            self._hits += len(keys)
            return self._kept(keys, places)
        self._use(places[held])
        mine = np.flatnonzero(~held)
        self._hits += len(keys) - len(mine)
        self._misses += len(mine)
        if isinstance(keys, BlockKeys):
            self._take(places[mine], _sizes_of(load(cast(Any, mine))))
            return []
        here = {place: self._values[place] for place in places[held].tolist()}
        loaded = load(mine.tolist())
        here |= dict(zip(places[mine].tolist(), loaded, strict=True))
        self._values |= here
        self._take(places[mine], _sizes_of(loaded))
        return [here[place] for place in places.tolist()]

    def _kept(self, keys: Sequence[Hashable], places: Int64) -> list[Array]:
        if isinstance(keys, BlockKeys):
            return []
        return [self._values[place] for place in places.tolist()]

    def reserve(
        self, keys: Sequence[Hashable], sizes: Sequence[int], makes: Sequence[Callable[[], Array]]
    ) -> list[Job]:
        """See `BlockCache`; everything is there at once."""
        self._misses += len(keys)
        places = self._places_of(keys)
        if not isinstance(keys, BlockKeys):
            for place, make in zip(places.tolist(), makes, strict=True):
                self._values[place] = make()
        self._take(places, np.asarray(sizes, np.int64))
        return []

    def missing(self, keys: Sequence[Hashable]) -> list[int]:
        """See `BlockCache`."""
        places = self._places_of(keys)
        held = self._used[places] > 0
        self._use(places[held])
        return cast("list[int]", np.flatnonzero(~held))

    def touch(self, keys: Sequence[Hashable]) -> None:
        """See `BlockCache`."""
        places = self._places_of(keys)
        self._use(places[self._used[places] > 0])

    def holds(self, keys: Sequence[Hashable]) -> bool:
        """See `BlockCache`."""
        return bool((self._used[self._places_of(keys)] > 0).all())

    def stats(self) -> CacheStats:
        """See `BlockCache`."""
        blocks = int(np.count_nonzero(self._used))
        counts = self._hits, self._misses, self._evictions
        return CacheStats(*counts, blocks, self._bytes, self._capacity)

    def clear(self) -> None:
        """See `BlockCache`."""
        self._used[:], self._bytes = 0, 0
        self._log.clear()
        self._values.clear()

    # -- uses ------------------------------------------------------------------------------

    def _use(self, places: Int64) -> None:
        """These were used now, in this order; no two are the same."""
        if len(places):
            self._used[places] = np.arange(self._clock, self._clock + len(places))
            self._log.append((places, self._clock))
            self._clock += len(places)
            if len(self._log) > MOST_ENTRIES:
                self._shorten()

    def _shorten(self) -> None:
        """One entry for all that is held: the log would grow without an end if nothing must go."""
        held = np.flatnonzero(self._used)
        places = held[np.argsort(self._used[held])]
        self._log.clear()
        self._clock = 1
        self._use(places)

    def _take(self, places: Int64, sizes: Int64) -> None:
        """Keep new blocks, and let the oldest go.

        All at once is the same as one by one: what must go for an earlier block must go for all.
        """
        if int(sizes.max(initial=0)) > self._capacity:
            fit = sizes <= self._capacity
            places, sizes = places[fit], sizes[fit]
        self._sizes[places] = sizes
        self._use(places)
        self._bytes += int(sizes.sum())
        while self._bytes > self._capacity:
            self._let_go()

    def _let_go(self) -> None:
        """Let the oldest blocks of some entries of the log go, as far as necessary."""
        count = min(TOGETHER, len(self._log))
        entries = [self._log.popleft() for _ in range(count)]
        places = np.concatenate([one for one, _ in entries])
        used = np.concatenate([np.arange(first, first + len(one)) for one, first in entries])
        live = np.flatnonzero(self._used[places] == used)
        before = np.cumsum(self._sizes[places[live]])
        gone = int(np.searchsorted(before, self._bytes - self._capacity)) + 1
        going = places[live[:gone]]
        self._used[going] = 0
        self._bytes -= int(before[min(gone, len(live)) - 1]) if len(live) else 0
        self._evictions += len(going)
        if gone < len(live):
            self._put_back(entries, int(live[gone]))
        if self._values:
            for place in going.tolist():
                self._values.pop(place, None)

    def _put_back(self, entries: list[tuple[Int64, int]], gone: int) -> None:
        """Entries of the log, without the first `gone` uses."""
        while len(entries[0][0]) <= gone:
            gone -= len(entries.pop(0)[0])
        places, first = entries[0]
        entries[0] = places[gone:], first + gone
        self._log.extendleft(reversed(entries))

    # -- places ----------------------------------------------------------------------------

    def _places_of(self, keys: Sequence[Hashable]) -> Int64:
        """The place of each block in the arrays."""
        if not isinstance(keys, BlockKeys):
            return np.array([self._other_place(key) for key in keys], np.int64)
        if keys.known is not None and keys.known[0] is self:
            return keys.known[1]
        places = self._looked_up(keys)
        keys.known = self, places
        return places

    def _looked_up(self, keys: BlockKeys) -> Int64:
        known = self._places.get(keys.whose)
        most = int(keys.numbers.max(initial=-1)) + 1
        if known is None or most > len(known):
            old = np.empty(0, np.int64) if known is None else known
            grown = np.full(max(ROOM, 2 * most), -1, np.int64)
            grown[: len(old)] = old
            known = self._places[keys.whose] = grown
        found = known[keys.numbers]
        fresh = np.flatnonzero(found < 0)
        if len(fresh):
            found[fresh] = self._new_places(len(fresh))
            known[keys.numbers[fresh]] = found[fresh]
        return found

    def _other_place(self, key: Hashable) -> int:
        place = self._other.get(key)
        if place is None:
            place = self._other[key] = int(self._new_places(1)[0])
        return place

    def _new_places(self, count: int) -> Int64:
        first, self._next_place = self._next_place, self._next_place + count
        if self._next_place > len(self._used):
            more = np.zeros(2 * self._next_place, np.int64)
            for name in ("_used", "_sizes"):
                grown = more.copy()
                grown[: len(getattr(self, name))] = getattr(self, name)
                setattr(self, name, grown)
        return np.arange(first, self._next_place)


def _sizes_of(blocks: Sequence[Array]) -> Int64:
    """Bytes of each; most requests have blocks that are all one and the same."""
    if len(set(map(id, blocks))) == 1:
        return np.full(len(blocks), blocks[0].nbytes)
    return np.fromiter((block.nbytes for block in blocks), np.int64, len(blocks))
