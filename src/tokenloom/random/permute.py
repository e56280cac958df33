"""Permutations of range(n): any index, forward and back, exact up to n = 2^63.

One idea: a permutation is a function with an inverse, not a list, so index 10^12 costs the same as
index 0. Many permutations of one size (the shuffle windows of a store) are one object, and a
request names a permutation for each index: there is no Python loop over windows.

=================  ==============================================================================
`feistel`          n <= 4,096: sort the indices by a keyed hash (`HashSort`, uniform); above: eight
                   rounds of a Feistel network on Z_a x Z_b, a = ceil(sqrt(n)), b = ceil(n / a)
                   (Black and Rogaway 2002); outputs of n or more go through again
`linear`           a x + b mod n, in exact integers: a bijection, but a poor shuffle
`levanter`         the five weak rounds that Levanter publishes, to the bit
`levanter_linear`  Levanter's a x + b mod n, to the bit while its float64 is exact
=================  ==============================================================================

A round adds a keyed hash of one half to the other: ``l += F(r) mod a``, then ``r += F(l) mod b``;
the inverse subtracts in reverse. Since a b exceeds n by at most a factor 1 + 1/sqrt(n), almost no
output needs a second pass. `python -m benchmarks order` prints the cost per index.

Single places of many permutations: each index in a permutation of its own size and key.

A request that asks a thousand shuffle windows for one row each needs a thousand places,
not a thousand tables. `scattered` gives what `tokenloom.random.permute.permutations` gives with
"feistel", place by place:

============  ===================================================================================
n <= 4,096    the place of an index is the rank of its hash: the hashes of the window are computed
              and compared, not sorted (compiled: 1 to 3 ns a row of the window; a table costs 25)
above         the rounds of the Feistel network, each index with sizes of its own (0.5 µs)
============  ===================================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom import native
from tokenloom.arguments import one_of
from tokenloom.arrays import Int64, UInt64
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.random import levanter
from tokenloom.random.keys import draw, draws
from tokenloom.random.levanter import Words

Which = NDArray[np.int64] | None

PERM_TYPES = ("feistel", "linear", "levanter", "levanter_linear")

SMALL = 4096  # up to this n an order is a sorted table

ROUNDS = 8

MAX_N = 1 << 63

_32 = np.uint64(32)

_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def permutations(n: int, keys: Sequence[int] | UInt64, perm_type: str = "feistel") -> Permutations:
    """One permutation of range(n) for each key.

    >>> five = permutations(5, [42])
    >>> five.forward(np.arange(5, dtype=np.uint64)).tolist()
    [4, 1, 2, 3, 0]
    >>> five.inverse(five.forward(np.arange(5, dtype=np.uint64))).tolist()
    [0, 1, 2, 3, 4]
    """
    check_perm_type(perm_type)
    if not 0 < n <= MAX_N:
        raise ConfigError(f"n: found {n}, allowed: 1 to 2^63.")
    words = np.asarray(keys, np.uint64)
    if perm_type == "feistel":
        return HashSort(hash_sorted(n, words)) if n <= SMALL else Feistel(n, words)
    if perm_type == "linear":
        return Linear(n, [_draw_linear(n, int(key)) for key in words])
    if perm_type == "levanter":
        return LevanterFeistel(n, words)
    return Linear(n, [_draw_levanter_linear(n, int(key)) for key in words])


def check_perm_type(perm_type: str) -> None:
    """Refuse a name that is not in `PERM_TYPES`."""
    one_of("perm_type", perm_type, PERM_TYPES)


def hash_sorted(n: int, keys: UInt64) -> NDArray[np.uint16]:
    """For each key, the indices of range(n) sorted by their hashes [keys, n]; n <= 4,096.

    The index replaces the low 12 bits of its hash. No two words are equal then, so every sorting
    algorithm gives the same order.
    """
    if n > SMALL:
        raise ValueError(f"n: found {n}, allowed: up to {SMALL}")
    index = np.arange(n, dtype=np.uint64)
    hashes = draws(keys[:, None], index[None, :])
    hashes &= np.uint64(~(SMALL - 1) & (1 << 64) - 1)
    hashes |= index
    hashes.sort(axis=1)
    return (hashes & np.uint64(SMALL - 1)).astype(np.uint16)


class HashSort:
    """Permutations as sorted tables: index x goes to ``table[which, x]``."""

    def __init__(self, table: NDArray[np.uint16]) -> None:
        self.n = table.shape[1]
        self._table = table
        self._back: NDArray[np.uint16] | None = None

    def forward(self, x: UInt64, which: Which = None) -> UInt64:
        """Where index x goes [N]; `which` permutation [N], or None if there is only one."""
        return _look_up(self._table, x, which)

    def inverse(self, y: UInt64, which: Which = None) -> UInt64:
        """The index that goes to y [N]."""
        if self._back is None:
            back = np.empty_like(self._table)
            index = np.arange(self.n, dtype=np.uint16)
            np.put_along_axis(back, self._table.astype(np.int64), index[None, :], axis=1)
            self._back = back
        return _look_up(self._back, y, which)


def _look_up(table: NDArray[np.uint16], x: UInt64, which: Which) -> UInt64:
    # one flat gather: a pair of index arrays costs twice as much
    place = x.astype(np.int64)
    if which is not None:
        place += which * table.shape[1]
    return table.ravel()[place].astype(np.uint64)


class Feistel:
    """A generalised Feistel network with a strong round function; any n up to 2^63."""

    def __init__(self, n: int, keys: UInt64) -> None:
        self.n = n
        self._side = side = math.isqrt(n - 1) + 1
        self._a, self._b = np.uint64(side), np.uint64(-(-n // side))
        rounds = np.arange(ROUNDS, dtype=np.uint64)
        self._keys = draws(keys[None, :], rounds[:, None])  # [rounds, keys]

    def forward(self, x: UInt64, which: Which = None) -> UInt64:
        """See `HashSort`."""
        return self._through(x, which, backwards=False)

    def inverse(self, y: UInt64, which: Which = None) -> UInt64:
        """See `HashSort`."""
        return self._through(y, which, backwards=True)

    def _through(self, x: UInt64, which: Which, *, backwards: bool) -> UInt64:
        if native.compiled is None:

            def once(x: UInt64, of: Which) -> UInt64:
                rounds = self._keys[:, :1] if of is None else self._keys.take(of, axis=1)
                return _once(self._a, self._b, rounds, x, backwards)

            return _walk(x, which, self.n, once)
        of = None if which is None else native.plain(which, np.int64)
        words, keys = native.plain(x, np.uint64), np.ascontiguousarray(self._keys)
        out = np.empty(len(x), np.uint64)
        native.compiled.feistel(words, of, keys, self.n, self._side, backwards, out)
        return out


def _once(
    a: np.uint64 | UInt64, b: np.uint64 | UInt64, rounds: UInt64, x: UInt64, backwards: bool
) -> UInt64:
    """All rounds, given the numbers of left and right halves and the keys of each [rounds, N]."""
    left = x // b
    right = x - left * b
    for number in reversed(range(ROUNDS)) if backwards else range(ROUNDS):
        half, other, size = (left, right, a) if number % 2 == 0 else (right, left, b)
        moved = _hash_of_half(other, rounds[number], size)
        if backwards:
            half -= moved
            np.minimum(half, half + size, out=half)  # half + size wraps back unless half >= 0
        else:
            half += moved
            np.minimum(half, half - size, out=half)  # half - size wraps to the top below size
    return left * b + right


def _hash_of_half(half: UInt64, key: UInt64, size: np.uint64 | UInt64) -> UInt64:
    """The round function: a keyed hash of one half, spread evenly over [0, size), size < 2^32."""
    out = half ^ key
    out *= _A
    out ^= out >> _32
    out *= _B
    out >>= _32
    out *= size
    out >>= _32
    return out


def _walk(x: UInt64, which: Which, n: int, once: Callable[[UInt64, Which], UInt64]) -> UInt64:
    """Apply a permutation of a larger range until the result is below n (cycle walking)."""
    chunk = limits().permutation_chunk_indices
    out = np.empty(len(x), np.uint64)
    limit = np.uint64(n)
    for start in range(0, len(x), chunk):
        here = slice(start, start + chunk)
        of = None if which is None else which[here]
        y = once(x[here], of)
        beyond = np.flatnonzero(y >= limit)
        while beyond.size:
            again = once(y[beyond], None if of is None else of[beyond])
            y[beyond] = again
            beyond = beyond[again >= limit]
        out[here] = y
    return out


class Linear:
    """a x + b mod n for each pair (a, b), with a coprime to n."""

    def __init__(self, n: int, pairs: Sequence[tuple[int, int]]) -> None:
        self.n = n
        self._a = np.array([a for a, _ in pairs], np.uint64)
        self._b = np.array([b for _, b in pairs], np.uint64)
        self._back = np.array([pow(a, -1, n) if n > 1 else 0 for a, _ in pairs], np.uint64)

    def forward(self, x: UInt64, which: Which = None) -> UInt64:
        """See `HashSort`."""
        a, b = self._of(self._a, which), self._of(self._b, which)
        y = _times(a, x, self.n) + b  # below 2 n
        n = np.uint64(self.n)
        return np.where(y >= n, y - n, y)

    def inverse(self, y: UInt64, which: Which = None) -> UInt64:
        """See `HashSort`."""
        n = np.uint64(self.n)
        b = self._of(self._b, which)
        moved = np.where(y >= b, y - b, y + (n - b))
        return _times(self._of(self._back, which), moved, self.n)

    @staticmethod
    def _of(values: UInt64, which: Which) -> UInt64:
        return values if which is None else values[which]


def _times(a: UInt64, x: UInt64, n: int) -> UInt64:
    """The product a x mod n in 64-bit words, for a, x < n <= 2^63.

    Below 2^32 the product fits. Above, a is split into digits short enough that neither digit times
    x nor remainder times base overflows 64 bits: n of 40 bits takes two digits of 24 bits.
    """
    size = np.uint64(n)
    bits = max(1, (n - 1).bit_length())
    if bits <= 32:
        return a * x % size
    digit = np.uint64(64 - bits)
    mask = np.uint64((1 << (64 - bits)) - 1)
    total = np.zeros(len(x), np.uint64)
    for shift in range((bits - 1) // (64 - bits) * (64 - bits), -1, -(64 - bits)):
        part = (a >> np.uint64(shift)) & mask
        total = (total << digit) % size + part * x % size
        total = np.where(total >= size, total - size, total)
    return total


def _draw_linear(n: int, key: int) -> tuple[int, int]:
    """(a, b) from a key: the first draw that is coprime to n, and the draw after it."""
    if n == 1:
        return 1, 0
    number = 0
    while True:
        a = 1 + (draw(key, number) * (n - 1) >> 64)
        number += 1
        if math.gcd(a, n) == 1:
            return a, draw(key, number) * n >> 64


def _draw_levanter_linear(n: int, key: int) -> tuple[int, int]:
    if n == 1:
        return 1, 0
    words = Words(levanter.pcg64_seed(key))
    while True:
        a = words.bounded(1, n)
        if math.gcd(a, n) == 1:
            return a, words.bounded(0, n)


@functools.lru_cache(maxsize=1 << 14)
def _levanter_round_keys(key: int, half: int) -> tuple[int, ...]:
    words = Words(levanter.pcg64_seed(key))
    return tuple(words.bounded(0, 1 << half) for _ in range(LevanterFeistel.ROUNDS))


class LevanterFeistel:
    """Levanter's own network: five rounds r C + k, which never carry a bit downwards.

    Kept exact to the bit so that its published tables and its runs can be reproduced. At n = 2^20
    its batches hold only even or only odd indices.
    """

    ROUNDS = 5
    FACTOR = np.uint64(2_654_435_761)

    def __init__(self, n: int, keys: UInt64) -> None:
        self.n = n
        bits = (n - 1).bit_length()
        half = bits - bits // 2
        self._half, self._mask = np.uint64(half), np.uint64((1 << half) - 1)
        drawn = [_levanter_round_keys(key, half) for key in keys.tolist()]
        self._keys = np.array(drawn, np.uint64).reshape(len(keys), self.ROUNDS).T

    def forward(self, x: UInt64, which: Which = None) -> UInt64:
        """See `HashSort`."""
        return _walk(x, which, self.n, self._encrypt)

    def inverse(self, y: UInt64, which: Which = None) -> UInt64:
        """See `HashSort`."""
        return _walk(y, which, self.n, self._decrypt)

    def _encrypt(self, x: UInt64, which: Which) -> UInt64:
        high, low = x >> self._half, x & self._mask
        for number in range(self.ROUNDS):
            high, low = low, high ^ self._round(low, number, which)
        return high << self._half | low

    def _decrypt(self, y: UInt64, which: Which) -> UInt64:
        high, low = y >> self._half, y & self._mask
        for number in reversed(range(self.ROUNDS)):
            high, low = low ^ self._round(high, number, which), high
        return high << self._half | low

    def _round(self, half: UInt64, number: int, which: Which) -> UInt64:
        key = self._keys[number, 0] if which is None else self._keys[number][which]
        return (half * self.FACTOR + key) & self._mask


Permutations = HashSort | Feistel | Linear | LevanterFeistel
"""Permutations of range(n), one for each key."""


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
        return ((words < own) & inside).sum(axis=1).astype(np.uint64)
    words[~inside] = np.iinfo(np.uint64).max
    words.sort(axis=1)
    return np.take_along_axis(words, x[:, None], axis=1)[:, 0] & np.uint64(SMALL - 1)


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
