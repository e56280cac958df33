"""How much may be gone through to answer a question; what takes more is refused before it starts.

One idea: most questions about a run are a few divisions. Some need sums or plans of a whole epoch,
which takes minutes for 10^9 rows: once, because they are kept. A page that must be there in seconds
says how many rows may be visited (`at_most`). Whoever is about to visit some says how many
(`about_to_visit`), and is stopped if that is too much. What was refused names the rows and what
they are needed for, so it can be shown, greyed, with its price (`missing_for`).

Without an allowance nothing is refused: loaders and commands take the time that they need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from tokenloom.errors import NotKept

__all__ = [
    "MOST_ROWS",
    "PLANNED",
    "READ",
    "about_to_visit",
    "at_most",
    "is_limited",
    "missing_for",
    "rows_left",
]

MOST_ROWS = 1 << 24  # half a second of sums, or two seconds of packing

PLANNED = 4  # planning a row takes as long as adding up four

READ = 2  # rows of a kept plan are read and compared in the time of adding up one

_left: ContextVar[list[int] | None] = ContextVar("rows that may be visited", default=None)


@contextlib.contextmanager
def at_most(rows: int = MOST_ROWS) -> Iterator[None]:
    """Let questions in this block visit that many rows together, and no more.

    >>> with at_most(100):
    ...     about_to_visit(60, "the costs of epoch 0")
    ...     about_to_visit(60, "the costs of epoch 1")
    Traceback (most recent call last):
        ...
    tokenloom.errors.NotKept: the costs of epoch 1: 60 rows have to be visited, allowed here: 40...
    """
    outer = _left.get()
    before = _left.set([rows if outer is None else min(rows, outer[0])])
    try:
        yield
    finally:
        _left.reset(before)


def is_limited() -> bool:
    """Whether somebody waits for the answer."""
    return _left.get() is not None


def rows_left(most: int) -> int:
    """How many rows may still be visited, at most `most`."""
    left = _left.get()
    return most if left is None else min(most, left[0])


def about_to_visit(rows: int, what: str) -> None:
    """Refuse work that is too much here; `what` are the sums or plans that it makes.

    Raises:
        NotKept: more rows than are left of the allowance.
    """
    left = _left.get()
    if left is None:
        return
    if rows > left[0]:
        raise NotKept(
            f"{what}: {rows:,} rows have to be visited, allowed here: {left[0]:,}. Ask once "
            "without a limit, such as Dataset.consumed(examples): the result is kept.",
            rows=rows,
            what=what,
        )
    left[0] -= rows


def missing_for(ask: Callable[[], object], rows: int = MOST_ROWS) -> NotKept | None:
    """What is missing to answer a question, if it takes more than that many rows; else None.

    The question is asked to find out: an answer that is cheap is made, and what it needed stays.

    >>> missing_for(lambda: about_to_visit(10, "sums")) is None
    True
    >>> missing_for(lambda: about_to_visit(10**9, "sums")).rows
    1000000000
    """
    try:
        with at_most(rows):
            ask()
    except NotKept as missing:
        return missing
    return None
