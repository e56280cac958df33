"""The slow way to read a few tokens: the pages that they touch, each compared with its checksum.

`tokenloom.store.derived.payload` does the same for all rows of a group, compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenloom.store.byte_source import read_exactly
from tokenloom.store.derived.pages import PAGE_BYTES, page_sums
from tokenloom.store.reader import Reader
from tokenloom.store.shard import corrupt

__all__ = ["read_pages"]


def read_pages(reader: Reader, number: int, column: str, low: int, high: int) -> NDArray[Any]:
    """Elements [low, high) of a column of a shard, out of the pages they touch, each checked.

    One read of as few bytes as can be checked. The column is one that is stored as it is
    ("input_ids", "offsets", "doc_hash", "column_hash").

    Raises:
        StoreCorrupt: a page differs from what was published.
    """
    opened = reader.shard(number).columns[column]
    if high <= low:
        return np.empty(0, opened.dtype)
    first = low * opened.item // PAGE_BYTES
    start = first * PAGE_BYTES
    stop = min(-(-high * opened.item // PAGE_BYTES) * PAGE_BYTES, opened.payload_bytes)
    sums = page_sums(reader, number, column)
    (raw,) = read_exactly(reader.source, [(opened.file, start, stop - start)], reader.path)
    for page in _different(raw, sums, first):
        raise corrupt(
            f"{reader.path}/{opened.file}",
            f"page {page} (bytes {page * PAGE_BYTES:,} on): the crc32c does not match",
        )
    return raw.view(opened.dtype)[low - start // opened.item : high - start // opened.item]


def _different(raw: NDArray[np.uint8], sums: NDArray[np.uint32], first: int) -> Iterator[int]:
    for page, start in enumerate(range(0, len(raw), PAGE_BYTES), first):
        if google_crc32c.value(raw[start : start + PAGE_BYTES]) != int(sums[page]):
            yield page
