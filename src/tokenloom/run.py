"""One source as a run: index → (epoch, row) and back, no token read.

One idea: an epoch is a stretch of indices, and each epoch has an order of its own, so an index is
divided by the rows of an epoch and the rest goes through that epoch's order. Nothing else decides
what is trained when.
"""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.runs import Runs
from tokenloom.line import Line
from tokenloom.order import Blocks, Order, identity
from tokenloom.order.windowed import checked
from tokenloom.shuffle import BlockShuffle, Shuffle
from tokenloom.spans import Spans
from tokenloom.store.offsets import grouped
from tokenloom.store.reader import Reader
from tokenloom.words import binary_size, plural, warn

__all__ = ["Layout", "SourceRun", "loss_columns"]

Int64 = NDArray[np.int64]
KEPT_ORDERS = 4
COUNTED_TOGETHER = 65_536  # examples


def loss_columns(reader: Reader) -> list[str]:
    """The columns of a store that say what is trained."""
    return [name for name in ("loss_weights", "loss_mask") if name in reader.manifest.columns]


class Layout(Protocol):
    """What turns rows into spans."""

    line: Line
    seq_len: int
    width: int
    tag: str
    """Names the layout in the cache: everything that decides which tokens are in a row."""

    @property
    def inserted(self) -> tuple[int | None, int | None]:
        """Tokens that stand before and behind documents without being stored: BOS, EOS."""

    @property
    def tokens(self) -> int:
        """Stored tokens in the frames of all rows."""

    @property
    def row_tokens(self) -> tuple[int, int] | None:
        """Tokens of every row but the last, and of the last; None where each has its own."""

    def rows(self, epoch: int = 0) -> int:
        """Rows of an epoch."""

    def blocks(self, epoch: int = 0) -> Blocks:
        """Where the storage-local blocks lie."""

    def runs(self, epoch: int, rows: Int64) -> Runs:
        """The tokens of each row."""

    def stretch(self, block: Int64, blocks: Blocks) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block take."""

    def spans(self, epoch: int, rows: Int64) -> Spans:
        """The documents in each row."""

    def costs(self, epoch: int, rows: Int64) -> Int64:
        """Tokens of each row."""

    def warn_if_unaligned(self) -> None:
        """Say so when rows and io blocks do not fit each other."""


class SourceRun:
    """The run of one source.

    Attributes:
        name: of the source.
        layout: rows → spans.
        blocks: its storage-local blocks.
        io_blocks: what is fetched and kept together.
        lanes: windows that are open at once.
        shuffle: resolved, or None for stored order.
        epochs: how often the rows are gone through; None is endless.
        seed: what the keys begin with.
        rows: of one epoch.
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
        self.blocks = layout.blocks()
        size = getattr(shuffle, "io_block_size", None)
        self.io_blocks = Blocks.equal(self.blocks.rows, size) if size else self.blocks
        self.rows = layout.rows()
        # of rows, not of the line: tokens that no row has must not change the order
        mean = self.rows * layout.seq_len / max(1, len(self.blocks))
        self.shuffle = shuffle.resolve(self.blocks, mean) if shuffle else None
        whole = None if epochs is None or not self.rows else epochs * self.rows
        if not self.rows:
            whole = 0
        self.n = whole if take is None else take if whole is None else min(take, whole)
        self.lanes: int = getattr(self.shuffle, "lanes", 1)
        self._orders: dict[int, Order] = {}
        self._counted = 0, 0, 0  # epoch, examples, tokens

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""
        order = self._orders.get(epoch)
        if order is None:
            if self.shuffle is None:
                order = identity(self.rows)
            else:
                order = self.shuffle.order(self.blocks, self.seed, epoch, self.name)
            kept = dict(list(self._orders.items())[-KEPT_ORDERS + 1 :])
            self._orders = kept | {epoch: order}  # another thread may be reading the old one
        return order

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index [N]."""
        flat = checked(indices, self.n, "index")
        if not len(flat):
            return flat, flat
        epoch = flat // self.rows
        inside = flat - epoch * self.rows
        first = int(epoch[0])
        if (epoch == first).all():
            return epoch, self.order(first).map(inside)
        row = np.empty_like(flat)
        for number, here in grouped(epoch):
            row[here] = self.order(number).map(inside[here])
        return epoch, row

    def index(self, epoch: int, rows: Int64) -> Int64:
        """The index of rows in an epoch [N]; it may lie behind the end of a run that was cut."""
        return self.order(epoch).inverse(rows) + epoch * self.rows

    def fractions(self, indices: Int64) -> NDArray[np.float64] | None:
        """Lane over lanes of each index [N], or None for a run without lanes."""
        if self.lanes == 1:
            return None
        out = np.zeros(len(indices), np.float64)
        for number, here in grouped(indices // self.rows):
            found = self.order(number).fractions(indices[here] - number * self.rows)
            if found is not None:
                out[here] = found
        return out

    def tokens_in(self, examples: int) -> int:
        """Tokens of the first examples of the run.

        Where rows have tokens of their own, those of an epoch that is not complete are counted; of
        these, when asked again further on, only what came since.
        """
        if not self.rows:
            return 0
        epochs, rest = divmod(examples, self.rows)
        whole = epochs * self.layout.tokens
        usual, last = self.layout.row_tokens or (None, None)
        if usual is None or last is None:
            return whole + self._count(epochs, rest)
        total = whole + rest * usual
        if rest and last != usual:  # has the one short row been among them?
            place = int(self.index(epochs, np.array([self.rows - 1]))[0]) - epochs * self.rows
            total -= (usual - last) * (place < rest)
        return total

    def _count(self, epoch: int, examples: int) -> int:
        """Tokens of the first examples of an epoch, row by row."""
        known, upto, total = self._counted
        if known != epoch or upto > examples:
            upto, total = 0, 0
        for low in range(upto, examples, COUNTED_TOGETHER):
            inside = np.arange(low, min(low + COUNTED_TOGETHER, examples))
            total += int(self.layout.costs(epoch, self.order(epoch).map(inside)).sum())
        self._counted = epoch, examples, total
        return total

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
        first, last = self.layout.stretch(np.asarray(some), blocks)
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
