"""Pieces of objects kept on this machine's disk, bounded in bytes, shared by its processes.

One idea: an entry proves itself. It is a file of one fixed, aligned piece of one object; its header
says which piece it is and carries a checksum of the content. Whatever is not exactly that (cut,
changed, of another user, a link) is not used: it is removed, told once, and fetched again. So
nothing has to be durable, and a process may die at any moment. An entry that merely cannot be
opened or read now (no free descriptor, a disk that fails) proves nothing: it stays for the others.

::

    magic 8 | sha256 of the key 32 | bytes of content 8 | xxh3_128 of key and content 16 | content

Nobody serves the others. An entry is written to a temporary file of its full size and renamed. What
all entries and temporary files take is one number in the lock file, changed under its lock *before*
a byte is written: it is never less than the truth, so the bound is kept at all times. When it would
be passed, the folder is looked at, the number put right, and what was used longest ago is removed,
down to nine tenths, so that the next look is far away. A reader that has an entry open keeps it.

Whoever fetches a piece claims it, so that of several processes that miss it together one asks the
bucket and the others wait for the entry; a claim ends with its process, and nobody waits long. A
claim is an open file, so whoever needs many pieces claims some at a time.

The key is the sha256 of the manifest, the name of the file and the first byte of the piece; never
an etag or a URL. A hit costs one open, one read and one checksum (0.08 ms of CPU for 512 KiB),
keeping a piece 0.33 ms.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import logging
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from tokenloom.arguments import integer, local_path
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.store.byte_source import new_buffer
from tokenloom.store.files import temporary_name

__all__ = ["DiskCache", "PieceKey", "most_claims"]

log = logging.getLogger("tokenloom")

# without the locks of the system nothing is kept
fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

Bytes = NDArray[np.uint8]

DEFAULT_BYTES = 64 << 30

MAGIC = b"tlpiece1"

_HEADER = struct.Struct("<8s32sQ16s")

_TOTAL = struct.Struct("<8sQ")  # what the lock file holds

LOCK_SECONDS, CLAIM_SECONDS, LOOK_SECONDS = 10.0, 30.0, 0.002  # that a process waits for another

# a quarter of the descriptors that a process may have
MOST_CLAIMS = max(64, (os.sysconf("SC_OPEN_MAX") if fcntl else 0) // 4)

CLAIM_PREFIX = ".claim-"

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


def most_claims() -> int:
    """Pieces that one read claims at a time, each with a descriptor: 512, of 32 requests."""
    return min(limits().disk_cache_claimed_pieces, MOST_CLAIMS)


class PieceKey(NamedTuple):
    """Which piece of which file of which snapshot; all pieces but the last have one size."""

    identity: str
    name: str
    number: int

    def digest(self) -> bytes:
        """32 bytes that name it."""
        first_byte = self.number * limits().disk_cache_piece_bytes
        return hashlib.sha256(f"{self.identity}\0{self.name}\0{first_byte}".encode()).digest()


class DiskCache:
    """A folder of pieces.

    Args:
        folder: where; it is made, for this user alone.
        limit: bytes that all entries take at most, their headers included.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache, key = DiskCache(folder + "/pieces", 1 << 20), PieceKey("a" * 64, "x", 0)
    ...     cache.get(key, 3), cache.put(key, np.frombuffer(b"abc", np.uint8))
    ...     DiskCache(folder + "/pieces", 1 << 20).get(key, 3).tobytes()
    (None, True)
    b'abc'
    """

    def __init__(self, folder: str | Path, limit: int = DEFAULT_BYTES) -> None:
        self.folder = local_path("disk_cache", folder)
        least = limits().disk_cache_piece_bytes + _HEADER.size
        self.limit = integer("disk_cache_bytes", limit, least)
        self._told: set[str] = set()
        self._made()

    def __reduce__(self) -> tuple[Any, ...]:
        return DiskCache, (os.path.abspath(self.folder), self.limit)

    @classmethod
    def chosen(cls, folder: str | Path | None, limit: int | None) -> DiskCache | None:
        """The cache of these settings; what is not given is taken from the environment.

        ``TOKENLOOM_DISK_CACHE`` is the folder, ``TOKENLOOM_DISK_CACHE_BYTES`` the bound.
        """
        folder = folder or os.environ.get("TOKENLOOM_DISK_CACHE")
        if not folder:
            if limit is not None:
                raise ConfigError(
                    f"disk_cache_bytes: found {limit!r} without a folder, allowed: together with "
                    "disk_cache."
                )
            return None
        text = os.environ.get("TOKENLOOM_DISK_CACHE_BYTES", "")
        if limit is None and text:
            if not text.isascii() or not text.isdigit():
                raise ConfigError(
                    f"TOKENLOOM_DISK_CACHE_BYTES: found {text!r:.40}, allowed: a number of bytes."
                )
            limit = int(text)
        return cls(folder, DEFAULT_BYTES if limit is None else limit)

    def _made(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.lstat(self.folder)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise ConfigError(
                f"disk_cache: found {str(self.folder)!r}, which cannot be made ({reason}), "
                "allowed: a folder of this user."
            ) from None
        others = stat.S_IMODE(found.st_mode) & 0o022
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or others:
            raise ConfigError(
                f"disk_cache: found {str(self.folder)!r}, which is a link, or belongs to others, "
                "or may be written by them, allowed: a folder that only this user can write to."
            )

    # -- reading ---------------------------------------------------------------------------

    def get(self, key: PieceKey, size: int) -> Bytes | None:
        """The bytes of a piece of that size, or None if they are not here."""
        digest = key.digest()
        path = self._path(digest)
        try:
            fd = os.open(path, _READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            if _is_no_entry(path):
                self._drop(path, "it is not a file of this user")
            else:
                self._tell_unread(path, error)
            return None
        try:
            wrong, content = _read(fd, digest, size)
            if wrong:
                self._drop(path, wrong)
                return None
            with contextlib.suppress(OSError):  # a disk that may only be read
                os.utime(fd)  # used now
            return content
        except OSError as error:
            self._tell_unread(path, error)
            return None
        finally:
            os.close(fd)

    def drop(self, key: PieceKey) -> None:
        """Remove a piece whose content is not what was published, although it was kept whole."""
        path = self._path(key.digest())
        if path.exists():
            self._drop(path, "its content is not what was published")

    def _drop(self, path: Path, why: str) -> None:
        """Remove an entry that is none, and say so once."""
        self._tell("damaged", f"{path}: this piece is not used but fetched again: {why}.")
        with contextlib.suppress(OSError):
            path.unlink()

    def _tell_unread(self, path: Path, error: OSError) -> None:
        self._tell(
            f"unread {error.errno}",
            f"{path}: this piece stays, but its bytes are fetched: {_reason(error)}.",
        )

    def _path(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    # -- writing ---------------------------------------------------------------------------

    def put(self, key: PieceKey, content: Bytes) -> bool:
        """Keep the bytes of a piece; False if that is not possible, or not needed."""
        digest = key.digest()
        path = self._path(digest)
        if path.exists():
            return False
        size = _HEADER.size + len(content)
        temporary = self.folder / temporary_name()
        try:
            fd = self._reserved(temporary, size)
        except OSError as error:
            return self._not_kept(error)
        if fd is None:
            return False
        try:
            with open(fd, "wb", buffering=0) as file:
                if file.write(_header(digest, content)) + file.write(content.data) != size:
                    raise OSError(errno.ENOSPC, "")
                with self._locked():  # nothing changes its name while somebody counts
                    os.rename(temporary, path)  # noqa: TID251 - a cache need not be durable
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            return self._not_kept(error)
        return True

    def _reserved(self, temporary: Path, size: int) -> int | None:
        """A new file of that size whose bytes are counted; None if there is no room."""
        with self._locked() as lock:
            if lock is None:
                return None
            total = _total(lock)
            if total is None or total + size > self.limit:
                total = self._evict(size)
            if total + size > self.limit:
                return None
            os.pwrite(lock, _TOTAL.pack(MAGIC, total + size), 0)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            fd = os.open(temporary, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # until it is closed: its writer lives
                os.ftruncate(fd, size)  # whoever looks at the folder counts all of it
            except OSError:
                os.close(fd)
                temporary.unlink(missing_ok=True)
                raise
            return fd

    @contextlib.contextmanager
    def claimed(self, keys: Iterable[PieceKey]) -> Iterator[None]:
        """Let one process at a time fetch these pieces; look for them again when you have the turn.

        Claims are taken in one order by all, so that nobody waits in a circle. Each is an open
        file: not more than `most_claims` at a time.
        """
        with contextlib.ExitStack() as turns:
            for name in sorted(key.digest().hex() for key in keys):
                turns.enter_context(self._claim(self.folder / f"{CLAIM_PREFIX}{name}"))
            yield

    @contextlib.contextmanager
    def _claim(self, path: Path) -> Iterator[None]:
        with contextlib.ExitStack() as turn:
            try:
                fd = turn.enter_context(_lock(path, CLAIM_SECONDS))
            except OSError:  # a claim saves requests; without one the piece is fetched all the same
                fd = None
            try:
                yield
            finally:
                if fd is not None:
                    with contextlib.suppress(OSError):
                        path.unlink()  # who waits for it finds the entry

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int | None]:
        with _lock(self.folder / ".lock", LOCK_SECONDS) as fd:
            if fd is None:
                why = f"another process kept their lock for {LOCK_SECONDS:g} seconds"
                self._tell("locks", f"{self.folder}: some pieces are not kept: {why}.")
            yield fd

    def _evict(self, size: int) -> int:
        """Remove what was used longest ago until there is room; the bytes that remain."""
        entries = []
        with os.scandir(self.folder) as found:
            for one in found:
                with contextlib.suppress(FileNotFoundError):
                    status = one.stat(follow_symlinks=False)
                    if one.name != ".lock":
                        used = 0 if one.name[0] == "." else status.st_mtime_ns
                        entries.append((used, one.name, status.st_size))
        total = sum(one[2] for one in entries)
        full = total + size > self.limit
        wanted = min(self.limit - size, self.limit * 9 // 10) if full else total
        for _, name, held in sorted(entries):  # what the dead have left comes first
            if total <= wanted:
                break
            if name[0] != "." or _is_left(self.folder / name):
                with contextlib.suppress(OSError):
                    os.unlink(self.folder / name)
                    total -= held
        return total

    def _not_kept(self, error: OSError) -> bool:
        line = f"{self.folder}: pieces are not kept: {_reason(error)}."
        self._tell(f"unwritable {error.errno}", line)
        return False

    def _tell(self, what: str, line: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.warning("%s", line)


def _reason(error: OSError) -> str:
    """What the system says of a failed call, and what to do where that is known.

    >>> _reason(OSError(errno.ENOSPC, ""))
    'No space left on device'
    """
    words = os.strerror(error.errno or 0)
    if error.errno == errno.EMFILE:
        return f"{words} in this process. Allow it more (`ulimit -n`)"
    return words


@contextlib.contextmanager
def _lock(path: Path, seconds: float) -> Iterator[int | None]:
    """The descriptor of a file that nobody else has locked; None if that took too long.

    A lock ends with its process. It is given back by name, since the child of a fork may have the
    descriptor, too.

    Raises:
        OSError: the file cannot be opened, or the file system has no locks.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    fd = os.open(path, flags, 0o600)
    try:
        held = _has_lock(fd, seconds)
        try:
            yield fd if held else None
        finally:
            if held:
                fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _is_left(path: Path) -> bool:
    """Whether nobody is at work on a temporary file or a claim."""
    try:
        fd = os.open(path, _READ)
    except OSError:
        return _is_no_entry(path)
    try:
        return _has_lock(fd, 0.0)
    except OSError:
        return False
    finally:
        os.close(fd)


