"""One source as a run: index → (epoch, row) and back, no token read.

One idea: an epoch is a stretch of indices, and each epoch has an order of its own, so an index is
divided by the rows of an epoch (`tokenloom.layout.phases`) and the rest goes through that epoch's
order. Nothing else decides what is trained when.
"""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.phases import Phases
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
Epochs = Int64 | int  # of each row, or one for all of them
KEPT_ORDERS = 4
COUNTED_TOGETHER = 65_536  # examples


def loss_columns(reader: Reader) -> list[str]:
    """The columns of a store that say what is trained."""
    return [name for name in ("loss_weights", "loss_mask") if name in reader.manifest.columns]


class Layout(Protocol):
    """What turns rows into spans.

    Rows may depend on the epoch, so every question about rows names the epoch of each.
    """

    line: Line
    seq_len: int
    width: int
    tag: str
    """Names the layout in the cache: everything that decides which tokens are in a row."""

    @property
    def inserted(self) -> tuple[int | None, int | None]:
        """Tokens that stand before and behind documents without being stored: BOS, EOS."""

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""

    @property
    def row_tokens(self) -> tuple[int, int] | None:
        """Tokens of every row but the last, and of the last; None where each has its own."""

    @property
    def is_constant(self) -> bool:
        """Whether a row is the same in every epoch."""

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs of that epoch's phase have as many tokens."""

    def tokens(self, first: int, last: int) -> int:
        """Stored tokens in the frames of all rows of epochs [first, last) of one phase."""

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie in epochs of a phase."""

    def runs(self, epoch: Epochs, rows: Int64) -> Runs:
        """The tokens of each row."""

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block take in epochs of a phase."""

    def spans(self, epoch: Epochs, rows: Int64) -> Spans:
        """The documents in each row."""

    def costs(self, epoch: Epochs, rows: Int64) -> Int64:
        """Tokens of each row."""

    def warn_if_unaligned(self) -> None:
        """Say so when rows and io blocks do not fit each other."""


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
        self._counted: dict[int, tuple[int, int, int]] = {}  # phase → (epoch, rows, tokens)

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""
        order = self._orders.get(epoch)
        if order is None:
            phase = int(self.phases.of(epoch))
            if self.shuffle is None:
                order = identity(int(self.phases.rows[phase]))
            else:
                order = self.shuffle.order(self._blocks[phase], self.seed, epoch, self.name)
            kept = dict(list(self._orders.items())[-KEPT_ORDERS + 1 :])
            self._orders = kept | {epoch: order}  # another thread may be reading the old one
        return order

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index [N]."""
        flat = checked(indices, self.n, "index")
        if not len(flat):
            return flat, flat
        epoch, inside = self.phases.locate(flat)
        first = int(epoch[0])
        if (epoch == first).all():
            return epoch, self.order(first).map(inside)
        row = np.empty_like(flat)
        for number, here in grouped(epoch):
            row[here] = self.order(number).map(inside[here])
        return epoch, row

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
            if found is not None:
                out[here] = found
        return out

    # -- tokens ----------------------------------------------------------------------------

    def tokens_in(self, examples: int) -> int:
        """Tokens of the first examples of the run.

        Where rows have tokens of their own, those of an epoch that is not complete are counted; of
        these, when asked again further on, only what came since.
        """
        if not self.rows:
            return 0
        ends = [*self.phases.first[1:].tolist(), examples]
        begins = self.phases.first.tolist()
        return sum(
            self._tokens_of(phase, min(end, examples) - begin)
            for phase, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if begin < examples
        )

    def _tokens_of(self, phase: int, examples: int) -> int:
        """Tokens of the first examples of a phase."""
        first, rows = int(self.phases.epoch[phase]), int(self.phases.rows[phase])
        epochs, rest = divmod(examples, rows)
        usual, last = self.layout.row_tokens or (None, None)
        if usual is None or last is None:
            return self._count(phase, first, epochs, rest)
        total = self.layout.tokens(first, first + epochs) + rest * usual
        if rest and last != usual:  # has the one short row been among them?
            place = self.order(first + epochs).inverse(np.array([rows - 1]))[0]
            total -= (usual - last) * int(place < rest)
        return total

    def _count(self, phase: int, first: int, epochs: int, rest: int) -> int:
        """The same, row by row in the epoch that is not complete."""
        epoch = first + epochs
        known, upto, total = self._counted.get(phase, (-1, 0, 0))
        if known != epoch or upto > rest:
            upto, total = 0, self.layout.tokens(first, epoch)
        for low in range(upto, rest, COUNTED_TOGETHER):
            inside = np.arange(low, min(low + COUNTED_TOGETHER, rest))
            total += int(self.layout.costs(epoch, self.order(epoch).map(inside)).sum())
        self._counted[phase] = epoch, rest, total
        return total

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
