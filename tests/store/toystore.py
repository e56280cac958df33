"""Small stores written straight through the writer, with the documents they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenloom.dataset import Store, open_store
from tokenloom.store import format as fmt
from tokenloom.store.files import LOCAL
from tokenloom.store.writer import ShardWriter, publish_manifest


def write_store(
    root: Path, shards, *, vocab=1000, inner=16, chunk=64, columns=None
) -> fmt.Manifest:
    """`shards` is a list of lists of documents; `columns` maps a name to (dtype, ids → values)."""
    root.mkdir(parents=True, exist_ok=True)
    columns = columns or {}
    entries = []
    for number, documents in enumerate(shards):
        writer = ShardWriter(
            LOCAL,
            root,
            number,
            dtype=fmt.token_dtype(vocab),
            columns={name: dtype for name, (dtype, _) in columns.items()},
            inner=inner,
        )
        flat = np.array([t for d in documents for t in d], np.int64)
        lengths = np.array([len(d) for d in documents], np.int64)
        writer.append(flat, lengths, {n: make(flat).astype(d) for n, (d, make) in columns.items()})
        entries.append(writer.commit(fingerprint="0" * 64, engine="none", progress={}))
    dtypes = {name: dtype for name, (dtype, _) in columns.items()}
    return publish(root, entries, vocab=vocab, inner=inner, chunk=chunk, columns=dtypes)


def publish(
    root: Path, entries, *, vocab=1000, inner=fmt.INNER, chunk=fmt.CHUNK_TOKENS, columns=None
) -> fmt.Manifest:
    """The first snapshot over these shards."""
    documents = sum(e.documents for e in entries)
    tokens = sum(e.tokens for e in entries)
    part = fmt.Part(
        manifest=1,
        fingerprint="0" * 64,
        shards=len(entries),
        documents=documents,
        tokens=tokens,
        skipped=0,
        filtered=0,
        settings={},
    )
    manifest = fmt.Manifest(
        number=1,
        parent=None,
        dtype=fmt.token_dtype(vocab),
        vocab_size=vocab,
        chunk_tokens=chunk,
        inner=inner,
        columns=columns or {},
        tokenizer=None,
        documents=documents,
        tokens=tokens,
        digest=fmt.combine_digests(entries),
        parts=(part,),
        files={},
        shards=tuple(entries),
    )
    publish_manifest(LOCAL, root, manifest)
    return manifest


def toy(root: Path, shards, **options) -> Store:
    hints = {
        k: options.pop(k) for k in ("verify", "gap_bytes", "cap_bytes", "source") if k in options
    }
    write_store(root, shards, **options)
    return open_store(root, cache_bytes=1 << 20, **hints)


def random_shards(seed: int, shards: int = 3, documents: int = 12, longest: int = 60, vocab=1000):
    rng = np.random.Generator(np.random.PCG64(seed))
    return [
        [rng.integers(0, vocab, rng.integers(0, longest)).tolist() for _ in range(documents)]
        for _ in range(shards)
    ]


class Recording:
    """A byte source that remembers every request."""

    def __init__(self, inner):
        self.inner, self.requests = inner, []

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        self.requests.append(list(ranges))
        return self.inner.read(ranges)
