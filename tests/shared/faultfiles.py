"""A `Files` whose N-th call goes wrong.

Calls are numbered from 1, over all methods, the writes and the close of each file included; `only`
restricts the count to some of them. What happens at call `at`:

=========  ========================================================================================
`"raise"`  an `OSError` with the given `errno`; nothing of the call happens; later calls work
`"short"`  as above, but a write first gets half of its bytes to the disk
`"stop"`   as above, and every later call fails too: what reaches the disk is exactly what a killed
           process leaves there, without the cost of a process
`"exit"`   the process ends at once with code 137, running no handler and no `finally`
=========  ========================================================================================
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenloom.store.files import LOCAL, Files, OutFile

__all__ = ["EXIT_CODE", "Call", "FaultFiles"]

ACTIONS = ("raise", "short", "stop", "exit")

EXIT_CODE = 137  # what a shell reports for SIGKILL


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the method (`"write"` and `"close"` are those of a file) and its path."""

    name: str
    path: Path


class FaultFiles:
    """Passes calls on to `inner` and goes wrong at one of them.

    Args:
        inner: who does the work.
        at: number of the call that goes wrong, from 1; 0 for none.
        action: what then happens, see the module's table.
        error: `errno` of the error that is raised.
        only: names of the calls that count; all, if not given.

    Attributes:
        calls: every call that counted, in order, the faulty one included.

    >>> files = FaultFiles(at=1, error=errno.EROFS, only=["mkdir"])
    >>> files.mkdir(Path("/nowhere"))
    Traceback (most recent call last):
        ...
    OSError: [Errno 30] Read-only file system: '/nowhere'
    >>> files.calls
    [Call(name='mkdir', path=PosixPath('/nowhere'))]
    """

    def __init__(
        self,
        inner: Files = LOCAL,
        *,
        at: int = 0,
        action: str = "raise",
        error: int = errno.ENOSPC,
        only: Collection[str] | None = None,
    ) -> None:
        if action not in ACTIONS:
            raise ValueError(f"action: found {action!r}, allowed: {', '.join(ACTIONS)}.")
        self.inner, self.at, self.action, self.error, self.only = inner, at, action, error, only
        self.calls: list[Call] = []
        self._stopped = False

    @property
    def happened(self) -> bool:
        """Whether the faulty call was reached."""
        return 0 < self.at <= len(self.calls)

    def strikes(self, name: str, path: Path) -> bool:
        """Count a call; True if it is the faulty one (never returns if the process is to end)."""
        if self._stopped:
            return True
        if self.only is not None and name not in self.only:
            return False
        self.calls.append(Call(name, path))
        if len(self.calls) != self.at:
            return False
        if self.action == "exit":
            os._exit(EXIT_CODE)
        self._stopped = self.action == "stop"
        return True

    def failure(self, path: Path) -> OSError:
        """The error that the faulty call raises."""
        return OSError(self.error, os.strerror(self.error), str(path))

    def _pass(self, name: str, path: Path) -> None:
        if self.strikes(name, path):
            raise self.failure(path)

    # -- Files -----------------------------------------------------------------------------

    def create(self, path: Path) -> OutFile:
        """See `Files`."""
        self._pass("create", path)
        return _FaultOut(self, path, self.inner.create(path))

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """See `Files`."""
        self._pass("mkdir", path)
        self.inner.mkdir(path, mode)

    def rename_new(self, source: Path, target: Path) -> bool:
        """See `Files`."""
        self._pass("rename_new", target)
        return self.inner.rename_new(source, target)

    def link_new(self, source: Path, target: Path) -> bool:
        """See `Files`."""
        self._pass("link_new", target)
        return self.inner.link_new(source, target)

    def chmod_like(self, path: Path, model: Path) -> None:
        """See `Files`."""
        self._pass("chmod_like", path)
        self.inner.chmod_like(path, model)

    def sync_directory(self, path: Path) -> None:
        """See `Files`."""
        self._pass("sync_directory", path)
        self.inner.sync_directory(path)

    def list(self, path: Path) -> list[str]:
        """See `Files`."""
        self._pass("list", path)
        return self.inner.list(path)

    def read(self, path: Path, limit: int) -> bytes | None:
        """See `Files`."""
        self._pass("read", path)
        return self.inner.read(path, limit)

    def remove(self, path: Path) -> None:
        """See `Files`."""
        self._pass("remove", path)
        self.inner.remove(path)

    def measure(self, path: Path) -> int | None:
        """See `Files`: a look, which can tear nothing, so it is not counted."""
        return self.inner.measure(path)

    def below(self, path: Path) -> dict[str, int]:
        """See `Files`."""
        return self.inner.below(path)

    def idle(self, path: Path) -> float:
        """See `Files`."""
        return self.inner.idle(path)

    @property
    def folders(self) -> bool:
        """See `Files`."""
        return self.inner.folders

    @contextlib.contextmanager
    def lock(self, path: Path, *, shared: bool = False) -> Iterator[bool | None]:
        """See `Files`."""
        self._pass("lock", path)
        with self.inner.lock(path, shared=shared) as held:
            yield held


class _FaultOut:
    """A file whose writes and close are calls like any other."""

    def __init__(self, files: FaultFiles, path: Path, inner: OutFile) -> None:
        self._files, self._path, self._inner = files, path, inner

    def write(self, data: Any) -> None:
        if self._files.strikes("write", self._path):
            if self._files.action == "short":
                view = memoryview(data).cast("B")
                self._inner.write(view[: len(view) // 2])
            raise self._files.failure(self._path)
        self._inner.write(data)

    def close(self) -> None:
        if self._files.strikes("close", self._path):
            raise self._files.failure(self._path)
        self._inner.close()
