"""The shuffle of a source as a setting: what the user passes, and the integers it resolves to.

One setting: ``False`` (stored order), ``True`` (`FullShuffle`), an integer (`EraShuffle` of that
length), or a `BlockShuffle`. Numbers that are not given are resolved once, from the layout, and
written into `Dataset.describe()`; they are never computed again.

A block shuffle mixes rows inside a window of blocks, and the window must fit into memory. It takes
`window_blocks` x `io_block_size` x `seq_len` x the bytes of a token. If batches look too much
alike, raise `window_blocks` before anything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenloom.arguments import check_between
from tokenloom.bind import BindError, bind, check_fields, unbind
from tokenloom.errors import ConfigError
from tokenloom.layout.layout import Blocks
from tokenloom.order import Order, block, era, full
from tokenloom.order.shuffle_windows import ShuffleWindows, epoch_windows
from tokenloom.random.permute import check_perm_type

BAND_TOKENS = 1 << 27  # tokens mixed together by default

BAND_BLOCKS = (2, 512)


@dataclass(frozen=True, kw_only=True, slots=True)
class FullShuffle:
    """All rows shuffled together."""

    perm_type: str = "feistel"

    def __post_init__(self) -> None:
        check_fields(self)
        check_perm_type(self.perm_type)

    def resolve(self, blocks: Blocks, block_tokens: float) -> FullShuffle:
        """There is nothing left open."""
        return self

    def order(self, blocks: Blocks, seed: int, epoch: int, source: str) -> Order:
        """The order of one epoch."""
        return full(blocks.rows, seed=seed, epoch=epoch, perm_type=self.perm_type, source=source)

    def epochs(self, seed: int, source: str) -> ShuffleWindows:
        """The orders of all epochs: window e has the rows of epoch e."""
        return epoch_windows(seed, self.perm_type, source)

    def working_blocks(self, blocks: Blocks) -> int:
        """Blocks whose rows are needed at the same time."""
        return len(blocks)


@dataclass(frozen=True, kw_only=True, slots=True)
class EraShuffle:
    """Rows shuffled inside stretches of `length`."""

    length: int
    perm_type: str = "feistel"

    def __post_init__(self) -> None:
        check_fields(self)
        check_perm_type(self.perm_type)
        if self.length < 1:
            raise ConfigError(f"shuffle: found era length {self.length}, allowed: 1 or more.")

    def resolve(self, blocks: Blocks, block_tokens: float) -> EraShuffle:
        """There is nothing left open."""
        return self

    def order(self, blocks: Blocks, seed: int, epoch: int, source: str) -> Order:
        """The order of one epoch."""
        return era(
            blocks.rows,
            self.length,
            seed=seed,
            epoch=epoch,
            perm_type=self.perm_type,
            source=source,
        )

    def working_blocks(self, blocks: Blocks) -> int:
        """Blocks whose rows are needed at the same time."""
        mean = max(1, blocks.rows // max(1, len(blocks)))
        return min(len(blocks), self.length // mean + 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockShuffle:
    """Storage-local blocks in shuffled order, rows shuffled inside windows of blocks.

    Attributes:
        io_block_size: rows of a block; None takes the blocks of the layout.
        window_blocks: blocks that are mixed together; None takes 128 Mi tokens or 512 blocks,
            whichever is less, over all lanes.
        lanes: windows that are open at once; with 8 times the ranks or more, each rank keeps to
            its own windows.
        perm_type: kind of permutation, see `tokenloom.random.permute`.
        shuffle_block_size: rows of the unit to shuffle, if larger than a block.
        cache_windows: windows to keep in memory, instead of the cache that all stores share.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(1).block_shuffle(BlockShuffle(io_block_size=2, window_blocks=2))
    ...     bytes(run.batch(range(8)).tokens[:, 0].tolist())
    b'fedcgahb'
    """

    io_block_size: int | None = None
    window_blocks: int | None = None
    lanes: int = 1
    perm_type: str = "feistel"
    shuffle_block_size: int | None = None
    cache_windows: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_perm_type(self.perm_type)
        for name in (
            "io_block_size",
            "window_blocks",
            "lanes",
            "shuffle_block_size",
            "cache_windows",
        ):
            check_between(f"block_shuffle.{name}", getattr(self, name), 1)
        if self.lanes > 1 and self.perm_type.startswith("levanter"):
            raise ConfigError(
                f"block_shuffle.lanes: found {self.lanes}, allowed with perm_type "
                f"{self.perm_type!r} is only 1."
            )

    @staticmethod
    def published() -> BlockShuffle:
        """The setting of the published design: windows of 8 blocks, 8 of them in memory."""
        return BlockShuffle(window_blocks=8, cache_windows=8)

    def blocks(self, blocks: Blocks) -> Blocks:
        """The blocks of a layout as this shuffle divides them."""
        if self.io_block_size is not None and self.io_block_size != blocks.size:
            blocks = Blocks.equal(blocks.rows, self.io_block_size)
        if self.shuffle_block_size is not None:
            blocks = blocks.merged(self.shuffle_block_size)
        return blocks

    def resolve(self, blocks: Blocks, block_tokens: float) -> BlockShuffle:
        """A copy with all numbers resolved; `block_tokens` is the mean tokens per block."""
        divided = self.blocks(blocks)
        tokens = block_tokens * (len(blocks) or 1) / (len(divided) or 1)
        low, high = BAND_BLOCKS
        band = min(max(int(BAND_TOKENS // max(1.0, tokens)), low), high)
        return replace(
            self,
            io_block_size=self.io_block_size or blocks.size or None,
            window_blocks=self.window_blocks or max(1, band // self.lanes),
        )

    def order(self, blocks: Blocks, seed: int, epoch: int, source: str) -> Order:
        """The order of one epoch."""
        assert self.window_blocks is not None  # resolved
        return block(
            self.blocks(blocks),
            window_blocks=self.window_blocks,
            lanes=self.lanes,
            seed=seed,
            epoch=epoch,
            perm_type=self.perm_type,
            source=source,
        )

    def working_blocks(self, blocks: Blocks) -> int:
        """Blocks whose rows are needed at the same time."""
        assert self.window_blocks is not None  # resolved
        divided = self.blocks(blocks)
        if blocks.size:
            together = divided.size // blocks.size
        else:
            together = math.ceil(len(blocks) / max(1, len(divided)))
        return min(len(blocks), self.window_blocks * self.lanes * together)


Shuffle = FullShuffle | EraShuffle | BlockShuffle

_KINDS: dict[str, type[Shuffle]] = {"full": FullShuffle, "era": EraShuffle, "block": BlockShuffle}


def parse_shuffle(
    shuffle: bool | int | Shuffle | None, block_shuffle: BlockShuffle | None = None
) -> Shuffle | None:
    """The shuffle that a user gives as `shuffle`, or as `block_shuffle`, its other name.

    >>> parse_shuffle(True), parse_shuffle(1024), parse_shuffle(False)
    (FullShuffle(perm_type='feistel'), EraShuffle(length=1024, perm_type='feistel'), None)
    """
    if block_shuffle is not None:
        if shuffle is not None and shuffle is not False:
            raise ConfigError(
                f"shuffle, block_shuffle: found both, {shuffle!r} and {block_shuffle!r}; they are "
                "one setting. Give one of them."
            )
        return block_shuffle
    if shuffle is None or shuffle is False:
        return None
    if shuffle is True:
        return FullShuffle()
    if isinstance(shuffle, (FullShuffle, EraShuffle, BlockShuffle)):
        return shuffle
    if isinstance(shuffle, (int, np.integer)):
        return EraShuffle(length=shuffle)
    raise ConfigError(
        f"shuffle: found {shuffle!r}, allowed: False, True, the length of an era, or a shuffle "
        "such as BlockShuffle(...)."
    )


def describe_shuffle(shuffle: Shuffle | None) -> dict[str, Any] | None:
    """The shuffle as plain JSON."""
    if shuffle is None:
        return None
    kind = next(name for name, cls in _KINDS.items() if isinstance(shuffle, cls))
    fields = unbind(shuffle)
    if fields.get("cache_windows", 0) is None:  # most users have one cache for all stores
        del fields["cache_windows"]
    return {"kind": kind, **fields}


def shuffle_identity(shuffle: Shuffle | None) -> dict[str, Any] | None:
    """What decides the order, as plain JSON: how much is kept in memory does not."""
    found = describe_shuffle(shuffle)
    return found and {key: value for key, value in found.items() if key != "cache_windows"}


def rebuild_shuffle(described: Any, path: str = "$.shuffle") -> Shuffle | None:
    """The shuffle that `describe_shuffle` described, or that a configuration file gives.

    By hand one may write what `parse_shuffle` takes, or the fields of a block shuffle alone.

    >>> rebuild_shuffle({"window_blocks": 8}).window_blocks, rebuild_shuffle(1024).length
    (8, 1024)
    """
    if described is None or isinstance(described, (bool, int)):
        return parse_shuffle(described)
    if not isinstance(described, Mapping):
        allowed = "true, false, the length of an era, or fields such as {window_blocks: 8}"
        raise BindError([f"{path}: found {described!r}, allowed: {allowed}"])
    kind = described.get("kind", "block")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BindError([f"{path}.kind: found {kind!r}, allowed: {', '.join(_KINDS)}"])
    fields = {key: value for key, value in described.items() if key != "kind"}
    return bind(_KINDS[kind], fields, path=path)
