"""Reads the rows of many sources together: token windows that share one cache of blocks.

One idea: where a token window lies follows from its row by the same arithmetic in every source,
with other constants. So the constants of all sources are arrays, and a group of examples is a few
NumPy calls and one request to the cache, whatever sources its examples come from. What is missing
in the cache is read source by source.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import distinct
from tokenloom.batch.plan import Plan
from tokenloom.batch.read import Fetched, RowReader
from tokenloom.layout.windows import Windows
from tokenloom.limits import limits
from tokenloom.order.run import Run, SourceRun
from tokenloom.store.cache import BlockCache

__all__ = ["Together", "together"]

Int64 = NDArray[np.int64]

Array = NDArray[Any]


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
