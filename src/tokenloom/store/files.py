"""The seam through which everything is written: a dozen calls, so that each of them can fail.

Nothing outside this module creates, renames or removes a file of a store. Tests put a
`Files` in between that fails, kills the process, or forgets unsynced bytes at the N-th call
(`tokenloom.testing`), and prove that a reader never sees a partial store.

Publishing is always: write under a temporary name, fsync, move into place, fsync the directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tokenloom.arguments import Place
from tokenloom.errors import StoreCorrupt, StoreError, StoreExists
from tokenloom.store.handles import Single

TEMPORARY_PREFIX = ".tmp-"

TEMPORARY_NAME = re.compile(r"\.tmp-[0-9a-f]{32}")  # exactly what `temporary_name` gives

LOCK_NAME = ".lock"

FOLDER, OTHER = -1, -2  # instead of a size: a directory; a link, a pipe, a device


class OutFile(Protocol):
    """A file being written from its beginning to its end."""

    def write(self, data: Any) -> None:
        """Append every byte of a contiguous buffer."""

    def close(self) -> None:
        """Make the bytes durable (fsync), then close."""


class Files(Protocol):
    """The effects that a writer needs.

    Paths are absolute or relative to the process; in a bucket, they are URLs.
    """

    folders: bool
    """Whether there are directories. In a bucket there are only names: a shard appears there file
    by file, its commit record last."""

    def create(self, path: Any) -> OutFile:
        """A new empty file; it is an error if the name exists."""

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        """A new directory; it is an error if the name exists."""

    def rename_new(self, source: Any, target: Any) -> bool:
        """Move a directory to a name that must be free; False if it is taken."""

    def link_new(self, source: Any, target: Any) -> bool:
        """Give a file a second name that must be free; False if it is taken."""

    def chmod_like(self, path: Any, model: Any) -> None:
        """Give `path` the permissions of `model`."""

    def sync_directory(self, path: Any) -> None:
        """Make the names in a directory durable."""

    def list(self, path: Any) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""

    def read(self, path: Any, limit: int) -> bytes | None:
        """All bytes of a file of at most `limit` bytes, or None if there is no such file."""

    def remove(self, path: Any) -> None:
        """Remove a file or a whole directory; nothing happens if it is gone."""

    def lock(
        self, path: Any, *, shared: bool = False
    ) -> contextlib.AbstractContextManager[bool | None]:
        """The advisory lock of a directory: True held, False another has it, None no locks here.

        Several may hold it `shared` at once, which keeps out those who want it alone.
        """

    def measure(self, path: Any) -> int | None:
        """Bytes of a regular file, `FOLDER`, `OTHER`, or None; no link is followed."""

    def below(self, path: Any) -> dict[str, int]:
        """Everything below a directory, by its name from there, measured."""

    def idle(self, path: Any) -> float:
        """Seconds since anything below a directory, or a file, was last written."""


class _LocalOut(Single):
    """An unbuffered file: every write goes to the kernel whole, or raises."""

    _fd = -1  # also when opening fails

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._path = path
        self._written = 0
        self._fd = os.open(path, flags, 0o666)

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while len(view):  # a signal or a nearly full disk may cut a write short
            try:
                count = os.write(self._fd, view)
            except OSError as error:
                done = f"after {self._written:,} bytes, with {len(view):,} more to write"
                raise failed(error, self._path, f"writing failed {done}") from error
            self._written += count
            view = view[count:]

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            os.fsync(fd)
        except OSError as error:
            raise failed(error, self._path, f"syncing {self._written:,} bytes failed") from error
        finally:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def failed(error: OSError, path: Place, what: str) -> StoreError:
    """The readable form of a system call that failed."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    what_to_do = (
        "Free some space and run the same build again: finished shards are kept."
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        else _MANY_OPEN
        if error.errno in (errno.EMFILE, errno.ENFILE)
        else "Run the same command again when this is mended: finished shards are kept."
    )
    failure = StoreError(f"{path}: {what}: {reason}. {what_to_do}")
    failure.errno = error.errno
    return failure


_MANY_OPEN = "The file itself is fine: close others, or raise the limit with `ulimit -n`."


def unreadable(error: OSError, path: object) -> StoreError:
    """What a system call that failed while reading says about a store.

    Only a file that is not there, or is something else, is damage; a process with too many open
    files, a disk that failed for a moment or a lack of permission are told as what they are.
    """
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO):
        failure: StoreError = StoreCorrupt(
            f"{path}: it cannot be opened: {reason}. Restore it or build the store again."
        )
    else:
        advice = {
            errno.EMFILE: _MANY_OPEN,
            errno.ENFILE: _MANY_OPEN,
            errno.EACCES: "Ask for permission to read it.",
            errno.EPERM: "Ask for permission to read it.",
        }.get(
            error.errno or 0,
            "The disk or the network failed; nothing says that the store is damaged. Try again, "
            "and run `tokenloom verify` if it goes on.",
        )
        failure = StoreError(f"{path}: reading failed: {reason}. {advice}")
    failure.errno = error.errno
    return failure


