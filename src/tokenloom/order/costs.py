"""Cumulative costs of the items of a source, in the order in which they come.

Item k of a source happens when everything before it has been consumed. So a run needs
``C(k)``, the cost of its first k items, and its inverse, from a cost to an item. If all rows cost
the same, both are one multiplication or division. If one row of an epoch is short, its position is
enough. Otherwise one sum for every 1,024 items of an epoch is kept, computed once per epoch and
cached between processes; the items between two sums are added up on request.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tokenloom.arrays import Int64, with_newest
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.order.prices import RunPrices, SpanCount
from tokenloom.progress import Progress
from tokenloom.store.handles import lazy
from tokenloom.store.plan_cache import cache_dir, remembered_array

LARGEST = 2.0**62  # of all sums

ROW_SECONDS = 30e-9  # that adding up a row takes, about; for people

log = logging.getLogger("tokenloom")

MOST = 1 << 62  # examples


if TYPE_CHECKING:
    from tokenloom.order.run import SourceRun


class EqualCosts:
    """All items cost the same.

    >>> costs = EqualCosts(10, None)
    >>> costs.upto(3), costs.before(25), costs.before(30)
    (30, 3, 3)
    """

    def __init__(self, cost: int, n: int | None) -> None:
        self.cost, self.most, self.n = cost, cost, n
        self.mean = float(cost)

    def one(self, k: int) -> tuple[int, int]:
        """C(k), and the cost of item k."""
        return k * self.cost, self.cost

    def upto(self, k: int) -> int:
        """C(k), the cost of the first k items."""
        return k * self.cost

    def items(self, first: int, last: int) -> Int64:
        """The cost of each item from `first` to `last` - 1."""
        return np.full(last - first, self.cost, np.int64)

    def before(self, cost: float) -> int:
        """The number of items k with C(k) < cost, at most n."""
        found = max(0, -int(-cost // self.cost))
        return found if self.n is None else min(found, self.n)

    def near(self, cost: float) -> float:
        """An estimate of `before` from the totals of epochs alone."""
        return float(self.before(cost))


class ShortLastCosts:
    """All items of an epoch cost the same except one, whose position differs by epoch.

    Args:
        usual: the cost of every other item.
        short: the cost of that one.
        rows: items of an epoch.
        place: epoch → its position in that epoch.
        n: number of items; None is endless.

    >>> costs = ShortLastCosts(10, 4, 3, lambda epoch: 1, None)
    >>> [costs.upto(k) for k in range(5)], costs.before(14), costs.before(15)
    ([0, 10, 14, 24, 34], 2, 3)
    """

    def __init__(
        self, usual: int, short: int, rows: int, place: Callable[[int], int], n: int | None
    ) -> None:
        self.n, self._usual, self._less, self._rows = n, usual, usual - short, rows
        self._total = usual * rows - self._less
        self.most, self.mean = usual, float(usual)
        self._find = place
        self._places: dict[int, int] = {}

    def _place(self, epoch: int) -> int:
        found = self._places.get(epoch)
        if found is None:
            found = self._find(epoch)
            self._places = with_newest(self._places, epoch, found, limits().kept_short_items)
        return found

    def upto(self, k: int) -> int:
        """See `EqualCosts`."""
        epoch, inside = divmod(k, self._rows)
        less = self._less if inside and self._place(epoch) < inside else 0
        return epoch * self._total + inside * self._usual - less

    def one(self, k: int) -> tuple[int, int]:
        """See `EqualCosts`."""
        epoch, inside = divmod(k, self._rows)
        return self.upto(k), self._usual - (self._less if self._place(epoch) == inside else 0)

    def items(self, first: int, last: int) -> Int64:
        """See `EqualCosts`."""
        out = np.full(last - first, self._usual, np.int64)
        for epoch in range(first // self._rows, -(-last // self._rows)):
            k = epoch * self._rows + self._place(epoch)
            if first <= k < last:
                out[k - first] -= self._less
        return out

    def before(self, cost: float) -> int:
        """See `EqualCosts`."""
        if cost <= 0:
            return 0
        if self.n is not None and cost > self.upto(self.n):
            return self.n
        epoch, most = divmod(math.ceil(cost) - 1, self._total)  # items k with C(k) <= most
        place = self._place(epoch)
        found = min(most // self._usual, place) + 1
        behind = min((most + self._less) // self._usual, self._rows - 1)
        k = epoch * self._rows + found + max(0, behind - place)
        return k if self.n is None else min(k, self.n)

    def near(self, cost: float) -> float:
        """See `EqualCosts`."""
        return float(self.before(cost))


class SummedCosts:
    """Costs of items with individual prices.

    Args:
        priced: the items.
        n: number of items; None is endless.
    """

    def __init__(self, priced: RunPrices, n: int | None) -> None:
        self._priced = priced
        self.most, self.n = priced.most, n
        self._sums: dict[int, Int64] = {}
        self._kept: dict[tuple[int, int], Int64] = {}
        self._stride = limits().cost_stride_items
        self._totals: dict[int, int] = {}
        self._begins: dict[int, int] = {0: 0}

    # -- epochs ----------------------------------------------------------------------------

    def _length(self, epoch: int) -> int:
        phases = self._priced.phases
        return phases.start(epoch + 1) - phases.start(epoch)

    def _total(self, epoch: int) -> int:
        """The cost of a whole epoch."""
        phases = self._priced.phases
        if self._priced.is_steady(epoch):
            first = int(phases.epoch[phases.of(epoch)])
            if self._length(epoch) == self._length(first):
                epoch = first
        if epoch not in self._totals:
            known = self._priced.whole(epoch, epoch + 1)
            self._totals[epoch] = int(self._sums_of(epoch)[-1]) if known is None else known
        return self._totals[epoch]

    def _begin(self, epoch: int) -> int:
        """C at the start of an epoch."""
        known = self._begins.get(epoch)
        if known is not None:
            return known
        phases = self._priced.phases
        first = int(phases.epoch[phases.of(epoch)])
        if epoch == first:
            found = self._begin(epoch - 1) + self._total(epoch - 1)
        elif self._priced.is_steady(epoch):
            found = self._begin(first) + (epoch - first) * self._total(first)
        elif (whole := self._priced.whole(first, epoch)) is not None:
            found = self._begin(first) + whole
        else:
            last = max(one for one in list(self._begins) if one < epoch)  # threads may add more
            found = self._begins[last]
            together = max(1, limits().cost_chunk_items // max(1, self._length(epoch)))
            for low in range(last, epoch, together):
                high = min(low + together, epoch)
                found += int(self._priced.prices(phases.start(low), phases.start(high)).sum())
                self._begins[high] = found
        self._begins[epoch] = found
        return found

    def _sums_of(self, epoch: int) -> Int64:
        """C inside an epoch at every stride, and at its end."""
        found = self._sums.get(epoch)
        if found is None:
            found = self._recalled(epoch)
            self._sums = with_newest(self._sums, epoch, found, limits().kept_cost_epochs)
        return found

    def _recalled(self, epoch: int) -> Int64:
        """The same from the plan cache, if they are worth a file; else added up."""
        length = self._length(epoch)
        identity = self._priced.identity if length >= limits().min_cached_cost_items else None
        if identity is None:
            return self._added_up(epoch)
        named = {**identity, "epoch": epoch, "rows": length, "stride": self._stride}
        shape = np.dtype(np.int64), -(-length // self._stride) + 1
        return remembered_array("sums", named, shape, functools.partial(self._added_up, epoch))

    def _added_up(self, epoch: int) -> Int64:
        """The same by adding up, with progress where there are many rows."""
        length, stride = self._length(epoch), self._stride
        shown = None if length >= limits().min_progress_cost_items else False
        if shown is None:
            log.info(
                "adding up the costs of %s rows of epoch %s: it is done once, in about %.0f s, and "
                "kept in %s",
                f"{length:,}",
                f"{epoch:,}",
                length * ROW_SECONDS,
                cache_dir(),
            )
        with Progress("adding up costs", total=length, unit=" rows", show=shown) as progress:
            sums = self._priced.by_rows(epoch, stride, progress.reach)
            if sums is None:
                parts, chunk = [], max(1, limits().cost_chunk_items // stride) * stride
                for low in range(0, length, chunk):
                    some = self._inside(epoch, low, chunk)
                    parts.append(np.add.reduceat(some, np.arange(0, len(some), stride)))
                    progress.reach(min(low + chunk, length))
                sums = np.concatenate([np.empty(0, np.int64), *parts])
        return np.cumsum(np.concatenate([[0], sums])).astype(np.int64)

    def _inside(self, epoch: int, low: int, count: int) -> Int64:
        """Prices of up to `count` items of an epoch, starting at item `low`."""
        begin = self._priced.phases.start(epoch)
        last = begin + min(low + count, self._length(epoch))
        return self._priced.prices(begin + low, last)

    def _stretch(self, epoch: int, number: int) -> Int64:
        """C inside an epoch before each item of one stretch, and after the last."""
        found = self._kept.get((epoch, number))
        if found is None:
            some = self._inside(epoch, number * self._stride, self._stride)
            before = self._sums_of(epoch)[number] if number else 0  # an epoch starts with nothing
            found = np.concatenate([[0], np.cumsum(some)]) + before
            self._kept = with_newest(self._kept, (epoch, number), found, limits().kept_cost_strides)
        return found

    # -- items -----------------------------------------------------------------------------

    @lazy
    def mean(self) -> float:
        """See `EqualCosts`."""
        return self._total(0) / max(1, self._length(0))

    def one(self, k: int) -> tuple[int, int]:
        """See `EqualCosts`."""
        epoch, inside = self._priced.phases.place(k)
        number, rest = divmod(inside, self._stride)
        stretch = self._stretch(epoch, number)
        before = int(stretch[rest])
        return self._begin(epoch) + before, int(stretch[rest + 1]) - before

    def upto(self, k: int) -> int:
        """See `EqualCosts`."""
        epoch, inside = self._priced.phases.place(k)
        if not inside:
            return self._begin(epoch)
        number, rest = divmod(inside, self._stride)
        if not rest:
            return self._begin(epoch) + int(self._sums_of(epoch)[number])
        return self._begin(epoch) + int(self._stretch(epoch, number)[rest])

    def items(self, first: int, last: int) -> Int64:
        """See `EqualCosts`."""
        return self._priced.prices(first, last) if first < last else np.empty(0, np.int64)

    def before(self, cost: float) -> int:
        """See `EqualCosts`."""
        if cost <= 0:
            return 0
        phases, low = self._priced.phases, self._epoch_at(cost)
        # sums are integers: a float would turn all of them into floats, at every call
        inside = math.ceil(min(cost - self._begin(low), LARGEST))
        sums = self._sums_of(low)
        number = min(int(np.searchsorted(sums, inside, side="left")), len(sums) - 1) - 1
        found = int(np.searchsorted(self._stretch(low, number)[:-1], inside, side="left"))
        k = phases.start(low) + number * self._stride + found
        return k if self.n is None else min(k, self.n)

    def near(self, cost: float) -> float:
        """See `EqualCosts`."""
        if cost <= 0:
            return 0.0
        epoch = self._epoch_at(cost)
        begin, total = self._begin(epoch), self._total(epoch)
        part = min(1.0, (cost - begin) / max(1, total))
        k = self._priced.phases.start(epoch) + part * self._length(epoch)
        return k if self.n is None else min(k, float(self.n))

    def _epoch_at(self, cost: float) -> int:
        """The last epoch that starts before a cost is reached."""
        phases = self._priced.phases
        low, high = 0, 1
        while self._begin(high) < cost and (self.n is None or phases.start(high) < self.n):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._begin(middle) < cost else (low, middle)
        return low


Costs = EqualCosts | ShortLastCosts | SummedCosts
"""Costs of the items of one source, in order."""


def costs_of(
    run: SourceRun, cost: str, n: int | None, count: SpanCount | None = None, least: int = 1
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
    _layout, each = run.layout, run.layout.row_tokens
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

    def __init__(self, run: SourceRun) -> None:
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
