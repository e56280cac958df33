"""Page-aligned read buffers that are used again.

One idea: a fresh buffer of 512 KiB costs 128 page faults, which is more than copying into it;
and where it stands decides the speed of `preadv`. On some CPUs a destination that lies less than
64 bytes behind its file offset modulo the page makes the copy 5 times slower (2.8 against 13.9
GB/s here; that is just where `np.empty` puts large arrays). So large buffers are anonymous
mappings, which begin on a page, and go back to a pool when the last array over them is gone.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGE", "PAGE", "SAFE", "SlabPool"]

PAGE = 4096
SAFE = 64
LARGE = 1 << 17  # bytes; below, the allocator's own reuse is good enough
GRAIN = 1 << 16  # slabs come in multiples of this, so that close sizes share


class _Slab:
    """One mapping, and how arrays may look at it."""

    __slots__ = ("interface", "memory", "size")

    def __init__(self, size: int) -> None:
        try:
            self.memory = mmap.mmap(-1, size)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"a read of {size:,} bytes does not fit into memory") from error
        self.size = size
        whole = np.frombuffer(self.memory, np.uint8)
        address = whole.__array_interface__["data"][0]
        self.interface: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class _Lease:
    """What an array holds on to; dropping it gives the slab back.

    Filled in by `SlabPool.take`: a constructor would cost as much as the rest of it.
    """

    __slots__ = ("__array_interface__", "idle", "slab")
    __array_interface__: dict[str, Any]
    slab: _Slab
    idle: deque[_Slab]

    def __del__(self) -> None:
        self.idle.append(self.slab)


class SlabPool:
    """Slabs not in use: at most `idle_bytes` of each size.

    Nothing is locked: `deque.pop` and `deque.append` are atomic, and a slab may come back in the
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
        """An uninitialised array of at least `size` bytes that begins on a page."""
        rounded = (size + GRAIN - 1) & -GRAIN
        idle = self._idle.get(rounded)
        if idle is None:
            keep = max(1, self._idle_bytes // rounded)
            idle = self._idle.setdefault(rounded, deque(maxlen=keep))
        try:
            slab = idle.pop()
        except IndexError:
            slab = _Slab(rounded)
        lease = _Lease()
        lease.slab, lease.idle, lease.__array_interface__ = slab, idle, slab.interface
        return np.asarray(lease)
