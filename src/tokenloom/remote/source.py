"""A store in a bucket, read where it is.

An object of a published store never changes, and every answer proves it. The manifest
promises the size of each file, and each answer says how large its object is; the etag of the first
answer goes along with every later request as a condition, and is compared with the answer, since
some servers ignore conditions. So opening asks for a listing and the manifest, and for no file.
Etags are learned anew by every open store and written nowhere: the same bytes, uploaded again, have
another one.

A server or a proxy may still give the bytes of another place. So whatever comes from here, or from
the disk cache, is checked against the store's checksums each time (`tokenloom.store.reader`).

Which requests there are is decided by `tokenloom.store.coalesce`, as for files: a range of a plan
is a request. With a disk cache, the pieces below a range that it does not have are requests.

A copy of a source in another process is made from its URL, with the credentials that the process
has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Place, Url, place
from tokenloom.errors import ConfigError, StoreCorrupt, StoreError
from tokenloom.remote.backends import Reply
from tokenloom.remote.client import Client, Request, client_of, read_object
from tokenloom.remote.disk_cache import DiskCache, PieceKey, pieces_of, read_aligned
from tokenloom.remote.uploads import RemoteFiles
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource, LocalSource, Range
from tokenloom.store.files import Files, temporary_name
from tokenloom.store.handles import lock_of
from tokenloom.store.reader import Reader, open_reader

Bytes = NDArray[np.uint8]


def open_place(
    path: str | Place,
    *,
    source: ByteSource | None = None,
    disk_cache: str | Path | None = None,
    disk_cache_bytes: int | None = None,
    **options: Any,
) -> Reader:
    """What reads a snapshot of a store, in a directory or a bucket.

    `tokenloom.open` documents the arguments. Those of the disk cache are for buckets; a store on
    this machine takes no notice of them.
    """
    where = place("path", path)
    if source is None and isinstance(where, Url):
        source = RemoteSource(where, cache=DiskCache.chosen(disk_cache, disk_cache_bytes))
    if isinstance(where, Url) and not hasattr(source, "listing"):
        raise ConfigError(
            f"source: found a {type(source).__name__} for {where}, allowed: one that also says "
            "what lists the files of a bucket (`listing`), such as "
            "tokenloom.remote.source.RemoteSource."
        )
    return open_reader(path, source=source, **options)


def source_of(where: Place) -> ByteSource:
    """What reads the files of a store, in a directory or a bucket."""
    return RemoteSource(where) if isinstance(where, Url) else LocalSource(where)


class RemoteSource:
    """The files below a URL, as a `ByteSource`.

    Args:
        url: of the store.
        client: what asks; default: the one of this process for that bucket.
        cache: keeps pieces of the files on a disk.
    """

    promised = "the manifest says"  # where the size of a file is known from, for messages

    def __init__(
        self, url: Url, client: Client | None = None, cache: DiskCache | None = None
    ) -> None:
        self.url, self._client, self._cache = url, client or client_of(url), cache
        self._identity = ""
        self._sizes: Mapping[str, int] = {}
        self._etags: dict[str, str] = {}
        self._took: dict[str, tuple[int, int, int]] = {}
        self._lock = lock_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, None, self._cache)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.url)!r})"

    def _forked(self, torn: bool) -> None:
        """Counts that another thread was adding to start over."""
        if torn:
            self._took = {}

    @property
    def parallel(self) -> int:
        """Requests that are answered at the same time."""
        return self._client.settings.in_flight

    @property
    def listing(self) -> Files:
        """What lists and reads the small files of the store."""
        return SeenFiles(self._client, self.url)

    @property
    def uncached(self) -> RemoteSource:
        """The same without the disk cache, for whoever asks what is in the bucket."""
        made = type(self)(self.url, self._client)
        made.expect(self._sizes, self._identity)
        return made

    def traffic(self) -> dict[str, tuple[int, int, int]]:
        """Of each column: requests, retries, and bytes that needed no request."""
        with self._lock:
            return dict(self._took)

    def expect(self, sizes: Mapping[str, int], identity: str) -> None:
        """Take the size of each file, for comparison with the answers, and whose files they are."""
        self._sizes, self._identity = sizes, identity

    def size(self, name: str) -> int | None:
        """See `ByteSource`. What was promised; every answer is compared with it."""
        if name in self._sizes:
            return self._sizes[name]
        found = self._client.head((self.url / name).key)
        return None if found is None else found.size

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """See `ByteSource`."""
        if self._cache is None or any(name not in self._sizes for name, _, _ in ranges):
            return self._fetch(ranges)
        found, had = read_aligned(
            ranges,
            cache=self._cache,
            identity=self._identity,
            sizes=self._sizes,
            fetch=self._fetch,
        )
        for (name, _, _), cached in zip(ranges, had, strict=True):
            self._count(name, 0, 0, cached)
        return found

    def drop(self, ranges: Sequence[Range]) -> None:
        """Remove what the disk cache has of these ranges: it is not what was published."""
        if self._cache is not None:
            for name, number in {one for each in ranges for one in pieces_of(each)}:
                self._cache.drop(PieceKey(self._identity, name, number))

    def _fetch(self, ranges: Sequence[Range]) -> list[Bytes]:
        """The bytes of some ranges, a request for each."""
        asked = [one for one in ranges if one[2]]
        requests = [Request((self.url / n).key, a, s, self._etags.get(n)) for n, a, s in asked]
        try:
            replies = self._client.get_many(requests)
        except FileNotFoundError:
            raise self._missing(asked) from None
        found = iter([self._checked(*pair) for pair in zip(asked, replies, strict=True)])
        return [next(found) if size else np.empty(0, np.uint8) for _, _, size in ranges]

    def _checked(self, asked: Range, reply: Reply) -> Bytes:
        """The bytes of an answer about the object that was published."""
        name, meta = asked[0], reply.meta
        self._count(name, 1, reply.retries, 0)
        if name in self._sizes and meta.size != self._sizes[name]:
            raise StoreCorrupt(
                f"{self.url / name}: it has {meta.size:,} bytes, {self.promised} "
                f"{self._sizes[name]:,}. It was changed after it was published; restore it or "
                "build the store again."
            )
        if meta.etag is not None and self._etags.setdefault(name, meta.etag) != meta.etag:
            raise StoreCorrupt(
                f"{self.url / name}: its etag is another one than before. It was changed while the "
                "store was open; restore it, or open the store again."
            )
        return _as_array(reply.data)

    def _count(self, name: str, requests: int, retries: int, cached: int) -> None:
        column = self.column_of(name)
        with self._lock:
            a, b, c = self._took.get(column, (0, 0, 0))
            self._took[column] = (a + requests, b + retries, c + cached)

    def column_of(self, name: str) -> str:
        """The column that requests to a file are counted for."""
        return name.split("/")[1] if "/" in name else name

    def _missing(self, asked: Sequence[Range]) -> StoreError:
        """The error for objects of which one is not there."""
        names = sorted({name for name, _, _ in asked})
        gone = [name for name in names if self._client.head((self.url / name).key) is None]
        return StoreCorrupt(
            f"{self.url / (gone or names)[0]}: the file is missing. Restore it or build the store "
            "again."
        )


def _as_array(data: Any) -> Bytes:
    """Bytes as an array, in their place in memory unless that is an odd one."""
    found = np.frombuffer(data, np.uint8)
    return found if found.ctypes.data % 8 == 0 else found.copy()


class SeenFiles(RemoteFiles):
    """What lists and reads the small files of a store, as it was when it was first looked at.

    A plain web server has no listings: there snapshots are found by their numbers, 1, 2, …, and
    nothing else is.
    """

    def __init__(self, client: Client, root: Url) -> None:
        super().__init__(client)
        self._root = root
        self._seen: dict[Url, Sequence[str]] = {}
        self._newest: dict[Url, bytes] = {}  # the manifest that a search ended with
        self.unseen = () if client.lists else (_UNSEEN,)

    def list(self, path: Url) -> list[str]:
        """See `Files`; one listing of a folder for all who ask."""
        if path not in self._seen:
            self._seen[path] = super().list(path) if not self.unseen else self._manifests(path)
        return [*self._seen[path]]

    def read(self, path: Url, limit: int) -> bytes | None:
        """See `Files`."""
        return self._newest.pop(path, None) or super().read(path, limit)

    def _manifests(self, path: Url) -> Sequence[str]:
        """The names of all snapshots; each manifest is read before the next number is tried.

        Raises:
            StoreError: the server answers every name, or the search does not end in time.
        """
        if path != self._root:
            return []
        names: list[str] = []
        deadline, began = self._client.settings.deadline, time.monotonic()
        while len(names) < MAX_SNAPSHOTS and time.monotonic() - began < deadline:
            manifest = path / fmt.manifest_name(len(names) + 1)
            raw = self._read_manifest(manifest, len(names) + 1, began + deadline)
            if raw is None:
                return names
            names.append(manifest.name)
            self._newest = {manifest: raw}
        raise StoreError(
            f"{path}: the search for the newest snapshot found {len(names):,} and no end within "
            f"{time.monotonic() - began:.1f} s, allowed: {MAX_SNAPSHOTS:,} snapshots and "
            f"{deadline:g} s. Name one, as in tokenloom.open(url, snapshot={len(names)}), or allow "
            "more time with TOKENLOOM_REMOTE_DEADLINE (seconds)."
        )

    def _read_manifest(self, path: Url, number: int, until: float) -> bytes | None:
        """The bytes of a manifest, or None if there is none.

        A damaged one is returned as it is, unless the server answers every name: then it may be
        a page about a missing file.
        """
        raw: bytes | None = b""
        problem: StoreError | None = None
        try:
            raw = read_object(path, fmt.MAX_RECORD_BYTES, self._client, until=until)
        except StoreError as error:
            problem = error
        if problem is None and (raw is None or _is_manifest(raw, number)):
            return raw
        invented = path.parent / temporary_name()
        if self._client.find(invented.key, until=until) is not None:
            name_one = f", or open snapshot={number - 1}" if number > 1 else ""
            raise StoreError(
                f"{path}: this is no manifest, but the server answers every name, even {invented}, "
                "so nothing says which snapshots there are. It may want a login, or show a page "
                "where a file is missing. Look at the URL in a browser, use a server that answers "
                f"404 for missing files{name_one}."
            )
        if problem is not None:
            raise problem
        return raw


def _is_manifest(raw: bytes, number: int) -> bool:
    try:
        return fmt.unseal(fmt.Manifest, raw, "").number == number
    except StoreError:
        return False


MAX_SNAPSHOTS = 10_000  # numbers that are tried on a server without listings

_UNSEEN = (
    "not seen: files that nobody published, and unfinished snapshots; this server has no listings"
)
