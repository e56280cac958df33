"""Randomness by name: a key is the hash of a path, so nothing depends on what was drawn before.

One idea: ``key(seed, "wiki", "order", 3)`` names one random choice. Another source, another epoch
or another purpose is another path, and so an unrelated key; adding a source to a run leaves the
keys of all others alone. There is no generator whose state could be lost.

Words are mixed by the finaliser of splitmix64 in exact integers modulo 2^64, so keys are the same
on every machine and in every version of NumPy. Strings and integers never collide: each part starts
with its kind, and a string also with its length. Golden values are pinned by
``tests/mission/test_order_digests.py``; changing any of them requires a new order version.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import UInt64
from tokenloom.errors import ConfigError

GOLDEN = 0x9E3779B97F4A7C15

_A, _B = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

_MASK = (1 << 64) - 1

_INTEGER, _STRING = 1, 2  # the first word of a part of a path


def mix(word: int) -> int:
    """The finaliser of splitmix64: a bijection of 64-bit words that spreads every bit.

    >>> mix(GOLDEN)  # the first output of splitmix64 seeded with 0
    16294208416658607535
    """
    word = ((word ^ (word >> 30)) * _A) & _MASK
    word = ((word ^ (word >> 27)) * _B) & _MASK
    return word ^ (word >> 31)


def mixed(words: UInt64) -> UInt64:
    """`mix` of every word [N]."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_A)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_B)
    return words ^ (words >> np.uint64(31))


def check_seed(seed: int, where: str = "seed") -> int:
    """The seed, if it is valid: any integer from 0 to 2^64 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ConfigError(f"{where}: found {seed!r}, allowed: an integer from 0 to 2^64 - 1.")
    if not 0 <= seed <= _MASK:
        raise ConfigError(f"{where}: found {seed}, allowed: an integer from 0 to 2^64 - 1.")
    return int(seed)


def key(seed: int, *path: str | int) -> int:
    """The key of a named path.

    >>> key(7, "wiki", "order", 0) == key(7, "wiki", "order", 0)
    True
    >>> key(7, "wiki", "order", 0) == key(7, "wiki", "order", 1)
    False
    """
    return child(mix((check_seed(seed) + GOLDEN) & _MASK), *path)


def child(parent: int, *path: str | int) -> int:
    """The key further down the path: ``child(key(7, "a"), "b")`` is ``key(7, "a", "b")``."""
    state = parent
    for part in path:
        for word in _words(part):
            state = mix(((state ^ word) + GOLDEN) & _MASK)
    return state


def children(parent: int, numbers: UInt64) -> UInt64:
    """``child(parent, n)`` of every number [N].

    >>> children(5, np.arange(3, dtype=np.uint64)).tolist() == [child(5, n) for n in range(3)]
    True
    """
    state = mix(((parent ^ _INTEGER) + GOLDEN) & _MASK)
    return mixed((np.uint64(state) ^ numbers) + np.uint64(GOLDEN))


def below(parents: UInt64, *path: str | int) -> UInt64:
    """``child(parent, *path)`` of every parent [N].

    >>> below(np.arange(2, dtype=np.uint64), "a", 7).tolist() == [child(n, "a", 7) for n in (0, 1)]
    True
    """
    state = parents
    for part in path:
        for word in _words(part):
            state = mixed((state ^ np.uint64(word)) + np.uint64(GOLDEN))
    return state


def named(parent: int, names: Sequence[str]) -> UInt64:
    """``child(parent, name)`` of every name [N].

    >>> named(5, ["a", "", "tokenloom"]).tolist() == [child(5, n) for n in ("a", "", "tokenloom")]
    True
    """
    data = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return named_texts(parent, ends, np.frombuffer(b"".join(data), np.uint8))


def named_texts(parent: int, ends: NDArray[np.int64], data: NDArray[np.uint8]) -> UInt64:
    """``child(parent, name)`` of every name, given as bytes of UTF-8 end to end [N].

    Args:
        parent: the key above them.
        ends: where each name starts, and where the last one ends [N + 1].
        data: the bytes of all names.
    """
    size = np.diff(ends)
    state = np.full(len(size), mix(((parent ^ _STRING) + GOLDEN) & _MASK), np.uint64)
    state = mixed((state ^ size.astype(np.uint64)) + np.uint64(GOLDEN))
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    # the eight bytes from each byte on, as a word: no copy of the bytes
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    here, place = np.flatnonzero(size > 0), 0
    while len(here):  # a shorter name has no such word
        left = size[here] - place
        found = words[ends[:-1][here] + place]
        cut = (8 * (8 - np.minimum(left, 8))).astype(np.uint64)  # bits of the next name
        found = found << cut >> cut
        state[here] = mixed((state[here] ^ found) + np.uint64(GOLDEN))
        place += 8
        here = here[left > 8]
    return state


def draw(stream: int, number: int) -> int:
    """Word `number` of the splitmix64 stream that a key names, without the words before it."""
    return mix((stream + (number + 1) * GOLDEN) & _MASK)


def draws(stream: int | UInt64, numbers: UInt64) -> UInt64:
    """`draw` of every number; `stream` is one key, or keys that broadcast against `numbers`.

    >>> draws(3, np.arange(4, dtype=np.uint64)).tolist() == [draw(3, n) for n in range(4)]
    True
    """
    key = np.uint64(stream) if isinstance(stream, int) else stream
    return mixed(key + (numbers + np.uint64(1)) * np.uint64(GOLDEN))


def _words(part: str | int) -> list[int]:
    """A part of a path as 64-bit words that no other part shares."""
    if isinstance(part, str):
        data = part.encode("utf-8", "surrogatepass")
        words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
        return [_STRING, len(data), *words]
    whole = isinstance(part, (int, np.integer)) and not isinstance(part, bool)
    if not whole or not 0 <= part <= _MASK:
        raise ConfigError(f"key: found {part!r} in a path, allowed: strings and 0 to 2^64 - 1.")
    return [_INTEGER, int(part)]
