"""One request to one bucket, once: through obstore, or through fsspec where obstore has no scheme.

A backend answers or raises whatever its library raises, and never tries again; `client`
decides what that means. So both libraries, and a test's own backend, get the same deadlines,
retries, counts and messages.

obstore has one runtime of threads per process, and the child of a fork has none of them: there a
request would wait endlessly. A child therefore loads a second copy of obstore's library, which
brings a runtime of its own (10 ms and 16 MB of address space, once in a child that reads).

fsspec leaves timeouts to each of its file systems, and some have none: there a thread makes the
request (65 µs of CPU more), and who asked waits for it no longer than for an answer of obstore.

Credentials come from the environment of each process and live only inside the library's objects,
which are never copied, pickled or shown.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tokenloom.arguments import Url
from tokenloom.errors import ConfigError, MissingExtra

T = TypeVar("T")


class Meta(NamedTuple):
    """What a server says of an object: its size in bytes, and the tag of its content, if any.

    `changed` is in seconds since 1970, 0 if the server does not say.
    """

    size: int
    etag: str | None
    changed: float = 0.0


class Reply(NamedTuple):
    """Bytes of an object, what the server says of it, and how often it was asked again."""

    data: Any
    meta: Meta
    retries: int = 0


class Backend(Protocol):
    """Single requests; keys are those of the bucket."""

    lists: bool
    """Whether it can list."""

    def get(self, key: str, start: int, size: int | None, etag: str | None) -> Reply:
        """Bytes from `start` on; `size` None: all of them. At the object's end, fewer."""

    def head(self, key: str) -> Meta:
        """Size and tag of an object."""

    def names(self, prefix: str) -> list[str]:
        """What is in a folder: objects and further folders, without the path."""

    def list(self, prefix: str) -> dict[str, Meta]:
        """All objects below a folder, by their keys."""

    def put(self, key: str, data: Any, new: bool) -> None:
        """Write an object; `new`: only if there is none."""

    def delete(self, key: str) -> None:
        """Remove an object."""


def backend_of(url: Url, timeout: float) -> Backend:
    """What answers for the bucket of a URL; an answer may take `timeout` seconds."""
    if url.scheme in _STORES:
        return _Obstore(url, timeout)
    return _Fsspec(url, timeout)


class _Obstore:
    def __init__(self, url: Url, timeout: float) -> None:
        self._library = library()
        self._store = self._made(url, timeout)
        self.lists = url.scheme not in ("http", "https")

    def _made(self, url: Url, timeout: float) -> Any:
        with contextlib.suppress(Exception):  # its words may hold settings that are secrets
            return _STORES[url.scheme](self._library._store, url, timeout)
        raise ConfigError(
            f"{url}: the settings of the environment are not complete or not valid, allowed: what "
            "the service asks for, such as AZURE_STORAGE_ACCOUNT_NAME or GOOGLE_SERVICE_ACCOUNT. "
            "Set them; docs/remote.md lists the usual ones."
        )

    def get(self, key: str, start: int, size: int | None, etag: str | None) -> Reply:
        options: dict[str, Any] = {"if_match": etag} if etag else {}
        if size is not None:
            options["range"] = (start, start + size)
        elif start:
            options["range"] = {"offset": start}
        answer = self._library.get(self._store, key, options=options)
        return Reply(answer.bytes(), _told(answer.meta))

    def head(self, key: str) -> Meta:
        return _told(self._library.head(self._store, key))

    def names(self, prefix: str) -> list[str]:
        found = self._library.list_with_delimiter(self._store, prefix or None)
        keys = [*(one["path"] for one in found["objects"]), *found["common_prefixes"]]
        return sorted({key.rstrip("/").rpartition("/")[2] for key in keys})

    def list(self, prefix: str) -> dict[str, Meta]:
        found = self._library.list(self._store, prefix or None).collect()
        return {meta["path"]: _told(meta) for meta in found}

    def put(self, key: str, data: Any, new: bool) -> None:
        # one request each: parts of an upload that is interrupted would stay in the bucket, unseen
        mode = "create" if new else "overwrite"
        self._library.put(self._store, key, data, mode=mode, use_multipart=False)

    def delete(self, key: str) -> None:
        self._library.delete(self._store, key)


