"""One phase of a spliced run: its documents, their quotas, and what each row shows.

Slots: which splices share a frame.

Documents that lie together, and of which the same number of splices fits into a frame,
form a *cell*. A cell of U units with m units per frame has R = ceil(U / m) rows. Row r holds unit r
of each of m stretches of R units, so the splices of a row are far apart in the document. Every
epoch rotates the stretches against each other, so that each splice meets others. All of it is
arithmetic and has an inverse.

Worked example: 7 units, 3 per frame, epoch 0: R = 3, rows 0 3 6 | 1 4 | 2 5.

With one splice per frame, m is 1 and row r is unit r.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.layout.splice.choices import Balanced, Choices, Clipped, choices_for
from tokenloom.layout.splice.shares import Edges, framed, quotas, temperature_weights
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.splice.turns import Axes, Duplicates, Edged, Even, Way, Wrapped, jitter
from tokenloom.random.keys import GOLDEN

EXACT = 1000  # times sqrt(documents): examples of a stream's epoch, for shares right to 0.1 %


class Shown(NamedTuple):
    """The splices that some rows show.

    Attributes:
        frame: index of the row among those requested, ascending [N].
        place: the document, by its place on the line [N].
        t, start, length, at: see `tokenloom.layout.splice.choices.Splices` [N].
    """

    frame: Int64
    place: Int64
    t: Int64
    start: Int64
    length: Int64
    at: Int64


@dataclass(frozen=True, eq=False)
class _Kind:
    """Documents with the same choices, visited in the same way."""

    choices: Choices
    way: Way
    duplicates: Duplicates | None


class SplicePhase:
    """Documents, quotas and rows of one phase.

    Attributes:
        slots: which units are in which row.
        packed: whether splices are placed side by side.
        length: tokens of each document, 0 if it is not in this phase [documents].
        content: K of each document, 0 if it is not spliced; with edge="clip" it may exceed the
            document's length [documents].
        choices: number of choices of each document [documents].
        shown: number of units it can show: choices, or pairs of clipped choices [documents].
        quota: units of each document per epoch [documents].
        weights: the quotas are in proportion to these [documents].

    Args:
        spec: how to splice.
        length: tokens of each document, including an inserted one [documents].
        document: its number in the store [documents].
        block: storage-local block of each document [documents].
        content_length: K, None for as many tokens as fit.
        active: how many documents are in this phase, from the first on.
    """

    def __init__(
        self,
        spec: SpliceSpec,
        length: Int64,
        document: Int64,
        block: Int64,
        content_length: int | None,
        active: int,
    ) -> None:
        self._spec, self._document = spec, document
        self.length = np.where(np.arange(len(length)) < active, length, 0)
        self.packed = spec.fill == "pack"
        strides = spec.per_document("doc_strides", len(length))
        self._strides = np.array(strides or [spec.content_stride] * len(length), np.int64)
        alphas = spec.per_document("doc_alphas", len(length))
        self._alphas = np.array(alphas or [spec.alpha] * len(length), np.float64)
        self._axes = Axes(spec) if spec.shuffle_content or spec.shuffle_offsets else None
        self._by_stride = {
            stride: choices_for(spec, content_length, stride)
            for stride in np.unique(self._strides).tolist()
        }
        self.content, self.choices = np.zeros_like(length), np.zeros_like(length)
        self._pairs = np.zeros_like(length)
        for stride, choices in self._by_stride.items():
            here = self._strides == stride
            self.content[here] = choices.content(self.length[here])
            self.choices[here] = choices.count(self.length[here])
            if self.packed and isinstance(choices, Clipped):
                self._pairs[here] = self.choices[here] - choices.slots(self.length[here])
        self._duplicates = self._doubled()
        self.shown = self.choices - self._pairs
        for stride, doubled in self._duplicates.items():
            self.shown[self._strides == stride] += doubled.extra
        self._check_any(content_length)
        cells = np.maximum(np.minimum(self.content, self.length), 1)  # of a unit: what it has
        together = spec.seq_len // cells if self.packed else np.ones_like(length)
        self.weights, self.quota = self._shares(block, together)
        if not self.quota.any():
            raise ConfigError(
                f"max_epochs: found {spec.max_epochs}, which leaves no examples: no document has "
                f"more than {int(self.shown.max())} choices. Raise it."
            )
        self.slots = Slots(self.quota, block, together)
        self._kinds, self._kind_of = self._make_kinds()

    # -- how often -------------------------------------------------------------------------

    def _doubled(self) -> dict[int, Duplicates]:
        if self._spec.edge_mode != "duplicate" or not (self._alphas > 0).any():
            return {}
        return {
            stride: Duplicates(
                self._spec,
                choices,
                self._alphas[self._strides == stride],
                stride,
                self.length[self._strides == stride],
                self._document[self._strides == stride],
            )
            for stride, choices in self._by_stride.items()
        }

    def _check_any(self, content_length: int | None) -> None:
        if self.shown.any():
            return
        spec, longest = self._spec, int(self.length.max(initial=0))
        raise ConfigError(
            f"splice: none of {len(self.length):,} documents fits: the longest has {longest:,} "
            f"tokens; content_length={content_length}, seq_len={spec.seq_len}, "
            f"min_copy_len={spec.min_copy_len}, adaptive_k={spec.adaptive_k}. Lower content_length "
            "or min_copy_len, set adaptive_k=True, or select longer documents."
        )

    @property
    def _wraps(self) -> bool:
        """Whether short documents repeat, from the first choice on, until all quotas are equal."""
        spec = self._spec
        special = spec.doc_weights or spec.doc_groups or spec.epoch_length or spec.max_epochs
        return spec.balance_mode == "by_document" and not special

    def _shares(self, block: Int64, together: Int64) -> tuple[list[int], Int64]:
        """The weight and the quota of each document."""
        spec, shown, count = self._spec, self.shown, len(self.shown)
        if self._wraps:
            fits = (shown > 0).astype(np.int64)
            return fits.tolist(), fits * shown.max()
        if spec.sampler == "enumerate":
            return shown.tolist(), shown
        by_starts = spec.balance_mode == "by_coverage" or spec.balance_measure == "starts"
        measure = shown if by_starts else np.where(shown > 0, self.length, 0)
        tau = {"by_coverage": 1.0, "by_document": 0.0}.get(spec.balance_mode, spec.balance_tau)
        weights = temperature_weights(
            measure,
            tau,
            spec.per_document("doc_weights", count),
            spec.per_document("doc_groups", count),
        )
        caps = None
        if spec.max_epochs is not None:
            caps = np.floor(shown * spec.max_epochs).astype(np.int64)
        if spec.epoch_length is not None:
            groups = np.where(
                together > 1, block * (spec.seq_len + 1) + together, ~np.arange(count)
            )
            return weights, framed(weights, spec.epoch_length, groups, together, caps)
        return weights, quotas(weights, int(shown.sum()) * self._rounds(weights), caps)

    def _rounds(self, weights: list[int]) -> int:
        """How often an epoch repeats all choices: for a stream, enough to make shares exact."""
        once, whole = int(self.shown.sum()), sum(weights)
        exact = all(once * weight % max(1, whole) == 0 for weight in weights)
        if self._spec.sampler != "stream" or exact:
            return 1
        used = int((self.shown > 0).sum())
        return -(-EXACT * (math.isqrt(used) + 1) // once)

    def _make_kinds(self) -> tuple[list[_Kind], Int64 | None]:
        """The kinds, and the kind of each document (None: all documents are of the first kind)."""
        continuous = (self._alphas > 0) & (self._spec.edge_mode == "continuous")
        if self._spec.sampler == "enumerate":
            continuous[:] = False
        names: dict[tuple[int, float, float], int] = {}
        which = np.zeros(len(self.length), np.int64)
        if not continuous.any() and len(self._by_stride) == 1:
            names[int(self._strides[0]), 0.0, 0.0] = 0
        else:
            columns = zip(self._strides, self._alphas, continuous, strict=True)
            for place, (stride, alpha, edged) in enumerate(columns):
                size = int(self.length[place]), int(self.content[place])
                scale = Edges.scale_for(*size, stride, alpha) if edged and size[1] > 1 else 0.0
                alike = int(stride), float(alpha) if scale else 0.0, scale
                which[place] = names.setdefault(alike, len(names))
        return [self._kind(*name) for name in names], which if len(names) > 1 else None

    def _kind(self, stride: int, alpha: float, scale: float) -> _Kind:
        choices = self._by_stride[stride]
        way: Way
        if scale:
            content = int(self.content.max())
            edges = Edges(content, stride, alpha, scale)
            # a document shorter than K has a single choice, whatever its weight
            room = np.where(self.content == content, self.length - self.content, 0)
            way = Edged(edges, self.shown, self.quota, room)
        else:
            way = (Wrapped if self._wraps else Even)(self.shown, self.quota)
        return _Kind(choices, way, self._duplicates.get(stride))

    # -- what ------------------------------------------------------------------------------

    def show(self, epoch: Int64, rows: Int64) -> Shown:
        """The splices of each row."""
        frame, place, unit = self.slots.units(rows, epoch)
        every, turn = np.arange(len(frame)), epoch[frame]
        if self._kind_of is None or not len(frame):
            shown = self._show(self._kinds[0], every, place, unit, turn)
            same = shown.frame is every  # one splice for each unit
            return shown._replace(frame=frame if same else frame[shown.frame])
        kind = self._kind_of[place]
        columns = every, place, unit, turn
        parts = [
            self._show(self._kinds[number], *(column[kind == number] for column in columns))
            for number in np.unique(kind).tolist()
        ]
        together = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(together[0], kind="stable")
        shown = Shown(*(column[order] for column in together))
        return shown._replace(frame=frame[shown.frame])

    def _show(self, kind: _Kind, frame: Int64, place: Int64, unit: Int64, epoch: Int64) -> Shown:
        """The splices of units of documents of one kind; `frame` numbers the units."""
        shown = choice = kind.way.choose(place, unit, epoch)
        if kind.duplicates is not None:
            choice = kind.duplicates.original(self._within(kind, place), choice)
        axes = self._axes
        if self._pairs.any():  # the second choice of a slot comes right after the first
            slots = self.choices[place] - self._pairs[place]
            if axes is not None:  # both stay together, so slots change places
                choice = axes.starts(choice, slots, self._document[place], epoch)
            both = 1 + (choice < self._pairs[place])
            twice = np.repeat(np.arange(len(frame)), both)
            second = np.append(False, twice[1:] == twice[:-1])
            frame, place, unit, epoch = (x[twice] for x in (frame, place, unit, epoch))
            choice, axes = choice[twice] + np.where(second, slots[twice], 0), None
        length = self.length[place]
        if axes is None:
            a, b = kind.choices.place(choice, length)
        else:
            document = self._document[place]
            a, b = axes.places(kind.choices, choice, length, document, epoch)
        if self._spec.offset_jitter and not self.packed:
            visit = kind.way.visits(place, unit, shown, epoch)
            room = self._spec.seq_len - self.content[place]
            b = jitter(self._spec, visit, room, self._document[place], choice)
        return Shown(frame, place, *kind.choices.splice(a, b, length))

    # -- how often, in all -----------------------------------------------------------------

    def splices(self, first: int, last: int) -> Int64:
        """How often the epochs [first, last) show each document [documents]."""
        found = self.quota * (last - first)
        paired = np.flatnonzero((self._pairs > 0) & (self.quota > 0))
        way = self.way
        if len(paired) and way is not None:
            columns = paired, np.zeros_like(paired), self._pairs[paired]
            found[paired] += way.shown(*columns, last) - way.shown(*columns, first)
        return found

    def _within(self, kind: _Kind, place: Int64) -> Int64:
        """Places counted among the documents of the kind's stride."""
        stride = next(s for s, choices in self._by_stride.items() if choices is kind.choices)
        rank: Int64 = np.cumsum(self._strides == stride) - 1
        return rank[place]

    def rows_of(self, place: int, epoch: int, t: int | None) -> Int64:
        """The rows of an epoch that show a document, or one start of it."""
        units = np.arange(int(self.quota[place]))
        if t is not None:
            units = np.array(self._units_of(place, epoch, t), np.int64)
        same = np.full(len(units), place), units, np.full(len(units), epoch)
        return self.slots.rows_of(*same) if len(units) else units

    def _units_of(self, place: int, epoch: int, t: int) -> list[int]:
        """Units of a document that show start t, by bisection where starts ascend."""
        if not self.quota[place]:
            return []
        kind = self._kinds[0 if self._kind_of is None else int(self._kind_of[place])]
        if self._axes is not None or kind.duplicates is not None:
            every = np.arange(int(self.quota[place]))
            same = np.full(len(every), place), every, np.full(len(every), epoch)
            found = self._show(kind, every, *same)
            return every[found.frame[found.t == t]].tolist()
        length = np.array([self.length[place]])

        def start(choice: int) -> int:
            a, b = kind.choices.place(np.array([choice]), length)
            return int(kind.choices.splice(a, b, length).t[0])

        count, shown = int(self.choices[place]), int(self.shown[place])
        numbers = range(count)
        low, high = (bisect_left(numbers, bound, key=start) for bound in (t, t + 1))
        slots = {choice % shown for choice in range(low, high)}  # paired choices share a slot
        return sorted(u for slot in slots for u in kind.way.examples(place, slot, epoch))

    def choices_of(self, place: int) -> Choices:
        """The choices of a document."""
        return self._by_stride[int(self._strides[place])]

    @property
    def starts(self) -> list[int]:
        """Number of starts of each document."""
        found = np.zeros_like(self.choices)
        for stride, choices in self._by_stride.items():
            here = np.flatnonzero((self._strides == stride) & (self.choices > 0))
            found[here] = choices.place(self.choices[here] - 1, self.length[here])[0] + 1
        return found.tolist()

    @property
    def most_offsets(self) -> int:
        """Most offsets that any start has: it is the first or the last start of a document."""
        last = np.array(self.starts) - 1
        found = [
            choices.offsets(start[here], self.length[here]).max(initial=0)
            for stride, choices in self._by_stride.items()
            for here in [(self._strides == stride) & (self.choices > 0)]
            for start in (0 * last, last)
        ]
        return int(max(found))

    # -- tokens ----------------------------------------------------------------------------

    @property
    def row_tokens(self) -> int | None:
        """Tokens of every row; None where rows differ."""
        spec = self._spec
        swept = spec.content_start_mode != "coverage_balanced" and spec.mode == "splice"
        sizes = np.unique(self.content[self.quota > 0])
        if swept or self.packed or spec.edge == "clip" or len(sizes) != 1:
            return None
        return int(sizes[0])

    @property
    def way(self) -> Even | Wrapped | None:
        """How all documents visit their choices, if that is the same way and the choices ascend."""
        way, alike = self._kinds[0].way, len({type(kind.way) for kind in self._kinds}) == 1
        ascend = alike and self._axes is None and not self._duplicates
        return way if ascend and isinstance(way, Even | Wrapped) else None

    @property
    def is_even(self) -> bool:
        """Whether all units of a document have the same stored tokens."""
        plain = all(type(choices) is Balanced for choices in self._by_stride.values())
        return plain and self._spec.bos_id is None

    def unit_tokens(self, place: Int64, choice: Int64) -> Int64:
        """Stored tokens of the unit that shows a choice [N]; pairs of clipped choices are one."""
        found = np.zeros_like(choice)
        for stride, choices in self._by_stride.items():
            here = np.flatnonzero(self._strides[place] == stride)
            paired = here[choice[here] < self._pairs[place[here]]]
            for some, moved in ((here, 0), (paired, self.shown[place[paired]])):
                length = self.length[place[some]]
                a, b = choices.place(choice[some] + moved, length)
                splice = choices.splice(a, b, length)
                inserted = (splice.start == 0) & (self._spec.bos_id is not None)
                found[some] += splice.length - inserted
        return found

    def breaks(self, place: Int64) -> Int64 | None:
        """Choices of documents between which tokens of units change evenly, ascending [N, breaks].

        None if that is not known of these choices.
        """
        if not all(isinstance(choices, Balanced) for choices in self._by_stride.values()):
            return None
        shown, own = self.shown[place, None], np.zeros((len(place), 1), np.int64)
        for stride, choices in self._by_stride.items():
            assert isinstance(choices, Balanced)
            here = np.flatnonzero(self._strides[place] == stride)
            found = choices.breaks(self.length[place[here]])
            own = np.broadcast_to(own, (len(place), found.shape[1])).copy()
            own[here] = found
        ends = [0 * shown, self._pairs[place, None], shown]
        every: Int64 = np.concatenate([*ends, own, own - shown], axis=1)  # also of the second
        return np.sort(np.clip(every, 0, shown), axis=1)

    @property
    def steady(self) -> bool:
        """Whether all epochs have the same number of tokens."""
        spec, used = self._spec, self.quota > 0
        if spec.content_start_mode == "coverage_balanced" and spec.edge == "inside":
            return spec.bos_id is None
        return bool((self.quota[used] % self.shown[used] == 0).all())


