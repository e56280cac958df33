"""One shard, opened: where each column's bytes lie, and which of them have been checked.

A chunk of a column is checked against its crc32c the first time this process reads it,
and the fact is remembered in a bitmap (``verify="first"``); over a network, it is checked every
time. A shard is opened when first touched: its commit record must be the very bytes that the
manifest names.

Beside the crc32c of every chunk a shard keeps that of every page, 4,096 bytes of the payload of
each column that is stored as it is (`page_crc32c`, 0.1 % of its size): whoever wants one row of a
cold store reads the one or two pages that it touches, and checks those. The last page of a column
ends where its last, padded chunk ends, so it may be short.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.errors import StoreCorrupt
from tokenloom.store import format as fmt
from tokenloom.store import zarr
from tokenloom.store.byte_source import ByteSource, checking, read_exactly

Array = NDArray[np.generic]

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class OpenColumn:
    """Geometry of a column's payload file.

    Attributes:
        file: name relative to the store.
        dtype: little-endian dtype of the decoded elements.
        length: elements.
        inner: elements per inner chunk.
        codec: see `tokenloom.store.zarr`.
        item: bytes per element.
        checked: one byte per chunk, 1 once it agreed with its crc32c in this process.
        starts: first byte of each chunk, and the end [chunks + 1] (codec "zstd"), else None: all
            chunks have one size.
        crcs: expected crc32c of each chunk as stored; None for the checksums themselves.
        page_first: place of its first page in the page_crc32c column (codec "none"), else -1.
        first_byte: where its first element is in the file (codec "none").
        extent: bytes from the start of the file to the end of all elements in it, where the file is
            not ours: its last chunk is not padded, and it may hold several columns. 0: ours.
        decode: gives elements [low, high) (codec "decoded"); several threads may call it.
        is_dry: whether its bytes are zeros that stand for others (`tokenloom.store.dry_run`).
    """

    file: str
    dtype: np.dtype[np.generic]
    length: int
    inner: int
    codec: str
    item: int
    checked: bytearray
    starts: NDArray[np.int64] | None = None
    crcs: NDArray[np.uint32] | None = None
    page_first: int = -1
    first_byte: int = 0
    extent: int = 0
    decode: Callable[[int, int], Array] | None = None
    is_dry: bool = False

    @property
    def payload_bytes(self) -> int:
        """Bytes of the file that hold chunks of columns stored as they are, padding included."""
        return self.extent or len(self.checked) * self.chunk_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the chunks of this column alone, if it is stored as it is."""
        return (self.length * self.item) if self.extent else len(self.checked) * self.chunk_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return self.inner * self.item

    def edges(self, first: int, last: int) -> list[int]:
        """First byte of chunks `first` to `last` in the file, as stored; `last` may be the end."""
        if self.starts is not None:
            return self.starts[first : last + 1].tolist()
        step = self.chunk_bytes + (zarr.CRC if self.codec == "crc32c" else 0)
        if not self.extent:
            return list(range(first * step, last * step + 1, step))
        edges = [min(chunk * step, self.stored_bytes) for chunk in range(first, last + 1)]
        return [self.first_byte + edge for edge in edges]


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard whose commit record is trusted."""

    name: str
    record: fmt.ShardRecord
    columns: dict[str, OpenColumn]


def are_plain(columns: Iterable[OpenColumn]) -> bool:
    """Whether all are stored as they are; shards of a foreign store may differ."""
    return all(column.codec == "none" for column in columns)


def corrupt(where: str, what: str) -> StoreCorrupt:
    """The error for bytes that are not what was published."""
    return StoreCorrupt(
        f"{where}: {what}. The bytes are not those that were written, so they are not used. "
        "Restore the file from a copy, or build the store again; `tokenloom verify` checks all."
    )


def open_shard(
    source: ByteSource, root: str, manifest: fmt.Manifest, number: int, *, trust: bool = False
) -> OpenShard:
    """Open one shard, checking its commit record and its checksums of checksums.

    With `trust` all chunks count as checked from the beginning.
    """
    entry = manifest.shards[number]
    name = f"{entry.name}/shard.json"
    raw = _read_whole(source, root, name)
    with checking(source, [(name, 0, len(raw))]):
        if hashlib.sha256(raw).hexdigest() != entry.sha256:
            raise corrupt(f"{root}/{name}", "its sha256 is not the one in the manifest")
    record = fmt.unseal(fmt.ShardRecord, raw, f"{root}/{name}")
    if problem := record.disagreement(manifest, entry):
        raise corrupt(f"{root}/{name}", problem)
    guard = _open_column(source, root, entry.name, record, "crc32c", None)
    sums = _read_all(source, root, guard).view(np.uint32)
    columns = {
        column: _open_column(source, root, entry.name, record, column, sums)
        for column in record.columns
        if column != "crc32c"
    }
    if trust:
        for opened in columns.values():
            opened.checked[:] = b"\1" * len(opened.checked)
    return OpenShard(entry.name, record, columns)


def _open_column(
    source: ByteSource,
    root: str,
    shard: str,
    record: fmt.ShardRecord,
    name: str,
    sums: NDArray[np.uint32] | None,
) -> OpenColumn:
    column = record.columns[name]
    file = f"{shard}/{name}/c/0"
    size = record.files[f"{name}/c/0"].bytes
    dtype = np.dtype(column.dtype).newbyteorder("<")
    inner = fmt.inner_of(name, record.inner)
    chunks = zarr.inner_chunks(column.length, inner)
    payload = size - zarr.index_bytes(chunks)
    starts = crcs = None
    sealed = zarr.CRC if column.codec == "crc32c" else 0  # bytes after each chunk
    if column.codec != "zstd" and payload != chunks * (inner * dtype.itemsize + sealed):
        raise corrupt(f"{root}/{file}", f"{size:,} bytes cannot hold {column.length} elements")
    if name not in ("crc32c", "page_crc32c"):
        if sums is None or not 0 <= column.crc_first <= len(sums) - chunks:
            raise corrupt(f"{root}/{shard}/crc32c", f"it has no checksums for {name}")
        crcs = sums[column.crc_first : column.crc_first + chunks]
    if column.codec == "zstd":
        if payload < 0:
            raise corrupt(f"{root}/{file}", f"{size:,} bytes cannot hold {chunks} chunks")
        asked = file, payload, size - payload
        (index,) = read_exactly(source, [asked], root)
        starts = zarr.decode_index(index.tobytes(), payload)
        with checking(source, [asked]):
            if starts is None:
                raise corrupt(f"{root}/{file}", "its index is damaged")
    return OpenColumn(
        file,
        dtype,
        column.length,
        inner,
        column.codec,
        dtype.itemsize,
        bytearray(chunks),
        starts,
        crcs,
        column.page_first,
    )


def check_chunk(column: OpenColumn, chunk: int, raw: NDArray[np.uint8], root: str) -> None:
    """Compare a chunk that is stored as it is with its crc32c, and remember that it agreed.

    Files of others may have none: then there is nothing to compare.
    """
    if column.crcs is not None and not column.is_dry and zarr.crc32c(raw) != column.crcs[chunk]:
        raise _corrupt_chunk(column, chunk, root, "the crc32c does not match")
    column.checked[chunk] = 1


def decode_chunk(column: OpenColumn, chunk: int, raw: NDArray[np.uint8], root: str) -> Array:
    """The elements of a chunk with a checksum of its own (codecs "zstd" and "crc32c").

    The shard has that checksum, too: a file of another shard agrees with itself, but not with it.
    """
    if column.is_dry:
        return np.zeros(column.inner, column.dtype)
    body, tail = raw[:-4], raw[-4:]
    found = zarr.crc32c(body)
    wrong = column.crcs is not None and found != column.crcs[chunk]
    if wrong or len(raw) < 4 or found != int.from_bytes(tail.tobytes(), "little"):
        raise _corrupt_chunk(column, chunk, root, "the crc32c does not match")
    if column.codec == "zstd":
        try:
            body = _decompress(body, column.chunk_bytes)
        except zstandard.ZstdError as error:
            raise _corrupt_chunk(column, chunk, root, f"zstd: {error}") from error
    if len(body) != column.chunk_bytes:
        raise _corrupt_chunk(column, chunk, root, f"it decodes to {len(body)} bytes")
    return body.view(column.dtype)


def _decompress(body: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Decompress a frame that must say it has `size` bytes, before any memory is taken."""
    data = body.tobytes()
    if zstandard.frame_content_size(data) != size:
        raise zstandard.ZstdError("the frame has another size than a chunk")
    whole = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    return np.frombuffer(whole, np.uint8)


