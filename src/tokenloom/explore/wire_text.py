"""Requests and replies of HTTP as plain records, read and written strictly.

One idea: what comes over a socket is a few bytes that are either a small, well-formed request or
refused. Nothing is guessed: one Host, one Content-Length, no transfer encoding, no folded header,
no byte that is not printable. So everything that decides about a request is a pure function of
bytes, and is tested without a socket.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenloom.page.markup import tag

__all__ = [
    "MAX_HEAD",
    "HttpReply",
    "HttpRequest",
    "ends_head",
    "parse_head",
    "plain_reply",
    "reply_bytes",
]

MAX_HEAD = 16 << 10  # bytes of the request line and all headers

MAX_LINE = 8 << 10  # bytes of the request line

MAX_HEADERS = 64

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

REASONS = {
    200: "OK",
    303: "See Other",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

HTML = "text/html; charset=utf-8"

_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/1\.([01])")

_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\x20-\x7e\x80-\xff\t]*)")

_LENGTH = re.compile(r"[0-9]{1,9}")

SINGLE = ("host", "origin", "content-length", "content-type", "transfer-encoding")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """A request.

    Attributes:
        method: such as "GET".
        target: path and query, as they were sent.
        headers: values by name in small letters; of several, the last.
    """

    method: str
    target: str
    headers: dict[str, str]

    @property
    def length(self) -> int:
        """Bytes of the body that the headers announce."""
        return int(self.headers.get("content-length", "0"))


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpReply:
    """A reply.

    Attributes:
        status: its number.
        body: what is sent.
        kind: media type of the body.
        headers: further headers.
        is_sent_whole: False for the reply to a HEAD, whose body is only counted.
    """

    status: int
    body: bytes
    kind: str = HTML
    headers: tuple[tuple[str, str], ...] = ()
    is_sent_whole: bool = True


def ends_head(raw: bytes) -> int:
    r"""Where the head of a request ends, or -1.

    >>> ends_head(b"GET / HTTP/1.1\r\n\r\nrest"), ends_head(b"GET / HTTP/1.1\r\n")
    (18, -1)
    """
    found = raw.find(b"\r\n\r\n")
    return -1 if found < 0 else found + 4


def parse_head(raw: bytes) -> HttpRequest | HttpReply:
    r"""The request with this head, or the reply that refuses it.

    >>> parse_head(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").target
    '/a'
    >>> parse_head(b"GET http://elsewhere/\r\n\r\n").status
    400
    """
    if len(raw) > MAX_HEAD or not raw.endswith(b"\r\n\r\n"):
        return plain_reply(431 if len(raw) > MAX_HEAD else 400)
    line, *lines = raw[:-4].split(b"\r\n")
    if len(line) > MAX_LINE:
        return plain_reply(414)
    found = _LINE.fullmatch(line)
    if found is None or len(lines) > MAX_HEADERS:
        return plain_reply(400 if found is None else 431)
    headers: dict[str, str] = {}
    for one in lines:
        header = _HEADER.fullmatch(one)
        if header is None:
            return plain_reply(400)
        name, value = header[1].decode("ascii").lower(), header[2].strip(b" \t").decode("latin-1")
        if name in SINGLE and name in headers:
            return plain_reply(400)
        headers[name] = value
    length = headers.get("content-length")
    if "transfer-encoding" in headers or (length is not None and not _LENGTH.fullmatch(length)):
        return plain_reply(400)
    return HttpRequest(method=found[1].decode(), target=found[2].decode(), headers=headers)


def plain_reply(status: int, *, headers: tuple[tuple[str, str], ...] = ()) -> HttpReply:
    r"""A reply that says no more than its status.

    >>> plain_reply(404).body
    b'<!doctype html><title>404</title><p>404 Not Found</p>\n'
    """
    said = f"{status} {REASONS[status]}"
    page = f"<!doctype html>{tag('title', status)}{tag('p', said)}\n"
    return HttpReply(status=status, body=page.encode(), headers=headers)


def reply_bytes(reply: HttpReply) -> bytes:
    """What is sent over the socket."""
    lines = [
        f"HTTP/1.1 {reply.status} {REASONS[reply.status]}",
        f"Content-Type: {reply.kind}",
        f"Content-Length: {len(reply.body)}",
        *(f"{name}: {value}" for name, value in (*ALWAYS, *reply.headers)),
    ]
    head = "\r\n".join([*lines, "\r\n"]).encode("latin-1")
    return head + reply.body if reply.is_sent_whole else head
