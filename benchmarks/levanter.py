"""Levanter's caches: read in place here, and by TensorStore in the pattern of Levanter.

One idea: both read the same windows of the same cache in the same order, in requests of 16 batches
of 128, as Levanter's loader asks for them. There (`get_flat_field_batch`), every window is one read
inside a `ts.Batch`, with a shared pool of decoded chunks, and all are gathered by asyncio. The
order is given to it, so that only its reads are timed; ours works out the order, reads, and makes
one array for each batch. The last peer is TensorStore as fast as we could make it read windows:
reads that join the batch, waited for without asyncio.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tokenloom as tl
from benchmarks.clock import Case, Row, Table, against, interleave, rate, want

__all__ = ["SIZES", "run"]

Array = NDArray[Any]

SEQ, BATCH, TOGETHER = 2048, 128, 16  # tokens, windows of a batch, batches of a request

POOL = 1_000_000_000  # bytes, Levanter's default

INNER, OUTER, VOCAB = 1 << 18, 1 << 27, 32_000

GOAL = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Windows of the cache, and rounds."""

    windows: int
    rounds: int


SIZES = {
    "tiny": Size(windows=1 << 8, rounds=1),
    "small": Size(windows=1 << 12, rounds=5),
    "default": Size(windows=1 << 14, rounds=9),
    "full": Size(windows=1 << 16, rounds=9),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """How fast windows of a cache are read."""
    how = SIZES[size]
    root = folder / "cache"
    write_cache(root, how.windows)
    store = tl.open(root)
    rows = []
    for name, dataset in _orders(store).items():
        order = dataset.run.locate(np.arange(how.windows))[1]
        rows += _compared(name, root, dataset, order, how)
    cache = f"{how.windows:,} windows of {SEQ:,} ids (int32, lz4) in chunks of {INNER:,}"
    theirs = f"a read for each window, {BATCH * TOGETHER:,} together, a pool of {POOL / 1e9:g} GB"
    notes = [
        f"{cache}, which all decode once and keep.",
        f"TensorStore: {theirs}; it is given the order. Ours: order, reads, and batches.",
    ]
    title = "levanter: windows of a cache, in place"
    return [Table(title=title, command=command, rows=rows, notes=notes)]


def _orders(store: tl.Store) -> dict[str, tl.Dataset]:
    windows = store.windows(SEQ)
    blocks = windows.block_shuffle(io_block_size=128, window_blocks=8, perm_type="levanter")
    return {
        "as stored": windows,
        "blocks": blocks.seed(1),
        "full": windows.shuffle(perm_type="levanter").seed(1),
    }


def _compared(name: str, root: Path, dataset: tl.Dataset, order: Array, how: Size) -> list[Row]:
    gathered, waited = _gathered(root), _waited(root)
    first = order[:BATCH].tolist()
    for reads in (gathered, waited):
        assert np.array_equal(np.stack(reads(first)), dataset.batch(range(BATCH)).tokens)
    cases: dict[str, Callable[[], object] | Case] = {
        "ours": _our_pass(dataset, how.windows),
        "TensorStore as in Levanter": _their_pass(gathered, order),
        "TensorStore without asyncio": _their_pass(waited, order),
    }
    found = interleave(cases, how.rounds)
    done = how.windows * SEQ / 1e6
    ours, peer, fast = (
        rate(f"{name}: {case}", timing, done, "Mtok/s") for case, timing in found.items()
    )
    return [want(against(ours, peer, "Levanter's"), ">=", GOAL, of_ratio=True), peer, fast]


def _our_pass(dataset: tl.Dataset, windows: int) -> Callable[[], object]:
    renderer = dataset.renderer(by_blocks=False)

    def read() -> int:
        total = 0
        for first in range(0, windows, BATCH):
            total += renderer.batch(np.arange(first, min(first + BATCH, windows))).tokens.size
        return total

    return read


def _their_pass(reads: Reads, order: Array) -> Callable[[], object]:
    def read() -> int:
        total = 0
        for first in range(0, len(order), BATCH * TOGETHER):
            total += sum(map(len, reads(order[first : first + BATCH * TOGETHER].tolist())))
        return total

    return read


Reads = Callable[[list[int]], list[Array]]


def _opened(root: Path) -> Any:
    import tensorstore as ts

    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(root / "input_ids/data")},
        "recheck_cached_data": False,
    }
    context = ts.Context({"cache_pool": {"total_bytes_limit": POOL}})
    return ts.open(spec, context=context, open=True).result()


def _gathered(root: Path) -> Reads:
    """Reads windows by number, each as Levanter does it."""
    import tensorstore as ts

    data = _opened(root)

    async def gather(windows: list[int]) -> list[Array]:
        with ts.Batch():
            futures = [data[w * SEQ : w * SEQ + SEQ].read() for w in windows]
        return await asyncio.gather(*futures)

    return lambda windows: asyncio.run(gather(windows))


def _waited(root: Path) -> Reads:
    """The same with reads that join the batch, and without asyncio."""
    import tensorstore as ts

    data = _opened(root)

    def reads(windows: list[int]) -> list[Array]:
        with ts.Batch() as batch:
            futures = [data[w * SEQ : w * SEQ + SEQ].read(batch=batch) for w in windows]
        return [future.result() for future in futures]

    return reads


def write_cache(root: Path, windows: int) -> None:
    """A cache as Levanter's writer leaves it, of documents of 1,000 uniform ids."""
    import tensorstore as ts

    tokens = windows * SEQ
    rng = np.random.Generator(np.random.PCG64(0))
    ends = np.append(np.arange(1_000, tokens, 1_000), tokens)
    arrays = {
        "data": rng.integers(0, VOCAB, tokens, np.int32),
        "offsets": np.append(len(ends), ends).astype(np.int64),
    }
    for name, values in arrays.items():
        spec = _spec(root / "input_ids" / name, values.dtype.name)
        ts.open(spec, create=True).result()[: len(values)].write(values).result()
    rows = len(ends)
    ledger = {"total_num_rows": rows, "shard_rows": {"": rows}, "is_finished": True}
    told = {**ledger, "finished_shards": [""], "field_counts": {"input_ids": tokens}}
    (root / "shard_ledger.json").write_text(json.dumps(told), encoding="utf-8")


def _spec(folder: Path, dtype: str) -> dict[str, Any]:
    blosc = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    inside = {
        "chunk_shape": [INNER],
        "codecs": [little, {"name": "blosc", "configuration": blosc}],
    }
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder)},
        "metadata": {
            "shape": [1 << 54],
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [OUTER]}},
            "codecs": [{"name": "sharding_indexed", "configuration": inside}],
        },
    }
