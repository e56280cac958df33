"""Stores of any size that are not there: bytes are made up when they are asked for.

Token `a` of the store is ``value(a)``, and the offsets of a shard are spread evenly, so that any
answer can be computed beside the reader without reading. Only the checksums are not those of the
content: such a store is opened with ``verify="never"``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tokenloom.store import format as fmt
from tokenloom.store import zarr
from tokenloom.testing import first_manifest

VOCAB = 65_521  # prime, so that no power of two hides a wrong address
ZERO = "0" * 64


def value(address):
    """The token at an address of the store [N]."""
    return np.asarray(address, np.uint64) * np.uint64(2_654_435_761) % np.uint64(VOCAB)


def offset(document, documents, tokens):
    """The first token of a document in a shard [N]: documents are as even as they can be."""
    return np.asarray(document, np.uint64) * np.uint64(tokens) // np.uint64(max(documents, 1))


class VirtualStore:
    """A manifest with any counts, and a byte source that plays along.

    Args:
        shards: (documents, tokens) of every shard.
        inner: elements per inner chunk.
    """

    def __init__(self, shards, *, inner=fmt.INNER):
        self.shards, self.inner = shards, inner
        self.files = {}  # name → (size, bytes or a function of (first byte, bytes))
        self.entries = []
        first = 0
        for number, (documents, tokens) in enumerate(shards):
            self.entries.append(self._shard(number, documents, tokens, first))
            first += tokens

    def write_manifest(self, root: Path) -> Path:
        manifest = first_manifest(self.entries, vocab_size=VOCAB, inner=self.inner)
        root.mkdir(parents=True, exist_ok=True)
        (root / "manifest-000001.json").write_bytes(fmt.seal(manifest))
        return root

    # -- ByteSource ------------------------------------------------------------------------

    def size(self, name):
        return self.files[name][0] if name in self.files else None

    def read(self, ranges):
        return [self._bytes(*one) for one in ranges]

    def _bytes(self, name, start, count):
        size, content = self.files[name]
        assert 0 <= start <= start + count <= size, (name, start, count, size)
        if isinstance(content, bytes):
            return np.frombuffer(content[start : start + count], np.uint8).copy()
        return content(start, count)

    # -- inside ----------------------------------------------------------------------------

    def _shard(self, number, documents, tokens, first):
        name = fmt.shard_name(number)
        kinds = {
            "input_ids": ("uint16", tokens),
            "offsets": ("uint32", documents + 1),
            "doc_hash": ("uint64", 2 * documents),
        }
        chunks = {
            column: zarr.inner_chunks(length, fmt.inner_of(column, self.inner))
            for column, (_, length) in kinds.items()
        }

        def ids(start, count):
            local = np.arange(start // 2, (start + count) // 2 + 1, dtype=np.uint64)
            known = np.where(local < tokens, value(local + np.uint64(first)), 0)
            return known.astype("<u2").view(np.uint8)[start % 2 :][:count].copy()

        def offsets(start, count):
            local = np.arange(start // 4, (start + count) // 4 + 1, dtype=np.uint64)
            known = np.where(local <= documents, offset(local, documents, tokens), 0)
            return known.astype("<u4").view(np.uint8)[start % 4 :][:count].copy()

        def nothing(start, count):
            return np.zeros(count, np.uint8)

        content = {"input_ids": ids, "offsets": offsets, "doc_hash": nothing}
        columns, records, crc_first, page_first = {}, {}, 0, 0
        for column, (dtype, length) in kinds.items():
            columns[column] = fmt.Column(
                dtype=dtype,
                length=length,
                codec="none",
                crc_first=crc_first,
                page_first=page_first,
            )
            inner = fmt.inner_of(column, self.inner)
            size = chunks[column] * inner * np.dtype(dtype).itemsize
            crc_first, page_first = crc_first + chunks[column], page_first - (-size // 4096)
            about = zarr.metadata(length, dtype, "none", inner)
            self.files[f"{name}/{column}/zarr.json"] = (len(about), about)
            payload = size + zarr.index_bytes(chunks[column])
            self.files[f"{name}/{column}/c/0"] = (payload, content[column])
        for column, length in (("crc32c", crc_first), ("page_crc32c", page_first)):
            columns[column] = fmt.Column(dtype="uint32", length=length, codec="crc32c")
            inner = fmt.inner_of(column, self.inner)
            about = zarr.metadata(length, "uint32", "crc32c", inner)
            self.files[f"{name}/{column}/zarr.json"] = (len(about), about)
            many = zarr.inner_chunks(length, inner)
            size = many * (inner * 4 + 4) + zarr.index_bytes(many)
            made = _checksums(length, inner) if column == "crc32c" else nothing
            self.files[f"{name}/{column}/c/0"] = (size, made)
        for column in columns:
            for part in ("zarr.json", "c/0"):
                size = self.files[f"{name}/{column}/{part}"][0]
                records[f"{column}/{part}"] = fmt.FileRecord(bytes=size, sha256=ZERO)
        record = fmt.ShardRecord(
            number=number,
            documents=documents,
            tokens=tokens,
            inner=self.inner,
            fingerprint=ZERO,
            engine="none",
            columns=columns,
            files=records,
            progress={},
        )
        sealed = fmt.seal(record)
        self.files[f"{name}/shard.json"] = (len(sealed), sealed)
        return fmt.ShardEntry(
            name=name,
            documents=documents,
            tokens=tokens,
            sha256=hashlib.sha256(sealed).hexdigest(),
            files={n: r.bytes for n, r in records.items()} | {"shard.json": len(sealed)},
        )


def _checksums(count, inner, made={}):  # noqa: B006 - the same for every shard of one shape
    """A crc32c column of zeros: right in itself, and about nothing."""
    if (count, inner) not in made:
        chunks = zarr.inner_chunks(count, inner)
        zeros = bytes(inner * 4)
        chunk = zeros + zarr.crc32c(zeros).to_bytes(4, "little")
        index = zarr.encode_index(np.full(chunks, len(chunk), np.int64))
        made[count, inner] = chunk * chunks + index
    return made[count, inner]


def write_sparse(store: VirtualStore, root: Path, places) -> None:
    """Put a virtual store on disk as sparse files, with content around some token addresses."""
    store.write_manifest(root)
    for name, (size, content) in store.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.truncate(size)
            if isinstance(content, bytes):
                file.write(content)
                continue
            item = 2 if "input_ids" in name else 4
            for place in places if item == 2 else [0]:
                start = max(0, (place - 64) * item)
                count = min(128 * item, size - start)
                file.seek(start)
                file.write(content(start, count).tobytes())
