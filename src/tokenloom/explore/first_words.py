"""The first words of rows: what a reader sees of a row before opening it.

One idea: a strip tells how a row is divided, not what it is about. A few tokens from the start of
the first document of each row are read, all rows of a source in one request, whatever their length.
A row that starts inside a document starts with the words that are there.
"""

from __future__ import annotations

import numpy as np

from tokenloom.errors import StoreError
from tokenloom.explore.scan import read_pieces
from tokenloom.explore.session import ExploredRun
from tokenloom.layout.spans import Spans

__all__ = ["MOST_LETTERS", "TOKENS_OF_A_ROW", "first_words"]

TOKENS_OF_A_ROW = 64

MOST_LETTERS = 200

UNREAD = "(its tokens cannot be read)"


def first_words(explored: ExploredRun, spans: Spans) -> list[str]:
    """The first words of each row, on one line; empty for a row of filler alone [rows].

    Args:
        explored: the run.
        spans: what the rows hold.
    """
    found = [""] * len(spans)
    rows: dict[str, list[int]] = {}
    for row in np.flatnonzero(np.diff(spans.frame)).tolist():
        rows.setdefault(spans.sources[int(spans.source[row])], []).append(row)
    for name, some in rows.items():
        at = spans.frame[np.array(some)]
        reader = explored.stores[name].reader
        first = reader.bounds(spans.document[at])[0] + spans.start[at]
        last = first + np.minimum(spans.length[at], TOKENS_OF_A_ROW)
        pieces = list(zip(some, first.tolist(), last.tolist(), strict=True))
        try:
            for row, ids in read_pieces(reader, pieces):
                text = explored.text(name, ids)
                found[row] = one_line(" ".join(map(str, ids.tolist())) if text is None else text)
        except StoreError:  # strips need no token, and the page of a row says what is wrong
            for row in some:
                found[row] = UNREAD
    return found


def one_line(text: str) -> str:
    r"""A text without line ends and halves of letters at its edges, bounded.

    >>> one_line("\ufffd two\n  words \ufffd"), len(one_line("a" * 999))
    ('two words', 200)
    """
    return " ".join(text.strip("\ufffd").split())[:MOST_LETTERS]
