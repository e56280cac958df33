"""Reads the tokens of planned rows, one source at a time.

Tokens are read in one of two ways. *By blocks*: the layout's storage-local blocks are fetched whole
and cached, for orders that return to them soon. *By rows*: each row is read by itself, merged with
its neighbours, for orders that no cache could serve.

Reads the rows of many sources together: token windows that share one cache of blocks.

Where a token window lies follows from its row by the same arithmetic in every source,
with other constants. So the constants of all sources are arrays, and a group of examples is a few
NumPy calls and one request to the cache, whatever sources its examples come from. What is missing
in the cache is read source by source.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenloom.arrays import Array, Float32, Int64, distinct
from tokenloom.batch.cells import Copier, Runs, copier, fill, reads_of_rows, row_copier
from tokenloom.batch.plan import Plan, PlanPart
from tokenloom.layout.layout import Reads
from tokenloom.layout.windows import Windows
from tokenloom.limits import limits
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.working_set import loss_columns
from tokenloom.store.ahead import Fetchers
from tokenloom.store.byte_source import parallel_reads
from tokenloom.store.cache import BlockCache
from tokenloom.store.handles import lazy
from tokenloom.store.payload import InFiles, payloads_of
from tokenloom.store.reader import Reader


class Fetched(NamedTuple):
    """Tokens that were read, and where they go.

    Attributes:
        views: the arrays that hold them.
        which, low, length, cell: see `tokenloom.batch.cells.copier` [reads].
        edges: the first read of each example, and the number of reads [examples + 1].
    """

    views: list[Array]
    which: Int64
    low: Int64
    length: Int64
    cell: Int64
    edges: list[int]

    def copier(self, cells: Any = np.int32) -> Copier:
        """Copies the tokens into cells of a dtype."""
        return copier(self.views, self.which, self.low, self.length, self.cell, cells)

    def by_reads(self) -> Fetched:
        """The same."""
        return self


class FetchedRows(NamedTuple):
    """Tokens that were read, where each example has all of its own in one array.

    Attributes:
        views: the arrays that hold them.
        which: the array of each example [examples].
        first: the address of the first token of each array [views].
        reads: what goes where.
    """

    views: list[Array]
    which: Int64
    first: Int64
    reads: Reads

    @property
    def edges(self) -> list[int]:
        """See `Fetched`."""
        return self.reads.edges.tolist()

    def copier(self, cells: Any = np.int32) -> Copier:
        """Copies the tokens into cells of a dtype."""
        return row_copier(self.views, self.which, self.first, self.reads, cells)

    def by_reads(self) -> Fetched:
        """The same, with everything for each read."""
        reads = self.reads
        return Fetched(self.views, *reads_of_rows(self.which, self.first, reads), self.edges)


class RowReader:
    """Reads rows of one source.

    Args:
        run: the source.
        by_blocks: fetch whole blocks through the cache, or each row by itself.
        cache: keeps the blocks.
    """

    def __init__(self, run: SourceRun, *, by_blocks: bool, cache: BlockCache) -> None:
        self.by_blocks, self.cache = by_blocks, cache
        self._working, self._line = run.working, run.layout.line
        self._weights = loss_columns(self._line.reader)
        self.has_weights = bool(self._weights)
        self._payloads = payloads_of(self._line.reader)
        self._tag = run.working.tag

    def fetched(self, part: PlanPart, start: int, stop: int, column: str) -> Fetched | FetchedRows:
        """Examples [start, stop) of a part, read."""
        reads = part.reads.frames(start, stop)
        if self.by_blocks and stop > start:
            blocks, which, first = self._blocks(part, start, stop, column)
            which = np.zeros(stop - start, np.int64) if which is None else which
            return FetchedRows(blocks, which, first, reads)
        frame = np.repeat(np.arange(stop - start), np.diff(reads.edges))
        cell = frame * reads.width + reads.at
        begin, end = reads.address, reads.address + reads.length
        in_files = self._payloads.find(*self._line.to_store(begin, end), column)
        if in_files is not None:
            return _in_pieces(in_files, reads, cell)
        views = [view for view in self._line.read(begin, end, column) if len(view)]
        length = np.array([len(view) for view in views], np.int64)
        which, low = np.arange(len(views)), np.zeros(len(views), np.int64)
        return _in_pieces(InFiles(views, which, low, length), reads, cell)

    @property
    def store(self) -> Reader:
        """Where the rows come from."""
        return self._line.reader

    @lazy
    def in_place(self) -> bool:
        """Whether rows are read in place, so that batches kept ready take no memory."""
        return not self.by_blocks and self._payloads.is_usable("input_ids")

    def at_hand(self, part: PlanPart, start: int, stop: int) -> bool:
        """Whether the tokens of some examples are in memory."""
        if not self.by_blocks or start == stop:
            return self.in_place
        numbers, _ = part.distinct_blocks(start, stop)
        return self.cache.holds(self._keys(numbers, "input_ids"))

    def pretend(self, part: PlanPart, start: int, stop: int, cache: BlockCache) -> None:
        """Fetch the blocks of some examples through a cache, without reading anything."""
        numbers, _ = part.distinct_blocks(start, stop)
        first, last = self._working.stretch(numbers)
        nothing = np.zeros(1, self._line.reader.dtype("input_ids"))

        def load(places: list[int]) -> list[Array]:
            return [np.broadcast_to(nothing, int(last[i] - first[i])) for i in places]

        cache.get_many(self._line.keys(self._tag, numbers, "input_ids"), load)

    def fetch_ahead(self, part: PlanPart, *, weights: bool, keep: bool = False) -> int:
        """Have those blocks of a part fetched that are not in the cache; those that are, stay.

        Args:
            part: the examples.
            weights: also their loss columns.
            keep: fetch nothing; what was fetched before and waits for its use only stays.

        Returns:
            the bytes of the blocks that are fetched.
        """
        numbers = part.blocks
        found = 0
        for column in ("input_ids", *(self._weights if weights else ())):
            keys = part.known_keys.get(column)
            if keys is None:
                keys = part.known_keys[column] = self._keys(numbers, column)
            if keep:
                self.cache.touch(keys)
                continue
            some = numbers[self.cache.missing(keys)]
            first, last = self._working.stretch(some)
            found += int((last - first).sum()) * self._line.reader.dtype(column).itemsize
            if self._fetchers is None:
                self._line.reader.announce(*self._line.to_store(first, last), column)
                continue
            self._fetchers.put(
                self._line.promised(self._tag, some, first, last, column, self.cache)
            )
        return found

    def _keys(self, numbers: Int64, column: str) -> Sequence[Hashable]:
        return self._line.keys(self._tag, numbers, column)

    @lazy
    def _fetchers(self) -> Fetchers | None:
        """Threads for a source that answers several requests at once."""
        parallel = parallel_reads(self._line.reader.source)
        return Fetchers(parallel) if parallel > 1 else None

    def drop_ahead(self) -> None:
        """Fetch nothing more ahead of time."""
        if self._fetchers is not None:
            self._fetchers.drop()

    def finish_ahead(self) -> None:
        """Return when everything has been fetched that was to be fetched ahead of time."""
        if self._fetchers is not None:
            self._fetchers.finish()

    def look_up_weights(self, part: PlanPart, start: int, stop: int) -> None:
        """Load the loss columns of some examples into the cache."""
        if self.by_blocks and stop > start:
            for column in self._weights:
                self._blocks(part, start, stop, column)

    def weights(self, part: PlanPart, start: int, stop: int) -> Float32 | None:
        """The stored loss weight of every cell; two columns are multiplied, no column is None."""
        if not self._weights:
            return None
        out = np.ones((stop - start, part.placed.run.width), np.float32)
        for column in self._weights:
            values = np.empty_like(out)
            found = self.fetched(part, start, stop, column)
            fill(found.copier(values.dtype), values, Runs(0, found.edges[-1], 0, 0))
            if part.inserts:  # the store has no weights for these
                values.reshape(-1)[part.inserted(start, stop)[0]] = 1
            out *= values
        return out

    def _blocks(
        self, part: PlanPart, start: int, stop: int, column: str
    ) -> tuple[list[Array], Int64 | None, Int64]:
        """The blocks of some examples, the block of each (None: all in one), and block starts."""
        numbers, which = part.distinct_blocks(start, stop)
        first, last = self._working.stretch(numbers)
        blocks = self._line.stretches(self._tag, numbers, first, last, column, self.cache)
        return blocks, which, first


def merged(parts: Sequence[Fetched | FetchedRows], examples: int, width: int) -> Fetched:
    """What several sources read for the same examples, in order of the cells they fill."""
    if not parts:
        none = np.empty(0, np.int64)
        return Fetched([], none, none, none, none, [0] * (examples + 1))
    found = [one.by_reads() for one in parts]
    views = [view for one in found for view in one.views]
    before = np.cumsum([0, *(len(one.views) for one in found)])
    which = np.concatenate([one.which + at for one, at in zip(found, before, strict=False)])
    low = np.concatenate([one.low for one in found])
    length = np.concatenate([one.length for one in found])
    cell = np.concatenate([one.cell for one in found])
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    edges = np.searchsorted(cell, np.arange(examples + 1) * width).tolist()
    return Fetched(views, which[order], low[order], length[order], cell, edges)


def _in_pieces(found: InFiles, reads: Reads, cell: Int64) -> Fetched:
    """Consecutive reads, each of one or more pieces."""
    views, which, low, length = found
    begin = np.cumsum(length) - length  # tokens before each piece
    ends = np.cumsum(reads.length)
    owner = np.searchsorted(ends, begin, side="right")
    places = (cell - (ends - reads.length))[owner] + begin
    before = np.concatenate([[0], ends])[reads.edges]  # tokens before each frame
    edges: list[int] = np.searchsorted(begin, before).tolist()
    return Fetched(views, which, low, length, places, edges)


class Together:
    """Reads rows of all sources of a run.

    Args:
        sources: their runs, all of them `is_plain`.
        cache: keeps the blocks of all of them.
    """

    def __init__(self, sources: Sequence[SourceRun], cache: BlockCache) -> None:
        self._sources, self._cache = tuple(sources), cache
        self._width = sources[0].width
        blocks = [source.working.blocks for source in sources]
        lines = [source.layout.line for source in sources]
        # [sources]
        self._step = np.array([source.layout.spec.step for source in sources])  # type: ignore[attr-defined]
        self._tokens = np.array([line.tokens for line in lines])
        self._rows = np.array([one.rows for one in blocks])
        self._size = np.array([one.size for one in blocks])
        self._most = max(map(len, blocks)) + 1  # source * most + block names a block
        self._names: dict[str, list[str]] = {}

    def fetched(self, plan: Plan, start: int, stop: int, column: str) -> Fetched:
        """Examples [start, stop) of a plan, read."""
        source, row = (one[start:stop] for one in plan.rows)
        address = row * self._step[source]
        length = np.minimum(address + self._width, self._tokens[source]) - address
        cell = np.arange(stop - start) * self._width
        edges = list(range(stop - start + 1))
        if start == stop:
            return Fetched([], source, address, length, cell, edges)
        whose, block, which = self._blocks(source, row)
        size, step = self._size[whose], self._step[whose]
        first = block * size * step
        last = (np.minimum((block + 1) * size, self._rows[whose]) - 1) * step + self._width
        last = np.minimum(last, self._tokens[whose])

        def load(places: list[int]) -> list[Array]:
            found: list[Array] = []
            for number, some in itertools.groupby(places, lambda place: int(whose[place])):
                here, line = list(some), self._sources[number].layout.line
                found += line.load(first[here], last[here], column)
            return found

        views = self._cache.get_many(self._keys(whose, block, column), load)
        which = np.zeros(len(row), np.int64) if which is None else which
        return Fetched(views, which, address - first[which], length, cell, edges)

    def at_hand(self, plan: Plan, start: int, stop: int) -> bool:
        """Whether the tokens of some examples are in memory."""
        if start == stop:
            return False
        source, row = (one[start:stop] for one in plan.rows)
        whose, block, _ = self._blocks(source, row)
        return self._cache.holds(self._keys(whose, block, "input_ids"))

    def lacks(self, plan: Plan) -> bool:
        """Whether blocks of a plan are not in the cache; those that are, stay."""
        whose, block, _ = self._blocks(*plan.rows)
        return len(self._cache.missing(self._keys(whose, block, "input_ids"))) > 0

    def _blocks(self, source: Int64, row: Int64) -> tuple[Int64, Int64, Int64 | None]:
        """The source and the number of each io block, by source, and the block of each example."""
        present, which = distinct(source * self._most + row // self._size[source])
        whose, block = np.divmod(present, self._most)
        return whose, block, which

    def _keys(self, whose: Int64, block: Int64, column: str) -> list[Hashable]:
        """Under which blocks are kept in the cache."""
        names = self._names.get(column)
        if names is None:
            names = self._names[column] = [
                source.layout.line.whose(source.working.tag, column) for source in self._sources
            ]
        return [
            (names[source], number)
            for source, number in zip(whose.tolist(), block.tolist(), strict=True)
        ]


def is_plain(source: SourceRun) -> bool:
    """Whether a source has token windows in blocks of one size, and hides no document."""
    windows = isinstance(source.layout, Windows) and source.working.blocks.size > 0
    return windows and source.blanks is None and len(source.phases) == 1


def together(run: Run, readers: Sequence[RowReader]) -> Together | None:
    """What reads the sources of a run together; None if there are few, or they differ in kind."""
    caches = {id(reader.cache) for reader in readers}
    few = len(run.sources) < limits().min_mix_table_sources
    if few or len(caches) > 1 or not readers[0].by_blocks:
        return None
    return Together(run.sources, readers[0].cache) if all(map(is_plain, run.sources)) else None
