"""Documents in, one committed shard out; shards in, one published manifest out.

One idea: every byte is written once, in order, and hashed while it passes. Memory is one inner
chunk per column (plus the shard's metadata lines), whatever the size of the shard. Nothing has
its final name before it is whole: a shard is renamed into place after its commit record and
everything beside it is durable.

Cost: one sha256 and one crc32c over the payload; `python -m benchmarks write` prints it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.errors import StoreError
from tokenloom.store import format as fmt
from tokenloom.store import metadata as docs
from tokenloom.store import zarr
from tokenloom.store.files import Files, OutFile, publish_file, temporary_name

__all__ = ["ShardWriter", "publish_manifest", "publish_sidecar", "shard_entry"]

Array = NDArray[Any]


class _HashedFile:
    """A file that is hashed while it is written."""

    def __init__(self, files: Files, path: Path) -> None:
        self._out: OutFile = files.create(path)
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    def write(self, data: Any) -> None:
        self._sha256.update(data)
        self._bytes += memoryview(data).nbytes
        self._out.write(data)

    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def close(self) -> fmt.FileRecord:
        self._out.close()
        return fmt.FileRecord(bytes=self._bytes, sha256=self.sha256())


def _write_file(files: Files, path: Path, data: bytes) -> fmt.FileRecord:
    out = _HashedFile(files, path)
    out.write(data)
    return out.close()


class _ColumnWriter:
    """Streams one column as a Zarr shard (see `tokenloom.store.zarr`)."""

    def __init__(self, files: Files, folder: Path, dtype: str, codec: str, inner: int) -> None:
        files.mkdir(folder)
        files.mkdir(folder / "c")
        self._files, self._folder = files, folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._codec, self._inner = codec, inner
        self._out = _HashedFile(files, folder / "c" / "0")
        self._decoded = hashlib.sha256()
        self._compress = zstandard.ZstdCompressor(level=3).compress
        self._tail = np.empty(0, self._dtype)  # fewer than `inner` elements
        self._sizes: list[int] = []
        self.length = 0
        self.crcs: list[int] = []

    def append(self, values: Array) -> None:
        values = np.ascontiguousarray(values, self._dtype)
        self.length += len(values)
        if self._codec != "none":
            self._decoded.update(values.view(np.uint8).data)
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
        content = self._close_payload()
        self._out.write(zarr.encode_index(np.array(self._sizes, np.int64)))
        name, dtype = self._folder.name, self._dtype.name
        about = zarr.metadata(self.length, dtype, self._codec, self._inner)
        records = {
            f"{name}/zarr.json": _write_file(self._files, self._folder / "zarr.json", about),
            f"{name}/c/0": self._out.close(),
        }
        self._files.sync_directory(self._folder / "c")
        self._files.sync_directory(self._folder)
        column = fmt.Column(dtype=dtype, length=self.length, codec=self._codec, content=content)
        return column, records

    def _close_payload(self) -> str:
        """Write the padded last chunk; gives the sha256 of the decoded array.

        With codec "none" the array is a prefix of the file, so the file's own hash, taken
        between the last element and the padding, is that sha256: no second pass.
        """
        padding = np.zeros(-len(self._tail) % self._inner, self._dtype)
        if not self._sizes and not len(self._tail):
            padding = np.zeros(self._inner, self._dtype)
        if self._codec == "none":
            self._out.write(self._tail)
            content = self._out.sha256()
            self._out.write(padding)
            if len(self._tail) or len(padding):
                self._account(np.concatenate([self._tail, padding]))
            return content
        if len(self._tail) or len(padding):
            self._write_chunks(np.concatenate([self._tail, padding]))
        return self._decoded.hexdigest()

    def _write_chunks(self, values: Array) -> None:
        """Write whole inner chunks; `values` has a multiple of `inner` elements."""
        if self._codec == "none":
            self._out.write(values)
            self._account(values)
            return
        for chunk in values.reshape(-1, self._inner):  # [chunk, element]
            data = chunk.tobytes()
            if self._codec == "zstd":
                data = self._compress(data)
            data += zarr.crc32c(data).to_bytes(4, "little")
            self._out.write(data)
            self._sizes.append(len(data))

    def _account(self, values: Array) -> None:
        """Note size and crc32c of whole chunks that are stored as they are."""
        raw = values.view(np.uint8)
        step = self._inner * self._dtype.itemsize
        self.crcs += [zarr.crc32c(raw[i : i + step]) for i in range(0, len(raw), step)]
        self._sizes += [step] * (len(raw) // step)


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
        root: Path,
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
        kinds = {"input_ids": (dtype, "none"), "offsets": ("uint32", "none")}
        kinds |= {name: (kind, "zstd") for name, kind in columns.items()}
        self._columns = {
            name: _ColumnWriter(self._files, self._folder / name, kind, codec, self._inner)
            for name, (kind, codec) in kinds.items()
        }
        self._columns["offsets"].append(np.zeros(1, np.uint32))

    def append(
        self,
        ids: Array,
        lengths: Array,
        columns: Mapping[str, Array] | None = None,
    ) -> None:
        """Append documents: `ids` holds their tokens end to end, `lengths` tokens of each."""
        ends = self.tokens + np.cumsum(lengths, dtype=np.int64)
        self._columns["input_ids"].append(ids)
        self._columns["offsets"].append(ends)
        for name, values in (columns or {}).items():
            self._columns[name].append(values)
        self.documents += len(lengths)
        self.tokens = int(ends[-1]) if len(ends) else self.tokens

    def describe_documents(self, lines: list[bytes], inputs: Array, records: Array) -> None:
        """Append the metadata of the documents just appended (see `tokenloom.store.metadata`)."""
        self._lines += lines
        self._inputs.append(inputs)
        self._records.append(records)
        self.metadata_bytes += sum(map(len, lines))

    def commit(self, *, fingerprint: str, engine: str, progress: dict[str, int]) -> fmt.ShardEntry:
        """Make everything durable, write the commit record, give the shard its name.

        Should another builder have committed the same shard meanwhile, theirs is kept if its
        content is the same, and it is an error otherwise.
        """
        columns: dict[str, fmt.Column] = {}
        records: dict[str, fmt.FileRecord] = {}
        crcs: list[int] = []
        for name, writer in self._columns.items():
            column, written = writer.close()
            first = len(crcs) if column.codec == "none" else -1
            crcs += writer.crcs
            columns[name] = dataclasses.replace(column, crc_first=first)
            records |= written
        guard = _ColumnWriter(self._files, self._folder / "crc32c", "uint32", "crc32c", self._inner)
        guard.append(np.array(crcs, np.uint32))
        columns["crc32c"], written = guard.close()
        records |= written
        records |= self._write_documents()
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
        digest=record.digest,
        sha256=hashlib.sha256(sealed).hexdigest(),
        files={name: file.bytes for name, file in record.files.items()}
        | {"shard.json": len(sealed)},
    )


def publish_sidecar(files: Files, root: Path, name: str, data: bytes) -> fmt.FileRecord:
    """Publish a small file beside the manifests; the same bytes may be there already."""
    record = fmt.FileRecord(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    path = root / name
    if not publish_file(files, path, data) and files.read(path, len(data)) != data:
        raise StoreError(f"{path}: it exists with other content. Build into another directory.")
    return record


def publish_manifest(files: Files, root: Path, manifest: fmt.Manifest) -> None:
    """Publish a snapshot: create-only, so of two builders exactly one wins."""
    sealed = fmt.seal(manifest)
    path = root / fmt.manifest_name(manifest.number)
    if not publish_file(files, path, sealed) and files.read(path, len(sealed)) != sealed:
        raise StoreError(
            f"{path}: another build published this snapshot with other content. "
            "Open the store to see it, or build into another directory."
        )
