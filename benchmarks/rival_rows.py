"""What an expert would write instead of our loader, and how they take turns with it.

Rows of a store as one memmap for each shard, gathered by three lines of NumPy, into buffers that
are used again, by a torch `DataLoader` with `__getitems__`, or by Grain in one `map`. Each is an
endless iterator of batches; `rates` times passes of equally many batches in turns.
"""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Row, against, interleave, rate, want
from benchmarks.stores import documents, publish, write_shard
from tokenloom.arrays import grouped

__all__ = [
    "Batches",
    "Cases",
    "Makers",
    "Rows",
    "copied_bytes",
    "goal",
    "grain_rows",
    "is_installed",
    "numpy_rows",
    "ours",
    "passes",
    "payloads",
    "rates",
    "reused_rows",
    "tensors",
    "torch_loader",
    "torch_rows",
    "write",
]

MOST = 1 << 27  # tokens of a shard
HANGS = 120  # seconds after which a worker is taken to hang

Batches = Iterator[Any]
Makers = dict[str, Callable[[], Batches]]
Cases = dict[str, Callable[[], object] | Case]


def is_installed(name: str) -> bool:
    """A rival can be imported."""
    return importlib.util.find_spec(name) is not None


def write(root: Path, tokens: int, mean: int) -> None:
    """A store of random documents of this mean length, in as few shards as `MOST` allows."""
    root.mkdir()
    shards = -(-tokens // MOST)
    entries = [
        write_shard(
            root, number, documents(tokens // shards, "uint16", mean, seed=number), "uint16"
        )
        for number in range(shards)
    ]
    publish(root, entries, "uint16")


def payloads(root: Path) -> list[tuple[Path, int]]:
    """The file and the number of tokens of each shard."""
    shards = tl.open(root).reader.manifest.shards
    return [(root / shard.name / "input_ids/c/0", shard.tokens) for shard in shards]


class Rows:
    """The rows of a store as an expert would map them: one memmap for each shard."""

    def __init__(self, files: list[tuple[Path, int]], seq: int) -> None:
        self.files = files
        rows = [np.memmap(path, np.uint16, "r", shape=(n // seq * seq,)) for path, n in files]
        self.parts, self.seq = [one.reshape(-1, seq) for one in rows], seq
        self.edges = np.cumsum([0, *map(len, self.parts)])
        self.order = np.random.default_rng(0).permutation(self.edges[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.files, self.seq)  # a worker maps the files itself

    def gather(self, rows: Any) -> Any:
        """These rows, as stored."""
        if len(self.parts) == 1:
            return self.parts[0][rows]
        out = np.empty((len(rows), self.seq), np.uint16)
        for number, here in grouped(np.searchsorted(self.edges, rows, side="right") - 1):
            out[here] = self.parts[number][rows[here] - self.edges[number]]
        return out

    def requests(self, batch: int) -> Iterator[Any]:
        """Endless batches of row numbers."""
        whole = self.order[: len(self.order) // batch * batch].reshape(-1, batch)
        return itertools.cycle(whole)


def numpy_rows(rows: Rows, batch: int, dtype: str = "int32") -> Batches:
    """Three lines of NumPy."""
    for some in rows.requests(batch):
        yield rows.gather(some).astype(dtype)


def reused_rows(rows: Rows, batch: int) -> Batches:
    """The limit: a gather into buffers that are used again."""
    narrow = np.empty((batch, rows.seq), np.uint16)
    wide = np.empty((batch, rows.seq), np.int32)
    for some in rows.requests(batch):
        np.take(rows.parts[0], some, axis=0, out=narrow, mode="clip")
        np.copyto(wide, narrow)
        yield wide


def copied_bytes(rows: Rows, batch: int) -> Batches:
    """The limit of all arrays: memcpy of the 17 bytes that they take a token."""
    flat = rows.parts[0].reshape(-1).view(np.uint8)
    size = min(17 * batch * rows.seq, len(flat))
    out = np.empty(size, np.uint8)
    for place in itertools.cycle(range(0, len(flat) - size + 1, size)):
        np.copyto(out, flat[place : place + size])
        yield out


class Gathered:
    """A dataset for torch that gathers a batch at once."""

    def __init__(self, rows: Rows, dtype: str) -> None:
        self.rows, self.dtype = rows, dtype

    def __len__(self) -> int:
        return len(self.rows.order)

    def __getitems__(self, some: list[int]) -> Any:
        import torch

        return torch.from_numpy(self.rows.gather(np.array(some)).astype(self.dtype))


def as_made(batch: Any) -> Any:
    """The batch itself: there is nothing to collate."""
    return batch


def torch_loader(rows: Rows, batch: int, dtype: str, workers: int = 0) -> Any:
    """A torch DataLoader over `Gathered`.

    Workers come from a server without threads: a fork of this process may hang.
    """
    from torch.utils.data import DataLoader

    multiprocessing.set_forkserver_preload(["torch", "benchmarks.rival_rows"])
    return DataLoader(
        Gathered(rows, dtype),  # type: ignore[arg-type]
        batch,
        shuffle=True,
        drop_last=True,
        collate_fn=as_made,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="forkserver" if workers else None,
        timeout=HANGS if workers else 0,
    )


def torch_rows(rows: Rows, batch: int, dtype: str, workers: int = 0) -> Batches:
    """Its batches, one epoch after another."""
    loader = torch_loader(rows, batch, dtype, workers)
    while True:
        yield from loader


def grain_rows(rows: Rows, batch: int, dtype: str) -> Batches:
    """Grain at its best: batches of a known order, each gathered in one map, and no thread."""
    import grain

    whole = rows.order[: len(rows.order) // batch * batch].reshape(-1, batch)
    numbers = grain.MapDataset.range(len(whole)).repeat()
    made = numbers.map(lambda number: rows.gather(whole[number]).astype(dtype))
    return iter(made.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))


def ours(
    made: tl.Dataset, batch: int, fields: tuple[str, ...] = ("tokens",), **options: Any
) -> Batches:
    """Our loader."""
    return iter(tl.Loader(made.seed(7).epochs(None), batch, fields=fields, **options))


def tensors(batches: Batches) -> Batches:
    """The tokens of our batches as tensors."""
    import torch

    for batch in batches:
        yield torch.from_numpy(batch.tokens)


def passes(makers: Makers, batches: int) -> Cases:
    """Each rival for as many batches, after as many that are not timed."""
    cases: Cases = {}
    for name, make in makers.items():
        live = make()
        for _ in range(2 * batches):
            next(live)
        cases[name] = lambda live=live: [None for _ in itertools.islice(live, batches)]  # type: ignore[misc]
    return cases


def rates(makers: Makers, sizes: tuple[int, int], tokens: int) -> dict[str, Row]:
    """Tokens per CPU-second of each, of `tokens` a batch; sizes are (batches, rounds)."""
    batches, rounds = sizes
    timing = interleave(passes(makers, batches), rounds)
    done = tokens * batches / 1e6
    return {name: rate(name, timing[name], done, "Mtok/CPU-s") for name in makers}


def goal(row: Row, rival: Row, bound: float, sign: str = ">=") -> Row:
    """The row with its ratio to a rival's, and what that ratio is to be."""
    return want(against(row, rival, rival.what), sign, bound, of_ratio=True)
