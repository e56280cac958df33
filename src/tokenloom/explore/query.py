"""What a page is asked for: the values of a query, read with bounds.

One idea: a query is text that somebody typed, or that a link of ours carries. Every value is read
by what it must be (a whole number, one of some words, a short text), a missing or empty one has a
default, and anything else is refused with its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode

from tokenloom.errors import ConfigError, choices

__all__ = ["Query", "link", "read_query"]

MOST_FIELDS = 64

LETTERS = 4096  # of a text

LARGEST = 1 << 62

_WHOLE = re.compile(r"[0-9]{1,19}")

_BETWEEN = re.compile(r"[\s,_'’]")  # people group digits


class Query:
    """The values of a query.

    >>> query = read_query("step=1,200&by=loss&text=")
    >>> query.whole("step", 0), query.word("by", ("source", "loss")), query.text("text")
    (1200, 'loss', '')
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)

    def has(self, name: str) -> bool:
        """Whether there is such a value, and it is not empty."""
        return bool(self.values.get(name, "").strip())

    def whole(self, name: str, default: int, most: int = LARGEST) -> int:
        """A whole number from 0 to `most`; digits may be grouped."""
        if not self.has(name):
            return default
        found = _BETWEEN.sub("", self.values[name])
        if not _WHOLE.fullmatch(found) or int(found) > most:
            raise ConfigError(
                f"{name}: found {self.values[name]!r:.60}, allowed: a whole number from 0 to "
                f"{most:,}."
            )
        return int(found)

    def word(self, name: str, allowed: Sequence[str]) -> str:
        """One of some words; the first is the default."""
        if not self.has(name):
            return allowed[0]
        found = self.values[name]
        if found not in allowed:
            raise ConfigError(
                f"{name}: found {found!r:.60}, allowed: {choices(found[:60], allowed)}"
            )
        return found

    def text(self, name: str) -> str:
        """A text, as it was typed."""
        found = self.values.get(name, "")
        if len(found) > LETTERS:
            raise ConfigError(f"{name}: found {len(found):,} letters, allowed: up to {LETTERS:,}.")
        return found


def read_query(text: str) -> Query:
    """The values of the part of a URL after its question mark.

    Raises:
        ConfigError: it is not text, or has too many values.
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except (ValueError, UnicodeDecodeError):
        raise ConfigError(
            f"query: found {text!r:.60}, allowed: up to {MOST_FIELDS} values in UTF-8, NAME=VALUE."
        ) from None
    return Query(dict(pairs))


def link(page: str, **values: object) -> str:
    """A relative link to a page; None and empty values are left out.

    >>> link("row", index=5, by=None, text="a&b")
    'row?index=5&text=a%26b'
    """
    given = {name: str(one) for name, one in values.items() if one is not None and one != ""}
    return f"{page}?{urlencode(given)}" if given else page
