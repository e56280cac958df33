"""A bucket in memory with the faults of real ones, as a process that speaks S3.

One idea: every request is answered by a pure look at the objects and the settings, waits as long
as latency and bandwidth say, and is written down. GET (whole, or a range; if-match), HEAD, PUT
(if-none-match), DELETE and the listing of names are all that tokenloom asks of a bucket; buckets
exist as soon as they are named, and no signature is checked.

Everything about the server itself is below ``/-/``:

=====================  ========================================================================
``PUT /-/settings``    JSON of `Settings`; what is left out goes back to its default
``GET /-/log``         JSON: every request since the log was cleared, in order of its end
``DELETE /-/log``      clear the log
``DELETE /-/objects``  forget all objects
=====================  ========================================================================

It prints its port, and ends with its standard input. ``--serve bucket=FOLDER`` offers the files of
a folder without copying them. Its own limit, with one client on two shared cores: 3,900
requests/s of 4 KiB, 1.2 GB/s in pieces of 1 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import hashlib
import html
import json
import mmap
import os
import re
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PIECE = 256 << 10  # bytes that are sent between two looks at the bandwidth

PAGE = 1000  # names of one answer to a listing


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How the server behaves.

    Attributes:
        latency: seconds before every answer.
        bandwidth: bytes per second that all answers share; 0: no limit.
        slow_down: every n-th request is answered with 503 SlowDown; 0: none.
        torn: every n-th GET breaks off after half of its body.
        short: every n-th GET gives half of the range, and says so.
        etag_after: requests after which every object has another etag; 0: never.
        expire_after: requests after which credentials have expired; 0: never.
        ignore_conditions: if-match and if-none-match are not looked at.
        conflicts: so many creates are refused with 409, and nothing is written, whether or not the
            name is free.
        conflict_code: what those refusals are called.
        elsewhere: every GET gives bytes of another place, as many as were asked for, with the right
            etag: a broken proxy.
        only: count only requests (and refuse only creates, and lie only about objects) whose key
            contains this.
    """

    latency: float = 0.0
    bandwidth: float = 0.0
    slow_down: int = 0
    torn: int = 0
    short: int = 0
    etag_after: int = 0
    expire_after: int = 0
    ignore_conditions: bool = False
    conflicts: int = 0
    conflict_code: str = "ConditionalRequestConflict"
    elsewhere: bool = False
    only: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One request as it was answered.

    Attributes:
        method: GET, HEAD, PUT, DELETE or LIST.
        key: bucket/key, or bucket/prefix of a listing.
        start: first byte asked for; -1: no range.
        size: bytes asked for; -1: no range.
        status: of the answer.
        sent: bytes of its body that were sent.
        received: bytes of the request's body.
        began: seconds, of a clock of the server.
        ended: likewise.
        in_flight: requests under way when it began, itself included.
    """

    method: str
    key: str
    start: int
    size: int
    status: int
    sent: int
    received: int
    began: float
    ended: float
    in_flight: int


@dataclass(slots=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Answer:
    """One answer, before faults."""

    status: int
    body: memoryview = field(default_factory=lambda: memoryview(b""))
    headers: dict[str, str] = field(default_factory=dict)
    torn: bool = False


@dataclass(slots=True)
class Object:
    """Bytes under a key; the etag is the md5 that S3 gives, made when it is first asked for."""

    data: memoryview
    changed: float
    _etag: str = ""

    @property
    def etag(self) -> str:
        if not self._etag:
            self._etag = hashlib.md5(self.data, usedforsecurity=False).hexdigest()
        return self._etag


REASONS = {
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    412: "Precondition Failed",
    416: "Range Not Satisfiable",
    503: "Slow Down",
}


def refusal(status: int, code: str, message: str) -> Answer:
    """An error as S3 writes it."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, memoryview(text.encode()), {"Content-Type": "application/xml"})


