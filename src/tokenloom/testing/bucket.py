"""A bucket in this process that speaks S3, counts what it is asked for, and fails on demand."""

from __future__ import annotations

import contextlib
import hashlib
import html
import itertools
import os
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tokenloom.store.handles import lock_of

__all__ = ["BucketRequest", "FakeBucket"]

_NUMBERS = itertools.count()

_KINDS = {"GET": "get", "HEAD": "head", "PUT": "put", "DELETE": "delete", "POST": "delete"}


class BucketRequest(NamedTuple):
    """One request and how it was answered.

    Attributes:
        kind: "get", "head", "put", "delete" or "list".
        key: the object's name in the bucket, or the prefix that is listed.
        start: first byte that was asked for; None for a whole object.
        size: bytes that were sent, or received.
        status: of the answer; 0 where the connection broke.
    """

    kind: str
    key: str
    start: int | None
    size: int
    status: int


class FakeBucket:
    """An object store for tests: in memory, on a local port, for this process and its children.

    Inside a ``with`` statement, ``s3://`` URLs lead to it: it sets the variables of `environment`,
    and sets them back at the end. Reading through it needs tokenloom's ``remote`` extra.

    Args:
        latency: seconds before every answer.

    Attributes:
        url: the URL of the bucket.
        objects: name → bytes; may be changed at any time.
        requests: all requests since the start or the last `clear`, in order of their answers.
        environment: what another process sets to reach it.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.testing import write_store
    >>> with FakeBucket() as bucket, tempfile.TemporaryDirectory() as folder:
    ...     _ = write_store(folder, [[[1, 2, 3], [4, 5]]])
    ...     store = tl.open(bucket.upload(folder, "toy"))
    ...     bucket.clear()
    ...     store.document(1).tolist(), bucket.count("get") > 0, bucket.count("put")
    ([4, 5], True, 0)
    """

    def __init__(self, *, latency: float = 0.0) -> None:
        self.latency = latency
        self.name = f"fake-{os.getpid()}-{next(_NUMBERS)}"
        self.url = f"s3://{self.name}"
        self.objects: dict[str, bytes] = {}
        self.requests: list[BucketRequest] = []
        self.environment: dict[str, str] = {}
        self._times: dict[str, tuple[bytes, float]] = {}
        self._lock = lock_of(self)
        self._exits = contextlib.ExitStack()
        self.clear()

    def __enter__(self) -> FakeBucket:
        server = _Server(self)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self._exits.callback(thread.join)
        self._exits.callback(server.stop)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }
        for name, value in self.environment.items():
            self._exits.callback(_set_variable, name, os.environ.get(name))
            _set_variable(name, value)
        return self

    def _forked(self, torn: bool) -> None:
        """The bucket lives on in the parent; a child reads from there."""

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def upload(self, folder: str | Path, name: str) -> str:
        """Put the files of a folder below a name in the bucket; returns the URL of that name."""
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                self.objects[f"{name}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
        return f"{self.url}/{name}"

    def fail(
        self, at: int, *, status: int = 503, forever: bool = False, only: str | None = None
    ) -> None:
        """Let a request fail, counted from now.

        Args:
            at: number of the request, from 1; 0 for none.
            status: of its answer; 0 lets the connection break after half of the body.
            forever: whether every request from `at` on fails.
            only: count only requests for keys that contain this; default: all.
        """
        with self._lock:
            self._at, self._status, self._forever, self._only = at, status, forever, only or ""
            self._seen = 0

    def clear(self) -> None:
        """Forget the requests so far, and failures to come."""
        self.requests = []
        self.fail(0)

    def count(self, kind: str | None = None, only: str = "") -> int:
        """The number of requests of a kind, or of all, for keys that contain `only`."""
        return sum(kind in (None, one.kind) and only in one.key for one in self.requests)

    def _changed(self, key: str) -> time.struct_time:
        """When an object was first seen with these bytes."""
        data, known = self.objects[key], self._times.get(key)
        if known is None or known[0] is not data:
            known = self._times[key] = data, time.time()
        return time.gmtime(known[1])

    def _failure(self, key: str) -> int | None:
        """The status with which this request fails; None if it is answered."""
        with self._lock:
            self._seen += self._only in key
            due = 0 < self._at == self._seen or (self._forever and 0 < self._at < self._seen)
            return self._status if due and self._only in key else None


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, bucket: FakeBucket) -> None:
        self.bucket = bucket
        self.connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for one in self.connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    start: int | None = None


