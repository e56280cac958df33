"""Packers: lengths → bins. Integers only; nothing here knows about documents or tokens.

One idea: strategies place items one by one, in order of arrival or longest first, and differ only
in the bin they choose. So a strategy is (order of placement, rule), and its result always has the
same form: the items of each bin in the order in which they were placed.

=======================  ========================  =================================================
greedy                   in order of arrival       the bin opened last, if the item fits (next fit)
first_fit                in order of arrival       the first bin that the item fits into
best_fit                 in order of arrival       of the bins it fits into, the one with least room
first_fit_decreasing     longest first             as first_fit; `bin` is an alias
best_fit_decreasing      longest first             as best_fit
one_doc                  in order of arrival       a bin of its own
=======================  ========================  =================================================

Among bins with equal room, the one opened last wins; items of equal length keep their order. Both
rules are part of the order version: another choice would change the rows.

Worked example: lengths 3, 2, 3, 6 in bins of 8, longest first::

    best_fit_decreasing      item 3 (6) opens bin 0, item 0 (3) bin 1, item 2 (3) joins bin 1,
                             item 1 (2) fits bins 0 and 1 with the same room, 2: the bin opened last
    bins                     [3], [0, 2, 1]
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenloom import native
from tokenloom.arguments import one_of
from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError

MOST = (1 << 31) - 1

RADIX = 1 << 16  # smaller keys are radix-sorted, which is much faster


@dataclass(frozen=True, eq=False, slots=True)
class Bins:
    """Items in bins.

    Attributes:
        items: the items of all bins, bin by bin, in order of placement [items].
        edges: where each bin starts, then the number of items [bins + 1].
    """

    items: Int64
    edges: Int64

    def __len__(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1


def pack(lengths: Int64, capacity: int, strategy: str, most: int | None = None) -> Bins:
    """Packs items into bins.

    Args:
        lengths: length of each item, 1 to `capacity` [items].
        capacity: room of a bin.
        strategy: one of `STRATEGIES`.
        most: maximum number of items in a bin; None means no limit.

    >>> made = pack(np.array([3, 2, 3, 6]), 8, "best_fit_decreasing")
    >>> [made.items[a:b].tolist() for a, b in zip(made.edges, made.edges[1:])]
    [[3], [0, 2, 1]]
    """
    limit = MOST if most is None else most
    if not 1 <= capacity <= MOST or limit < 1:
        raise ConfigError(f"capacity, most: found {capacity}, {most}; allowed: 1 to 2^31 - 1.")
    if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= capacity:
        raise ConfigError(
            f"lengths: found {lengths.min()} to {lengths.max()}, allowed: 1 to {capacity}."
        )
    rule, decreasing = STRATEGIES[check_strategy(strategy)]
    longest = lengths.max(initial=0)  # below `RADIX` in most rows, whatever their capacity is
    order = _stably(longest - lengths) if decreasing else np.arange(len(lengths))
    bin_of = rule(np.ascontiguousarray(lengths[order], np.int64), capacity, limit)
    by_bin = _stably(bin_of)  # keeps the order of placement inside a bin
    count = np.bincount(bin_of, minlength=0) if len(lengths) else np.empty(0, np.int64)
    return Bins(order[by_bin], np.concatenate([[0], np.cumsum(count)]).astype(np.int64))


def _stably(keys: Int64) -> Int64:
    """The places of the keys, 0 or more, in ascending order; equal keys stay as they are."""
    near = keys.max(initial=0) < RADIX
    return np.argsort(keys.astype(np.uint16) if near else keys, kind="stable")


def check_strategy(strategy: str, others: Sequence[str] = ()) -> str:
    """The strategy with aliases resolved; an error also lists `others`, which the caller allows."""
    known = ALIASES.get(strategy, strategy)
    if known not in STRATEGIES:
        one_of("strategy", strategy, [*others, *STRATEGIES, *ALIASES])
    return known


# -- rules: lengths in order of placement → the bin of each -----------------------------------
def _one_each(lengths: Int64, capacity: int, most: int) -> Int64:
    return np.arange(len(lengths))


def _next_fit(lengths: Int64, capacity: int, most: int) -> Int64:
    """Each item jumps to the first later item that no longer fits; bins follow these jumps."""
    count = len(lengths)
    before = np.concatenate([[0], np.cumsum(lengths)])
    jump = np.searchsorted(before, before[:-1] + capacity, side="right") - 1
    jumps: list[int] = np.minimum(jump, np.arange(count) + min(most, count)).tolist()
    starts, at = [], 0
    while at < count:
        starts.append(at)
        at = jumps[at]
    opens = np.zeros(count, np.int64)
    opens[starts] = 1
    return np.cumsum(opens) - 1


def _best_fit(lengths: Int64, capacity: int, most: int) -> Int64:
    if len(lengths) <= most and lengths.sum() <= capacity:  # the search has a heap for every room
        return np.zeros(len(lengths), np.int64)
    out = np.empty(len(lengths), np.int64)
    if native.compiled is not None:
        native.compiled.best_fit(native.plain(lengths, np.int64), capacity, most, out)
        return out
    heaps: list[list[int]] = [[] for _ in range(capacity + 1)]  # bins by room, the newest on top
    rooms = 0  # bit r: some bin has room r
    held: list[int] = []
    for item, length in enumerate(lengths.tolist()):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            heap = heaps[room]
            place = -heapq.heappop(heap)
            if not heap:
                rooms ^= 1 << room
        else:
            place, room = len(held), capacity
            held.append(0)
        out[item] = place
        held[place] += 1
        if held[place] < most:
            heapq.heappush(heaps[room - length], -place)
            rooms |= 1 << (room - length)
    return out


def _first_fit(lengths: Int64, capacity: int, most: int) -> Int64:
    out = np.empty(len(lengths), np.int64)
    if native.compiled is not None:
        native.compiled.first_fit(native.plain(lengths, np.int64), capacity, most, out)
        return out
    leaves = 1 << max(0, len(lengths) - 1).bit_length()
    tree = [capacity] * (2 * leaves)  # each node: the most room of any bin below it
    held = [0] * len(lengths)
    for item, length in enumerate(lengths.tolist()):
        node = 1
        while node < leaves:
            node = 2 * node + (tree[2 * node] < length)
        place = node - leaves
        out[item] = place
        held[place] += 1
        tree[node] = tree[node] - length if held[place] < most else -1
        while node > 1:
            node //= 2
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
    return out


Rule = Callable[[Int64, int, int], Int64]

STRATEGIES: dict[str, tuple[Rule, bool]] = {  # the rule, and whether the longest items come first
    "greedy": (_next_fit, False),
    "first_fit": (_first_fit, False),
    "best_fit": (_best_fit, False),
    "first_fit_decreasing": (_first_fit, True),
    "best_fit_decreasing": (_best_fit, True),
    "one_doc": (_one_each, False),
}

ALIASES = {"bin": "first_fit_decreasing"}
