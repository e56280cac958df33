"""Who may ask: a pure function from a request to the status of its refusal, or None.

The pages are for the person who started the explorer, in a browser on this machine or at the near
end of an SSH tunnel. Other programs of this machine do not know the token, nor do pages of other
sites that the browser shows. A name that resolves to this machine (DNS rebinding) is not a loopback
name, and a request that carries another origin is refused. Ports are not compared: a tunnel has
another one at its near end.

A wrong token is answered like a page that does not exist, so that asking reveals nothing.
"""

from __future__ import annotations

import hmac
import re
from email.message import Message

__all__ = ["page_name", "refusal"]

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

# a path of plain names: nothing encoded, no dots that lead up, no empty name
_PATH = re.compile(r"/([A-Za-z0-9_-]+)(/([a-z][a-z.]*)?)?")


def refusal(target: str, headers: Message, token: str) -> int | None:
    """The status that refuses a request; None: it is answered.

    Args:
        target: path and query, as they were sent.
        headers: of the request.
        token: the first name of every path.
    """
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not hosts[0]:
        return 400
    if not _HOST.fullmatch(hosts[0]):
        return 403
    origins = headers.get_all("Origin", [])
    if any(origin.lower() != f"http://{hosts[0]}".lower() for origin in origins):
        return 403
    found = _PATH.fullmatch(target.partition("?")[0])
    given = "" if found is None else found[1]
    return None if hmac.compare_digest(given.encode(), token.encode()) else 404


def page_name(target: str) -> str | None:
    """The name after the token; empty for the first page, None if its slash is missing.

    >>> page_name("/token/step?step=3")
    'step'
    """
    found = _PATH.fullmatch(target.partition("?")[0])
    assert found is not None  # the gate let it pass
    return None if found[2] is None else found[3] or ""
