"""Single places of many permutations: each index in a permutation of its own size and key.

One idea: a request that asks a thousand shuffle windows for one row each needs a thousand places,
not a thousand tables. `scattered` gives what `tokenloom.random.permute.permutations` gives with
"feistel", place by place:

============  ===================================================================================
n <= 4,096    the place of an index is the rank of its hash: the hashes of the window are computed
              and compared, not sorted (compiled: 1 to 3 ns a row of the window; a table costs 25)
above         the rounds of the Feistel network, each index with sizes of its own (0.5 µs)
============  ===================================================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom import native
from tokenloom.limits import limits
from tokenloom.random.keys import draws
from tokenloom.random.permute import ROUNDS, SMALL, hash_of_half

__all__ = ["scattered"]

Int64 = NDArray[np.int64]

UInt64 = NDArray[np.uint64]


def scattered(sizes: Int64, keys: UInt64, x: UInt64, *, backwards: bool) -> UInt64:
    """Where each index goes, or the index that goes there [N].

    Args:
        sizes: how many indices its permutation has [N].
        keys: the key of its permutation [N].
        x: the index, below its size [N].
        backwards: whether to ask for the index that goes to x.

    >>> sizes, keys = np.array([5, 5, 9000]), np.array([42, 42, 7], np.uint64)
    >>> scattered(sizes, keys, np.array([0, 1, 2], np.uint64), backwards=False).tolist()
    [4, 1, 3356]
    """
    chunk = limits().permutation_chunk_indices
    small = sizes <= SMALL
    if small.all():
        return _by_rank(sizes, keys, x, backwards)
    out = np.empty(len(x), np.uint64)
    if small.any():
        out[small] = _by_rank(sizes[small], keys[small], x[small], backwards)
    large = np.flatnonzero(~small)
    for start in range(0, len(large), chunk):
        here = large[start : start + chunk]
        out[here] = _by_rounds(sizes[here].astype(np.uint64), keys[here], x[here], backwards)
    return out


# -- sorted hashes -------------------------------------------------------------------------
def _by_rank(sizes: Int64, keys: UInt64, x: UInt64, backwards: bool) -> UInt64:
    chunk = limits().hash_rank_chunk_hashes
    out = np.empty(len(x), np.uint64)
    if native.compiled is not None:
        plain = native.plain(keys, np.uint64), native.plain(sizes, np.int64)
        native.compiled.hash_rank(*plain, native.plain(x, np.uint64), backwards, out)
        return out
    order = np.argsort(sizes, kind="stable")  # neighbours of one size waste no hashes
    start = 0
    while start < len(order):
        most = max(1, chunk // int(sizes[order[start]]))
        here = order[start : start + most]
        here = here[: max(1, chunk // int(sizes[here[-1]]))]
        out[here] = _ranks(sizes[here], keys[here], x[here].astype(np.int64), backwards)
        start += len(here)
    return out


def _ranks(sizes: Int64, keys: UInt64, x: Int64, backwards: bool) -> UInt64:
    # [N, the largest size]: hashes with the index in the low bits; past its size, none is larger
    index = np.arange(int(sizes.max()), dtype=np.uint64)
    words = draws(keys[:, None], index[None, :])
    words &= np.uint64(~(SMALL - 1) & (1 << 64) - 1)
    words |= index
    inside = index[None, :] < sizes[:, None].astype(np.uint64)
    if backwards:
        own = np.take_along_axis(words, x[:, None], axis=1)
        rank: UInt64 = ((words < own) & inside).sum(axis=1).astype(np.uint64)
        return rank
    words[~inside] = np.iinfo(np.uint64).max
    words.sort(axis=1)
    found: UInt64 = np.take_along_axis(words, x[:, None], axis=1)[:, 0] & np.uint64(SMALL - 1)
    return found


# -- rounds --------------------------------------------------------------------------------
def _by_rounds(sizes: UInt64, keys: UInt64, x: UInt64, backwards: bool) -> UInt64:
    """The network of `tokenloom.random.permute.Feistel` until each result is below its size."""
    a = _sides(sizes)
    b = (sizes + a - np.uint64(1)) // a
    rounds = draws(keys[None, :], np.arange(ROUNDS, dtype=np.uint64)[:, None])
    y = _once(a, b, rounds, x, backwards)
    beyond = np.flatnonzero(y >= sizes)
    while beyond.size:
        again = _once(a[beyond], b[beyond], rounds[:, beyond], y[beyond], backwards)
        y[beyond] = again
        beyond = beyond[again >= sizes[beyond]]
    return y


def _sides(sizes: UInt64) -> UInt64:
    """The square root of each size, rounded up [N]; exact, though float64 is not."""
    side = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    one = np.uint64(1)
    side -= (side - one) * (side - one) >= sizes
    side += side * side < sizes
    return side


def _once(a: UInt64, b: UInt64, rounds: UInt64, x: UInt64, backwards: bool) -> UInt64:
    left = x // b
    right = x - left * b
    for number in reversed(range(ROUNDS)) if backwards else range(ROUNDS):
        half, other, size = (left, right, a) if number % 2 == 0 else (right, left, b)
        moved = hash_of_half(other, rounds[number], size)
        if backwards:
            half += size - moved
        else:
            half += moved
        half -= size * (half >= size)
    found: UInt64 = left * b + right
    return found
