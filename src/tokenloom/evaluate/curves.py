"""Curves over steps as a picture: one line for each figure, on one pair of axes.

One idea: values that people compare belong into one picture, with the axes that they share. The
lines are those of a report (`tokenloom.page.charts.lines`), in a file that needs nothing from
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tokenloom.page.charts import SERIES, lines, series
from tokenloom.page.standalone import DRAWN, Panel, standalone

__all__ = ["curves"]


def curves(
    title: str,
    named: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str = "step",
    caption: str = "",
) -> str:
    """A picture of several curves.

    Args:
        title: what it shows.
        named: points (x, y) of each curve, by its name; values that are not finite are left out.
        across: what the horizontal axis is.
        caption: a line below the title.

    >>> picture = curves("Losses", {"train": [(0, 3.0), (10, 1.0)], "held out": [(0, 3.1)]})
    >>> picture.startswith("<svg"), picture.count('class="line'), "held out" in picture
    (True, 2, True)
    """
    known = {
        name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in named.items()
    }
    said = f"{', '.join(list(known)[:SERIES])} over {across}"
    return standalone(
        title,
        [caption] if caption else [],
        [Panel(lines(known, DRAWN, said, below=across), legend=_legend(list(known)))],
    )


def _legend(names: Sequence[str]) -> list[tuple[str, str]]:
    """The names of the curves; those that share a colour are counted.

    >>> _legend(["a", "b"]), _legend(["a"] * 10)[-1]
    ([('a', 's1'), ('b', 's2')], ('2 more', 'rest'))
    """
    found = [(name, series(number)) for number, name in enumerate(names[:SERIES])]
    left = len(names) - SERIES
    return [*found, (f"{left} more", series(SERIES))] if left > 0 else found
