"""A `Files`, through which a store is written, whose N-th call fails."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tokenloom.arguments import one_of, place
from tokenloom.remote.uploads import files_of
from tokenloom.store.files import Files, OutFile

__all__ = ["FaultFiles", "FileCall"]

ACTIONS = ("raise", "short", "stop", "exit")

EXIT_CODE = 137  # what a shell reports for SIGKILL

T = TypeVar("T")


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
        one_of("action", action, ACTIONS)
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
