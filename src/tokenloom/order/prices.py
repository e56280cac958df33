"""What the rows of a run cost: stored tokens, or tokens that are trained on.

One idea: layouts know how many tokens each row has without reading any. So the cost of the first
examples follows from the order and from sums (`tokenloom.order.costs`), at any index of any run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.documents.line import Line
from tokenloom.layout.layout import Epochs, Phases
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.spans import Spans
from tokenloom.layout.splice.rows import Spliced
from tokenloom.limits import limits
from tokenloom.order.block_order import BlockOrder
from tokenloom.store.handles import lazy
from tokenloom.store.plan_cache import remembered_array

if TYPE_CHECKING:
    from tokenloom.order.run import SourceRun


class SpanCount(Protocol):
    """Counts something in each frame from its spans, without reading tokens."""

    @property
    def identity(self) -> dict[str, Any]:
        """Names what is counted: equal for equal counts."""

    def __call__(self, spans: Spans, seq_len: int, line: Line) -> Int64:
        """The count of each frame [frames]; the spans were cut from `line`."""


class RunPrices:
    """The prices of the rows of a run, in the order in which they come.

    Args:
        run: the rows.
        least: the minimum cost of a row; at least 1 for a mix, so that time always advances.
        count: what to count in each row; None counts its stored tokens.
    """

    def __init__(self, run: SourceRun, least: int, count: SpanCount | None = None) -> None:
        self.phases: Phases = run.phases
        self._run, self._least, self._counter = run, least, count
        self.most = run.layout.width

    def prices(self, first: int, last: int) -> Int64:
        """The prices of items [first, last), in order."""
        return np.maximum(self._of(*self._run.rows_from(first, last)), self._least)

    def whole(self, first: int, last: int) -> int | None:
        """The price of the epochs [first, last) of one phase; None if items must be visited."""
        layout = self._run.layout
        if self._counter is None and isinstance(layout, Spliced):
            rows = self.phases.start(last) - self.phases.start(last - 1)
            if rows < self.phases.rows[self.phases.of(last - 1)]:
                return None  # the next phase begins inside the last of these epochs
            return layout.tokens_between(first, last, self._least)
        if not layout.is_constant or len(self.phases) > 1 or last > first + 1:
            return None
        return self._stored

    def by_rows(self, epoch: int, stride: int, reach: Callable[[int], None]) -> Int64 | None:
        """The price of every `stride` items of an epoch, added up in the order of rows.

        Rows that lie together are read together, which an order spreads over all memory. None if
        that is not possible, or no faster: an order of blocks keeps rows together anyway.

        Args:
            epoch: the epoch.
            stride: items that are added up.
            reach: called with the number of items that were added.
        """
        chunk = limits().cost_chunk_items
        layout, order, phases = self._run.layout, self._run.order(epoch), self.phases
        rows = phases.start(epoch + 1) - phases.start(epoch)
        is_whole = len(phases) == 1 and int(layout.phases.rows[0]) == rows
        if self._counter is not None or not isinstance(layout, Packed) or not is_whole:
            return None
        if isinstance(order, BlockOrder):
            return None
        sums = np.zeros(-(-rows // stride), np.int64)
        for low in range(0, rows, chunk):
            here = np.arange(low, min(low + chunk, rows))
            price = np.maximum(layout.costs(epoch, here), self._least)
            np.add.at(sums, order.inverse(here) // stride, price)
            reach(low + len(here))
        return sums

    @lazy
    def _stored(self) -> int:
        """The price of all rows of a constant layout: they cost the same in every order."""
        chunk = limits().cost_chunk_items
        layout, rows = self._run.layout, int(self.phases.rows[0])
        if self._counter is None and isinstance(layout, Packed) and self._least in (0, 1):
            return layout.total(self._least)
        parts = (
            np.maximum(self._of(0, np.arange(low, min(low + chunk, rows))), self._least)
            for low in range(0, rows, chunk)
        )
        return sum(int(part.sum()) for part in parts)

    def _of(self, epoch: Epochs, rows: Int64) -> Int64:
        layout = self._run.layout
        if self._counter is None:
            return layout.costs(epoch, rows)
        if not layout.is_constant:
            return self._count(epoch, rows)
        return self._table[rows].astype(np.int64)

    def _count(self, epoch: Epochs, rows: Int64) -> Int64:
        """The count of each row, from its spans."""
        layout = self._run.layout
        assert self._counter is not None
        return self._counter(layout.spans(epoch, rows), layout.seq_len, layout.line)

    @lazy
    def _table(self) -> NDArray[Any]:
        """The count of every row, for a layout whose rows do not change between epochs [rows]."""
        layout = self._run.layout
        count, kind = int(layout.phases.rows[0]), np.dtype(np.min_scalar_type(layout.width))

        def make() -> NDArray[Any]:
            chunk = limits().cost_chunk_items
            made = np.empty(count, kind)
            for low in range(0, count, chunk):
                here = np.arange(low, min(low + chunk, count))
                made[low : low + chunk] = self._count(0, here)
            return made

        if count < limits().min_cached_trained_rows:
            return make()
        assert self._counter is not None
        render = self._counter.identity
        named = {"line": layout.line.identity, "layout": layout.tag, "render": render}
        return remembered_array("trained", named, (kind, count), make)

    @property
    def identity(self) -> dict[str, Any]:
        """Names the items and their prices."""
        render = None if self._counter is None else self._counter.identity
        return {**self._run.identity, "least": self._least, "render": render}

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs of that epoch's phase have the same total cost.

        Epochs with equally many tokens may train other numbers of them.
        """
        layout = self._run.layout
        if isinstance(layout, Spliced):
            return self._counter is None and layout.is_steady(epoch)
        return True
