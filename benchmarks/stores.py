"""Stores to measure on: real ones without a tokenizer, and a huge one of many equal shards."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.files import LOCAL
from tokenloom.store.hashes import with_digest
from tokenloom.store.writer import ShardWriter, publish_manifest, shard_entry
from tokenloom.testing.stores import first_manifest

__all__ = ["documents", "publish", "virtual_store", "write_shard", "write_store"]

APPEND_TOKENS = 1 << 20  # tokens per append: what a block of 4 MiB of text gives, roughly


def documents(
    tokens: int, dtype: str, mean: int = 1000, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(ids, lengths) of random documents, `APPEND_TOKENS` at a time, `tokens` in all."""
    random = np.random.default_rng(seed)
    parts = []
    for start in range(0, tokens, APPEND_TOKENS):
        size = min(APPEND_TOKENS, tokens - start)
        cuts = np.sort(random.integers(0, size + 1, max(0, size // mean - 1)))
        lengths = np.diff(cuts, prepend=0, append=size)
        parts.append((random.integers(0, 50_000, size).astype(dtype), lengths))
    return parts


def write_shard(
    root: Path,
    number: int,
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    dtype: str,
    *,
    describe: bool = False,
) -> fmt.ShardEntry:
    """One committed shard with these documents, with metadata if asked."""
    writer = ShardWriter(LOCAL, root, number, dtype=dtype)
    for ids, lengths in parts:
        first = writer.documents
        writer.append(ids, lengths)
        if describe:
            records = np.arange(first, writer.documents)
            lines = [b'{"id":"%d"}' % record for record in records.tolist()]
            writer.describe_documents(lines, np.zeros_like(records), records)
    return writer.commit(fingerprint="benchmark", engine="none", progress={})


def publish(root: Path, entries: Sequence[fmt.ShardEntry], dtype: str) -> None:
    """The manifest over these shards."""
    manifest = first_manifest(entries, vocab_size=50_000 if dtype == "uint16" else 100_000)
    publish_manifest(LOCAL, root, with_digest(manifest, LocalSource(root), root))


def write_store(root: Path, tokens: int, *, shards: int = 1, dtype: str = "uint16") -> None:
    """A store of random documents."""
    root.mkdir()
    entries = [
        write_shard(root, number, documents(tokens // shards, dtype, seed=number), dtype)
        for number in range(shards)
    ]
    publish(root, entries, dtype)


def virtual_store(root: Path, shards: int, shard_documents: int, mean: int = 64) -> None:
    """A store whose shards are all hard links to one shard on disk; reads like any other."""
    root.mkdir()
    lengths = np.full(shard_documents, mean)
    ids = (np.arange(shard_documents * mean) % 50_000).astype(np.uint16)
    write_shard(root, 0, [(ids, lengths)], "uint16", describe=True)
    first = root / fmt.shard_name(0)
    raw = (first / "shard.json").read_bytes()
    record = fmt.unseal(fmt.ShardRecord, raw, str(first))
    entries = [shard_entry(record, raw)]
    for number in range(1, shards):
        entry, sealed = _numbered(record, number)
        folder = root / entry.name
        for path in _folders(folder, list(record.files)):
            path.mkdir()
        for name in record.files:
            os.link(first / name, folder / name)
        (folder / "shard.json").write_bytes(sealed)
        entries.append(entry)
    publish(root, entries, "uint16")


def _numbered(record: fmt.ShardRecord, number: int) -> tuple[fmt.ShardEntry, bytes]:
    changed = dataclasses.replace(record, number=number)
    sealed = fmt.seal(changed)
    return shard_entry(changed, sealed), sealed


def _folders(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    parents = {path for name in names for path in (folder / name).parents}
    return itertools.filterfalse(Path.exists, sorted(parents))
