"""What a page may take, and what it says where that is not enough.

One idea: a mix by tokens finds a step with sums over all rows of an epoch, and a packed row needs
the plan of its group. These are made once and kept; until then, a page that needs them says so,
with the command that makes them, instead of letting its reader wait for minutes
(`tokenloom.layout.allowance`). What fits into the blink of an eye is made while the page is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tokenloom.errors import NotKept
from tokenloom.layout.allowance import MOST_ROWS, at_most
from tokenloom.order.costs import ROW_SECONDS
from tokenloom.page.numbers import amount, seconds

__all__ = ["missing_words", "quickly"]

QUICK_ROWS = 1 << 22  # about 0.1 s of sums

ONCE = ("diff",)  # pages that are made once, while their reader waits


def quickly(page: str) -> AbstractContextManager[None]:
    """Let a page visit as many rows as nobody notices; some, as many as take a second."""
    return at_most(MOST_ROWS if page in ONCE else QUICK_ROWS)


def missing_words(missing: NotKept) -> str:
    """What is missing, in a sentence.

    >>> missing_words(NotKept("…", rows=10**9, what="the costs of epoch 0"))[:72]
    'This needs the costs of epoch 0 (1 billion rows), which are not kept yet'
    """
    took = seconds(missing.rows * ROW_SECONDS)
    return (
        f"This needs {missing.what} ({amount(missing.rows, 'row')}), which are not kept yet. They "
        f"are worked out once, in about {took}."
    )
