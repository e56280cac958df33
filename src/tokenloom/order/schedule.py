"""Steps: which examples belong to which step.

Legend: an *example* has an index in the run; a *step* takes the next `batch_size` examples; a *row*
is an example's place in its step. Everything counts in examples, so another batch size is another
way to cut the same run, never another order.

A schedule is a list of (examples, batch size): a step that starts at example e uses the last entry
whose `examples` is at most e. Worked example, 4 rows until example 10, then 8::

    step     0       1       2        3
    start    0       4       8        12      (the step that starts at 8 still has 4 rows)

Where an example is in its step: the rule of the loader, from the other side.

Without lanes the rows of a step are in order of index. With lanes they are sorted by (fraction,
index), for every number of ranks (`tokenloom.order.run.Run.fractions`). What a loader does with a
short last step is left out: rows after the end of the run do not count.
"""

from __future__ import annotations

import bisect
import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.order.run import Run


class Steps:
    """Steps of a batch size, or of a schedule of batch sizes.

    Args:
        batch_size: rows of every step, or pairs (examples, rows).
        origin: (step, example) to count from, for a run that resumes where no step of this batch
            size would start.

    >>> steps = Steps([(0, 4), (10, 8)])
    >>> [steps.begin(s) for s in range(5)], steps.size(2), steps.size(3)
    ([0, 4, 8, 12, 20], 4, 8)
    >>> steps.step_at(12), steps.step_at(13)
    (3, None)
    """

    def __init__(
        self, batch_size: int | Sequence[tuple[int, int]], origin: tuple[int, int] = (0, 0)
    ) -> None:
        entries = _entries(batch_size)
        self.batch_size = batch_size
        self.sizes = [size for _, size in entries]
        self.smallest = min(self.sizes)
        step, example = origin
        now = [size for examples, size in entries if examples <= example][-1]
        # stretch k: its first step, the example that step starts at, and its batch size
        self._steps, self._begins, self._sizes = [step], [example], [now]
        for examples, size in entries:
            if examples > example:
                steps = -(-(examples - self._begins[-1]) // self._sizes[-1])
                if steps <= 0:  # the step before already went past this entry
                    self._sizes[-1] = size
                    continue
                self._begins.append(self._begins[-1] + steps * self._sizes[-1])
                self._steps.append(self._steps[-1] + steps)
                self._sizes.append(size)

    def begin(self, step: int) -> int:
        """The example that a step starts at."""
        k = bisect.bisect_right(self._steps, step) - 1
        return self._begins[k] + (step - self._steps[k]) * self._sizes[k]

    def size(self, step: int) -> int:
        """The rows of a step."""
        return self._sizes[bisect.bisect_right(self._steps, step) - 1]

    def stretch_end(self, step: int) -> int:
        """One past the last step that is sure to have as many rows as this one."""
        k = bisect.bisect_right(self._steps, step)
        return self._steps[k] if k < len(self._steps) else sys.maxsize

    def step_at(self, example: int) -> int | None:
        """The step that starts at an example, or None if none does."""
        k = bisect.bisect_right(self._begins, example) - 1
        steps, rest = divmod(example - self._begins[k], self._sizes[k])
        return None if rest else self._steps[k] + steps

    def step_of(self, example: int) -> int:
        """The step that holds an example.

        >>> [Steps([(0, 4), (10, 8)]).step_of(e) for e in (0, 3, 11, 12, 19, 20)]
        [0, 0, 2, 3, 3, 4]
        """
        k = bisect.bisect_right(self._begins, example) - 1
        return self._steps[k] + (example - self._begins[k]) // self._sizes[k]

    def steps_of(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step of each example [N]."""
        begins, sizes = np.array(self._begins), np.array(self._sizes)
        place = np.searchsorted(begins, examples, side="right") - 1
        inside: NDArray[np.int64] = (examples - begins[place]) // sizes[place]
        return np.array(self._steps)[place] + inside

    def count(self, examples: int, *, partial: bool) -> int:
        """One past the last step of a run; `partial` counts a short last step."""
        k = max(0, bisect.bisect_right(self._begins, examples) - 1)
        steps, rest = divmod(max(0, examples - self._begins[k]), self._sizes[k])
        return self._steps[k] + steps + (partial and rest > 0)


def _entries(batch_size: Any) -> list[tuple[int, int]]:
    """The schedule, checked."""
    try:
        found = [(0, batch_size)] if hasattr(batch_size, "__index__") else list(batch_size)
        entries = [(_integer(examples), _integer(size)) for examples, size in found]
    except (TypeError, ValueError):
        entries = []
    starts = [examples for examples, _ in entries]
    if not entries or starts[0] != 0 or starts != sorted(set(starts)):
        raise ConfigError(
            f"batch_size: found {batch_size!r}, allowed: a number of rows, or pairs (examples, "
            "rows) that start with example 0 and ascend."
        )
    for _, size in entries:
        if size < 1:
            raise ConfigError(f"batch_size: found {size} rows, allowed: 1 or more.")
    return entries


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a bool is not a number")
    return operator.index(value)


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
