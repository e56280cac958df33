"""Files of tokens that the compiled loops read in place: from a map, or with `pread`.

A row that no cache could serve needs no buffer of its own. Where its tokens lie (file,
place, length) is worked out for a whole group of batches (`Payloads.find`); the loop that fills a
batch then copies and widens them from there. What was not compared with its checksum yet is
compared on the way, page by page. The checksums of the pages of a shard are read when the first of
them is checked, and kept in the block cache.

Mapped pages belong to the system's page cache, not to us: they count towards no budget, and the
system takes them back when it needs memory. A file that is cut short under a map is an error
(StoreError), not the end of the process; see `src/native/_payload.c`. Where maps are not wanted
(``tl.open(path, map=False)``), or somebody replaced our signal handler, `pread` gives the same
bytes at about half the speed. Stores that are not local, compressed columns, and installations
without compiled loops take the way through `Reader.read`.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom import native
from tokenloom.arrays import Int64, distinct
from tokenloom.errors import StoreCorrupt, StoreError
from tokenloom.limits import limits
from tokenloom.store import coalesce
from tokenloom.store.byte_source import LocalSource, came_short
from tokenloom.store.coalesce import FILE_SHIFT
from tokenloom.store.fetch import Took
from tokenloom.store.files import unreadable
from tokenloom.store.handles import Single, lock_of
from tokenloom.store.reader import Reader
from tokenloom.store.shard import PAGE_BYTES, OpenColumn, corrupt

DAMAGED = -2  # as in src/native/_payload.h

LETTERS = {np.dtype("<u2"): "H", np.dtype("<i4"): "i", np.dtype("<u4"): "I"}


class InFiles(NamedTuple):
    """Where ranges of a store lie in its files.

    Attributes:
        payloads: the files.
        which: the file of each piece [pieces].
        low: its first element there [pieces].
        length: its elements; a range over several shards has several pieces [pieces].
    """

    payloads: list[Any]
    which: Int64
    low: Int64
    length: Int64


class Payloads(Single):
    """The files of one store, opened on first use.

    Args:
        reader: the store.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = weakref.ref(reader)
        self._open: OrderedDict[tuple[str, str, bool], Any] = OrderedDict()
        self._pages: dict[str, bytearray] = {}  # of a file: was a page compared?
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """A payload is in the list or not; one that is not is opened again."""
        if torn:
            self._open = OrderedDict()

    def is_usable(self, column: str) -> bool:
        """Whether a column can be read in place."""
        reader = self._reader()
        if native.compiled is None or reader is None or not isinstance(reader.source, LocalSource):
            return False
        if not reader.manifest.shards:
            return True
        return _is_readable(reader.shard(0).columns[column])

    def find(self, start: Int64, stop: Int64, column: str) -> InFiles | None:
        """Where these ranges of the store lie; None if they can't be read in place.

        Args:
            start: first token of each range [N].
            stop: token after it [N].
            column: which per-token column.
        """
        reader = self._reader()
        if reader is None or not self.is_usable(column):
            return None
        shard, low, high = reader.inside_shards(start, stop)
        if not len(shard):
            return InFiles([], shard, low, high)
        used, place = distinct(shard)
        which = np.zeros_like(shard) if place is None else place
        columns = [reader.shard(number).columns[column] for number in used.tolist()]
        if len(used) > limits().open_payloads or not all(map(_is_readable, columns)):
            return None
        before = [one.first_byte // one.item for one in columns]
        if any(before):  # files of others: elements are counted from the start of the file
            shift = np.array(before)[which]
            low, high = low + shift, high + shift
        mapped = reader.rules.map and native.compiled.guard()
        payloads = [self._payload(reader, number, column, mapped) for number in used.tolist()]
        reader.count(column, start, stop, self._took(reader, column, used, which, low, high))
        return InFiles(payloads, which, low, high - low)

    def _took(
        self, reader: Reader, column: str, used: Int64, which: Int64, low: Int64, high: Int64
    ) -> Took:
        """What a request costs: gap-free stretches, and whole pages where some are unchecked."""
        item, rules, base = reader.dtype(column).itemsize, reader.rules, which << FILE_SHIFT
        start, stop = base + low * item, base + high * item
        first, last = coalesce.union(start, stop)
        useful = int((last - first).sum())
        files = [reader.shard(number).columns[column].file for number in used.tolist()]
        pages = [self._pages.get(file) for file in files]
        if rules.verify == "always" or _has_unchecked(pages, which, low * item, high * item):
            first, last = first // PAGE_BYTES * PAGE_BYTES, -(-last // PAGE_BYTES) * PAGE_BYTES
        first, last = _merged(first, last, rules.gap)
        size = last - first
        return Took(len(first), int((-(-size // rules.cap)).sum()), int(size.sum()), useful)

    def _payload(self, reader: Reader, number: int, column: str, mapped: bool) -> Any:
        most = limits().open_payloads
        opened = reader.shard(number).columns[column]
        key = opened.file, column, mapped
        with self._lock:
            known = self._open.get(key)
            if known is not None:
                self._open.move_to_end(key)
                return known
        sums = pages = None
        if reader.rules.verify != "never" and opened.crcs is not None:
            sums = native.plain(page_sums(reader, number, column), np.uint32)
            pages = self._pages.setdefault(opened.file, bytearray(len(sums)))
        made = self._made(reader, opened, sums, pages, mapped)
        with self._lock:
            made = self._open.setdefault(key, made)
            while len(self._open) > most:
                self._open.popitem(last=False)
        return made

    def _made(self, reader: Reader, column: OpenColumn, sums: Any, pages: Any, mapped: bool) -> Any:
        """The file of a column, opened."""
        where = f"{reader.folder}/{column.file}"
        keep = reader.rules.verify == "first"
        assert isinstance(reader.source, LocalSource)
        with reader.source.handle(column.file) as fd:
            try:
                return native.compiled.Payload(
                    fd,
                    column.payload_bytes,
                    LETTERS[column.dtype],
                    sums,
                    pages,
                    keep,
                    mapped,
                    where,
                )
            except OSError as error:
                raise unreadable(error, where) from error
            except ValueError as error:  # the file is shorter than the store says
                raise came_short(
                    (column.file, 0, column.payload_bytes), 0, reader.folder
                ) from error


def page_sums(reader: Reader, number: int, column: str) -> NDArray[np.uint32]:
    """The stored checksums of the pages of one column of a shard, through the block cache."""
    shard = reader.shard(number)
    opened = shard.columns[column]
    length = shard.columns["page_crc32c"].length

    def load() -> NDArray[Any]:
        return reader.elements(number, "page_crc32c", 0, length)

    sums = reader.cache.get((reader.identity, number, "page_crc32c"), load).view(np.uint32)
    first, pages = opened.page_first, -(-opened.payload_bytes // PAGE_BYTES)
    if not 0 <= first <= length - pages:
        raise corrupt(f"{reader.path}/{shard.name}/page_crc32c", f"it has no pages of {column}")
    return sums[first : first + pages]


def _is_readable(column: OpenColumn) -> bool:
    """Whether the loops can copy from its file: elements are there as they are, and aligned."""
    plain = column.codec == "none" and column.dtype in LETTERS
    return plain and column.first_byte % column.item == 0


def _merged(first: Int64, last: Int64, gap: int) -> tuple[Int64, Int64]:
    """Sorted ranges, which may touch or overlap a little, without gaps up to `gap`."""
    if not (first[1:] <= last[:-1] + gap).any():
        return first, last
    return coalesce.union(first, last, gap)


def _has_unchecked(pages: list[Any], which: Int64, start: Int64, stop: Int64) -> bool:
    """Whether the first or last page of some bytes was not compared yet."""
    for number, known in enumerate(pages):
        if known is not None:
            checked, here = np.frombuffer(known, np.bool_), which == number
            for place in (start[here], stop[here] - 1):
                if not checked[place // PAGE_BYTES].all():
                    return True
    return False


def read_failed(payload: Any, page: int, how: int) -> StoreError:
    """The error for a payload that the compiled loops could not read."""
    where, place = payload.name, f"page {page:,} (bytes {page * PAGE_BYTES:,} on)"
    if how > 0:
        return unreadable(OSError(how, os.strerror(how)), where)
    if how == DAMAGED:
        return corrupt(where, f"{place}: the crc32c does not match")
    return StoreCorrupt(
        f"{where}: {place} is not there any more. The file was cut short after the store was "
        "opened; restore it or build the store again."
    )


_PAYLOADS: weakref.WeakKeyDictionary[Reader, Payloads] = weakref.WeakKeyDictionary()


def payloads_of(reader: Reader) -> Payloads:
    """The payloads of a store, shared by all datasets over it."""
    known = _PAYLOADS.get(reader)
    return known if known is not None else _PAYLOADS.setdefault(reader, Payloads(reader))


def adopt(reader: Reader, payloads: Payloads) -> None:
    """Let a reader have these payloads, before anybody asks for them."""
    _PAYLOADS[reader] = payloads
