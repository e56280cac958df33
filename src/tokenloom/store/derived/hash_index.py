"""From the hash of a document to its number: an index beside the store, in the user's plan cache.

One idea: a hash is found by reading the hashes of all documents (16 bytes each). Whoever has done
that once may keep them sorted, so that the next one is found by reading one *part*. Documents are
spread over parts by the first 32 bits of their hash, about 4,096 to a part; a part has the first
64 bits of each hash and its document, 16 bytes together, ascending. Digits to look for are at least
eight, so all that start with them are in one part.

It is believed as far as every kept file (`store.plan_cache`): it is named by the digest of the
store, so that of other documents is another file; each part has a sha256; it has as many entries as
the store has documents, and random documents must be where they belong. What is found is compared
with the hash that the store itself keeps. If anything differs, there is no index.

Cost: 10^7 documents are sorted in 2.4 s of CPU time and kept in 160 MB; a hash is then found in
0.2 ms. Sorting takes 256 MiB of memory, and reads all hashes once for each 5.6 million of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits
from tokenloom.store.derived.duplicates import hash_blocks, starts_with
from tokenloom.store.derived.hashes import stored_hashes
from tokenloom.store.plan_cache import Parts, random_places, recall_parts, remember_parts
from tokenloom.store.reader import Reader

__all__ = ["HashIndex", "keep_hash_index", "kept_hash_index"]

Int64 = NDArray[np.int64]

UInt64 = NDArray[np.uint64]

KIND = "document-hashes"

ITEM = np.dtype([("high", "<u8"), ("document", "<u8")])

DOCUMENT_BYTES = 48  # of memory for one document while it is sorted


def _identity(reader: Reader) -> dict[str, Any]:
    return {
        "store": reader.manifest.digest,
        "documents": reader.manifest.documents,
        "part_documents": limits().hash_index_part_documents,
    }


def _parts_of(documents: int) -> int:
    return max(1, -(-documents // limits().hash_index_part_documents))


def _part(high: UInt64, parts: int) -> Int64:
    """The part of each hash by its high word; it ascends with the word."""
    return (((high >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class HashIndex:
    """The kept index of a store.

    Attributes:
        reader: the store.
        parts: its parts in the plan cache.
    """

    reader: Reader
    parts: Parts

    def find(self, digits: str, most: int) -> Int64 | None:
        """The first `most` documents whose hash starts with these digits, ascending.

        None: it turned out to be wrong. Then its file is removed, and hashes have to be read.

        Raises:
            ConfigError: these are not 8 to 32 hex digits.
        """
        digits = digits.lower()
        starts_with(np.empty((0, 2), np.uint64), digits)
        low, last = (int(digits[:16].ljust(16, end), 16) for end in "0f")
        items = self._items(np.array([low], np.uint64))
        if items is None:
            return None
        ((high, document),) = items
        begin, end = high.searchsorted(np.uint64(low)), high.searchsorted(np.uint64(last), "right")
        found: list[int] = []
        for place in (begin + np.argsort(document[begin:end], kind="stable")).tolist():
            one = int(document[place])
            own = stored_hashes(self.reader, one, one + 1)[:, 0]
            if own[0, 1] != high[place]:
                self.parts.wrong()
                return None
            if starts_with(own, digits)[0]:
                found.append(one)
            if len(found) == most:
                break
        return np.array(found, np.int64)

    def is_right(self) -> bool:
        """Whether it has as many entries as documents, and random ones are where they belong."""
        documents = self.reader.manifest.documents
        if int(self.parts.edges[-1]) != documents * ITEM.itemsize:
            return False
        places = random_places(documents).tolist()
        own = [stored_hashes(self.reader, one, one + 1)[0, 0, 1] for one in places]
        items = self._items(np.array(own, np.uint64))
        return items is not None and all(
            ((high == word) & (document == one)).any()
            for (high, document), word, one in zip(items, own, places, strict=True)
        )

    def _items(self, high: UInt64) -> list[tuple[UInt64, UInt64]] | None:
        """High words and documents of the part of each hash; None: they cannot be right."""
        raws = self.parts.read(_part(high, len(self.parts)).tolist())
        found = []
        for raw in raws or ():
            items = np.frombuffer(raw, ITEM) if len(raw) % ITEM.itemsize == 0 else None
            if (
                items is None
                or (items["high"][1:] < items["high"][:-1]).any()
                or (items["document"] >= self.reader.manifest.documents).any()
            ):
                self.parts.wrong()
                return None
            found.append((items["high"], items["document"]))
        return found if raws is not None else None


def kept_hash_index(reader: Reader) -> HashIndex | None:
    """The index of a store, if one is kept and can be believed."""
    parts = recall_parts(KIND, _identity(reader), _parts_of(reader.manifest.documents))
    if parts is None:
        return None
    found = HashIndex(reader, parts)
    if found.is_right():
        return found
    parts.wrong()
    return None


def keep_hash_index(reader: Reader, tell: Callable[[str], None] = lambda _: None) -> bool:
    """Keep an index of a store; False, with a note in the log, where that is not possible.

    Args:
        reader: the store.
        tell: called with what is being done, after each 65,536 documents.
    """
    return remember_parts(KIND, _identity(reader), _sorted_parts(reader, tell))


def _sorted_parts(reader: Reader, tell: Callable[[str], None]) -> Iterator[bytes]:
    """The bytes of each part, in order; some parts are sorted at a time."""
    documents = reader.manifest.documents
    parts = _parts_of(documents)
    rounds = min(parts, max(1, -(-documents * DOCUMENT_BYTES // limits().hash_index_sort_bytes)))
    for number in range(rounds):
        low, end = parts * number // rounds, parts * (number + 1) // rounds
        some = [np.empty(0, ITEM)]
        for first, hashes in hash_blocks(reader):
            done = (number + (first + len(hashes)) / documents) / rounds
            tell(f"sorting the hashes of {documents:,} documents, {done:.0%}")
            part = _part(hashes[:, 1], parts)
            here = np.flatnonzero((part >= low) & (part < end))
            block = np.empty(len(here), ITEM)
            block["high"], block["document"] = hashes[here, 1], first + here
            some.append(block)
        items = np.concatenate(some)
        items = items[np.argsort(items["high"], kind="stable")]  # documents ascend already
        edges = _part(items["high"], parts).searchsorted(np.arange(low, end + 1))
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            yield items[a:b].tobytes()
