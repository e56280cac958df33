"""Reading and writing that fail on demand: a `ByteSource` and a `Files` whose N-th call goes wrong.

Reads are numbered from 1; one read may have many ranges. What happens at read `at`:

=========  ========================================================================================
`"raise"`  an `OSError` with the given `errno`
`"short"`  only half of the last buffer is returned, which a source must never do
`"flip"`   one bit of the result is wrong: number `bit`, counted over all buffers, wrapping
=========  ========================================================================================

`FaultSource` is also a recorder: `requests` keeps the ranges of every read, faulty or not.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of, place
from tokenloom.remote.uploads import files_of
from tokenloom.store.byte_source import ByteSource, Range
from tokenloom.store.files import Files, OutFile
from tokenloom.store.handles import lock_of

__all__ = ["FaultFiles", "FaultSource", "FileCall"]

EXIT_CODE = 137  # what a shell reports for SIGKILL

T = TypeVar("T")

_FAULT = ("at", "action", "error", "bit", "latency", "forever", "only")


class FaultSource:
    """Passes reads on to `inner`; safe to use from several threads. A copy counts from 0.

    Args:
        inner: the source of the bytes.
        at: number of the read that fails, from 1; 0 for none.
        action: what happens then, see the module's table.
        error: `errno` of the error that is raised.
        bit: which bit of the result is flipped.
        latency: seconds added to every read.
        forever: whether every read from `at` on fails.
        only: count only reads with a file name that contains this; default: all reads.

    Attributes:
        requests: the ranges of every read, in order.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.store.byte_source import LocalSource
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = tl.build([{"text": "ab"}], folder.name + "/toy", tokenizer="bytes").path
    >>> flaky = FaultSource(LocalSource(path), at=1, action="flip", only="input_ids")
    >>> store = tl.open(path, source=flaky)
    >>> try:
    ...     store.tokens(0, 2)
    ... except tl.StoreCorrupt as error:
    ...     print(str(error).split(": ", 1)[1].split(".")[0])
    chunk 0 (elements 0 to 2): the crc32c does not match
    >>> store.tokens(0, 2)  # the second read is correct, and is accepted
    array([97, 98], dtype=int32)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        inner: ByteSource,
        *,
        at: int = 0,
        action: str = "raise",
        error: int = errno.EIO,
        bit: int = 0,
        latency: float = 0.0,
        forever: bool = False,
        only: str | None = None,
    ) -> None:
        one_of("action", action, ("raise", "short", "flip"))
        self.inner, self.at, self.action, self.error, self.bit = inner, at, action, error, bit
        self.latency, self.forever, self.only = latency, forever, only
        self.requests: list[list[Range]] = []
        self._count = 0
        self._lock = lock_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        fault = {name: getattr(self, name) for name in _FAULT}
        return functools.partial(FaultSource, **fault), (self.inner,)

    def _forked(self, torn: bool) -> None:
        """A count that another thread was about to add is lost with that thread."""

    @property
    def happened(self) -> bool:
        """Whether the faulty read was reached."""
        return 0 < self.at <= self._count

    def size(self, name: str) -> int | None:
        """See `ByteSource`."""
        return self.inner.size(name)

    def read(self, ranges: Sequence[Range]) -> list[NDArray[np.uint8]]:
        """See `ByteSource`."""
        faulty = self._count_read(ranges)
        if self.latency:
            time.sleep(self.latency)
        if faulty and self.action == "raise":
            raise OSError(self.error, os.strerror(self.error), ranges[0][0] if ranges else None)
        buffers = self.inner.read(ranges)
        if faulty and self.action == "short":
            return [*buffers[:-1], buffers[-1][: len(buffers[-1]) // 2]]
        if faulty:
            _flip(buffers, self.bit)
        return buffers

    def _count_read(self, ranges: Sequence[Range]) -> bool:
        """Record a read; True if it must fail."""
        with self._lock:
            self.requests.append(list(ranges))
            if not any(size and (self.only or "") in name for name, _, size in ranges):
                return False
            self._count += 1
            return 0 < self.at == self._count or (self.forever and 0 < self.at < self._count)


def _flip(buffers: Sequence[NDArray[np.uint8]], bit: int) -> None:
    place, within = divmod(bit % (8 * sum(map(len, buffers))), 8)
    for buffer in buffers:
        if place < len(buffer):
            buffer[place] ^= 1 << within
            return
        place -= len(buffer)


@dataclass(slots=True, eq=False)
class FileCall:
    """One call of a method of `Files`; "write" and "close" are those of a file.

    Attributes:
        name: the method.
        path: what it is about; of "rename_new" and "link_new", the new name.
        source: of "rename_new" and "link_new", the old name.
        data: of "write", the bytes.
        done: whether it changed what it was about, as far as that is known.
    """

    name: str
    path: Path
    source: Path | None = None
    data: bytes = b""
    done: bool = False


class FaultFiles:
    """Passes calls on to `inner`, counts them, and goes wrong at one of them.

    Pass it as ``files`` to `tl.build`, `exchange.convert` or `exchange.export`. Calls are numbered
    from 1, over all methods, the writes and the close of each file included. At call `at`:

    =========  ====================================================================================
    `"raise"`  an `OSError` with the given `errno`; nothing of the call happens; later calls work
    `"short"`  as above, but a write first gets half of its bytes to the disk
    `"stop"`   as above, and every later call fails too: what reaches the disk is exactly what a
               killed process leaves there, without the cost of a process
    `"exit"`   the process ends at once with code 137, running no handler and no ``finally``
    =========  ====================================================================================

    Args:
        inner: writes the files; or the URL of the store, if it is in a bucket; default: the disk.
        at: number of the call that goes wrong, from 1; 0 for none.
        action: what happens then.
        error: `errno` of the error that is raised.
        only: names of the calls that count; default: all.
        before: called with every call that counts, before it is made.
        locks: whether there are advisory locks, which some file systems do not have.
        sync: whether directories are synced; without, builds in tests are faster.

    Attributes:
        calls: every call that counted, in order, the faulty one included.

    >>> import tempfile, tokenloom as tl
    >>> files = FaultFiles(at=4, error=errno.ENOSPC, only=["write"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         tl.build([{"text": "hello"}], folder + "/toy", tokenizer="bytes", files=files)
    ...     except OSError as error:
    ...         os.strerror(error.errno), files.happened
    ('No space left on device', True)
    """

    def __init__(
        self,
        inner: Files | str | None = None,
        *,
        at: int = 0,
        action: str = "raise",
        error: int = errno.ENOSPC,
        only: Collection[str] | None = None,
        before: Callable[[FileCall], None] | None = None,
        locks: bool = True,
        sync: bool = True,
    ) -> None:
        one_of("action", action, ("raise", "short", "stop", "exit"))
        if inner is None or isinstance(inner, str):
            inner = files_of(place("inner", inner or "."))
        self.inner: Files = inner
        self.at, self.action, self.error, self.only = at, action, error, only
        self.before, self.locks, self.sync = before, locks, sync
        self.calls: list[FileCall] = []
        self._stopped = False

    @property
    def happened(self) -> bool:
        """Whether the faulty call was reached."""
        return 0 < self.at <= len(self.calls)

    def _strikes(self, call: FileCall) -> bool:
        """Count a call; True if it fails (never returns if the process is to end)."""
        if self._stopped:
            return True
        if self.only is not None and call.name not in self.only:
            return False
        self.calls.append(call)
        if self.before is not None:
            self.before(call)
        if len(self.calls) != self.at:
            return False
        if self.action == "exit":
            os._exit(EXIT_CODE)
        self._stopped = self.action == "stop"
        return True

    def _call(
        self, call: FileCall, make: Callable[[], T], half: Callable[[], None] | None = None
    ) -> T:
        """Make a call; if it is the faulty one, at most half of it."""
        if self._strikes(call):
            if half is not None and self.action == "short":
                half()
            raise OSError(self.error, os.strerror(self.error), str(call.path))
        found = make()
        call.done = found is not False
        return found

    # -- Files -----------------------------------------------------------------------------

    @property
    def folders(self) -> bool:
        """See `Files`."""
        return self.inner.folders

    def create(self, path: Any) -> OutFile:
        """See `Files`."""
        out = self._call(FileCall("create", path), lambda: self.inner.create(path))
        return _FaultOut(self, path, out)

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        """See `Files`."""
        self._call(FileCall("mkdir", path), lambda: self.inner.mkdir(path, mode))

    def rename_new(self, source: Any, target: Any) -> bool:
        """See `Files`."""
        call = FileCall("rename_new", target, source)
        return self._call(call, lambda: self.inner.rename_new(source, target))

    def link_new(self, source: Any, target: Any) -> bool:
        """See `Files`."""
        call = FileCall("link_new", target, source)
        return self._call(call, lambda: self.inner.link_new(source, target))

    def chmod_like(self, path: Any, model: Any) -> None:
        """See `Files`."""
        self._call(FileCall("chmod_like", path), lambda: self.inner.chmod_like(path, model))

    def sync_directory(self, path: Any) -> None:
        """See `Files`."""
        sync = self.inner.sync_directory if self.sync else lambda path: None
        self._call(FileCall("sync_directory", path), lambda: sync(path))

    def list(self, path: Any) -> list[str]:
        """See `Files`."""
        return self._call(FileCall("list", path), lambda: self.inner.list(path))

    def read(self, path: Any, limit: int) -> bytes | None:
        """See `Files`."""
        return self._call(FileCall("read", path), lambda: self.inner.read(path, limit))

    def remove(self, path: Any) -> None:
        """See `Files`."""
        call, known = FileCall("remove", path), self.inner.measure(path) is not None
        self._call(call, lambda: self.inner.remove(path))
        call.done = known

    @contextlib.contextmanager
    def lock(self, path: Any, *, shared: bool = False) -> Iterator[bool | None]:
        """See `Files`."""
        held = self._call(FileCall("lock", path), lambda: self.inner.lock(path, shared=shared))
        with held if self.locks else contextlib.nullcontext() as have:
            yield have

    def measure(self, path: Any) -> int | None:
        """See `Files`; it changes nothing and is not counted, like the next two."""
        return self.inner.measure(path)

    def below(self, path: Any) -> dict[str, int]:
        """See `Files`."""
        return self.inner.below(path)

    def idle(self, path: Any) -> float:
        """See `Files`."""
        return self.inner.idle(path)


class _FaultOut:
    """A file whose writes and close are calls like any other."""

    def __init__(self, files: FaultFiles, path: Path, inner: OutFile) -> None:
        self._files, self._path, self._inner = files, path, inner

    def write(self, data: Any) -> None:
        view, only = memoryview(data).cast("B"), self._files.only
        counts = only is None or "write" in only
        call = FileCall("write", self._path, data=bytes(view) if counts else b"")
        half = view[: len(view) // 2]
        self._files._call(call, lambda: self._inner.write(data), lambda: self._inner.write(half))

    def close(self) -> None:
        self._files._call(FileCall("close", self._path), self._inner.close)
