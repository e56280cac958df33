"""Stores directly from lists of ids, without text and without a tokenizer.

One idea: a test knows which tokens it expects, so it writes those, through the real writer, in
chunks as small as it likes: every edge case of a format fits in a few kilobytes.

>>> import tempfile, tokenloom as tl
>>> folder = tempfile.TemporaryDirectory()
>>> _ = write_store(folder.name, [[[1, 2, 3], []], [[4, 5]]], inner=2, chunk_tokens=4)
>>> store = tl.open(folder.name)
>>> store.num_documents, store.tokens(2, 5).tolist()
(3, [3, 4, 5])
>>> folder.cleanup()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.derived.hashes import with_digest
from tokenloom.store.files import LOCAL, Files
from tokenloom.store.writer import ShardWriter, publish_manifest

__all__ = ["first_manifest", "write_flat", "write_store"]

Column = tuple[str, Callable[[NDArray[np.int64]], NDArray[Any]]]

"""(stored dtype, function ids → values to store with them)."""

FINGERPRINT = "0" * 64


def write_store(
    root: str | Path,
    shards: Sequence[Sequence[Sequence[int]]],
    *,
    vocab_size: int = 1000,
    inner: int = fmt.INNER,
    chunk_tokens: int = fmt.CHUNK_TOKENS,
    columns: Mapping[str, Column] | None = None,
    files: Files = LOCAL,
) -> fmt.Manifest:
    """Publish a store with these documents.

    Args:
        root: directory of the store; created if it does not exist.
        shards: the documents of each shard, each a list of ids.
        vocab_size: ids are below this.
        inner: elements per checksum.
        chunk_tokens: tokens of an io block.
        columns: other per-token columns, each computed from the ids of a shard.
        files: how to write.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one_shard_of_two = [[[1, 2, 3], [4, 5]]]
    ...     manifest = write_store(folder, one_shard_of_two)
    ...     manifest.documents, tl.open(folder).document(1).tolist()
    (2, [4, 5])
    """
    root, columns = Path(root), columns or {}
    root.mkdir(parents=True, exist_ok=True)
    dtypes = {name: dtype for name, (dtype, _) in columns.items()}
    entries = []
    for number, documents in enumerate(shards):
        dtype = fmt.token_dtype(vocab_size)
        writer = ShardWriter(files, root, number, dtype=dtype, columns=dtypes, inner=inner)
        ids = np.array([token for document in documents for token in document], np.int64)
        lengths = np.array([len(document) for document in documents], np.int64)
        more = {name: make(ids).astype(dtype) for name, (dtype, make) in columns.items()}
        writer.append(ids, lengths, more)
        entries.append(writer.commit(fingerprint=FINGERPRINT, engine="none", progress={}))
    manifest = first_manifest(
        entries, vocab_size=vocab_size, inner=inner, chunk_tokens=chunk_tokens, columns=dtypes
    )
    manifest = with_digest(manifest, LocalSource(root), root)
    publish_manifest(files, root, manifest)
    return manifest


def write_flat(
    root: str | Path, ids: NDArray[Any], lengths: NDArray[np.int64], *, vocab_size: int
) -> fmt.Manifest:
    """Publish a store of one shard from ids that are end to end, for stores of any size."""
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    writer = ShardWriter(LOCAL, root, 0, dtype=fmt.token_dtype(vocab_size))
    writer.append(ids, lengths)
    entry = writer.commit(fingerprint=FINGERPRINT, engine="none", progress={})
    manifest = first_manifest([entry], vocab_size=vocab_size)
    manifest = with_digest(manifest, LocalSource(root), root)
    publish_manifest(LOCAL, root, manifest)
    return manifest


def first_manifest(
    entries: Sequence[fmt.ShardEntry],
    *,
    vocab_size: int,
    dtype: str | None = None,
    inner: int = fmt.INNER,
    chunk_tokens: int = fmt.CHUNK_TOKENS,
    columns: Mapping[str, str] | None = None,
) -> fmt.Manifest:
    """The first snapshot over these shards, without the digest of their content.

    `tokenloom.store.derived.hashes.with_digest` reads the shards and adds the digest.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_store(folder, [[[1, 2, 3]], [[4, 5]]]).shards
    ...     manifest = first_manifest(shards, vocab_size=1000)
    ...     manifest.number, manifest.documents, manifest.tokens, manifest.dtype
    (1, 2, 5, 'uint16')
    """
    documents = sum(entry.documents for entry in entries)
    tokens = sum(entry.tokens for entry in entries)
    groups = fmt.unknown_groups(documents)
    part = fmt.Part(
        manifest=1,
        fingerprint=FINGERPRINT,
        shards=len(entries),
        documents=documents,
        tokens=tokens,
        skipped=0,
        filtered=0,
        settings={},
    )
    return fmt.Manifest(
        number=1,
        parent=None,
        dtype=dtype or fmt.token_dtype(vocab_size),
        vocab_size=vocab_size,
        chunk_tokens=chunk_tokens,
        inner=inner,
        columns=dict(columns or {}),
        tokenizer=None,
        documents=documents,
        tokens=tokens,
        digest=fmt.content_digest(groups, documents),
        groups=groups,
        parts=(part,),
        files={},
        shards=tuple(entries),
    )
