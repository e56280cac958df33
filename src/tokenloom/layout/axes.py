"""Orders of the two axes of an enumeration: starts of a document, and offsets of a start.

One idea: which choices there are never changes, only when each comes. Keys name the document (by
its number in the store), the start and the epoch, so what else is selected does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped, with_newest
from tokenloom.keys import children, draws, key
from tokenloom.layout.choices import Choices
from tokenloom.layout.splice import SpliceSpec
from tokenloom.order.permute import Feistel, hash_sorted

__all__ = ["Axes", "jitter", "permuted"]

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
KEPT_TABLES = 64
SORTED, TOGETHER = 64, 1 << 14  # numbers that are sorted, permutations at a time


def permuted(x: Int64, n: Int64, keys: UInt64) -> Int64:
    """Where x goes in the permutation of range(n) that its key names [N].

    Few numbers are sorted by hashes, so that every order of them is equally likely.
    """
    out = np.empty_like(x)
    for size, here in grouped(n):
        for low in range(0, len(here), TOGETHER):
            some = here[low : low + TOGETHER]
            if size <= SORTED:
                out[some] = hash_sorted(size, keys[some])[np.arange(len(some)), x[some]]
            else:
                every = np.arange(len(some))
                words = Feistel(size, keys[some]).forward(x[some].view(np.uint64), every)
                out[some] = words.view(np.int64)
    return out


class Axes:
    """The order in which an enumeration goes through starts and offsets."""

    def __init__(self, spec: SpliceSpec) -> None:
        self._content, self._offsets = spec.shuffle_content, spec.shuffle_offsets
        self._epochs = spec.shuffle_per_epoch
        self._content_key = key(spec.content_seed, "splice", "content")
        self._offset_key = key(spec.offset_seed, "splice", "offsets")
        self._tables: dict[tuple[int, int], tuple[Int64, Int64]] = {}

    def places(
        self, choices: Choices, choice: Int64, length: Int64, document: Int64, epoch: Int64
    ) -> tuple[Int64, Int64]:
        """(start, offset) of the choice that comes at each number [N]."""
        if not self._content:
            start, offset = choices.place(choice, length)
        elif choices.even:
            each = choices.offsets(np.zeros_like(choice), length)
            offset = choice % each
            start = self._starts(choice // each, choices.count(length) // each, document, epoch)
        else:
            start, offset = self._uneven(choices, choice, length, document, epoch)
        if self._offsets:
            n = choices.offsets(start, length)
            keys = draws(self._keys(self._offset_key, document, epoch), start.view(np.uint64))
            offset = _in_stretches(offset, n, keys, self._offsets)
        return start, offset

    def _keys(self, root: int, document: Int64, epoch: Int64) -> UInt64:
        every = children(root, document.view(np.uint64))
        return draws(every, epoch.astype(np.uint64)) if self._epochs else every

    def _starts(self, place: Int64, n: Int64, document: Int64, epoch: Int64) -> Int64:
        keys = self._keys(self._content_key, document, epoch)
        return _in_stretches(place, n, keys, self._content)

    def _uneven(
        self, choices: Choices, choice: Int64, length: Int64, document: Int64, epoch: Int64
    ) -> tuple[Int64, Int64]:
        """Starts with different numbers of offsets: their sums in the order of an epoch."""
        start, offset = np.empty_like(choice), np.empty_like(choice)
        for number, here in grouped(document):
            for turn, inner in grouped(epoch[here]):
                part = here[inner]
                order, edges = self._table(choices, number, turn, int(length[part[0]]))
                place = np.searchsorted(edges, choice[part], side="right") - 1
                start[part], offset[part] = order[place], choice[part] - edges[place]
        return start, offset

    def _table(
        self, choices: Choices, document: int, epoch: int, length: int
    ) -> tuple[Int64, Int64]:
        """Starts in their order, and the choices before each; some are kept."""
        known = self._tables.get((document, epoch))
        if known is not None:
            return known
        total = choices.count(np.array([length]))
        last = choices.place(total - 1, np.array([length]))[0]
        every = np.arange(int(last[0]) + 1)
        one = np.ones_like(every)
        order = self._starts(every, one * len(every), one * document, one * epoch)
        sizes = choices.offsets(order, one * length)
        made = order, np.concatenate([[0], np.cumsum(sizes)])
        self._tables = with_newest(self._tables, (document, epoch), made, KEPT_TABLES)
        return made


def _in_stretches(x: Int64, n: Int64, keys: UInt64, how: bool | int) -> Int64:
    """Numbers permuted among n, or inside stretches of `how` [N]."""
    if how is True:
        return permuted(x, n, keys)
    stretch = x // how
    begin = stretch * how
    size = np.minimum(how, n - begin)
    return begin + permuted(x - begin, size, draws(keys, stretch.view(np.uint64)))


def jitter(spec: SpliceSpec, visit: Int64, room: Int64, document: Int64, choice: Int64) -> Int64:
    """How far to the left each visit of a choice stands [N].

    Any J + 1 visits in a row ("low_discrepancy"), or every J + 1 of them from the first on
    ("uniform"), go through all J + 1 offsets; J is `offset_jitter`, or less where there is no room.
    """
    many = np.minimum(spec.offset_jitter, room) + 1
    root = key(spec.offset_seed, "splice", "jitter")
    keys = draws(children(root, document.view(np.uint64)), choice.view(np.uint64))
    if spec.jitter_mode == "low_discrepancy":
        begin = (keys % many.astype(np.uint64)).astype(np.int64)
        turned: Int64 = (visit + begin) % many
        return turned
    return permuted(visit % many, many, draws(keys, (visit // many).view(np.uint64)))
