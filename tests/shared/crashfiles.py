"""Power loss: what the disk may hold when the machine stops after the N-th effect.

One idea: `CrashFiles` works on a real directory and writes down every effect. From that log alone,
any number of *crash states* can be made afterwards, each in a directory of its own, and opened,
verified and built on like the real thing. What may survive is modelled in `crashdisk`.

A kill without power loss is another matter: it loses no byte that was written, see `FaultFiles`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from crashdisk import Effect, play, scan, write_after_crash

from tokenloom.store.files import LOCAL, Files, OutFile

__all__ = ["CrashFiles"]


class CrashFiles:
    """Passes calls on to `inner`, and remembers every effect.

    Args:
        root: the directory to watch, made if missing; what is in it now is safe.
        inner: who does the work.
        forget: calls that are passed on but make nothing safe (`"close"`, `"sync_directory"`). A
            harness that finds no fault in a writer without them finds nothing at all.

    Attributes:
        log: the effects so far.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = CrashFiles(Path(folder.name, "disk"))
    >>> out = files.create(files.root / "a")
    >>> out.write(b"hello")
    >>> out.close()
    >>> files.crash(Path(folder.name, "after"), at=3, seed=0)  # the name was never synced
    >>> os.listdir(folder.name + "/after")
    []
    >>> files.sync_directory(files.root)
    >>> files.crash(Path(folder.name, "later"), at=4, seed=0)
    >>> Path(folder.name, "later/a").read_bytes()
    b'hello'
    >>> folder.cleanup()
    """

    def __init__(self, root: Path, inner: Files = LOCAL, *, forget: Collection[str] = ()) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, self.inner, self.forget = root, inner, forget
        self.log: list[Effect] = []
        self._before = scan(root)

    def crash(self, target: Path, *, at: int, seed: int) -> None:
        """Write what a power loss after `at` effects may leave into the new directory `target`.

        Seed 0 keeps only what is safe, 1 all names but no unsafe byte, 2 everything; any other
        seed keeps a sample of its own.
        """
        write_after_crash(play(self._before, self.log[:at]), target, seed)

    def note(self, name: str, path: Path, target: Path | None = None, data: bytes = b"") -> None:
        """Remember an effect."""
        where = os.path.relpath(path, self.root)
        if name not in self.forget and not where.startswith(".."):  # only this disk is modelled
            to = os.path.relpath(target, self.root) if target else ""
            self.log.append(Effect(name, where, to, data))

    # -- Files -----------------------------------------------------------------------------

    def create(self, path: Path) -> OutFile:
        """See `Files`."""
        out = self.inner.create(path)
        self.note("create", path)
        return _CrashOut(self, path, out)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """See `Files`."""
        self.inner.mkdir(path, mode)
        self.note("mkdir", path)

    def rename_new(self, source: Path, target: Path) -> bool:
        """See `Files`."""
        done = self.inner.rename_new(source, target)
        if done:
            self.note("rename", source, target)
        return done

    def link_new(self, source: Path, target: Path) -> bool:
        """See `Files`."""
        done = self.inner.link_new(source, target)
        if done:
            self.note("link", source, target)
        return done

    def chmod_like(self, path: Path, model: Path) -> None:
        """See `Files`."""
        self.inner.chmod_like(path, model)

    def sync_directory(self, path: Path) -> None:
        """See `Files`."""
        self.inner.sync_directory(path)
        self.note("sync_directory", path)

    def list(self, path: Path) -> list[str]:
        """See `Files`."""
        return self.inner.list(path)

    def read(self, path: Path, limit: int) -> bytes | None:
        """See `Files`."""
        return self.inner.read(path, limit)

    def remove(self, path: Path) -> None:
        """See `Files`."""
        there = os.path.lexists(path)
        self.inner.remove(path)
        if there:
            self.note("remove", path)

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

    def lock(
        self, path: Path, *, shared: bool = False
    ) -> contextlib.AbstractContextManager[bool | None]:
        """See `Files`."""
        return self.inner.lock(path, shared=shared)


class _CrashOut:
    """A file whose bytes are remembered."""

    def __init__(self, files: CrashFiles, path: Path, inner: OutFile) -> None:
        self._files, self._path, self._inner = files, path, inner

    def write(self, data: Any) -> None:
        self._inner.write(data)
        self._files.note("write", self._path, data=bytes(memoryview(data).cast("B")))

    def close(self) -> None:
        self._inner.close()
        self._files.note("close", self._path)
