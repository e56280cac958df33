"""The seam through which a store is read: `size(name)` and `read(ranges)`, nothing else.

A request carries *all* its ranges at once, over all files of the store, so that an
object store can issue them together, a test can count them, and a fault can be injected in one
place. `LocalSource` answers with `preadv` (a plain `pread` where that is missing).

Where buffers are placed matters for speed: see `tokenloom.store.slabs`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreCorrupt, StoreError
from tokenloom.store.files import unreadable
from tokenloom.store.handles import Single, lock_of
from tokenloom.store.slabs import LARGE, PAGE, SAFE, SlabPool

Range = tuple[str, int, int]

"""(file name relative to the store, first byte, number of bytes)."""

Bytes = NDArray[np.uint8]

Traffic = Callable[[], Mapping[str, tuple[int, int, int]]]

"""Of each column: requests over a network, retries, and bytes that a disk cache had instead."""

OPEN_FILES = 256

_POOL = SlabPool(region_bytes=1 << 30)


class ByteSource(Protocol):
    """Read-only bytes of the files of one store.

    A source that answers several requests at the same time may say how many, as `parallel`; blocks
    are then fetched ahead of time by that many threads, and what it gives is checked each time. One
    that learns the size of a file with each answer may take the sizes that there must be
    (`expect`), instead of being asked for each; one that is not a directory says what lists and
    reads its small files (`listing`); one that reaches over a network says what that took
    (`traffic`), and what it gives is checked each time; one that keeps copies can drop those of
    some ranges (`drop`).
    """

    def size(self, name: str) -> int | None:
        """The size of a file in bytes, or None if there is no such file."""

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """One buffer for every range, in the order asked; never fewer bytes than asked."""


def parallel_reads(source: ByteSource) -> int:
    """How many requests a source answers at the same time."""
    return int(getattr(source, "parallel", 1))


def read_exactly(source: ByteSource, ranges: Sequence[Range], root: str) -> list[Bytes]:
    """As ``source.read``, but a source that gives fewer bytes than asked is caught."""
    buffers = source.read(ranges)
    for asked, buffer in zip(ranges, buffers, strict=True):
        if len(buffer) != asked[2]:
            raise came_short(asked, len(buffer), root)
    return buffers


@contextlib.contextmanager
def checking(source: ByteSource, ranges: Sequence[Range]) -> Iterator[None]:
    """The bytes of these ranges are checked inside; if they are wrong, no copy of them is kept."""
    try:
        yield
    except StoreCorrupt:
        drop_copies(source, ranges)
        raise


def drop_copies(source: ByteSource, ranges: Sequence[Range]) -> None:
    """Let a source forget copies of these ranges, which turned out to be wrong."""
    drop = getattr(source, "drop", None)
    if drop is not None:
        drop(ranges)


def came_short(asked: Range, got: int, root: str) -> StoreCorrupt:
    """The error for a read that gave fewer bytes than asked."""
    name, offset, size = asked
    return StoreCorrupt(
        f"{root}/{name}: asked for {size:,} bytes from {offset:,} on and got {got:,}. The file was "
        "cut short after the store was opened; restore it or build the store again."
    )


class _Handle(Single):
    """An open file that closes when the last reader lets go of it.

    Readers hold the object during a read, so the cache of handles may drop it at any moment
    without another thread reading from a reused descriptor.
    """

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        # a link is refused, a pipe is not waited for
        self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            raise StoreCorrupt(
                f"{path}: this is not a regular file, so it is not read. Restore it from a copy."
            )

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class LocalSource:
    """The files below a directory; at most `open_files` descriptors stay open.

    A copy opens the files of the same directory itself.
    """

    def __init__(self, root: str | Path, open_files: int = OPEN_FILES) -> None:
        self._root = os.path.realpath(root)
        self._open_files = open_files
        self._handles: OrderedDict[str, _Handle] = OrderedDict()
        self._lock = lock_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalSource, (self._root, self._open_files)

    def _forked(self, torn: bool) -> None:
        """Descriptors stay valid: a handle is in the cache or not, never in between."""

    def size(self, name: str) -> int | None:
        """See `ByteSource`."""
        try:
            status = os.stat(os.path.join(self._root, name), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(error, os.path.join(self._root, name)) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """See `ByteSource`."""
        try:
            return self._read(ranges)
        except StoreError:
            raise
        except OSError as error:
            name = ranges[0][0] if len({one[0] for one in ranges}) == 1 else ""
            raise unreadable(error, os.path.join(self._root, name)) from error

    def _read(self, ranges: Sequence[Range]) -> list[Bytes]:
        if len(ranges) == 1:  # the short way
            name, offset, size = ranges[0]
            if size < LARGE:
                buffer: Bytes = np.empty(size, np.uint8)
            else:
                shift = _shift(-offset)
                buffer = _POOL.take(size + shift)
                if shift:
                    buffer = buffer[shift:]
            handle = self._handles.get(name) or self._open(name)
            if _READ(handle.fd, (buffer,), offset) != size:
                self._read_on(handle, name, buffer, offset)
            return [buffer]
        buffers = place_buffers(ranges)
        opened, last = None, ""
        for (name, offset, size), buffer in zip(ranges, buffers, strict=True):
            if opened is None or name != last:  # ranges come file by file
                opened, last = self._handles.get(name) or self._open(name), name
            if _READ(opened.fd, (buffer,), offset) != size:
                self._read_on(opened, name, buffer, offset)
        return buffers

    def _read_on(self, handle: _Handle, name: str, buffer: Bytes, offset: int) -> None:
        """Read again until the buffer is full: one call gives at most 2 GiB, a signal less."""
        done = 0
        while done < len(buffer):
            count = _READ(handle.fd, [buffer[done:]], offset + done)
            if count == 0:
                raise came_short((name, offset, len(buffer)), done, self._root)
            done += count

    def _open(self, name: str) -> _Handle:
        path = os.path.join(self._root, name)
        real = self._real(name)
        if not real.startswith(self._root + os.sep):
            raise StoreError(
                f"{path}: it leads out of the store, to {real}; links are refused. Copy the file "
                "into the store."
            )
        try:
            handle = _Handle(path)
        except StoreError:
            raise
        except OSError as error:
            raise unreadable(error, path) from error
        with self._lock:
            self._handles[name] = handle
            while len(self._handles) > self._open_files:
                self._handles.popitem(last=False)
        return handle

    def announce(self, ranges: Sequence[Range]) -> None:
        """Tell the system that these are read soon."""
        if not hasattr(os, "posix_fadvise"):
            return
        for name, offset, size in sorted(ranges):
            handle = self._handles.get(name) or self._open(name)
            with contextlib.suppress(OSError):  # advice that is not taken
                os.posix_fadvise(handle.fd, offset, size, os.POSIX_FADV_WILLNEED)

    @contextlib.contextmanager
    def handle(self, name: str) -> Iterator[int]:
        """The descriptor of a file, open as long as the context lasts."""
        opened = self._handles.get(name) or self._open(name)
        yield opened.fd

    def _real(self, name: str) -> str:
        """Where a file really is; only what is below the root is examined."""
        place, parts = self._root, name.split("/")
        for part in parts:
            place = f"{place}{os.sep}{part}"
            if part == ".." or os.path.islink(place):
                return os.path.realpath(os.path.join(self._root, name))
        return place


def new_buffer(size: int) -> Bytes:
    """Uninitialised bytes; large ones start on a page."""
    return np.empty(size, np.uint8) if size < LARGE else _POOL.take(size)


def _pread(fd: int, buffers: Sequence[Any], offset: int) -> int:
    (buffer,) = buffers
    data = os.pread(fd, len(buffer), offset)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return len(data)


_READ: Callable[[int, Sequence[Any], int], int] = getattr(os, "preadv", _pread)


def _shift(distance: int) -> int:
    """How far a buffer must move if it is `distance` bytes after its file offset."""
    distance &= PAGE - 1
    return SAFE - distance if 0 < distance < SAFE else 0


def place_buffers(ranges: Sequence[Range]) -> list[Bytes]:
    """A buffer for each range, small ones in one slab, none of them in a slow place.

    Worked example: the slab starts on a page. A range at file offset 4090 would be 6 bytes
    after its offset (modulo 4096), which is slow, so it moves by 58 bytes.
    """
    small = [size for _, _, size in ranges if size < LARGE]
    total = sum(small) + SAFE * len(small)
    slab = np.empty(total, np.uint8) if total < LARGE else _POOL.take(total)
    buffers, place = [], 0
    for _, offset, size in ranges:
        if size >= LARGE:  # memory of its own: whoever keeps it keeps nothing else
            shift = _shift(-offset)
            buffers.append(_POOL.take(size + shift)[shift:])
            continue
        place += _shift(place - offset)
        end = place + size
        buffers.append(slab[place:end])
        place = end
    return buffers