class Bucket:
    """Objects, settings and the log; everything but the sockets."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.settings = Settings()
        self.log: list[Entry] = []
        self.in_flight = 0
        self._count = self._gets = self._conflicts = 0
        self._changed = asyncio.Event()
        self._free_at = 0.0  # when the wire is free again

    def serve(self, bucket: str, folder: Path) -> None:
        """Offer the files below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
                key = f"{bucket}/{path.relative_to(folder).as_posix()}"
                self.objects[key] = Object(memoryview(data), path.stat().st_mtime)

    def set(self, settings: Settings) -> None:
        self.settings, self._count, self._gets, self._conflicts = settings, 0, 0, 0
        self._changed.set()  # requests that nobody waits for any more do not count as under way
        self._changed = asyncio.Event()

    async def pause(self) -> None:
        """Wait for the latency; a long wait ends, without an answer, when other settings hold."""
        if self.settings.latency < 1:
            await asyncio.sleep(self.settings.latency)
            return
        try:
            await asyncio.wait_for(self._changed.wait(), self.settings.latency)
        except TimeoutError:
            return
        raise ConnectionResetError

    def sending(self, size: int) -> float:
        """Seconds to wait before that many bytes are through."""
        if not self.settings.bandwidth:
            return 0.0
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size / self.settings.bandwidth
        return self._free_at - now

    # -- answers ---------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        """What a request gets."""
        if request.path.startswith("/-/"):
            return self._control(request)
        key = urllib.parse.unquote(request.path.lstrip("/"))
        if self.settings.only in key:
            self._count += 1
        if self._due(self.settings.slow_down):
            return refusal(503, "SlowDown", "Please reduce your request rate.")
        if 0 < self.settings.expire_after < self._count:
            return refusal(403, "ExpiredToken", "The provided token has expired.")
        if request.method == "GET" and "/" not in key.rstrip("/"):
            return self._list(key.rstrip("/"), request.query)
        if request.method in ("GET", "HEAD"):
            return self._get(key, request)
        if request.method == "PUT":
            return self._put(key, request)
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return Answer(204)
        if request.method == "POST" and "delete" in request.query:
            return self._delete(key.rstrip("/"), request.body.decode())
        return refusal(405, "MethodNotAllowed", "The method is not allowed here.")

    def _due(self, every: int) -> bool:
        return every > 0 and self._count > 0 and self._count % every == 0

    def _etag(self, found: Object) -> str:
        changed = 0 < self.settings.etag_after < self._count
        return f'"{"0" * 32 if changed else found.etag}"'

    def _get(self, key: str, request: Request) -> Answer:
        found = self.objects.get(key)
        if found is None:
            return refusal(404, "NoSuchKey", "The specified key does not exist.")
        etag, heard = self._etag(found), not self.settings.ignore_conditions
        headers = {"ETag": etag, "Last-Modified": _date(found.changed), "Accept-Ranges": "bytes"}
        if heard and request.headers.get("if-match", etag) not in (etag, "*"):
            return refusal(412, "PreconditionFailed", "At least one condition did not hold.")
        if heard and request.headers.get("if-none-match") == etag:
            return Answer(304, headers=headers)
        if request.method == "HEAD":
            return Answer(200, headers={**headers, "Content-Length": str(len(found.data))})
        answer = self._body(found.data, request.headers.get("range"), headers)
        if self.settings.elsewhere and self.settings.only in key:
            answer.body = memoryview(bytes(answer.body[1:]) + bytes(answer.body[:1]))
        return answer

    def _body(self, data: memoryview, asked: str | None, headers: dict[str, str]) -> Answer:
        status, start, stop = 200, 0, len(data)
        if asked is not None:
            wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", asked)
            if wanted is None or wanted[0] == "bytes=-":
                return refusal(416, "InvalidRange", "The range is invalid.")
            status = 206
            if wanted[1]:
                start = int(wanted[1])
                stop = min(int(wanted[2]) + 1, len(data)) if wanted[2] else len(data)
            else:
                start = max(0, len(data) - int(wanted[2]))
            if start >= stop:
                return refusal(416, "InvalidRange", "The requested range is not satisfiable.")
        self._gets += 1
        if self.settings.short and self._gets % self.settings.short == 0:
            stop -= (stop - start) // 2
        torn = self.settings.torn > 0 and self._gets % self.settings.torn == 0
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Answer(status, data[start:stop], headers, torn)

    def _put(self, key: str, request: Request) -> Answer:
        heard = not self.settings.ignore_conditions
        new = request.headers.get("if-none-match") == "*"
        new |= request.headers.get("x-goog-if-generation-match") == "0"  # as Google says it
        if new and self.settings.only in key and self._conflicts < self.settings.conflicts:
            self._conflicts += 1
            return refusal(409, self.settings.conflict_code, "A conflicting operation.")
        if heard and new and key in self.objects:
            return refusal(412, "PreconditionFailed", "At least one condition did not hold.")
        before = self.objects.get(key)
        match = request.headers.get("if-match")
        if heard and match is not None and (before is None or match != self._etag(before)):
            return refusal(412, "PreconditionFailed", "At least one condition did not hold.")
        found = self.objects[key] = Object(memoryview(request.body), time.time())
        return Answer(200, headers={"ETag": self._etag(found), "x-goog-generation": "1"})

    def _delete(self, bucket: str, wanted: str) -> Answer:
        """Several objects at once: the form in which some clients always ask."""
        gone = re.findall(r"<Key>(.*?)</Key>", wanted)
        for name in gone:
            self.objects.pop(f"{bucket}/{html.unescape(name)}", None)
        rows = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in gone)
        text = f'<?xml version="1.0" encoding="UTF-8"?><DeleteResult>{rows}</DeleteResult>'
        return Answer(200, memoryview(text.encode()), {"Content-Type": "application/xml"})

    def _list(self, bucket: str, query: dict[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or ""
        names = sorted(
            key[len(bucket) + 1 :] for key in self.objects if key.startswith(f"{bucket}/")
        )
        seen: dict[str, Object | None] = {}
        for name in names:
            if not name.startswith(prefix):
                continue
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            one = name if end < 0 else name[: end + len(delimiter)]
            if one > after:
                seen[one] = None if end >= 0 else self.objects[f"{bucket}/{name}"]
        page, more = list(seen.items())[:PAGE], len(seen) > PAGE
        return Answer(
            200,
            memoryview(_listing(bucket, prefix, page, more, self._etag).encode()),
            {"Content-Type": "application/xml"},
        )

    def _control(self, request: Request) -> Answer:
        what = (request.method, request.path)
        if what == ("PUT", "/-/settings"):
            self.set(Settings(**json.loads(request.body or b"{}")))
        elif what == ("GET", "/-/log"):
            entries = [dataclasses.asdict(entry) for entry in self.log]
            return Answer(200, memoryview(json.dumps(entries).encode()))
        elif what == ("DELETE", "/-/log"):
            self.log.clear()
        elif what == ("DELETE", "/-/objects"):
            self.objects.clear()
        else:
            return refusal(404, "NoSuchKey", "There is no such control.")
        return Answer(204)


def _date(seconds: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds))


def _listing(
    bucket: str,
    prefix: str,
    page: list[tuple[str, Object | None]],
    more: bool,
    etag: Callable[[Object], str],
) -> str:
    """One page of a listing, as S3's ListObjectsV2 writes it."""
    parts = []
    for name, found in page:
        if found is None:
            parts.append(f"<CommonPrefixes><Prefix>{html.escape(name)}</Prefix></CommonPrefixes>")
            continue
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.changed))
        parts.append(
            f"<Contents><Key>{html.escape(name)}</Key><LastModified>{moment}</LastModified>"
            f"<ETag>{html.escape(etag(found))}</ETag><Size>{len(found.data)}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )
    last = html.escape(page[-1][0]) if page else ""
    token = f"<NextContinuationToken>{last}</NextContinuationToken>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
        f"<Name>{html.escape(bucket)}</Name><Prefix>{html.escape(prefix)}</Prefix>"
        f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
        f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token if more else ''}"
        f"{''.join(parts)}</ListBucketResult>"
    )


