"""One column of a shard is one small, valid Zarr v3 array; this is its geometry.

A column is a single Zarr shard file: inner chunks of `inner` elements stored in order without
gaps, then an index of (offset, bytes) pairs, then the crc32c of that index::

    | chunk 0 | chunk 1 | ... | chunk n-1 (zero padded) | n x (u64 offset, u64 bytes) | u32 crc |

With codec "none" the file therefore starts with the raw little-endian array: a range of tokens
is a range of bytes, and zarr-python and TensorStore open the same file unchanged.

Codecs: "none" (tokens, offsets, and what is derived from them; checked by the crc32c columns beside
them), "crc32c" (those checksums themselves: 4 bytes after each chunk), "zstd" (other per-token
columns: zstd, then crc32c).
"""

from __future__ import annotations

import json
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

INDEX_ENTRY = 16  # bytes: u64 offset, u64 length

CRC = 4  # bytes

CODECS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "crc32c": [{"name": "crc32c"}],
    "zstd": [
        {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
        {"name": "crc32c"},
    ],
}


def crc32c(data: NDArray[np.uint8] | bytes) -> int:
    """The crc32c of a contiguous buffer (10 GB per CPU-second, `python -m benchmarks write`)."""
    return int(google_crc32c.value(data))


def inner_chunks(length: int, inner: int) -> int:
    """How many inner chunks a column of `length` elements has; an empty column has one.

    >>> inner_chunks(0, 8), inner_chunks(8, 8), inner_chunks(9, 8)
    (1, 1, 2)
    """
    return max(1, -(-length // inner))


def index_bytes(chunks: int) -> int:
    """Bytes of the index after `chunks` inner chunks."""
    return chunks * INDEX_ENTRY + CRC


def metadata(length: int, dtype: str, codec: str, inner: int) -> bytes:
    """The zarr.json of a column of `length` elements."""
    array_bytes: dict[str, Any] = {"name": "bytes"}
    if np.dtype(dtype).itemsize > 1:
        array_bytes["configuration"] = {"endian": "little"}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [inner],
            "codecs": [array_bytes, *CODECS[codec]],
            "index_codecs": [little, {"name": "crc32c"}],
            "index_location": "end",
        },
    }
    grid = {"chunk_shape": [inner_chunks(length, inner) * inner]}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": grid},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False if dtype == "bool" else 0.0 if dtype.startswith("float") else 0,
        "codecs": [sharding],
        "attributes": {},
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def encode_index(sizes: NDArray[np.int64]) -> bytes:
    """The index for chunks of these sizes in bytes, stored in order without gaps.

    >>> len(encode_index(np.array([10, 20])))
    36
    """
    entries = np.empty((len(sizes), 2), "<u8")
    entries[:, 1] = sizes
    entries[:, 0] = np.cumsum(sizes) - sizes
    raw = entries.tobytes()
    return raw + crc32c(raw).to_bytes(CRC, "little")


def decode_index(raw: bytes, payload: int) -> NDArray[np.int64] | None:
    """Chunk starts [chunks + 1] in bytes, or None when the index cannot be right.

    Right means: its crc32c agrees, and the chunks follow each other without gaps from 0 to
    `payload` bytes. That is all a hostile index could lie about.
    """
    body, tail = raw[:-CRC], raw[-CRC:]
    if crc32c(body) != int.from_bytes(tail, "little"):
        return None
    entries = np.frombuffer(body, "<u8").reshape(-1, 2)  # [chunk, (offset, bytes)]
    if (entries > payload).any():
        return None
    starts = np.zeros(len(entries) + 1, np.int64)
    np.cumsum(entries[:, 1].astype(np.int64), out=starts[1:])
    if starts[-1] != payload or (starts[:-1] != entries[:, 0].astype(np.int64)).any():
        return None
    return starts
