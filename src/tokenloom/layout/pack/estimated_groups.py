"""Groups of very many documents, about: some are planned, the others are taken to be alike.

One idea: a page about a run of 10^9 packed rows must not wait for its plan, which takes minutes.
Where groups start follows from lengths alone and is exact. How many rows each has is estimated from
some that are planned: rows grow with tokens or with documents, whichever fits them better. Such
groups are for looking only: `sampled_plans` says where they may be made, nothing of them is kept,
and whoever shows numbers that follow from them says so (`Groups.sampled`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from tokenloom.documents.line import Line
from tokenloom.layout.pack.cut import Tally
from tokenloom.layout.pack.groups import Bounded, Groups
from tokenloom.layout.pack.plan import PackedRows

__all__ = ["estimated_groups", "may_sample", "sampled_plans", "spread"]

Int64 = NDArray[np.int64]

SAMPLED = 32  # groups that are planned

FORGOTTEN = 256  # groups whose edges are held at a time: those of 10^8 documents are 800 MB

MANY_ROWS = 1 << 24  # of a run; fewer are planned in some seconds

_sampling: ContextVar[bool] = ContextVar("plans may be estimated", default=False)


@contextlib.contextmanager
def sampled_plans() -> Iterator[None]:
    """Let runs that are opened in this block estimate plans which nobody has kept.

    They are for looking at: what they train is not to the row what the run trains.
    """
    before = _sampling.set(True)
    try:
        yield
    finally:
        _sampling.reset(before)


def may_sample(rows: int) -> bool:
    """Whether that many rows, about, are to be estimated here."""
    return _sampling.get() and rows > MANY_ROWS


def spread(places: Int64, total: int, rows: int) -> Int64:
    """What the rows before each place have, of a total that `rows` rows share evenly [N].

    >>> spread(np.arange(6), 7, 3).tolist()
    [0, 2, 4, 7, 9, 11]
    """
    each, rest = divmod(total, rows)
    epoch, inside = np.divmod(places, rows)  # nothing is larger than the answer, or rows squared
    found: Int64 = epoch * total + inside * each + inside * rest // rows
    return found


def estimated_groups(
    line: Bounded,
    group_docs: int,
    documents_in: Callable[[Int64], int],
    planned: Callable[[int, int], PackedRows],
) -> Groups:
    """The groups of a line, with about as many rows as they have.

    Args:
        line: the documents.
        group_docs: documents of a group, at most.
        documents_in: the edges of documents → how many of them the group that starts there has.
        planned: number and first document of a group → its rows.
    """
    document, address = [0], [0]
    while document[-1] < line.documents:
        first = document[-1]
        if len(document) % FORGOTTEN == 0 and isinstance(line, Line):
            line.reader.cache.clear()
        _, bounds = line.bounds(first, min(first + group_docs, line.documents))
        count = documents_in(bounds)
        document.append(first + count)
        address.append(int(bounds[count]))
    documents, tokens = np.diff(document), np.diff(address)
    looked = np.unique(np.linspace(0, len(documents) - 1, SAMPLED).astype(np.int64))
    tally, rows = Tally(), np.zeros(len(looked), np.int64)
    for place, number in enumerate(looked.tolist()):
        found = planned(number, document[number])
        rows[place] = len(found)
        tally += found.tally
    size = min((tokens, documents), key=lambda one: _misfit(rows, one[looked]))
    share = rows.sum() / max(1, int(size[looked].sum()))
    about = np.rint(size * share).astype(np.int64)
    about[looked] = rows
    scale = int(size.sum()) / max(1, int(size[looked].sum()))
    counts = {name: round(scale * one) for name, one in asdict(tally).items()}
    counts |= {"documents": line.documents, "tokens": line.tokens, "rows": int(about.sum())}
    return Groups(
        np.array(document, np.int64),
        np.array(address, np.int64),
        about,
        Tally(**counts),
        sampled=len(looked),
    )


def _misfit(rows: Int64, size: Int64) -> float:
    """How far the rows of some groups are from growing with their size."""
    share = rows.sum() / max(1, int(size.sum()))
    return float(np.abs(rows - share * size).sum())