def _is_no_entry(path: Path) -> bool:
    """Whether a path is surely no file of this user; it is looked at, not opened."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return not _is_file_of_ours(status)


def _is_file_of_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _has_lock(fd: int, seconds: float) -> bool:
    """Whether a file could be locked in that time.

    Raises:
        OSError: there are no locks here.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "")
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_SECONDS)


def _header(digest: bytes, content: Bytes) -> bytes:
    return _HEADER.pack(MAGIC, digest, len(content), _checksum(digest, content))


def _checksum(digest: bytes, content: Bytes) -> bytes:
    hasher = xxhash.xxh3_128(digest)
    hasher.update(content.data)
    return hasher.digest()


def _read(fd: int, digest: bytes, size: int) -> tuple[str, Bytes | None]:
    """What is wrong with an entry, or nothing, and its content."""
    status = os.fstat(fd)
    if not _is_file_of_ours(status):
        return "it is not a file of this user", None
    if status.st_size != _HEADER.size + size:
        return f"it has {status.st_size:,} bytes, not {_HEADER.size + size:,}", None
    header, content = bytearray(_HEADER.size), new_buffer(size)
    if os.preadv(fd, [header, content.data], 0) != _HEADER.size + size:
        return "it was cut short", None
    if bytes(header) != _header(digest, content):
        return "its checksum does not match", None
    return "", content


def _total(lock: int) -> int | None:
    """The bytes that the lock file says are taken; None if it does not say."""
    raw = os.pread(lock, _TOTAL.size, 0)
    if len(raw) != _TOTAL.size or raw[:8] != MAGIC:
        return None
    return int(_TOTAL.unpack(raw)[1])