class _Connection(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, 1 << 16

    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any method
            return self._reply
        raise AttributeError(name)

    def _reply(self) -> None:
        """Answer a request, or fail it, and write it down."""
        bucket = self.server.bucket
        path = urllib.parse.urlsplit(self.path)
        name, _, key = urllib.parse.unquote(path.path.lstrip("/")).partition("/")
        query = dict(urllib.parse.parse_qsl(path.query, keep_blank_values=True))
        received = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = _KINDS[self.command]
        if kind == "get" and not key:
            kind, key = "list", query.get("prefix", "")
        time.sleep(bucket.latency)
        failure = bucket._failure(key)
        if failure:
            answer = _Answer(failure)
        elif name == bucket.name:
            answer = self._answer(kind, key, received, query.get("delimiter", ""))
        else:
            answer = _Answer(404)
        broken, body = failure == 0, answer.body
        sent = body[: len(body) // 2] if broken else body  # less than is promised
        size, status = len(received if kind == "put" else sent), 0 if broken else answer.status
        with bucket._lock:
            bucket.requests.append(BucketRequest(kind, key, answer.start, size, status))
        self.send_response(answer.status)
        for field, value in {"Content-Length": str(len(body)), **answer.headers}.items():
            self.send_header(field, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
        self.close_connection |= broken

    def _answer(self, kind: str, key: str, received: bytes, delimiter: str) -> _Answer:
        objects = self.server.bucket.objects
        if kind == "list":
            return _Answer(200, _listing(self.server.bucket, key, delimiter))
        if kind == "put":
            return _Answer(self._put(key, received), headers={"ETag": _etag(received)})
        if kind == "delete":
            gone = re.findall(r"<Key>(.*?)</Key>", received.decode()) or [key]
            for one in gone:
                objects.pop(html.unescape(one), None)
            deleted = "".join(f"<Deleted><Key>{one}</Key></Deleted>" for one in gone)
            return _Answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
        return self._get(key, objects[key]) if key in objects else _Answer(404)

    def _get(self, key: str, data: bytes) -> _Answer:
        changed = self.server.bucket._changed(key)
        moment = time.strftime("%a, %d %b %Y %H:%M:%S GMT", changed)
        headers = {"ETag": _etag(data), "Last-Modified": moment}
        match, asked = self.headers.get("If-Match"), self.headers.get("Range")
        if match not in (None, "*", headers["ETag"]):
            return _Answer(412, headers=headers)
        if self.command == "HEAD":
            return _Answer(200, headers=headers | {"Content-Length": str(len(data))})
        if asked is None:
            return _Answer(200, data, headers)
        first, last = asked.removeprefix("bytes=").split("-")
        start = int(first) if first else max(0, len(data) - int(last))
        body = data[start : int(last) + 1 if first and last else len(data)]
        headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(data)}"
        return _Answer(206 if body else 416, body, headers, start)

    def _put(self, key: str, data: bytes) -> int:
        """The status of a write."""
        bucket = self.server.bucket
        with bucket._lock:
            if self.headers.get("If-None-Match") == "*" and key in bucket.objects:
                return 412
            bucket.objects[key] = data
        return 200


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _listing(bucket: FakeBucket, prefix: str, delimiter: str) -> bytes:
    """All names on one page, as S3's ListObjectsV2 writes it."""
    rows, folders = list[str](), dict[str, None]()
    objects = bucket.objects
    for key in sorted(key for key in objects if key.startswith(prefix)):
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        if end >= 0:
            folders[html.escape(key[: end + len(delimiter)])] = None
            continue
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", bucket._changed(key))
        etag, size = html.escape(_etag(objects[key])), len(objects[key])
        rows.append(
            f"<Contents><Key>{html.escape(key)}</Key><ETag>{etag}</ETag><Size>{size}</Size>"
            f"<LastModified>{moment}</LastModified></Contents>"
        )
    rows += [f"<CommonPrefixes><Prefix>{one}</Prefix></CommonPrefixes>" for one in folders]
    count = f"<KeyCount>{len(rows)}</KeyCount><IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult>{count}{''.join(rows)}</ListBucketResult>".encode()
