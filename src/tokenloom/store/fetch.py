"""One coalesced request: plan, read, check, and put the answers back in the order asked.

A chunk that must be checked is just one more range of the request. The planner merges
it with the ranges that touch it, one call reads everything, and a range is delivered only after
every chunk below it agreed with its crc32c. All counts are taken here, from that one call.

A request may also be planned now and read later (`tokenloom.store.ahead`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.store import coalesce
from tokenloom.store.byte_source import (
    ByteSource,
    Range,
    checking,
    new_buffer,
    read_exactly,
)
from tokenloom.store.shard import Array, OpenColumn, check_chunk, decode_chunk

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
        retries: reads that were issued because others had failed; nowhere else counted.
        requests: requests that went over the network, without retries; 0 for files.
        cached_bytes: bytes of these reads that the disk cache had.
    """

    examples: int = 0
    unique_examples: int = 0
    ranges: int = 0
    read_ops: int = 0
    bytes: int = 0
    useful_bytes: int = 0
    retries: int = 0
    requests: int = 0
    cached_bytes: int = 0

    def add(self, examples: int, unique: int, took: Took) -> None:
        """Add the counts of one request to these."""
        self.examples += examples
        self.unique_examples += unique
        for name, count in zip(took._fields, took, strict=True):
            setattr(self, name, getattr(self, name) + count)

    def add_traffic(self, requests: int, retries: int, cached_bytes: int) -> None:
        """Add what a source took of a network."""
        self.requests += requests
        self.retries += retries
        self.cached_bytes += cached_bytes

    @property
    def hit_ratio(self) -> float:
        """The share of the bytes read that came from the disk cache."""
        return self.cached_bytes / self.bytes if self.bytes else 0.0

    @property
    def reads_per_example(self) -> float:
        """Reads issued for each range asked for."""
        return self.read_ops / self.examples if self.examples else 0.0

    # the names that the published counters have

    @property
    def examples_requested(self) -> int:
        """The same as `examples`."""
        return self.examples

    @property
    def unique_examples_requested(self) -> int:
        """The same as `unique_examples`."""
        return self.unique_examples

    @property
    def coalesced_ranges(self) -> int:
        """The same as `ranges`."""
        return self.ranges

    @property
    def reads_issued(self) -> int:
        """The same as `read_ops`."""
        return self.read_ops

    tensorstore_reads_issued = reads_issued


class Took(NamedTuple):
    """What one request cost; the fields are those of `ReadCounters`."""

    ranges: int = 0
    read_ops: int = 0
    bytes: int = 0
    useful_bytes: int = 0
    retries: int = 0

    def again(self) -> Took:
        """The same for a request that is made because another one failed."""
        return Took(retries=self.read_ops + self.retries)


@dataclass(frozen=True, slots=True)
class FetchRules:
    """How to read.

    Attributes:
        verify: "first", "always" or "never".
        gap, cap: in bytes; see `tokenloom.store.coalesce`.
        map: whether files may be read from a map.
    """

    verify: str = "first"
    gap: int = 0
    cap: int = coalesce.CAP_BYTES
    map: bool = True

    def __post_init__(self) -> None:
        if self.verify not in ("first", "always", "never"):
            raise ConfigError(
                f"verify: found {self.verify!r}, allowed: 'first', 'always', 'never'."
            )
        if self.gap < 0 or self.cap < 8 or self.cap % 8:  # no element is ever cut
            raise ConfigError(
                f"gap_bytes, cap_bytes: found {self.gap} and {self.cap}, allowed: 0 or more, "
                "and a multiple of 8."
            )


class FetchPlan(NamedTuple):
    """What one request reads, before anything is read.

    Attributes:
        reads: the reads, and how they make up the ranges and, after these, the doubtful chunks.
        doubt_file, doubt_chunk: the chunks that must be checked.
        wanted: pieces of `reads` that belong to the ranges; those of the chunks follow.
        took: what it costs.
    """

    reads: coalesce.ReadPlan
    doubt_file: Int64
    doubt_chunk: Int64
    wanted: int
    took: Took


