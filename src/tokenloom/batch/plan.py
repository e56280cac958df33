"""Plans: where frames come from, computed for thousands of examples at a time.

One idea: all arithmetic (order, reads, the block of each row) is done before any token is read, and
kept until the examples are made. A plan has one part for each source; most plans have a single
part, which holds all examples in the requested order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Int64, distinct
from tokenloom.batch.paint import Tiles, tile
from tokenloom.layout.layout import Reads
from tokenloom.layout.spans import BOS, EOS, EOS_BEFORE, Spans
from tokenloom.limits import limits
from tokenloom.mixture.run import joined_spans
from tokenloom.order.run import Blanks, Placed, Run, SourceRun
from tokenloom.store.handles import lazy

LOOKED_AT = 1 << 22  # rows searched for blank ones, in total


class PlanPart:
    """The examples of one source in a plan.

    Args:
        placed: the rows of the examples.

    Attributes:
        known_keys: keys of `blocks` in the cache, by column; kept by whoever worked them out.
    """

    def __init__(self, placed: Placed) -> None:
        self.known_keys: dict[str, Sequence[Hashable]] = {}
        self.placed, self.number, self.at = placed, placed.number, placed.at
        self.inserts = placed.run.layout.inserted != (None, None)
        self._distinct: tuple[int, int, Int64, Int64 | None] | None = None

    @lazy
    def spans(self) -> Spans:
        """The documents in each example."""
        return self.placed.spans()

    @lazy
    def reads(self) -> Reads:
        """What to read for the examples."""
        run, epoch, row = self.placed.run, self.placed.epoch, self.placed.row
        reads = run.layout.runs(epoch, row) if run.blanks is None else None
        return Reads.of(self.spans) if reads is None else reads

    @lazy
    def block(self) -> Int64:
        """The io block of each example [N]."""
        placed = self.placed
        return placed.run.working.block_of(placed.epoch, placed.row)

    @lazy
    def blocks(self) -> Int64:
        """The io blocks of all examples, in order of their first use."""
        numbers, which = self.distinct_blocks(0, len(self.block))
        if which is None:
            return numbers
        place = np.empty(len(numbers), np.int64)
        place[which[::-1]] = np.arange(len(which))[::-1]  # the last one written is the first use
        return numbers[np.argsort(place)]

    def distinct_blocks(self, start: int, stop: int) -> tuple[Int64, Int64 | None]:
        """The io blocks of examples [start, stop), and which of them is each example's.

        See `tokenloom.arrays.distinct`; what was asked for last is kept.
        """
        known = self._distinct
        if known is None or known[:2] != (start, stop):
            self._distinct = known = (start, stop, *distinct(self.block[start:stop]))
        return known[2:]

    def within(self, start: int, stop: int) -> tuple[int, int]:
        """[first, last) of the part's own examples within examples [start, stop) of the plan."""
        if self.at is None:
            return start, stop
        low, high = np.searchsorted(self.at, (start, stop)).tolist()
        return low, high

    def cells(self, cell: Int64, low: int, start: int, width: int) -> Int64:
        """Cells counted from the part's example `low`, recounted from the plan's `start` [N]."""
        if self.at is None:
            return cell
        row, at = np.divmod(cell, width)
        return (self.at[low + row] - start) * width + at

    def inserted(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """The inserted tokens of some examples: cells, counted from `start`'s first, and ids."""
        cell, token = self._inserted
        width = self.placed.run.width
        low, high = np.searchsorted(cell, (start * width, stop * width)).tolist()
        return cell[low:high] - start * width, token[low:high]

    @lazy
    def _inserted(self) -> tuple[Int64, Int64]:
        spans, (bos, eos) = self.spans, self.placed.run.layout.inserted
        first = spans.row * spans.width + spans.at
        begins, ends = (spans.flags & BOS) != 0, (spans.flags & EOS) != 0
        before = (spans.flags & EOS_BEFORE) != 0
        cells = first[begins], (first + spans.cells - 1)[ends], (first - 1)[before]
        ids = [
            np.full(len(some), token or 0)
            for some, token in zip(cells, (bos, eos, eos), strict=True)
        ]
        cell = np.concatenate(cells)
        order = np.argsort(cell)
        return cell[order], np.concatenate(ids)[order]


class Share(NamedTuple):
    """Examples [low, high) of a part: what its source contributes to a range of the plan."""

    part: PlanPart
    low: int
    high: int


class Plan:
    """Some examples of a run, before any token is read.

    Args:
        run: the run of the examples.
        indices: their indices in the run [N].

    Attributes:
        width: cells of a frame.
        parts: one for each source of these examples.
        inserts: whether the frames contain tokens that are not stored: BOS and EOS.
    """

    def __init__(self, run: Run, indices: Int64) -> None:
        self.indices, self.width = indices, run.width
        self.parts = [PlanPart(placed) for placed in run.placed(indices)]
        self.inserts = any(part.inserts for part in self.parts)
        self._tiles: dict[int, Tiles] = {}

    @lazy
    def spans(self) -> Spans:
        """The spans of all examples."""
        parts = self.parts
        return joined_spans([p.placed for p in parts], [p.spans for p in parts], self.width)

    @property
    def source(self) -> Int64:
        """The number of the source of each example [N]."""
        return self.rows[0]

    @lazy
    def rows(self) -> tuple[Int64, Int64]:
        """(number of the source, row in its layout) of each example [N]."""
        source, row = np.empty((2, len(self.indices)), np.int64)
        if self.parts:
            every = np.arange(len(self.indices))
            rows = [part.placed.row for part in self.parts]
            at = np.concatenate([every if part.at is None else part.at for part in self.parts])
            source[at] = np.repeat([p.number for p in self.parts], [len(one) for one in rows])
            row[at] = np.concatenate(rows)
        return source, row

    def tiles(self, width: int) -> Tiles:
        """The cells of all examples as tiles; computed once for each width."""
        known = self._tiles.get(width)
        if known is None:
            known = self._tiles[width] = tile(self.spans, width)
        return known

    def shares(self, start: int, stop: int) -> list[Share]:
        """What each source contributes to examples [start, stop)."""
        found = [Share(part, *part.within(start, stop)) for part in self.parts]
        return [share for share in found if share.high > share.low]

    def inserted(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """The inserted tokens of examples [start, stop): cells counted from `start`'s, and ids."""
        if len(self.parts) == 1 and self.parts[0].at is None:
            return self.parts[0].inserted(start, stop)
        cells, tokens = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part, low, high in self.shares(start, stop):
            if part.inserts:
                cell, token = part.inserted(low, high)
                cells.append(part.cells(cell, low, start, self.width))
                tokens.append(token)
        return np.concatenate(cells), np.concatenate(tokens)


def blank_rows(run: SourceRun, blanks: Blanks) -> tuple[int, int]:
    """The number of rows that hold hidden documents only, and of rows examined.

    A row without one of them is none of these, so a few documents are followed to their rows.
    """
    chunk = limits().blank_chunk_rows
    last = int(run.phases.epoch[-1])
    if len(blanks.document) <= limits().followed_documents:
        places = [run.layout.find(last, one) for one in blanks.document.tolist()]
        rows, looked = np.unique(np.concatenate([np.empty(0, np.int64), *places])), run.rows
    else:
        looked = min(run.rows, LOOKED_AT)
        rows = np.arange(looked)
    found = 0
    for low in range(0, len(rows), chunk):
        spans = run.layout.spans(last, rows[low : low + chunk])
        hidden = np.isin(spans.document, blanks.document)
        sums = np.concatenate([[0], np.cumsum(~hidden)])[spans.frame]
        found += int((np.diff(sums) == 0).sum())
    return found, looked
