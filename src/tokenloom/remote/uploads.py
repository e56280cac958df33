"""`Files` in a bucket: what is being written waits here, and is published by uploads.

*Spool locally, publish by upload*. A file under a temporary name is an unnamed file of
this machine (in ``TMPDIR``; never more than one shard, and nothing is left of it when the process
ends, however it ends). A shard that gets its name is uploaded file by file, in a fixed order, each
under the condition that its name is free, and its commit record last: before that the shard does
not exist for any reader. A name that is taken is compared by content. Of two builders whose shards
differ, the first differing file decides: exactly one of them goes on. It is nearly always the very
first, which holds the checksums of all columns.

There are no locks and no directories. Whether the bucket keeps the condition is tried before the
first upload (`RemoteFiles.mkdir`): one that ignores it would let two builders tear a store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tokenloom.arguments import Place, Url
from tokenloom.errors import StoreError, StoreExists
from tokenloom.limits import limits
from tokenloom.remote.client import TRIES, Client, client_of, read_object
from tokenloom.store.files import (
    FOLDER,
    LOCAL,
    TEMPORARY_NAME,
    Files,
    OutFile,
    failed,
    publish_file,
    replace_file,
    temporary_name,
)
from tokenloom.store.handles import Single
from tokenloom.store.snapshots import commit_record

FIRST, COMMIT = "crc32c/c/0", "shard.json"

SLOWEST = 1 << 20  # bytes per second below which an upload is given up

LARGEST = 5 << 30  # bytes: what a bucket takes in one request


def files_of(place: Place) -> Files:
    """What writes to a place: to a directory of this machine, or to a bucket.

    >>> from pathlib import Path
    >>> files_of(Path("stores/wiki")) is LOCAL, files_of(Url("memory", "toy")).folders
    (True, False)
    """
    return RemoteFiles(client_of(place)) if isinstance(place, Url) else LOCAL


def read_whole(place: Place, limit: int) -> bytes | None:
    """All bytes of a small file or object, or None if there is none."""
    return read_object(place, limit) if isinstance(place, Url) else LOCAL.read(place, limit)


def write_whole(place: Place, data: bytes, *, new: bool = False) -> bool:
    """Write a small file or object of which nobody sees a part.

    Args:
        place: where.
        data: all of it.
        new: the name must be free; otherwise what is there is replaced.

    Returns:
        False if the name was taken, and nothing was written.
    """
    if isinstance(place, Url):
        if new:
            return client_of(place).put_new(place.key, data)
        client_of(place).put(place.key, data)
    elif new:
        return publish_file(LOCAL, place, data)
    else:
        replace_file(place, data)
    return True


class RemoteFiles(Single):
    """`Files` in one bucket; paths are URLs of it.

    >>> shard = Url("memory", "toy", "stores/wiki/.tmp-1")
    >>> files = RemoteFiles(client_of(shard))
    >>> out = files.create(shard / "shard.json")
    >>> out.write(b"{}")
    >>> out.close()
    >>> files.rename_new(shard, shard.parent / "shard-00000"), files.list(shard.parent)
    (True, ['shard-00000'])
    """

    folders = False

    def __init__(self, client: Client) -> None:
        self._client = client
        self._spool: dict[Url, _Waiting] = {}
        self._tried = False

    # -- what waits here -------------------------------------------------------------------

    def create(self, path: Url) -> OutFile:
        """See `Files`."""
        if path in self._spool:
            raise StoreExists(f"{path}: it is already there. Choose another name.")
        self._spool[path] = _Waiting(path)
        return self._spool[path]

    def mkdir(self, path: Url, mode: int = 0o777) -> None:
        """See `Files`. There is nothing to make; the bucket is tried, once."""
        waits = any(map(TEMPORARY_NAME.fullmatch, path.key.split("/")))
        if not waits and not self._tried:
            self._try(path)

    def _try(self, root: Url) -> None:
        """Create an object twice: unless the second is refused, nothing may be written here."""
        for _ in range(2):  # somebody who collects garbage may have removed the first
            probe = root / temporary_name()
            # two contents: an answer that was lost and asked again may be told from a name taken
            self._client.put_new(probe.key, b"")
            kept = not self._client.put_new(probe.key, b"[")
            self._client.delete(probe.key)
            if kept:
                self._tried = True
                return
        raise StoreError(
            f"{root}: this server creates an object although its name is taken (it ignores "
            "If-None-Match), so two builds could tear a store here. Nothing was written. Build on "
            "a local disk and copy the finished store, or use another server."
        )

    # -- publishing ------------------------------------------------------------------------

    def rename_new(self, source: Url, target: Url) -> bool:
        """See `Files`. Uploads every file, the commit record last, and forgets them here."""
        prefix = f"{source.key}/"
        names = sorted(one.key[len(prefix) :] for one in self._spool if one.key.startswith(prefix))
        if self._client.head((target / COMMIT).key) is not None:
            return False
        for name in sorted(names, key=lambda name: (name == COMMIT, name != FIRST, name)):
            if not self._upload(self._spool[source / name], target / name):
                if name == COMMIT:
                    self._take_back(target, names)
                    return False  # whose it is, the writer says
                raise StoreError(
                    f"{target / name}: another build has taken this shard, with other content. "
                    "Wait for it and build into another place; or, if it died, remove its remains "
                    "with `tokenloom gc --unfinished`."
                )
        self.remove(source)
        return True

    def _take_back(self, target: Url, names: Sequence[str]) -> None:
        """Remove files of ours from a shard that another build has committed without them."""
        record = commit_record(target.parent, target.name, self)
        theirs = {COMMIT, *record.files} if record else set(names)
        for name in set(names) - theirs:
            self._client.delete((target / name).key)

    def link_new(self, source: Url, target: Url) -> bool:
        """See `Files`."""
        return self._put_new(target, self._spool[source])

    def _upload(self, file: _Waiting, target: Url) -> bool:
        """Whether an object is there now with the content of a file."""
        return self._put_new(target, file) or self._is_same(file, target)

    def _put_new(self, target: Url, file: _Waiting) -> bool:
        if not self._tried:
            self._try(target.parent)
        size = file.size
        if size > LARGEST:
            raise StoreError(
                f"{target}: it has {size:,} bytes, allowed in a bucket: {LARGEST:,} in one object. "
                "Build with smaller shards (shard_tokens), or on a local disk."
            )
        return self._client_for(size).put_new(target.key, file.mapped())

    def _client_for(self, size: int) -> Client:
        """The client, or one with more time for a large upload."""
        settings = self._client.settings
        needed = TRIES * size / SLOWEST
        if needed <= settings.deadline:
            return self._client
        return Client(self._client.url, dataclasses.replace(settings, deadline=needed))

    def _is_same(self, file: _Waiting, target: Url) -> bool:
        chunk = limits().compared_chunk_bytes
        meta, size = self._client.head(target.key), file.size
        if meta is None or meta.size != size:
            return False
        data = file.mapped()
        for start in range(0, size, chunk):
            length = min(chunk, size - start)
            answer = self._client.get(target.key, start, length, meta.etag)
            if memoryview(answer.data) != data[start : start + length]:
                return False
        return True

    # -- looking ---------------------------------------------------------------------------

    def list(self, path: Url) -> list[str]:
        """See `Files`."""
        if not self._client.lists:
            raise StoreError(
                f"{path}: this server lists no names, so stores can be read here and nothing else. "
                "Use a bucket (s3://, gs://, az://) or a directory."
            )
        try:
            return self._client.names(path.key)
        except FileNotFoundError:
            return []

    def read(self, path: Url, limit: int) -> bytes | None:
        """See `Files`."""
        return read_object(path, limit, self._client)

    def measure(self, path: Url) -> int | None:
        """See `Files`."""
        found = self._client.head(path.key)
        if found is not None:
            return found.size
        return FOLDER if self.list(path) else None

    def below(self, path: Url) -> dict[str, int]:
        """See `Files`. From one listing."""
        skip = len(path.key) + 1 if path.key else 0
        return {key[skip:]: meta.size for key, meta in self._client.list(path.key).items()}

    def idle(self, path: Url) -> float:
        """See `Files`. By the clock of the bucket."""
        found = [meta.changed for meta in self._client.list(path.key).values()]
        if not found:
            beside = self._client.list(path.parent.key)
            found = [meta.changed for key, meta in beside.items() if key == path.key]
        return time.time() - max(found, default=0.0)

    # -- the rest --------------------------------------------------------------------------

    def remove(self, path: Url) -> None:
        """See `Files`. Of a shard, the commit record goes first: it is never half there."""
        prefix = f"{path.key}/"
        waiting = [one for one in self._spool if one == path or one.key.startswith(prefix)]
        for one in waiting:
            del self._spool[one]
        if waiting:
            return
        names = sorted(self.below(path), key=lambda name: (name != COMMIT, name))
        for key in [prefix + name for name in names] or [path.key]:
            self._client.delete(key)

    def chmod_like(self, path: Url, model: Url) -> None:
        """See `Files`. Nothing: who may read is the bucket's own business."""

    def sync_directory(self, path: Url) -> None:
        """See `Files`. Nothing: an upload that was answered is durable."""

    @contextlib.contextmanager
    def lock(self, path: Url, *, shared: bool = False) -> Iterator[bool | None]:
        """See `Files`. There are none."""
        yield None


class _Waiting(Single):
    """A file without a name that waits for its upload; it is gone with this object."""

    _fd = -1  # also when opening fails

    def __init__(self, path: Url) -> None:
        self._path, self.size = path, 0
        try:
            with tempfile.TemporaryFile(prefix="tokenloom-", buffering=0) as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise failed(error, path, f"a file in {tempfile.gettempdir()} failed") from error

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            try:
                count = os.write(self._fd, view)
            except OSError as error:
                where = f"a file in {tempfile.gettempdir()} failed"
                raise failed(error, self._path, where) from error
            self.size += count
            view = view[count:]

    def close(self) -> None:
        """Nothing: it is durable when it is uploaded."""

    def mapped(self) -> memoryview:
        """Its bytes, without reading them into memory."""
        if not self.size:
            return memoryview(b"")
        # never closed: a request that was given up may still look at it
        return memoryview(mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ))

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
