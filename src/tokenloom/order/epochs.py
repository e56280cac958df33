"""The order of each epoch: fresh every time, or continued with appended rows.

One idea: an index is divided by the rows of an epoch, and that epoch's order maps the remainder.
`FreshEpochs` orders the same rows anew in every epoch. `GrownEpochs` continues other epochs after
documents were appended in the middle of a run. What was shown stays as it was, the new rows are
spread evenly through the unfinished part of the current epoch (`Bridge`), and later epochs order
all rows together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenloom.arrays import Int64, answered, grouped, with_newest
from tokenloom.layout.layout import Blocks, Phases
from tokenloom.limits import limits
from tokenloom.order.orders import Order, identity
from tokenloom.order.shuffle import FullShuffle, Shuffle, shuffle_identity
from tokenloom.order.shuffle_windows import ShuffleWindows
from tokenloom.store.handles import lazy


class FreshEpochs:
    """Every epoch orders its rows anew, unless all have the order of the first.

    Args:
        phases: rows of every epoch.
        blocks: the storage-local blocks of each phase.
        shuffle: the resolved shuffle; None is stored order.
        seed: seed of the keys.
        name: name of the source, part of the keys.
        repeats: every epoch has the order of the first, as in Levanter.
    """

    extended: tuple[int, ...] = ()

    grown_at: tuple[int, ...] = ()

    def __init__(
        self,
        phases: Phases,
        blocks: list[Blocks],
        shuffle: Shuffle | None,
        seed: int,
        name: str,
        *,
        repeats: bool = False,
    ) -> None:
        self.phases, self._blocks, self.shuffle = phases, blocks, shuffle
        self.seed, self.name, self.repeats = seed, name, repeats
        self._orders: dict[int, Order] = {}

    @property
    def identity(self) -> dict[str, Any]:
        """Names the orders: equal for equal orders over equal rows."""
        return {
            "shuffle": shuffle_identity(self.shuffle),
            "seed": self.seed,
            "name": self.name,
            **({"repeats": True} if self.repeats else {}),
        }

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""
        epoch = 0 if self.repeats else epoch
        order = self._orders.get(epoch)
        if order is None:
            phase = int(self.phases.of(epoch))
            if self.shuffle is None:
                order = identity(int(self.phases.rows[phase]))
            else:
                order = self.shuffle.order(self._blocks[phase], self.seed, epoch, self.name)
            self._orders = with_newest(self._orders, epoch, order, limits().kept_orders)
        return order

    def rows_in(self, epoch: int) -> int:
        """Row numbers in an epoch are below this."""
        return int(self.phases.rows[self.phases.of(epoch)])

    def rows_at(self, epoch: Int64, inside: Int64) -> Int64:
        """The row at each place inside its epoch [N]."""
        if self.shuffle is None or self.phases.rows.max() == 1 or not len(epoch):
            return inside
        if self.repeats or (epoch == epoch[0]).all():
            return self.order(int(epoch[0])).map(inside)
        row = np.empty_like(inside)
        if isinstance(self.shuffle, FullShuffle):  # small sources have many epochs in a request
            for phase, here in grouped(self.phases.of(epoch)):
                rows = int(self.phases.rows[phase])
                row[here] = self._windows.forward(rows, epoch[here], inside[here])
            return row
        for number, here in grouped(epoch):
            row[here] = self.order(number).map(inside[here])
        return row

    @lazy
    def _windows(self) -> ShuffleWindows:
        """The orders of all epochs of a full shuffle."""
        assert isinstance(self.shuffle, FullShuffle)
        return self.shuffle.epochs(self.seed, self.name)


def _floor_of(x: Int64, times: int, by: int, plus: int = 0) -> Int64:
    """floor((x * times + plus) / by) [N], exact where the product takes more than 64 bits.

    >>> _floor_of(np.array([10**10]), 10**10, 10**11, plus=3).tolist()
    [1000000000]
    """
    most = int(x.max(initial=0)) * abs(times) + abs(plus)
    wide = x if most < 1 << 63 else x.astype(object)  # Python's integers
    return ((wide * times + plus) // by).astype(np.int64)


class Bridge:
    """The unfinished part of an epoch with appended rows spread evenly through it.

    Worked example: 4 old rows are left and 2 new ones come; sorted by middles: o n o o n o.

    Args:
        old: the order of the old epoch.
        skipped: how many of its places have been shown.
        new: the order of the new rows.
        first: the number of the first new row.
    """

    def __init__(self, old: Order, skipped: int, new: Order, first: int) -> None:
        self._old, self._skipped, self._new, self._first = old, skipped, new, first
        self._r, self._a = len(old) - skipped, len(new)

    def __len__(self) -> int:
        return self._r + self._a

    def _place(self, x: Int64) -> Int64:
        """The place of the x-th remaining old row: x plus the new rows with an earlier middle."""
        ahead = -_floor_of(2 * x + 1, -self._a, 2 * max(self._r, 1), self._r)
        return x + np.clip(ahead, 0, self._a)

    def _olds_before(self, place: Int64) -> Int64:
        """Old rows before each place [N]."""
        # a row is less than half a row from its even share: the share is right, or one too few
        count = _floor_of(place, self._r, max(1, len(self)))
        return count + ((count < self._r) & (self._place(count) < place))

    def map(self, indices: Any) -> Int64:
        """The row at each index, in the shape given."""
        return answered(indices, len(self), "index", self._map)

    def _map(self, place: Int64) -> Int64:
        count = self._olds_before(place)
        is_old = (count < self._r) & (self._place(np.minimum(count, self._r - 1)) == place)
        out = np.empty_like(place)
        out[is_old] = self._old.map(count[is_old] + self._skipped)
        out[~is_old] = self._new.map(place[~is_old] - count[~is_old]) + self._first
        return out

    def inverse(self, rows: Any) -> Int64:
        """The index of each row; -1 for rows that were shown before the bridge."""
        total = self._first + self._a
        return answered(rows, total, "row", self._inverse)

    def _inverse(self, rows: Int64) -> Int64:
        out = np.full_like(rows, -1)
        is_new = rows >= self._first
        x = self._old.inverse(rows[~is_new]) - self._skipped
        out[~is_new] = np.where(x >= 0, self._place(np.maximum(x, 0)), -1)
        y = self._new.inverse(rows[is_new] - self._first)
        # the new rows before it, plus the old ones whose middle is not after its own
        ahead = _floor_of(2 * y + 1, self._r, 2 * max(self._a, 1), -self._a) + 1
        out[is_new] = y + np.clip(ahead, 0, self._r)
        return out

    def fractions(self, indices: Any) -> None:
        """A bridge has no lanes."""
        return

    @property
    def window_rows(self) -> int:
        """A bridge has no windows of its own."""
        return 0


class GrownEpochs:
    """Epochs of a source that grew in the middle of a run.

    Args:
        before: the epochs as they were.
        later: the epochs that have all rows from their start; their phases are constant.
        added: the storage-local blocks of the new rows.
        at: the first item that may show a new row.
    """

    phases: Phases
    grown_at: tuple[int, ...]
    extended: tuple[int, ...]

    def __init__(self, before: EpochOrders, later: FreshEpochs, added: Blocks, at: int) -> None:
        self._before, self._later, self._added, self._cut = before, later, added, at
        self.name, self.shuffle, self.seed = later.name, later.shuffle, later.seed
        self.repeats = later.repeats
        self.grown_at = (*before.grown_at, at)
        old, rows = before.phases, int(later.phases.rows[0])
        self._old_rows = rows - added.rows
        self._running, self._inside = old.place(at)  # the epoch in progress
        self._bridged = self._inside > 0 or (at > 0 and self._running in before.extended)
        self._epoch = self._running + (self._inside > 0)  # the first epoch that is not in `before`
        own = (self._epoch,) if self._bridged else ()
        self.extended = (*(b for b in before.extended if b < self._epoch), *own)
        length = old.start(self._running + 1) - old.start(self._running)
        left = length - self._inside + added.rows
        keep = old.first < at
        bridge = [(at, self._epoch, left)] if self._bridged else []
        after = (at + left, self._epoch + 1, rows) if self._bridged else (at, self._epoch, rows)
        first, epoch, size = zip(*bridge, after, strict=True)
        self.phases = Phases(
            np.concatenate([old.first[keep], first]).astype(np.int64),
            np.concatenate([old.epoch[keep], epoch]).astype(np.int64),
            np.concatenate([old.rows[keep], size]).astype(np.int64),
        )

    @property
    def identity(self) -> dict[str, Any]:
        """See `FreshEpochs`."""
        return {**self._later.identity, "before": self._before.identity, "at": self._cut}

    @lazy
    def _bridge(self) -> Order:
        """The rest of the current epoch, with the new rows in between."""
        fresh: Order = identity(self._added.rows)
        if self.shuffle is not None and self._added.rows:
            name = f"{self.name}/{self._old_rows}"
            fresh = self.shuffle.order(self._added, self.seed, self._epoch, name)
        return Bridge(self._before.order(self._running), self._inside, fresh, self._old_rows)

    def order(self, epoch: int) -> Order:
        """See `FreshEpochs`."""
        if epoch < self._epoch:
            return self._before.order(epoch)
        if epoch > self._epoch or not self._bridged:
            return self._later.order(epoch)
        return self._bridge

    def rows_in(self, epoch: int) -> int:
        """See `FreshEpochs`."""
        later = int(self._later.phases.rows[0])
        return self._before.rows_in(epoch) if epoch < self._epoch else later

    def rows_at(self, epoch: Int64, inside: Int64) -> Int64:
        """See `FreshEpochs`: rows of the old epochs, of the bridge, or of later epochs."""
        row, later = np.empty_like(inside), self._epoch + self._bridged
        old, bridge = epoch < self._epoch, (epoch >= self._epoch) & (epoch < later)
        if old.any():
            row[old] = self._before.rows_at(epoch[old], inside[old])
        if bridge.any():
            row[bridge] = self._bridge.map(inside[bridge])
        new = ~(old | bridge)
        if new.any():
            row[new] = self._later.rows_at(epoch[new], inside[new])
        return row


EpochOrders = FreshEpochs | GrownEpochs
"""The orders of all epochs of a source."""
