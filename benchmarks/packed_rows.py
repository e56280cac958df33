"""Packed rows by number: what a random row costs in a store of many documents.

Documents have 1 to 60 tokens, so rows of 1,024 tokens hold about 34 of them. A full shuffle asks
for rows of all groups at once. Passes alternate between a store of few and one of many documents of
the same lengths; every pass opens its store anew, with the plan in the cache folder, and delivers
some batches before it is timed. Scattered requests have 2,048 random indices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Table, against, amount, cost, interleave, rate, want
from benchmarks.loaders import ALL
from benchmarks.stores import publish, write_shard
from tokenloom import order

__all__ = ["SIZES", "run"]

SEQ, BATCH, REQUEST = 1024, 32, 2048

# size → (few documents, many documents, batches before a pass, batches of a pass, rounds); a loader
# plans 256 batches of 32 rows together, so only a multiple of 256 pays for its own planning
SIZES = {
    "tiny": (500, 2_000, 1, 2, 1),
    "small": (100_000, 1_000_000, 300, 256, 3),
    "default": (100_000, 10_000_000, 700, 512, 5),
    "full": (100_000, 10_000_000, 700, 512, 15),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of packed rows."""
    few, many, warm, batches, rounds = SIZES[size]
    stores = {"few": folder / "few", "many": folder / "many"}
    for name, documents in (("few", few), ("many", many)):
        _write(stores[name], documents)
    with _cache(folder / "cache"):
        return [
            _rates(stores, (few, many), (warm, batches, rounds), command),
            _scattered(stores["many"], many, rounds, command),
        ]


def _write(root: Path, documents: int) -> None:
    root.mkdir()
    random = np.random.default_rng(0)
    lengths = random.integers(1, 61, documents)
    ids = (np.arange(int(lengths.sum()), dtype=np.uint32) % 50_000).astype(np.uint16)
    publish(root, [write_shard(root, 0, [(ids, lengths)], "uint16")], "uint16")


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """A cache folder of this benchmark's own."""
    before = os.environ.get("TOKENLOOM_CACHE_DIR")
    os.environ["TOKENLOOM_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENLOOM_CACHE_DIR"]
        else:
            os.environ["TOKENLOOM_CACHE_DIR"] = before


def _packed(path: Path) -> Any:
    return tl.open(path).pack(SEQ).shuffle().epochs(None)


# -- 1. rows of a full shuffle -----------------------------------------------------------------


def _rates(
    stores: dict[str, Path], documents: tuple[int, int], sizes: tuple[int, int, int], command: str
) -> Table:
    warm, batches, rounds = sizes
    for path in stores.values():  # so that the plan of every row is kept
        made = _packed(path)
        made.run.layout.spans(0, np.arange(made.run.rows))

    def passes(path: Path, fields: tuple[str, ...]) -> Case:
        def prepare() -> Iterator[Any]:
            found = iter(tl.Loader(_packed(path), BATCH, fields=fields, prefetch=0))
            for _ in range(warm):
                next(found)
            return found

        return Case(prepare=prepare, run=lambda found: [next(found) for _ in range(batches)])

    def first(path: Path) -> Case:
        return Case(
            prepare=lambda: _packed(path),
            run=lambda made: next(iter(tl.Loader(made, BATCH, prefetch=0))),
        )

    cases: dict[str, Callable[[], object] | Case] = {}
    names = {name: f"{count:,} documents" for name, count in zip(stores, documents, strict=True)}
    for kind, fields in (("tokens", ("tokens",)), ("all arrays", ALL)):
        for name, path in stores.items():
            cases[f"{kind}, {names[name]}"] = passes(path, fields)
    cases |= {f"first batch, {names[name]}": first(path) for name, path in stores.items()}
    timing = interleave(cases, rounds)
    done = BATCH * SEQ * batches / 1e6
    rows = []
    for kind in ("tokens", "all arrays"):
        few, many = (
            rate(what, timing[what], done, "Mtok/CPU-s")
            for what in (f"{kind}, {names[name]}" for name in stores)
        )
        many = against(many, few, names["few"])
        rows += [few, want(many, ">=", 0.5, of_ratio=True)]
    for name in stores:
        what = f"first batch, {names[name]}"
        row = cost(what, timing[what], 1, "ms")
        rows.append(want(row, "<=", 200) if name == "many" else row)
    memory = amount(f"memory of all rows, {names['many']}", _memory(stores["many"]), "MB")
    rows.append(want(memory, "<=", 300))
    notes = [
        f"Rows of {SEQ:,} tokens, {BATCH} a batch; the plan is in the cache folder.",
        "Rates include planning. A first batch includes the rows of its first 16 steps.",
    ]
    title = "packed rows 1: full shuffle over few and many documents"
    return Table(title=title, command=command, rows=rows, notes=notes)


CHILD = """
import sys
import numpy as np, tokenloom as tl
from benchmarks.probe import peak
made = tl.open(sys.argv[1]).pack(int(sys.argv[2])).shuffle().epochs(None)
made.run.rows
before = peak()
rows = np.random.default_rng(0).permutation(made.run.rows)
for part in range(0, len(rows), 8192):
    made.run.layout.spans(0, rows[part : part + 8192])
print(peak() - before)
"""


def _memory(path: Path) -> float:
    """Growth of the peak of memory of a process that asks for all rows, in MB."""
    asked = [sys.executable, "-c", CHILD, str(path), str(SEQ)]
    root = Path(__file__).parents[1]
    done = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=root)
    return int(done.stdout) / 1e6


# -- 2. scattered requests ---------------------------------------------------------------------


def _scattered(path: Path, documents: int, rounds: int, command: str) -> Table:
    random = np.random.default_rng(1)

    def asked(n: int) -> np.ndarray:
        return random.integers(0, n, REQUEST)

    def both(what: str, one: order.Order) -> dict[str, Callable[[], object]]:
        n = len(one)
        return {
            f"index → row, {what}": lambda: one.map(asked(n)),
            f"row → index, {what}": lambda: one.inverse(asked(n)),
        }

    cases: dict[str, Callable[[], object]] = {}
    for blocks, lanes in ((1, 1), (8, 1), (1, 8)):
        made = tl.open(path).pack(SEQ).block_shuffle(window_blocks=blocks, lanes=lanes)
        what = f"pack, {blocks} {'group' if blocks == 1 else 'groups'} a window, lanes {lanes}"
        cases |= both(what, made.run.order(0))
    per_item = set(cases)
    cases |= both("windows of 4,096 of 10^9 rows", order.block(10**9, 128, 32, seed=1))
    windows = tl.open(path).windows(SEQ).block_shuffle(io_block_size=128, window_blocks=8)
    batch = f"run.batch of {REQUEST:,} indices, checked chunks"
    windows.batch(np.arange(len(windows)) if len(windows) < REQUEST else asked(len(windows)))
    cases[batch] = lambda: windows.batch(asked(len(windows))).tokens
    timing = interleave(cases, 3 * rounds)
    rows = []
    for what, took in timing.items():
        if what in per_item:
            rows.append(want(cost(what, took, REQUEST, "µs"), "<=", 2))
        else:
            rows.append(want(cost(what, took, 1, "ms"), "<=", 50))
    notes = [
        f"{REQUEST:,} random indices a request, {documents:,} documents; µs an item, ms a request"
    ]
    title = "packed rows 2: scattered requests under block shuffle"
    return Table(title=title, command=command, rows=rows, notes=notes)
