"""Where foreign files are: a folder of this machine, or one in a bucket, behind the same questions.

One idea: a format asks for names, sizes, times and bytes of files, and never learns where they are.
In a bucket the answers come from one listing of everything below the folder; if a single file (or
the start of names) was pointed at, each file is asked for once, so that a bucket full of other
things is not listed. What was seen stays as it was seen: every later answer about a file is
compared with that size, and with the etag of the first answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Url, place
from tokenloom.errors import StoreCorrupt
from tokenloom.limits import limits
from tokenloom.remote.backends import Meta
from tokenloom.remote.client import Client, client_of
from tokenloom.remote.disk_cache import DiskCache
from tokenloom.remote.objects import as_stream
from tokenloom.remote.source import RemoteSource
from tokenloom.store.byte_source import ByteSource, LocalSource, Range, read_exactly
from tokenloom.store.handles import lazy


def damaged(where: str, what: str) -> StoreCorrupt:
    """The error for files that cannot be what they claim to be."""
    return StoreCorrupt(
        f"{where}: {what}. The file is damaged, cut short, or of another format (`format=`); "
        "nothing was read from it. Restore it from a copy."
    )


def folder_at(path: Any) -> tuple[ForeignFolder, str]:
    """The folder that a path or URL names, or that it is in, and then its name there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     folder_at(folder)[1], folder_at(f"{folder}/corpus.idx")[1]
    ('', 'corpus.idx')
    """
    where = place("path", path)
    if isinstance(where, Url):
        client = client_of(where)
        below = _listed(client, where)
        if below or not where.key:
            return BucketFolder(where, client, below), ""
        return BucketFolder(where.parent, client), where.name
    named = os.path.abspath(where)
    whole = os.path.realpath(named)
    if os.path.isdir(named):
        return LocalFolder(whole), ""
    root, name = os.path.split(whole)
    return LocalFolder(root), name


def hash_of_ranges(source: ByteSource, ranges: Iterable[Range], root: str) -> str:
    """The sha256 of some ranges end to end; many are asked for together."""
    chunk = limits().foreign_chunk_ranges
    left, found = iter(ranges), hashlib.sha256()
    while some := list(islice(left, chunk)):
        for part in read_exactly(source, some, root):
            found.update(part.data)
    return found.hexdigest()


def read_stretch(source: ByteSource, asked: Range, root: str) -> NDArray[np.uint8]:
    """A stretch of a file; from a source that answers several requests at once, by several."""
    most = limits().request_bytes
    name, start, size = asked
    if size <= most or getattr(source, "parallel", 1) < 2:
        return read_exactly(source, [asked], root)[0]
    cuts = range(start, start + size, most)
    parts = [(name, low, min(most, start + size - low)) for low in cuts]
    return np.concatenate(read_exactly(source, parts, root))


class LocalFolder:
    """A folder of this machine.

    Args:
        root: its path, absolute and without links.
    """

    def __init__(self, root: str) -> None:
        self.root, self.source = root, LocalSource(root)

    lists = True

    def names(self, folder: str = "") -> list[str]:
        """The names in it, or in a folder below it, in order; none if there is no folder."""
        try:
            return sorted(os.listdir(os.path.join(self.root, folder)))
        except OSError:
            return []

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none. A link or a pipe is refused."""
        try:
            status = os.lstat(os.path.join(self.root, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            raise damaged(f"{self.root}/{name}", f"this is {kind}, which is not followed")
        return status.st_size

    def stamp(self, name: str) -> list[int]:
        """What changes when a file is written again: its bytes, and the time in nanoseconds."""
        status = os.stat(os.path.join(self.root, name))
        return [status.st_size, status.st_mtime_ns]

    def as_file(self, name: str) -> str:
        """What a library can open: its path."""
        self.size(name)  # refuses links and pipes
        return os.path.join(self.root, name)


class BucketSource(RemoteSource):
    """The files of others below a URL; what they were when they were first seen is expected."""

    promised = "when it was first looked at it had"
    columns: Mapping[str, str] = {}

    def column_of(self, name: str) -> str:
        """See `RemoteSource`."""
        array = name.rpartition("/c/")[0]  # the one that a chunk of Zarr belongs to
        return self.columns.get(name) or self.columns.get(array, name)

    def keep(self, cache: DiskCache | None, identity: str | None = None) -> None:
        """Keep pieces of the files on a disk from now on, under the identity of their content."""
        self._cache, self._identity = cache, identity or self._identity

    @property
    def cache(self) -> DiskCache | None:
        """What keeps pieces of the files."""
        return self._cache


@contextlib.contextmanager
def as_stored(source: ByteSource) -> Iterator[None]:
    """Whatever is read meanwhile comes from the files themselves, and not from a disk cache."""
    if not isinstance(source, BucketSource):
        yield
        return
    kept = source.cache
    source.keep(None)
    try:
        yield
    finally:
        source.keep(kept)


class BucketFolder:
    """A folder of a bucket.

    Args:
        url: where it is.
        client: what asks.
        below: everything below it, if it was listed; otherwise each file is asked for.
    """

    def __init__(self, url: Url, client: Client, below: dict[str, Meta] | None = None) -> None:
        self.url, self.root, self._client = url, str(url), client
        self._listed = below is not None
        self._seen: dict[str, Meta | None] = dict(below or {})
        self._sizes = {name: one.size for name, one in (below or {}).items()}
        self.source = BucketSource(url, client)
        self.source.expect(self._sizes, "")  # grows with every file that is asked for

    @property
    def lists(self) -> bool:
        """Whether its names can be listed; a plain web server lists none."""
        return self._client.lists

    def names(self, folder: str = "") -> list[str]:
        """See `LocalFolder`."""
        if self._listed:
            return self._tree.get(folder.strip("/"), [])
        return self._client.names((self.url / folder).key)

    @lazy
    def _tree(self) -> dict[str, list[str]]:
        """Folder → what is in it, in order."""
        found: dict[str, set[str]] = {}
        for name in self._seen:
            inner = name
            while inner:
                folder, _, last = inner.rpartition("/")
                found.setdefault(folder, set()).add(last)
                inner = folder
        return {folder: sorted(names) for folder, names in found.items()}

    def size(self, name: str) -> int | None:
        """See `LocalFolder`."""
        found = self._entry(name)
        return None if found is None else found.size

    def stamp(self, name: str) -> list[int]:
        """See `LocalFolder`; the time is by the clock of the bucket."""
        found = self._entry(name)
        if found is None:
            raise damaged(f"{self.root}/{name}", "it is missing")
        return [found.size, round(found.changed * 1e6) * 1000]

    def as_file(self, name: str) -> io.RawIOBase:
        """What a library can open: a file object, each of whose reads is a request."""
        return as_stream(_Ranged(self.source, name, self.size(name) or 0, self.root))

    def _entry(self, name: str) -> Meta | None:
        if not self._listed and name not in self._seen:
            meta = self._seen[name] = self._client.head((self.url / name).key)
            if meta is not None:
                self._sizes[name] = meta.size
        return self._seen.get(name)


ForeignFolder = LocalFolder | BucketFolder


def _listed(client: Client, url: Url) -> dict[str, Meta]:
    """All objects below a URL by their names from there; none where nothing can be listed."""
    if not client.lists:
        return {}
    skip = len(url.key) + 1 if url.key else 0
    try:
        found = client.list(url.key)
    except FileNotFoundError:
        return {}
    return {key[skip:]: meta for key, meta in found.items() if len(key) > skip}


class _Ranged:
    """A file of a source as a `tokenloom.remote.objects.RangedFile`."""

    def __init__(self, source: ByteSource, name: str, size: int, root: str) -> None:
        self._source, self._name, self.size, self._root = source, name, size, root

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        return read_stretch(self._source, (self._name, start, stop - start), self._root).tobytes()
