"""Page-aligned read buffers that are used again.

One idea: a fresh buffer of 512 KiB costs 128 page faults, ten times what copying into it costs;
and where it stands decides the speed of `preadv`. On some CPUs a destination that lies less than
64 bytes behind its file offset modulo the page makes the copy 5 times slower (2.6 against 13-14
GB/s here; that is just where `np.empty` puts large arrays). So large buffers are anonymous
mappings, which begin on a page, and go back to a pool when the last array over them is gone.
"""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGE", "PAGE", "SAFE", "SlabPool"]

PAGE = 4096
SAFE = 64
LARGE = 1 << 17  # bytes; below, the allocator's own reuse is good enough
GRAIN = 1 << 16  # slabs come in multiples of this, so that close sizes share


class _Slab:
    """One mapping and its address."""

    __slots__ = ("address", "memory", "size")

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, size)
        self.size = size
        whole = np.frombuffer(self.memory, np.uint8)
        self.address: int = whole.__array_interface__["data"][0]


class _Lease:
    """What an array holds on to; dropping it gives the slab back."""

    __slots__ = ("__array_interface__", "_pool", "_slab")

    def __init__(self, pool: SlabPool, slab: _Slab, size: int) -> None:
        self._pool, self._slab = pool, slab
        self.__array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (slab.address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        self._pool.give_back(self._slab)


class SlabPool:
    """Slabs not in use, at most `idle_bytes` of them.

    >>> pool = SlabPool()
    >>> first = pool.take(1 << 20)
    >>> place = first.__array_interface__["data"][0]
    >>> del first
    >>> pool.take(1 << 20).__array_interface__["data"][0] == place, place % PAGE
    (True, 0)
    """

    def __init__(self, idle_bytes: int = 64 << 20) -> None:
        self._idle_bytes = idle_bytes
        self._idle: dict[int, list[_Slab]] = {}
        self._held = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> NDArray[np.uint8]:
        """An uninitialised array of `size` bytes that begins on a page."""
        rounded = -(-size // GRAIN) * GRAIN
        with self._lock:
            idle = self._idle.get(rounded)
            slab = idle.pop() if idle else None
            self._held -= rounded if slab else 0
        return np.asarray(_Lease(self, slab or _Slab(rounded), size))

    def give_back(self, slab: _Slab) -> None:
        """Called when the last array over a slab is gone."""
        # the lock may be held by the very thread whose garbage this is: then let the slab go
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._held + slab.size <= self._idle_bytes:
                self._idle.setdefault(slab.size, []).append(slab)
                self._held += slab.size
        finally:
            self._lock.release()
