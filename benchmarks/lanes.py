"""Lanes: how often a block is fetched when several ranks share a block shuffle.

Every rank has its own loader with memory for its share of the lanes and two more windows, or,
without lanes, for as many blocks; ranks share nothing but the order. A fetch is a miss of that
rank's block cache, counted by the cache. One rank needs 1/128 fetches per example: every block of
128 rows once. The geometry is 64 lanes of 8 blocks of 128 rows; rows are two tokens, because their
length does not change the counts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, amount
from tokenloom.errors import plural
from tokenloom.testing import write_flat

__all__ = ["SIZES", "run"]

LANES, WINDOW, ROWS, SEQ_LEN = 64, 8, 128, 2
BAND_BLOCKS = LANES * WINDOW
UNIT = "per 1,000 examples"

# size → (bands, world sizes, batch sizes)
SIZES: dict[str, tuple[int, list[int], list[int]]] = {
    "tiny": (1, [1, 2], [64]),
    "small": (1, [1, 2, 8], [64, 1000]),
    "default": (2, [1, 2, 3, 7, 8, 32], [64, 100, 256, 1000]),
    "full": (4, [1, 2, 3, 7, 8, 32], [64, 100, 256, 1000]),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """Fetches for each example, with lanes and without."""
    bands, worlds, batch_sizes = SIZES[size]
    rows = bands * BAND_BLOCKS * ROWS
    ids = (np.arange(rows * SEQ_LEN) % 60_000).astype(np.uint16)
    root = folder / "store"
    write_flat(root, ids, np.full(rows, SEQ_LEN), vocab_size=60_000)
    table = [
        row
        for world_size in worlds
        for batch_size in batch_sizes
        if batch_size >= world_size
        for row in _rows(root, world_size, batch_size)
    ]
    geometry = f"{bands} bands of {LANES} lanes x {WINDOW} blocks x {ROWS} rows"
    memory = "memory of a rank: its share of the lanes and two windows, the same without lanes"
    goals = f"Up to lanes / 8 = {LANES // 8} ranks 1 for multiples of the ranks, else up to 1.2."
    notes = [
        f"{rows:,} rows, {geometry}; {memory}.",
        f"ratio: over one fetch for every {ROWS} examples, which one rank needs. {goals}",
    ]
    title = "lanes: block fetches for each example"
    return [Table(title=title, command=command, rows=table, notes=notes)]


def _rows(root: Path, world_size: int, batch_size: int) -> list[Row]:
    with_lanes = _fetches(root, world_size, batch_size, LANES)
    without = _fetches(root, world_size, batch_size, 1)
    goal = 1.15 if world_size <= LANES // 8 else 2.0
    what = f"{plural(world_size, 'rank')}, batch {batch_size}"
    ratio = with_lanes * ROWS
    return [
        Row(
            what=f"{what}: {LANES} lanes",
            value=with_lanes * 1000,
            unit=UNIT,
            ratio=ratio,
            of="one rank",
            goal=f"at most {goal:g}x",
            met=ratio <= goal,
        ),
        amount(f"{what}: no lanes", without * 1000, UNIT),
    ]


def _fetches(root: Path, world_size: int, batch_size: int, lanes: int) -> float:
    """Blocks fetched by all ranks for each example of an epoch."""
    own = -(-LANES // world_size) + 2  # windows that a rank has memory for
    fetched = examples = 0
    for rank in range(world_size):
        store = tl.open(root, cache_bytes=own * WINDOW * ROWS * SEQ_LEN * 2)
        dataset = store.windows(SEQ_LEN).block_shuffle(
            io_block_size=ROWS, window_blocks=BAND_BLOCKS // lanes, lanes=lanes
        )
        loader = tl.Loader(dataset, batch_size, rank, world_size, prefetch=0, fetch="blocks")
        examples += sum(len(batch) for batch in loader)
        fetched += loader.stats().cache.misses
    return fetched / examples
