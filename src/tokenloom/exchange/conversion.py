"""`tokenloom.exchange.convert`: any store that opens in, one of our own out, with the same digest.

One idea: as in a build, finished shards are the only progress there is. A shard is a function of
the source, its first document and the settings, so a conversion that was killed continues after the
last finished shard and ends with the same bytes, if the source is still the same. The content
digest does not know about files, so a run over the original continues over the copy.

A shard is filled with whole documents up to a number of tokens, documents and bytes of metadata, so
it does not depend on how the source is divided, nor on how much of it is read at a time. Ids and
columns pass through NumPy a million at a time; only metadata takes Python for each document.

Of foreign files a sample does not prove that the source is still the one that the finished shards
were copied from, and no identity knows metadata. So before a conversion resumes, what nothing else
proves is read once more on both sides and compared; a store that is half of one source and half of
another is never published.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.store import Store, open_store
from tokenloom.arguments import Place, integer, near_misses
from tokenloom.errors import StoreCorrupt, StoreExists, plural
from tokenloom.exchange.holds import Portion, metadata_of, portions, values_of
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.opened import is_ours
from tokenloom.ingest.shards import finished_shards, fitting
from tokenloom.ingest.target import alone, make_directory, remains, remove_names, target_of
from tokenloom.progress import Progress
from tokenloom.remote.source import source_of
from tokenloom.store import format as fmt
from tokenloom.store import snapshots
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.files import Files
from tokenloom.store.hashes import with_digest
from tokenloom.store.metadata import RESERVED, json_line
from tokenloom.store.reader import Reader
from tokenloom.store.snapshots import InputRecord
from tokenloom.store.writer import ShardWriter, publish_manifest, publish_sidecar
from tokenloom.version import __version__

log = logging.getLogger("tokenloom")

Array = NDArray[Any]

Int64 = NDArray[np.int64]

CACHE_BYTES = 16 << 20  # of blocks of the finished shards


@dataclass(frozen=True, slots=True)
class _Copying:
    """One conversion.

    Attributes:
        store: what is copied.
        files: how to write.
        root: directory of the copy.
        settings: everything that decides its bytes.
    """

    store: Store
    files: Files
    root: Place
    settings: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """What a shard of this conversion, and no other, is marked with."""
        return hashlib.sha256(fmt.canonical(self.settings)).hexdigest()

    @property
    def is_sample(self) -> bool:
        """Whether the digest of the source proves less than every document."""
        return bool(self.settings["identity"] == "sample")

    @property
    def described(self) -> bool:
        """Whether the source has metadata."""
        reader = self.store.reader
        if isinstance(reader, ForeignReader):
            return reader.inside.described.metadata is not None
        names = [name for shard in reader.manifest.shards for name in shard.files]
        return any(name.startswith("docs.") for name in names)


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
    root, files, standing = target_of(out, files)
    job = _Copying(opened, files, root, _settings(opened, shard_tokens))
    if _is_done(job, standing.snapshot) and not remains(standing):
        return open_store(root)
    make_directory(files, root)
    with alone(files, root) as (now, _):
        if not _is_done(job, now.snapshot):
            with Progress("convert", total=opened.num_tokens, unit="tok", show=progress) as bar:
                _publish(job, _copied(job, bar))
    return open_store(root)


def _copied(job: _Copying, bar: Progress) -> list[fmt.ShardEntry]:
    """All shards; those that are there are compared with the source, where that is needed."""
    left = "build or conversion with other settings left this shard. Run that"
    done, last, broken = finished_shards(job.files, job.root, job.fingerprint, left)
    document = last.progress["document"] if last else 0
    remove_names(job.root, broken, job.files)
    if done:
        log.info("%s: going on after %s", job.root, plural(len(done), "finished shard"))
        if isinstance(job.store.reader, ForeignReader):
            _refuse_mixture(job, _manifest(job, done, {}), bar.advance)
    bar.reach(sum(entry.tokens for entry in done))
    return [*done, *_written(job, len(done), document, bar)]


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


def _is_done(job: _Copying, snapshot: snapshots.Snapshot | None) -> bool:
    if snapshot is None:
        return False
    if snapshot.manifest.parts[0].settings == job.settings and len(snapshot.manifest.parts) == 1:
        log.info("%s: this conversion is already there", job.root)
        return True
    raise StoreExists(
        f"{job.root}: a store is already here that is no such copy. Convert into another "
        "directory, or remove this one."
    )


def _publish(job: _Copying, entries: list[fmt.ShardEntry]) -> None:
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
    job: _Copying, entries: list[fmt.ShardEntry], sidecars: dict[str, fmt.FileRecord]
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


def _inputs(job: _Copying) -> list[InputRecord]:
    """What the documents came from: the inputs of our own store, or the files of others as one."""
    store, reader = job.store, job.store.reader
    if not isinstance(reader, ForeignReader):
        return [one for part in store.inputs for one in part]
    described = reader.inside.described
    size = sum(reader.source.size(name) or 0 for name in described.files)
    return [InputRecord(name=str(store.path), kind=described.kind, bytes=size, sha256=store.digest)]


# -- shards --------------------------------------------------------------------------------------
def _written(job: _Copying, number: int, document: int, bar: Progress) -> Iterator[fmt.ShardEntry]:
    """The shards from one on, whose first document is `document`."""
    reader, names = job.store.reader, ["input_ids", *job.store.columns]
    writer: ShardWriter | None = None
    most = job.settings["shard_tokens"]
    try:
        for portion in portions(reader, first=document):
            columns = {name: _values(reader, portion, name) for name in names}
            ids, lengths = columns.pop("input_ids"), portion.lengths
            lines, inputs, records = _metadata(job, portion.numbers)
            edges = np.concatenate([[0], np.cumsum(lengths)])
            first = 0
            while first < len(lengths):
                count = fitting(writer, lengths[first:], lines[first:], most)
                if writer is not None and not count:  # it is full
                    yield _commit(job, writer, int(portion.numbers[first]))
                    writer, number = None, number + 1
                    continue
                writer = writer or ShardWriter(
                    job.files,
                    job.root,
                    number,
                    dtype=fmt.token_dtype(reader.manifest.vocab_size),
                    columns=reader.manifest.columns,
                    inner=reader.manifest.inner,
                )
                last = first + count
                low, high = edges[[first, last]].tolist()
                part = {name: values[low:high] for name, values in columns.items()}
                writer.append(ids[low:high], lengths[first:last], part)
                if lines:
                    here = slice(first, last)
                    writer.describe_documents(lines[here], inputs[here], records[here])
                first = last
            bar.advance(len(ids))
        if writer is not None:
            yield _commit(job, writer, job.store.num_documents)
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


def _values(reader: Reader, portion: Portion, name: str) -> Array:
    return np.concatenate([np.empty(0, reader.dtype(name)), *values_of(reader, portion, name)])


def _metadata(job: _Copying, numbers: Int64) -> tuple[list[bytes], Int64, Int64]:
    """What is kept about each of some documents, as it is stored, its input and record there.

    Nothing if the source has no metadata. Foreign files count as one input, whose records are their
    documents.
    """
    if not job.described:
        return [], numbers, numbers
    rows = _rows(job.store, numbers)
    inputs = np.array([row.get("_input", 0) for row in rows])
    records = [row.get("_record", n) for n, row in zip(numbers.tolist(), rows, strict=True)]
    # of every build or append of the source: its first document, and inputs before it
    parts = zip(job.store.reader.manifest.parts, job.store.inputs, strict=True)
    base = np.cumsum([[0, 0], *([one.documents, len(own)] for one, own in parts)], axis=0)[:-1]
    part = np.searchsorted(base[:, 0], numbers, side="right") - 1
    return list(map(_line, rows)), base[part, 1] + inputs, np.array(records)


def _rows(store: Store, numbers: Int64) -> list[dict[str, Any]]:
    return metadata_of(store, numbers, plain=True) or [{}] * len(numbers)


def _line(row: dict[str, Any]) -> bytes:
    return json_line({key: value for key, value in row.items() if key not in RESERVED})


def _commit(job: _Copying, writer: ShardWriter, document: int) -> fmt.ShardEntry:
    return writer.commit(
        fingerprint=job.fingerprint, engine="none", progress={"document": document}, snapshot=1
    )


# -- finished shards against the source ----------------------------------------------------------
def _refuse_mixture(job: _Copying, finished: fmt.Manifest, tick: Callable[[int], None]) -> None:
    """Compare finished shards with the source, as far as its identity leaves them open.

    Args:
        job: the conversion.
        finished: a manifest of the finished shards alone.
        tick: told the tokens of each step.

    Raises:
        StoreCorrupt: the source is not what they were copied from.
    """
    # the digest of the copy is compared with a full identity when all is copied
    names = ["input_ids", *job.store.columns] if job.is_sample else []
    copy = _store_of(job, finished)
    for portion in portions(copy.reader):
        if not _is_same(job, copy, portion, names):
            first, last = portion.numbers[[0, -1]].tolist()
            raise StoreCorrupt(
                f"{job.store.path}: it was changed after a part of it was copied: documents "
                f"{first:,} to {last:,} are not those in the finished shards of {job.root}. "
                "Nothing is published. Restore it, or remove those shards (`tokenloom gc "
                "--unfinished`) and convert it again."
            )
        tick(portion.stop - portion.start)


def _store_of(job: _Copying, finished: fmt.Manifest) -> Store:
    """The finished shards as a store, which nobody else sees."""
    cache, rules = BlockCache(CACHE_BYTES), FetchRules()
    reader = Reader(
        finished, source_of(job.root), path=str(job.root), cache=cache, identity="", rules=rules
    )
    return Store(reader, job.root)


def _is_same(job: _Copying, copy: Store, portion: Portion, names: list[str]) -> bool:
    """Whether some documents are the same on both sides; either identity has their lengths."""
    sides = job.store, copy
    for name in names:
        read = (values_of(one.reader, portion, name) for one in sides)
        if not all(np.array_equal(ours, theirs) for ours, theirs in zip(*read, strict=True)):
            return False
    if not job.described:
        return True
    ours, theirs = (list(map(_line, _rows(one, portion.numbers))) for one in sides)
    return ours == theirs
