"""Steps that are too many to be simulated: what whole bands read, times how many follow.

One idea: an order with bands finishes one before it opens the next, so every whole band is read
alike. The first bands are simulated exactly; the first one, which starts with an empty cache, is
left out of the rate. How much the others differ says how far the rest may be off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.inspect.simulate.answer import BandRates
from tokenloom.order.run import Run

__all__ = ["Band", "RankCounts", "band_of", "exact_steps", "extended", "rows_taken"]

Float64 = NDArray[np.float64]

EXACT_EXAMPLES = 1 << 26  # of all ranks; more are extrapolated

FEWEST, MOST = 1 << 21, 1 << 24  # examples that are simulated to extrapolate from

PARTS = 33  # marks between which bands are compared

STRETCH = 1 << 18  # examples that stand for a band where an order has none


def rows_taken(run: Run, examples: int) -> list[int]:
    """Rows of every source in the first examples."""
    if run.sources[0] is run:
        return [examples]
    return [one.rows for one in run.consumed(examples)]


class Band(NamedTuple):
    """Examples of a band, and whether the order really has bands."""

    examples: int
    is_band: bool


def band_of(run: Run, limit: int) -> Band:
    """The longest band of a source, in examples of the run; `limit` are simulated at most."""
    looked = 1 << 20 if run.n is None else min(run.n, 1 << 20)
    found = []
    for source, rows in zip(run.sources, rows_taken(run, looked), strict=True):
        order = source.order(0)
        if rows and 0 < order.window_rows < source.rows:
            found.append(order.window_rows * looked // rows)
    return Band(max(found), True) if found else Band(max(1, min(STRETCH, limit // 16)), False)


def exact_steps(steps: int, batch_size: int, band: Band, limit: int) -> int:
    """How many steps to simulate exactly; all of them, if that is `limit` examples or fewer."""
    if steps * batch_size <= limit:
        return steps
    wanted = min(limit, MOST, max(FEWEST, 4 * band.examples))
    whole = max(1, wanted // band.examples) * band.examples
    return min(steps, -(-min(whole, MOST) // batch_size))


class RankCounts(NamedTuple):
    """What a rank had read by some steps.

    Attributes:
        steps: at which its groups start, and the end [groups + 1].
        counts: by then [groups + 1, counts]; the third are bytes.
        most: bytes that it can read at all, if its cache holds the whole run, else infinity.
    """

    steps: NDArray[np.int64]
    counts: Float64
    most: float


def extended(
    ranks: Sequence[RankCounts], stop: int, band: Band, batch_size: int
) -> tuple[list[Float64], BandRates]:
    """Counts at step `stop`, from those up to the last simulated step.

    Args:
        ranks: what each has read in the simulated steps.
        stop: the step to extend to.
        band: how long a band is.
        batch_size: rows of a step.

    Returns:
        the counts of each rank, and what they follow from.
    """
    found, sizes, per_band = [], [], band.examples / batch_size
    first, last = float(ranks[0].steps[0]), float(ranks[0].steps[-1])
    bands = max(1, int((last - first) / per_band))
    begin = first + (per_band if bands > 1 else 0.0)
    # groups of whole bands, because reads come in groups of steps
    marks = np.linspace(begin, first + bands * per_band, min(PARTS, max(2, bands)))
    marks = np.minimum(marks, last)
    for steps, counts, most in ranks:
        at = np.stack([np.interp(marks, steps, column) for column in counts.T], axis=1)
        more = (at[-1] - at[0]) / max(1.0, marks[-1] - marks[0]) * (stop - last)
        room = max(0.0, most - float(counts[-1, 2] - counts[0, 2]))
        found.append(counts[-1] + more * min(1.0, room / max(1.0, float(more[2]))))
        sizes.append(np.diff(at[:, 2]))
    together = np.sum(sizes, axis=0)
    spread = None
    if len(together) > 1 and together.mean():
        error = together.std(ddof=1) / np.sqrt(len(together))
        spread = float(error / together.mean())
    full = any(np.isfinite(one.most) for one in ranks)
    used = max(1, bands - 1)
    return found, BandRates(
        examples=band.examples, bands=used, is_band=band.is_band, spread=spread, is_full=full
    )
