"""The server: sockets around `answered`, on the loopback interface alone.

One idea: a connection is one request and one reply. It has a deadline as a whole, so nobody holds a
place by sending a byte now and then; there are `MOST` places, and whoever finds none is told at
once. Ending closes what is open, waits for the threads, and leaves nothing behind.
"""

from __future__ import annotations

import logging
import secrets
import socket
import socketserver
import sys
import time
from typing import Any

from tokenloom.explore.router import answered
from tokenloom.explore.session import Session
from tokenloom.explore.wire_text import (
    MAX_HEAD,
    HttpReply,
    ends_head,
    plain_reply,
    reply_bytes,
)
from tokenloom.store.handles import Single, lock_of

__all__ = ["Server", "serve"]

LOOPBACK = "127.0.0.1"

MOST = 16  # requests at a time

READ_SECONDS = 10.0  # until a request must be there

WRITE_SECONDS = 30.0  # until its reply must be taken

DRAIN_BYTES, DRAIN_SECONDS = 1 << 16, 0.2  # that are thrown away after a refusal

log = logging.getLogger("tokenloom")


class OpenSockets(Single):
    """The connections that are being answered."""

    def __init__(self, most: int) -> None:
        self._lock = lock_of(self)
        self._most, self._open = most, {}  # type: int, dict[int, socket.socket]

    def _forked(self, torn: bool) -> None:
        self._open = {}  # they belong to the parent

    def enter(self, connection: socket.socket) -> bool:
        """Take a place; False if there is none."""
        with self._lock:
            if len(self._open) >= self._most:
                return False
            self._open[id(connection)] = connection
            return True

    def leave(self, connection: socket.socket) -> None:
        """Give the place back."""
        with self._lock:
            self._open.pop(id(connection), None)

    def close(self) -> None:
        """Close them all: whoever reads or writes one sees its end."""
        with self._lock:
            found = list(self._open.values())
        for one in found:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("explore: a connection was closed already")


class Server(socketserver.ThreadingTCPServer):
    """Answers requests about a session until it is closed.

    Args:
        session: what is explored.
        port: on the loopback interface; 0 for a free one.
        token: the first name of every path; default: a random one.
        read_seconds: until a request must be there.
    """

    allow_reuse_address = True
    daemon_threads = False  # Python aborts if it ends while one is inside NumPy
    block_on_close = True
    request_queue_size = 64

    def __init__(
        self,
        session: Session,
        port: int = 0,
        *,
        token: str | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self.session, self.read_seconds = session, read_seconds
        self.token = token or secrets.token_urlsafe(18)
        self._open = OpenSockets(MOST)
        super().__init__((LOOPBACK, port), _Connection)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address of the first page, with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is a place."""
        if self._open.enter(request):
            super().process_request(request, client_address)
            return
        request.settimeout(DRAIN_SECONDS)
        try:
            request.recv(MAX_HEAD)  # else the reply is cut off by what nobody read
            request.sendall(reply_bytes(plain_reply(503)))
        except OSError:
            log.debug("explore: a connection was closed before it was refused")
        self.shutdown_request(request)

    def close_request(self, request: Any) -> None:
        """Close a connection and give its place back."""
        self._open.leave(request)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note what a connection died of; the others go on."""
        log.debug("explore: a connection failed: %r", sys.exc_info()[1])

    def server_close(self) -> None:
        """Stop listening, close what is open, and wait for the threads."""
        self._open.close()
        self.session.stop()
        super().server_close()


class _Connection(socketserver.BaseRequestHandler):
    """One request and its reply."""

    server: Server
    request: socket.socket

    def handle(self) -> None:
        """Read, answer, and close."""
        end = time.monotonic() + self.server.read_seconds
        reply = self._reply(end)
        if reply is None:
            return
        self.request.settimeout(WRITE_SECONDS)
        self.request.sendall(reply_bytes(reply))
        if reply.status >= 400:
            self._drain()

    def _reply(self, end: float) -> HttpReply | None:
        raw = b""
        while ends_head(raw) < 0:
            if len(raw) > MAX_HEAD:
                return plain_reply(431)
            more = self._more(end)
            if more is None:
                return plain_reply(408)
            if not more:
                return plain_reply(400) if raw else None
            raw += more
        return answered(self.server.session, self.server.token, raw)

    def _more(self, end: float) -> bytes | None:
        """The next bytes, empty at their end; None after the deadline of the whole request."""
        left = end - time.monotonic()
        if left <= 0:
            return None
        self.request.settimeout(left)
        try:
            return self.request.recv(MAX_HEAD)
        except TimeoutError:
            return None

    def _drain(self) -> None:
        """Throw away what is still coming, so that the refusal is read and not cut off."""
        self.request.shutdown(socket.SHUT_WR)
        end, taken = time.monotonic() + DRAIN_SECONDS, 0
        while taken < DRAIN_BYTES and (more := self._more(end)):
            taken += len(more)


def serve(server: Server, seconds: float | None = None) -> None:
    """Answer until Ctrl-C, or for some seconds; then end cleanly.

    Args:
        server: what answers.
        seconds: how long; None: until Ctrl-C.
    """
    end = None if seconds is None else time.monotonic() + seconds
    server.timeout = 0.2
    try:
        while end is None or time.monotonic() < end:
            server.handle_request()
    except KeyboardInterrupt:
        log.info("explore: ended")
    finally:
        server.server_close()
