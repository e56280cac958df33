"""The server of the explorer: `http.server` on the loopback interface, behind the gate.

A connection is one request and one reply, and at most `MAX_REQUESTS` are open at a time. Closing
the server ends the open connections and waits for their threads.
"""

from __future__ import annotations

import logging
import secrets
import socket
import socketserver
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from tokenloom.explore.router import refusal, reply_to
from tokenloom.explore.session import Session
from tokenloom.explore.shell import HttpReply
from tokenloom.page.markup import tag

LOOPBACK = "127.0.0.1"

MAX_REQUESTS = 16  # at a time

# where code, styles, pictures and forms of a page may come from and go to
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)

ALWAYS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Connection", "close"),
)

log = logging.getLogger("tokenloom")


class RequestHandler(BaseHTTPRequestHandler):
    """One request and its reply."""

    server: Server
    timeout = 10.0  # seconds that a read or a write may wait
    default_request_version = "HTTP/1.0"  # every reply has its headers

    def do_GET(self) -> None:
        """Reply with a page, or with the status of a refusal."""
        status = refusal(self.path, self.headers, self.server.token)
        if status is not None:
            self.send_error(status)
        else:
            self._send(reply_to(self.server.session, self.path))

    def do_HEAD(self) -> None:
        """Reply like `do_GET`, without the body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a reply that says no more than its status."""
        said = f"{int(code)} {HTTPStatus(code).phrase}"
        page = f"<!doctype html>{tag('title', int(code))}{tag('p', said)}\n"
        self._send(HttpReply(status=code, body=page.encode()))

    def _send(self, reply: HttpReply) -> None:
        self.send_response_only(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in (*ALWAYS, *reply.headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log it for debugging; the terminal stays quiet."""
        log.debug("explore: " + format, *args)


class Server(socketserver.ThreadingTCPServer):
    """Answers requests about a session until it is closed.

    It is not an `http.server.HTTPServer`, which looks up the name of this machine when it starts.

    Args:
        session: what is explored.
        port: on the loopback interface; 0 for a free one.
        token: the first name of every path; default: a random one.
    """

    allow_reuse_address = True
    daemon_threads = False  # Python aborts if it ends while one is inside NumPy
    request_queue_size = 64

    def __init__(self, session: Session, port: int = 0, *, token: str | None = None) -> None:
        self.session = session
        self.token = token or secrets.token_urlsafe(18)
        self.connections: set[socket.socket] = set()
        super().__init__((LOOPBACK, port), RequestHandler)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address of the first page, with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; one connection too many is closed with a 503."""
        if len(self.connections) < MAX_REQUESTS:
            self.connections.add(request)
            super().process_request(request, client_address)
            return
        request.settimeout(0.2)
        try:
            request.recv(1 << 16)  # unread bytes would cut off the reply
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\n\r\n503 Service Unavailable\n")
        except OSError:
            log.debug("explore: a connection was closed before it was refused")
        self.shutdown_request(request)

    def close_request(self, request: Any) -> None:
        """Close a connection."""
        self.connections.discard(request)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log why a connection failed; the others continue."""
        log.debug("explore: a connection failed: %r", sys.exc_info()[1])

    def server_close(self) -> None:
        """Stop listening, close the open connections, and wait for the threads."""
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("explore: a connection was closed already")
        self.session.stop()
        super().server_close()


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
