"""Requests that nobody should send: broken, oversized, forged, and well-formed with wild values."""

import random
from urllib.parse import quote

from pagetoys import EVIL

PAGES = ["", "step", "row", "goto", "document", "compare", "find", "overview", "diff"]
NAMES = [
    *("step", "row", "index", "first", "run", "by", "cell", "text", "source", "document", "after"),
    *("a", "b", "whole", "kind", "wanted", "from"),
]
VALUES = [
    *(
        "0",
        "1",
        "7",
        "63",
        "-1",
        "1e9",
        "9" * 18,
        "9" * 19,
        "9" * 30,
        "0x10",
        "1,000",
        "٣",
        "",
        " ",
    ),
    *("wiki", "code", "book", "nobody", EVIL, "\u202e", "\x00", "a" * 5000, "%", "text", "id"),
    *("hash", "age", "loss", "0.0.0", "0.9.9", "9.0.0", "0.99999999.5", "abcdef01", "0" * 32),
]
HOSTS = [
    *("localhost", "127.0.0.1:8000", "[::1]:1", "LOCALHOST:99"),
    *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2", "0.0.0.0"),
    *("localhost:", "localhost:99999999", "localhost@evil.example", "127.0.0.1 evil", "", "[::1"),
]
METHODS = (
    ["GET"] * 8 + ["POST"] * 3 + ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "G" * 99]
)
PATHS = [
    *(
        "/",
        "//",
        "/..",
        "/../../etc/passwd",
        "/t/../page.css",
        "/t/%2e%2e/x",
        "/t//step",
        "/t\\step",
    ),
    *(
        "http://localhost/t/step",
        "*",
        "/t/%00",
        "/t/step%00",
        "/%74/step",
        "/t/page.css/",
        "/T/step",
    ),
    *("/t/assets/page.css", "/t/step/", "/t/../t/step", "/t/%2fetc", "/t/./step", "/t/step#a"),
]
LINES = [
    *("Origin: null", "Origin: http://evil.example", "Origin: http://localhost"),
    *("Transfer-Encoding: chunked", "Content-Length: 5", "Content-Length: -5", "Content-Length: x"),
    *("Content-Length: 99999999999999999999", "Content-Type: text/plain", "Host: second"),
    *("Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded"),
    *("X: " + "y" * 20_000, "X:" + " " * 9000, "no colon", ": empty", " folded", "A\x00: b"),
]


def well_formed(draw, token):
    """A request as a browser sends it, with values that nobody expects."""
    names = draw.sample(NAMES, draw.randrange(1, 5))
    some = draw.choice([VALUES, ["0", "1", "2", "5", "wiki", "code", "text", "hash"]])
    form = "&".join(f"{name}={quote(draw.choice(some))}" for name in names)
    page, method = draw.choice(PAGES), "HEAD" if draw.random() < 0.1 else "GET"
    return f"{method} /{token}/{page}?{form} HTTP/1.1\r\nHost: localhost:99\r\n\r\n".encode()


def request_of(draw, token):
    """The bytes of one request."""
    kind = draw.random()
    if kind < 0.5:
        return well_formed(draw, token)
    if kind < 0.55:
        return bytes(draw.randrange(256) for _ in range(draw.randrange(400)))
    path = draw.choice(PATHS) if draw.random() < 0.2 else f"/{token}/{draw.choice(PAGES)}"
    pairs = [f"{draw.choice(NAMES)}={quote(draw.choice(VALUES))}" for _ in range(draw.randrange(6))]
    query = "&".join(pairs) if draw.random() < 0.9 else draw.choice(["%ff", "&" * 500, "=", "a=%"])
    version = draw.choice(["HTTP/1.1"] * 9 + ["HTTP/1.0", "HTTP/2.0", "HTTP/1.11", ""])
    lines = [f"{draw.choice(METHODS)} {path}?{query} {version}"]
    if draw.random() < 0.95:
        lines.append(f"Host: {draw.choice(HOSTS[:4] if draw.random() < 0.8 else HOSTS)}")
    lines += [draw.choice(LINES) for _ in range(draw.choice([0, 0, 0, 1, 2]))]
    if draw.random() < 0.01:
        lines += ["A: b"] * 200
    body = query.encode() if draw.random() < 0.3 else b""
    if body and draw.random() < 0.8:
        lines.append(f"Content-Length: {len(body)}")
    whole = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + body
    if draw.random() < 0.05:
        return whole[: draw.randrange(len(whole) + 1)]
    return whole


def hostile_requests(count, token, seed=0):
    """Some of them, the same for the same seed."""
    draw = random.Random(seed)
    return (request_of(draw, token) for _ in range(count))
