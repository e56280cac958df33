"""How often rows and documents come, and how many steps apart: orders evaluated backwards.

One idea: where a row comes in an epoch is one evaluation of that epoch's order, so documents are
followed through a run of any length without visiting it. A source with few rows is followed whole.
Of a larger one, some storage-local blocks are taken, chosen by a keyed hash; a document is followed
if all its rows are in them, which leaves out those at the edges of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.inspect.simulate.result import SourceRepeats
from tokenloom.layout.spans import Spans
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.schedule import Steps
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations

SHOWINGS = 8192  # rows that are followed, over all epochs and sources

SOURCES = 64  # of a mix, whose documents are followed: finding a row is a search over all sources

EPOCHS = 64  # epochs that are followed


class _Followed(NamedTuple):
    """Rows that are followed, and whether these are all."""

    rows: Int64
    whole: bool


def repeats_of(
    run: Run, items: Sequence[tuple[int, int]], steps: Steps
) -> tuple[SourceRepeats, ...]:
    """How often the rows and documents of each source come, whose items [first, last) are shown."""
    most = SHOWINGS // min(SOURCES, len(items))
    by_shown = sorted(range(len(items)), key=lambda one: items[one][0] - items[one][1])
    followed = set(by_shown[:SOURCES])
    return tuple(
        _of_source(run, number, shown, steps, most if number in followed else 0)
        for number, shown in enumerate(items)
    )


def _of_source(
    run: Run,
    number: int,
    items: tuple[int, int],
    steps: Steps,
    most: int,
) -> SourceRepeats:
    source, (low, high) = run.sources[number], items
    shown, rows = high - low, source.rows
    least, times = (shown // rows, -(-shown // rows)) if rows else (0, 0)
    if low and rows and low % rows:  # parts of two epochs: some rows may come in both, or neither
        least = max(0, least - 1)
    nothing = SourceRepeats(
        name=source.name,
        rows=rows,
        least=least,
        most=times,
        documents=0,
        is_sample=False,
        epochs=0,
        shown=0.0,
        gaps=None,
    )
    if not shown:
        return nothing
    if not most:
        why = f"Documents were not followed: only those of the {SOURCES} sources shown most are."
        return replace(nothing, is_sample=True, note=why)
    epochs = _epochs(source, low, high)
    few = epochs[:EPOCHS]
    followed = _followed(source, max(1, most // len(few)))
    if followed is None:
        why = "Documents were not followed: its rows change from epoch to epoch, and are many."
        return replace(nothing, is_sample=True, note=why)
    documents, examples = _showings(run, number, followed, few, items)
    count = len(np.unique(documents))
    return replace(
        nothing,
        documents=count,
        is_sample=not followed.whole,
        epochs=len(few),
        shown=len(documents) / max(1, count),
        gaps=_gaps(documents, steps.steps_of(examples)),
        note=f"Followed for {len(few)} of {len(epochs)} epochs." * (len(few) < len(epochs)),
    )


def _epochs(source: SourceRun, low: int, high: int) -> range:
    """The epochs of items [low, high)."""
    return range(source.phases.place(low)[0], source.phases.place(high - 1)[0] + 1)


def _followed(source: SourceRun, most: int) -> _Followed | None:
    """Rows of whole blocks; None if blocks differ between epochs and not all rows can be taken."""
    rows = max(source.phases.rows.tolist())
    if rows <= most:
        return _Followed(np.arange(rows), whole=True)
    if len(source.phases) > 1:
        return None
    blocks = source.layout.blocks()
    order = permutations(len(blocks), [key(0, source.name, "followed")], "feistel")
    wanted = np.arange(min(len(blocks), 64)).astype(np.uint64)
    taken: list[Int64] = []
    for block in order.forward(wanted).view(np.int64).tolist():
        start, stop = (int(one[0]) for one in blocks.edges(np.array([block])))
        left = most - sum(map(len, taken))
        if stop - start > left and taken:
            break
        taken.append(np.arange(start, min(stop, start + max(left, 1))))
    return _Followed(np.concatenate(taken), whole=False)


def _showings(
    run: Run,
    number: int,
    followed: _Followed,
    epochs: range,
    items: tuple[int, int],
) -> tuple[Int64, Int64]:
    """(document, example) of every row of every followed document, each pair once."""
    source = run.sources[number]
    documents, examples = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for epoch in epochs:
        rows = followed.rows[followed.rows < source.epochs.rows_in(epoch)]
        item = source.items(epoch, rows)
        spans = source.layout.spans(np.full(len(rows), epoch), rows)
        whole = _whole(spans, rows, followed.whole)
        here = (item >= items[0]) & (item < items[1])
        index = np.full(len(rows), -1, np.int64)
        index[here] = run.index(number, item[here])
        keep = whole & (index[spans.row] >= 0)
        documents.append(spans.document[keep])
        examples.append(index[spans.row[keep]])
    pairs = np.stack([np.concatenate(documents), np.concatenate(examples)])
    unique = np.unique(pairs, axis=1)
    return unique[0], unique[1]


def _whole(spans: Spans, rows: Int64, is_all: bool) -> NDArray[np.bool_]:
    """Whether the document of each span has no row but these: not at the edge of a stretch."""
    if is_all or not len(spans.document):
        return np.ones(len(spans.document), bool)
    stretch = np.concatenate([[0], np.cumsum(np.diff(rows) != 1)])[spans.row]
    edges = set()
    for number in np.unique(stretch).tolist():
        here = np.flatnonzero(stretch == number)
        address = spans.address[here]
        edges |= {
            int(spans.document[here[place]]) for place in (address.argmin(), address.argmax())
        }
    return ~np.isin(spans.document, list(edges))


def _gaps(documents: Int64, steps: Int64) -> tuple[float, float, float, float] | None:
    """Least, median, mean and most steps between showings of one document."""
    order = np.lexsort((steps, documents))
    same = documents[order][1:] == documents[order][:-1]
    gaps = np.diff(steps[order])[same]
    if not len(gaps):
        return None
    return float(gaps.min()), float(np.median(gaps)), float(gaps.mean()), float(gaps.max())
