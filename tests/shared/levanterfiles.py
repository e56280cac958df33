"""Levanter's caches written by hand, with any dtype, codec, chunk size and layout."""

import json

import google_crc32c
import numpy as np
import zstandard
from numcodecs import Blosc

MISSING = 2**64 - 1
CODECS = {
    "blosc": [{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "blocksize": 0}}],
    "zstd": [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}],
    "zstd+crc32c": [{"name": "zstd"}, {"name": "crc32c"}],
    "none": [],
}


def packed(raw, codec, itemsize):
    """The bytes of a chunk."""
    if codec == "blosc":
        return bytes(Blosc("lz4", 5, Blosc.SHUFFLE, typesize=itemsize).encode(raw))
    if codec == "none":
        return raw
    body = zstandard.ZstdCompressor().compress(raw)
    return body + crc(body) if codec.endswith("crc32c") else body


def crc(raw):
    return google_crc32c.value(raw).to_bytes(4, "little")


def write_flat(folder, values, *, inner=8, outer=32, codec="blosc"):
    """A flat array of room 2^54, whose chunks of zeros are not stored."""
    values = np.asarray(values)
    folder.mkdir(parents=True)
    (folder / "c").mkdir()
    item = values.dtype.itemsize
    for number, low in enumerate(range(0, len(values), outer)):
        index, body = [], b""
        for first in range(low, low + outer, inner):
            chunk = np.zeros(inner, values.dtype)
            part = values[first : first + inner]
            chunk[: len(part)] = part
            if not chunk.any():
                index.append((MISSING, MISSING))
                continue
            one = packed(chunk.tobytes(), codec, item)
            index.append((len(body), len(one)))
            body += one
        if body:
            raw = np.array(index, "<u8").tobytes()
            (folder / "c" / str(number)).write_bytes(body + raw + crc(raw))
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    codecs = json.loads(json.dumps(CODECS[codec]))
    if codec == "blosc":
        codecs[0]["configuration"] |= {"shuffle": "shuffle", "typesize": item}
    settings = {
        "chunk_shape": [inner],
        "codecs": [little, *codecs],
        "index_codecs": [little, {"name": "crc32c"}],
    }
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [1 << 54],
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [outer]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0.0 if values.dtype.kind == "f" else 0,
        "codecs": [{"name": "sharding_indexed", "configuration": settings}],
    }
    (folder / "zarr.json").write_text(json.dumps(document))


def write_leaf(folder, rows, dtype, **sizes):
    """A leaf: the values of all rows, and offsets whose first is the number of rows."""
    lengths = [len(row) for row in rows]
    offsets = np.cumsum([0, *lengths])
    offsets[0] = len(rows)
    flat = np.concatenate([np.empty(0, dtype), *(np.asarray(row, dtype) for row in rows)])
    write_flat(folder / "data", flat, **sizes)
    write_flat(folder / "offsets", offsets.astype(np.int64), **sizes)


def write_cache(root, leaves, *, dtypes=None, shards=1, counts=True, **sizes):
    """A cache of rows by leaf, of one folder or of several."""
    dtypes = dtypes or {}
    names = [f"part-{n:05}-of-{shards:05}" for n in range(shards)] if shards > 1 else [""]
    rows = len(leaves["input_ids"])
    edges = [rows * n // shards for n in range(shards + 1)]
    told, by_shard = {}, {}
    for n, name in enumerate(names):
        folder, part = root / name, slice(edges[n], edges[n + 1])
        for leaf, every in leaves.items():
            write_leaf(folder / leaf, every[part], dtypes.get(leaf, np.int32), **sizes)
        told[name] = edges[n + 1] - edges[n]
        by_shard[name] = {leaf: sum(map(len, every[part])) for leaf, every in leaves.items()}
        if name:
            write_ledger(folder, {name: told[name]}, by_shard[name])
    total = {leaf: sum(map(len, every)) for leaf, every in leaves.items()}
    more = {"layout": "sharded", "field_counts_by_shard": by_shard} if shards > 1 else {}
    write_ledger(root, told, total if counts or shards > 1 else {}, **more)
    return root


def write_ledger(folder, rows, counts, **more):
    ledger = {
        "total_num_rows": sum(rows.values()),
        "shard_rows": rows,
        "is_finished": True,
        "finished_shards": list(rows),
        "field_counts": counts,
        "metadata": {"preprocessor_metadata": {"tokenizer": "toy", "vocab_size": 10}},
        **more,
    }
    (folder / "shard_ledger.json").write_text(json.dumps(ledger))