def plan_fetch(
    columns: Sequence[OpenColumn],
    file: Int64,
    low: Int64,
    high: Int64,
    rules: FetchRules,
    cut: int | None = None,
) -> FetchPlan:
    """What `fetch` reads for these ranges, and what that costs."""
    item, step = columns[0].dtype.itemsize, columns[0].chunk_bytes
    base = file << coalesce.FILE_SHIFT
    start, stop = base + low * item, base + high * item
    doubt_file, doubt_chunk = _unchecked(columns, file, low, high, rules)
    doubt = (doubt_file << coalesce.FILE_SHIFT) + doubt_chunk * step
    cap = rules.cap if cut is None else min(cut, rules.cap)
    if len(doubt):  # a range grows to whole chunks
        widest = int(((high - 1) // columns[0].inner - low // columns[0].inner).max()) + 1
        cap = min(max(cap, widest * step), rules.cap)
        ends = np.array([column.stored_bytes for column in columns])[doubt_file]
        size = np.minimum((doubt_chunk + 1) * step, ends) - doubt_chunk * step  # the last: short
    reads = coalesce.plan(
        np.concatenate([start, doubt]) if len(doubt) else start,
        np.concatenate([stop, doubt + size]) if len(doubt) else stop,
        gap=rules.gap,
        cap=cap,
    )
    wanted = int(np.searchsorted(reads.request, len(start)))
    total = int((reads.stop - reads.start).sum())
    alone = len(reads.start) == wanted == len(reads.request)  # nothing merged: a read is a range
    exact = alone or (not len(doubt) and not rules.gap)  # then every byte read was asked for
    useful = total if exact else _covered(start, stop)
    took = Took(reads.runs, len(reads.start), total, useful)
    return FetchPlan(reads, doubt_file, doubt_chunk, wanted, took)


def fetch(
    source: ByteSource,
    columns: Sequence[OpenColumn],
    file: Int64,
    low: Int64,
    high: Int64,
    *,
    rules: FetchRules,
    root: str,
    cut: int | None = None,
) -> tuple[list[Array], Took]:
    """Elements [low, high) of ``columns[file]`` for each range, as views in the order asked.

    A range may come as several views where a read was cut; empty ranges give none. All columns
    have codec "none" and one dtype. No read is longer than `rules.cap`, nor than `cut` bytes, if
    given, unless chunks that must be checked make the largest range longer.
    """
    item = columns[0].dtype.itemsize
    planned = plan_fetch(columns, file, low, high, rules, cut)
    plan, doubt_file, doubt_chunk, wanted, took = planned
    ranges = ranges_of(columns, plan)
    buffers = read_exactly(source, ranges, root)
    if len(doubt_chunk):
        with checking(source, ranges):
            _check_doubts(columns, doubt_file, doubt_chunk, plan, wanted, len(file), buffers, root)
    typed = [buffer.view(columns[0].dtype) for buffer in buffers]
    if len(buffers) == wanted == len(plan.request):
        return [typed[read] for read in plan.read.tolist()], took
    low, high = (plan.low[:wanted] // item).tolist(), (plan.high[:wanted] // item).tolist()
    parts = zip(plan.read[:wanted].tolist(), low, high, strict=True)
    return [typed[read][a:b] for read, a, b in parts], took


def ranges_of(columns: Sequence[OpenColumn], plan: coalesce.ReadPlan) -> list[Range]:
    """What to ask a source for."""
    names = [(column.file, column.first_byte) for column in columns]
    files = (plan.start >> coalesce.FILE_SHIFT).tolist()
    offsets = (plan.start & BYTE_MASK).tolist()
    reads = zip(files, offsets, (plan.stop - plan.start).tolist(), strict=True)
    return [(names[f][0], names[f][1] + offset, size) for f, offset, size in reads]


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
    for number, column in enumerate(columns):
        if column.crcs is None or (rules.verify != "always" and column.checked.find(0) < 0):
            continue
        here = (file == number) & (high > low)
        # +1 where a range starts, -1 after its end: the running sum counts ranges per chunk
        change = np.zeros(len(column.checked) + 1, np.int64)
        np.add.at(change, low[here] // column.inner, 1)
        np.add.at(change, (high[here] - 1) // column.inner + 1, -1)
        touched = np.cumsum(change[:-1]) > 0
        if rules.verify != "always":
            touched &= np.frombuffer(column.checked, np.uint8) == 0
        chunks = np.flatnonzero(touched)
        found.append(chunks)
        owners.append(np.full(len(chunks), number))
    if not found:
        return _NONE, _NONE
    return np.concatenate(owners), np.concatenate(found)


_NONE = np.empty(0, np.int64)


def _check_doubts(
    columns: Sequence[OpenColumn],
    file: Int64,
    chunk: Int64,
    plan: coalesce.ReadPlan,
    wanted: int,
    asked: int,
    buffers: Sequence[NDArray[np.uint8]],
    root: str,
) -> None:
    """Check each doubtful chunk; they are the requests after the `asked` ones.

    A chunk may have come in several pieces, where a read was cut.
    """
    read, low, high = (x[wanted:].tolist() for x in (plan.read, plan.low, plan.high))
    pieces = [buffers[r][a:b] for r, a, b in zip(read, low, high, strict=True)]
    owner = plan.request[wanted:] - asked
    first = np.searchsorted(owner, np.arange(len(chunk) + 1)).tolist()
    for i, (number, place) in enumerate(zip(file.tolist(), chunk.tolist(), strict=True)):
        parts = pieces[first[i] : first[i + 1]]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        check_chunk(columns[number], place, whole, root)


def fetch_stretch(
    source: ByteSource, column: OpenColumn, low: int, high: int, *, rules: FetchRules, root: str
) -> tuple[Array, Took]:
    """Elements [low, high) of one column, any codec, out of the whole chunks around them."""
    if column.decode is not None:
        found = column.decode(low, high)
        return found, Took(1, 1, found.nbytes, found.nbytes)
    plain = column.codec == "none"
    first, last = low // column.inner, (high - 1) // column.inner
    edges = column.edges(first, last + 1)
    raw, reads = _read_cut(source, column.file, edges[0], edges[-1], rules.cap, root)
    chunks = [raw[a - edges[0] : b - edges[0]] for a, b in itertools.pairwise(edges)]
    with checking(source, [(column.file, edges[0], len(raw))]):
        if plain:
            for i, chunk in enumerate(chunks, first):
                check_chunk(column, i, chunk, root)
            whole: Array = raw.view(column.dtype)
        else:
            whole = np.concatenate(
                [decode_chunk(column, i, c, root) for i, c in enumerate(chunks, first)]
            )
    useful = (high - low) * column.dtype.itemsize if plain else len(raw)
    values = whole[low - first * column.inner : high - first * column.inner]
    return values, Took(1, reads, len(raw), useful)


def _read_cut(
    source: ByteSource, file: str, start: int, stop: int, cap: int, root: str
) -> tuple[NDArray[np.uint8], int]:
    """Bytes [start, stop) of a file, and how many reads of at most `cap` bytes they took."""
    ranges = [(file, a, min(cap, stop - a)) for a in range(start, stop, cap)]
    buffers = read_exactly(source, ranges, root)
    return (buffers[0] if len(buffers) == 1 else np.concatenate(buffers)), len(buffers)


def joined(views: Iterator[Array], size: int, dtype: np.dtype[Any]) -> Array:
    """The next views, `size` elements in all, as one array that holds no other memory."""
    parts: list[Array] = []
    while size > 0:
        parts.append(next(views))
        size -= len(parts[-1])
    base: Any = parts[0].base if len(parts) == 1 else None
    if base is not None and base.nbytes - parts[0].nbytes < 4096:
        return parts[0]
    whole = new_buffer(sum(part.nbytes for part in parts)).view(dtype)
    if parts:
        np.concatenate(parts, out=whole)
    return whole


def distinct(start: Int64, stop: Int64) -> int:
    """How many different (start, stop) pairs there are."""
    ordered = np.sort(start)
    if not (ordered[1:] == ordered[:-1]).any():  # most requests have no equal starts
        return len(start)
    order = np.lexsort((stop, start))
    start, stop = start[order], stop[order]
    changes = (start[1:] != start[:-1]) | (stop[1:] != stop[:-1])
    return int(changes.sum()) + min(1, len(start))
