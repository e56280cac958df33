"""What the items of a source cost, added up in the order in which they come.

One idea: item k of a source happens when everything before it has been consumed, so a run needs
``C(k)``, the cost of its first k items, and the way back from a cost to an item. Where all rows
cost the same both are a product. Else one sum for every `STRIDE` items of an epoch is kept,
computed once for each epoch, and the items between two sums are added up when they are asked for.

Every item costs at least 1, so that time never stands still.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.layout.phases import Phases
from tokenloom.masks import tile
from tokenloom.rendering import RenderSpec
from tokenloom.run import SourceRun, loss_columns
from tokenloom.spans import EOS, Spans

__all__ = ["Costs", "EqualCosts", "Priced", "RunPrices", "SummedCosts", "costs_of", "trained_in"]

Int64 = NDArray[np.int64]
STRIDE = 1024  # items between two sums
KEPT_STRETCHES = 64
KEPT_EPOCHS = 8
CHUNK = 1 << 16  # items that are added up together


class Costs(Protocol):
    """Costs of the items of one source, in order."""

    n: int | None
    """Items; None is for ever."""

    def upto(self, k: int) -> int:
        """C(k): cost of the first k items."""

    def items(self, first: int, last: int) -> Int64:
        """The cost of each item from `first` to `last` - 1."""

    def before(self, cost: float) -> int:
        """Items k with C(k) < cost, or as many as there are."""

    def near(self, cost: float) -> float:
        """About as many, from the totals of epochs alone."""


class EqualCosts:
    """All items cost the same.

    >>> costs = EqualCosts(10, None)
    >>> costs.upto(3), costs.before(25), costs.before(30)
    (30, 3, 3)
    """

    def __init__(self, cost: int, n: int | None) -> None:
        self.cost, self.n = cost, n

    def upto(self, k: int) -> int:
        """See `Costs`."""
        return k * self.cost

    def items(self, first: int, last: int) -> Int64:
        """See `Costs`."""
        return np.full(last - first, self.cost, np.int64)

    def before(self, cost: float) -> int:
        """See `Costs`."""
        found = max(0, -int(-cost // self.cost))
        return found if self.n is None else min(found, self.n)

    def near(self, cost: float) -> float:
        """See `Costs`."""
        return float(self.before(cost))


class Priced(Protocol):
    """Items by epoch, each with a price."""

    phases: Phases

    def prices(self, epoch: int, first: int, last: int) -> Int64:
        """Of items [first, last) of an epoch, in its order."""

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs of that epoch's phase cost the same in all."""


class SummedCosts:
    """Items that cost what each costs.

    Args:
        priced: the items.
        n: how many; None is for ever.
    """

    def __init__(self, priced: Priced, n: int | None) -> None:
        self._priced, self.n = priced, n
        self._sums: dict[int, Int64] = {}
        self._kept: dict[tuple[int, int], Int64] = {}
        self._totals: dict[int, int] = {}
        self._begins: dict[int, int] = {0: 0}

    # -- epochs ----------------------------------------------------------------------------

    def _length(self, epoch: int) -> int:
        phases = self._priced.phases
        return phases.start(epoch + 1) - phases.start(epoch)

    def _total(self, epoch: int) -> int:
        """Cost of a whole epoch."""
        phases = self._priced.phases
        if self._priced.is_steady(epoch):
            first = int(phases.epoch[phases.of(epoch)])
            if self._length(epoch) == self._length(first):
                epoch = first
        if epoch not in self._totals:
            self._totals[epoch] = int(self._sums_of(epoch)[-1])
        return self._totals[epoch]

    def _begin(self, epoch: int) -> int:
        """C at the begin of an epoch."""
        known = self._begins.get(epoch)
        if known is not None:
            return known
        phases = self._priced.phases
        first = int(phases.epoch[phases.of(epoch)])
        if epoch == first:
            found = self._begin(epoch - 1) + self._total(epoch - 1)
        elif self._priced.is_steady(epoch):
            found = self._begin(first) + (epoch - first) * self._total(first)
        else:
            last = max(one for one in self._begins if one < epoch)
            found = self._begins[last] + sum(self._total(e) for e in range(last, epoch))
        self._begins[epoch] = found
        return found

    def _sums_of(self, epoch: int) -> Int64:
        """C inside an epoch at every `STRIDE` items, and at its end."""
        found = self._sums.get(epoch)
        if found is None:
            length = self._length(epoch)
            parts = []
            for low in range(0, length, CHUNK):
                some = self._priced.prices(epoch, low, min(low + CHUNK, length))
                parts.append(np.add.reduceat(some, np.arange(0, len(some), STRIDE)))
            found = np.cumsum(np.concatenate([[0], *parts]))
            kept = dict(list(self._sums.items())[-KEPT_EPOCHS + 1 :])
            self._sums = kept | {epoch: found}
        return found

    def _stretch(self, epoch: int, number: int) -> Int64:
        """C inside an epoch before each item of one stretch, and behind the last."""
        found = self._kept.get((epoch, number))
        if found is None:
            first = number * STRIDE
            some = self._priced.prices(epoch, first, min(first + STRIDE, self._length(epoch)))
            found = np.concatenate([[0], np.cumsum(some)]) + self._sums_of(epoch)[number]
            kept = dict(list(self._kept.items())[-KEPT_STRETCHES + 1 :])
            self._kept = kept | {(epoch, number): found}
        return found

    # -- items -----------------------------------------------------------------------------

    def _place(self, k: int) -> tuple[int, int]:
        epoch, inside = self._priced.phases.locate(np.array([k]))
        return int(epoch[0]), int(inside[0])

    def upto(self, k: int) -> int:
        """See `Costs`."""
        epoch, inside = self._place(k)
        if not inside:
            return self._begin(epoch)
        number, rest = divmod(inside, STRIDE)
        if not rest:
            return self._begin(epoch) + int(self._sums_of(epoch)[number])
        return self._begin(epoch) + int(self._stretch(epoch, number)[rest])

    def items(self, first: int, last: int) -> Int64:
        """See `Costs`."""
        if last - first == 1:  # the search for a moment asks for these
            epoch, inside = self._place(first)
            number, rest = divmod(inside, STRIDE)
            return np.diff(self._stretch(epoch, number)[rest : rest + 2])
        parts = [np.empty(0, np.int64)]
        while first < last:
            epoch, inside = self._place(first)
            stop = min(self._length(epoch), inside + last - first)
            parts.append(self._priced.prices(epoch, inside, stop))
            first += stop - inside
        return np.concatenate(parts)

    def before(self, cost: float) -> int:
        """See `Costs`."""
        if cost <= 0:
            return 0
        phases, low = self._priced.phases, self._epoch_at(cost)
        inside = cost - self._begin(low)
        sums = self._sums_of(low)
        number = min(int(np.searchsorted(sums, inside, side="left")), len(sums) - 1) - 1
        found = int(np.searchsorted(self._stretch(low, number)[:-1], inside, side="left"))
        k = phases.start(low) + number * STRIDE + found
        return k if self.n is None else min(k, self.n)

    def near(self, cost: float) -> float:
        """See `Costs`."""
        if cost <= 0:
            return 0.0
        epoch = self._epoch_at(cost)
        begin, total = self._begin(epoch), self._total(epoch)
        part = min(1.0, (cost - begin) / max(1, total))
        k = self._priced.phases.start(epoch) + part * self._length(epoch)
        return k if self.n is None else min(k, float(self.n))

    def _epoch_at(self, cost: float) -> int:
        """The last epoch that begins before a cost is reached."""
        phases = self._priced.phases
        low, high = 0, 1
        while self._begin(high) < cost and (self.n is None or phases.start(high) < self.n):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._begin(middle) < cost else (low, middle)
        return low


