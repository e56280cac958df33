"""Inputs in buckets: which objects a URL names, and a file that is read in ranges wherever it is.

Whoever reads an input asks for bytes [start, stop) and gets exactly those, of the object
that was listed: each request carries its etag, and the answer's size and etag are compared. No
object is ever in memory as a whole, and nothing but its URL, size and etag travels to a worker,
which reaches the bucket with the credentials of its own environment.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from tokenloom.arguments import Place, Url
from tokenloom.errors import InputError, StoreCorrupt, StoreError
from tokenloom.remote.client import Request, client_of


class FoundObject(NamedTuple):
    """An object that may be an input."""

    url: Url
    size: int
    etag: str | None


class RangedFile(Protocol):
    """A file of known size."""

    size: int

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop); fewer only where the file ends."""


@contextlib.contextmanager
def _as_input(name: object) -> Iterator[None]:
    """Errors of a bucket, as those of an input."""
    try:
        yield
    except StoreCorrupt:
        raise _changed(name) from None
    except StoreError as error:
        raise InputError(str(error)) from None


def _changed(name: object) -> InputError:
    return InputError(
        f"{name}: it is another object now than when it was listed (its size or etag changed). "
        "Wait until nothing writes to it and start again."
    )


# -- what a URL names -----------------------------------------------------------------------
def find_objects(where: str, url: Url) -> tuple[list[FoundObject], bool]:
    """The objects that a URL names, in order of their keys, and whether it is one object itself.

    A URL is an object, a folder (everything below it; names that start with a dot are left out), or
    a pattern with ``*``, ``?``, ``[…]`` and ``**``, as `glob.glob` reads it. An object of exactly
    that name wins over a pattern.

    Raises:
        InputError: nothing is there, or the server does not list names.

    >>> client = client_of(Url("memory", "toy"))
    >>> for key in ("in/a.txt", "in/b/c.txt", "in/.d.txt", "in/e.md"):
    ...     client.put(key, b"text")
    >>> [one.url.key for one in find_objects("inputs", Url("memory", "toy", "in"))[0]]
    ['in/a.txt', 'in/b/c.txt', 'in/e.md']
    >>> [one.url.key for one in find_objects("inputs", Url("memory", "toy", "in/**/*.txt"))[0]]
    ['in/a.txt', 'in/b/c.txt']
    """
    client = client_of(url)
    with _as_input(url):
        parts = url.key.split("/")
        fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
        meta = client.head(url.key)
        if meta is not None:
            return [FoundObject(url, *meta[:2])], True
        if not client.lists:
            raise InputError(
                f"{where}: {url} is no file, and this server lists no names. Name every file."
            )
        folder = "/".join(parts[:fixed])
        finds = _matcher(parts[fixed:] if fixed is not None else ["**"])
        skip = len(folder) + 1 if folder else 0
        listed = client.list(folder).items()
        below = [(key, meta) for key, meta in listed if finds(key[skip:])]
    if not below:
        raise InputError(f"{where}: there is no object or folder {url}. Check the spelling.")
    below.sort(key=lambda one: one[0].split("/"))
    return [
        FoundObject(Url(url.scheme, url.host, key), meta.size, meta.etag) for key, meta in below
    ], False


def _matcher(parts: Sequence[str]) -> Callable[[str], bool]:
    """Whether a key is one that `glob.glob(..., recursive=True)` would find by these parts.

    A part matches a name as `fnmatch` says, ``**`` any folders (as the last part: whatever is below
    them), and neither matches a name that starts with a dot unless the part does.

    >>> finds = _matcher(["**", "[!b-z]?.gz"])
    >>> [finds(key) for key in ("x/y/a1.gz", "a1.gz", "x/b1.gz", "x/.a.gz")]
    [True, True, False, False]
    """
    known = [re.compile(fnmatch.translate(part)) for part in parts]
    last = len(parts) - 1

    def finds(key: str) -> bool:
        places = {0}  # parts that the next name may be matched with
        for name in key.split("/"):
            for place in sorted(places):
                while place < last and parts[place] == "**":  # no folder at all
                    place += 1
                    places.add(place)
            after = set()
            for place in places - {len(parts)}:
                if name.startswith(".") and not parts[place].startswith("."):
                    continue
                if parts[place] == "**":
                    after |= {place, len(parts)} if place == last else {place}
                elif known[place].match(name):
                    after.add(place + 1)
            places = after
        return len(parts) in places

    return finds


def first_bytes(found: Sequence[FoundObject], count: int) -> list[bytes]:
    """The first bytes of each object, asked for together."""
    asked = [Request(one.url.key, 0, min(count, one.size), one.etag) for one in found if one.size]
    if not asked:
        return [b""] * len(found)
    with _as_input(found[0].url.parent):
        answers = iter(client_of(found[0].url).get_many(asked))
    return [bytes(next(answers).data) if one.size else b"" for one in found]


# -- reading in ranges ----------------------------------------------------------------------
@contextlib.contextmanager
def open_ranged(place: Place, size: int, etag: str | None = None) -> Iterator[RangedFile]:
    """A file to read from, on this machine or in a bucket.

    Args:
        place: where it is.
        size: the bytes that it had when it was listed; of a local file, it is asked for again.
        etag: the tag that the object had.

    Raises:
        InputError: it is another object now, or the bucket does not answer.
        OSError: the system does not give a local file.

    >>> import pathlib, tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     path = pathlib.Path(file.name)
    ...     _ = path.write_bytes(b"hello")
    ...     with open_ranged(path, 5) as found:
    ...         found.size, found.read(1, 3)
    (5, b'el')
    """
    if isinstance(place, Url):
        yield _Object(place, size, etag)
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        yield _Local(descriptor)
    finally:
        os.close(descriptor)


class _Local:
    def __init__(self, descriptor: int) -> None:
        self._descriptor, self.size = descriptor, os.fstat(descriptor).st_size

    def read(self, start: int, stop: int) -> bytes:
        data = os.pread(self._descriptor, stop - start, start)
        while len(data) < stop - start:  # one call gives at most 2 GiB
            more = os.pread(self._descriptor, stop - start - len(data), start + len(data))
            if not more:
                break
            data += more
        return data


class _Object:
    def __init__(self, url: Url, size: int, etag: str | None) -> None:
        self._url, self.size, self._etag = url, size, etag

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        with _as_input(self._url):
            found = client_of(self._url).get(self._url.key, start, stop - start, self._etag)
        if found.meta.size != self.size:
            raise _changed(self._url)
        return bytes(found.data)


class _Stream(io.RawIOBase):
    """Ranges as a file that can be sought in: each read is one request."""

    def __init__(self, inner: RangedFile) -> None:
        self._inner, self._place = inner, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._inner.size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(self._place, self._place + len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def as_stream(inner: RangedFile) -> io.RawIOBase:
    """A file object over ranges, for libraries that want one."""
    return _Stream(inner)
