"""The random numbers of Levanter's orders: JAX keys without JAX, and bounded integers of NumPy.

NumPy promises that the words of `PCG64` stay the same, but its distributions may change with a
release. So `Words` takes the words and draws from them itself (Lemire 2019).

A JAX key is two 32-bit words; here it is one integer, ``high << 32 | low``. `folded`, `fold_in` and
`split` follow the generator threefry2x32 in its partitionable form, the default since JAX 0.5
(older runs have other orders).

Checked against vectors that JAX and Levanter wrote: ``tests/golden/levanter_orders.json``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import UInt64


class Words:
    """Bounded integers as ``numpy.random.Generator(PCG64(seed)).integers`` makes them.

    Args:
        seed: 0 to 2^32 - 1.

    >>> words = Words(7)
    >>> [words.bounded(0, 10) for _ in range(8)]
    [9, 6, 6, 8, 5, 7, 8, 2]
    """

    def __init__(self, seed: int) -> None:
        self._stream = np.random.PCG64(seed)
        self._half: int | None = None

    def bounded(self, low: int, high: int) -> int:
        """A number in [low, high)."""
        size = high - low
        if size == 1:
            return low
        bits = 32 if size <= 1 << 32 else 64
        if size == 1 << bits:
            return low + self._word(bits)
        mask = (1 << bits) - 1
        product = self._word(bits) * size
        if product & mask < size:
            threshold = ((1 << bits) - size) % size
            while product & mask < threshold:
                product = self._word(bits) * size
        return low + (product >> bits)

    def _word(self, bits: int) -> int:
        """The next word; the low half of a 64-bit word comes first."""
        if bits == 64:
            return int(self._stream.random_raw())
        if self._half is not None:
            half, self._half = self._half, None
            return half
        word = int(self._stream.random_raw())
        self._half = word >> 32
        return word & _LOW


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

_LOW = 0xFFFFFFFF


def folded(key: int, numbers: UInt64) -> UInt64:
    """The keys ``fold_in(key, n)`` for all numbers [N]; ``split(key, m)`` takes 0 to m - 1.

    >>> [hex(k) for k in folded(0, np.arange(2, dtype=np.uint64)).tolist()]
    ['0x6b20015999ba4efe', '0x375f238fcddb151d']
    """
    return _threefry(np.array([key], np.uint64), numbers)


def _threefry(keys: UInt64, numbers: UInt64) -> UInt64:
    """The block function of threefry2x32, two words in one; keys and numbers are broadcast."""
    first, second = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    schedule = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x = (numbers >> np.uint64(32)).astype(np.uint32) + schedule[0]
    y = (numbers & np.uint64(_LOW)).astype(np.uint32) + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (y << np.uint32(rotation) | y >> np.uint32(32 - rotation))
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x.astype(np.uint64) << np.uint64(32) | y.astype(np.uint64)


def fold_in(key: int, number: int) -> int:
    """``jax.random.fold_in(key, number)``."""
    return int(folded(key, np.array([number], np.uint64))[0])


def split(key: int, count: int = 2) -> list[int]:
    """``jax.random.split(key, count)``."""
    return folded(key, np.arange(count, dtype=np.uint64)).tolist()


def subkeys(key: int) -> Iterator[int]:
    """Levanter's key iterator, which gives every component of a run a key of its own.

    >>> keys = subkeys(0)
    >>> hex(next(keys)), hex(next(keys))
    ('0x375f238fcddb151d', '0x50afc2247e1f9c78')
    """
    while True:
        key, own = split(key)
        yield own


def permuted(keys: UInt64, size: int) -> NDArray[np.uint16]:
    """``jax.random.permutation(key, size)`` for every key [N, size]; a size is below 2^16.

    JAX sorts by random words, and does so again with other words until ties cannot matter.

    >>> permuted(np.array([3], np.uint64), 5).tolist()
    [[0, 4, 2, 1, 3]]
    """
    out = np.tile(np.arange(size, dtype=np.uint16), (len(keys), 1))
    places, halves = np.arange(size, dtype=np.uint64), np.arange(2, dtype=np.uint64)
    for _ in range(math.ceil(3 * np.log(max(1, size)) / np.log(_LOW))):
        keys, sorting = _threefry(keys[:, None], halves).T
        words = _threefry(sorting[:, None], places)
        bits = (words >> np.uint64(32)).astype(np.uint32) ^ words.astype(np.uint32)
        out = np.take_along_axis(out, np.argsort(bits, axis=1, kind="stable"), axis=1)
    return out


def pcg64_seed(key: int) -> int:
    """``jax.random.randint(key, (), 0, 2**30)``, with which Levanter seeds NumPy."""
    word = fold_in(split(key)[1], 0)
    return ((word >> 32) ^ (word & _LOW)) % (1 << 30)
