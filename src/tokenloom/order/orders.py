"""Orders: which row comes at which index, as bijections with an inverse.

One idea: an order is a function, never a list. ``map(indices)`` gives the rows at any indices and
``inverse(rows)`` the indices of any rows, in time that depends only on the request.

- `full` shuffles all rows together;
- `era` shuffles each stretch of `length` rows on its own, which also works for endless datasets;
- `block` follows the storage: blocks in shuffled order, rows mixed inside windows of blocks
  (`tokenloom.order.block_order`).

Every (source, epoch) has keys of its own, so no epoch repeats the order of another. With
`perm_type` "levanter" or "levanter_linear" the seed is Levanter's key as an integer (the two words
of a JAX key in one), and epoch 0 is Levanter's order to the bit.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_between
from tokenloom.arrays import Int64, answered
from tokenloom.errors import ConfigError
from tokenloom.layout.layout import Blocks
from tokenloom.order.block_order import BlockOrder
from tokenloom.order.shuffle_windows import OrderKeys, ShuffleWindows


class Order(Protocol):
    """A bijection of range(n).

    >>> order = full(5, seed=0)
    >>> order.map([3, 0]).tolist(), order.inverse(order.map([3, 0])).tolist()
    ([3, 1], [3, 0])
    """

    def __len__(self) -> int: ...

    def map(self, indices: Any) -> Int64:
        """The row at each index, in the shape given."""

    def inverse(self, rows: Any) -> Int64:
        """The index of each row, in the shape given."""

    def fractions(self, indices: Any) -> NDArray[np.float64] | None:
        """Lane over lanes of each index, in [0, 1); None for an order without lanes."""

    @property
    def window_rows(self) -> int:
        """Rows of the first window that is mixed; 0 where there is none, as in stored order."""


def identity(n: int | None) -> Order:
    """Rows in stored order; `n` None is endless.

    >>> identity(3).map([2, 0]).tolist()
    [2, 0]
    """
    return _Identity(_check_rows(n))


def full(
    n: int, *, seed: int, epoch: int = 0, perm_type: str = "feistel", source: str = "main"
) -> Order:
    """All rows shuffled together.

    >>> full(5, seed=0).map([0, 1, 2, 3, 4]).tolist()
    [1, 2, 0, 3, 4]
    """
    _refuse_endless(n, "full")
    keys = OrderKeys(seed, epoch, perm_type, source)
    return _Eras(n, max(1, n), ShuffleWindows(keys.only, perm_type))


def era(
    n: int | None,
    length: int,
    *,
    seed: int,
    epoch: int = 0,
    perm_type: str = "feistel",
    source: str = "main",
) -> Order:
    """Rows shuffled inside stretches of `length`, the last one shorter; `n` None is endless.

    >>> era(6, 3, seed=0).map(range(6)).tolist()
    [0, 1, 2, 5, 3, 4]
    """
    check_between("era length", length, 1)
    keys = OrderKeys(seed, epoch, perm_type, source)
    longest = (1 << 63) - 1 if n is None else max(1, n)
    return _Eras(n, min(length, longest), ShuffleWindows(keys.eras, perm_type))


def block(
    n: int | Blocks | None,
    io_block_size: int | None = None,
    window_blocks: int = 8,
    *,
    lanes: int = 1,
    seed: int,
    epoch: int = 0,
    perm_type: str = "feistel",
    source: str = "main",
    infinite: str = "refuse",
) -> Order:
    """Blocks in shuffled order, rows shuffled inside windows of blocks.

    Args:
        n: number of rows; or `Blocks` of any sizes; None is endless, see `infinite`.
        io_block_size: rows of a block, when `n` is a number.
        window_blocks: blocks whose rows are shuffled together.
        lanes: number of windows that are open at once.
        seed: any integer from 0 to 2^64 - 1.
        epoch: every epoch has an order of its own.
        perm_type: kind of permutation, see `tokenloom.random.permute`.
        source: name of the source, part of the key.
        infinite: what to do with endless rows: "refuse", because blocks can only be permuted when
            all are known; or "era", which shuffles inside stretches as long as a band.

    >>> block(6, 2, 2, seed=1).map(range(6)).tolist()
    [3, 2, 5, 4, 1, 0]
    """
    if infinite not in ("refuse", "era"):
        raise ConfigError(f"infinite: found {infinite!r}, allowed: 'refuse', 'era'.")
    for name, value in (("window_blocks", window_blocks), ("lanes", lanes)):
        check_between(name, value, 1)
    if n is None and infinite == "era" and io_block_size is not None:
        length = io_block_size * window_blocks * lanes
        return era(None, length, seed=seed, epoch=epoch, perm_type=perm_type, source=source)
    n = _as_blocks(n, io_block_size)
    if lanes > 1 and perm_type.startswith("levanter"):
        raise ConfigError(f"lanes: found {lanes}, allowed with perm_type {perm_type!r} is only 1.")
    return BlockOrder(n, window_blocks, lanes, OrderKeys(seed, epoch, perm_type, source))


class _Identity:
    def __init__(self, n: int | None) -> None:
        self.n = n

    def __len__(self) -> int:
        return _length(self.n)

    def map(self, indices: Any) -> Int64:
        return answered(indices, self.n, "index", np.ndarray.copy)

    def inverse(self, rows: Any) -> Int64:
        return answered(rows, self.n, "row", np.ndarray.copy)

    def fractions(self, indices: Any) -> None:
        return None

    @property
    def window_rows(self) -> int:
        return 0


class _Eras:
    """Stretches of equal length, each permuted on its own; a single one is a full shuffle."""

    def __init__(self, n: int | None, length: int, windows: ShuffleWindows) -> None:
        self.n, self._size, self._windows = _check_rows(n), length, windows
        self._whole = None if n is None else n // length * length  # rows of whole stretches

    def __len__(self) -> int:
        return _length(self.n)

    def map(self, indices: Any) -> Int64:
        return answered(indices, self.n, "index", lambda x: self._through(x, self._windows.forward))

    def inverse(self, rows: Any) -> Int64:
        return answered(rows, self.n, "row", lambda y: self._through(y, self._windows.inverse))

    def fractions(self, indices: Any) -> None:
        return None

    @property
    def window_rows(self) -> int:
        return self._size if self.n is None else min(self._size, self.n)

    def _through(self, x: Int64, window: Any) -> Int64:
        number = x // self._size
        start = number * self._size
        if self.n is None or self._whole is None or not (late := x >= self._whole).any():
            return start + window(self._size, number, x - start)
        out = np.empty_like(x)
        for here, size in ((~late, self._size), (late, self.n - self._whole)):
            if here.any():
                out[here] = start[here] + window(size, number[here], x[here] - start[here])
        return out


def _as_blocks(n: int | Blocks | None, io_block_size: int | None) -> Blocks:
    if isinstance(n, Blocks):
        if io_block_size is not None:
            raise ConfigError(
                "io_block_size: found beside Blocks, which have their own sizes. Leave it out."
            )
        return n
    if io_block_size is None:
        raise ConfigError("io_block_size: missing; give the rows of a block, or give Blocks.")
    _refuse_endless(n, "block")
    return Blocks.equal(cast(int, n), io_block_size)


def _refuse_endless(n: int | None, what: str) -> None:
    if n is None:
        raise TypeError(
            f"n: found None; a {what} shuffle needs a known number of rows. Shuffle endless rows "
            "in stretches: era(None, length), or block(None, …, infinite='era')."
        )


def _check_rows(n: int | None) -> int | None:
    if n is not None and not 0 <= n < 1 << 63:
        raise ConfigError(f"n: found {n}, allowed: 0 to 2^63 - 1.")
    return n


def _length(n: int | None) -> int:
    if n is None:
        raise TypeError(
            "len: this order is endless, so it has no length. Give it a number of rows."
        )
    return n
