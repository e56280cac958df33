"""Who may ask: a pure function from a request to its refusal, or None.

The pages are for the person who started the explorer, in a browser on this machine or at the near
end of an SSH tunnel. Other programs of this machine do not know the token, nor do pages of other
sites that the browser shows. A name that resolves to this machine (DNS rebinding) is not a loopback
name, and a request that carries another origin is refused. Ports are not compared: a tunnel has
another one at its near end. Only GET and HEAD are answered, without a body.

A wrong token is answered like a page that does not exist, so that asking reveals nothing.
"""

from __future__ import annotations

import hmac
import re

from tokenloom.explore.wire_text import HttpReply, HttpRequest, plain_reply

__all__ = ["local_path_of", "refusal"]

METHODS = ("GET", "HEAD")

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

# a path of plain names: nothing encoded, no dots that lead up, no empty name
_PATH = re.compile(r"/([A-Za-z0-9_-]+)(/([a-z][a-z.]*)?)?")


def refusal(request: HttpRequest, token: str) -> HttpReply | None:
    """Why a request is not answered; None: it is.

    Args:
        request: its head is enough.
        token: the first name of every path.
    """
    host, origin = request.headers.get("host"), request.headers.get("origin")
    if host is None or not _HOST.fullmatch(host):
        return plain_reply(403 if host else 400)
    if origin is not None and origin.lower() != f"http://{host}".lower():
        return plain_reply(403)
    if request.method not in METHODS:
        return plain_reply(405, headers=(("Allow", ", ".join(METHODS)),))
    found = _PATH.fullmatch(request.target.partition("?")[0])
    given = "" if found is None else found[1]
    if not hmac.compare_digest(given.encode(), token.encode()) or found is None:
        return plain_reply(404)
    return plain_reply(413) if request.length else None


def local_path_of(request: HttpRequest) -> str | None:
    """The name after the token; empty for the first page, None if its slash is missing.

    >>> local_path_of(HttpRequest(method="GET", target="/token/step?step=3", headers={}))
    'step'
    """
    found = _PATH.fullmatch(request.target.partition("?")[0])
    assert found is not None  # the gate let it pass
    return None if found[2] is None else found[3] or ""
