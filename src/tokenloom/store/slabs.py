"""Page-aligned read buffers that are used again.

One idea: a fresh buffer of 512 KiB costs 128 page faults, which is more than copying into it;
and where it stands decides the speed of `preadv`. On some CPUs a destination that lies less than
64 bytes behind its file offset modulo the page makes the copy 5 times slower (2.8 against 13.9
GB/s here; that is just where `np.empty` puts large arrays). So large buffers are anonymous
mappings, which begin on a page, and go back to a pool when the last array over them is gone.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from typing import cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGE", "PAGE", "SAFE", "SlabPool"]

PAGE = 4096
SAFE = 64
LARGE = 1 << 17  # bytes; below, the allocator's own reuse is good enough
GRAIN = 1 << 16  # slabs come in multiples of this, so that close sizes share
_BYTE = np.dtype(np.uint8)


class _Slab:
    """One mapping, the place it goes back to, and the loan that says when."""

    __slots__ = ("idle", "loan", "memory")

    def __init__(self, size: int, idle: deque[_Slab]) -> None:
        try:
            self.memory = mmap.mmap(-1, size)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"a read of {size:,} bytes does not fit into memory") from error
        self.idle = idle
        self.loan: _Loan | None = None


class _Loan(weakref.ref[NDArray[np.uint8]]):
    """Watches an array over a slab. Views of the array hold it, so it goes when the last does."""

    __slots__ = ("slab",)
    slab: _Slab


_LENT: set[_Slab] = set()  # a weak reference that nobody holds would never call back


def _give_back(loan: weakref.ref[NDArray[np.uint8]]) -> None:
    slab = cast(_Loan, loan).slab
    slab.loan = None
    _LENT.discard(slab)
    slab.idle.append(slab)


class SlabPool:
    """Slabs not in use: at most `idle_bytes` of each size.

    Nothing is locked: operations on a deque and a set are atomic, and a slab may come back in the
    middle of anything, whenever the garbage of an array is collected.

    >>> pool = SlabPool()
    >>> first = pool.take(1 << 20)
    >>> place = first.__array_interface__["data"][0]
    >>> del first
    >>> pool.take(1 << 20).__array_interface__["data"][0] == place, place % PAGE
    (True, 0)
    """

    def __init__(self, idle_bytes: int = 64 << 20) -> None:
        self._idle_bytes = idle_bytes
        self._idle: dict[int, deque[_Slab]] = {}

    def take(self, size: int) -> NDArray[np.uint8]:
        """An uninitialised array of `size` bytes that begins on a page."""
        rounded = (size + GRAIN - 1) & -GRAIN
        idle = self._idle.get(rounded)
        if idle is None:
            keep = max(1, self._idle_bytes // rounded)
            idle = self._idle.setdefault(rounded, deque(maxlen=keep))
        try:
            slab = idle.pop()
        except IndexError:
            slab = _Slab(rounded, idle)
        array: NDArray[np.uint8] = np.ndarray((size,), _BYTE, slab.memory)
        loan = slab.loan = _Loan(array, _give_back)
        loan.slab = slab
        _LENT.add(slab)
        return array
