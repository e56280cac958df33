"""Samples of foreign files: of their bytes, to notice a change; of their tokens, as an identity.

One idea: where to look is decided by a key, the sizes of what is looked at, so the same files give
the same sample everywhere and always, and nobody has to remember places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.foreign.described import Described
from tokenloom.foreign.locations import hash_of_ranges
from tokenloom.foreign.pieces import PieceLine
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource, Range

__all__ = ["changed_since", "sample_of_bytes", "sampled_groups", "stamps_of"]

Int64 = NDArray[np.int64]

SAMPLED = 64  # stretches of bytes that are compared whenever a store is opened

SAMPLE_BYTES = 4096

SAMPLE_PLACES, SAMPLE_TOKENS = 1024, 256  # of identity="sample"


def stamps_of(described: Described) -> list[list[Any]]:
    """Name, size and time of every file: [name, bytes, nanoseconds]."""
    return [[name, *described.folder.stamp(name)] for name in described.files]


def changed_since(described: Described, stamps: Sequence[list[Any]]) -> list[str]:
    """The files that have another size or time than they had, or are gone.

    In a bucket none: there every answer is compared with the size and etag that were first seen.
    """
    try:
        now = {name: rest for name, *rest in stamps_of(described)}
    except FileNotFoundError as error:
        return [str(error.filename)]
    return [name for name, *rest in stamps if now.get(name) != rest]


def sample_of_bytes(described: Described, source: ByteSource) -> str:
    """The sha256 of the first and last bytes of every file and of others at keyed places."""
    return hash_of_ranges(source, _looked_at(described), described.root)


def _looked_at(described: Described) -> Iterator[Range]:
    files = stamps_of(described)
    sizes = np.array([size for _, size, _ in files], np.int64)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    places = _places(f"{described.kind}:{int(edges[-1])}", SAMPLED, int(edges[-1]))
    owner = np.searchsorted(edges, places, side="right") - 1
    for number, (name, size, _) in enumerate(files):
        inside = (places[owner == number] - edges[number]).tolist()
        for low in [0, *inside, max(0, size - SAMPLE_BYTES)]:
            yield name, low, min(SAMPLE_BYTES, size - low)


def _places(key: str, count: int, below: int) -> Int64:
    """Places below a bound, ascending, decided by a key."""
    if not below:
        return np.empty(0, np.int64)
    words = [hashlib.sha256(f"{key}:{i}".encode()).digest()[:8] for i in range(count)]
    return np.sort(np.array([int.from_bytes(word, "little") % below for word in words], np.int64))


def sampled_groups(line: PieceLine, lengths: Int64) -> tuple[str, ...]:
    """Digests in place of those of groups, each of all lengths and of sampled tokens."""
    found = hashlib.sha256(b"tokenloom sample of tokens")
    found.update(np.ascontiguousarray(lengths, "<u8").data)
    for ids in line.several(
        (low, min(low + SAMPLE_TOKENS, len(line)))
        for low in _places(str(len(line)), SAMPLE_PLACES, len(line)).tolist()
    ):
        found.update(np.ascontiguousarray(ids, "<u4").data)
    count = fmt.group_count(len(lengths))
    whole = found.digest()
    return tuple(hashlib.sha256(whole + i.to_bytes(8, "little")).hexdigest() for i in range(count))
