"""Plans that are remembered between processes: files in the user's cache directory.

What is remembered can always be worked out again, so nothing here may fail a run. A file is named
by the hash of everything that decides it, the version of the orders included, appears whole or not
at all, and is trusted if its checksum is right.

=============================  ==================================================================
who could have written it      what happens
=============================  ==================================================================
another user                   files of another owner, and files in a directory that others can
                               write to, are neither read nor removed; this is told once
the disk, by accident          the sha256 of the file differs; it is worked out again
this user                      nothing: see SECURITY.md
=============================  ==================================================================

All files are of one kind (`Parts`): bytes in parts, a table of their ends and sha256, a line of
JSON. So a part costs its own bytes, however large the file. A value is one part of JSON, a list of
integers is cut into parts of 256 MiB.
The directory is ``TOKENLOOM_CACHE_DIR``, else ``tokenloom`` in the user's cache directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import local_path
from tokenloom.errors import TokenloomError
from tokenloom.store.files import LOCAL, temporary_name
from tokenloom.version import ORDER_VERSION

MAX_BYTES = 16 << 30

PART_BYTES = 256 << 20  # of a list of integers

VALUE, PARTS = "value", "parts"  # how names of files end

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

log = logging.getLogger("tokenloom")

_told: set[tuple[str, str]] = set()


def cache_dir() -> Path:
    """Where plans are kept."""
    named = os.environ.get("TOKENLOOM_CACHE_DIR")
    if named:
        return local_path("TOKENLOOM_CACHE_DIR", named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenloom"


def _path(kind: str, identity: Mapping[str, Any], ending: str) -> Path:
    return cache_dir() / f"{kind}-{_hash(_named(identity))}.{ending}"


def _named(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity with what every plan depends on."""
    return {**identity, "order_version": ORDER_VERSION}


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# -- values and lists of integers ----------------------------------------------------------
def remember(kind: str, identity: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Keep a value; False, with a note, where that is not possible."""
    raw = json.dumps(value, allow_nan=False).encode()
    return _remember(_path(kind, identity, VALUE), identity, [raw])


def recall(kind: str, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was kept for this identity, if it is there, whole, and ours."""
    parts = _recall(_path(kind, identity, VALUE), identity, 1)
    found = None if parts is None else parts.read([0])
    return None if found is None else json.loads(found[0])


def forget(kind: str, identity: Mapping[str, Any]) -> None:
    """Remove what was kept for this identity, because it turned out to be wrong."""
    for ending in (VALUE, PARTS):
        path = _path(kind, identity, ending)
        if path.exists():
            _wrong(path)


def remembered_array(
    kind: str,
    identity: Mapping[str, Any],
    shape: tuple[Any, int],
    make: Callable[[], NDArray[Any]],
) -> NDArray[Any]:
    """The integers that were kept for this identity; else made, and kept.

    Args:
        kind: what they are; part of the file's name.
        identity: everything that decides them, as JSON.
        shape: their dtype, and how many there are.
        make: works them out.
    """
    dtype, named, count = _list_of(identity, *shape)
    parts = recall_parts(kind, named, count)
    if parts is not None and parts.edges[-1] == shape[1] * dtype.itemsize:
        found = np.empty(shape[1], dtype)
        raw = found.view(np.uint8)
        for number in range(count):
            part = parts.read([number])
            if part is None:
                break
            raw[number * PART_BYTES :][:PART_BYTES] = np.frombuffer(part[0], np.uint8)
        else:
            return found.astype(dtype.newbyteorder("="), copy=False)
    made = make()
    remember_array(kind, identity, made)
    return made


def remember_array(kind: str, identity: Mapping[str, Any], array: NDArray[Any]) -> bool:
    """Keep these integers and no others; False, with a note, where that is not possible."""
    dtype, named, count = _list_of(identity, array.dtype, len(array))
    raw = np.ascontiguousarray(array, dtype).view(np.uint8)
    parts = (raw[i * PART_BYTES : (i + 1) * PART_BYTES].tobytes() for i in range(count))
    return remember_parts(kind, named, parts)


def _list_of(
    identity: Mapping[str, Any], kind: Any, items: int
) -> tuple[np.dtype[Any], dict[str, Any], int]:
    """The dtype of a list of integers in its file, its full identity, and its number of parts."""
    dtype = np.dtype(kind).newbyteorder("<")
    named = {**identity, "dtype": dtype.str, "items": items}
    return dtype, named, max(1, -(-items * dtype.itemsize // PART_BYTES))


# -- what is read in parts -----------------------------------------------------------------
TAIL = 4096  # bytes at the end of a file that hold its last line

ENTRY = np.dtype([("end", "<u8"), ("sha256", "V32")])  # of each part, before the last line


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """A file of parts; it is opened for every request, so nothing has to be closed.

    Attributes:
        path: the file.
        version: tells it from another file in its place.
        edges: where each part starts, then where the last one ends, in bytes [parts + 1].
        digests: sha256 of each part [parts].
        checked: which parts were compared with their digests in this process [parts].
    """

    path: Path
    version: tuple[int, ...]
    edges: NDArray[np.int64]
    digests: NDArray[np.void]
    checked: NDArray[np.bool_]

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.digests)

    def read(self, numbers: Sequence[int]) -> list[bytes] | None:
        """These parts; None, and the file is removed, unless each is what was kept.

        Like the chunks of a store, each is compared with its digest when it is first read.
        """
        found = []
        try:
            with _opened(self.path) as file:
                if file is None or _version(file) != self.version:
                    return None  # another process has replaced it
                for number in numbers:
                    low, high = self.edges[number : number + 2].tolist()
                    raw = os.pread(file.fileno(), high - low, low)
                    if len(raw) != high - low or not self._is_right(number, raw):
                        raise ValueError("a part differs from its digest")
                    found.append(raw)
        except (OSError, TokenloomError, ValueError):
            _wrong(self.path)
            return None
        return found

    def _is_right(self, number: int, raw: bytes) -> bool:
        if not self.checked[number]:
            right = hashlib.sha256(raw).digest() == self.digests[number].tobytes()
            self.checked[number] = right
        return bool(self.checked[number])


def remember_parts(kind: str, identity: Mapping[str, Any], parts: Iterable[bytes]) -> bool:
    """Keep these parts and no others; False, with a note, where that is not possible."""
    return _remember(_path(kind, identity, PARTS), identity, parts)


def _remember(path: Path, identity: Mapping[str, Any], parts: Iterable[bytes]) -> bool:
    _remove(path)
    return _keep(path, with_table(parts, {"identity": _hash(_named(identity))}))


def with_table(parts: Iterable[bytes], told: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of a file: all parts, the table of their ends and digests, a line of JSON."""
    end, rows = 0, []
    for part in parts:
        end += len(part)
        rows.append((end, hashlib.sha256(part).digest()))
        yield part
    table = np.array(rows, ENTRY).tobytes()
    digest = hashlib.sha256(table).hexdigest()
    last = {**told, "parts": len(rows), "sha256": digest}
    yield table + b"\n" + json.dumps(last).encode()


def recall_parts(kind: str, identity: Mapping[str, Any], count: int) -> Parts | None:
    """The `count` parts that were kept for this identity, if they are there and ours."""
    return _recall(_path(kind, identity, PARTS), identity, count)


def _recall(path: Path, identity: Mapping[str, Any], count: int) -> Parts | None:
    try:
        with _opened(path) as file:
            if file is None:
                return None
            size = os.fstat(file.fileno()).st_size
            last = os.pread(file.fileno(), TAIL, max(0, size - TAIL)).rpartition(b"\n")[2]
            told = json.loads(last)
            begin = size - len(last) - 1 - count * ENTRY.itemsize
            right = told["identity"] == _hash(_named(identity)) and told["parts"] == count
            if right and begin >= 0:
                table = os.pread(file.fileno(), count * ENTRY.itemsize, begin)
                if hashlib.sha256(table).hexdigest() == told["sha256"]:
                    rows = np.frombuffer(table, ENTRY)
                    edges = np.concatenate([[0], rows["end"].astype(np.int64)])
                    if edges[-1] == begin and (np.diff(edges) >= 0).all():
                        unread = np.zeros(count, np.bool_)
                        return Parts(path, _version(file), edges, rows["sha256"], unread)
    except (OSError, TokenloomError, ValueError, KeyError, TypeError, RecursionError):
        pass
    _wrong(path)
    return None


def _version(file: BinaryIO) -> tuple[int, ...]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# -- files ---------------------------------------------------------------------------------
@contextlib.contextmanager
def _ours(path: Path) -> Iterator[int | None]:
    """The directory of a file, opened; None, told once, unless only this user can write to it.

    Files are opened relative to it, so what was looked at is what is used.
    """
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_CLOEXEC", 0))
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            _tell(path.parent, f"it belongs to another user (uid {status.st_uid})")
            yield None
        elif status.st_mode & OTHERS_WRITE:
            mode = stat.S_IMODE(status.st_mode)
            _tell(path.parent, f"other users can write to it (mode {mode:03o}; chmod 700 mends it)")
            yield None
        else:
            yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | None]:
    """A file that only this user can have written; None if there is none."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
    file: BinaryIO | None = None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _ours(path) as folder:
        if folder is not None and _owned(path, folder):
            file = open(os.open(path.name, flags, dir_fd=folder), "rb", buffering=0)  # noqa: SIM115
    if file is None:
        yield None
        return
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_mode & OTHERS_WRITE:
            raise ValueError("not a regular file, or others can write to it")
        if status.st_size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        yield file


def _owned(path: Path, folder: int) -> bool:
    """Whether a file is this user's, told once if not; only its owner could put another there."""
    owner = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_uid
    if owner == os.geteuid():
        return True
    _tell(path.parent, f"a file in it belongs to another user (uid {owner}: {path.name})")
    return False


def keep_list(kind: str, text: str) -> Path | None:
    """The file of a list that is too long for the log, named by its content; None if not kept."""
    raw = text.encode()
    path = cache_dir() / f"{kind}-{hashlib.sha256(raw).hexdigest()[:16]}.txt"
    return path if path.exists() or _keep(path, [raw]) else None


def _keep(path: Path, parts: Iterable[bytes]) -> bool:
    """Write a file that nobody else can write to, unless one of that name is there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _ours(path) as folder:
            if folder is None:
                return False
            temporary = path.parent / temporary_name()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            try:
                with open(os.open(temporary.name, flags, 0o600, dir_fd=folder), "wb") as file:
                    for part in parts:
                        file.write(part)
                    file.flush()
                    os.fsync(file.fileno())
                # somebody may have been faster: with the same, or with a file that is not ours
                return LOCAL.link_new(temporary, path) or _owned(path, folder)
            finally:
                LOCAL.remove(temporary)
    except (OSError, TokenloomError) as error:
        log.info("%s: it is kept in memory only (%s).", path, error)
        return False


def _tell(folder: Path, why: str) -> None:
    """Say why a directory or a file in it is not believed, once per directory and kind of reason.

    The results are the same, so this is a line of the log and no warning.
    """
    reason = why.partition(" (")[0]
    if (str(folder), reason) in _told:
        return
    _told.add((str(folder), reason))
    log.warning(
        "%s: plans that are kept there are not used: %s. They are worked out in every process. Set "
        "TOKENLOOM_CACHE_DIR to a directory that only you can write to.",
        folder,
        why,
    )


def _wrong(path: Path) -> None:
    log.warning("%s: it is not the plan that was kept there; it is worked out again.", path)
    _remove(path)


def _remove(path: Path) -> None:
    """Remove a file of this user; what others own is left alone."""
    try:
        with _ours(path) as folder:
            if folder is not None and _owned(path, folder):
                os.unlink(path.name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, TokenloomError) as error:
        log.info("%s: it cannot be removed (%s).", path, error)
