"""What orders are made of: the keys of an order, and permutations inside shuffle windows.

One idea: however rows are grouped (eras, lanes of a band), each group is a *shuffle window* with a
number, and its permutation follows from the order's key and that number alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_between
from tokenloom.arrays import Int64, UInt64, distinct, grouped
from tokenloom.limits import limits
from tokenloom.random import levanter
from tokenloom.random.keys import below, check_seed, child, children, key
from tokenloom.random.permute import (
    SMALL,
    HashSort,
    Permutations,
    check_perm_type,
    hash_sorted,
    permutations,
    scattered,
)
from tokenloom.store.handles import lazy

A_WINDOW = 4  # places; a table costs as much as about ten of them


class OrderKeys:
    """The keys of one order: hashed paths, or JAX keys for Levanter's orders.

    Levanter gives every epoch the same order; here the keys of later epochs fold in their number.
    """

    def __init__(self, seed: int, epoch: int, perm_type: str, source: str) -> None:
        check_perm_type(perm_type)
        check_between("epoch", epoch, 0)
        self.perm_type = perm_type
        self._jax = perm_type.startswith("levanter")
        if self._jax:
            root = check_seed(seed)
            self._root = levanter.fold_in(root, epoch) if epoch else root
        else:
            self._root = key(seed, source, "order", epoch)

    @lazy
    def _three(self) -> list[int]:
        """Levanter's keys of blocks, windows and the tail."""
        return levanter.split(self._root, 3)

    def whole(self) -> int:
        """The key for the permutation of all rows."""
        return self._root if self._jax else child(self._root, "full")

    def only(self, numbers: UInt64) -> UInt64:
        """The same, for a shuffle that is a single window."""
        return np.array([self.whole()], np.uint64)

    def eras(self, numbers: UInt64) -> UInt64:
        """The key of each era [N]."""
        if self._jax:
            return levanter.folded(self._root, numbers)
        return children(child(self._root, "era"), numbers)

    def blocks(self) -> int:
        """The key for the permutation of the blocks."""
        return self._three[0] if self._jax else child(self._root, "blocks")

    def windows(self, numbers: UInt64) -> UInt64:
        """The key of each window of blocks [N]."""
        if self._jax:
            return levanter.folded(self._three[1], numbers)
        return children(child(self._root, "window"), numbers)

    def tail(self, window: int) -> int:
        """The key of the short last block, which is in that window."""
        if self._jax:
            return levanter.fold_in(self._three[2], window)
        return child(self._root, "tail")


def epoch_windows(seed: int, perm_type: str, source: str) -> ShuffleWindows:
    """Full shuffles of all epochs at once: window e is the order of epoch e."""
    return ShuffleWindows(functools.partial(_epoch_keys, seed, perm_type, source), perm_type)


def _epoch_keys(seed: int, perm_type: str, source: str, epochs: UInt64) -> UInt64:
    if not perm_type.startswith("levanter"):
        return below(children(key(seed, source, "order"), epochs), "full")
    root = check_seed(seed)
    return np.where(epochs == 0, np.uint64(root), levanter.folded(root, epochs))


def is_scattered(count: int, windows: int) -> bool:
    """Whether places in this many windows are cheaper one by one than from tables."""
    return windows >= limits().min_scattered_windows and count <= A_WINDOW * windows


class ShuffleWindows:
    """The permutations inside numbered windows, made on first use.

    Windows of at most 4,096 rows are sorted tables; the latest are kept, up to 1 Mi rows in all. A
    request for a few places in each of many windows makes no table (`tokenloom.random.permute`).

    Args:
        keys: window numbers → keys.
        perm_type: kind of permutation, see `tokenloom.random.permute`.
    """

    def __init__(self, keys: Callable[[UInt64], UInt64], perm_type: str) -> None:
        self._keys, self._perm_type = keys, perm_type
        self._tables: dict[tuple[int, int], NDArray[np.uint16]] = {}

    def forward(self, n: int, windows: Int64, x: Int64) -> Int64:
        """Where row x of its window of n rows goes [N]."""
        return self._through(n, windows, x, backwards=False)

    def inverse(self, n: int, windows: Int64, y: Int64) -> Int64:
        """Which row of its window of n rows goes to y [N]."""
        return self._through(n, windows, y, backwards=True)

    def each(self, sizes: Int64, windows: Int64, x: Int64, *, backwards: bool) -> Int64:
        """`forward`, or `inverse`, in windows of different sizes [N]."""
        present, which = distinct(windows)
        if self._perm_type == "feistel" and is_scattered(len(x), len(present)):
            return self._place_by_place(sizes, present, which, x, backwards)
        out = np.empty_like(x)
        for n, here in grouped(sizes):
            out[here] = self._through(n, windows[here], x[here], backwards=backwards)
        return out

    def _place_by_place(
        self, sizes: Int64, present: Int64, which: Int64 | None, x: Int64, backwards: bool
    ) -> Int64:
        keys = self._keys(present.view(np.uint64))
        every = np.repeat(keys, len(x)) if which is None else keys[which]
        return scattered(sizes, every, x.view(np.uint64), backwards=backwards).view(np.int64)

    def _through(self, n: int, windows: Int64, x: Int64, *, backwards: bool) -> Int64:
        present, which = distinct(windows)
        if self._sorts(n) and is_scattered(len(x), len(present)):
            missing = sum((n, number) not in self._tables for number in present.tolist())
            if is_scattered(len(x), missing):
                sizes = np.full(len(x), n)
                return self._place_by_place(sizes, present, which, x, backwards)
        words = x.view(np.uint64)

        def ask(made: Permutations, x: UInt64, which: Int64 | None) -> UInt64:
            return made.inverse(x, which) if backwards else made.forward(x, which)

        at_once = max(1, limits().window_tables_rows // n)
        if which is None or len(present) <= at_once or not self._sorts(n):
            return ask(self._make(n, present), words, which).view(np.int64)
        # a scattered request takes its windows in batches, so that not all of them are in memory
        out = np.empty_like(x)
        by_window = np.argsort(which, kind="stable")
        firsts = np.arange(0, len(present), at_once)
        edges = [*np.searchsorted(which[by_window], firsts).tolist(), len(which)]
        for number, first in enumerate(firsts.tolist()):
            here = by_window[edges[number] : edges[number + 1]]
            made = self._make(n, present[first : first + at_once])
            out[here] = ask(made, words[here], which[here] - first).view(np.int64)
        return out

    def _sorts(self, n: int) -> bool:
        return n <= SMALL and self._perm_type == "feistel"

    def _make(self, n: int, windows: Int64) -> Permutations:
        if not self._sorts(n):
            return permutations(n, self._keys(windows.view(np.uint64)), self._perm_type)
        numbers = windows.tolist()
        tables = self._tables
        missing = [number for number in numbers if (n, number) not in tables]
        if not missing:
            return HashSort(np.stack([tables[n, number] for number in numbers]))
        if (len(tables) + len(missing)) * n > limits().window_tables_rows:
            tables = {k: tables[k] for k in [(n, number) for number in numbers] if k in tables}
        made = hash_sorted(n, self._keys(np.array(missing, np.uint64)))
        fresh = {(n, number): row for number, row in zip(missing, made, strict=True)}
        tables = self._tables = tables | fresh  # another thread may be reading the old one
        if len(missing) == len(numbers):
            return HashSort(made)
        return HashSort(np.stack([tables[n, number] for number in numbers]))
