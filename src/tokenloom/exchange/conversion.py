"""`tokenloom.exchange.convert`: any store that opens in, one of our own out, with the same digest.

One idea: as in a build, finished shards are the only progress there is. A shard is a function of
the source, its first document and the settings, so a conversion that was killed continues after the
last finished shard and ends with the same bytes, if the source is still the same
(`tokenloom.exchange.finished`). The content digest does not know about files, so
a run over the original goes on over the copy.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store, open_store
from tokenloom.arguments import integer, near_misses
from tokenloom.errors import StoreCorrupt, StoreExists
from tokenloom.exchange.copied import Copying, copied_shards, finished_shards
from tokenloom.exchange.finished import refuse_mixture
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.opened import is_ours
from tokenloom.ingest.target import alone, look, make_directory, place_of, refuse, remains
from tokenloom.progress import Progress
from tokenloom.remote.source import source_of
from tokenloom.remote.uploads import files_of
from tokenloom.store import format as fmt
from tokenloom.store import snapshots
from tokenloom.store.files import Files
from tokenloom.store.hashes import with_digest
from tokenloom.store.snapshots import InputRecord
from tokenloom.store.writer import publish_manifest, publish_sidecar
from tokenloom.version import __version__

__all__ = ["convert"]

log = logging.getLogger("tokenloom")


@near_misses("convert")
def convert(
    store: Store | str | Path,
    out: str | Path,
    *,
    shard_tokens: int = fmt.SHARD_TOKENS,
    progress: bool | None = None,
    files: Files | None = None,
) -> Store:
    """Copy a store, ours or of others, into our own format, and open the copy.

    Ids, boundaries, per-token columns and metadata are kept; the digest is the same, so states,
    certificates and descriptions of runs over the original are valid for the copy. A conversion
    that was killed continues after its last finished shard.

    Args:
        store: what to copy, or its path. Files of others that leave something open (a dtype, an
            EOS) are opened with `tokenloom.open` first, best with identity="sample": the digest
            is worked out while copying. Sealed files are checked while they are read, and the
            digest of the copy is compared with that of the seal.
        out: directory or URL of the copy.
        shard_tokens: maximum tokens per shard.
        progress: show a progress bar; default: if standard error is a terminal.
        files: what everything is written through; default: as `out` needs it.

    Raises:
        StoreExists: something else is at `out`.
        StoreCorrupt: the source changed while it was read, or since the shards that are finished
            were copied; nothing is published.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.exchange import convert, export
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]
    ...     store = tl.build(rows, folder + "/toy", tokenizer=None, vocab_size=9)
    ...     _ = export(store, folder + "/arrays", to="npy")
    ...     convert(folder + "/arrays", folder + "/copy").digest == store.digest
    True
    """
    integer("shard_tokens", shard_tokens, 1, fmt.MAX_DOCUMENT_TOKENS)
    opened = store if isinstance(store, Store) else _opened(store)
    root = place_of(out)
    files = files or files_of(root)
    job = Copying(opened, files, root, _settings(opened, shard_tokens))
    standing = look(root, files)
    refuse(root, standing)
    if _is_done(job, standing.snapshot) and not remains(standing):
        return open_store(root)
    make_directory(files, root)
    with alone(files, root) as (now, _):
        if not _is_done(job, now.snapshot):
            with Progress("convert", total=opened.num_tokens, unit="tok", show=progress) as bar:
                _publish(job, _copied(job, bar))
    return open_store(root)


def _copied(job: Copying, bar: Progress) -> list[fmt.ShardEntry]:
    """All shards, after a look at whether those that are there are still of this source."""
    done = finished_shards(job)
    if done.entries and isinstance(job.store.reader, ForeignReader):
        refuse_mixture(job, _manifest(job, done.entries, {}), bar.advance)
    bar.reach(sum(entry.tokens for entry in done.entries))
    return copied_shards(job, done, bar)


def _opened(path: str | Path) -> Store:
    return open_store(path) if is_ours(path) else open_store(path, identity="sample")


def _settings(store: Store, shard_tokens: int) -> dict[str, Any]:
    """Everything that decides the bytes of the copy, and what an append must agree with."""
    manifest = store.reader.manifest
    old = manifest.parts[0].settings
    return {
        "converted_from": store.digest,
        "identity": store.reader.opened_as.get("identity", "full"),
        "shard_tokens": shard_tokens,
        "vocab_size": manifest.vocab_size,
        "columns": dict(manifest.columns),
        "chunk_tokens": manifest.chunk_tokens,
        "inner": manifest.inner,
        "tokenizer": old.get("tokenizer"),
    }


def _is_done(job: Copying, snapshot: snapshots.Snapshot | None) -> bool:
    if snapshot is None:
        return False
    if snapshot.manifest.parts[0].settings == job.settings and len(snapshot.manifest.parts) == 1:
        log.info("%s: this conversion is already there", job.root)
        return True
    raise StoreExists(
        f"{job.root}: a store is already here that is no such copy. Convert into another "
        "directory, or remove this one."
    )


def _publish(job: Copying, entries: list[fmt.ShardEntry]) -> None:
    _refuse_changed(job.store)
    source, root, files = job.store.reader.manifest, job.root, job.files
    sidecars = {}
    name = fmt.inputs_name(1)
    listed = _inputs(job)
    if listed:
        raw = fmt.canonical(listed) + b"\n"
        sidecars[name] = publish_sidecar(files, root, name, raw)
    tokenizer = source.tokenizer
    if tokenizer is not None and tokenizer.file:
        raw = snapshots.read_sidecar(
            job.store.reader.source, job.store.path, source, tokenizer.file
        )
        sidecars[tokenizer.file] = publish_sidecar(files, root, tokenizer.file, raw)
    files.sync_directory(root)
    manifest = with_digest(_manifest(job, entries, sidecars), source_of(root), root)
    if not job.is_sample and manifest.digest != source.digest:
        raise StoreCorrupt(
            f"{job.store.path}: what was read has the digest {manifest.digest[:12]}, the store "
            f"says {source.digest[:12]}. It was changed or damaged; nothing is published. Run "
            "`tokenloom verify` on it."
        )
    publish_manifest(files, root, manifest)


def _refuse_changed(store: Store) -> None:
    """Refuse files of others that were written after they were opened: a sample does not tell."""
    reader = store.reader
    if not isinstance(reader, ForeignReader):
        return
    changed = reader.inside.described.changed_since(reader.stamps)
    if changed:
        raise StoreCorrupt(
            f"{store.path}: {changed[0]} was written while it was copied, so the copy may be a "
            "mixture; nothing is published. Run the conversion again when nobody writes there: "
            "what is finished is compared with the files as they are then."
        )


def _manifest(
    job: Copying, entries: list[fmt.ShardEntry], sidecars: dict[str, fmt.FileRecord]
) -> fmt.Manifest:
    """The manifest of a copy that has these shards; its digest is not known yet."""
    source = job.store.reader.manifest
    documents = sum(entry.documents for entry in entries)
    tokens = sum(entry.tokens for entry in entries)
    part = fmt.Part(
        manifest=1,
        fingerprint=job.fingerprint,
        shards=len(entries),
        documents=documents,
        tokens=tokens,
        skipped=0,
        filtered=0,
        settings=job.settings,
    )
    groups = fmt.unknown_groups(documents)
    return fmt.Manifest(
        number=1,
        parent=None,
        dtype=fmt.token_dtype(source.vocab_size),
        vocab_size=source.vocab_size,
        chunk_tokens=source.chunk_tokens,
        inner=source.inner,
        columns=dict(source.columns),
        tokenizer=source.tokenizer,
        documents=documents,
        tokens=tokens,
        digest=fmt.content_digest(groups, documents),
        groups=groups,
        parts=(part,),
        files=sidecars,
        shards=tuple(entries),
        producer={"tokenloom": __version__},
    )


def _inputs(job: Copying) -> list[InputRecord]:
    """What the documents came from: the inputs of our own store, or the files of others as one."""
    store, reader = job.store, job.store.reader
    if not isinstance(reader, ForeignReader):
        return [one for part in store.inputs for one in part]
    described = reader.inside.described
    size = sum(reader.source.size(name) or 0 for name in described.files)
    return [InputRecord(name=str(store.path), kind=described.kind, bytes=size, sha256=store.digest)]
