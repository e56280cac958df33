"""Loaders against the strongest rivals that an expert would write, inside and beyond the cache.

The rivals have what we are faster without: three lines of NumPy (`memmap[rows].astype(int32)`), the
same gather into buffers that are used again, and a torch `DataLoader` with `__getitems__`, which
gathers a batch at once. They have no checks, no boundaries, no ranks and no resume. What all arrays
cost is compared with `memcpy` of as many bytes, 17 a token.

Everybody delivers shuffled rows of the same store; a pass is a multiple of the batches that we plan
together, so planning is paid for. Nobody has a thread: what works ahead would charge its CPU time
to whoever runs then.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Row, Table, against, interleave, rate, want
from benchmarks.loaders import ALL
from benchmarks.stores import documents, publish, write_shard
from tokenloom.arrays import grouped

__all__ = ["SIZES", "run"]

# size → (tokens in the cache, tokens beyond it, batches of a pass, rounds)
SIZES = {
    "tiny": (1 << 19, 1 << 19, 2, 1),
    "small": (1 << 24, 1 << 26, 256, 5),
    "default": (1 << 26, 3 << 28, 512, 11),
    "full": (1 << 26, 3 << 28, 512, 31),
}
MOST = 1 << 27  # tokens of a shard

Batches = Iterator[Any]
Makers = dict[str, Callable[[], Batches]]
Cases = dict[str, Callable[[], object] | Case]


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of rivals."""
    inside, beyond, batches, rounds = SIZES[size]
    _write(folder / "inside", inside, 900)
    _write(folder / "short", inside // 2, 64)
    _write(folder / "beyond", beyond, 900)
    sizes = batches, rounds
    return [
        _tokens(folder / "inside", sizes, command),
        _arrays(folder, sizes, command),
        _shapes(folder / "inside", sizes, command),
        _beyond(folder / "beyond", sizes, command),
    ]


def _write(root: Path, tokens: int, mean: int) -> None:
    root.mkdir()
    shards = -(-tokens // MOST)
    entries = [
        write_shard(
            root, number, documents(tokens // shards, "uint16", mean, seed=number), "uint16"
        )
        for number in range(shards)
    ]
    publish(root, entries, "uint16")


class Rows:
    """The rows of a store as an expert would map them: one memmap for each shard."""

    def __init__(self, root: Path, seq: int) -> None:
        store = tl.open(root)
        shards = store.reader.manifest.shards
        parts = [np.memmap(root / s.name / "input_ids/c/0", np.uint16, "r") for s in shards]
        rows = [part[: s.tokens // seq * seq] for part, s in zip(parts, shards, strict=True)]
        self.parts, self.seq = [one.reshape(-1, seq) for one in rows], seq
        self.edges = np.cumsum([0, *map(len, self.parts)])
        self.order = np.random.default_rng(0).permutation(self.edges[-1])

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


def torch_rows(rows: Rows, batch: int, dtype: str) -> Batches:
    """A torch DataLoader that gathers a batch at once."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Gathered(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(rows.order)

        def __getitems__(self, some: list[int]) -> Any:
            return torch.from_numpy(rows.gather(np.array(some)).astype(dtype))

    while True:
        yield from DataLoader(
            Gathered(), batch, shuffle=True, drop_last=True, collate_fn=lambda made: made
        )


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


def _passes(makers: Makers, batches: int) -> Cases:
    """Each rival for as many batches, after as many that are not timed."""
    cases: Cases = {}
    for name, make in makers.items():
        live = make()
        for _ in range(2 * batches):
            next(live)
        cases[name] = lambda live=live: [None for _ in itertools.islice(live, batches)]  # type: ignore[misc]
    return cases


def _rates(makers: Makers, sizes: tuple[int, int], tokens: int) -> dict[str, Row]:
    batches, rounds = sizes
    timing = interleave(_passes(makers, batches), rounds)
    done = tokens * batches / 1e6
    return {name: rate(name, timing[name], done, "Mtok/CPU-s") for name in makers}


def _tokens(root: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, store, batch, seq = Rows(root, 2048), tl.open(root), 32, 2048
    full, block = store.windows(seq).shuffle(), store.windows(seq).block_shuffle(window_blocks=64)
    limit, numpy, torch = "limit: gather into reused buffers", "three lines of NumPy", "torch"
    makers: Makers = {
        f"{limit}, int32": lambda: reused_rows(rows, batch),
        f"{numpy}, int32": lambda: numpy_rows(rows, batch),
        f"{numpy}, int64": lambda: numpy_rows(rows, batch, "int64"),
        "tokenloom, full shuffle, int32": lambda: ours(full, batch),
        "tokenloom, block shuffle, int32": lambda: ours(block, batch),
        "tokenloom, full shuffle, int64": lambda: ours(full, batch, dtype="int64"),
    }
    there = importlib.util.find_spec("torch") is not None
    if there:
        makers |= {
            f"{torch}, __getitems__, int32": lambda: torch_rows(rows, batch, "int32"),
            f"{torch}, __getitems__, int64": lambda: torch_rows(rows, batch, "int64"),
            "tokenloom, full shuffle, int64": lambda: tensors(ours(full, batch, dtype="int64")),
        }
    found = _rates(makers, sizes, batch * seq)
    goals = {
        "int32": {limit: 0.72, numpy: 1.0, f"{torch}, __getitems__": 2.1},
        "int64": {numpy: 1.0, f"{torch}, __getitems__": 1.6},
    }
    table = []
    for kind, rivals in goals.items():
        those = {name: goal for name, goal in rivals.items() if f"{name}, {kind}" in found}
        table += [found[f"{name}, {kind}"] for name in those]
        for mine in (one for name, one in found.items() if "loom" in name and kind in name):
            table += [_goal(mine, found[f"{name}, {kind}"], goal) for name, goal in those.items()]
    notes = ["int64 comes as torch tensors."] if there else ["torch is not installed."]
    title = "rivals 1: tokens of 32 x 2,048, in the cache"
    return Table(title=title, command=command, rows=table, notes=notes)


def _goal(row: Row, rival: Row, goal: float) -> Row:
    return want(against(row, rival, rival.what), ">=", goal, of_ratio=True)


def _arrays(folder: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, batch, seq = Rows(folder / "inside", 2048), 32, 2048
    store, short = tl.open(folder / "inside"), tl.open(folder / "short")
    makers: Makers = {
        "limit: memcpy of 17 bytes a token": lambda: copied_bytes(rows, batch),
        "windows": lambda: ours(store.windows(seq).shuffle(), batch, ALL),
        "packed, 2 or 3 documents a row": lambda: ours(store.pack(seq).shuffle(), batch, ALL),
        "packed, 32 documents a row": lambda: ours(short.pack(seq).shuffle(), batch, ALL),
        "spliced": lambda: ours(store.splice(seq), batch, ALL),
    }
    found = _rates(makers, sizes, batch * seq)
    limit, *others = found.values()
    goals = (0.9, 0.8, 0.55, 0.75)
    table = [limit, *(_goal(one, limit, goal) for one, goal in zip(others, goals, strict=True))]
    return Table(title="rivals 2: all arrays of 32 x 2,048", command=command, rows=table, notes=[])


def _shapes(root: Path, sizes: tuple[int, int], command: str) -> Table:
    store, table = tl.open(root), []
    for batch, seq in ((8, 512), (256, 1024)):
        rows, made = Rows(root, seq), store.windows(seq).shuffle()
        names = f"three lines of NumPy, {batch} x {seq:,}", f"tokenloom, {batch} x {seq:,}"
        makers: Makers = {
            names[0]: lambda rows=rows, batch=batch: numpy_rows(rows, batch),  # type: ignore[misc]
            names[1]: lambda made=made, batch=batch: ours(made, batch),  # type: ignore[misc]
        }
        found = _rates(makers, sizes, batch * seq)
        table += [found[names[0]], _goal(found[names[1]], found[names[0]], 1.0)]
    return Table(title="rivals 3: other shapes", command=command, rows=table, notes=[])


def _beyond(root: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, batch, seq = Rows(root, 2048), 32, 2048
    batches, rounds = sizes

    def full(**hints: Any) -> tl.Dataset:
        return tl.open(root, cache_bytes=1 << 20, **hints).windows(seq).shuffle()

    def checking(_: Any) -> None:
        """Batches whose pages have not been compared yet."""
        loader = ours(full(), batch, fetch="rows")
        for _ in itertools.islice(loader, batches):
            pass

    makers: Makers = {
        "three lines of NumPy": lambda: numpy_rows(rows, batch),
        "tokenloom, from a map": lambda: ours(full(), batch, fetch="rows"),
        "tokenloom, with pread": lambda: ours(full(map=False), batch, fetch="rows"),
    }
    cases = _passes(makers, batches)
    cases["tokenloom, checking every page"] = Case(prepare=lambda: None, run=checking)
    timing = interleave(cases, rounds)
    done = batch * seq * batches / 1e6
    found = [rate(name, timing[name], done, "Mtok/CPU-s") for name in cases]
    rival, *others = found
    goals = (0.9, 0.45, 0.35)
    table = [rival, *(_goal(one, rival, goal) for one, goal in zip(others, goals, strict=True))]
    return Table(
        title="rivals 4: full shuffle beyond the cache, in the page cache",
        command=command,
        rows=table,
        notes=["The checking pass includes opening the store and mapping its files."],
    )
