"""What the rows of a run cost: stored tokens, or tokens that are trained on.

One idea: layouts know how many tokens each row has without reading any. So the cost of the first
examples follows from the order and from sums (`tokenloom.order.costs`), at any index of any run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError
from tokenloom.layout.allowance import PLANNED, about_to_visit
from tokenloom.layout.layout import Epochs, Layout, Phases
from tokenloom.layout.pack.groups import Share
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.spans import Spans
from tokenloom.layout.splice.rows import Spliced
from tokenloom.limits import limits
from tokenloom.order.block_order import BlockOrder
from tokenloom.order.closed_costs import Costs, EqualCosts, EvenCosts, ShortLastCosts
from tokenloom.order.costs import SummedCosts
from tokenloom.order.orders import Order
from tokenloom.order.stretches import sum_of_first
from tokenloom.store.handles import lazy
from tokenloom.store.plan_cache import Remembered, is_kept, random_places, remembered_array

__all__ = ["RunPrices", "SpanCount", "TokenCount", "costs_of", "examples_for"]

Int64 = NDArray[np.int64]

MOST = 1 << 62  # examples


class PricedRun(Protocol):
    """What prices need from a run: rows in order, before any token is read."""

    layout: Layout
    rows: int

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""

    @property
    def identity(self) -> dict[str, Any]:
        """Names the rows and their order: equal for equal runs."""

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index [N]."""

    def rows_from(self, first: int, last: int) -> tuple[Epochs, Int64]:
        """(epochs, rows) of indices [first, last)."""


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

    def __init__(self, run: PricedRun, least: int, count: SpanCount | None = None) -> None:
        self._run, self.phases, self._least, self._counter = run, run.phases, least, count
        self.most = run.layout.width

    def prices(self, first: int, last: int) -> Int64:
        """See `Priced`."""
        return np.maximum(self._of(*self._run.rows_from(first, last)), self._least)

    def inside(self, epoch: int, count: int, most: int) -> int | None:
        """See `Priced`."""
        layout = self._run.layout
        if self._counter is not None or not isinstance(layout, Spliced):
            return None
        steps = layout.token_steps(epoch)
        if steps is None:
            return None
        floored = steps._replace(value=np.maximum(steps.value, self._least))
        return sum_of_first(self._run.order(epoch), floored, count, most)

    def whole(self, first: int, last: int) -> int | None:
        """See `Priced`."""
        layout = self._run.layout
        if self._counter is None and not self._least and isinstance(layout, Spliced):
            return layout.tokens_between(first, last)
        if not layout.is_constant or len(self.phases) > 1 or last > first + 1:
            return None
        return self._stored

    def by_rows(self, epoch: int, stride: int, reach: Callable[[int], None]) -> Int64 | None:
        """See `Priced`; an order of blocks keeps rows together anyway."""
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
        about_to_visit(rows, "the costs of all rows")
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
        return self._table.array[rows].astype(np.int64)

    def _count(self, epoch: Epochs, rows: Int64) -> Int64:
        """The count of each row, from its spans."""
        layout = self._run.layout
        assert self._counter is not None
        return self._counter(layout.spans(epoch, rows), layout.seq_len, layout.line)

    @lazy
    def _table(self) -> Remembered:
        """The count of every row, for a layout whose rows do not change between epochs [rows]."""
        return self._counted(None)

    @property
    def kept_as(self) -> dict[str, Any] | None:
        """Names the counts of all rows in the plan cache; None if they are not worth a file."""
        layout = self._run.layout
        worth = int(layout.phases.rows[0]) >= limits().min_cached_trained_rows
        if self._counter is None or not (layout.is_constant and worth):
            return None
        line, render = layout.line.identity, self._counter.identity
        return {"line": line, "layout": layout.tag, "render": render}

    def keep(self, share: Share | None = None) -> None:
        """Have the plan cache keep the counts of all rows, if they are worth a file.

        Args:
            share: has pieces counted elsewhere, see `piece`.
        """
        if self.kept_as is not None and "_table" not in self.__dict__:
            self.__dict__["_table"] = self._counted(share)

    def piece(self, low: int, high: int) -> bytes:
        """The counts of rows [low, high), as bytes."""
        chunk = limits().cost_chunk_items
        kind = np.dtype(np.min_scalar_type(self._run.layout.width))
        parts = [
            self._count(0, np.arange(at, min(at + chunk, high))).astype(kind)
            for at in range(low, high, chunk)
        ]
        raw: bytes = np.concatenate(parts).astype(kind.newbyteorder("<")).tobytes()
        return raw

    def _counted(self, share: Share | None) -> Remembered:
        count = int(self._run.layout.phases.rows[0])
        kind = np.dtype(np.min_scalar_type(self._run.layout.width))

        def agrees(known: NDArray[Any]) -> bool:
            rows = random_places(count)
            return np.array_equal(known[rows], self._count(0, rows))

        def make() -> NDArray[Any]:
            ends = [*range(0, count, limits().trained_piece_rows), count]
            pieces = [{"low": a, "high": b} for a, b in itertools.pairwise(ends)]
            here = ({"counts": self.piece(**piece)} for piece in pieces)
            raw = [one["counts"] for one in (here if share is None else share(pieces))]
            return np.frombuffer(b"".join(raw), kind.newbyteorder("<")).astype(kind)

        identity = self.kept_as
        if identity is None or not is_kept("trained", identity):
            about_to_visit(PLANNED * count, "the trained tokens of all rows")
        if identity is None:
            return Remembered(make(), "")
        return remembered_array("trained", identity, (kind, count), agrees, make)

    @property
    def digests(self) -> tuple[str, ...]:
        """See `Priced`."""
        layout = self._run.layout
        if self._counter is None:
            return layout.cost_digests
        return (self._table.digest,) if layout.is_constant and self._table.digest else ()

    @property
    def identity(self) -> dict[str, Any]:
        """See `Priced`."""
        render = None if self._counter is None else self._counter.identity
        return {**self._run.identity, "least": self._least, "render": render}

    def is_steady(self, epoch: int) -> bool:
        """See `Priced`; epochs with equally many tokens may train other numbers of them."""
        layout = self._run.layout
        return layout.is_steady(epoch) and (self._counter is None or layout.is_constant)