class RunPrices:
    """Tokens of the rows of a run, in the order in which they come.

    Layouts whose rows are the same in every epoch are asked once, row by row as they are stored.

    Args:
        run: the rows.
        render: count those tokens that are trained when rendered so; None counts all of them.
    """

    def __init__(self, run: SourceRun, render: RenderSpec | None = None) -> None:
        self._run, self.phases, self._render = run, run.phases, render
        self._table: NDArray[np.uint32] | None = None

    def prices(self, epoch: int, first: int, last: int) -> Int64:
        """See `Priced`."""
        rows = self._run.order(epoch).map(np.arange(first, last))
        if not self._run.layout.is_constant:
            return self._of(epoch, rows)
        if self._table is None:
            count = int(self._run.layout.phases.rows[0])
            steps = range(0, count, CHUNK)
            parts = [self._of(0, np.arange(low, min(low + CHUNK, count))) for low in steps]
            every = np.concatenate([np.empty(0, np.int64), *parts])
            self._table = every.astype(np.uint32)
        return self._table[rows].astype(np.int64)

    def _of(self, epoch: int, rows: Int64) -> Int64:
        layout = self._run.layout
        if self._render is None:
            return np.maximum(layout.costs(epoch, rows), 1)
        ahead = self._render.label_layout == "shifted"
        width = layout.width if ahead else layout.seq_len
        return np.maximum(trained_in(layout.spans(epoch, rows), width, self._render), 1)

    def is_steady(self, epoch: int) -> bool:
        """See `Priced`."""
        return self._run.layout.is_steady(epoch)


def costs_of(run: SourceRun, cost: str, n: int | None, render: RenderSpec) -> Costs:
    """The costs of a run's items: "rows", "tokens" or "loss_tokens"."""
    if cost == "rows":
        return EqualCosts(1, n)
    if cost == "loss_tokens":
        _check_countable(run, render)
        return SummedCosts(RunPrices(run, render), n)
    each = run.layout.row_tokens
    if each is not None and (each[0] == each[1] or run.rows == 1):
        return EqualCosts(max(1, each[1]), n)
    return SummedCosts(RunPrices(run), n)


def trained_in(spans: Spans, width: int, render: RenderSpec) -> Int64:
    """Predictions of each frame that count, from boundaries alone [frames]."""
    tiles = tile(spans, width)
    row, real = tiles.first // width, tiles.segment > 0
    trained = np.where(real, tiles.length - 1, 0)
    if not render.mask_boundary_loss:  # the first token of a document behind another one counts
        trained[1:] += real[1:] & real[:-1] & (row[1:] == row[:-1])
    found = np.bincount(row, trained, minlength=tiles.frames)
    found -= np.bincount(tiles.blank // width, minlength=tiles.frames)
    if not render.train_on_eos and render.eos_mask == "inserted":
        ends = ((spans.flags & EOS) > 0) & (spans.at + spans.cells <= width) & (spans.cells > 1)
        found -= np.bincount(spans.row[ends], minlength=tiles.frames)
    return found.astype(np.int64)


def _check_countable(run: SourceRun, render: RenderSpec) -> None:
    """Refuse to count what only tokens can tell."""
    by_value = render.ignore_id is not None or render.segments == "eos"
    by_value |= not render.train_on_eos and render.eos_mask == "all"
    columns = loss_columns(run.layout.line.reader)
    if by_value or columns:
        why = f"the columns {', '.join(columns)}" if columns else "the values of tokens"
        raise ConfigError(
            f"cost: found 'loss_tokens', but what is trained of source {run.name!r} depends on "
            f"{why}, which would have to be read. Take cost='tokens'."
        )
