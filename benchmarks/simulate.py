"""Simulating steps that have not run.

Rows have two tokens, because their length changes neither plans nor counts. The geometry is that of
a large run: 64 lanes of 8 blocks of 128 rows, or the same blocks without lanes; "rows" is a full
shuffle that is read row by row, and so are packed, spliced and mixed rows. Every rank has memory
for two bands. Nothing that is timed reads a token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, cost, timed, timing_of, want
from tokenloom.inspect import simulate_run
from tokenloom.testing import write_flat

__all__ = ["SIZES", "run"]

RANKS, BATCH, ROWS, LANES, WINDOW, SEQ_LEN = 8, 512, 128, 64, 8, 2
CACHE = 2 * LANES * WINDOW * ROWS * SEQ_LEN * 2
GOAL = 60.0  # seconds

# size → (rows of the store, steps simulated one by one, steps of which most are extrapolated)
SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (1 << 12, 8, 10**6),
    "small": (1 << 18, 1_000, 10**7),
    "default": (1 << 20, 10_000, 10**7),
    "full": (1 << 22, 10_000, 10**7),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """Times of whole simulations."""
    rows, exact, many = SIZES[size]
    root = folder / "store"
    write_flat(root, np.zeros(rows * SEQ_LEN, np.uint16), np.full(rows, SEQ_LEN), vocab_size=16)
    return [_simulations(root, exact, many, command)]


def _simulations(root: Path, exact: int, many: int, command: str) -> Table:
    store = tl.open(root, cache_bytes=CACHE)
    windows = store.windows(SEQ_LEN).epochs(None)
    wide = store.windows(4 * SEQ_LEN).shuffle().epochs(None)
    packed = store.pack(4 * SEQ_LEN).shuffle().epochs(None)
    block = {"io_block_size": ROWS, "window_blocks": LANES * WINDOW}
    runs = {
        f"{LANES} lanes": windows.block_shuffle(
            **block | {"window_blocks": WINDOW, "lanes": LANES}
        ),
        "no lanes": windows.block_shuffle(**block),
        "rows": windows.shuffle(),
        "packed": packed,
        "spliced": store.splice(4 * SEQ_LEN, content_length=SEQ_LEN).shuffle().epochs(None),
        "mixed": tl.mix({"windows": wide, "packed": packed}),
    }
    rows = []
    for name, dataset in runs.items():
        fetch = "blocks" if "lanes" in name else "rows"
        settings = {"batch_size": BATCH, "ranks": RANKS, "fetch": fetch}
        rows.append(_row(f"{name}: {exact:,} steps, one by one", dataset, exact, settings))
        if "lanes" in name or name == "rows":
            rows.append(_row(f"{name}: {many:,} steps, extrapolated", dataset, many, settings))
    each = exact * BATCH
    notes = [
        f"{RANKS} ranks, batch size {BATCH}: {each:,} examples one by one.",
        "Without lanes every rank fetches every block, so there are eight times as many to count.",
    ]
    title = "simulate: what steps will read"
    return Table(title=title, command=command, rows=rows, notes=notes)


def _row(what: str, dataset: Any, steps: int, settings: dict[str, Any]) -> Row:
    taken, _ = timed(lambda: simulate_run(dataset, steps, **settings))
    return want(cost(what, timing_of([taken]), 1, "s"), "<=", GOAL)
