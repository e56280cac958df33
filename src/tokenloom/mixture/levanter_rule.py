"""Levanter's mixture: blocks with a fixed number of examples of each source, each block permuted.

One idea: with integer counts that add up to the block, block b has the same items as under the
rule "weights", so times, ends and audits are those of any mix (`tokenloom.mixture.stages`). What is
Levanter's own is how weights become counts, and the permutation inside a block, which is JAX's. An
index is a division and a look into its block; nothing before it is computed.

Counts are truncated and the remainder goes to the largest, so a source with a tiny weight may have
none; the rules "rounds" and "random" lose no source.

Checked against mixtures that Levanter's own code wrote: ``tests/golden/levanter_mixtures.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import integer, number_map
from tokenloom.arrays import Int64, with_newest
from tokenloom.errors import ConfigError, warn
from tokenloom.limits import limits
from tokenloom.random.levanter import folded, permuted

LARGEST_BLOCK = (1 << 16) - 1  # examples; Levanter numbers them with 16 bits


def levanter_counts(
    where: str, weights: Mapping[str, Any], names: Sequence[str], block: int
) -> dict[str, int]:
    """The number of examples of each source in a block, as Levanter rounds them.

    Args:
        where: path of the weights, for messages.
        weights: weights by name, in the order in which Levanter adds them up; 0 is none.
        names: all sources, as listed.
        block: examples of a block.

    >>> levanter_counts("weights", {"a": 2, "b": 1, "c": 1e-6}, ["a", "b"], 8)
    {'a': 6, 'b': 2}
    """
    integer("block", block, least=1, most=LARGEST_BLOCK)
    given = number_map(where, weights)
    for name, weight in given.items():
        if not 0 <= weight < np.inf:
            raise ConfigError(f"{where}.{name}: found {weight}, allowed: 0 or more.")
    total = sum(given.values())
    if not total > 0:
        raise ConfigError(f"{where}: found no weight above 0; give at least one source.")
    share = {name: weight / total for name, weight in given.items()}
    counts = {name: int(share.get(name, 0) * block) for name in names}
    largest = max(counts, key=lambda name: counts[name])
    counts[largest] += block - sum(counts.values())
    lost = [name for name in names if share.get(name, 0) > 0 and not counts[name]]
    if lost:
        warn(
            f"{where}: {', '.join(lost)} would have less than one of the {block:,} examples of a "
            "block, which Levanter's rule truncates to none, so nothing is drawn from there. Use "
            "a larger block, or rule='random', which loses no source."
        )
    return counts


def block_counts(
    where: str, weights: Mapping[str, Any], names: Sequence[str], block: int
) -> dict[str, int]:
    """The same, unless the weights are counts of a block already."""
    given = number_map(where, weights)
    if not are_counts(given, integer("block", block, least=1, most=LARGEST_BLOCK)):
        return levanter_counts(where, given, names, block)
    return {name: int(given.get(name, 0)) for name in names}


def are_counts(weights: Mapping[str, Any], block: int) -> bool:
    """Whether weights are the counts of a block themselves: whole numbers that add up to it."""
    found = list(weights.values())
    return all(float(one).is_integer() and one >= 0 for one in found) and sum(found) == block


class LevanterBlocks:
    """The order of a stage; see `tokenloom.mixture.stages.Merged`.

    Args:
        counts: examples of each source in a block [sources].
        first: the first item of each source that has not been shown [sources].
        at: the first index, the edge of a block.
        key: the key of the mixture, a JAX key as an integer.
    """

    def __init__(self, counts: Int64, first: Int64, at: int, key: int) -> None:
        self.block = int(counts.sum())
        self._counts, self._first, self._key = counts, first, key
        self._edges = np.cumsum(counts)
        self._begins = self._edges - counts
        self._start = at // self.block
        self._tables: dict[int, NDArray[np.uint16]] = {}

    def items(self, first: int, last: int) -> tuple[Int64, Int64]:
        """(source, item) of indices [first, last)."""
        begin, end = first // self.block, -(-last // self.block)
        slot = self._slots(begin, end).reshape(-1)[first - begin * self.block :][: last - first]
        block = np.arange(first, last) // self.block - self._start
        source = np.searchsorted(self._edges, slot, side="right")
        item = self._first[source] + block * self._counts[source] + slot - self._begins[source]
        return source, item

    def _slots(self, begin: int, end: int) -> NDArray[np.uint16]:
        """What blocks [begin, end) have at each place [blocks, block]; sources one by one."""
        known = self._tables
        missing = [number for number in range(begin, end) if number not in known]
        if missing:
            keys = folded(self._key, np.array(missing, np.uint64))
            made = dict(zip(missing, permuted(keys, self.block), strict=True))
            kept = limits().kept_mix_blocks
            if end - begin > kept:
                return np.stack([made[b] if b in made else known[b] for b in range(begin, end)])
            for number, table in made.items():
                known = with_newest(known, number, table, 2 * kept)
            self._tables = known  # another thread may be reading the old one
        return np.stack([known[number] for number in range(begin, end)])

    def cut(self, index: int) -> Int64:
        """The number of items of every source before an index [sources]."""
        block, inside = divmod(index, self.block)
        before: Int64 = self._first + (block - self._start) * self._counts
        if inside:
            source, _ = self.items(index - inside, index)
            before = before + np.bincount(source, minlength=len(before))
        return before

    def whole(self, index: int) -> int:
        """See `tokenloom.mixture.merge.Merge`."""
        return index // self.block * self.block

    def index(self, source: int, item: int) -> int:
        """The index of an item of a source in the run."""
        block, inside = divmod(item - int(self._first[source]), int(self._counts[source]))
        number = self._start + block
        slots = self._slots(number, number + 1)[0]
        place = np.flatnonzero(slots == int(self._begins[source]) + inside)
        return number * self.block + int(place[0])