# -- sockets -------------------------------------------------------------------------------
class Connection:
    """One connection: requests are read one after the other, and answered in order."""

    def __init__(self, bucket: Bucket, sock: socket.socket) -> None:
        self._bucket, self._socket, self._pending = bucket, sock, b""
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        try:
            while (request := await self._request()) is not None:
                if not await self._reply(request):
                    break
        except (ConnectionError, OSError):
            pass  # the client left
        finally:
            self._socket.close()

    async def _request(self) -> Request | None:
        while (end := self._pending.find(b"\r\n\r\n")) < 0:
            data = await self._loop.sock_recv(self._socket, 1 << 16)
            if not data:
                return None
            self._pending += data
        head, self._pending = self._pending[:end], self._pending[end + 4 :]
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        split = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        if headers.get("expect", "").lower() == "100-continue":
            await self._loop.sock_sendall(self._socket, b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self._body(int(headers.get("content-length", "0")))
        return None if body is None else Request(method, split.path, query, headers, body)

    async def _body(self, size: int) -> bytes | None:
        body, self._pending = bytearray(self._pending[:size]), self._pending[size:]
        while len(body) < size:
            data = await self._loop.sock_recv(self._socket, min(1 << 20, size - len(body)))
            if not data:
                return None  # an upload that broke off leaves nothing
            body += data
        return bytes(body)

    async def _reply(self, request: Request) -> bool:
        """Answer one request; False if the connection ends with it."""
        bucket, began = self._bucket, time.monotonic()
        bucket.in_flight += 1
        flying = bucket.in_flight
        try:
            if bucket.settings.latency and not request.path.startswith("/-/"):
                await bucket.pause()
            answer = bucket.answer(request)
            if request.method == "HEAD":
                size = answer.headers.get("Content-Length", "0")
                answer = Answer(answer.status, headers={**answer.headers, "Content-Length": size})

            def note(sent: int) -> None:  # before the client has it all, and may ask for the log
                if not request.path.startswith("/-/"):
                    bucket.log.append(_entry(request, answer, sent, began, flying))

            await self._send(answer, note)
        finally:
            bucket.in_flight -= 1
        return not answer.torn

    async def _send(self, answer: Answer, note: Callable[[int], None]) -> None:
        headers = {"Content-Length": str(len(answer.body)), **answer.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {answer.status} {REASONS[answer.status]}\r\n{lines}\r\n".encode()
        body = answer.body[: len(answer.body) // 2] if answer.torn else answer.body
        step = PIECE if self._bucket.settings.bandwidth else max(PIECE, len(body))
        last = (len(body) - 1) // step * step if body else 0
        for start in range(0, last + 1, step):
            piece = body[start : start + step]
            await self._wait(len(piece))
            if start == last:
                note(len(body))
            if not start:  # in one packet, if it is short
                piece, rest = head + bytes(piece[:1024]), piece[1024:]
                await self._loop.sock_sendall(self._socket, piece)
                piece = rest
            await self._loop.sock_sendall(self._socket, piece)

    async def _wait(self, size: int) -> None:
        delay = self._bucket.sending(size)
        if delay > 0.001:
            await asyncio.sleep(delay)


def _first_key(body: bytes) -> str:
    found = re.search(r"<Key>(.*?)</Key>", body.decode())
    return html.unescape(found[1]) if found else ""


def _entry(request: Request, answer: Answer, sent: int, began: float, flying: int) -> Entry:
    key = urllib.parse.unquote(request.path.lstrip("/"))
    method = request.method
    if method == "GET" and "/" not in key.rstrip("/"):
        method, key = "LIST", f"{key.rstrip('/')}/{request.query.get('prefix', '')}"
    if method == "POST":
        method, key = "DELETE", f"{key.rstrip('/')}/{_first_key(request.body)}"
    wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
    return Entry(
        method=method,
        key=key,
        start=int(wanted[1]) if wanted else -1,
        size=int(wanted[2]) + 1 - int(wanted[1]) if wanted else -1,
        status=answer.status,
        sent=sent,
        received=len(request.body),
        began=began,
        ended=time.monotonic(),
        in_flight=flying,
    )


async def serve(bucket: Bucket, listening: socket.socket) -> None:
    """Accept connections until the process ends."""
    loop, running = asyncio.get_running_loop(), set()
    while True:
        sock, _ = await loop.sock_accept(listening)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = loop.create_task(Connection(bucket, sock).run())
        running.add(task)
        task.add_done_callback(running.discard)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve, and print the port."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--serve", action="append", default=[], metavar="BUCKET=FOLDER")
    arguments = parser.parse_args()
    bucket = Bucket()
    for one in arguments.serve:
        name, _, folder = one.partition("=")
        bucket.serve(name, Path(folder))
    listening = socket.create_server(("127.0.0.1", arguments.port), backlog=512)
    listening.setblocking(False)
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(serve(bucket, listening))


if __name__ == "__main__":
    main()
