"""Where an example is in its step: the rule of the loader, from the other side.

Without lanes the rows of a step are in order of index. With lanes they are sorted by (fraction,
index), for every number of ranks (`tokenloom.order.run.Run.fractions`). What a loader does with a
short last step is left out: rows after the end of the run do not count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.order.run import Run
from tokenloom.order.schedule import Steps

__all__ = ["examples_of_step", "row_of_step", "rows_in_steps"]

Int64 = NDArray[np.int64]


def examples_of_step(run: Run, steps: Steps, step: int) -> Int64:
    """The indices of the examples of a step, in order of its rows.

    Raises:
        IndexError: the run ends before the step.
    """
    begin = steps.begin(step)
    end = begin + steps.size(step)
    if run.n is not None:
        if begin >= run.n:
            last = steps.step_of(max(0, run.n - 1))
            raise IndexError(
                f"step {step:,}: out of range, allowed: 0 to {last:,}; the run has {run.n:,} "
                "examples."
            )
        end = min(end, run.n)
    line = np.arange(begin, end)
    fractions = run.fractions(line) if run.lanes > 1 else None
    return line if fractions is None else line[np.lexsort((line, fractions))]


def rows_in_steps(run: Run, steps: Steps, indices: Int64) -> list[tuple[int, int]]:
    """(step, row) of each index."""
    found, known = [], {}
    for index in indices.tolist():
        step = steps.step_of(index)
        if run.lanes == 1:
            found.append((step, index - steps.begin(step)))
            continue
        if step not in known:
            line = examples_of_step(run, steps, step).tolist()
            known[step] = {one: row for row, one in enumerate(line)}
        found.append((step, known[step][index]))
    return found


def row_of_step(run: Run, steps: Steps, step: int, row: int) -> int:
    """The index of one row of a step.

    Raises:
        ConfigError: the step has no such row.
    """
    line = examples_of_step(run, steps, step)
    if not 0 <= row < len(line):
        raise ConfigError(f"row: found {row}, allowed in step {step:,}: 0 to {len(line) - 1:,}.")
    return int(line[row])
