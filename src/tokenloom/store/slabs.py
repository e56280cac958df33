"""Page-aligned read buffers that are used again.

A fresh buffer of 512 KiB costs 128 page faults, which is more than copying into it;
and where it is placed decides the speed of `preadv`. On some CPUs a destination that lies less than
64 bytes after its file offset modulo the page makes the copy 5 times slower (2.7 against 14.1
GB/s here; that is just where `np.empty` puts large arrays). So large buffers are anonymous
mappings, which start on a page, and go back to a pool when the last array over them is gone.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.store.handles import Single, lock_of

PAGE = 4096

SAFE = 64

LARGE = 1 << 17  # bytes; below, the allocator's own reuse is good enough

GRAIN = 1 << 16  # slabs come in multiples of this, so that close sizes share

_BYTE = np.dtype(np.uint8)


class Region(Single):
    """One stretch of address space that slabs are cut from, as long as it lasts.

    It has large pages where the system offers them: rows of many blocks are then found faster. Only
    pages that were written to take memory.
    """

    def __init__(self, size: int) -> None:
        self._size, self._used = size, 0
        self._lock = lock_of(self)
        self._memory: mmap.mmap | None = None
        self._whole: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._base = 0
        self._returned: dict[int, deque[memoryview]] = {}

    def cut(self, size: int) -> memoryview | None:
        """Some `size` bytes, a whole number of pages; None when it is used up."""
        returned = self._returned.get(size)
        if returned:
            with contextlib.suppress(IndexError):  # another thread may have been faster
                return returned.pop()
        with self._lock:
            start, stop = self._used, self._used + size
            if stop > self._size:
                return None
            if self._memory is None:
                try:
                    memory = _map(self._size)
                except (OSError, ValueError):  # address space is limited here
                    self._size = 0
                    return None
                self._whole = np.frombuffer(memory, np.uint8)
                self._base = _address(self._whole)
                self._memory = memory  # last: an interrupt or a fork finds all of it or nothing
            self._used = stop
            return memoryview(self._memory)[start:stop]

    def _forked(self, torn: bool) -> None:
        """At worst a piece that another thread was about to get is never given to anybody."""

    def put_back(self, piece: memoryview) -> None:
        """Take back what was cut: its pages go to the system, its place to the next of its size.

        May be called in the middle of anything, whenever an array is collected, so it locks
        nothing.
        """
        self._returned.setdefault(piece.nbytes, deque()).append(piece)
        if self._memory is not None and hasattr(mmap, "MADV_DONTNEED"):
            start = _address(np.frombuffer(piece, np.uint8)) - self._base
            self._memory.madvise(mmap.MADV_DONTNEED, start, piece.nbytes)


def _address(array: NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]


def _map(size: int) -> mmap.mmap:
    """Anonymous memory; in large pages where the system offers them, which are found faster."""
    memory = mmap.mmap(-1, size, **_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


class _Slab(Single):
    """Some memory, the place it goes back to, and the loan that says when."""

    __slots__ = ("idle", "loan", "memory", "region")

    def __init__(self, size: int, idle: deque[_Slab], region: Region) -> None:
        memory: Any = region.cut(size)
        self.region = None if memory is None else region
        if memory is None:
            try:
                memory = mmap.mmap(-1, size, **_PRIVATE)
            except (OSError, OverflowError, ValueError) as error:
                raise MemoryError(f"a read of {size:,} bytes does not fit into memory") from error
        self.memory = memory
        self.idle = idle
        self.loan: _Loan | None = None

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Neither lent nor idle any more: there were enough of its size.

        When the interpreter ends, the globals that `put_back` needs may be gone.
        """
        region = getattr(self, "region", None)
        if region is not None and not ending():
            region.put_back(self.memory)


class _Loan(weakref.ref[NDArray[Any]]):
    """Watches an array over a slab. Views of the array hold it, so it goes when the last does."""

    __slots__ = ("slab",)
    slab: _Slab


_LENT: set[_Slab] = set()  # a weak reference that nobody holds would never call back


def _give_back(loan: weakref.ref[NDArray[Any]], lent: set[_Slab] = _LENT) -> None:
    """Nothing global: an array may outlive this module when the interpreter ends."""
    slab: _Slab = loan.slab  # type: ignore[attr-defined]
    slab.loan = None
    lent.discard(slab)
    slab.idle.append(slab)


class SlabPool(Single):
    """Slabs not in use: at most `idle_bytes` of each size.

    The first `region_bytes` of them lie in one `Region`; a place there is only ever used again for
    the same size, so slabs of very many different sizes end up outside of it.

    The memory is private to a process: after a fork, parent and child may both use a slab that was
    idle, or an array that was lent, without seeing each other's values.

    Nothing is locked: operations on a deque and a set are atomic, and a slab may come back in the
    middle of anything, whenever the garbage of an array is collected.

    >>> pool = SlabPool()
    >>> first = pool.take(1 << 20)
    >>> place = first.__array_interface__["data"][0]
    >>> del first
    >>> pool.take(1 << 20).__array_interface__["data"][0] == place, place % PAGE
    (True, 0)
    """

    def __init__(self, idle_bytes: int = 64 << 20, region_bytes: int = 0) -> None:
        self._idle_bytes = idle_bytes
        self._idle: dict[int, deque[_Slab]] = {}
        self.region = Region(region_bytes)

    def take(
        self, size: int, shape: tuple[int, ...] | None = None, dtype: np.dtype[Any] = _BYTE
    ) -> NDArray[Any]:
        """An uninitialised array of `size` bytes that starts on a page; flat bytes by default."""
        rounded = (size + GRAIN - 1) & -GRAIN
        idle = self._idle.get(rounded)
        if idle is None:
            keep = max(1, self._idle_bytes // rounded)
            idle = self._idle.setdefault(rounded, deque(maxlen=keep))
        try:
            slab = idle.pop()
        except IndexError:
            slab = _Slab(rounded, idle, self.region)
        array: NDArray[Any] = np.ndarray(shape or (size,), dtype, slab.memory)
        loan = slab.loan = _Loan(array, _give_back)
        loan.slab = slab
        _LENT.add(slab)
        return array
