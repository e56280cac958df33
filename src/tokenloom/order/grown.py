"""A source whose store grew while its run was under way.

One idea: what was shown stays as it was. Of the epoch that is under way the rows that are left and
the rows of the new documents are spread evenly between each other, so that nothing comes in a lump;
later epochs have all rows in one order.

Worked example: 4 old rows are left and 2 new ones come, in order of their middles: o n o o n o.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import answered
from tokenloom.documents.line import ChosenLine, Line, WholeLine
from tokenloom.documents.resolve import Choice, choose_documents
from tokenloom.documents.spec import SelectSpec
from tokenloom.errors import ConfigError
from tokenloom.layout.joined import Joined
from tokenloom.layout.kinds import LayoutSpec, make_layout
from tokenloom.layout.layout import Phases
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.order import Order, identity
from tokenloom.order.run import SourceRun
from tokenloom.store.reader import Reader

__all__ = ["Bridge", "GrownRun", "check_grown", "grown_run"]

Int64 = NDArray[np.int64]


class Bridge:
    """The rest of an epoch with new rows between: old x stands behind the new ones before it.

    Args:
        old: where the rest of the old epoch comes from: place → row.
        skipped: places of it that were shown.
        new: the order of the new rows.
        first: the number of the first new row.
    """

    def __init__(self, old: Order, skipped: int, new: Order, first: int) -> None:
        self._old, self._skipped, self._new, self._first = old, skipped, new, first
        self._r, self._a = len(old) - skipped, len(new)

    def __len__(self) -> int:
        return self._r + self._a

    def _place(self, x: Int64) -> Int64:
        """Where old row x of the rest stands: x and the new rows whose middle is before its own."""
        ahead = -(-((2 * x + 1) * self._a - self._r) // (2 * max(self._r, 1)))
        return x + np.clip(ahead, 0, self._a)

    def _olds_before(self, place: Int64) -> Int64:
        """Old rows that stand before each place [N]."""
        count = np.clip(place * self._r // max(1, self._r + self._a), 0, self._r)
        while True:
            more = (count < self._r) & (self._place(np.minimum(count, self._r - 1)) < place)
            fewer = (count > 0) & (self._place(np.maximum(count - 1, 0)) >= place)
            if not (more | fewer).any():
                return count
            count = count + more - fewer

    def map(self, indices: Any) -> Int64:
        """The row at each index, in the shape asked."""
        return answered(indices, len(self), "index", self._map)

    def _map(self, place: Int64) -> Int64:
        if not self._r:
            return self._new.map(place) + self._first
        count = self._olds_before(place)
        is_old = (count < self._r) & (self._place(np.minimum(count, self._r - 1)) == place)
        out = np.empty_like(place)
        out[is_old] = self._old.map(count[is_old] + self._skipped)
        out[~is_old] = self._new.map(place[~is_old] - count[~is_old]) + self._first
        return out

    def inverse(self, rows: Any) -> Int64:
        """The index of each row; rows that were shown before the bridge have none."""
        total = self._first + self._a
        return answered(rows, total, "row", self._inverse)

    def _inverse(self, rows: Int64) -> Int64:
        out = np.full_like(rows, -1)
        is_new = rows >= self._first
        x = self._old.inverse(rows[~is_new]) - self._skipped
        out[~is_new] = np.where(x >= 0, self._place(np.maximum(x, 0)), -1)
        y = self._new.inverse(rows[is_new] - self._first)
        # the new rows before it, and the old ones whose middle is not behind its own
        ahead = ((2 * y + 1) * self._r - self._a) // (2 * max(self._a, 1)) + 1
        out[is_new] = y + np.clip(ahead, 0, self._r)
        return out

    def fractions(self, indices: Any) -> None:
        """A bridge has no lanes."""
        return


class GrownRun(SourceRun):
    """The run of a source that grew.

    Args:
        before: the run as it was.
        layout: of all documents, those that were there first.
        at: the item from which on new ones come.

    Attributes:
        bridges: epochs that are the rest of the one before, with new rows between.
    """

    def __init__(self, before: SourceRun, layout: Joined, at: int) -> None:
        self._before, self._cut = before, at
        super().__init__(
            name=before.name,
            layout=layout,
            shuffle=before.shuffle,  # with the numbers that it had: they are part of the identity
            epochs=None,
            seed=before.seed,
        )
        old, rows = before.phases, int(layout.phases.rows[0])
        self._running, self._inside = old.place(at)  # the epoch that is under way
        bridges = before.bridges if isinstance(before, GrownRun) else ()
        self._bridged = self._inside > 0 or (at > 0 and self._running in bridges)
        self._epoch = self._running + (self._inside > 0)  # the first that is not the old run's
        own = (self._epoch,) if self._bridged else ()
        self.bridges: tuple[int, ...] = (*(b for b in bridges if b < self._epoch), *own)
        length = old.start(self._running + 1) - old.start(self._running)
        left = length - self._inside + rows - self._old_rows
        keep = old.first < at
        bridge = [(at, self._epoch, left)] if self._bridged else []
        later = (at + left, self._epoch + 1, rows) if self._bridged else (at, self._epoch, rows)
        first, epoch, size = zip(*bridge, later, strict=True)
        self.phases = Phases(
            np.concatenate([old.first[keep], first]).astype(np.int64),
            np.concatenate([old.epoch[keep], epoch]).astype(np.int64),
            np.concatenate([old.rows[keep], size]).astype(np.int64),
        )
        self._blocks = [self._blocks[0]] * len(self.phases)
        self._io_blocks = [self._io_blocks[0]]

    def epochs_in(self, examples: int) -> int:
        """Complete epochs of the first examples; one that was gone on with is one."""
        epoch = self.phases.place(examples)[0]
        return epoch - sum(bridge <= epoch for bridge in self.bridges)

    def end_of(self, epochs: int) -> int:
        """Examples of so many epochs; the last of them ends with its bridge."""
        last = epochs - 1
        for bridge in self.bridges:
            last += bridge <= last + 1
        return self.phases.start(last + 1) if epochs else 0

    @property
    def _old_rows(self) -> int:
        return self._before.rows

    @property
    def identity(self) -> dict[str, Any]:
        """Names the rows and their order: equal for equal ones."""
        return {**super().identity, "before": self._before.identity, "at": self._cut}

    def order(self, epoch: int) -> Order:
        """The order of one epoch."""
        if epoch < self._epoch:
            return self._before.order(epoch)
        if epoch > self._epoch or not self._bridged:
            return super().order(epoch)
        known = self._orders.get(epoch)
        if known is None:
            part = self.layout.parts[-1]  # type: ignore[attr-defined]
            blocks = part.blocks()
            fresh: Order = identity(blocks.rows)
            if self.shuffle is not None and blocks.rows:
                name = f"{self.name}/{self._old_rows}"
                fresh = self.shuffle.order(blocks, self.seed, epoch, name)
            old = self._before.order(self._running)
            known = Bridge(old, self._inside, fresh, self._old_rows)
            self._orders = self._orders | {epoch: known}
        return known

    def _rows_at(self, epoch: Int64, inside: Int64) -> Int64:
        """The rows at places of epochs [N]: the old run's, the bridge's, or those of all parts."""
        row, later = np.empty_like(inside), self._epoch + self._bridged
        old, bridge = epoch < self._epoch, (epoch >= self._epoch) & (epoch < later)
        if old.any():
            row[old] = self._before._rows_at(epoch[old], inside[old])
        if bridge.any():
            row[bridge] = self.order(self._epoch).map(inside[bridge])
        new = ~(old | bridge)
        if new.any():
            row[new] = super()._rows_at(epoch[new], inside[new])
        return row

    def index(self, epoch: int, rows: Int64) -> Int64:
        """The index of rows in an epoch [N]; -1 for rows that it does not have."""
        found = self.order(epoch).inverse(rows)
        return np.where(found < 0, -1, found + self.phases.start(epoch))


def check_grown(name: str, old: Reader, new: Reader) -> None:
    """Refuse a store that is not the old one with documents behind it."""
    before, after = old.manifest, new.manifest
    more = after.documents - before.documents
    if more <= 0 or after.parts[: len(before.parts)] != before.parts:
        raise ConfigError(
            f"edit.append.{name}: found a store of {after.documents:,} documents, which is not the "
            f"one of {before.documents:,} with others appended. Open the store again after "
            "tokenloom.build(..., append=True)."
        )


def grown_run(
    before: SourceRun, spec: LayoutSpec, choice: Choice | None, reader: Reader, at: int
) -> GrownRun:
    """The run of a source from item `at` on, with the documents that its store has now."""
    if isinstance(choice, SelectSpec) or isinstance(spec, SpliceSpec):
        raise ConfigError(
            f"edit.append.{before.name}: its documents were selected one by one, so there are no "
            "new ones. Add them as a source of their own: add={...}."
        )
    known, layout = before.layout.line, before.layout
    first = known.reader.manifest.documents
    every = choose_documents(reader, choice).documents if choice else None
    fresh = np.arange(first, reader.manifest.documents) if every is None else every[every >= first]
    line: Line = WholeLine(reader)
    if every is not None:
        old, _ = known.bounds(0, known.documents)
        both = np.concatenate([old, fresh])
        line = ChosenLine(reader, both)
    added = make_layout(spec, ChosenLine(reader, fresh))
    parts = layout.parts if isinstance(layout, Joined) else (layout,)
    return GrownRun(before, Joined([*parts, added], line), at)
