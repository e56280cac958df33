"""Documents in, one committed shard out; shards in, one published manifest out.

Every byte is written once, in order, and hashed while it passes: the documents, the
pages, the chunks and the file. Memory is one inner chunk per column (plus the shard's metadata
lines), whatever the size of the shard. Nothing has its final name before it is whole: a shard is
renamed into place after its commit record and everything beside it is durable.

Cost: one sha256, one xxh3_128 and two crc32c over the payload; `python -m benchmarks write` prints
it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.arguments import Place
from tokenloom.errors import StoreError
from tokenloom.store import format as fmt
from tokenloom.store import metadata as docs
from tokenloom.store import zarr
from tokenloom.store.files import Files, OutFile, publish_file, temporary_name
from tokenloom.store.hashes import hash_columns, hash_ids
from tokenloom.store.id_index import build_index
from tokenloom.store.loss_counts import LossCounter
from tokenloom.store.shard import ChunkSums

Array = NDArray[Any]


class _HashedFile:
    """A file that is hashed while it is written."""

    def __init__(self, files: Files, path: Place) -> None:
        self._out: OutFile = files.create(path)
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    def write(self, data: Any) -> None:
        self._sha256.update(data)
        self._bytes += memoryview(data).nbytes
        self._out.write(data)

    def close(self) -> fmt.FileRecord:
        self._out.close()
        return fmt.FileRecord(bytes=self._bytes, sha256=self._sha256.hexdigest())


def _write_file(files: Files, path: Place, data: bytes) -> fmt.FileRecord:
    out = _HashedFile(files, path)
    out.write(data)
    return out.close()


class _ColumnWriter:
    """Streams one column as a Zarr shard (see `tokenloom.store.zarr`)."""

    def __init__(self, files: Files, folder: Place, dtype: str, codec: str, inner: int) -> None:
        files.mkdir(folder)
        files.mkdir(folder / "c")
        self._files, self._folder = files, folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._codec, self._inner = codec, inner
        self._out = _HashedFile(files, folder / "c" / "0")
        self._compress = zstandard.ZstdCompressor(level=3).compress
        self._tail = np.empty(0, self._dtype)  # fewer than `inner` elements
        self._sizes: list[int] = []
        self.length = 0
        self._crcs: list[int] = []
        self._pages = ChunkSums()

    def append(self, values: Array) -> None:
        values = np.ascontiguousarray(values, self._dtype)
        self.length += len(values)
        if len(self._tail):  # fill the chunk that was begun
            room = self._inner - len(self._tail)
            chunk = np.concatenate([self._tail, values[:room]])
            values = values[room:]
            if len(chunk) < self._inner:
                self._tail = chunk
                return
            self._write_chunks(chunk)
        whole = len(values) // self._inner * self._inner
        if whole:
            self._write_chunks(values[:whole])
        self._tail = values[whole:].copy()

    def close(self) -> tuple[fmt.Column, dict[str, fmt.FileRecord]]:
        padding = -len(self._tail) % self._inner
        if not self._sizes and not len(self._tail):
            padding = self._inner  # an empty column has one chunk
        if len(self._tail) or padding:
            self._write_chunks(np.concatenate([self._tail, np.zeros(padding, self._dtype)]))
        self._out.write(zarr.encode_index(np.array(self._sizes, np.int64)))
        name, dtype = self._folder.name, self._dtype.name
        about = zarr.metadata(self.length, dtype, self._codec, self._inner)
        records = {
            f"{name}/zarr.json": _write_file(self._files, self._folder / "zarr.json", about),
            f"{name}/c/0": self._out.close(),
        }
        self._files.sync_directory(self._folder / "c")
        self._files.sync_directory(self._folder)
        return fmt.Column(dtype=dtype, length=self.length, codec=self._codec), records

    def _write_chunks(self, values: Array) -> None:
        """Write whole inner chunks; `values` has a multiple of `inner` elements."""
        if self._codec == "none":
            self._out.write(values)
            raw = values.view(np.uint8)
            step = self._inner * self._dtype.itemsize
            self._crcs += map(zarr.crc32c, raw.reshape(-1, step))  # [chunk, byte]
            self._sizes += [step] * (len(raw) // step)
            self._pages.append(raw)
            return
        for chunk in values.reshape(-1, self._inner):  # [chunk, element]
            data = chunk.tobytes()
            if self._codec == "zstd":
                data = self._compress(data)
            self._crcs.append(zarr.crc32c(data))
            data += self._crcs[-1].to_bytes(zarr.CRC, "little")
            self._out.write(data)
            self._sizes.append(len(data))

    def checksums(self) -> tuple[list[int], list[int]]:
        """The crc32c of every chunk and, of one that is stored as it is, of every page."""
        return self._crcs, self._pages.close().tolist()


class ShardWriter:
    """One shard under a temporary name, until `commit` gives it its own.

    Args:
        files: the seam for effects.
        root: the store's directory.
        number: the shard's number in the store.
        dtype: stored dtype of the tokens.
        columns: further per-token columns, name → dtype.
        inner: elements per inner chunk.
    """

    def __init__(
        self,
        files: Files,
        root: Place,
        number: int,
        *,
        dtype: str,
        columns: Mapping[str, str] | None = None,
        inner: int = fmt.INNER,
    ) -> None:
        self._files, self._root, self._number, self._inner = files, root, number, inner
        self._folder = root / temporary_name()
        files.mkdir(self._folder, 0o700)  # private until it is published
        try:
            self._open_columns(dtype, columns or {})
        except BaseException:
            self.abandon()
            raise
        self._lines: list[bytes] = []
        self._inputs: list[Array] = []
        self._records: list[Array] = []
        self.documents = 0
        self.tokens = 0
        self.metadata_bytes = 0

    def _open_columns(self, dtype: str, columns: Mapping[str, str]) -> None:
        self._counters = {name: LossCounter() for name in fmt.LOSS_COLUMNS if name in columns}
        self._columns = {"input_ids": self._open_column("input_ids", dtype, "none")}
        for name in ("offsets", "doc_hash", *(["column_hash"] if columns else [])):
            self._columns[name] = self._open_column(name, fmt.FIXED_DTYPES[name], "none")
        for name, kind in columns.items():
            self._columns[name] = self._open_column(name, kind, "zstd")
        for name in self._counters:
            counts = f"{name}_counts"
            self._columns[counts] = self._open_column(counts, "uint32", "none")
        self._columns["offsets"].append(np.zeros(1, np.uint32))
        self._dtype = np.dtype(dtype).newbyteorder("<")

    def _open_column(self, name: str, dtype: str, codec: str) -> _ColumnWriter:
        inner = fmt.inner_of(name, self._inner)
        return _ColumnWriter(self._files, self._folder / name, dtype, codec, inner)

    def append(
        self,
        ids: Array,
        lengths: Array,
        columns: Mapping[str, Array] | None = None,
    ) -> None:
        """Append documents: `ids` holds their tokens end to end, `lengths` tokens of each."""
        columns = columns or {}
        ends = self.tokens + np.cumsum(lengths, dtype=np.int64)
        ids = np.ascontiguousarray(ids, self._dtype)
        self._columns["input_ids"].append(ids)
        self._columns["offsets"].append(ends)
        self._columns["doc_hash"].append(hash_ids(ids, lengths).reshape(-1))
        if columns:
            self._columns["column_hash"].append(hash_columns(columns, lengths).reshape(-1))
        for name, values in columns.items():
            self._columns[name].append(values)
        for name, counter in self._counters.items():
            self._columns[f"{name}_counts"].append(counter.append(columns[name]))
        self.documents += len(lengths)
        self.tokens = int(ends[-1]) if len(ends) else self.tokens

    def describe_documents(self, lines: list[bytes], inputs: Array, records: Array) -> None:
        """Append the metadata of the documents just appended (see `tokenloom.store.metadata`)."""
        self._lines += lines
        self._inputs.append(inputs)
        self._records.append(records)
        self.metadata_bytes += sum(map(len, lines))

    def commit(
        self,
        *,
        fingerprint: str,
        engine: str,
        progress: dict[str, int],
        snapshot: int = 0,
        skipped: bytes = b"",
    ) -> fmt.ShardEntry:
        """Make everything durable, write the commit record, give the shard its name.

        The record names the `snapshot` that the shard is written for (0: unknown), so that a lost
        manifest leaves a trace. `skipped` is kept beside the documents, if there is any.
        Should another builder have committed the same shard meanwhile, theirs is kept if its
        content is the same, and it is an error otherwise.
        """
        for name, counter in self._counters.items():
            self._columns[f"{name}_counts"].append(np.array([counter.total]))
        index = build_index(docs.id_texts(self._lines))
        if index is not None:
            self._columns["id_index"] = self._open_column("id_index", "uint64", "none")
            self._columns["id_index"].append(index)
        columns: dict[str, fmt.Column] = {}
        records: dict[str, fmt.FileRecord] = {}
        sums: dict[str, list[int]] = {"crc32c": [], "page_crc32c": []}
        for name, writer in self._columns.items():
            column, written = writer.close()
            page = len(sums["page_crc32c"]) if column.codec == "none" else -1
            columns[name] = dataclasses.replace(
                column, crc_first=len(sums["crc32c"]), page_first=page
            )
            for kind, found in zip(sums, writer.checksums(), strict=True):
                sums[kind] += found
            records |= written
        for name, crcs in sums.items():
            guard = self._open_column(name, "uint32", "crc32c")
            guard.append(np.array(crcs, np.uint32))
            columns[name], written = guard.close()
            records |= written
        records |= self._write_documents()
        if skipped:
            name = "skipped.jsonl.zst"
            records[name] = _write_file(self._files, self._folder / name, skipped)
        record = fmt.ShardRecord(
            number=self._number,
            documents=self.documents,
            tokens=self.tokens,
            inner=self._inner,
            fingerprint=fingerprint,
            engine=engine,
            columns=columns,
            files=records,
            progress=progress,
            snapshot=snapshot,
        )
        sealed = fmt.seal(record)
        _write_file(self._files, self._folder / "shard.json", sealed)
        self._files.sync_directory(self._folder)
        entry = shard_entry(record, sealed)
        self._publish(entry)
        return entry

    def abandon(self) -> None:
        """Remove what was written."""
        self._files.remove(self._folder)

    def _write_documents(self) -> dict[str, fmt.FileRecord]:
        if not self._inputs:
            return {}
        name = docs.file_name()
        inputs, records = np.concatenate(self._inputs), np.concatenate(self._records)
        data = docs.encode_documents(name, self._lines, inputs, records)
        return {name: _write_file(self._files, self._folder / name, data)}

    def _publish(self, entry: fmt.ShardEntry) -> None:
        target = self._root / entry.name
        self._files.chmod_like(self._folder, self._root)
        if not self._files.rename_new(self._folder, target):
            self._files.remove(self._folder)
            theirs = self._files.read(target / "shard.json", fmt.MAX_RECORD_BYTES)
            if theirs is None or hashlib.sha256(theirs).hexdigest() != entry.sha256:
                raise StoreError(
                    f"{target}: another build with other content has taken this shard. "
                    "Build into another directory, or remove this one."
                )
        self._files.sync_directory(self._root)


def shard_entry(record: fmt.ShardRecord, sealed: bytes) -> fmt.ShardEntry:
    """How a manifest lists a shard with this commit record."""
    return fmt.ShardEntry(
        name=fmt.shard_name(record.number),
        documents=record.documents,
        tokens=record.tokens,
        sha256=hashlib.sha256(sealed).hexdigest(),
        files={name: file.bytes for name, file in record.files.items()}
        | {"shard.json": len(sealed)},
    )


def publish_sidecar(files: Files, root: Place, name: str, data: bytes) -> fmt.FileRecord:
    """Publish a small file beside the manifests; the same bytes may be there already."""
    record = fmt.FileRecord(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    path = root / name
    if not publish_file(files, path, data) and files.read(path, len(data)) != data:
        raise StoreError(f"{path}: it exists with other content. Build into another directory.")
    return record


def publish_manifest(files: Files, root: Place, manifest: fmt.Manifest) -> None:
    """Publish a snapshot: create-only, so of two builders exactly one wins."""
    sealed = fmt.seal(manifest)
    path = root / fmt.manifest_name(manifest.number)
    if not publish_file(files, path, sealed) and files.read(path, len(sealed)) != sealed:
        raise StoreError(
            f"{path}: another build published this snapshot with other content. "
            "Open the store to see it, or build into another directory."
        )
