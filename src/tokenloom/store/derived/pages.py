"""Checksums of pages: a few tokens checked without reading the 64 KiB chunk around them.

One idea: beside the crc32c of every inner chunk a shard keeps that of every page, 4,096 bytes of
the payload of each column that is stored as it is (`page_crc32c`, 0.1 % of its size). Whoever
wants one row of a cold store reads the pages that it touches, one or two, and checks those. The
checksums of a shard are read when the first page of it is checked, and kept in the block cache.

The last page of a column ends where its last, padded chunk ends, so it may be short.
"""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenloom.store.reader import Reader
from tokenloom.store.shard import corrupt

__all__ = ["PAGE_BYTES", "PageSums", "page_sums"]

PAGE_BYTES = 4096


class PageSums:
    """The crc32c of every page of bytes that come in pieces."""

    def __init__(self) -> None:
        self._sums: list[int] = []
        self._tail = np.empty(0, np.uint8)  # less than a page

    def append(self, raw: NDArray[np.uint8]) -> None:
        """The next bytes."""
        if len(self._tail):
            room = PAGE_BYTES - len(self._tail)
            page, raw = np.concatenate([self._tail, raw[:room]]), raw[room:]
            if len(page) < PAGE_BYTES:
                self._tail = page
                return
            self._sums.append(google_crc32c.value(page))
        whole = len(raw) // PAGE_BYTES * PAGE_BYTES
        self._sums += map(google_crc32c.value, raw[:whole].reshape(-1, PAGE_BYTES))
        self._tail = raw[whole:].copy()

    def close(self) -> list[int]:
        """All checksums; that of a short last page, too."""
        if len(self._tail):
            self._sums.append(google_crc32c.value(self._tail))
            self._tail = np.empty(0, np.uint8)
        return self._sums


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
