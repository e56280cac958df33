"""The hash of every document, and the digest of a store that is made of them.

The identity of content is built from documents, so neither the stored dtype nor how
documents are divided into shards, nor who wrote them, can change it::

    document ──xxh3_128──▶ record ──sha256 of 65,536 records──▶ group ──sha256──▶ digest

The *hash* of a document is xxh3_128 of its ids, seeded with their number: as little-endian uint16
if all ids of that document fit, else as uint32. A further column is hashed likewise, its values as
float64 (loss columns, and columns that are stored as floats) or int64. The *record* of a document
is its length (uint64, little-endian), the canonical 16 bytes of its hash, and for each further
column, in order of name, the name and its 16 bytes. A *group* is 65,536 consecutive documents of
the store, the last one perhaps fewer.

Hashes are stored as two uint64, low word first: ``doc_hash`` [documents, 2] and ``column_hash``
[documents, columns by name, 2], both flat. Shards that others wrote are joined without reading a
token, and an append works out one old group again, at most.

xxh3 guards against accidents, not against people: sha256 and crc32c guard the files.

Equal documents have equal hashes, so `equal_documents` reads 16 bytes a document and no token. They
are found by sorting. Where the hashes of all documents do not fit into the memory that may be used,
they are sorted by *ranges* of the hash: equal hashes are in one range, so each range is read,
sorted and forgotten, and the hashes are read once for each.

Cost: 0.3 us for a document of 1,000 tokens, 0.2 us for one of 100 (`python -m benchmarks write`);
duplicates among 10^7 documents take 3 s and 640 MB on one core, or in ten ranges 5 s and 64 MB.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from tokenloom.arguments import Place
from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.reader import Reader

Array = NDArray[Any]

UInt64 = NDArray[np.uint64]

NARROW = 1 << 16  # ids below this fit in 16 bits

BUDGET_BYTES = 256 << 20

DOCUMENT_BYTES = 64  # memory for one document while a range of hashes is sorted

_DIGITS = re.compile(r"[0-9a-f]{8,32}")


def hash_ids(ids: Array, lengths: Int64) -> UInt64:
    """The hash of every document [D, 2], low word first.

    Args:
        ids: the tokens of all documents, end to end, as unsigned integers.
        lengths: tokens of each [D].

    >>> hex_of(hash_ids(np.array([1, 2, 3], np.uint32), np.array([2, 1])))[0]
    '6ac1b465acedda781cc15f356601e21b'
    """
    start = np.cumsum(lengths) - lengths
    if ids.dtype.itemsize <= 2 or not len(ids) or int(ids.max()) < NARROW:
        return _hashed(np.ascontiguousarray(ids, "<u2"), start, lengths)
    wide, full = np.zeros(len(lengths), np.bool_), lengths > 0
    wide[full] = np.maximum.reduceat(ids, start[full]) >= NARROW
    found = np.empty((len(lengths), 2), np.uint64)
    found[wide] = _hashed(np.ascontiguousarray(ids, "<u4"), start[wide], lengths[wide])
    if not wide.all():  # what does not fit wraps around here, in documents that are not asked for
        found[~wide] = _hashed(ids.astype("<u2"), start[~wide], lengths[~wide])
    return found


def hash_columns(columns: Mapping[str, Array], lengths: Int64) -> UInt64:
    """The hashes of all further columns of every document [D, columns, 2], columns by name."""
    found = np.empty((len(lengths), len(columns), 2), np.uint64)
    start = np.cumsum(lengths) - lengths
    for place, name in enumerate(sorted(columns)):
        values = columns[name]
        kind = column_kind(name, values.dtype)
        found[:, place] = _hashed(np.ascontiguousarray(values, kind), start, lengths)
    return found


def column_kind(name: str, dtype: np.dtype[Any]) -> str:
    """The dtype as which a column is hashed, whatever it is stored as.

    >>> column_kind("loss_mask", np.dtype("uint8")), column_kind("part", np.dtype("uint8"))
    ('<f8', '<i8')
    """
    return "<f8" if name in fmt.LOSS_COLUMNS or dtype.kind == "f" else "<i8"


def _hashed(values: Array, start: Int64, lengths: Int64) -> UInt64:
    """The xxh3_128 of stretches of `values`, each seeded with its length [D, 2]."""
    raw, digest = values.view(np.uint8).data, xxhash.xxh3_128_digest
    low, high = start * values.itemsize, (start + lengths) * values.itemsize
    each = zip(low.tolist(), high.tolist(), lengths.tolist(), strict=True)
    canonical = b"".join([digest(raw[a:b], seed) for a, b, seed in each])
    return _words(np.frombuffer(canonical, np.uint8))


def _words(canonical: NDArray[np.uint8]) -> UInt64:
    """Canonical digests, 16 bytes each with the high word first, as words [D, 2], low first."""
    return canonical.view(">u8").reshape(-1, 2)[:, ::-1].astype(np.uint64)


def _canonical(hashes: UInt64) -> NDArray[np.uint8]:
    """The other way: words [D, 2] as 16 bytes each [D, 16]."""
    return np.ascontiguousarray(hashes[:, ::-1], ">u8").view(np.uint8).reshape(-1, 16)


def hex_of(hashes: UInt64) -> list[str]:
    """Hashes [D, 2] as 32 hex digits each, as every xxh3_128 tool prints them."""
    return [row.tobytes().hex() for row in _canonical(hashes)]


class DocumentHasher:
    """The hashes of documents whose values come in pieces that end anywhere.

    Args:
        lengths: tokens of every document, in order [D].
        column: None for ids, else the name of a further column.
        dtype: how the values are stored.
    """

    def __init__(self, lengths: Int64, column: str | None, dtype: np.dtype[Any]) -> None:
        self._lengths, self._column = lengths, column
        self._edges = np.concatenate([[0], np.cumsum(lengths)])
        self._kinds = ["<u2", "<u4"] if column is None else [column_kind(column, dtype)]
        self._states: list[Any] = []  # of the document under way, one for each kind
        self._wide = False
        self._place = self._done = 0  # values seen, documents finished

    def update(self, values: Array) -> tuple[int, UInt64]:
        """Take the next values; gives (first document that ends in them, hashes [N, 2])."""
        first, end = self._done, self._place + len(values)
        last = int(np.searchsorted(self._edges, end, side="right")) - 1
        found = []
        if self._states and last > first:
            self._feed(values[: self._edges[first + 1] - self._place])
            found.append(_words(np.frombuffer(self._states[self._wide].digest(), np.uint8)))
            self._states, self._done = [], first + 1
        whole = values[max(int(self._edges[self._done]) - self._place, 0) :]
        if not self._states:
            within = whole[: self._edges[last] - self._edges[self._done]]
            found.append(self._hashed(within, self._lengths[self._done : last]))
            whole, self._done = whole[len(within) :], last
        if len(whole):
            self._feed(whole)
        self._place = end
        return first, np.concatenate([np.empty((0, 2), np.uint64), *found])

    def _hashed(self, values: Array, lengths: Int64) -> UInt64:
        if self._column is None:
            return hash_ids(values, lengths)
        return hash_columns({self._column: values}, lengths)[:, 0]

    def _feed(self, values: Array) -> None:
        if not self._states:
            seed = int(self._lengths[self._done])
            self._states, self._wide = [xxhash.xxh3_128(seed=seed) for _ in self._kinds], False
        if self._column is None and len(values) and int(values.max()) >= NARROW:
            self._wide = True  # the other state is of no use from here on
        for kind, state in zip(self._kinds, self._states, strict=True):
            state.update(values.astype(kind).view(np.uint8).data)


# -- records, groups, digest -------------------------------------------------------------------


def records(lengths: Int64, hashes: UInt64, columns: Mapping[str, UInt64]) -> NDArray[np.uint8]:
    """The record of every document [D, bytes]; `columns` gives hashes [D, 2] by name."""
    parts = [np.ascontiguousarray(lengths, "<u8").view(np.uint8).reshape(-1, 8), _canonical(hashes)]
    for name in sorted(columns):
        word = np.frombuffer(name.encode("ascii"), np.uint8)
        parts += [np.broadcast_to(word, (len(lengths), len(word))), _canonical(columns[name])]
    return np.concatenate(parts, axis=1)


def group_digests(reader: Reader, first_group: int = 0) -> Iterator[str]:
    """The digest of every group from `first_group` on, from stored hashes; no token is read."""
    documents, size = reader.manifest.documents, fmt.GROUP_DOCUMENTS
    names = sorted(reader.manifest.columns)
    for first in range(first_group * size, documents, size):
        last = min(first + size, documents)
        start, stop = reader.bounds(np.arange(first, last))
        own = stored_hashes(reader, first, last)
        others = stored_hashes(reader, first, last, "column_hash") if names else own[:, None][:, :0]
        columns = {name: others[:, place] for place, name in enumerate(names)}
        record = records(stop - start, own[:, 0], columns)
        yield hashlib.sha256(record.data).hexdigest()


def stored_hashes(
    reader: Reader, first: int, last: int, column: str = "doc_hash"
) -> NDArray[np.uint64]:
    """Stored hashes of documents [first, last) of a store [D, hashes of each, 2]."""
    each = len(reader.manifest.columns) if column == "column_hash" else 1
    found = np.empty((last - first, each, 2), np.uint64)
    edges = reader.first_document
    head, tail = np.searchsorted(edges, [first, last - 1], side="right").tolist()
    for number in range(head - 1, tail if last > first else 0):
        base, end = int(edges[number]), int(edges[number + 1])
        low, high = max(first, base), min(last, end)
        words = reader.elements(number, column, 2 * each * (low - base), 2 * each * (high - base))
        found[low - first : high - first] = words.reshape(-1, each, 2)  # [document, column, word]
    return found


def with_digest(
    manifest: fmt.Manifest, source: ByteSource, root: Place, known: fmt.Manifest | None = None
) -> fmt.Manifest:
    """A manifest with the groups and the digest of its documents, whatever it had before.

    Args:
        manifest: all but its digest; its shards are committed.
        source: where they are.
        root: what to call the store in messages.
        known: a snapshot of its first documents, whose whole groups are believed.
    """
    whole = known.groups[: known.documents // fmt.GROUP_DOCUMENTS] if known else ()
    reader = Reader(
        manifest,
        source,
        path=str(root),
        cache=BlockCache(0),
        identity="",
        rules=FetchRules(),
    )
    groups = (*whole, *group_digests(reader, len(whole)))
    digest = fmt.content_digest(groups, manifest.documents)
    return replace(manifest, groups=groups, digest=digest)


# -- documents by their hash ------------------------------------------------------------------


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
