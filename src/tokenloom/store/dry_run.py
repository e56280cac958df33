"""A store whose tokens are not read: every read is planned and counted, and gives zeros.

Manifest, commit records, offsets, metadata and further columns are read as usual. What was checked,
what is cached and what is counted are the dry reader's own; the store that it copies stays as it
was, so a dry reader starts like one in a new process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.store.byte_source import ByteSource, Range
from tokenloom.store.cache import BlockCache
from tokenloom.store.metadata import Texts
from tokenloom.store.payload import Payloads, adopt, payloads_of
from tokenloom.store.reader import Reader
from tokenloom.store.shard import PAGE_BYTES, OpenColumn, OpenShard

Array = NDArray[Any]

DRY_COLUMNS = frozenset({"input_ids", "page_crc32c"})  # tokens, and what only they are checked with


class DryReader(Reader):
    """Reads what another reader would read in a new process, except that tokens are zeros.

    Args:
        like: the reader to copy.
        cache: keeps decoded blocks.
    """

    def __init__(self, like: Reader, cache: BlockCache) -> None:
        self._zeros = _ZeroTokens(like.source)
        super().__init__(
            like.manifest,
            self._zeros,
            path=like.path,
            cache=cache,
            identity=like.identity,
            rules=like.rules,
            root=like.root,
        )
        self._like = like
        adopt(self, _DryPayloads(self, like))

    def shard(self, number: int) -> OpenShard:
        """The shard, of which nothing was checked yet."""
        known = self._shards[number]
        if known is None:
            like, trust = self._like.shard(number), self.rules.verify == "never"
            columns = {
                name: _fresh(column, is_dry=name in DRY_COLUMNS, trust=trust)
                for name, column in like.columns.items()
            }
            self._zeros.files |= {column.file for column in columns.values() if column.is_dry}
            known = self._shards[number] = replace(like, columns=columns)
        return known

    def metadata(self, document: int) -> dict[str, Any]:
        """See `Reader`."""
        return self._like.metadata(document)

    def shard_values(self, number: int, key: str) -> Iterator[list[Any]]:
        """See `Reader`."""
        return self._like.shard_values(number, key)

    def texts(self, key: str) -> Iterator[tuple[int, Texts | None]]:
        """See `Reader`."""
        return self._like.texts(key)


def _fresh(column: OpenColumn, *, is_dry: bool, trust: bool) -> OpenColumn:
    """A column as a new process opens it."""
    nothing_to_check = trust or (column.codec == "none" and column.crcs is None)
    checked = bytearray((b"\1" if nothing_to_check else b"\0") * len(column.checked))
    decode = column.decode
    if is_dry and decode is not None:

        def decode(low: int, high: int) -> Array:
            return np.zeros(high - low, column.dtype)

    return replace(column, checked=checked, is_dry=is_dry, decode=decode)


class _ZeroTokens:
    """The bytes of a store, with zeros for those of some files."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.parallel = getattr(source, "parallel", 1)
        self.files: set[str] = set()

    def size(self, name: str) -> int | None:
        """See `ByteSource`."""
        return self._source.size(name)

    def read(self, ranges: Sequence[Range]) -> list[NDArray[np.uint8]]:
        """See `ByteSource`."""
        others = [one for one in ranges if one[0] not in self.files]
        found = iter(self._source.read(others) if others else ())
        return [
            np.zeros(size, np.uint8) if name in self.files else next(found)
            for name, _, size in ranges
        ]


class _DryPayloads(Payloads):
    """Files that are found, but not opened."""

    def __init__(self, reader: DryReader, like: Reader) -> None:
        super().__init__(reader)
        self._like = like

    def is_usable(self, column: str) -> bool:
        """See `Payloads`."""
        return payloads_of(self._like).is_usable(column)

    def _made(self, reader: Reader, column: OpenColumn, sums: Any, pages: Any, mapped: bool) -> Any:
        return _ZeroFile(column, pages)


class _ZeroFile:
    """Stands for a file in a copier: its elements are zeros, its pages are checked when copied."""

    dtype = np.dtype(np.uint8)  # which no compiled loop copies

    def __init__(self, column: OpenColumn, pages: bytearray | None) -> None:
        self._item, self._pages = column.item, pages
        self._length = column.payload_bytes // column.item

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> Array:
        if self._pages is not None:
            first = part.start * self._item // PAGE_BYTES
            last = (part.stop * self._item - 1) // PAGE_BYTES + 1
            self._pages[first:last] = b"\1" * (last - first)
        return np.zeros(part.stop - part.start, np.uint8)
