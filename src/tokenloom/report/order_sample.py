"""What an order of any length looks like from a few of its windows: a word for it, with numbers.

One idea: the measures of `tokenloom.quality.shuffle` want a whole order. Here up to 16 windows of
1,024 neighbouring indices, chosen by a key, stand for it; a short order is looked at whole. That
takes a millisecond for 10^9 rows, and is enough to tell apart

==============================  ==================================================================
in stored order                 most rows come right after the row that is stored before them
random within windows of n      rows are mixed inside stretches (`Order.window_rows`)
shuffled, with a pattern        steps between rows, odd rows or rows modulo 8 come too regularly,
                                as those of a linear permutation do
like random                     none of these
==============================  ==================================================================

"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.layout import Blocks
from tokenloom.order.orders import Order
from tokenloom.quality.shuffle import (
    BATCH,
    SOURCES,
    batch_parity_sd,
    fair_blocks,
    interleave_chi2,
)
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations

Int64 = NDArray[np.int64]

WINDOW, SOME = 1024, 16  # neighbouring indices, and how many such windows

FEWEST = 16  # pieces of 128 rows; from fewer no pattern is told from chance

STORED, WINDOWS, PATTERN, RANDOM, TINY = (
    "in stored order",
    "random within windows",
    "shuffled, with a pattern",
    "like random",
    "too few rows to tell",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderLook:
    """An order in numbers, and what a fair shuffle of the same rows gives on average.

    Attributes:
        rows, blocks: rows of the order, and the storage blocks they are in.
        batch: neighbouring indices whose blocks are counted.
        batch_blocks, fair_batch_blocks: different blocks among them.
        same_block, fair_same_block: share of neighbours from one block.
        in_a_row: share of neighbours that are stored one after the other.
        moved, fair_moved: mean distance of a row from where it is stored, over the longest one;
            fair for the places that were looked at, since those near an end move further.
        window: rows that are mixed together, all of them if there are no windows.
        patterns: what comes too regularly, in words.
        looked_at: rows that were looked at.
    """

    rows: int
    blocks: int
    batch: int
    batch_blocks: float
    fair_batch_blocks: float
    same_block: float
    fair_same_block: float
    in_a_row: float
    moved: float
    fair_moved: float
    window: int
    patterns: tuple[str, ...]
    looked_at: int

    @property
    def kind(self) -> str:
        """One of the words of the module."""
        if self.rows < 4:
            return TINY
        if self.in_a_row > 0.5:
            return STORED
        if self.patterns:
            return PATTERN
        # a short last block stays behind the only window
        return WINDOWS if self.window < 0.9 * self.rows else RANDOM

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.kind == WINDOWS:
            return f"random within windows of {self.window:,} rows"
        if self.kind == PATTERN:
            return f"shuffled, with a pattern: {', '.join(self.patterns)}"
        return self.kind


def look_at_order(order: Order, blocks: Blocks, batch: int, name: str = "main") -> OrderLook:
    """What an order looks like.

    Args:
        order: where rows come.
        blocks: the storage blocks of the rows.
        batch: rows that are trained on together.
        name: of the source; part of the key that chooses windows.

    >>> from tokenloom.order import full, identity
    >>> blocks = Blocks.equal(10**9, 128)
    >>> look_at_order(full(10**9, seed=1), blocks, 64).words
    'like random'
    >>> look_at_order(identity(10**9), blocks, 64).words
    'in stored order'
    """
    n = blocks.rows
    size = min(max(1, batch), n, WINDOW * SOME)
    places = _windows(n, max(size, WINDOW), name)  # [windows, indices]
    rows = order.map(places.reshape(-1)).reshape(len(places), -1)
    steps = np.diff(rows, axis=1)
    block = blocks.of(rows.reshape(-1)).reshape(rows.shape)
    count = max(1, places.shape[1] // size) if size else 0
    groups = block[:, : count * size].reshape(-1, size) if size else block.reshape(0, 1)
    found = np.sort(groups, axis=1)
    distinct = 1 + (np.diff(found, axis=1) > 0).sum(axis=1)
    sizes = _sizes(blocks)
    pairs = max(1, n * (n - 1))
    window = min(n, order.window_rows or n)
    return OrderLook(
        rows=n,
        blocks=len(blocks),
        batch=size,
        batch_blocks=float(distinct.mean()) if len(distinct) else 0.0,
        fair_batch_blocks=fair_blocks(n, sizes, size) if size else 0.0,
        same_block=_share(block[:, 1:] == block[:, :-1]),
        fair_same_block=sum(c * s * (s - 1) for s, c in sizes.items()) / pairs,
        in_a_row=_share(steps == 1),
        moved=float(np.abs(rows - places).mean()) / max(1, n - 1) if n else 0.0,
        fair_moved=_fair_moves(n, places) if n else 0.0,
        window=window,
        patterns=tuple(_patterns(rows, steps, window)),
        looked_at=int(rows.size),
    )


def _windows(n: int, size: int, name: str) -> Int64:
    """Indices of windows that a key chooses [windows, indices]; all of them, if they are few."""
    if n <= max(size, WINDOW * SOME):
        return np.arange(n)[None, :]
    count = n // size
    order = permutations(count, [key(0, name, "looked at")], "feistel")
    some = np.arange(min(count, max(1, WINDOW * SOME // size))).astype(np.uint64)
    starts = np.sort(order.forward(some).view(np.int64)) * size
    chosen: Int64 = starts[:, None] + np.arange(size)
    return chosen


def _fair_moves(n: int, places: Int64) -> float:
    """How far rows at these places are from where they are stored in a fair shuffle, on average.

    A place p of n has p places before it and n - 1 - p after it, at distances 1, 2, 3, ...

    >>> _fair_moves(3, np.arange(3)), _fair_moves(3, np.array([1]))  # (1 + 2/3 + 1) / 3 / 2
    (0.4444444444444444, 0.3333333333333333)
    """
    before = places.astype(np.float64)
    after = n - 1 - before
    distances = (before * (before + 1) + after * (after + 1)) / (2 * n)
    return float(distances.mean()) / max(1, n - 1)


def _sizes(blocks: Blocks) -> dict[int, int]:
    """Rows of a block → how many blocks have as many."""
    if not blocks.size:
        found = np.unique(np.diff(blocks.starts), return_counts=True)
        return {int(size): int(count) for size, count in zip(*found, strict=True) if size}
    whole, rest = divmod(blocks.rows, blocks.size)
    return {size: count for size, count in ((blocks.size, whole), (rest, 1)) if size and count}


def _share(which: NDArray[np.bool_]) -> float:
    return float(which.mean()) if which.size else 0.0


def _patterns(rows: Int64, steps: Int64, n: int) -> list[str]:
    """What comes too regularly for a fair shuffle of n rows at a time.

    Thresholds are far from what chance gives. Few rows that are mixed together are regular by
    themselves: half of them are odd.
    """
    pieces = rows.shape[1] // BATCH
    if pieces * len(rows) < FEWEST or n < FEWEST * BATCH:
        return []
    cut = rows[:, : pieces * BATCH].reshape(-1)
    left = (n - BATCH) / max(1, n - 1)
    found = []
    different = np.mean([len(np.unique(one)) / len(one) for one in steps])
    if different < 0.5 * _fair_steps(n, steps.shape[1]):
        found.append("rows follow each other by the same few steps")
    odd = batch_parity_sd(cut, BATCH) / math.sqrt(max(1e-12, left) / (4 * BATCH))
    if not 0.4 < odd < 2:
        found.append("odd and even rows come too regularly")
    chi2 = interleave_chi2(cut, BATCH) / max(1e-12, (SOURCES - 1) * left)
    if not 0.4 < chi2 < 2.5:
        found.append("rows modulo 8 come too regularly")
    return found


def _fair_steps(n: int, count: int) -> float:
    """Different steps among `count` of a fair shuffle of n rows, over all of them.

    A step d has probability (n - abs(d)) / (n (n - 1)); two agree with about 2 / 3n.
    """
    if n <= count + 1:
        return 2 / math.e
    return math.exp(-count / (3 * n))
