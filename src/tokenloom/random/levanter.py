"""The random numbers of Levanter's orders: JAX keys without JAX, and NumPy's PCG64 written out.

`numpy.random` decides no order here, because its distributions may change with a release. `Words`
implements the published algorithms (O'Neill 2014, XSL-RR on 128 bits; Lemire 2019 for bounds) in
exact integers, and a test compares it with NumPy.

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

_32, _64, _ALL = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1

_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


class Words:
    """Bounded integers as ``numpy.random.Generator(PCG64(seed)).integers`` makes them.

    Args:
        seed: 0 to 2^32 - 1.

    >>> words = Words(7)
    >>> [words.bounded(0, 10) for _ in range(8)]
    [9, 6, 6, 8, 5, 7, 8, 2]
    """

    def __init__(self, seed: int) -> None:
        words = _seed_words(seed)
        self._step = words[2] << 65 & _ALL | words[3] << 1 | 1
        self._state = 0
        self._advance()
        self._state = self._state + (words[0] << 64 | words[1]) & _ALL
        self._advance()
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
            return self._word64()
        if self._half is not None:
            half, self._half = self._half, None
            return half
        word = self._word64()
        self._half = word >> 32
        return word & _32

    def _word64(self) -> int:
        """The next output of PCG64: the xor of the state's halves, rotated by its top bits."""
        self._advance()
        folded, turn = (self._state >> 64 ^ self._state) & _64, self._state >> 122
        return (folded >> turn | folded << (64 - turn)) & _64

    def _advance(self) -> None:
        self._state = self._state * _MULTIPLIER + self._step & _ALL


def _seed_words(seed: int) -> list[int]:
    """``SeedSequence(seed).generate_state(4, uint64)``: every bit depends on the whole seed."""
    hashed = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [hashed(word) for word in (seed, 0, 0, 0)]
    for source in range(4):
        for target in range(4):
            if source != target:
                mixed = 0xCA01F9DD * pool[target] - 0x4973F715 * hashed(pool[source]) & _32
                pool[target] = mixed ^ mixed >> 16
    drawn = _Hash(0x8B51F9DD, 0x58F38DED)
    halves = [drawn(pool[i % 4]) for i in range(8)]
    return [halves[2 * i] | halves[2 * i + 1] << 32 for i in range(4)]


class _Hash:
    """A hash of 32-bit words that changes with every call."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant, self._factor = constant, factor

    def __call__(self, value: int) -> int:
        value ^= self._constant
        self._constant = self._constant * self._factor & _32
        value = value * self._constant & _32
        return value ^ value >> 16


UInt64 = NDArray[np.uint64]

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
    keys: list[int] = folded(key, np.arange(count, dtype=np.uint64)).tolist()
    return keys


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
