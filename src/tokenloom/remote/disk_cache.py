"""Pieces of objects kept on this machine's disk, bounded in bytes, shared by its processes.

What is kept must not depend on who asked first, so it is cut at multiples of 512 KiB. A range needs
the pieces that it touches (`read_aligned`); those that are not kept are fetched, neighbours
together, and kept. Worked example with pieces of 4 bytes, of which piece 1 is kept, and the ranges
[3,6) and [9,14)::

    pieces    0 1 | 2 3
    fetched   [0,4) and [8,16)          pieces 2 and 3 are neighbours: one request
    answers   bytes 3 of piece 0, 0 and 1 of piece 1; bytes 1 to 3 of piece 2, 0 and 1 of piece 3

An entry is a file of one piece that proves itself: its header says which piece it is and carries a
checksum of the content. Whatever is not exactly that (cut, changed, of another user, a link) is not
used: it is removed, reported once, and fetched again. So nothing has to be durable, and a process
may die at any moment. An entry that merely cannot be opened or read now (no free descriptor, a disk
that fails) stays for the others.

::

    magic 8 | sha256 of the key 32 | bytes of content 8 | xxh3_128 of key and content 16 | content

An entry is written under the one lock of the folder, to a temporary file that is then renamed. What
all files take is one number in the lock file, changed *before* a byte is written: it is never less
than the truth, so the bound is kept at all times. When it would be passed, the folder is listed,
the number corrected, and what was used longest ago is removed, down to nine tenths of the bound. A
reader that has an entry open keeps it.

The key is the sha256 of the manifest, the name of the file and the first byte of the piece; never
an etag or a URL. A hit costs one open, one read and one checksum (0.08 ms of CPU for 512 KiB),
keeping a piece 0.33 ms.

Whoever fetches a piece claims it, so that of several processes and threads that miss it together
one asks the bucket and the others wait for the entry; a claim ends with its process.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import itertools
import logging
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from tokenloom.arguments import integer, local_path
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.store.byte_source import Range, new_buffer
from tokenloom.store.files import temporary_name

log = logging.getLogger("tokenloom")

# without the locks of the system nothing is kept
fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

Bytes = NDArray[np.uint8]

Piece = tuple[str, int]

"""A file, and the number of a piece of it."""

DEFAULT_BYTES = 64 << 30

MAGIC = b"tlpiece1"

_HEADER = struct.Struct("<8s32sQ16s")

_TOTAL = struct.Struct("<8sQ")  # what the lock file holds

LOCK_SECONDS, CLAIM_SECONDS, LOOK_SECONDS = 10.0, 30.0, 0.002  # that a process waits for another

CLAIM_PREFIX = ".claim-"

MOST_CLAIMS = 128  # pieces that are claimed together: each is an open file

_LOCK = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


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
            with open(os.open(path, _READ), "rb", buffering=0) as file:
                content = _read(file.fileno(), digest, size)
                with contextlib.suppress(OSError):  # a disk that may only be read
                    os.utime(file.fileno())  # used now
                return content
        except FileNotFoundError:
            return None
        except ValueError as wrong:
            self._drop(path, str(wrong))
        except OSError as error:
            if _is_entry(path):
                self._tell(
                    f"unread {error.errno}",
                    f"{path}: this piece stays, but its bytes are fetched: {_reason(error)}.",
                )
            else:
                self._drop(path, _NOT_OURS)
        return None

    def drop(self, key: PieceKey) -> None:
        """Remove a piece whose content is not what was published, although it was kept whole."""
        path = self._path(key.digest())
        if path.exists():
            self._drop(path, "its content is not what was published")

    def _drop(self, path: Path, why: str) -> None:
        """Remove an entry that is none, and say so once."""
        self._tell("damaged", f"{path}: this piece is not used but fetched again: {why}.")
        _remove(path)

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
        try:
            with self._locked() as lock:
                if lock is None or not self._has_room(lock, size):
                    return False
                temporary = self.folder / temporary_name()
                try:
                    with open(temporary, "xb", buffering=0, opener=_private) as file:
                        if file.write(_header(digest, content)) + file.write(content.data) != size:
                            raise OSError(errno.ENOSPC, "")
                    os.rename(temporary, path)  # noqa: TID251 - a cache need not be durable
                finally:
                    temporary.unlink(missing_ok=True)
        except OSError as error:
            line = f"{self.folder}: pieces are not kept: {_reason(error)}."
            self._tell(f"unwritable {error.errno}", line)
            return False
        return True

    @contextlib.contextmanager
    def claimed(self, keys: Iterable[PieceKey]) -> Iterator[None]:
        """Let one thread of one process at a time fetch these pieces; look for them again inside.

        Claims are taken in one order by all, so that no two wait for each other.
        """
        with contextlib.ExitStack() as claims:
            for name in sorted(key.digest().hex() for key in keys):
                path = self.folder / f"{CLAIM_PREFIX}{name}"
                # a claim saves requests; without one the piece is fetched all the same
                with contextlib.suppress(OSError):
                    fd = os.open(path, _LOCK, 0o600)
                    claims.callback(os.close, fd)
                    if _lock_in_time(fd, CLAIM_SECONDS):
                        claims.callback(fcntl.flock, fd, fcntl.LOCK_UN)
                        claims.callback(_remove, path)
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int | None]:
        """The descriptor of the lock file, which no other process has locked; None: not in time.

        A lock ends with its process. It is released by name, since the child of a fork may have the
        descriptor, too.

        Raises:
            OSError: the file cannot be opened, or the file system has no locks.
        """
        fd = os.open(self.folder / ".lock", _LOCK, 0o600)
        try:
            if _lock_in_time(fd, LOCK_SECONDS):
                try:
                    yield fd
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)
            else:
                why = f"another process kept their lock for {LOCK_SECONDS:g} seconds"
                self._tell("locks", f"{self.folder}: some pieces are not kept: {why}.")
                yield None
        finally:
            os.close(fd)

    def _has_room(self, lock: int, size: int) -> bool:
        """Whether an entry of that size fits within the bound; if so, it is counted."""
        total = _total(lock)
        if total is None or total + size > self.limit:
            total = self._evict(size)
        if total + size > self.limit:
            return False
        os.pwrite(lock, _TOTAL.pack(MAGIC, total + size), 0)
        return True

    def _evict(self, size: int) -> int:
        """Remove what was used longest ago until there is room; the bytes that remain.

        The lock is held, so a temporary file is of a process that died: it goes first.
        """
        entries = []
        with os.scandir(self.folder) as listing:
            for entry in listing:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name != ".lock" and not entry.name.startswith(CLAIM_PREFIX):
                        used = 0 if entry.name[0] == "." else status.st_mtime_ns
                        entries.append((used, entry.name, status.st_size))
        total = sum(size for _, _, size in entries)
        full = total + size > self.limit
        wanted = min(self.limit - size, self.limit * 9 // 10) if full else total
        for _, name, held in sorted(entries):
            if total <= wanted:
                break
            with contextlib.suppress(OSError):
                os.unlink(self.folder / name)
                total -= held
        return total

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


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _private(path: str, flags: int) -> int:
    """Opens a file that nobody else may read."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)


