"""Splits: documents divided by a hash, so that no document ever changes sides.

One idea: the part a document belongs to depends on the document alone, on its id or its content,
never on how many other documents exist. Appending to a store therefore leaves every document in its
part. Parts are disjoint and complete by construction, and with ``by="content"`` equal documents
always land in the same part.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.random.keys import check_seed, children, key, mixed, named_texts
from tokenloom.store.hashes import hash_blocks
from tokenloom.store.reader import Reader

__all__ = ["SplitSpec", "content_hashes", "id_hashes", "members", "part_numbers"]

Int64 = NDArray[np.int64]

UInt64 = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitSpec:
    """One part of a split.

    Attributes:
        names, shares: all parts of the split, in order.
        part: the part to use.
        by: "id" (the document's id, or its number in a store without ids) or "content".
        seed: seed of the split; another seed gives another split.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    part: str
    by: str = "id"
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        one_of("split.by", self.by, ("id", "content"))
        if len(self.names) != len(self.shares) or len(set(self.names)) < len(self.names):
            raise ConfigError(
                f"split: the names {self.names} and shares {self.shares} do not belong together. "
                "Give every part one name of its own and one share."
            )
        _check_shares(dict(zip(self.names, self.shares, strict=True)))
        one_of("split.part", self.part, self.names)

    @property
    def words(self) -> str:
        """The part in a few words, such as "train by id"."""
        return f"{self.part} by {self.by}"

    @staticmethod
    def all_of(shares: Mapping[str, float], by: str, seed: int) -> dict[str, SplitSpec]:
        """The parts of a split by name."""
        _check_shares(shares)
        names, values = tuple(shares), tuple(float(share) for share in shares.values())
        return {
            name: SplitSpec(names=names, shares=values, part=name, by=by, seed=seed)
            for name in names
        }


def _check_shares(shares: Mapping[str, Any]) -> None:
    numbers = all(
        isinstance(share, Real) and float(share) >= 0 for share in shares.values()
    )  # no NaN
    if not numbers or not abs(math.fsum(shares.values()) - 1) <= 1e-9:
        raise ConfigError(
            f"split: the shares {dict(shares)} are not parts of a whole. Give numbers of 0 or more "
            "that add up to 1."
        )


def part_numbers(spec: SplitSpec, hashes: UInt64) -> NDArray[Any]:
    """The number of the part of each document, from its hash [N]."""
    # where parts begin, in units of 2^-64; the last is open, so that rounding loses no document
    kind = np.uint8 if len(spec.names) <= 256 else np.int64
    found: NDArray[Any] = np.zeros(len(hashes), kind)
    for place in range(1, len(spec.names)):
        begin = int(math.fsum(spec.shares[:place]) * 2.0**64)
        found += hashes >= np.uint64(min(begin, (1 << 64) - 1))
    return found


def members(spec: SplitSpec, reader: Reader) -> Int64:
    """The documents of a part, in stored order.

    The parts of all documents are kept with the reader, one byte each, until another split is asked
    for: the next part of the same split takes no second pass over ids or hashes.
    """
    asked = spec.names, spec.shares, spec.by, spec.seed
    known = _PARTS.get(reader)
    if known is None or known[0] != asked:
        hashes = (id_hashes if spec.by == "id" else content_hashes)(reader, spec.seed)
        parts = [part_numbers(spec, some) for some in hashes]
        known = asked, np.concatenate([np.empty(0, np.uint8), *parts])
        _PARTS[reader] = known
    return np.flatnonzero(known[1] == spec.names.index(spec.part))


_PARTS: weakref.WeakKeyDictionary[Reader, tuple[Any, NDArray[Any]]] = weakref.WeakKeyDictionary()


def id_hashes(reader: Reader, seed: int) -> Iterator[UInt64]:
    """A hash of the id of every document, in groups; one without an id uses its number."""
    parent, first = key(seed, "split"), 0
    for count, ids in reader.texts("id"):
        numbers = np.arange(first, first + count, dtype=np.uint64)
        first += count
        if ids is None:
            yield children(parent, numbers)
            continue
        found = named_texts(parent, ids.ends, ids.data)
        yield (
            found if ids.absent is None else np.where(ids.absent, children(parent, numbers), found)
        )


def content_hashes(reader: Reader, seed: int) -> Iterator[UInt64]:
    """A hash of the content of every document, the same for equal documents, in groups.

    It is derived from the hash that the store keeps: no token is read.
    """
    start = np.uint64(key(seed, "split", "content"))
    for _, words in hash_blocks(reader):
        # the low word, mixed with the key, then the high word on top: all 128 bits count
        yield mixed(mixed(words[:, 0] + start) ^ words[:, 1])
