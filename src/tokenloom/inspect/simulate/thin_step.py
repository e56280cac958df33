"""A step that has too many rows to be simulated: what some of its rows read, times how many it has.

One idea: a row of a packed run is known once its group is planned, and the rows of a shuffled step
are in as many groups. Where a page waits, some rows of the first step are read as if they were a
step; all others are taken to be alike, and a note says so.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tokenloom.inspect.simulate.rank_reads import GroupRead, LoaderSettings

__all__ = ["ThinStep", "thinned"]


class ThinStep(NamedTuple):
    """Rows of a step that stand for all.

    Attributes:
        rows: of all ranks that are simulated.
        size: rows of the step.
    """

    rows: int
    size: int

    def of(self, settings: LoaderSettings) -> LoaderSettings:
        """The settings of loaders whose steps have these rows."""
        return settings._replace(batch_size=self.rows)

    def whole(self, group: GroupRead, most: float = math.inf) -> GroupRead:
        """What a group of steps reads, given what it reads for these rows: `most` bytes at most.

        >>> ThinStep(4, 10).whole(GroupRead(0, 1, 6, 800, (2, 6, 800, 640, 4, 0, 0, 0))).counts
        (5, 15, 2000, 1600, 10, 0, 0, 0)
        """
        share = min(self.size / self.rows, max(1.0, most / max(1, group.bytes)))

        def times(count: int) -> int:
            return round(count * share)

        counts = tuple(map(times, group.counts))
        return group._replace(reads=times(group.reads), bytes=times(group.bytes), counts=counts)

    @property
    def note(self) -> str:
        """What to know about the numbers."""
        return (
            f"reads are estimates: {self.rows:,} of the {self.size:,} rows of a step were looked "
            "at, and the others are taken to be alike"
        )


def thinned(size: int, limit: int, ranks: int) -> ThinStep | None:
    """The rows that stand for a step of `size`; None if all may be simulated.

    Args:
        size: rows of a step over all ranks.
        limit: rows that may be simulated.
        ranks: processes that share a step; each gets a row.
    """
    rows = max(limit, ranks)
    return ThinStep(rows, size) if rows < size else None
