"""The seam through which a store is read: `size(name)` and `read(ranges)`, nothing else.

One idea: a request carries *all* its ranges at once, over all files of the store, so that an
object store can issue them together, a test can count them, and a fault can be injected in one
place. `LocalSource` answers with `preadv` (a plain `pread` where that is missing).

A read buffer must not stand just behind its file offset modulo the page: on some CPUs the copy
then runs 5 times slower (2.6 against 13-14 GB/s, `python -m benchmarks read`). `aligned` places
every range so that (address - offset) mod 4096 is 0 or at least 64.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreCorrupt, StoreError

__all__ = ["ByteSource", "LocalSource", "Range"]

Range = tuple[str, int, int]
"""(file name relative to the store, first byte, number of bytes)."""

Bytes = NDArray[np.uint8]
PAGE = 4096
SAFE = 64
OPEN_FILES = 256


class ByteSource(Protocol):
    """Read-only bytes of the files of one store."""

    def size(self, name: str) -> int | None:
        """The size of a file in bytes, or None if there is no such file."""

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """One buffer for every range, in the order asked; never fewer bytes than asked."""


class _Handle:
    """An open file that closes when the last reader lets go of it.

    Readers hold the object during a read, so the cache of handles may drop it at any moment
    without another thread reading from a reused descriptor.
    """

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class LocalSource:
    """The files below a directory; at most `open_files` descriptors stay open."""

    def __init__(self, root: str | Path, open_files: int = OPEN_FILES) -> None:
        self._root = os.path.realpath(root)
        self._open_files = open_files
        self._handles: OrderedDict[str, _Handle] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, name: str) -> int | None:
        """See `ByteSource`."""
        try:
            return os.stat(os.path.join(self._root, name), follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """See `ByteSource`."""
        slab, places = aligned([offset for _, offset, _ in ranges], [size for _, _, size in ranges])
        buffers = []
        for (name, offset, size), place in zip(ranges, places, strict=True):
            buffer = slab[place : place + size]
            handle = self._handles.get(name) or self._open(name)
            if _READ(handle.fd, buffer, offset) != size:
                self._read_on(handle, name, buffer, offset)
            buffers.append(buffer)
        return buffers

    def _read_on(self, handle: _Handle, name: str, buffer: Bytes, offset: int) -> None:
        """Read again until the buffer is full: one call gives at most 2 GiB, a signal less."""
        done = 0
        while done < len(buffer):
            count = _READ(handle.fd, buffer[done:], offset + done)
            if count == 0:
                raise StoreCorrupt(
                    f"{os.path.join(self._root, name)}: asked for bytes {offset:,} to "
                    f"{offset + len(buffer):,}, but the file ends at {offset + done:,}. It was cut "
                    "short after the store was opened; restore it or build the store again."
                )
            done += count

    def _open(self, name: str) -> _Handle:
        path = os.path.join(self._root, name)
        real = os.path.realpath(path)
        if not real.startswith(self._root + os.sep):
            raise StoreError(f"{path}: it leads out of the store, to {real}; links are refused.")
        try:
            handle = _Handle(path)
        except FileNotFoundError as error:
            raise StoreCorrupt(
                f"{path}: the file is missing. Restore it or build the store again."
            ) from error
        with self._lock:
            self._handles[name] = handle
            while len(self._handles) > self._open_files:
                self._handles.popitem(last=False)
        return handle


def _preadv(fd: int, buffer: Bytes, offset: int) -> int:
    return os.preadv(fd, [buffer], offset)  # type: ignore[list-item]  # arrays are buffers


def _pread(fd: int, buffer: Bytes, offset: int) -> int:
    data = os.pread(fd, len(buffer), offset)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return len(data)


_READ = _preadv if hasattr(os, "preadv") else _pread


def aligned(offsets: Sequence[int], sizes: Sequence[int]) -> tuple[Bytes, list[int]]:
    """One slab for all ranges, and the place of each in it.

    Worked example: a slab at address 16 (mod 4096) and a range at file offset 0 would stand 16
    bytes behind a page boundary, which is the slow case, so the range moves on by 48 bytes.
    """
    slab = np.empty(sum(sizes) + SAFE * len(sizes), np.uint8)
    address = slab.__array_interface__["data"][0]
    places, place = [], 0
    for offset, size in zip(offsets, sizes, strict=True):
        distance = (address + place - offset) % PAGE
        if 0 < distance < SAFE:
            place += SAFE - distance
        places.append(place)
        place += size
    return slab, places
