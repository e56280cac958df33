"""Two settings that differ: the smallest parts in which they do.

One idea: a setting may be a list of edits or a mapping of a thousand weights, of which one number
differs. Mappings are compared key by key and lists element by element, down to values that are
shown whole; of long texts, what is around the first letter that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["Differing", "around_first", "parts_that_differ"]

MISSING = "(none)"

MOST_LETTERS = 120  # of a value

LEAD = 30  # letters before the first that differs


class Differing(NamedTuple):
    """A part in which two values differ: its path below them, and both values as text."""

    path: str
    a: str
    b: str


def parts_that_differ(a: object, b: object, path: str = "") -> Iterator[Differing]:
    """The parts in which two values differ, in order.

    >>> old = [{"at": 5, "weights": {"a": 1, "b": 2}}]
    >>> new = [{"at": 5, "weights": {"a": 1, "b": 3}}, {"at": 9}]
    >>> [tuple(one) for one in parts_that_differ(old, new)]
    [('[0].weights.b', '2', '3'), ('[1]', '(none)', "{'at': 9}")]
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys([*a, *b]):
            below = f"{path}.{key}"
            yield from parts_that_differ(a.get(key, MISSING), b.get(key, MISSING), below)
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        for place in range(max(len(a), len(b))):
            one, two = (line[place] if place < len(line) else MISSING for line in (a, b))
            yield from parts_that_differ(one, two, f"{path}[{place}]")
    elif a != b:
        yield Differing(path, *around_first(str(a), str(b)))


def around_first(a: str, b: str) -> tuple[str, str]:
    """Two texts, cut to what is around the first letter in which they differ.

    >>> [one[:12] for one in around_first("x" * 500 + "a", "x" * 500 + "b")]
    ['…xxxxxxxxxxx', '…xxxxxxxxxxx']
    >>> around_first("x" * 500 + "a", "x" * 500 + "b")[1][-3:], around_first("a", "b")
    ('xxb', ('a', 'b'))
    """
    if max(len(a), len(b)) <= MOST_LETTERS:
        return a, b
    pairs = enumerate(zip(a, b, strict=False))
    first = next((at for at, (x, y) in pairs if x != y), min(len(a), len(b)))
    low = max(0, first - LEAD)
    return _cut(a, low), _cut(b, low)


def _cut(text: str, low: int) -> str:
    high = low + MOST_LETTERS
    return "…" * (low > 0) + text[low:high] + "…" * (high < len(text))