class Slots:
    """The units of documents in rows.

    Args:
        quota: units of each document [documents].
        block: storage-local block of each document, ascending [documents].
        together: how many splices of each document fit into a frame [documents].
    """

    def __init__(self, quota: Int64, block: Int64, together: Int64) -> None:
        together = np.where(quota > 0, np.maximum(together, 1), 1)
        self._one = bool((together == 1).all())
        self._order = np.lexsort((np.arange(len(quota)), together, block))
        self._place = np.empty_like(self._order)  # document → its position in the order
        self._place[self._order] = np.arange(len(quota))
        self._first_unit = np.concatenate([[0], np.cumsum(quota[self._order])])
        b, m = block[self._order], together[self._order]
        begins = np.flatnonzero(np.append(True, (np.diff(b) != 0) | (np.diff(m) != 0)))
        self._cell_unit = self._first_unit[np.append(begins, len(quota))]
        self._m, units = m[begins], np.diff(self._cell_unit)
        self._r = -(-units // self._m)
        self._cell_row = np.concatenate([[0], np.cumsum(self._r)])
        blocks = int(block[-1]) + 1 if len(block) else 0
        rows = np.bincount(b[begins], self._r, minlength=blocks).astype(np.int64)
        self.block_row: Int64 = np.concatenate([[0], np.cumsum(rows)])

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return int(self._cell_row[-1])

    def units(self, rows: Int64, epoch: Int64) -> tuple[Int64, Int64, Int64]:
        """The units in each row: (index into `rows`, document, which of its units) [units]."""
        if self._one:
            frame, unit = np.arange(len(rows)), rows
        else:
            cell = np.searchsorted(self._cell_row, rows, side="right") - 1
            many, r = self._m[cell], self._r[cell]
            frame = np.repeat(np.arange(len(rows)), many)
            j = np.arange(len(frame)) - (np.cumsum(many) - many)[frame]
            r, cell = r[frame], cell[frame]
            turned = rows[frame] - self._cell_row[cell] + j * self._turn(epoch[frame], r)
            unit = self._cell_unit[cell] + j * r + turned % r
            keep = unit < self._cell_unit[cell + 1]
            frame, unit = frame[keep], unit[keep]
        place = np.searchsorted(self._first_unit, unit, side="right") - 1
        return frame, self._order[place], unit - self._first_unit[place]

    def rows_of(self, document: Int64, unit: Int64, epoch: Int64) -> Int64:
        """The row that holds each unit of a document: the inverse of `units` [N]."""
        found = self._first_unit[self._place[document]] + unit
        cell = np.searchsorted(self._cell_unit, found, side="right") - 1
        r = self._r[cell]
        j, turned = np.divmod(found - self._cell_unit[cell], r)
        return self._cell_row[cell] + (turned - j * self._turn(epoch, r)) % r

    @staticmethod
    def _turn(epoch: Int64, rows: Int64) -> Int64:
        """How far adjacent stretches are rotated: golden-ratio steps, none in epoch 0 [N]."""
        fraction = (epoch.astype(np.uint64) * np.uint64(GOLDEN)) >> np.uint64(33)  # 31 bits
        return (fraction.astype(np.int64) * (rows & 0xFFFFFFFF)) >> 31