def _told(meta: Any) -> Meta:
    """What obstore says of an object."""
    return Meta(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())


class _Fsspec:
    """Reading, through whatever fsspec has for the scheme; nothing is created under a condition."""

    lists = True

    def __init__(self, url: Url, timeout: float) -> None:
        self._fs = _file_system(url.scheme)
        self._host, self._timeout = f"{url.host}/", timeout

    def get(self, key: str, start: int, size: int | None, etag: str | None) -> Reply:
        def ask() -> Reply:
            meta = self._info(key)
            if etag is not None and meta.etag != etag:
                return Reply(b"", meta)
            end = meta.size if size is None else min(start + size, meta.size)
            return Reply(self._fs.cat_file(self._host + key, start=start, end=end), meta)

        return _within(self._timeout, ask)

    def head(self, key: str) -> Meta:
        return _within(self._timeout, lambda: self._info(key))

    def _info(self, key: str) -> Meta:
        found = self._fs.info(self._host + key)
        if found.get("type") == "directory":  # which a bucket does not have
            raise FileNotFoundError(key)
        return _meta(found)

    def names(self, prefix: str) -> list[str]:
        try:
            found = _within(self._timeout, lambda: self._fs.ls(self._host + prefix, detail=False))
        except FileNotFoundError:
            return []
        return sorted({str(name).rstrip("/").rpartition("/")[2] for name in found})

    def list(self, prefix: str) -> dict[str, Meta]:
        found = _within(self._timeout, lambda: self._fs.find(self._host + prefix, detail=True))
        skip = len(self._host)
        return {name.lstrip("/")[skip:]: _meta(info) for name, info in found.items()}

    def put(self, key: str, data: Any, new: bool) -> None:
        if new:
            raise NotImplementedError
        _within(self._timeout, lambda: self._fs.pipe_file(self._host + key, bytes(data)))

    def delete(self, key: str) -> None:
        _within(self._timeout, lambda: self._fs.rm_file(self._host + key))


def _file_system(scheme: str) -> Any:
    """What fsspec has for a scheme, with the settings of the environment alone."""
    known = True
    try:
        fsspec = importlib.import_module("fsspec")
        # not even tried otherwise: one that was made by half (ftp) complains when it is freed
        if not _required(fsspec.get_filesystem_class(scheme)):
            return fsspec.filesystem(scheme)
    except ImportError:
        raise MissingExtra(f"{scheme}://", "fsspec", "remote") from None
    except ValueError:
        known = False
    except Exception:  # noqa: BLE001 - of any library; its words may hold settings
        pass
    found = f"url: found the scheme {scheme!r}"
    allowed = f"{', '.join(_STORES)}, and what fsspec reaches with the settings of the environment"
    if not known:
        raise ConfigError(f"{found}, allowed: {allowed}. Install what fsspec needs for it.")
    raise ConfigError(
        f"{found}, for which fsspec needs more than the environment says, allowed: {allowed}. Copy "
        "the files to a bucket or a disk."
    )