def _lock_in_time(fd: int, seconds: float) -> bool:
    """Whether a file could be locked before this takes too long.

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


def _is_entry(path: Path) -> bool:
    """Whether a path may be a file of this user; it is looked at, not opened."""
    try:
        return _is_file_of_ours(os.lstat(path))
    except OSError:
        return True


def _is_file_of_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


_NOT_OURS = "it is not a file of this user"


def _header(digest: bytes, content: Bytes) -> bytes:
    return _HEADER.pack(MAGIC, digest, len(content), _checksum(digest, content))


def _checksum(digest: bytes, content: Bytes) -> bytes:
    hasher = xxhash.xxh3_128(digest)
    hasher.update(content.data)
    return hasher.digest()


def _read(fd: int, digest: bytes, size: int) -> Bytes:
    """The content of an entry.

    Raises:
        ValueError: what is wrong with the entry.
    """
    status = os.fstat(fd)
    if not _is_file_of_ours(status):
        raise ValueError(_NOT_OURS)
    if status.st_size != _HEADER.size + size:
        raise ValueError(f"it has {status.st_size:,} bytes, not {_HEADER.size + size:,}")
    header, content = bytearray(_HEADER.size), new_buffer(size)
    if os.preadv(fd, [header, content.data], 0) != _HEADER.size + size:
        raise ValueError("it was cut short")
    if bytes(header) != _header(digest, content):
        raise ValueError("its checksum does not match")
    return content


def _total(lock: int) -> int | None:
    """The bytes that the lock file says are taken; None if it does not say."""
    raw = os.pread(lock, _TOTAL.size, 0)
    if len(raw) != _TOTAL.size or raw[:8] != MAGIC:
        return None
    return int(_TOTAL.unpack(raw)[1])


# -- ranges of files out of pieces ---------------------------------------------------------
def read_aligned(
    ranges: Sequence[Range],
    *,
    cache: DiskCache,
    identity: str,
    sizes: Mapping[str, int],
    fetch: Callable[[Sequence[Range]], Sequence[Bytes]],
) -> tuple[list[Bytes], list[int]]:
    """The bytes of each range, and how many of them the cache had.

    Args:
        ranges: what is wanted.
        cache: what is kept.
        identity: of the snapshot that the files belong to.
        sizes: bytes of each file, which is not read beyond its end.
        fetch: asks for ranges over the network.
    """
    size = limits().disk_cache_piece_bytes

    def key_of(piece: Piece) -> PieceKey:
        return PieceKey(identity, *piece)

    def look_up(pieces: Iterable[Piece]) -> dict[Piece, Bytes]:
        lengths = ((one, min(size, sizes[one[0]] - one[1] * size)) for one in pieces)
        kept = ((piece, cache.get(key_of(piece), length)) for piece, length in lengths)
        return {piece: content for piece, content in kept if content is not None}

    pieces = sorted({piece for asked in ranges for piece in pieces_of(asked)})
    contents, fetched = look_up(pieces), set[Piece]()
    missing = [piece for piece in pieces if piece not in contents]
    for some in (missing[i : i + MOST_CLAIMS] for i in range(0, len(missing), MOST_CLAIMS)):
        with cache.claimed(map(key_of, some)):
            contents |= look_up(some)  # others may have fetched them by now
            left = [piece for piece in some if piece not in contents]
            runs = list(_runs(left, sizes))
            for (name, start, _), data in zip(runs, fetch(runs), strict=True):
                for at in range(0, len(data), size):
                    piece, content = (name, (start + at) // size), data[at : at + size]
                    cache.put(key_of(piece), content)
                    contents[piece] = content
        fetched.update(left)
    buffers, cached = [], []
    for asked in ranges:
        needed = pieces_of(asked)
        parts = [_part(asked, piece, contents[piece]) for piece in needed]
        buffers.append(parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts]))
        kept = (piece not in fetched for piece in needed)
        cached.append(sum(len(part) for part in itertools.compress(parts, kept)))
    return buffers, cached


_NONE = np.empty(0, np.uint8)


def pieces_of(asked: Range) -> list[Piece]:
    """The pieces that a range touches.

    >>> pieces_of(("x", 524287, 2)), pieces_of(("x", 7, 0))
    ([('x', 0), ('x', 1)], [])
    """
    name, start, size = asked
    piece = limits().disk_cache_piece_bytes
    last = (start + size - 1) // piece if size else start // piece - 1
    return [(name, number) for number in range(start // piece, last + 1)]


def _runs(missing: Sequence[Piece], sizes: Mapping[str, int]) -> Iterator[Range]:
    """The requests for some pieces, sorted: neighbours together, up to the cap.

    >>> list(_runs([("x", 0), ("x", 1), ("x", 3)], {"x": 1572869}))
    [('x', 0, 1048576), ('x', 1572864, 5)]
    """
    most = limits().request_bytes
    first, piece = 0, limits().disk_cache_piece_bytes
    for place, (name, number) in enumerate(missing, 1):
        room = (place - first) * piece < most
        if room and place < len(missing) and missing[place] == (name, number + 1):
            continue
        start = missing[first][1] * piece
        yield name, start, min((number + 1) * piece, sizes[name]) - start
        first = place


def _part(asked: Range, piece: Piece, content: Bytes) -> Bytes:
    """What a piece gives to a range."""
    low = asked[1] - piece[1] * limits().disk_cache_piece_bytes
    return content[max(low, 0) : low + asked[2]]
