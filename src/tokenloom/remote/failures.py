"""What a failed request means: try again, say so at once, or the object has changed.

One idea: a message is made from words that we know, never from what the library or the server
said, since that may hold a signed URL, a header or a key. The status and the code of an answer are
looked up in lists; everything else is dropped.

=========  ==========================================================================
kind       what happened
=========  ==========================================================================
missing    no such object, or no such bucket
denied     the credentials are absent, wrong or expired, or may not do this
changed    the condition of the request failed: the object is another one now
taken      a create found the name in use
busy       another request for the name is under way (409 of S3), so nothing is known of it
again      throttled (429, 503), another 5xx, a connection that was refused, a timeout, a broken
           or short answer
unknown    there is no host of that name: seldom mended by waiting, so asked again only briefly
untrusted  the certificate of the server is not trusted
whole      the server gives whole files, and no ranges of them
refused    anything else: it would fail the same way again
=========  ==========================================================================
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tokenloom.errors import StoreCorrupt, StoreError, StoreNotFound

__all__ = ["Failure", "error_of", "failure_of"]

_STATUS = re.compile(r"status code: (\d{3})")

# where clients look last: the metadata service of a machine in the cloud
_NO_CREDENTIALS = re.compile(r"//(169\.254\.169\.254|169\.254\.170\.2|metadata\.google)")

_AGAIN = {408, 425, 429}

# codes of S3 and its kin; those of Google and Azure come with a status that says the same
_CODES = {
    "AccessDenied": "denied",
    "AuthorizationHeaderMalformed": "denied",
    "ExpiredToken": "denied",
    "InvalidAccessKeyId": "denied",
    "InvalidToken": "denied",
    "RequestTimeTooSkewed": "denied",
    "SignatureDoesNotMatch": "denied",
    "TokenRefreshRequired": "denied",
    "InternalError": "again",
    "RequestTimeout": "again",
    "ServiceUnavailable": "again",
    "SlowDown": "again",
    "NoSuchBucket": "missing",
    "PermanentRedirect": "refused",
}

# a library may call these "already exists", as all that comes with 409
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")

_TYPES = {
    "FileNotFoundError": "missing",
    "NotFoundError": "missing",
    "PermissionError": "denied",
    "PermissionDeniedError": "denied",
    "UnauthenticatedError": "denied",
    "PreconditionError": "changed",
    "NotModifiedError": "changed",
    "AlreadyExistsError": "taken",
    "FileExistsError": "taken",
    "NotSupportedError": "refused",
    "NotImplementedError": "refused",
    "InvalidPathError": "refused",
    "UnknownConfigurationKeyError": "refused",
}

_ADVICE = {
    "missing": "Look at the bucket and the key, and whether the object was removed.",
    "denied": (
        "Set the credentials of this process (AWS_…, GOOGLE_…, AZURE_…) to some that are valid "
        "now and may do this."
    ),
    "again": (
        "The endpoint or the network fails; nothing says that the store is damaged. Try again "
        "later, or allow more time with TOKENLOOM_REMOTE_DEADLINE (seconds)."
    ),
    "unknown": (
        "Look at the URL, the region and the endpoint (AWS_REGION, AWS_ENDPOINT_URL), and at the "
        "network of this machine."
    ),
    "untrusted": (
        "Look at the endpoint, and at the clock of this machine. If the certificate is of an "
        "authority of your own, name its file in SSL_CERT_FILE."
    ),
    "refused": "Look at the bucket, its region and its endpoint (AWS_REGION, AWS_ENDPOINT_URL).",
    "whole": (
        "Use a server that answers range requests (nginx, Apache, any bucket), or copy the files "
        "to a disk."
    ),
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


class Failure(NamedTuple):
    """What one failed request means.

    Attributes:
        kind: see the module.
        words: what is known of it, in our words.
    """

    kind: str
    words: str


def failure_of(error: BaseException) -> Failure:
    """What an exception of a client library means.

    >>> failure_of(FileNotFoundError("https://user:secret@host"))
    Failure(kind='missing', words='there is no such object')
    >>> failure_of(OSError("… status code: 503 Service Unavailable: <Code>SlowDown</Code>"))
    Failure(kind='again', words='status 503, SlowDown')
    """
    text, name = str(error), type(error).__name__
    plain = _ALWAYS.sub("", text)
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    codes = (*_CONFLICTS, *_CODES) if status == 409 else _CODES
    code = next((one for one in codes if re.search(rf"\b{one}\b", plain)), "")
    if _NO_CREDENTIALS.search(text):
        return Failure("denied", "this process has no credentials")
    if "RangeNotSupported" in text:
        return Failure("whole", "this server gives whole files and no ranges of them")
    if code in _CONFLICTS:
        return Failure("busy", f"status {status}, {code}")
    if text == "name in conflict":  # our own word: a create was refused, and nothing is there
        return Failure("busy", "the name is neither free nor taken")
    kind = _TYPES.get(name) or _CODES.get(code) or _kind_of(status)
    known = [f"status {status}"] * (status > 0) + [code] * (code != "")
    if known:
        return Failure(kind or "refused", ", ".join(known))
    if kind:
        return Failure(kind, _WORDS.get(kind, "this kind of request is not supported there"))
    return _connection(_said(error))


def _kind_of(status: int) -> str:
    if status in _AGAIN or status >= 500:
        return "again"
    return "denied" if status in (401, 403) else ""


_WORDS = {
    "missing": "there is no such object",
    "denied": "access was denied",
    "taken": "the name is taken",
    "changed": "the object is another one than before",
}

# what libraries say of connections that fail, in their own words; the first that is found counts
_CONNECTIONS = (
    (
        "InvalidCertificate|CertVerification|CERTIFICATE_VERIFY_FAILED|CertificateError",
        Failure("untrusted", "the certificate of the server is not trusted here"),
    ),
    (
        "InvalidContentType|WRONG_VERSION_NUMBER",
        Failure("refused", "the server does not speak TLS at that port"),
    ),
    (
        "Temporary failure in name",
        Failure("again", "the name of the host could not be looked up"),
    ),
    (
        "dns error|gaierror|Name or service not known|nodename nor servname|No address associated",
        Failure("unknown", "the name of the host is unknown"),
    ),
    (
        "[Cc]onnection ?[Rr]efused",
        Failure("again", "the connection was refused (nobody listens there)"),
    ),
    ("Too many open files", Failure("again", "this process has too many open files (`ulimit -n`)")),
    ("[Tt]imed ?[Oo]ut|[Tt]imeout|[Dd]eadline", Failure("again", "no answer in time")),
    (
        "error (send|decod)ing|body error|[Cc]onnect|[Rr]eset|[Ee]of|Interrupted|UnexpectedR|short",
        Failure("again", "no whole answer"),
    ),
)


def _connection(said: str) -> Failure:
    """What is known of a connection by the words of a library.

    >>> _connection("retry_timeout, ConnectionRefused").words
    'the connection was refused (nobody listens there)'
    """
    other = Failure("refused", "this kind of request is not supported there")
    return next((failure for words, failure in _CONNECTIONS if re.search(words, said)), other)


# in every message of obstore, whatever happened: a setting of its own, and the URL
_ALWAYS = re.compile(r"retry_timeout: \S+|\w+://\S+")


def _said(error: BaseException | None) -> str:
    """The classes and texts of an error and of what it was raised from, without names of objects.

    >>> _said(OSError("HEAD s3://bucket/timeout: { retry_timeout: 180s, kind: Connect }"))
    'OSError Exception BaseException object HEAD  {  kind: Connect }'
    """
    said = []
    for _ in range(10):  # a chain is short, and may be a circle
        if error is None:
            break
        said += [one.__name__ for one in type(error).__mro__] + [_ALWAYS.sub("", str(error))]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " ".join(said)


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
