"""What a store has beside its tokens, worked out for a foreign one and remembered.

One idea: offsets, document hashes and counts of loss columns are columns of every shard. Foreign
files do not have them in our form, so one pass over the tokens makes them, and they are kept as
*parts*, a few KiB each with a checksum of its own (`tokenloom.store.plan_cache`), named by path,
sizes, times and a sample of the bytes of the files. The next process reads only the parts that it
asks for. Where nothing can be written, they stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, StoreError
from tokenloom.foreign.described import VirtualShard
from tokenloom.foreign.pieces import PieceLine
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store.hashes import DocumentHasher
from tokenloom.store.loss_counts import LossCounter
from tokenloom.store.shard import ChunkSums

Array = NDArray[Any]

Int64 = NDArray[np.int64]

PART = 1 << 14  # elements of a part

Tick = Callable[[int], None]


def pass_cache_bytes() -> int:
    """Bytes of decoded chunks that are kept during a pass.

    Those on their way, and as much again, so that a chunk which two shards share is still there for
    the second.
    """
    return 2 * limits().read_ahead_bytes


class PartList(Protocol):
    """Parts in a file or in memory."""

    def read(self, numbers: Sequence[int]) -> list[bytes] | None:
        """These parts; None if they are not there any more."""


class InMemory(list[bytes]):
    """Parts that could not be written."""

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """See `PartList`."""
        return [self[number] for number in numbers]


def column_lengths(
    shard: VirtualShard, columns: Sequence[str], *, hashed: bool, sealed: bool = False
) -> dict[str, tuple[str, int]]:
    """The columns that a companion has for a shard, in order: name → dtype, elements."""
    found = {"offsets": ("uint32", shard.documents + 1)}
    if hashed:
        found["doc_hash"] = ("uint64", 2 * shard.documents)
        if columns:
            found["column_hash"] = ("uint64", 2 * len(columns) * shard.documents)
    for name in sorted(columns):
        if name in fmt.LOSS_COLUMNS:
            found[f"{name}_counts"] = ("uint32", -(-shard.tokens // fmt.COUNT_TOKENS) + 1)
    if sealed:
        found["crc32c"] = ("uint32", -(-shard.tokens // fmt.INNER))
    return found


class Companion:
    """The columns of all shards of a foreign store that are not in its files.

    Args:
        root: the store, for messages.
        shards: what they are columns of.
        columns: names of the further per-token columns.
        hashed: whether documents were hashed.
        sums: checksums that belong to no shard, if it is sealed: name → how many.

    Attributes:
        stored: all columns in order, each cut into parts.
        parts: how many parts they are.
        lengths: (shard, name) → elements; the shard of `sums` is -1.
    """

    def __init__(
        self,
        root: str,
        shards: Sequence[VirtualShard],
        columns: Iterable[str],
        *,
        hashed: bool,
        sums: Mapping[str, int] | None = None,
    ) -> None:
        self.shards, self.hashed, self.is_sealed, self._root = shards, hashed, bool(sums), root
        self.stored: PartList = InMemory()
        self.lengths: dict[tuple[int, str], int] = {}
        self._places: dict[tuple[int, str], tuple[int, np.dtype[Any]]] = {}
        self.parts, names = 0, sorted(columns)
        for number, shard in enumerate(shards):
            own = column_lengths(shard, names, hashed=hashed, sealed=sums is not None)
            for name, (dtype, length) in own.items():
                self._add(number, name, dtype, length)
        for name, length in (sums or {}).items():
            self._add(-1, name, "uint32", length)

    def _add(self, shard: int, name: str, dtype: str, length: int) -> None:
        self._places[shard, name] = self.parts, np.dtype(dtype).newbyteorder("<")
        self.lengths[shard, name] = length
        self.parts += -(-length // PART)

    def whole(self, shard: int, name: str) -> Array:
        """All elements of a column."""
        return self.read(shard, name, 0, self.lengths[shard, name])

    def read(self, shard: int, name: str, low: int, high: int) -> Array:
        """Elements [low, high) of a column of a shard."""
        if (shard, name) not in self._places:
            raise ConfigError(
                f"{self._root}: it was opened with identity='sample', which hashes no documents. "
                "Open it without `identity`."
            )
        first, dtype = self._places[shard, name]
        if high <= low:
            return np.empty(0, dtype)
        head, tail = low // PART, (high - 1) // PART
        found = self.stored.read(range(first + head, first + tail + 1))
        if found is None:
            raise StoreError(
                f"{self._root}: what was remembered of it in the cache directory was changed or "
                "removed while it was open. Open it again."
            )
        whole = np.frombuffer(b"".join(found), dtype)
        return whole[low - head * PART : high - head * PART]


def derive(
    shards: Sequence[VirtualShard],
    lengths: Int64,
    lines: Mapping[str, PieceLine],
    *,
    hashed: bool,
    sealed: bool = False,
    tick: Tick = lambda _: None,
) -> Iterator[bytes]:
    """The parts of all shards, by one pass over the ids (if hashed) and further columns."""
    for shard in shards:
        own = lengths[shard.first_document : shard.first_document + shard.documents]
        offsets = np.zeros(len(own) + 1, "<u4")
        np.cumsum(own, out=offsets[1:])
        yield from in_parts(offsets)
        made: dict[str, _Derived] = {}
        for name in sorted(lines, key=lambda name: (name != "input_ids", name)):
            if hashed or name in fmt.LOSS_COLUMNS:
                sums = sealed and name == "input_ids"
                made[name] = _derived(shard, own, lines[name], name, sums, tick)
        if hashed:
            ids = made.pop("input_ids")
            yield from in_parts(ids.hashes.reshape(-1))
            if made:
                hashes = [one.hashes[:, None] for one in made.values()]
                yield from in_parts(np.concatenate(hashes, axis=1).reshape(-1))
        for name, one in made.items():
            if name in fmt.LOSS_COLUMNS:
                yield from in_parts(one.counts)
        if sealed:
            yield from in_parts(ids.sums)


def in_parts(values: Array) -> Iterator[bytes]:
    """A column, cut into parts."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    for low in range(0, len(little), PART):
        yield little[low : low + PART].tobytes()


class _Derived(NamedTuple):
    """What one pass over a column of a shard gives.

    Attributes:
        hashes: the hash of every document [documents, 2].
        counts: of its values that are not 0, if it is a loss column.
        sums: the crc32c of every chunk, if asked for.
    """

    hashes: Array
    counts: Array
    sums: Array


def _derived(
    shard: VirtualShard, lengths: Int64, line: PieceLine, name: str, sealed: bool, tick: Tick
) -> _Derived:
    hasher = DocumentHasher(lengths, None if name == "input_ids" else name, line.dtype)
    counter, sums = LossCounter(), ChunkSums(fmt.INNER * line.dtype.itemsize)
    hashes, counts = [np.empty((0, 2), np.uint64)], []
    end = shard.first_token + shard.tokens
    for values in line.sweep(shard.first_token, end, limits().foreign_chunk_tokens):
        tick(values.nbytes)
        if name in fmt.LOSS_COLUMNS:
            counts.append(counter.append(values))
        hashes.append(hasher.update(values)[1])
        if sealed:
            sums.append(values.view(np.uint8))
    hashes.append(hasher.update(np.empty(0, line.dtype))[1])
    counts.append(np.array([counter.total], np.uint32))
    return _Derived(np.concatenate(hashes), np.concatenate(counts), sums.close())
