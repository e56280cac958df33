"""Given spans, answers how many predictions count in each frame, without reading tokens.

One idea: which cells of a span are targets follows from boundaries, and they are one stretch of the
span: all of its cells but the first, those that an earlier span already trained, and what lies
outside of the frame. If the store says which tokens are trained on, the stretch is counted in its
loss column (`tokenloom.store.loss_counts`), and inserted tokens are added::

    cells of a span   B t t t t E          targets  [2, 6)        = 4 without a loss column
    seen              1 1                  stored   tokens [1, 4) = those with a weight, plus E
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tokenloom.arrays import Int64
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import unbind
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError
from tokenloom.layout.spans import BOS, EOS, JOINED, Spans
from tokenloom.order.working_set import loss_columns
from tokenloom.store.loss_counts import trained_tokens


class Targets(NamedTuple):
    """The cells of each span whose prediction may count.

    Attributes:
        low: the first of them, counted from the start of the span [spans].
        high: the cell after the last, at least `low` [spans].
    """

    low: Int64
    high: Int64


def _targets(spans: Spans, width: int, render: RenderSpec) -> Targets:
    """The targets of each span among the first `width` cells of its frame."""
    cells = spans.cells
    high = np.clip(width - spans.at, 0, cells)
    joined = (spans.flags & JOINED) != 0
    if render.mask_boundary_loss:
        headed = joined  # its first cell is predicted from the same document
    else:  # or from the document before it, if that ends right there
        after = np.zeros(len(cells), np.bool_)
        row, end = spans.row, spans.at + cells
        after[1:] = (row[1:] == row[:-1]) & (spans.at[1:] == end[:-1])
        headed = joined | after
    low = np.maximum(spans.seen, np.where(headed, 0, 1))
    if not render.train_on_eos and render.eos_mask == "inserted":
        high = high - (((spans.flags & EOS) != 0) & (high == cells))
    return Targets(low, np.maximum(low, high))


def trained_in(spans: Spans, width: int, render: RenderSpec, line: Line | None = None) -> Int64:
    """The number of predictions that count in each frame [frames].

    Args:
        spans: the frames.
        width: cells that are targets: `seq_len`, and the look-ahead cell if labels are shifted.
        render: how they become arrays; its masks must not depend on token values.
        line: what the spans were cut from; its store's loss columns count. None: there are none.
    """
    low, high = _targets(spans, width, render)
    columns = [] if line is None else loss_columns(line.reader)
    if line is None or not columns:
        return _sums(spans, high - low)
    begins = (spans.flags & BOS).astype(np.int64)
    first, last = (np.clip(edge - begins, 0, spans.length) for edge in (low, high))
    found = (high - low) - (last - first)  # BOS and EOS, which are trained on like any token
    some = np.flatnonzero(last > first)
    start, stop = line.to_store((spans.address + first)[some], (spans.address + last)[some])
    found[some] += trained_tokens(line.reader, columns, start, stop)
    return _sums(spans, found)


def _sums(spans: Spans, count: Int64) -> Int64:
    """Counts of spans, added up for each frame [frames]."""
    total = np.concatenate([[0], np.cumsum(count)])
    return np.diff(total[spans.frame])


@dataclass(frozen=True, slots=True)
class TrainedCount:
    """Counts the trained predictions of each frame, rendered by `render`."""

    render: RenderSpec

    @property
    def identity(self) -> dict[str, Any]:
        """See `tokenloom.order.prices.SpanCount`."""
        return unbind(self.render)

    def __call__(self, spans: Spans, seq_len: int, line: Line) -> Int64:
        """See `tokenloom.order.prices.SpanCount`."""
        width = spans.width if self.render.label_layout == "shifted" else seq_len
        return trained_in(spans, width, self.render, line)


def trained_count(
    name: str,
    render: RenderSpec,
    asked: str = "cost: found 'loss_tokens', but",
    remedy: str = "Use cost='tokens'.",
) -> TrainedCount:
    """A counter of the trained predictions of a source.

    Args:
        name: the source.
        render: how its rows become arrays.
        asked: how a refusal begins: who wants to know.
        remedy: how it ends: what to do instead.

    Raises:
        ConfigError: the count depends on token values.
    """
    by_value = render.ignore_id is not None or render.segments == "eos"
    by_value |= not render.train_on_eos and render.eos_mask == "all"
    if by_value:
        raise ConfigError(
            f"{asked} which tokens of source {name!r} are trained depends on the values of tokens, "
            f"which would have to be read. {remedy}"
        )
    return TrainedCount(render)