def _required(kind: Any) -> list[str]:
    """The arguments without which nothing of a class is made.

    >>> _required(type("Ftp", (), {"__init__": lambda self, host, port=21: None}))
    ['host']
    """
    _, *given = inspect.signature(kind.__init__).parameters.values()
    some = (one for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))
    return [one.name for one in some if one.default is one.empty]


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """What a call gives; it is left alone if it takes longer than this.

    >>> _within(5, lambda: 3)
    3
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # noqa: BLE001 - of any library; raised below
            errors.append(error)

    thread = threading.Thread(target=run, name="tokenloom-fsspec", daemon=True)
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    if not answers:
        raise TimeoutError("timed out")
    return answers[0]


def _meta(info: dict[str, Any]) -> Meta:
    """What fsspec says of an object; each of its file systems calls the tag otherwise."""
    tags = (info.get(name) for name in ("ETag", "etag", "blob_id", "sha256", "version_id"))
    times = (info.get(name) for name in ("LastModified", "last_modified", "mtime", "updated"))
    changed = next((one for one in times if one), 0.0)
    if not isinstance(changed, (int, float)):  # a datetime, or nothing that is known here
        changed = changed.timestamp() if hasattr(changed, "timestamp") else 0.0
    return Meta(info["size"], next((str(tag) for tag in tags if tag), None), changed)


# -- obstore ------------------------------------------------------------------------------------


def library() -> Any:
    """Obstore's compiled module, with a runtime that belongs to this process."""
    home, module = _LOADED[0] if _LOADED else (0, None)
    if home == os.getpid():
        return module
    try:
        first = importlib.import_module("obstore._obstore")
    except ImportError:
        raise MissingExtra("reading and writing in buckets", "obstore", "remote") from None
    module = first if module is None else _second(first)
    _LOADED[:] = [(os.getpid(), module)]
    return module


_LOADED: list[tuple[int, Any]] = []  # the process that may use it, and the module


def _second(first: Any) -> Any:
    """Another copy of a compiled module: a file of another name is loaded anew."""
    with tempfile.TemporaryDirectory(prefix="tokenloom-") as folder:
        copy = shutil.copy(first.__file__, Path(folder) / Path(first.__file__).name)
        spec: Any = importlib.util.spec_from_file_location(first.__name__, copy)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


_MEMORY: dict[tuple[int, str], Any] = {}  # by process and name: what is in memory is there once


def _options(timeout: float, plain: bool) -> dict[str, Any]:
    """Our own retries are the only ones, so that they are counted."""
    client: dict[str, Any] = {"timeout": f"{max(1, round(timeout * 1000))}ms"}
    if plain:
        client["allow_http"] = True
    return {"client_options": client, "retry_config": {"max_retries": 0}}


def _plain(*variables: str) -> bool:
    """Whether the endpoint that the environment names is without TLS."""
    return any(os.environ.get(name, "").startswith("http:") for name in variables)


def _s3(stores: Any, url: Url, timeout: float) -> Any:
    plain = _plain("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    special = os.environ.get("AWS_ENDPOINT_URL_S3")
    named = {"endpoint": special} if special else {}
    return stores.S3Store(url.host, **named, **_options(timeout, plain))


def _gs(stores: Any, url: Url, timeout: float) -> Any:
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")  # as Google's own libraries know it
    named = {}
    if emulator:
        account = {"gcs_base_url": emulator, "disable_oauth": True, "client_email": ""}
        account |= {"private_key": "", "private_key_id": ""}
        named = {"service_account_key": json.dumps(account)}
    return stores.GCSStore(url.host, **named, **_options(timeout, _plain("STORAGE_EMULATOR_HOST")))


def _azure(stores: Any, url: Url, timeout: float) -> Any:
    container, _, account = url.host.partition("@")
    named = {"account_name": account.partition(".")[0]} if account else {}
    plain = _plain("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT") or bool(
        os.environ.get("AZURE_STORAGE_USE_EMULATOR")
    )
    return stores.AzureStore(container, **named, **_options(timeout, plain))


def _http(stores: Any, url: Url, timeout: float) -> Any:
    return stores.HTTPStore(f"{url.scheme}://{url.host}", **_options(timeout, url.scheme == "http"))


def _memory(stores: Any, url: Url, timeout: float) -> Any:
    key = (os.getpid(), url.host)
    if key not in _MEMORY:
        _MEMORY[key] = stores.MemoryStore()
    return _MEMORY[key]


_STORES: dict[str, Callable[[Any, Url, float], Any]] = {
    "s3": _s3,
    "s3a": _s3,
    "gs": _gs,
    "gcs": _gs,
    "az": _azure,
    "azure": _azure,
    "abfs": _azure,
    "abfss": _azure,
    "https": _http,
    "http": _http,
    "memory": _memory,
}
