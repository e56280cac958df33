"""Checksums of pages: a few tokens checked without reading the 64 KiB chunk around them.

One idea: beside the crc32c of every inner chunk a shard keeps that of every page, 4,096 bytes of
the payload of each column that is stored as it is (`page_crc32c`, 0.1 % of its size). Whoever
wants one row of a cold store reads the pages that it touches, one or two, and checks those. The
checksums of a shard are read when the first page of it is checked, and kept in the block cache.

The last page of a column ends where its last, padded chunk ends, so it may be short.

A chunk that is whole pages need not be summed again: the crc32c of its bytes follows from those of
its pages, because appending zeros changes a crc32c by a linear map over its bits (`join_sums`).
"""

from __future__ import annotations

import functools
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenloom.store.reader import Reader
from tokenloom.store.shard import corrupt

__all__ = ["PAGE_BYTES", "PageSums", "join_sums", "page_sums"]

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


def join_sums(sums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The crc32c of chunks of whole pages from those of their pages [chunks, pages] → [chunks].

    S(c) is what becomes of a crc32c c when a page of zeros follows, less the crc32c of those zeros.
    Then pages a and b have crc(ab) = S(crc(a)) ^ crc(b), and S(c ^ d) = S(c) ^ S(d). So every byte
    of every page's checksum is looked up alone, and all is joined by exclusive or.
    """
    count = sums.shape[1]
    raw = np.ascontiguousarray(sums, "<u4").view(np.uint8).reshape(-1, count, 4)
    # [chunk, page, byte] → what it adds to the checksum of the chunk
    parts = _shifts(count)[np.arange(count)[:, None], np.arange(4), raw]
    joined: NDArray[np.uint32] = np.bitwise_xor.reduce(parts.reshape(len(sums), -1), axis=1)
    return joined


@functools.cache
def _shifts(pages: int) -> NDArray[np.uint32]:
    """S applied 0 to pages - 1 times to every single byte [page, byte of the crc32c, value]."""
    zeros = bytes(PAGE_BYTES)
    nothing = google_crc32c.value(zeros)
    tables = np.zeros((pages, 4, 256), np.uint32)
    bits = [1 << bit for bit in range(32)]
    for page in reversed(range(pages)):  # the last page is followed by nothing
        for place in range(4):
            for bit in range(8):
                half = tables[page, place]
                half[1 << bit : 2 << bit] = half[: 1 << bit] ^ np.uint32(bits[8 * place + bit])
        bits = [google_crc32c.extend(one, zeros) ^ nothing for one in bits]
    return tables


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
