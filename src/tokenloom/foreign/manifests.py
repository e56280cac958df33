"""The manifest that foreign files would have if they were a store of ours.

One idea: readers take counts, shards and identity from a manifest. This one is never written: it is
made from the description of the files, their virtual shards, and the digests of groups of documents
(which come from the hashes that the companion has, as in a store of ours).
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenloom.errors import StoreCorrupt
from tokenloom.foreign.described import Described
from tokenloom.foreign.foreign_reader import ForeignReader, Inside
from tokenloom.foreign.virtual import VirtualShard
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.hashes import group_digests

__all__ = ["hashed_groups", "manifest_of", "reader_of"]

LOOK_CACHE = 16 << 20  # bytes of chunks and offsets that are kept during a look


def hashed_groups(inside: Inside, source: ByteSource) -> tuple[str, ...]:
    """The digests of all groups of documents, from the hashes of the companion."""
    documents = sum(shard.documents for shard in inside.shards)
    unknown = manifest_of(inside.described, inside.shards, fmt.unknown_groups(documents))
    return tuple(group_digests(reader_of(inside, unknown, source)))


def reader_of(inside: Inside, manifest: fmt.Manifest, source: ByteSource) -> ForeignReader:
    """A reader for a look, which keeps nothing."""
    return ForeignReader(
        inside,
        manifest,
        source,
        path=inside.described.root,
        cache=BlockCache(LOOK_CACHE),
        identity="",
        rules=FetchRules(),
    )


def manifest_of(
    described: Described, shards: Sequence[VirtualShard], groups: tuple[str, ...]
) -> fmt.Manifest:
    """The manifest that a store with these shards would have."""
    entries = tuple(
        fmt.ShardEntry(
            name=fmt.shard_name(number),
            documents=shard.documents,
            tokens=shard.tokens,
            sha256="0" * 64,
            files={},
        )
        for number, shard in enumerate(shards)
    )
    documents = sum(shard.documents for shard in shards)
    part = fmt.Part(
        manifest=1,
        fingerprint="0" * 64,
        shards=len(shards),
        documents=documents,
        tokens=described.num_tokens,
        skipped=0,
        filtered=0,
        settings={},
    )
    try:
        return fmt.Manifest(
            number=1,
            parent=None,
            dtype=described.dtype,
            vocab_size=described.limit,
            chunk_tokens=fmt.CHUNK_TOKENS,
            inner=fmt.INNER,
            columns={name: column.dtype for name, column in described.columns.items()},
            tokenizer=described.tokenizer,
            documents=documents,
            tokens=described.num_tokens,
            digest=fmt.content_digest(groups, documents),
            groups=groups,
            parts=(part,),
            files={},
            shards=entries,
            producer={"format": described.kind},
        )
    except ValueError as error:
        raise StoreCorrupt(f"{described.root}: {error}. Restore it from a copy.") from error
