"""Documents by their hash: where a hash is, and which documents are equal.

One idea: equal documents have equal hashes, so both questions read 16 bytes a document and no
token. Duplicates are found by sorting. Where the hashes of all documents do not fit into the
memory that may be used, they are sorted by *ranges* of the hash: equal hashes are in one range, so
each range is read, sorted and forgotten, and the hashes are read once for each.

Cost: 10^7 documents in 3 s and 640 MB on one core, or in ten ranges in 5 s and 64 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.store.derived.hashes import stored_hashes
from tokenloom.store.reader import Reader

__all__ = ["BUDGET_BYTES", "equal_documents", "find_hash", "hash_blocks", "starts_with"]

Int64 = NDArray[np.int64]

UInt64 = NDArray[np.uint64]

BUDGET_BYTES = 256 << 20

DOCUMENT_BYTES = 64  # memory for one document while a range is sorted

_DIGITS = re.compile(r"[0-9a-f]{8,32}")


def hash_blocks(reader: Reader) -> Iterator[tuple[int, UInt64]]:
    """The hashes of all documents in order, as (first document, hashes [D, 2])."""
    chunk = limits().hash_chunk_documents
    documents = reader.manifest.documents
    for first in range(0, documents, chunk):
        last = min(first + chunk, documents)
        yield first, stored_hashes(reader, first, last)[:, 0]


def starts_with(hashes: UInt64, digits: str) -> NDArray[np.bool_]:
    """Which hashes [D, 2], written as 32 hex digits, start with these 8 to 32 [D].

    Raises:
        ConfigError: those are not such digits.
    """
    if not _DIGITS.fullmatch(digits.lower()):
        raise ConfigError(
            f"hash: found {digits!r}, allowed: 8 to 32 hex digits, the start of the xxh3_128 of "
            "a document's tokens (see docs/store-format.md)."
        )
    meets = np.ones(len(hashes), np.bool_)
    # the first 16 digits are the high word
    for word, part in ((1, digits[:16]), (0, digits[16:])):
        if part:
            shift = np.uint64(64 - 4 * len(part))
            meets &= hashes[:, word] >> shift == np.uint64(int(part, 16))
    return meets


def find_hash(reader: Reader, digits: str) -> Int64:
    """The documents whose hash starts with these 8 to 32 hex digits, ascending [N].

    Reads the hashes of all documents.
    """
    starts_with(np.empty((0, 2), np.uint64), digits)
    found = [first + np.flatnonzero(starts_with(h, digits)) for first, h in hash_blocks(reader)]
    return np.concatenate([np.empty(0, np.int64), *found])


def equal_documents(reader: Reader, budget_bytes: int = BUDGET_BYTES) -> list[Int64]:
    """Groups of two and more documents with the same tokens, each ascending, by first document.

    Args:
        reader: the store.
        budget_bytes: memory for sorting; what is found comes on top. Less memory, more passes.
    """
    if budget_bytes < DOCUMENT_BYTES:
        raise ConfigError(f"budget_bytes: found {budget_bytes}, allowed: {DOCUMENT_BYTES} or more.")
    ranges = max(1, -(-reader.manifest.documents * DOCUMENT_BYTES // budget_bytes))
    groups = [group for number in range(ranges) for group in _in_range(reader, number, ranges)]
    return sorted(groups, key=lambda group: int(group[0]))


def _in_range(reader: Reader, number: int, ranges: int) -> Iterator[Int64]:
    """Groups among the documents whose hash is in one of `ranges` equal ranges."""
    low = np.uint64((number << 64) // ranges)
    last = np.uint64((((number + 1) << 64) // ranges) - 1)
    words, documents = [np.empty((0, 2), np.uint64)], [np.empty(0, np.int64)]
    for first, hashes in hash_blocks(reader):
        here = np.flatnonzero((hashes[:, 1] >= low) & (hashes[:, 1] <= last))
        words.append(hashes[here])
        documents.append(first + here)
    word, document = np.concatenate(words), np.concatenate(documents)
    order = np.lexsort((word[:, 0], word[:, 1]))  # stable: documents of a group ascend
    word, document = word[order], document[order]
    changes = np.flatnonzero((word[1:] != word[:-1]).any(axis=1)) + 1
    edges = np.concatenate([[0], changes, [len(word)]])
    for place in np.flatnonzero(np.diff(edges) > 1).tolist():
        yield document[edges[place] : edges[place + 1]].copy()
