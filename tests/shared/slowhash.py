"""The digest of a store, written from its rule, document by document: slow and obvious."""

from __future__ import annotations

import hashlib
import struct

import xxhash


def slow_hash(ids) -> bytes:
    """The canonical 16 bytes of a document's ids."""
    letter = "H" if all(one < 1 << 16 for one in ids) else "I"
    raw = struct.pack(f"<{len(ids)}{letter}", *ids)
    return xxhash.xxh3_128(raw, seed=len(ids)).digest()


def slow_column(name, values) -> bytes:
    """The canonical 16 bytes of a document's values in a further column."""
    floats = name in ("loss_mask", "loss_weights") or any(isinstance(v, float) for v in values)
    kind, letter = (float, "d") if floats else (int, "q")
    raw = struct.pack(f"<{len(values)}{letter}", *map(kind, values))
    return xxhash.xxh3_128(raw, seed=len(values)).digest()


def slow_record(ids, columns) -> bytes:
    record = struct.pack("<Q", len(ids)) + slow_hash(ids)
    for name in sorted(columns):
        record += name.encode() + slow_column(name, columns[name])
    return record


def slow_digest(documents, columns=None, group=65_536) -> str:
    """The digest of documents, each a list of ids; `columns` has one list of lists a name."""
    records = [
        slow_record(ids, {name: values[i] for name, values in (columns or {}).items()})
        for i, ids in enumerate(documents)
    ]
    whole = hashlib.sha256()
    for first in range(0, len(records), group):
        whole.update(hashlib.sha256(b"".join(records[first : first + group])).digest())
    whole.update(struct.pack("<Q", len(records)))
    return whole.hexdigest()