@contextlib.contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    """Errors of the system inside say which path and what was tried."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise failed(error, path, f"{what} failed") from error


class LocalFiles:
    """`Files` on a local or network file system."""

    folders = True

    def create(self, path: Path) -> OutFile:
        """See `Files`."""
        with _named(path, "creating it"):
            return _LocalOut(path)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """See `Files`."""
        with _named(path, "making this directory"):
            try:
                os.mkdir(path, mode)
            except FileExistsError as error:
                raise StoreExists(f"{path}: it is already there. Choose another name.") from error

    def rename_new(self, source: Path, target: Path) -> bool:
        """See `Files`. A directory never replaces a non-empty one, so the kernel decides races."""
        with _named(target, "moving it into place"):
            try:
                os.rename(source, target)
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                    return False
                raise
        return True

    def link_new(self, source: Path, target: Path) -> bool:
        """See `Files`. Where hard links are missing, the file is renamed if the name is free."""
        with _named(target, "moving it into place"):
            try:
                os.link(source, target)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                    raise
                if target.exists():
                    return False
                os.rename(source, target)
        return True

    def chmod_like(self, path: Path, model: Path) -> None:
        """See `Files`."""
        with _named(path, "setting its permissions"):
            os.chmod(path, stat.S_IMODE(os.stat(model).st_mode) & 0o777)

    def sync_directory(self, path: Path) -> None:
        """See `Files`."""
        with _named(path, "syncing this directory"):
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def list(self, path: Path) -> list[str]:
        """See `Files`."""
        with _named(path, "listing this directory"):
            try:
                return sorted(os.listdir(path))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def read(self, path: Path, limit: int) -> bytes | None:
        """See `Files`. Links are not followed, and only regular files are read."""
        with _named(path, "reading it"):
            try:
                fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError):
                return None
            with open(fd, "rb", buffering=0) as file:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise StoreError(f"{path}: this is not a regular file. Allowed: a file.")
                if status.st_size > limit:
                    raise StoreError(
                        f"{path}: it has {status.st_size:,} bytes, allowed: {limit:,}. "
                        "This is not a file that tokenloom wrote."
                    )
                return file.readall()

    def remove(self, path: Path) -> None:
        """See `Files`. A directory first loses its name, so it is never half there under it."""
        with _named(path, "removing it"), contextlib.suppress(FileNotFoundError):
            if not path.is_dir() or path.is_symlink():
                path.unlink(missing_ok=True)
                return
            if not TEMPORARY_NAME.fullmatch(path.name):
                doomed = path.parent / temporary_name()
                os.rename(path, doomed)
                path = doomed
            shutil.rmtree(path)

    @contextlib.contextmanager
    def lock(self, path: Path, *, shared: bool = False) -> Iterator[bool | None]:
        """See `Files`. The kernel frees it when its holder dies, so it is never stale.

        The lock only saves work; renames decide what is published (a network file system may
        not lock at all). A link of that name is not followed, a pipe is not waited for.
        """
        place, flags = path / LOCK_NAME, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        with _named(place, "opening it"):
            fd = os.open(place, flags | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK, 0o666)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise StoreError(
                    f"{place}: this is not a regular file, so it is no lock of ours. Remove it."
                )
            held: bool | None
            try:
                import fcntl

                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                held = False
            except (ImportError, OSError):  # this platform or file system has no locks
                held = None
            yield held

    def measure(self, path: Path) -> int | None:
        """See `Files`."""
        try:
            return _measured(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def below(self, path: Path) -> dict[str, int]:
        """See `Files`."""
        found: dict[str, int] = {}
        for place, folders, names in os.walk(path):
            inside = os.path.relpath(place, path)
            for name in [*folders, *names]:
                size = self.measure(Path(place, name))
                if size is not None:  # its builder lives, and has removed it
                    found[os.path.normpath(os.path.join(inside, name)).replace(os.sep, "/")] = size
        return found

    def idle(self, path: Path) -> float:
        """See `Files`."""
        moments = [0.0]
        for one in (path, *(path / name for name in self.below(path))):
            with contextlib.suppress(FileNotFoundError):
                moments.append(os.lstat(one).st_mtime)
        return time.time() - max(moments)


def _measured(status: os.stat_result) -> int:
    if stat.S_ISREG(status.st_mode):
        return status.st_size
    return FOLDER if stat.S_ISDIR(status.st_mode) else OTHER


LOCAL = LocalFiles()


def temporary_name() -> str:
    """A name that no other process has: two builders never share a temporary file."""
    return TEMPORARY_PREFIX + secrets.token_hex(16)


def publish_file(files: Files, path: Place, data: bytes) -> bool:
    """Write a whole small file that appears at once or not at all; False if the name is taken."""
    with _written(files, path, data) as temporary:
        return files.link_new(temporary, path)


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole small file, in the place of one that may be there; no reader sees a part."""
    with _written(LOCAL, path, data) as temporary:
        os.replace(temporary, path)


@contextlib.contextmanager
def _written(files: Files, path: Place, data: bytes) -> Iterator[Any]:
    """The temporary name of a file that is written and synced; then so is its directory."""
    temporary = path.parent / temporary_name()
    try:
        out = files.create(temporary)
        out.write(data)
        out.close()
        yield temporary
    finally:
        files.remove(temporary)
    files.sync_directory(path.parent)
