"""One coalesced request: plan, read, check, and put the answers back in the order asked.

One idea: a chunk that must be checked is just one more range of the request. The planner merges
it with the ranges that touch it, one call reads everything, and a range is delivered only after
every chunk below it agreed with its crc32c. All counts are taken here, from that one call.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.store import coalesce, zarr
from tokenloom.store.shard import Array, OpenColumn, corrupt, decode_chunk
from tokenloom.store.source import ByteSource

__all__ = ["FetchRules", "ReadCounters", "fetch", "fetch_compressed", "trusted"]

Int64 = NDArray[np.int64]
BYTE_MASK = (1 << coalesce.FILE_SHIFT) - 1


@dataclass(slots=True)
class ReadCounters:
    """What was asked and what was read.

    Attributes:
        examples: ranges asked for.
        unique_examples: different ranges among those of one request.
        ranges: gap-free stretches after merging.
        read_ops: reads issued (a stretch above the cap is several).
        bytes: bytes read.
        useful_bytes: bytes that some range of the request asked for.
    """

    examples: int = 0
    unique_examples: int = 0
    ranges: int = 0
    read_ops: int = 0
    bytes: int = 0
    useful_bytes: int = 0

    def add(self, other: ReadCounters) -> None:
        """Add the counts of another request to these."""
        self.examples += other.examples
        self.unique_examples += other.unique_examples
        self.ranges += other.ranges
        self.read_ops += other.read_ops
        self.bytes += other.bytes
        self.useful_bytes += other.useful_bytes


@dataclass(frozen=True, slots=True)
class FetchRules:
    """How to read: `verify` is "first", "always" or "never"; `gap` and `cap` are in bytes."""

    verify: str = "first"
    gap: int = 0
    cap: int = coalesce.CAP_BYTES


def trusted(column: OpenColumn, start: int, stop: int, rules: FetchRules) -> bool:
    """Whether elements [start, stop) may be delivered without comparing checksums."""
    if rules.verify == "first":
        first, last = start // column.inner, (stop - 1) // column.inner
        return column.checked.find(0, first, last + 1) < 0
    return rules.verify == "never"


def fetch(
    source: ByteSource,
    columns: Sequence[OpenColumn],
    file: Int64,
    low: Int64,
    high: Int64,
    *,
    rules: FetchRules,
    root: str,
) -> tuple[list[Array], ReadCounters]:
    """Elements [low, high) of ``columns[file]`` for each range, as views in the order asked.

    A range may come as several views where a read was cut; empty ranges give none. All columns
    have codec "none" and one dtype.
    """
    item, step = columns[0].dtype.itemsize, columns[0].chunk_bytes
    base = file << coalesce.FILE_SHIFT
    start, stop = base + low * item, base + high * item
    doubt_file, doubt_chunk = _unchecked(columns, file, low, high, rules)
    doubt = (doubt_file << coalesce.FILE_SHIFT) + doubt_chunk * step
    plan = coalesce.plan(
        np.concatenate([start, doubt]),
        np.concatenate([stop, doubt + step]),
        gap=rules.gap,
        cap=rules.cap,
    )
    read_start, read_stop = plan.start.tolist(), plan.stop.tolist()
    buffers = source.read(
        [
            (columns[a >> coalesce.FILE_SHIFT].file, a & BYTE_MASK, b - a)
            for a, b in zip(read_start, read_stop, strict=True)
        ]
    )
    parts = zip(plan.read.tolist(), plan.low.tolist(), plan.high.tolist(), strict=True)
    pieces = [buffers[read][a:b] for read, a, b in parts]
    wanted = int(np.searchsorted(plan.request, len(start)))
    if len(doubt):
        owner = plan.request[wanted:] - len(start)
        _check(columns, doubt_file, doubt_chunk, owner, pieces[wanted:], root)
    counters = ReadCounters(
        ranges=plan.runs,
        read_ops=len(buffers),
        bytes=int((plan.stop - plan.start).sum()),
        useful_bytes=_covered(start, stop),
    )
    dtype = columns[0].dtype
    return [piece.view(dtype) for piece in pieces[:wanted]], counters


def _covered(start: Int64, stop: Int64) -> int:
    """Bytes that at least one range asks for."""
    first, last = coalesce.union(start, stop)
    return int((last - first).sum())


def _unchecked(
    columns: Sequence[OpenColumn], file: Int64, low: Int64, high: Int64, rules: FetchRules
) -> tuple[Int64, Int64]:
    """(file, chunk) of every chunk that some range touches and that must be checked."""
    found: list[Int64] = []
    owners: list[Int64] = []
    if rules.verify == "never":
        columns = ()
    for number, column in enumerate(columns):
        if rules.verify == "first" and column.checked.find(0) < 0:
            continue
        here = (file == number) & (high > low)
        # +1 where a range begins, -1 behind its end: the running sum counts ranges per chunk
        change = np.zeros(len(column.checked) + 1, np.int64)
        np.add.at(change, low[here] // column.inner, 1)
        np.add.at(change, (high[here] - 1) // column.inner + 1, -1)
        touched = np.cumsum(change[:-1]) > 0
        if rules.verify == "first":
            touched &= np.frombuffer(column.checked, np.uint8) == 0
        chunks = np.flatnonzero(touched)
        found.append(chunks)
        owners.append(np.full(len(chunks), number))
    if not found:
        return _NONE, _NONE
    return np.concatenate(owners), np.concatenate(found)


_NONE = np.empty(0, np.int64)


def _check(
    columns: Sequence[OpenColumn],
    file: Int64,
    chunk: Int64,
    owner: Int64,
    pieces: Sequence[NDArray[np.uint8]],
    root: str,
) -> None:
    """Compare each doubtful chunk with its crc32c and remember those that agree."""
    first = np.searchsorted(owner, np.arange(len(chunk) + 1)).tolist()
    for i, (number, place) in enumerate(zip(file.tolist(), chunk.tolist(), strict=True)):
        parts = pieces[first[i] : first[i + 1]]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        column = columns[number]
        assert column.crcs is not None  # codec "none" always has them
        if zarr.crc32c(whole) != column.crcs[place]:
            raise corrupt(
                f"{root}/{column.file}",
                f"the crc32c of chunk {place} (elements {place * column.inner:,} to "
                f"{(place + 1) * column.inner:,}) does not match",
            )
        column.checked[place] = 1


def fetch_compressed(
    source: ByteSource, column: OpenColumn, low: int, high: int, *, rules: FetchRules, root: str
) -> tuple[Array, ReadCounters]:
    """Elements [low, high) of one compressed column; its chunks carry their own checksums."""
    assert column.starts is not None  # compressed columns have an index
    if high <= low:
        return np.empty(0, column.dtype), ReadCounters()
    first, last = low // column.inner, (high - 1) // column.inner
    start, stop = int(column.starts[first]), int(column.starts[last + 1])
    cuts = range(start, stop, rules.cap)
    buffers = source.read([(column.file, a, min(rules.cap, stop - a)) for a in cuts])
    raw = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
    edges = (column.starts[first : last + 2] - start).tolist()
    chunks = [
        decode_chunk(column, raw[a:b], f"{root}/{column.file} chunk {first + i}")
        for i, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    whole = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    size = stop - start
    counters = ReadCounters(ranges=1, read_ops=len(buffers), bytes=size, useful_bytes=size)
    return whole[low - first * column.inner : high - first * column.inner], counters
