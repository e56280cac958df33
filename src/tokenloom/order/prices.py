"""What the rows of a run cost: stored tokens, or tokens that are trained.

One idea: layouts know the tokens of their rows without reading any, so what the first examples of a
run have cost is a question of order and sums (`tokenloom.order.costs`), at any place of any run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.layout.layout import Epochs, Layout, Phases
from tokenloom.layout.spans import Spans
from tokenloom.order.costs import Costs, EqualCosts, ShortLastCosts, SummedCosts
from tokenloom.order.orders import Order
from tokenloom.store.plan_cache import remembered_array

__all__ = ["RunPrices", "SpanCount", "TokenCount", "costs_of", "examples_for"]

Int64 = NDArray[np.int64]

TOGETHER = 1 << 16  # rows

MOST = 1 << 62  # examples

WORTH_KEEPING = 1 << 18  # rows; fewer are counted faster than a file is found


class PricedRun(Protocol):
    """What prices ask of a run: rows in their order, before any token is read."""

    layout: Layout
    rows: int

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""

    @property
    def identity(self) -> dict[str, Any]:
        """Names the rows and their order: equal for equal ones."""

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index [N]."""

    def rows_from(self, first: int, last: int) -> tuple[Epochs, Int64]:
        """(epochs, rows) of indices [first, last)."""


class SpanCount(Protocol):
    """Counts something of frames from their spans alone."""

    @property
    def identity(self) -> dict[str, Any]:
        """Names what is counted: equal for equal counts."""

    def __call__(self, spans: Spans, seq_len: int) -> Int64:
        """The count of each frame [frames]."""


class RunPrices:
    """Prices of the rows of a run, in the order in which they come.

    Args:
        run: the rows.
        least: what every row costs at least; 1, so that time never stands still.
        count: what to count of each row; None counts its stored tokens.
    """

    def __init__(self, run: PricedRun, least: int, count: SpanCount | None = None) -> None:
        self._run, self.phases, self._least, self._counter = run, run.phases, least, count
        self.most = run.layout.width

    def prices(self, first: int, last: int) -> Int64:
        """See `Priced`."""
        return np.maximum(self._of(*self._run.rows_from(first, last)), self._least)

    def _of(self, epoch: Epochs, rows: Int64) -> Int64:
        layout = self._run.layout
        if self._counter is None:
            return layout.costs(epoch, rows)
        if not layout.is_constant:
            return self._count(epoch, rows)
        return self._table[rows].astype(np.int64)

    def _count(self, epoch: Epochs, rows: Int64) -> Int64:
        """What is counted of rows, from their spans."""
        layout = self._run.layout
        assert self._counter is not None
        return self._counter(layout.spans(epoch, rows), layout.seq_len)

    @functools.cached_property
    def _table(self) -> NDArray[Any]:
        """What is counted of every row of a layout whose rows stay the same [rows]."""
        layout = self._run.layout
        count = int(layout.phases.rows[0])
        identity = {
            "line": layout.line.identity,
            "layout": layout.tag,
            "render": None if self._counter is None else self._counter.identity,
        }
        kind = np.dtype(np.min_scalar_type(layout.width))

        def can_be(known: NDArray[Any]) -> bool:
            return known.dtype == kind and len(known) == count

        def make() -> NDArray[Any]:
            made = np.empty(count, kind)
            for low in range(0, count, TOGETHER):
                rows = np.arange(low, min(low + TOGETHER, count))
                made[low : low + TOGETHER] = self._count(0, rows)
            return made

        if count < WORTH_KEEPING:
            return make()
        return remembered_array("trained", identity, can_be, make)

    @property
    def identity(self) -> dict[str, Any]:
        """See `Priced`."""
        render = None if self._counter is None else self._counter.identity
        return {**self._run.identity, "least": self._least, "render": render}

    def is_steady(self, epoch: int) -> bool:
        """See `Priced`."""
        return self._run.layout.is_steady(epoch)


def costs_of(
    run: PricedRun, cost: str, n: int | None, count: SpanCount | None = None, least: int = 1
) -> Costs:
    """The costs of a run's items.

    Args:
        run: the items.
        cost: "rows", "tokens" or "loss_tokens".
        n: how many there are; None is for ever.
        count: what is trained, for "loss_tokens".
        least: what every item costs at least.
    """
    if cost == "rows":
        return EqualCosts(1, n)
    if cost == "loss_tokens":
        assert count is not None
        return SummedCosts(RunPrices(run, least, count), n)
    each = run.layout.row_tokens
    if each is None:
        return SummedCosts(RunPrices(run, least), n)
    usual, short = (max(least, size) for size in each)
    if usual == short or run.rows <= 1:
        return EqualCosts(short, n)

    def place(epoch: int) -> int:
        """Where the last row stands."""
        return int(run.order(epoch).inverse(np.array([run.rows - 1]))[0])

    return ShortLastCosts(usual, short, run.rows, place, n)


class TokenCount:
    """Stored tokens of the first examples of a run.

    Where rows have tokens of their own and somebody goes on in the epoch in which he asked last,
    only what came since is counted.
    """

    def __init__(self, run: PricedRun) -> None:
        self._costs = costs_of(run, "tokens", None, least=0) if run.rows else None
        self._run, self._phases = run, run.phases
        self._known = 0, 0  # examples, tokens

    def upto(self, examples: int) -> int:
        """Tokens of the first examples."""
        costs = self._costs
        if costs is None:
            return 0
        known, tokens = self._known
        end = min(known + TOGETHER, self._phases.start(self._phases.place(known)[0] + 1))
        if isinstance(costs, SummedCosts) and known <= examples <= end:
            tokens += int(costs.items(known, examples).sum())
        else:
            tokens = costs.upto(examples)
        self._known = examples, tokens
        return tokens

    def of_epoch(self) -> int:
        """Tokens of one epoch, of the last kind if there are several."""
        phases = self._phases
        epoch = int(phases.epoch[-1])
        return self.upto(phases.start(epoch + 1)) - self.upto(phases.start(epoch))

    def of(self, items: Int64) -> int:
        """Tokens of these items."""
        if not len(items):
            return 0
        return int(self._run.layout.costs(*self._run.locate(items)).sum())


def examples_for(tokens: int, tokens_in: Callable[[int], int], n: int | None) -> int:
    """The number of leading examples needed to reach `tokens` tokens; n if they have fewer.

    >>> examples_for(10, lambda examples: 4 * examples, None)
    3
    """
    if isinstance(tokens, bool) or not isinstance(tokens, (int, np.integer)) or tokens < 0:
        raise ConfigError(f"take: found tokens={tokens!r}, allowed is an integer, 0 or more.")
    most = MOST if n is None else n
    low, high = 0, min(1, most)
    while high < most and tokens_in(high) < tokens:
        low, high = high, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if tokens_in(middle) >= tokens else (middle + 1, high)
    return low
