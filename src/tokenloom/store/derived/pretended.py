"""Reads that are planned, counted and remembered like real ones, while no token is read.

One idea: what a request reads follows from integers (`tokenloom.store.fetch.plan_fetch`): which
ranges it has, which chunks and pages were checked before, and what the cache holds. So a reader
that leaves out nothing but the bytes counts what a real one would, to the read. Arrays that it
gives have the right length and no content: all their elements share one place in memory.

Manifest, commit records and offsets are read as usual. What was checked, and what is cached, are
the pretended reader's own; the store it imitates stays as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.store.cache import BlockCache
from tokenloom.store.derived.pretended_cache import BlockKeys
from tokenloom.store.fetch import ReadCounters, plan_fetch
from tokenloom.store.payload import InFiles, Payloads, adopt
from tokenloom.store.reader import Reader
from tokenloom.store.shard import PAGE_BYTES, OpenColumn, OpenShard

__all__ = ["PretendedReader", "Touched"]

Int64 = NDArray[np.int64]

Array = NDArray[Any]


class PretendedReader(Reader):
    """Answers and counts like a reader in a new process, without reading tokens.

    Args:
        like: the reader to imitate; it is only asked for its shards.
        cache: keeps what has no content, by its size.
        ledger: takes the counts; several readers may share one.
    """

    def __init__(self, like: Reader, cache: BlockCache, ledger: ReadCounters) -> None:
        super().__init__(
            like.manifest,
            like.source,
            path=like.path,
            cache=cache,
            identity=like.identity,
            rules=like.rules,
            root=like.root,
        )
        self._like, self._traffic = like, dict
        self._counters[False] = ledger
        self._empty: dict[tuple[str, int], Array] = {}
        self.payloads = _PretendedPayloads(self)
        adopt(self, self.payloads)

    def shard(self, number: int) -> OpenShard:
        """The shard, of which nothing was checked yet."""
        known = self._shards[number]
        if known is None:
            like, trusts = self._like.shard(number), self.rules.verify == "never"
            columns = {
                name: replace(column, checked=_unchecked(column))
                for name, column in like.columns.items()
            }
            if trusts:
                for column in columns.values():
                    column.checked[:] = b"\1" * len(column.checked)
            known = self._shards[number] = replace(like, columns=columns)
        return known

    def keys(self, whose: str, numbers: Int64) -> Sequence[Hashable]:
        """See `Reader`."""
        return BlockKeys(whose, numbers)

    def read(
        self,
        start: Int64,
        stop: Int64,
        column: str = "input_ids",
        cap: int | None = None,
        *,
        again: bool = False,
    ) -> list[Array]:
        """An empty view for every range, counted; a range that is cut comes as one view."""
        self.ask(start, stop, column, cap)
        full = stop > start
        return [self.nothing(column, size) for size in (stop - start)[full].tolist()]

    def promise(
        self, start: Int64, stop: Int64, sizes: Int64, column: str, cap: int | None = None
    ) -> list[Callable[[], Array]]:
        """See `Reader`; the reads are counted now."""
        found = self.load(start, stop, sizes, column, cap)
        return [functools.partial(_given, one) for one in found]

    def load(
        self,
        start: Int64,
        stop: Int64,
        sizes: Int64,
        column: str,
        cap: int | None = None,
        *,
        again: bool = False,
    ) -> list[Array]:
        """See `Reader`."""
        self.ask(start, stop, column, cap)
        first = int(sizes[0])
        if (sizes == first).all():
            return [self.nothing(column, first)] * len(sizes)
        return [self.nothing(column, size) for size in sizes.tolist()]

    def ask(
        self, start: Int64, stop: Int64, column: str = "input_ids", cap: int | None = None
    ) -> None:
        """Count a request as `read` does, remember what it checked, and give nothing."""
        shard, low, high = self.inside_shards(start, stop)
        if len(shard) == 0:
            return
        used, file = shard[:1], np.zeros(len(shard), np.int64)
        if (shard != shard[0]).any():
            used, file = np.unique(shard, return_inverse=True)
        columns = [self.shard(number).columns[column] for number in used.tolist()]
        plan = plan_fetch(columns, file, low, high, self.rules, cap)
        for number, chunk in zip(plan.doubt_file.tolist(), plan.doubt_chunk.tolist(), strict=True):
            columns[number].checked[chunk] = 1
        self.count(column, start, stop, plan.took)

    def announce(self, start: Int64, stop: Int64, column: str = "input_ids") -> None:
        """Tells nobody."""

    def nothing(self, column: str, size: int) -> Array:
        """An array of that many elements, all in one place."""
        known = self._empty.get((column, size))
        if known is None:
            known = np.broadcast_to(np.zeros(1, self.dtype(column)), size)
            self._empty[column, size] = known
        return known


def _unchecked(column: OpenColumn) -> bytearray:
    """What a new process has checked of a column: nothing, if there is anything to check."""
    plain = column.codec == "none" and column.crcs is None
    return bytearray((b"\1" if plain else b"\0") * len(column.checked))


def _given(block: Array) -> Array:
    return block


class Touched(NamedTuple):
    """Bytes of a file that batches copy: their pages are checked on the way.

    Attributes:
        pages: one byte per page of the file, 1 once it was checked.
        start: first byte of each range [N].
        stop: byte after it [N].
    """

    pages: bytearray
    start: Int64
    stop: Int64

    def check(self) -> None:
        """Remember that the pages were checked."""
        checked = np.frombuffer(self.pages, np.uint8)
        first, last = self.start // PAGE_BYTES, (self.stop - 1) // PAGE_BYTES
        for step in range(int((last - first).max(initial=-1)) + 1):  # the longest range has few
            checked[np.minimum(first + step, last)] = 1


class _PretendedPayloads(Payloads):
    """Files that are found, but not opened: nothing is copied from them."""

    def __init__(self, reader: PretendedReader) -> None:
        super().__init__(reader)
        self._touched: list[Touched] = []

    def find(self, start: Int64, stop: Int64, column: str) -> InFiles | None:
        """See `Payloads`."""
        found, reader = super().find(start, stop, column), self._reader()
        if found is None or reader is None or reader.rules.verify != "first":
            return found
        item = reader.dtype(column).itemsize
        for number, pages in enumerate(found.payloads):
            if pages is None:  # a file without checksums
                continue
            here = slice(None) if len(found.payloads) == 1 else found.which == number
            low = found.low[here] * item
            self._touched.append(Touched(pages, low, low + found.length[here] * item))
        return found

    def take(self) -> list[Touched]:
        """What was found since this was asked last."""
        found, self._touched = self._touched, []
        return found

    def _payload(self, reader: Reader, number: int, column: str, mapped: bool) -> Any:
        """One byte per page of a file: whether it was checked."""
        columns = reader.shard(number).columns
        opened = columns[column]
        known = self._pages.get(opened.file)
        if known is None and reader.rules.verify != "never" and opened.crcs is not None:
            known = bytearray(-(-opened.payload_bytes // PAGE_BYTES))
            self._pages[opened.file] = known
            sums = np.broadcast_to(np.zeros(1, np.uint32), columns["page_crc32c"].length)
            reader.cache.get((reader.identity, number, "page_crc32c"), lambda: sums)
        return known
