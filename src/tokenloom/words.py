"""Small pieces of readable messages."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenloom.errors import ConfigError

__all__ = ["binary_size", "check_options", "near_miss", "plural", "sentence", "warn"]

_PACKAGE = str(Path(__file__).parent)


def near_miss(word: str, allowed: Sequence[str]) -> str:
    """A sentence that suggests the closest allowed word, or nothing.

    >>> near_miss("wkii", ["wiki", "code"])
    " Did you mean 'wiki'?"
    """
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.6)
    if not close:
        close = [name for name in allowed if len(word) > 1 and word.startswith(name)][:1]
    return f" Did you mean {close[0]!r}?" if close else ""


def check_options(where: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse an option that does not exist, with the near miss.

    >>> check_options("windows", ["tial"], ["tail"])
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: windows: no option 'tial'. Options: tail. Did you mean 'tail'?
    """
    for name in given:
        if name not in allowed:
            raise ConfigError(
                f"{where}: no option {name!r}. Options: {', '.join(allowed)}."
                f"{near_miss(name, allowed)}"
            )


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "shard"), plural(1200, "shard")
    ('1 shard', '1,200 shards')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """Text that ends like a sentence, so that another one can follow.

    >>> sentence("no key 'a'"), sentence("Did you mean 'b'?")
    ("no key 'a'.", "Did you mean 'b'?")
    """
    return text if text.endswith((".", "?", "!")) else text + "."


def binary_size(count: int) -> str:
    """Bytes for people.

    >>> binary_size(1536)
    '1.5 KiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def warn(message: str) -> None:
    """Warn at the line of the caller's own code that led here, however deep it went."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
