"""What a run needs in memory at once: its io blocks, their bytes, and a warning if they don't fit.

One idea: rows are fetched and kept by *io blocks*, stretches of rows that are stored together. How
many of them an order needs at the same time decides whether reading by blocks pays off.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Int64, grouped
from tokenloom.errors import binary_size, plural, warn
from tokenloom.layout.layout import Blocks, Layout, Phases
from tokenloom.order.block_order import bit_reversed
from tokenloom.order.shuffle import BlockShuffle, Shuffle
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader

READ_BYTES = 1 << 16  # reading this much takes about as long as starting a read

EXACT_LANES = 1024  # with more, the lanes that a rank touches are estimated, not counted


class RankShare(NamedTuple):
    """Which rows of every step belong to a rank.

    Attributes:
        rank: the number of the rank.
        world_size: the number of ranks.
        batch_sizes: rows of a step over all ranks; several if they change.
    """

    rank: int = 0
    world_size: int = 1
    batch_sizes: tuple[int, ...] = (1,)


@functools.lru_cache(maxsize=256)
def touched_lanes(
    lanes: int, share: RankShare, *, multiple: int | None = None, sources: int = 1
) -> int:
    """How many lanes the rows of a rank come from.

    A step has B consecutive rows, one from each lane in turn, and a rank takes a slice of them in
    order of lane. If B is a multiple of the ranks, and the ranks divide the lanes, the slice is
    always the same; otherwise it moves over the lanes of its neighbours.

    Args:
        lanes: the number of lanes.
        share: the rows of the rank.
        multiple: bands and epochs have multiples of this many rows; None if lanes have different
            lengths, or other sources are in between, and the lanes can only be estimated.
        sources: the number of sources that are mixed.

    >>> [touched_lanes(64, RankShare(3, 8, (b,)), multiple=64) for b in (64, 77, 13)]
    [8, 10, 16]
    """
    if share.world_size == 1:
        return lanes
    if multiple is None or lanes > EXACT_LANES:
        own = -(-lanes // share.world_size)
        most = max(2 * -(-(sources + 1) * lanes // size) for size in share.batch_sizes)
        return min(lanes, own + most)
    turn = np.argsort(np.array(bit_reversed(lanes)))
    return max(_touched(turn, share, size, multiple) for size in share.batch_sizes)


def _touched(turn: Int64, share: RankShare, size: int, multiple: int) -> int:
    """The lanes of a rank's rows, given when each lane has its turn in a round."""
    lanes, common = len(turn), math.gcd(size, len(turn), multiple)
    rounds, rest = divmod(size, lanes)
    # [where a step may start in a round, lanes]: the rows of each lane in that step
    rows = rounds + ((turn - np.arange(0, lanes, common)[:, None]) % lanes < rest)
    stop = np.cumsum(rows, axis=1)
    low, high = (one * size // share.world_size for one in (share.rank, share.rank + 1))
    used = (stop > low) & (stop - rows < high) & (rows > 0)
    return int(used.any(axis=0).sum())


def loss_columns(reader: Reader) -> list[str]:
    """The columns of a store that say which tokens are trained on."""
    return [name for name in ("loss_weights", "loss_mask") if name in reader.manifest.columns]


class WorkingSet:
    """The io blocks of a layout under a shuffle.

    Args:
        layout: the layout of the rows.
        phases: phases of the layout, each with its own blocks.
        blocks: the storage-local blocks of each phase.
        shuffle: the resolved shuffle, or None for stored order.

    Attributes:
        blocks: what is fetched and kept together, in the last phase.
        lanes: windows that are open at once.
    """

    def __init__(
        self, layout: Layout, phases: Phases, blocks: list[Blocks], shuffle: Shuffle | None
    ) -> None:
        self._layout, self._phases, self._shuffle = layout, phases, shuffle
        size = getattr(shuffle, "io_block_size", None)
        self._blocks = [Blocks.equal(one.rows, size) if size else one for one in blocks]
        self._first = np.cumsum([0, *(len(one) for one in self._blocks)])
        self.blocks = self._blocks[-1]
        self.lanes: int = getattr(shuffle, "lanes", 1)

    @property
    def tag(self) -> str:
        """Everything that determines where a block starts and ends: runs may share a cache."""
        return f"{self._layout.tag}/{self.blocks.size}"

    def block_of(self, epoch: Int64, rows: Int64) -> Int64:
        """The io block of each row, counted over all phases [N]."""
        if len(self._blocks) == 1:
            return self._blocks[0].of(rows)
        phase = self._phases.of(epoch)
        out = np.empty_like(rows)
        for number, here in grouped(phase):
            out[here] = self._blocks[number].of(rows[here]) + self._first[number]
        return out

    def stretch(self, block: Int64) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each io block occupy [N]."""
        if len(self._blocks) == 1:
            return self._layout.stretch(block, self._blocks[0])
        first, last = np.empty_like(block), np.empty_like(block)
        phase = np.searchsorted(self._first, block, side="right") - 1
        for number, here in grouped(phase):
            inside, blocks = block[here] - self._first[number], self._blocks[number]
            first[here], last[here] = self._layout.stretch(inside, blocks, number)
        return first, last

    @lazy
    def bytes(self) -> int:
        """Bytes of the blocks that a single reader of all rows needs at the same time."""
        blocks, shuffle = self.blocks, self._shuffle
        working = shuffle.working_blocks(blocks) if shuffle else min(2, len(blocks))
        largest, together = self._block_bytes
        return min(working * largest, together)

    def share_bytes(self, share: RankShare, sources: int = 1) -> int:
        """The same for one of several ranks: with lanes, each rank needs the windows it touches."""
        window = -(-self.bytes // self.lanes)
        return min(self.bytes, self.touched(share, sources) * window)

    def touched(self, share: RankShare, sources: int = 1) -> int:
        """Shuffle windows that a rank needs at the same time; without lanes, the only one."""
        equal = sources == 1 and self.blocks.size > 0
        multiple = math.gcd(self.lanes, self.blocks.rows) if equal else None
        return touched_lanes(self.lanes, share, multiple=multiple, sources=sources)

    @property
    def has_own_cache(self) -> bool:
        """Whether its shuffle says how many windows to keep in memory."""
        return getattr(self._shuffle, "cache_windows", None) is not None

    def cheaper_by_blocks(self, missing: float) -> bool:
        """Whether blocks are cheaper than rows if this share of rows finds its block missing.

        A read costs as much as reading `READ_BYTES` more.
        """
        blocks, largest = self.blocks, self._block_bytes[0]
        rows = max(1.0, blocks.rows / max(1, len(blocks)))
        fetches = missing + 1 / rows  # of a row, on average
        return fetches * (READ_BYTES + largest) <= READ_BYTES + largest / rows

    @property
    def block_bytes(self) -> int:
        """Bytes of the largest block."""
        return self._block_bytes[0]

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks."""
        return self._block_bytes[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a full row."""
        return self._layout.width * self._token_bytes

    @lazy
    def _block_bytes(self) -> tuple[int, int]:
        """Bytes of the largest block, and of all blocks."""
        blocks = self.blocks
        if not len(blocks):
            return 0, 0
        some = [0, len(blocks) - 1] if blocks.size else np.arange(len(blocks))  # the rest are equal
        first, last = self._layout.stretch(np.asarray(some), blocks, len(self._blocks) - 1)
        sizes = (last - first) * self._token_bytes
        largest = int(sizes.max())
        rest = (len(blocks) - 1) * largest + int(sizes[-1])
        return largest, rest if blocks.size else int(sizes.sum())

    @property
    def _token_bytes(self) -> int:
        """Bytes of a token and of its loss columns."""
        reader = self._layout.line.reader
        return sum(reader.dtype(c).itemsize for c in ("input_ids", *loss_columns(reader)))

    def warn_if_too_large(self, capacity: int) -> None:
        """Warn, with the arithmetic, when the shuffle window does not fit into the cache."""
        if not isinstance(self._shuffle, BlockShuffle) or self.bytes <= capacity or not capacity:
            return  # no warning if the cache was turned off on purpose
        warn(
            f"block_shuffle: {self.arithmetic(self.lanes)} take {binary_size(self.bytes)}, the "
            f"cache has {binary_size(capacity)}. Rows are then read one by one. Lower "
            "window_blocks, or open the store with more cache_bytes."
        )

    def arithmetic(self, touched: int) -> str:
        """What some shuffle windows hold, as a product in words."""
        assert isinstance(self._shuffle, BlockShuffle)
        blocks = self._shuffle.blocks(self.blocks)
        window = min(self._shuffle.window_blocks or 1, len(blocks))
        rows = min(blocks.size, blocks.rows) or -(-blocks.rows // len(blocks))
        lanes = f" x {touched} of {self.lanes} lanes" if self.lanes > 1 else ""
        return (
            f"{plural(window, 'block')}{lanes} x {rows} rows x {self._layout.seq_len:,} tokens x "
            f"{self._token_bytes} bytes"
        )
