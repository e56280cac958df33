"""The shards of a copy: documents of any store in, committed shards out.

One idea: a shard is filled greedily with whole documents, up to a number of tokens, documents and
bytes of metadata, so it depends on its first document and on nothing that happened before: not on
how the source is divided, nor on how much of it is read at a time.

Cost: ids and columns pass through NumPy a million at a time; only metadata takes Python for each
document.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.store import Store
from tokenloom.arguments import Place
from tokenloom.errors import StoreExists, plural
from tokenloom.exchange.portions import Portion, metadata_of, portions, values_of
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.ingest.target import remove_names, sizes_of
from tokenloom.progress import Progress
from tokenloom.store import format as fmt
from tokenloom.store.files import Files
from tokenloom.store.metadata import MAX_LINES_BYTES, RESERVED, json_line
from tokenloom.store.writer import ShardWriter, shard_entry

__all__ = ["Copying", "Finished", "copied_shards", "document_lines", "finished_shards"]

log = logging.getLogger("tokenloom")

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Copying:
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


class Finished(NamedTuple):
    """What an earlier attempt at the same conversion left.

    Attributes:
        entries: its shards.
        document: the first document that is in none of them.
    """

    entries: list[fmt.ShardEntry]
    document: int


def finished_shards(job: Copying) -> Finished:
    """The shards of the copy that are there; one that lacks a file is removed."""
    done, document, broken = _committed(job)
    remove_names(job.root, broken, job.files)
    if done:
        log.info("%s: going on after %s", job.root, plural(len(done), "finished shard"))
    return Finished(done, document)


def copied_shards(job: Copying, done: Finished, bar: Progress) -> list[fmt.ShardEntry]:
    """All shards of the copy: those that are there, and the others."""
    return [*done.entries, *_written(job, len(done.entries), done.document, bar)]


def _committed(job: Copying) -> tuple[list[fmt.ShardEntry], int, list[str]]:
    """Finished shards of this very conversion, the next document, and a shard that lacks a file."""
    entries: list[fmt.ShardEntry] = []
    document = 0
    while True:
        folder = job.root / fmt.shard_name(len(entries))
        raw = job.files.read(folder / "shard.json", fmt.MAX_RECORD_BYTES)
        if raw is None:
            return entries, document, []
        record = fmt.unseal(fmt.ShardRecord, raw, str(folder / "shard.json"))
        size_of = sizes_of(folder, job.files)
        if any(size_of(name) != file.bytes for name, file in record.files.items()):
            return entries, document, [folder.name]
        if record.fingerprint != job.fingerprint:
            raise StoreExists(
                f"{folder}: an unfinished build or conversion with other settings left this shard. "
                "Run that again to finish it, or `tokenloom gc --unfinished` to remove it."
            )
        entries.append(shard_entry(record, raw))
        document = record.progress["document"]


class _Documents(NamedTuple):
    """Documents of a portion, loaded."""

    numbers: NDArray[np.int64]
    lengths: NDArray[np.int64]
    ids: Array
    columns: dict[str, Array]
    rows: list[dict[str, Any]] | None

    def part(self, first: int, last: int) -> _Documents:
        """Some of them."""
        edges = np.concatenate([[0], np.cumsum(self.lengths)])
        low, high = int(edges[first]), int(edges[last])
        return _Documents(
            self.numbers[first:last],
            self.lengths[first:last],
            self.ids[low:high],
            {name: values[low:high] for name, values in self.columns.items()},
            None if self.rows is None else self.rows[first:last],
        )


def _written(job: Copying, number: int, document: int, bar: Progress) -> Iterator[fmt.ShardEntry]:
    writer: ShardWriter | None = None
    try:
        for documents in _loaded(job, document):
            first = 0
            lines = [] if documents.rows is None else [_line(row) for row in documents.rows]
            while first < len(documents.numbers):
                count = _fitting(job, writer, documents.lengths[first:], lines[first:])
                if writer is not None and not count:  # it is full
                    yield _commit(job, writer, int(documents.numbers[first]))
                    writer, number = None, number + 1
                    continue
                writer = writer or _writer(job, number)
                _append(job, writer, documents.part(first, first + count), lines[first:][:count])
                first += count
            bar.advance(len(documents.ids))
        if writer is not None:
            yield _commit(job, writer, job.store.num_documents)
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


def _loaded(job: Copying, document: int) -> Iterator[_Documents]:
    """The documents of the source from one on, a portion at a time."""
    described, columns = job.described, job.store.columns
    for portion in portions(job.store.reader, first=document):
        rows = metadata_of(job.store, portion.numbers, plain=True) if described else None
        yield _Documents(
            portion.numbers,
            portion.lengths,
            _values(job, portion, "input_ids"),
            {name: _values(job, portion, name) for name in columns},
            (rows or [{}] * len(portion.numbers)) if described else None,
        )


def _values(job: Copying, portion: Portion, name: str) -> Array:
    parts = list(values_of(job.store.reader, portion, name))
    return np.concatenate([np.empty(0, job.store.reader.dtype(name)), *parts])


def _writer(job: Copying, number: int) -> ShardWriter:
    manifest = job.store.reader.manifest
    return ShardWriter(
        job.files,
        job.root,
        number,
        dtype=fmt.token_dtype(manifest.vocab_size),
        columns=manifest.columns,
        inner=manifest.inner,
    )


def document_lines(store: Store, numbers: NDArray[np.int64]) -> list[bytes]:
    """What is kept about each of some documents, as it is stored."""
    rows = metadata_of(store, numbers, plain=True)
    return [_line(row) for row in rows or [{}] * len(numbers)]


def _line(row: dict[str, Any]) -> bytes:
    return json_line({key: value for key, value in row.items() if key not in RESERVED})


def _fitting(
    job: Copying, writer: ShardWriter | None, lengths: NDArray[np.int64], lines: Sequence[bytes]
) -> int:
    """How many of these documents still belong into this shard, as in a build."""
    tokens, documents, metadata = (
        (writer.tokens, writer.documents, writer.metadata_bytes) if writer else (0, 0, 0)
    )
    limit = job.settings["shard_tokens"]
    fits = min(
        int(np.searchsorted(tokens + np.cumsum(lengths), limit, "right")),
        fmt.SHARD_DOCUMENTS - documents,
    )
    if lines:
        sizes = np.cumsum([len(line) for line in lines])
        fits = min(fits, int(np.searchsorted(metadata + sizes, MAX_LINES_BYTES, "right")))
    return max(fits, 1) if writer is None else fits


def _append(job: Copying, writer: ShardWriter, documents: _Documents, lines: list[bytes]) -> None:
    writer.append(documents.ids, documents.lengths, documents.columns)
    if documents.rows is None:
        return
    # a source of others counts as one input, whose records are its documents
    numbers = documents.numbers.tolist()
    inputs = [row.get("_input", 0) for row in documents.rows]
    records = [row.get("_record", n) for n, row in zip(numbers, documents.rows, strict=True)]
    base = _first_inputs(job)
    part = np.searchsorted(base[:, 0], documents.numbers, side="right") - 1
    writer.describe_documents(lines, base[part, 1] + np.array(inputs), np.array(records))


def _first_inputs(job: Copying) -> NDArray[np.int64]:
    """For every build or append of the source: its first document, and inputs before it."""
    parts = job.store.reader.manifest.parts
    counts = [len(one) for one in job.store.inputs]
    sizes = [[part.documents, count] for part, count in zip(parts, counts, strict=True)]
    return np.cumsum([[0, 0], *sizes], axis=0)[:-1]


def _commit(job: Copying, writer: ShardWriter, document: int) -> fmt.ShardEntry:
    return writer.commit(
        fingerprint=job.fingerprint, engine="none", progress={"document": document}, snapshot=1
    )