def _corrupt_chunk(column: OpenColumn, chunk: int, root: str, what: str) -> StoreCorrupt:
    first = chunk * column.inner
    last = min(first + column.inner, column.length)
    return corrupt(
        f"{root}/{column.file}", f"chunk {chunk} (elements {first:,} to {last:,}): {what}"
    )


def _read_all(source: ByteSource, root: str, column: OpenColumn) -> Array:
    """Every element of a small column with checksums of its own, in one read."""
    edges = column.edges(0, len(column.checked))
    asked = column.file, 0, edges[-1]
    (raw,) = read_exactly(source, [asked], root)
    pieces = [raw[a:b] for a, b in itertools.pairwise(edges)]
    with checking(source, [asked]):
        chunks = [decode_chunk(column, i, chunk, root) for i, chunk in enumerate(pieces)]
    return np.concatenate(chunks)[: column.length]


def read_checked(source: ByteSource, root: str, shard: OpenShard, name: str) -> NDArray[np.uint8]:
    """A whole file of a shard, compared with its sha256 in the commit record."""
    expected = shard.record.files[name]
    asked = f"{shard.name}/{name}", 0, expected.bytes
    (raw,) = read_exactly(source, [asked], root)
    with checking(source, [asked]):
        if hashlib.sha256(raw.data).hexdigest() != expected.sha256:
            raise corrupt(f"{root}/{shard.name}/{name}", "its sha256 is not the one published")
    return raw


