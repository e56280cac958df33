"""Stores of any size that are not there: bytes are made up when they are asked for.

Token `a` of the store is ``value(a)``, and the offsets of a shard are spread evenly, so that any
answer can be computed beside the reader without reading. Only the checksums are not those of the
content: such a store is opened with ``verify="never"``. The records are written from
docs/store-format.md alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import google_crc32c
import numpy as np

VOCAB = 65_521  # prime, so that no power of two hides a wrong address
ZERO = "0" * 64
HEAD = {"format": "tokenloom-store", "version": 2}
GROUP_DOCUMENTS, PAGE_BYTES = 65_536, 4096


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

    def __init__(self, shards, *, inner=32_768):
        self.shards, self.inner = shards, inner
        self.files = {}  # name → (size, bytes or a function of (first byte, bytes))
        self.entries = []
        first = 0
        for number, (documents, tokens) in enumerate(shards):
            self.entries.append(self._shard(number, documents, tokens, first))
            first += tokens

    def write_manifest(self, root: Path) -> Path:
        documents, tokens = (sum(column) for column in zip(*self.shards, strict=True))
        groups = [ZERO] * -(-documents // GROUP_DOCUMENTS)
        content = b"".join(map(bytes.fromhex, groups)) + documents.to_bytes(8, "little")
        counts = {"documents": documents, "tokens": tokens}
        part = {"manifest": 1, "shards": len(self.shards), "skipped": 0, "filtered": 0}
        manifest = {
            **HEAD,
            **counts,
            "number": 1,
            "parent": None,
            "dtype": "uint16",
            "vocab_size": VOCAB,
            "chunk_tokens": 262_144,
            "inner": self.inner,
            "columns": {},
            "tokenizer": None,
            "digest": hashlib.sha256(content).hexdigest(),
            "groups": groups,
            "parts": [{**counts, **part, "fingerprint": ZERO, "settings": {}}],
            "files": {},
            "producer": {},
            "shards": self.entries,
        }
        root.mkdir(parents=True, exist_ok=True)
        (root / "manifest-000001.json").write_bytes(sealed(manifest))
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
        name = f"shard-{number:05d}"

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

        eighth = max(1, self.inner // 8)  # elements of a chunk of what is not read by token
        columns, crcs, pages = {}, 0, 0
        for column, dtype, length, inner, content in (
            ("input_ids", "uint16", tokens, self.inner, ids),
            ("offsets", "uint32", documents + 1, self.inner, offsets),
            ("doc_hash", "uint64", 2 * documents, eighth, nothing),
        ):
            chunks = max(1, -(-length // inner))
            size = chunks * inner * np.dtype(dtype).itemsize
            columns[column] = described(dtype, length, "none", crcs, pages)
            crcs, pages = crcs + chunks, pages - (-size // PAGE_BYTES)
            self._add(f"{name}/{column}", columns[column], inner, size + 16 * chunks + 4, content)
        for column, length in (("crc32c", crcs), ("page_crc32c", pages)):
            columns[column] = described("uint32", length, "crc32c", -1, -1)
            chunks = max(1, -(-length // eighth))
            size = chunks * (4 * eighth + 4) + 16 * chunks + 4
            made = checksums(length, eighth) if column == "crc32c" else nothing
            self._add(f"{name}/{column}", columns[column], eighth, size, made)
        parts = [f"{column}/{part}" for column in columns for part in ("zarr.json", "c/0")]
        files = {part: self.files[f"{name}/{part}"][0] for part in parts}
        record = {
            **HEAD,
            "number": number,
            "documents": documents,
            "tokens": tokens,
            "inner": self.inner,
            "fingerprint": ZERO,
            "engine": "none",
            "columns": columns,
            "files": {part: {"bytes": size, "sha256": ZERO} for part, size in files.items()},
            "progress": {},
            "snapshot": 0,
        }
        raw = sealed(record)
        self.files[f"{name}/shard.json"] = (len(raw), raw)
        return {
            "name": name,
            "documents": documents,
            "tokens": tokens,
            "sha256": hashlib.sha256(raw).hexdigest(),
            "files": files | {"shard.json": len(raw)},
        }

    def _add(self, place, column, inner, size, content):
        about = zarr_metadata(column, inner)
        self.files[f"{place}/zarr.json"] = (len(about), about)
        self.files[f"{place}/c/0"] = (size, content)


# -- the format ----------------------------------------------------------------------------


def sealed(record):
    """A record as JSON whose last key is the sha256 of everything before it."""
    text = json.dumps(record, sort_keys=True, indent=1, ensure_ascii=False)
    body = text.encode().removesuffix(b"\n}")
    return body + b',\n "sha256": "%s"\n}\n' % hashlib.sha256(body).hexdigest().encode()


def described(dtype, length, codec, crc_first, page_first):
    return {
        "dtype": dtype,
        "length": length,
        "codec": codec,
        "crc_first": crc_first,
        "page_first": page_first,
    }


def zarr_metadata(column, inner):
    """The zarr.json of a column."""
    length, little = column["length"], {"name": "bytes", "configuration": {"endian": "little"}}
    crc = {"name": "crc32c"}
    sharding = {
        "chunk_shape": [inner],
        "codecs": [little] if column["codec"] == "none" else [little, crc],
        "index_codecs": [little, crc],
        "index_location": "end",
    }
    grid = {"chunk_shape": [max(1, -(-length // inner)) * inner]}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": column["dtype"],
        "chunk_grid": {"name": "regular", "configuration": grid},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": {},
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


@functools.cache
def checksums(count, inner):
    """A column of checksums that are zeros: right in itself, and about nothing."""
    chunks, zeros = max(1, -(-count // inner)), bytes(inner * 4)
    chunk = zeros + google_crc32c.value(zeros).to_bytes(4, "little")
    index = np.empty((chunks, 2), "<u8")
    index[:, 0], index[:, 1] = np.arange(chunks) * len(chunk), len(chunk)
    raw = index.tobytes()
    return chunk * chunks + raw + google_crc32c.value(raw).to_bytes(4, "little")


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
