"""Orders and datasets: the cost of an index, of a row, and of a distant step.

Indices are mapped 8,192 at a time, as in the loader, from a different part of 10^9 rows in every
pass. Rows are read in requests of 2,048, as in the published benchmark; everything is in the page
cache and checked. Distant steps are read by a fresh loader without a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Row, Table, cost, interleave, rate, want
from benchmarks.stores import virtual_store, write_store
from tokenloom import order

__all__ = ["SIZES", "run"]

N = 10**9
CHUNK = 8192
REQUEST, SEQ_LEN = 2048, 2048

# size → (indices of a pass, rounds, tokens of the store, shards of the large store)
SIZES = {
    "tiny": (CHUNK, 1, 1 << 21, 3),
    "small": (CHUNK * 4, 8, 1 << 24, 16),
    "default": (CHUNK * 8, 24, 1 << 25, 256),
    "full": (CHUNK * 16, 64, 1 << 26, 763),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of orders and of datasets."""
    indices, rounds, tokens, shards = SIZES[size]
    write_store(folder / "store", tokens)
    virtual_store(folder / "large", shards, 8192)
    return [
        _mapping(indices, rounds, command),
        _rows(folder / "store", max(1, rounds // 4), command),
        _far(folder, max(1, rounds // 4), command),
    ]


def _mapping(count: int, rounds: int, command: str) -> Table:
    orders = {
        "full": order.full(N, seed=1),
        "full, linear": order.full(N, seed=1, perm_type="linear"),
        "full, levanter": order.full(N, seed=1, perm_type="levanter"),
        "era of 1,024": order.era(N, 1024, seed=1),
        "block 128 x 8": order.block(N, 128, 8, seed=1),
        "block 128 x 512": order.block(N, 128, 512, seed=1),
        "block 128 x 8, 64 lanes": order.block(N, 128, 8, lanes=64, seed=1),
    }
    goals = {"full", "block 128 x 8", "block 128 x 512"}
    turns = itertools.count()

    def forward(one: order.Order) -> Callable[[], None]:
        def ask() -> None:
            begin = next(turns) * count % (N - count)
            for start in range(begin, begin + count, CHUNK):
                one.map(np.arange(start, start + CHUNK))

        return ask

    def backward(one: order.Order) -> Callable[[], None]:
        def ask() -> None:
            begin = next(turns) * count % (N - count)
            for start in range(begin, begin + count, CHUNK):
                one.inverse(np.arange(start, start + CHUNK))

        return ask

    def cold(build: Callable[[int], order.Order]) -> Case:
        seeds = itertools.count(100)
        return Case(prepare=lambda: build(next(seeds)), run=lambda one: one.map([N // 3]))

    cases: dict[str, Callable[[], object] | Case] = {n: forward(one) for n, one in orders.items()}
    cases |= {f"{name}, inverse": backward(orders[name]) for name in ("full", "block 128 x 512")}
    cases["one cold index, full"] = cold(lambda seed: order.full(N, seed=seed))
    cases["one cold index, block 128 x 512"] = cold(lambda s: order.block(N, 128, 512, seed=s))
    timing = interleave(cases, rounds)
    table: list[Row] = []
    for name, took in timing.items():
        if name.startswith("one cold"):
            table.append(want(cost(name, took, 1, "ms"), "<=", 0.5))
            continue
        row = cost(name, took, count, "ns")
        table.append(want(row, "<=", 70) if name in goals else row)
    notes = [f"n = {N:,}; {rounds} rounds of {count:,} indices in calls of {CHUNK:,}."]
    return Table(title="order 1: one index", command=command, rows=table, notes=notes)


def _rows(root: Path, rounds: int, command: str) -> Table:
    store = tl.open(root)
    for start in range(0, store.num_tokens, store.chunk_tokens):  # every chunk is checked
        store.tokens(start, min(start + store.chunk_tokens, store.num_tokens))
    base = store.windows(SEQ_LEN).seed(3)
    ways = {
        "as stored": base,
        "shuffle": base.shuffle(),
        "era_shuffle(1024)": base.era_shuffle(1024),
        "block_shuffle, 8 blocks": base.block_shuffle(window_blocks=8),
    }
    turns = itertools.count()

    def ask(dataset: tl.Dataset) -> Callable[[], object]:
        def request() -> object:
            begin = next(turns) * REQUEST
            return dataset.batch(np.arange(begin, begin + REQUEST) % len(dataset))

        return request

    timing = interleave({name: ask(dataset) for name, dataset in ways.items()}, rounds * 4)
    rows = [rate(name, took, REQUEST / 1000, "k rows/CPU-s") for name, took in timing.items()]
    rows[-1] = want(rows[-1], ">=", 120)
    notes = [f"Dataset.batch of {REQUEST:,} consecutive indices; rows of {SEQ_LEN:,} tokens."]
    return Table(title="order 2: rows of a dataset", command=command, rows=rows, notes=notes)


def _far(folder: Path, rounds: int, command: str) -> Table:
    def first(root: Path, step: int) -> Case:
        store = tl.open(root, verify="never")
        dataset = store.windows(64).block_shuffle().epochs(None).seed(5)
        next(tl.Loader(dataset, 32, prefetch=0))  # what is done once is done

        def seek(loader: tl.Loader) -> None:
            next(loader.seek(step))

        return Case(prepare=lambda: tl.Loader(dataset, 32, prefetch=0), run=seek)

    cases = {
        f"{name} store, step {step:,}": first(folder / path, step)
        for name, path in (("small", "store"), ("large", "large"))
        for step in (0, 10**3, 10**6, 10**9)
    }
    timing = interleave(cases, rounds * 2)
    rows = [cost(name, took, 1, "ms") for name, took in timing.items()]
    rows = [want(row, "<=", 50) if "step 1,000,000" in row.what else row for row in rows]
    small, large = (tl.open(folder / path).num_tokens for path in ("store", "large"))
    notes = [f"Loader.seek(step), then its first batch; {small:,} and {large:,} tokens."]
    return Table(title="order 3: a step far away", command=command, rows=rows, notes=notes)