def _read_whole(source: ByteSource, root: str, name: str) -> bytes:
    size = source.size(name)
    if size is None:
        raise corrupt(f"{root}/{name}", "the file is missing")
    if size > fmt.MAX_RECORD_BYTES:
        raise corrupt(f"{root}/{name}", f"it has {size:,} bytes")
    (raw,) = read_exactly(source, [(name, 0, size)], root)
    return raw.tobytes()


class ChunkSums:
    """The crc32c of every chunk of bytes that come in pieces.

    Args:
        size: bytes of a chunk; that of a page, if not given.
    """

    def __init__(self, size: int = PAGE_BYTES) -> None:
        self._size, self._sums = size, list[int]()
        self._tail = np.empty(0, np.uint8)  # less than a chunk

    def append(self, raw: NDArray[np.uint8]) -> None:
        """The next bytes."""
        if len(self._tail):
            room = self._size - len(self._tail)
            chunk, raw = np.concatenate([self._tail, raw[:room]]), raw[room:]
            if len(chunk) < self._size:
                self._tail = chunk
                return
            self._sums.append(zarr.crc32c(chunk))
        whole = len(raw) // self._size * self._size
        self._sums += map(zarr.crc32c, raw[:whole].reshape(-1, self._size))
        self._tail = raw[whole:].copy()

    def close(self) -> NDArray[np.uint32]:
        """All checksums; that of a short last chunk, too."""
        if len(self._tail):
            self._sums.append(zarr.crc32c(self._tail))
            self._tail = np.empty(0, np.uint8)
        return np.array(self._sums, np.uint32)
