"""What a store has beside its tokens, worked out for a foreign one and remembered.

One idea: offsets, document hashes and counts of loss columns are columns of every shard. Foreign
files do not have them in our form, so one pass over the tokens makes them, and they are kept as
*parts*, a few KiB each with a checksum of its own (`tokenloom.store.plan_cache`), named by path,
sizes, times and a sample of the bytes of the files. The next process reads only the parts that it
asks for. Where nothing can be written, they stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, StoreError
from tokenloom.foreign.pieces import PieceLine
from tokenloom.foreign.virtual import VirtualShard
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store import zarr
from tokenloom.store.hashes import DocumentHasher
from tokenloom.store.loss_counts import LossCounter

__all__ = [
    "Beside",
    "Companion",
    "InMemory",
    "PartList",
    "column_lengths",
    "in_parts",
    "pass_cache_bytes",
    "worked_out",
]

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

    def __len__(self) -> int:
        """How many there are."""

    def read(self, numbers: Sequence[int]) -> list[bytes] | None:
        """These parts; None if they are not there any more."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """Parts that could not be written."""

    parts: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.parts)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """See `PartList`."""
        return [self.parts[number] for number in numbers]


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Which columns a companion has, in the order of its parts.

    Attributes:
        shards: what they are columns of.
        columns: names of the further per-token columns.
        hashed: whether documents were hashed.
        sums: checksums that belong to no shard, if it is sealed: name → how many.
    """

    shards: Sequence[VirtualShard]
    columns: Sequence[str]
    hashed: bool
    sums: Mapping[str, int] | None = None

    def every(self) -> Iterator[tuple[int, str, str, int]]:
        """(shard, name, dtype, elements) of each; the shard of the others is -1."""
        sealed = self.sums is not None
        for number, shard in enumerate(self.shards):
            own = column_lengths(shard, self.columns, hashed=self.hashed, sealed=sealed)
            yield from ((number, name, *one) for name, one in own.items())
        yield from ((-1, name, "uint32", length) for name, length in (self.sums or {}).items())


class Companion:
    """The columns of all shards of a foreign store that are not in its files.

    Args:
        parts: all columns in order, each cut into parts.
        beside: which columns these are.
        root: the store, for messages.
    """

    def __init__(self, parts: PartList, beside: Beside, root: str) -> None:
        self._parts, self.beside, self._root = parts, beside, root
        self._places: dict[tuple[int, str], tuple[int, np.dtype[Any]]] = {}
        self.lengths: dict[tuple[int, str], int] = {}
        place = 0
        for shard, name, dtype, length in beside.every():
            self._places[shard, name] = place, np.dtype(dtype).newbyteorder("<")
            self.lengths[shard, name] = length
            place += -(-length // PART)
        self.parts = place

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
        found = self._parts.read(range(first + head, first + tail + 1))
        if found is None:
            raise StoreError(
                f"{self._root}: what was remembered of it in the cache directory was changed or "
                "removed while it was open. Open it again."
            )
        whole = np.frombuffer(b"".join(found), dtype)
        return whole[low - head * PART : high - head * PART]


def worked_out(
    shards: Sequence[VirtualShard],
    lengths: Int64,
    tokens: PieceLine,
    columns: Mapping[str, PieceLine],
    *,
    hashed: bool,
    sealed: bool = False,
    tick: Tick = lambda _: None,
) -> Iterator[bytes]:
    """The parts of all shards, by one pass over the tokens (if hashed) and further columns."""
    for shard in shards:
        own = lengths[shard.first_document : shard.first_document + shard.documents]
        offsets = np.zeros(len(own) + 1, "<u4")
        np.cumsum(own, out=offsets[1:])
        yield from in_parts(offsets)
        sums: list[int] = []
        if hashed:
            values = _swept(shard, tokens, tick)
            values = _summed(values, sums) if sealed else values
            yield from in_parts(_hashes(own, values, None, tokens.dtype))
        found, counts = [], []
        for name in sorted(columns):
            hashes, of_loss = _of_column(shard, own, columns[name], name, hashed, tick)
            found += hashes
            counts += of_loss
        if found:
            yield from in_parts(np.concatenate(found, axis=1).reshape(-1))
        for one in counts:
            yield from in_parts(one)
        if sealed:
            yield from in_parts(np.array(sums, np.uint32))


def in_parts(values: Array) -> Iterator[bytes]:
    """A column, cut into parts."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    for low in range(0, len(little), PART):
        yield little[low : low + PART].tobytes()


def _of_column(
    shard: VirtualShard, lengths: Int64, line: PieceLine, name: str, hashed: bool, tick: Tick
) -> tuple[list[Array], list[Array]]:
    """The hashes of a further column [documents, 1, 2] and its counts, where it has these."""
    values, counter = _swept(shard, line, tick), LossCounter()
    counts: list[Array] = []
    if name in fmt.LOSS_COLUMNS:
        values = _counted(values, counter, counts)
    elif not hashed:
        return [], []
    found = _hashes(lengths, values, name, line.dtype).reshape(-1, 1, 2)  # also if only counted
    if name in fmt.LOSS_COLUMNS:
        counts = [np.concatenate([*counts, np.array([counter.total], np.uint32)])]
    return [found] if hashed else [], counts


def _swept(shard: VirtualShard, line: PieceLine, tick: Tick) -> Iterator[Array]:
    """The elements of a shard, from the first to the last."""
    end = shard.first_token + shard.tokens
    for values in line.sweep(shard.first_token, end, limits().foreign_chunk_tokens):
        tick(values.nbytes)
        yield values


def _hashes(
    lengths: Int64, values: Iterable[Array], column: str | None, dtype: np.dtype[Any]
) -> Array:
    """The hash of every document of a shard, flat [2 documents]."""
    hasher = DocumentHasher(lengths, column, dtype)
    found = [np.empty((0, 2), np.uint64)]
    found += [hasher.update(some)[1] for some in values]
    found.append(hasher.update(np.empty(0, dtype))[1])
    return np.concatenate(found).reshape(-1)


def _counted(values: Iterable[Array], counter: LossCounter, counts: list[Array]) -> Iterator[Array]:
    """The same values; their counts are added to `counts` as they pass."""
    for some in values:
        counts.append(counter.append(some))
        yield some


def _summed(values: Iterable[Array], sums: list[int]) -> Iterator[Array]:
    """The same values; the crc32c of every chunk is added to `sums` as it passes."""
    rest = np.empty(0, np.uint8)  # bytes of a chunk that has not ended
    for some in values:
        size = fmt.INNER * some.itemsize
        raw = some.view(np.uint8)
        whole = np.concatenate([rest, raw]) if len(rest) else raw
        end = len(whole) // size * size
        sums += [zarr.crc32c(whole[low : low + size]) for low in range(0, end, size)]
        rest = whole[end:]
        yield some
    if len(rest):
        sums.append(zarr.crc32c(rest))
