"""`MixedRun`, several runs as one: index → (source, item in its order), and back.

Indices are computed a chunk at a time, with one cut and one sort, and the
stretch is kept while it is in use. Each source decides on its own which row an item is.

(epoch, row) of items of many sources at once, for requests that take a few items of each.

The items of a source come in order, so the rows of its next items will be asked for soon.
They are computed a stretch at a time, by the source itself, and kept until the source leaves the
stretch. A request of thousands of examples from a thousand sources then looks up a slice for each,
where asking every source for eight rows would cost twenty NumPy calls for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import integer
from tokenloom.arrays import Int64, checked, grouped, with_newest
from tokenloom.layout.layout import Blocks
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.mixture.stages import Stage, TimedSource
from tokenloom.order import Order
from tokenloom.order.block_order import golden
from tokenloom.order.costs import TokenCount
from tokenloom.order.run import Consumed, Placed, SourceRun
from tokenloom.order.shuffle import Shuffle
from tokenloom.store.handles import lazy

NEVER = 1 << 62  # no index of a run

BLOCK_ROWS = 128  # of a mix that is shuffled in blocks as a whole

CLOSE, WIDE = 1 << 12, 1 << 20  # rows per item, and in all, that cost less than items one by one


class MixedRun:
    """The run of several sources; see `tokenloom.order.run.Run`.

    Attributes:
        names: names of the sources, as listed.
        sources: the endless run of each source.
        stages: what changes at which index; the first starts at 0.
        shuffle: shuffle of the run as a whole; None keeps the order of the mix.
        timed: the sources as they are after the last stage, for one more edit.
    """

    def __init__(
        self,
        sources: Sequence[SourceRun],
        stages: Sequence[Stage],
        *,
        seed: int,
        shuffle: Shuffle | None = None,
        take: int | None = None,
        timed: Sequence[TimedSource] = (),
    ) -> None:
        least = limits().mix_chunk_least_items
        most_epochs = limits().mix_chunk_epochs
        self.sources, self.stages, self.timed = tuple(sources), tuple(stages), tuple(timed)
        self.names = tuple(source.name for source in sources)
        whole, self._take = stages[-1].end, take
        self.n = _least(whole, take)
        self.lanes = max(source.lanes for source in sources)
        laned = [n for n, source in enumerate(sources) if source.lanes > 1]
        self._lanes_from = min((at for n in laned for at in _begins(stages, n)), default=0)
        # small sources have one order for each of many epochs, so smaller chunks are computed
        few = [source.rows for source in sources if source.goes_by_epochs]
        chunks = (max(least, most_epochs * rows) for rows in few)
        self._chunk = max(1, min([limits().mix_chunk_items, *chunks]))
        self.seq_len, self.width = sources[0].seq_len, sources[0].width
        self.shuffle = shuffle
        longest = min(stage.merge.longest for stage in stages)
        self._bound = longest if self.n is None else self.n
        self._order = _shuffled(shuffle, whole, seed)
        self._at = np.array([stage.at for stage in stages], np.int64)
        self._tokens = [TokenCount(source) for source in sources]
        nothing = np.zeros(len(sources), np.int64)
        self._counted = 0, 0, nothing, nothing
        self._chunks: dict[tuple[int, int], tuple[Int64, Int64]] = {}

    # -- index → item ----------------------------------------------------------------------

    def pick(self, indices: Int64) -> tuple[Int64, Int64]:
        """(source, item) of each index [N]."""
        wanted = checked(indices, self._bound, "index")
        if self._order is not None:
            wanted = self._order.map(wanted)
        source, item = np.empty_like(wanted), np.empty_like(wanted)
        stage = np.searchsorted(self._at, wanted, side="right") - 1
        # stages may start inside a chunk, so a stretch is named by both
        for number, here in grouped(stage):
            for chunk, inner in grouped(wanted[here] // self._chunk):
                part = here[inner]
                source[part], item[part] = self._picked(number, chunk, wanted[part])
        return source, item

    def _picked(self, number: int, chunk: int, wanted: Int64) -> tuple[Int64, Int64]:
        known = self._chunks.get((number, chunk))
        few = len(wanted) <= limits().mix_single_items
        if known is None and few and not self._follows(number, chunk):
            pairs = [self.stages[number].order.items(i, i + 1) for i in wanted.tolist()]
            source, item = (np.concatenate(column) for column in zip(*pairs, strict=True))
            return source, item
        first = max(self.stages[number].at, chunk * self._chunk)
        if known is None:
            last = self._last(number, (chunk + 1) * self._chunk)
            known = self.stages[number].order.items(first, last)
            self._chunks = with_newest(
                self._chunks, (number, chunk), known, limits().kept_mix_chunks
            )
        return known[0][wanted - first], known[1][wanted - first]

    def _follows(self, number: int, chunk: int) -> bool:
        """Whether all of a chunk is likely to be requested."""
        return chunk == 0 or (number, chunk - 1) in self._chunks

    def _last(self, number: int, wanted: int) -> int:
        """The end of a stage, at most `wanted`."""
        ends = [wanted, self.stages[number].end]
        if number + 1 < len(self.stages):
            ends.append(self.stages[number + 1].at)
        return min(end for end in ends if end is not None)

    def placed(self, indices: Int64) -> list[Placed]:
        """See `Run`."""
        source, item = self.pick(indices)
        groups = list(grouped(source))
        if len(groups) < limits().min_mix_table_sources or len(
            source
        ) > limits().mix_full_items * len(groups):
            runs = [(number, self.sources[number], here, item[here]) for number, here in groups]
            return [Placed(*one, *one[1].locate(one[3])) for one in runs]
        places = [here for _, here in groups]
        edges = np.cumsum([0, *map(len, places)]).tolist()
        ordered = item[np.concatenate(places)]
        numbers = [number for number, _ in groups]
        rows = self._rows.locate(numbers, edges, ordered)
        return [
            Placed(number, self.sources[number], here, ordered[a:b], epoch, row)
            for (number, here), a, b, (epoch, row) in zip(
                groups, edges[:-1], edges[1:], rows, strict=True
            )
        ]

    @lazy
    def _rows(self) -> RowTables:
        return RowTables(self.sources)

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """(epoch, row) of each index, in its source [N]."""
        epoch, row = np.empty_like(indices), np.empty_like(indices)
        for part in self.placed(indices):
            epoch[part.at], row[part.at] = part.epoch, part.row
        return epoch, row

    def spans(self, indices: Int64) -> Spans:
        """See `Run`."""
        placed = self.placed(indices)
        return joined_spans(placed, [part.spans() for part in placed], self.width)

    # -- item → index ----------------------------------------------------------------------

    def index(self, source: int, items: Int64) -> Int64:
        """The index of each item of a source; -1 for items that never come [N]."""
        out = np.full(len(items), -1, np.int64)
        stages = np.array([self._stage_of(source, item) for item in items.tolist()], np.int64)
        for number, here in grouped(stages):
            order = np.argsort(items[here], kind="stable")
            ranked = items[here[order]]
            come = self._coming(number, source, ranked)
            out[here[order[:come]]] = self._indices(number, source, ranked[:come])
        found = out >= 0
        if self._order is not None and found.any():
            out[found] = self._order.inverse(out[found])
        if self.n is not None:
            out[out >= self.n] = -1
        return out

    def _indices(self, number: int, source: int, ranked: Int64) -> Int64:
        """The index of each of some ascending items of a source that come in a stage [N]."""
        stage = self.stages[number]
        if len(ranked) > limits().mix_single_items:
            ends = (int(ranked[0]), int(ranked[-1]))
            first, last = (stage.merge.index(source, item) for item in ends)
            low, high = stage.around(first, last + 1)
            if high - low < min(CLOSE * len(ranked), WIDE):  # all between them cost less
                who, what = stage.order.items(low, high)
                mine = np.flatnonzero(who == source)
                mine = mine[np.argsort(what[mine], kind="stable")]
                return low + mine[np.searchsorted(what[mine], ranked)]
        return np.array([stage.order.index(source, item) for item in ranked.tolist()], np.int64)

    def _coming(self, number: int, source: int, ranked: Int64) -> int:
        """How many of some ascending items of a source come in a stage: the first ones do."""
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high) // 2
            comes = self._comes(number, source, int(ranked[middle]))
            low, high = (middle + 1, high) if comes else (low, middle)
        return low

    def _comes(self, number: int, source: int, item: int) -> bool:
        """Whether an item of a source comes before the end of a stage."""
        stage, end = self.stages[number], self._last(number, NEVER)
        shown = stage.merge.clocks[source].costs.n
        if shown is not None and item >= shown:
            return False
        # a block has the items of the merge, in another order; no sums but those of the item
        return end == NEVER or stage.merge.index(source, item) < end

    def reaches(self, source: int, item: int) -> bool:
        """Whether an item of a source, or a later one, may come."""
        number = self._stage_of(source, item)
        if not self._comes(number, source, item):
            return False
        if self.n is None or self._order is not None:
            return True
        stage = self.stages[number]
        return stage.settled(stage.merge.index(source, item)) <= self.n

    def settled(self, index: int) -> int:
        """No later item of the source at an index comes before this one."""
        if self._order is not None:
            return 0
        stage = self.stages[int(np.searchsorted(self._at, index, side="right")) - 1]
        return stage.settled(index)

    def items_before(self, source: int, index: int) -> int:
        """The number of leading items of a source that all come before an index."""
        if self._order is not None:
            return 0
        stage = self.stages[int(np.searchsorted(self._at, index, side="right")) - 1]
        counts = stage.order.cut(stage.order.whole(index))
        return int(counts[source]) if source < len(counts) else 0

    def moment(self, source: int, item: int) -> float:
        """The virtual time of an item of a source."""
        return self.stages[self._stage_of(source, item)].merge.time(source, item)

    def _stage_of(self, source: int, item: int) -> int:
        """The stage in which an item of a source comes, if it comes at all."""
        for number in range(len(self.stages) - 1, 0, -1):
            if item >= self.stages[number].merge.clocks[source].first:
                return number
        return 0

    # -- what it is ------------------------------------------------------------------------

    @property
    def examples_by_stage(self) -> list[int | None]:
        """How many examples there are if each stage is the last; None is endless."""
        return [_least(stage.end, self._take) for stage in self.stages]

    def consumed(self, examples: int) -> list[Consumed]:
        """What the first `examples` take from each source."""
        integer("examples", examples, most=self._bound)
        if self._order is not None:
            first, counts = 0, np.zeros(len(self.sources), np.int64)
        else:
            stage = self.stages[int(np.searchsorted(self._at, examples, side="right")) - 1]
            first = stage.order.whole(examples)
            counts = stage.order.cut(first)
            late = len(self.sources) - len(counts)  # sources that join later
            counts = np.append(counts, np.zeros(late, np.int64)) if late else counts
        rows, tokens = self._drawn(first, examples)
        rows = rows + counts
        return [
            Consumed(run.name, n, known.upto(k) + more, run.epochs_in(n))
            for run, known, k, more, n in zip(
                self.sources,
                self._tokens,
                counts.tolist(),
                tokens.tolist(),
                rows.tolist(),
                strict=True,
            )
        ]

    def _drawn(self, first: int, last: int) -> tuple[Int64, Int64]:
        """Rows and tokens of each source among indices [first, last), counted one by one.

        A later request with the same `first` only counts what came since.
        """
        chunk = limits().mix_chunk_items
        begin, low, rows, tokens = self._counted
        if begin != first or low > last:
            low, rows, tokens = first, np.zeros_like(rows), np.zeros_like(tokens)
        for at in range(low, last, chunk):
            source, item = self.pick(np.arange(at, min(at + chunk, last)))
            rows = rows + np.bincount(source, minlength=len(rows))
            tokens = tokens.copy()
            for number, here in grouped(source):
                tokens[number] += self._tokens[number].of(item[here])
        self._counted = first, last, rows, tokens
        return rows, tokens

    def tokens_in(self, examples: int) -> int:
        """Tokens of the first `examples` of the run."""
        return sum(one.tokens for one in self.consumed(examples))

    def fractions(self, indices: Int64) -> NDArray[np.float64] | None:
        """Lane over lanes of each index [N]; None for a run without lanes.

        Rows of a source without lanes are spread evenly between the others. Indices before the
        first source with lanes joins have none, so nothing changes there.
        """
        if self.lanes == 1:
            return None
        source, item = self.pick(indices)
        out = np.empty(len(indices), np.float64)
        for number, here in grouped(source):
            found = self.sources[number].fractions(item[here])
            out[here] = golden(item[here]) if found is None else found
        out[indices < self._lanes_from] = 0.0  # as if without lanes: they joined later
        return out

    def fraction_period(self, first: int, last: int) -> int:
        """See `Run`: sources come between each other."""
        return 0

    def warn_if_too_large(self, capacity: int) -> None:
        """Warn when the shuffle windows of a source do not fit into the cache."""
        for source in self.sources:
            source.warn_if_too_large(capacity)


def _least(*bounds: int | None) -> int | None:
    """The smallest of some bounds; None is no bound."""
    return min((bound for bound in bounds if bound is not None), default=None)


def joined_spans(parts: Sequence[Placed], spans: Sequence[Spans], width: int) -> Spans:
    """The spans of examples of several sources, in the order of the request."""
    if not parts:
        return Spans.none(width)
    if parts[0].at is None:
        return spans[0]
    places = [part.at for part in parts if part.at is not None]
    joined = Spans.joined(spans, places)
    which = np.empty(sum(map(len, places)), np.int32)
    for number, place in enumerate(places):
        which[place] = number
    return joined.of_sources(which, tuple(part.run.name for part in parts))


def _begins(stages: Sequence[Stage], source: int) -> list[int]:
    """The indices of the stages in which a source has items."""
    known = [stage for stage in stages if source < len(stage.merge.clocks)]
    return [stage.at for stage in known if stage.merge.clocks[source].costs.n != 0]


def _shuffled(shuffle: Shuffle | None, n: int | None, seed: int) -> Order | None:
    """The order of a mixed run that is shuffled as a whole."""
    if shuffle is None:
        return None
    if n is None:
        raise TypeError(
            "shuffle: this mix is endless, and only a finite one can be shuffled as a whole. "
            "Shuffle the sources instead, or give them epochs."
        )
    size = getattr(shuffle, "io_block_size", None) or BLOCK_ROWS
    blocks = Blocks.equal(n, size)
    return shuffle.resolve(blocks, float(size)).order(blocks, seed, 0, "mix")


Table = tuple[int, Int64, Int64]

"""The number of a stretch, and the epoch and the row of each of its items."""


class RowTables:
    """The rows of some stretches, one for each source.

    Args:
        sources: the endless run of each source.
    """

    def __init__(self, sources: Sequence[SourceRun]) -> None:
        least = limits().mix_table_least_items
        self._sources = tuple(sources)
        most = min(limits().mix_table_items, max(least, limits().mix_tables_items // len(sources)))
        # [sources]: items of a stretch; one epoch where every epoch has a cost of its own
        sizes = [min(most, max(least, r.rows)) if r.goes_by_epochs else most for r in sources]
        self._size = np.array(sizes, np.int64)
        self._tables: dict[int, Table] = {}

    def locate(
        self, numbers: Sequence[int], edges: Sequence[int], item: Int64
    ) -> list[tuple[Int64, Int64]]:
        """(epochs, rows) of some items of each source.

        Args:
            numbers: the sources.
            edges: where the items of each one start, and the number of items.
            item: the items, source by source [N].
        """
        first = np.asarray(edges[:-1], np.int64)
        size = self._size[np.asarray(numbers, np.int64)]
        low = np.minimum.reduceat(item, first) // size
        high = np.maximum.reduceat(item, first) // size
        inside = item - np.repeat(low * size, np.diff(edges))
        known, fresh, found = self._tables, {}, []
        asked = zip(numbers, edges[:-1], edges[1:], low.tolist(), high.tolist(), strict=True)
        for number, start, stop, stretch, last in asked:
            if stretch != last:  # it leaves one stretch for another
                found.append(self._sources[number].locate(item[start:stop]))
                continue
            table = known.get(number)
            if table is None or table[0] != stretch:
                table = fresh[number] = self._made(number, stretch)
            here = inside[start:stop]
            found.append((table[1].take(here), table[2].take(here)))
        if fresh:
            self._tables = known | fresh  # another thread may be reading the old one
        return found

    def _made(self, number: int, stretch: int) -> Table:
        size = int(self._size[number])
        run, first = self._sources[number], stretch * size
        epochs, rows = run.rows_from(first, first + size)
        return stretch, np.broadcast_to(epochs, len(rows)), rows
