"""Export as a Levanter cache (consolidated TreeCache), as its own writer lays it out.

One idea: a leaf of the cache is two flat zarr v3 arrays, `data` and `offsets`, and each is streamed
chunk by chunk into files that are written once. Levanter itself rewrites a file for every batch
that it appends.

::

    shard_ledger.json
    input_ids/data/{zarr.json,c/0,c/1,…}      int32
    input_ids/offsets/{zarr.json,c/0,…}       int64: the number of rows, then where each row ends
    assistant_masks/…                         the column loss_mask, under Levanter's name for it
    loss_weights/…                            moved by one token: see below

A loss weight of ours is that of the prediction *of* a token, Levanter's that of the prediction
*after* it. So the weights move one token towards the start of the line, and the weight of the very
first token, which nothing predicts, has no place.

A file has 512 chunks of 262,144 elements, each blosc (lz4, level 5, byte shuffle) as Levanter's
reader is told to expect, then 512 pairs (offset, bytes) and their crc32c.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.store import Store
from tokenloom.errors import MissingExtra
from tokenloom.exchange.folder import Folder
from tokenloom.exchange.holds import Holding, Loss, values_of
from tokenloom.progress import Progress
from tokenloom.store.zarr import crc32c

LEAVES = {"loss_mask": "assistant_masks"}  # ours → Levanter's

MOVED = ("loss_weights",)  # by one token

INNER = 262_144  # elements of a chunk

CHUNKS = 512  # of a file

SHAPE = 1 << 54  # what Levanter declares, whatever there is

MISSING = (1 << 64) - 1

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def write_levanter(kept: Holding, folder: Folder, bar: Progress) -> None:
    """Write the cache; the ledger comes last."""
    blosc = _blosc()
    leaves = {"input_ids": "int32"} | {
        name: "int32" if name in LEAVES else dtype for name, dtype in kept.columns.items()
    }
    for name, dtype in leaves.items():
        leaf = LEAVES.get(name, name)
        data = _Array(folder, f"{leaf}/data", dtype, blosc)
        ends = _Array(folder, f"{leaf}/offsets", "int64", blosc)
        ends.append(np.array([kept.documents]))
        base = 0
        for portion in kept.portions():
            for values in values_of(kept.store.reader, portion, name):
                data.append(values[int(name in MOVED and not base) :])
            ends.append(base + np.cumsum(portion.lengths))
            base += int(portion.lengths.sum())
            bar.advance(portion.stop - portion.start)
        data.append(np.zeros(int(name in MOVED and base > 0)))
        data.close()
        ends.close()
    with folder.file("shard_ledger.json") as out:
        out.write(json.dumps(_ledger(kept)).encode())
    with folder.file(".success"):
        pass


def lost_weight(store: Store) -> list[Loss]:
    """The weight of the first token of a store, unless it is 0."""
    if "loss_weights" not in store.columns or not store.num_tokens:
        return []
    document = int(np.flatnonzero(store.lengths)[0])
    first = store.tokens(0, 1, "loss_weights")
    return [Loss("the loss weight of the first token", document, 1)] if first.any() else []


def _ledger(kept: Holding) -> dict[str, Any]:
    names = [LEAVES.get(name, name) for name in ("input_ids", *kept.columns)]
    tokenizer = kept.store.tokenizer
    told = {"vocab_size": kept.store.vocab_size}
    return {
        "total_num_rows": kept.documents,
        "shard_rows": {"exported": kept.documents},
        "is_finished": True,
        "finished_shards": ["exported"],
        "field_counts": dict.fromkeys(names, kept.tokens),
        "metadata": {
            "preprocessor_metadata": told | ({"tokenizer": tokenizer.name} if tokenizer else {})
        },
    }


class _Array:
    """A flat zarr v3 array of unknown length, streamed; memory is one chunk."""

    def __init__(self, folder: Folder, name: str, dtype: str, blosc: Any) -> None:
        self._folder, self._name, self._dtype = folder, name, np.dtype(dtype).newbyteorder("<")
        self._codec = blosc.Blosc(cname="lz4", clevel=5, shuffle=blosc.Blosc.SHUFFLE)
        self._tail = np.empty(0, self._dtype)
        self._file: Any = None
        self._entries: list[tuple[int, int]] = []
        self._files = 0

    def append(self, values: NDArray[Any]) -> None:
        """The next elements."""
        values = np.concatenate([self._tail, values.astype(self._dtype, copy=False)])
        whole = len(values) // INNER * INNER
        for chunk in values[:whole].reshape(-1, INNER):  # [chunk, element]
            self._write(chunk)
        self._tail = values[whole:].copy()

    def close(self) -> None:
        """Write what is left, and the metadata."""
        if len(self._tail):
            self._write(
                np.concatenate([self._tail, np.zeros(INNER - len(self._tail), self._dtype)])
            )
        if self._file is not None:
            self._end_file()
        with self._folder.file(f"{self._name}/zarr.json") as out:
            out.write(json.dumps(self._metadata()).encode())

    def _write(self, chunk: NDArray[Any]) -> None:
        if self._file is None:
            self._file = self._folder.file(f"{self._name}/c/{self._files}")
            self._out = self._file.__enter__()
        start = self._out.size
        # a chunk of zeros is not stored: they are the fill value
        if chunk.any():
            self._out.write(self._codec.encode(np.ascontiguousarray(chunk)))
        self._entries.append((start, self._out.size - start) if chunk.any() else (MISSING, MISSING))
        if len(self._entries) == CHUNKS:
            self._end_file()

    def _end_file(self) -> None:
        absent = [(MISSING, MISSING)] * (CHUNKS - len(self._entries))
        raw = np.array(self._entries + absent, "<u8").tobytes()
        self._out.write(raw + crc32c(raw).to_bytes(4, "little"))
        self._file.__exit__(None, None, None)
        self._file, self._entries, self._files = None, [], self._files + 1

    def _metadata(self) -> dict[str, Any]:
        item = self._dtype.itemsize
        blosc = {
            "cname": "lz4",
            "clevel": 5,
            "shuffle": "shuffle",
            "typesize": item,
            "blocksize": 0,
        }
        inner = {
            "chunk_shape": [INNER],
            "codecs": [
                LITTLE if item > 1 else {"name": "bytes"},
                {"name": "blosc", "configuration": blosc},
            ],
            "index_codecs": [LITTLE, {"name": "crc32c"}],
        }
        kind = self._dtype.kind
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [SHAPE],
            "data_type": self._dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [INNER * CHUNKS]}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": False if kind == "b" else 0.0 if kind == "f" else 0,
            "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        }


def _blosc() -> Any:
    try:
        return importlib.import_module("numcodecs.blosc")
    except ImportError:
        raise MissingExtra("export to levanter", "numcodecs", "levanter") from None
