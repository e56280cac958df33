"""JAX's random keys without JAX: what Levanter's orders are made from.

A JAX key is two 32-bit words; here it is one integer, ``high << 32 | low``. These are the rules of
the generator threefry2x32 in its partitionable form, the default since JAX 0.5 (older runs have
other orders).

Checked against vectors that JAX and Levanter wrote: ``tests/golden/levanter_orders.json``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["fold_in", "folded", "pcg64_seed", "split"]

UInt64 = NDArray[np.uint64]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_LOW = 0xFFFFFFFF


def folded(key: int, numbers: UInt64) -> UInt64:
    """The keys ``fold_in(key, n)`` of every number [N]; ``split(key, m)`` are those of 0 to m-1.

    >>> [hex(k) for k in folded(0, np.arange(2, dtype=np.uint64)).tolist()]
    ['0x6b20015999ba4efe', '0x375f238fcddb151d']
    """
    first, second = np.uint32(key >> 32), np.uint32(key & _LOW)
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


def pcg64_seed(key: int) -> int:
    """``jax.random.randint(key, (), 0, 2**30)``, which Levanter seeds NumPy with."""
    word = fold_in(split(key)[1], 0)
    return ((word >> 32) ^ (word & _LOW)) % (1 << 30)
