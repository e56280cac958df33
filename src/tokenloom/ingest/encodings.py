"""How the text of files is read: encodings, and how long a record may be.

One idea: nothing is guessed. Text is UTF-8 unless other encodings are named, and what did not fit
the first of them is counted and reported.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenloom.arguments import integer, one_of
from tokenloom.errors import ConfigError

__all__ = ["MAX_RECORD_BYTES", "Reading", "decoder"]

MAX_RECORD_BYTES = 128 << 20  # encoding takes about nine times that


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How inputs are read.

    Attributes:
        encodings: tried in order for the text of files; the first is reported if none fits.
        errors: what becomes of bytes that fit none: "strict", "replace" or "ignore".
        max_record_bytes: longer records are refused, and not read whole.
    """

    encodings: tuple[str, ...] = ("utf-8",)
    errors: str = "strict"
    max_record_bytes: int = MAX_RECORD_BYTES

    @classmethod
    def of(cls, encoding: str | Sequence[str], errors: str, max_record_bytes: int) -> Reading:
        """From the arguments of a build.

        >>> Reading.of("UTF8", "replace", 1000).encodings
        ('utf-8',)
        """
        names = (encoding,) if isinstance(encoding, str) else tuple(encoding)
        known = []
        for name in names:
            try:
                found = codecs.lookup(name)
                "a".encode(name)  # some codecs are not of text
            except (LookupError, TypeError, ValueError):
                raise ConfigError(
                    f"encoding: found {name!r}, allowed: names that Python knows, such as 'utf-8', "
                    "'utf-16' or 'cp1252'; several are tried in order."
                ) from None
            known.append(found.name)
        if not known:
            raise ConfigError("encoding: found none, allowed: one name, or several.")
        one_of("errors", errors, ("strict", "replace", "ignore"))
        limit = integer("max_record_bytes", max_record_bytes, 1, 1 << 30)
        return cls(encodings=tuple(known), errors=errors, max_record_bytes=limit)


def decoder(
    encodings: Sequence[str], errors: str, note: Callable[[str], None]
) -> Callable[[bytes], str]:
    r"""Bytes to text, in the first encoding that fits; what was not in the first one is noted.

    >>> decoder(["utf-8", "cp1252"], "strict", print)(b"caf\xe9")
    not valid utf-8, read as cp1252
    'café'
    """
    first, *others = encodings
    if not others and errors == "strict":
        return bytes.decode if first == "utf-8" else lambda data: data.decode(first)

    def decode(data: bytes) -> str:
        try:
            return data.decode(first)
        except UnicodeDecodeError:
            for name in others:
                with contextlib.suppress(UnicodeDecodeError):
                    text = data.decode(name)
                    note(f"not valid {first}, read as {name}")
                    return text
            text = data.decode(first, errors)
        done = {"replace": "replaced", "ignore": "left out"}[errors]
        note(f"not valid {first}, bytes {done}")
        return text

    return decode
