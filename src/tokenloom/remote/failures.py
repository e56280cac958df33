"""What a failed request means: try again, raise at once, or the object has changed.

Decided by the class of the exception and the status of the answer. A message is made from words
that we know, never from what the library or the server said, since that may hold a signed URL, a
header or a key; the code of an answer is repeated if it is one of a list.

========  ===========================================================================
kind      what happened
========  ===========================================================================
missing   no such object, or no such bucket
denied    the credentials are absent, wrong or expired, or may not do this
changed   the condition of the request failed: the object is another one now
taken     a create found the name in use
busy      another request for the name is under way (409 of S3): nothing is known of it
again     throttled (429, 503), another 5xx, no connection, or no whole answer in time
refused   anything else: it would fail the same way again
========  ===========================================================================
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tokenloom.errors import StoreCorrupt, StoreError, StoreNotFound


class ShortAnswer(ConnectionError):
    """An answer that has fewer bytes than were asked for."""


class NameConflict(Exception):
    """A create was refused, and yet nothing has that name."""


class Failure(NamedTuple):
    """What one failed request means.

    Attributes:
        kind: see the module.
        words: what is known of it, in our words.
    """

    kind: str
    words: str


_CLASSES = {
    "missing": ("FileNotFoundError", "NotFoundError"),
    "denied": ("PermissionError", "PermissionDeniedError", "UnauthenticatedError"),
    "changed": ("PreconditionError", "NotModifiedError"),
    "taken": ("AlreadyExistsError", "FileExistsError"),
    "busy": ("NameConflict",),
    "refused": ("SSLError", "ClientSSLError", "IsADirectoryError", "NotADirectoryError"),
    "again": ("OSError", "TimeoutError", "ConnectionError", "ClientError", "TransportError"),
}

_KINDS = {name: kind for kind, names in _CLASSES.items() for name in names}

_WORDS = {
    "missing": "there is no such object",
    "denied": "access was denied",
    "taken": "the name is taken",
    "changed": "the object is another one than before",
    "busy": "the name is neither free nor taken",
    "again": "no whole answer in time",
    "refused": "this kind of request is not supported there",
}

_STATUS, _CODE = re.compile(r"status code: (\d{3})"), re.compile(r"<Code>(\w+)</Code>")

# of S3 and its kin, where the status alone would not tell
_CODES = {
    "AuthorizationHeaderMalformed": "denied",
    "ExpiredToken": "denied",
    "InvalidToken": "denied",
    "TokenRefreshRequired": "denied",
    "RequestTimeout": "again",
    "ConditionalRequestConflict": "busy",
    "OperationAborted": "busy",
    "SlowDown": "again",
}

# obstore has one class for all that comes without a status; its text names the kind
_MARKS = (
    (
        r"//(169\.254\.169\.254|169\.254\.170\.2|metadata\.google)",  # where clients look last
        Failure("denied", "this process has no credentials"),
    ),
    (
        "RangeNotSupported",
        Failure(
            "refused",
            "this server gives whole files and no ranges of them, as nginx, Apache and any bucket "
            "do",
        ),
    ),
    (
        "InvalidCertificate|CertVerification|CERTIFICATE_VERIFY_FAILED|CertificateError",
        Failure(
            "refused",
            "the certificate of the server is not trusted here (SSL_CERT_FILE names the file of an "
            "authority of your own)",
        ),
    ),
    (
        "InvalidContentType|WRONG_VERSION_NUMBER",
        Failure("refused", "the server does not speak TLS at that port"),
    ),
    (
        "ConnectionRefused",
        Failure("again", "the connection was refused (no process listens there)"),
    ),
    (r"HttpError \{|UnexpectedRange", Failure("again", _WORDS["again"])),
)

_ADVICE = {
    "missing": "Look at the bucket and the key, and whether the object was removed.",
    "denied": (
        "Set the credentials of this process (AWS_…, GOOGLE_…, AZURE_…) to some that are valid "
        "now and may do this."
    ),
    "again": (
        "The endpoint or the network fails; nothing says that the store is damaged. Look at the "
        "URL, the region and the endpoint (AWS_REGION, AWS_ENDPOINT_URL), try again later, or "
        "allow more time with TOKENLOOM_REMOTE_DEADLINE (seconds)."
    ),
    "refused": "Look at the bucket, its region and its endpoint (AWS_REGION, AWS_ENDPOINT_URL).",
    "taken": "Choose another name.",
    "busy": (
        "Another process writes or removes this object at the same time. Look whether one does, "
        "and try again later."
    ),
    "changed": (
        "An object of a published store never changes: it was uploaded again or replaced. Restore "
        "it, or open the store again to read what is there now."
    ),
}


def failure_of(error: BaseException) -> Failure:
    """What an exception of a client library means.

    >>> failure_of(FileNotFoundError("https://user:secret@host"))
    Failure(kind='missing', words='there is no such object')
    >>> failure_of(OSError("… status code: 503 Service Unavailable: <Code>SlowDown</Code>"))
    Failure(kind='again', words='status 503, SlowDown')
    """
    text, names = str(error), [one.__name__ for one in type(error).__mro__]
    kind = next((_KINDS[name] for name in names if name in _KINDS), "refused")
    is_vague = kind in ("again", "refused")
    status = _status_of(error, text)
    if status:
        code = next((one for one in _CODE.findall(text) if one in _CODES), "")
        kind = _CODES.get(code) or (_kind_of_status(status) if is_vague else kind)
        return Failure(kind, f"status {status}{code and ', ' + code}")
    said = " ".join([*names, text])
    marked = (failure for mark, failure in _MARKS if is_vague and re.search(mark, said))
    return next(marked, Failure(kind, _WORDS[kind]))


def _status_of(error: BaseException, text: str) -> int:
    """The status of an answer, as obstore, aiohttp, requests and httpx keep it; 0: no answer."""
    found, answer = _STATUS.search(text), getattr(error, "response", error)
    if found:
        return int(found[1])
    status = getattr(answer, "status_code", getattr(answer, "status", 0))
    return status if isinstance(status, int) else 0


def _kind_of_status(status: int) -> str:
    if status in (408, 425, 429) or status >= 500:
        return "again"
    return {401: "denied", 403: "denied", 404: "missing"}.get(status, "refused")


def error_of(failure: Failure, url: str, what: str, tried: str = "") -> StoreError:
    """The error for a request that is not tried again.

    Args:
        failure: what happened.
        url: of the object, without secrets.
        what: what was tried, such as "reading it".
        tried: how often and how long, for the message.
    """
    kinds = {"missing": StoreNotFound, "changed": StoreCorrupt}
    words = f"{failure.words}{tried and ', ' + tried}"
    return kinds.get(failure.kind, StoreError)(
        f"{url}: {what} failed: {words}. {_ADVICE[failure.kind]}"
    )