def costs_of(
    run: PricedRun, cost: str, n: int | None, count: SpanCount | None = None, least: int = 1
) -> Costs:
    """The costs of a run's items.

    Args:
        run: the items.
        cost: "rows", "tokens" or "loss_tokens".
        n: number of items; None is endless.
        count: counts the trained tokens, for "loss_tokens".
        least: the minimum cost of an item.
    """
    if cost == "rows":
        return EqualCosts(1, n)
    if cost == "loss_tokens":
        assert count is not None
        return SummedCosts(RunPrices(run, least, count), n)
    layout, each = run.layout, run.layout.row_tokens
    if isinstance(layout, Packed) and layout.groups.sampled:
        total = layout.groups.tally.frame_tokens
        return EvenCosts(max(1, total, least * run.rows), max(1, run.rows), n)
    if each is None:
        return SummedCosts(RunPrices(run, least), n)
    usual, short = (max(least, size) for size in each)
    if usual == short or run.rows <= 1:
        return EqualCosts(short, n)

    def place(epoch: int) -> int:
        """The position of the last row, the short one."""
        return int(run.order(epoch).inverse(np.array([run.rows - 1]))[0])

    return ShortLastCosts(usual, short, run.rows, place, n)


class TokenCount:
    """The number of stored tokens in the first examples of a run.

    If rows have different numbers of tokens and a request continues in the epoch of the last one,
    only the examples since then are counted.
    """

    def __init__(self, run: PricedRun) -> None:
        self._costs = costs_of(run, "tokens", None, least=0) if run.rows else None
        self._run, self._phases = run, run.phases
        self._known = 0, 0  # examples, tokens

    def upto(self, examples: int) -> int:
        """Tokens of the first `examples`."""
        costs = self._costs
        if costs is None:
            return 0
        known, tokens = self._known
        epoch = self._phases.place(known)[0]
        end = min(known + limits().cost_chunk_items, self._phases.start(epoch + 1))
        if isinstance(costs, SummedCosts) and known <= examples <= end:
            tokens += int(costs.items(known, examples).sum())
        else:
            tokens = costs.upto(examples)
        self._known = examples, tokens
        return tokens

    def about(self, examples: int) -> int:
        """An estimate of the same without sums inside an epoch; exact where rows are alike."""
        costs = self._costs
        if costs is None:
            return 0
        return costs.about(examples) if isinstance(costs, SummedCosts) else costs.upto(examples)

    def of_epoch(self) -> int:
        """Tokens of one epoch; if phases differ, of an epoch of the last one."""
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
        raise ConfigError(f"take: found tokens={tokens!r}, allowed: an integer, 0 or more.")
    most = MOST if n is None else n
    low, high = 0, min(1, most)
    while high < most and tokens_in(high) < tokens:
        low, high = high, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if tokens_in(middle) >= tokens else (middle + 1, high)
    return low
