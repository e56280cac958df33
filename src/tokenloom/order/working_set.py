"""What a run needs in memory at once: its io blocks, their bytes, and a warning if they don't fit.

One idea: rows are fetched and kept by *io blocks*, stretches of rows that are stored together. How
many of them an order needs at the same time decides whether reading by blocks pays off.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped
from tokenloom.errors import binary_size, plural, warn
from tokenloom.layout.blocks import Blocks
from tokenloom.layout.layout import Layout, Phases
from tokenloom.order.shuffle import BlockShuffle, Shuffle
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader

__all__ = ["WorkingSet", "loss_columns"]

Int64 = NDArray[np.int64]


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

    def share_bytes(self, world_size: int) -> int:
        """The same for one of several ranks: with lanes, each rank keeps to its own windows."""
        return self.bytes if self.lanes == 1 else -(-self.bytes // world_size)

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

    def warn_if_too_large(self, capacity: int, world_size: int = 1) -> None:
        """Warn, with the arithmetic, when a rank's shuffle windows do not fit into the cache."""
        needed = self.share_bytes(world_size)
        if not isinstance(self._shuffle, BlockShuffle) or needed <= capacity or not capacity:
            return  # no warning if the cache was turned off on purpose
        blocks = self._shuffle.blocks(self.blocks)
        window = min(self._shuffle.window_blocks or 1, len(blocks))
        rows = min(blocks.size, blocks.rows) or -(-blocks.rows // len(blocks))
        lanes = f" x {self.lanes} lanes over {world_size} ranks" if self.lanes > 1 else ""
        warn(
            f"block_shuffle: {plural(window, 'block')}{lanes} x {rows} rows x "
            f"{self._layout.seq_len:,} tokens x {self._token_bytes} bytes take "
            f"{binary_size(needed)}, the cache has {binary_size(capacity)}. Rows are then read one "
            "by one. Lower window_blocks, or open the store with more cache_bytes."
        )
