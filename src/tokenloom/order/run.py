"""One source as a run: index → (epoch, row) and back, no token read.

One idea: an epoch is a stretch of indices, and each epoch has an order of its own, so an index is
divided by the rows of an epoch (`tokenloom.layout.layout`) and the rest goes through that epoch's
order. Nothing else decides what is trained when.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import checked, grouped, with_newest
from tokenloom.errors import binary_size, plural, warn
from tokenloom.layout.blocks import Blocks
from tokenloom.layout.layout import Layout
from tokenloom.order import Order, identity
from tokenloom.order.block_order import golden
from tokenloom.order.shuffle import BlockShuffle, FullShuffle, Shuffle, describe_shuffle
from tokenloom.order.shuffle_windows import ShuffleWindows
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

__all__ = ["SourceRun", "loss_columns"]

Int64 = NDArray[np.int64]

KEPT_ORDERS = 4


def loss_columns(reader: Reader) -> list[str]:
    """The columns of a store that say what is trained."""
    return [name for name in ("loss_weights", "loss_mask") if name in reader.manifest.columns]


class SourceRun:
    """The run of one source.

    Attributes:
        name: of the source.
        layout: rows → spans.
        phases: rows of every epoch.
        lanes: windows that are open at once.
        shuffle: resolved, or None for stored order.
        epochs: how often the rows are gone through; None is endless.
        seed: what the keys begin with.
        rows: of one epoch, the last kind of it if there are several.
        n: examples in all, None if endless.
    """

    def __init__(
        self,
        *,
        name: str,
        layout: Layout,
        shuffle: Shuffle | None,
        epochs: int | None,
        seed: int,
        take: int | None = None,
    ) -> None:
        self.name, self.layout, self.epochs, self.seed = name, layout, epochs, seed
        self.phases = layout.phases
        self.rows = int(self.phases.rows[-1])
        self._blocks = [layout.blocks(phase) for phase in range(len(self.phases))]
        size = getattr(shuffle, "io_block_size", None)
        self._io_blocks = [Blocks.equal(b.rows, size) if size else b for b in self._blocks]
        self._first_block = np.cumsum([0, *(len(blocks) for blocks in self._io_blocks)])
        # of rows, not of the line: tokens that no row has must not change the order
        mean = self.rows * layout.seq_len / max(1, len(self._blocks[-1]))
        self.shuffle = shuffle.resolve(self._blocks[-1], mean) if shuffle else None
        whole = None if epochs is None else self.phases.end(epochs)
        if not self.rows:
            whole = 0
        self.n = whole if take is None else take if whole is None else min(take, whole)
        self.lanes: int = getattr(self.shuffle, "lanes", 1)
        self._orders: dict[int, Order] = {}

    @property
    def identity(self) -> dict[str, Any]:
        """Names the rows and their order: equal for equal ones."""
        return {
            "line": self.layout.line.identity,
            "layout": self.layout.tag,
            "shuffle": describe_shuffle(self.shuffle),
            "seed": self.seed,
            "name": self.name,
            "order_version": ORDER_VERSION,
        }

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""
        order = self._orders.get(epoch)
        if order is None:
            phase = int(self.phases.of(epoch))
            if self.shuffle is None:
                order = identity(int(self.phases.rows[phase]))
            else:
                order = self.shuffle.order(self._blocks[phase], self.seed, epoch, self.name)
            self._orders = with_newest(self._orders, epoch, order, KEPT_ORDERS)
        return order

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index [N]."""
        flat = checked(indices, self.n, "index")
        if not len(flat):
            return flat, flat
        epoch, inside = self.phases.locate(flat)
        return epoch, self._rows_at(epoch, inside)

    def rows_from(self, first: int, last: int) -> tuple[Int64 | int, Int64]:
        """(epochs, rows) of indices [first, last), also behind the end of a run that was cut."""
        epoch, inside = self.phases.place(first)
        if first < last <= self.phases.start(epoch + 1):
            return epoch, self.order(epoch).map(np.arange(inside, inside + last - first))
        epochs, place = self.phases.locate(np.arange(first, last))
        return epochs, self._rows_at(epochs, place)

    def _rows_at(self, epoch: Int64, inside: Int64) -> Int64:
        """The rows at places of epochs [N]."""
        if not len(epoch) or (epoch == epoch[0]).all():
            return self.order(int(epoch[0])).map(inside) if len(epoch) else inside
        if self.shuffle is None or self.phases.rows.max() == 1:
            return inside
        row = np.empty_like(inside)
        if isinstance(self.shuffle, FullShuffle):  # small sources have many epochs in a request
            for phase, here in grouped(self.phases.of(epoch)):
                rows = int(self.phases.rows[phase])
                row[here] = self._epochs.forward(rows, epoch[here], inside[here])
            return row
        for number, here in grouped(epoch):
            row[here] = self.order(number).map(inside[here])
        return row

    @property
    def goes_by_epochs(self) -> bool:
        """Whether every epoch of a request costs something, however few its rows are."""
        usual = isinstance(self.shuffle, FullShuffle) and self.shuffle.perm_type == "feistel"
        return self.shuffle is not None and not usual and self.rows > 1

    @functools.cached_property
    def _epochs(self) -> ShuffleWindows:
        """The orders of all epochs of a full shuffle."""
        assert isinstance(self.shuffle, FullShuffle)
        return self.shuffle.epochs(self.seed, self.name)

    def index(self, epoch: int, rows: Int64) -> Int64:
        """The index of rows in an epoch [N]; it may lie behind the end of a run that was cut."""
        return self.order(epoch).inverse(rows) + self.phases.start(epoch)

    def fractions(self, indices: Int64) -> NDArray[np.float64] | None:
        """Lane over lanes of each index [N], or None for a run without lanes."""
        if self.lanes == 1:
            return None
        out = np.zeros(len(indices), np.float64)
        epoch, inside = self.phases.locate(indices)
        for number, here in grouped(epoch):
            found = self.order(number).fractions(inside[here])
            out[here] = golden(indices[here]) if found is None else found
        return out

    def end_of(self, epochs: int) -> int:
        """Examples of so many epochs."""
        return self.phases.end(epochs)

    def epochs_in(self, examples: int) -> int:
        """Complete epochs of the first examples."""
        return self.phases.place(examples)[0] if self.rows else 0

    # -- blocks ----------------------------------------------------------------------------

    @property
    def blocks(self) -> Blocks:
        """The storage-local blocks of the layout, in the last phase."""
        return self._blocks[-1]

    @property
    def io_blocks(self) -> Blocks:
        """What is fetched and kept together, in the last phase."""
        return self._io_blocks[-1]

    def block_of(self, epoch: Int64, rows: Int64) -> Int64:
        """The io block of each row, counted through all phases [N]."""
        if len(self._io_blocks) == 1:
            return self._io_blocks[0].of(rows)
        phase = self.phases.of(epoch)
        out = np.empty_like(rows)
        for number, here in grouped(phase):
            out[here] = self._io_blocks[number].of(rows[here]) + self._first_block[number]
        return out

    def stretch(self, block: Int64) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each io block take [N]."""
        if len(self._io_blocks) == 1:
            return self.layout.stretch(block, self._io_blocks[0])
        first, last = np.empty_like(block), np.empty_like(block)
        phase = np.searchsorted(self._first_block, block, side="right") - 1
        for number, here in grouped(phase):
            inside, blocks = block[here] - self._first_block[number], self._io_blocks[number]
            first[here], last[here] = self.layout.stretch(inside, blocks, number)
        return first, last

    def working_bytes(self) -> int:
        """Bytes of the blocks that one reader of all rows needs at the same time."""
        blocks = self.io_blocks
        working = self.shuffle.working_blocks(blocks) if self.shuffle else min(2, len(blocks))
        largest, together = self._block_bytes
        return min(working * largest, together)

    @functools.cached_property
    def _block_bytes(self) -> tuple[int, int]:
        """Bytes of the largest block, and of all."""
        blocks = self.io_blocks
        if not len(blocks):
            return 0, 0
        some = [0, len(blocks) - 1] if blocks.size else np.arange(len(blocks))  # the rest is equal
        first, last = self.layout.stretch(np.asarray(some), blocks, len(self.phases) - 1)
        sizes = (last - first) * self._token_bytes
        largest = int(sizes.max())
        rest = (len(blocks) - 1) * largest + int(sizes[-1])
        return largest, rest if blocks.size else int(sizes.sum())

    @property
    def _token_bytes(self) -> int:
        """Bytes of a token and of what the store says about training it."""
        reader = self.layout.line.reader
        return sum(reader.dtype(c).itemsize for c in ("input_ids", *loss_columns(reader)))

    def share_bytes(self, world_size: int) -> int:
        """The same for one of several ranks: with lanes each keeps to its own windows."""
        needed = self.working_bytes()
        return needed if self.lanes == 1 else -(-needed // world_size)

    def warn_if_too_large(self, capacity: int, world_size: int = 1) -> None:
        """Say so, with the arithmetic, when a rank's shuffle windows do not fit into the cache."""
        needed = self.share_bytes(world_size)
        if not isinstance(self.shuffle, BlockShuffle) or needed <= capacity or not capacity:
            return  # who turned the cache off knows
        blocks = self.shuffle.blocks(self.io_blocks)
        window = min(self.shuffle.window_blocks or 1, len(blocks))
        rows = min(blocks.size, blocks.rows) or -(-blocks.rows // len(blocks))
        lanes = f" x {self.lanes} lanes over {world_size} ranks" if self.lanes > 1 else ""
        warn(
            f"block_shuffle: {plural(window, 'block')}{lanes} x {rows} rows x "
            f"{self.layout.seq_len:,} tokens x {self._token_bytes} bytes take "
            f"{binary_size(needed)}, the cache has {binary_size(capacity)}. Rows are then read one "
            "by one. Lower window_blocks, or open the store with more cache_bytes."
        )
