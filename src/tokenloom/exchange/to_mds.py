"""Export as MDS, the shards of MosaicML's streaming library, uncompressed.

One idea: a sample is its columns in order of name, each an array that says its own length, and a
shard is samples after a table of where each starts::

    u32 samples, u32 start of each sample and the end, the columns as JSON, the samples
    sample: u32 bytes of each column, then the columns
    array:  u8 (1 << 2 | width), length (1 << width bytes), values

Columns are `input_ids` (uint16 or uint32), the further per-token columns, and `metadata` (JSON) if
a document has any. Memory is one shard (64 MiB), or the longest document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.exchange.folder import Folder
from tokenloom.exchange.holds import Holding, Portion, values_of
from tokenloom.exchange.to_arrays import about
from tokenloom.progress import Progress

SHARD_BYTES = 1 << 26  # what its own writer takes

WIDTHS = (1 << 8, 1 << 16, 1 << 32)  # lengths below these take 1, 2, 4 bytes


def write_mds(kept: Holding, folder: Folder, bar: Progress) -> None:
    """Write `shard.00000.mds` and so on; `index.json` comes last."""
    encodings = _encodings(kept)
    shards: list[dict[str, Any]] = []
    held: list[bytes] = []
    size = 0
    for portion in kept.portions():
        for sample in _samples(kept, encodings, portion):
            if held and size + len(sample) > SHARD_BYTES:
                shards.append(_write_shard(folder, len(shards), encodings, held))
                held, size = [], 0
            held.append(sample)
            size += len(sample)
        bar.advance(portion.stop - portion.start)
    if held:
        shards.append(_write_shard(folder, len(shards), encodings, held))
    with folder.file("export.json") as out:
        out.write(json.dumps(about(kept, ["index.json"]), indent=1).encode() + b"\n")
    with folder.file("index.json") as out:
        out.write(json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode())


def _encodings(kept: Holding) -> dict[str, str]:
    """The columns of a sample, in order of name."""
    dtypes = {"input_ids": kept.store.dtype.name, **kept.columns}
    found = {name: f"ndarray:{_stored(dtype)}" for name, dtype in dtypes.items()}
    if any(row for one in kept.portions() for row in kept.metadata(one)):
        found["metadata"] = "json"
    return dict(sorted(found.items()))


def _stored(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


def _samples(kept: Holding, encodings: dict[str, str], portion: Portion) -> Iterator[bytes]:
    """The documents of a portion; Python for each, since each has a head of its own."""
    columns: dict[str, list[bytes]] = {}
    for name, encoding in encodings.items():
        if encoding == "json":
            rows = kept.metadata(portion) or [{}] * len(portion.numbers)
            columns[name] = [json.dumps(row).encode() for row in rows]
            continue
        parts = values_of(kept.store.reader, portion, name)
        dtype = np.dtype(encoding.partition(":")[2]).newbyteorder("<")
        flat = np.concatenate([np.empty(0, dtype), *parts]).astype(dtype)
        columns[name] = _arrays(flat, portion.lengths)
    for cells in zip(*columns.values(), strict=True):
        head = np.array([len(cell) for cell in cells], "<u4").tobytes()
        yield b"".join([head, *cells])


def _arrays(flat: NDArray[Any], lengths: NDArray[np.int64]) -> list[bytes]:
    """Each document's values with the head that says how many there are."""
    ends = np.cumsum(lengths)
    widths = np.searchsorted(WIDTHS, lengths, side="right")
    heads = [
        bytes([1 << 2 | width]) + length.to_bytes(1 << width, "little")
        for width, length in zip(widths.tolist(), lengths.tolist(), strict=True)
    ]
    places = zip(heads, (ends - lengths).tolist(), ends.tolist(), strict=True)
    return [head + flat[start:stop].tobytes() for head, start, stop in places]


def _write_shard(
    folder: Folder, number: int, encodings: dict[str, str], samples: list[bytes]
) -> dict[str, Any]:
    """One shard, and what the index says of it."""
    config: dict[str, Any] = {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": SHARD_BYTES,
        "column_names": list(encodings),
        "column_encodings": list(encodings.values()),
        "column_sizes": [None] * len(encodings),
    }
    written = json.dumps(config, sort_keys=True).encode()
    sizes = np.array([0, *map(len, samples)], np.int64)
    starts = np.cumsum(sizes) + 4 + 4 * len(sizes) + len(written)
    name = f"shard.{number:05d}.mds"
    with folder.file(name) as out:
        out.write(np.uint32(len(samples)).tobytes() + starts.astype("<u4").tobytes() + written)
        for sample in samples:
            out.write(sample)
    raw = {"basename": name, "bytes": out.size, "hashes": {}}
    return {**config, "raw_data": raw, "samples": len(samples), "zip_data": None}
