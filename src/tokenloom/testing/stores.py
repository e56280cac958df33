"""Stores directly from ids, without text and without a tokenizer.

A test knows which tokens it expects, so it writes those, through the real writer, in chunks as
small as it likes: every edge case of the format fits in a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api.store import Store, open_store
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.files import LOCAL, Files
from tokenloom.store.hashes import with_digest
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
) -> Store:
    """Publish a store with these documents, and open it.

    Args:
        root: directory of the store; created if it does not exist.
        shards: the documents of each shard, each a list of ids.
        vocab_size: ids are below this.
        inner: elements of an inner chunk.
        chunk_tokens: tokens of an io block.
        columns: name → (dtype, function of the ids of a shard that gives the values to store with
            them), of further per-token columns, such as ``loss_mask``.
        files: how to write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one_shard, another = [[1, 2, 3], []], [[4, 5]]
    ...     store = write_store(folder, [one_shard, another], inner=2, chunk_tokens=4)
    ...     store.num_documents, store.tokens(2, 5).tolist()
    (3, [3, 4, 5])
    """
    flat = [
        (np.array([token for document in documents for token in document], np.int64), documents)
        for documents in shards
    ]
    parts = [(ids, np.array(list(map(len, documents)), np.int64)) for ids, documents in flat]
    sizes = {"vocab_size": vocab_size, "inner": inner, "chunk_tokens": chunk_tokens}
    return _published(Path(root), parts, columns or {}, files, **sizes)


def write_flat(root: str | Path, ids: ArrayLike, lengths: ArrayLike, *, vocab_size: int) -> Store:
    """Publish a store of one shard from documents that lie end to end, and open it.

    For stores of any size: nothing is done one document at a time.

    Args:
        root: directory of the store; created if it does not exist.
        ids: the tokens of all documents [tokens].
        lengths: tokens of each document [documents].
        vocab_size: ids are below this.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_flat(folder, np.arange(100) % 7, [30, 0, 70], vocab_size=7).document(0)[-3:]
    array([6, 0, 1], dtype=int32)
    """
    parts = [(np.asarray(ids), np.asarray(lengths, np.int64))]
    return _published(Path(root), parts, {}, LOCAL, vocab_size=vocab_size)


def _published(
    root: Path,
    parts: Sequence[tuple[NDArray[Any], NDArray[np.int64]]],
    columns: Mapping[str, Column],
    files: Files,
    *,
    vocab_size: int,
    inner: int = fmt.INNER,
    chunk_tokens: int = fmt.CHUNK_TOKENS,
) -> Store:
    """A store of these (ids, lengths), a shard each."""
    root.mkdir(parents=True, exist_ok=True)
    dtype, entries = fmt.token_dtype(vocab_size), list[fmt.ShardEntry]()
    dtypes = {name: stored for name, (stored, _) in columns.items()}
    for number, (ids, lengths) in enumerate(parts):
        writer = ShardWriter(files, root, number, dtype=dtype, columns=dtypes, inner=inner)
        more = {name: make(ids).astype(stored) for name, (stored, make) in columns.items()}
        writer.append(ids, lengths, more)
        entries.append(writer.commit(fingerprint=FINGERPRINT, engine="none", progress={}))
    manifest = first_manifest(
        entries, vocab_size=vocab_size, inner=inner, chunk_tokens=chunk_tokens, columns=dtypes
    )
    publish_manifest(files, root, with_digest(manifest, LocalSource(root), root))
    return open_store(root)


def first_manifest(
    entries: Sequence[fmt.ShardEntry],
    *,
    vocab_size: int,
    dtype: str | None = None,
    inner: int = fmt.INNER,
    chunk_tokens: int = fmt.CHUNK_TOKENS,
    columns: Mapping[str, str] | None = None,
) -> fmt.Manifest:
    """The first snapshot over these shards, without the digest of their content."""
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
