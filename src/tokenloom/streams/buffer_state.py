"""The options and the state of a shuffle of a stream, and how they are written as JSON.

One idea: every row that was read is either given or held, so ``given + held = taken``, and the
numbers of the held rows are the state. `samples` holds the rows themselves if a source cannot be
read again; `mark` is a state of the source itself, at a row before all held ones.

`tokenloom.streams.state` writes and reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from tokenloom.arguments import MAX_COUNT, check_between
from tokenloom.bind import check_fields
from tokenloom.random.keys import check_seed, key
from tokenloom.random.permute import permutations
from tokenloom.streams.samples import revived
from tokenloom.streams.state import as_json, broken, check_same, damaged, not_counts, read_as

__all__ = ["FORMAT", "FeedMark", "HeldSamples", "ShuffleOptions", "dump", "load", "window_order"]

FORMAT = "tokenloom.shuffle/1"

MAX_ROWS = 1 << 31


@dataclass(frozen=True, kw_only=True, slots=True)
class ShuffleOptions:
    """How a stream is shuffled.

    Attributes:
        kind: "buffer" or "window".
        rows: rows of the buffer, or of a shuffle window.
        seed: seed of the run.
        name: name of the source; together with the seed it determines the order.
        epochs: passes over the source, each in an order of its own; None: endless.
    """

    kind: Literal["buffer", "window"]
    rows: int
    seed: int
    name: str
    epochs: int | None

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        check_between("rows", self.rows, 1, MAX_ROWS)
        check_between("epochs", self.epochs, 1, MAX_COUNT)


@dataclass(frozen=True, slots=True)
class FeedMark:
    """The state of a source itself, after `row` rows of a pass."""

    row: int
    state: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldSamples:
    """Everything that a shuffle holds.

    Attributes:
        epoch: number of the pass, from 0.
        given: rows of the pass that were given.
        taken: rows of the pass that were read.
        finished: whether no more rows come.
        rows: numbers of the rows that were read and not yet given.
        samples: these rows as JSON; None if they will be read again.
        mark: where reading resumes; None if the source has no state of its own.
    """

    epoch: int
    given: int
    taken: int
    finished: bool
    rows: list[int]
    samples: list[Any] | None
    mark: FeedMark | None

    @property
    def oldest(self) -> int:
        """The first row that is still needed."""
        return min(self.rows, default=self.taken)


def window_order(options: ShuffleOptions, epoch: int, number: int, count: int) -> list[int]:
    """The rows of a shuffle window of `count` rows in the order they are given, last first."""
    word = key(options.seed, options.name, "stream", "window", epoch, number)
    order = permutations(count, [word]).forward(np.arange(count, dtype=np.uint64))
    first = number * options.rows
    return [first + row for row in order[::-1].tolist()]


# -- writing and reading -----------------------------------------------------------------------
def dump(options: ShuffleOptions, held: HeldSamples) -> dict[str, Any]:
    """The state as JSON."""
    return as_json(FORMAT, asdict(options), **asdict(held))


@dataclass(frozen=True, slots=True)
class _State:
    format: Literal["tokenloom.shuffle/1"]
    options: ShuffleOptions
    epoch: int
    given: int
    taken: int
    finished: bool
    rows: tuple[int, ...]
    samples: Any
    mark: FeedMark | None


def load(options: ShuffleOptions, state: Any) -> HeldSamples:
    """What a state holds, with its samples restored.

    Raises:
        StateError: it is damaged, or of another shuffle; the message lists every problem.
    """
    read = read_as(_State, state)
    check_same("shuffle", asdict(read.options), asdict(options))
    problems = _problems(read)
    samples = None if problems else _samples(read, problems)
    if problems:
        raise damaged(problems)
    return HeldSamples(
        epoch=read.epoch,
        given=read.given,
        taken=read.taken,
        finished=read.finished,
        rows=list(read.rows),
        samples=samples,
        mark=read.mark,
    )


def _problems(read: _State) -> list[str]:
    counts = {"epoch": read.epoch, "given": read.given, "taken": read.taken}
    if read.mark is not None:
        counts["mark.row"] = read.mark.row
    wrong = not_counts(counts)
    if wrong:
        return wrong
    options, rows, last = read.options, read.rows, read.options.epochs
    oldest = min(rows, default=read.taken)
    laws = {
        "every row that was read is given or held": read.given + len(rows) == read.taken,
        "held rows were read, each once": _distinct(rows, read.taken),
        "fewer rows are held than the shuffle has": len(rows) < options.rows,
        "no pass comes after the last": last is None or read.epoch < last,
        "a finished shuffle holds nothing": not (read.finished and rows),
        "a finished shuffle is in its last pass": not read.finished or read.epoch + 1 == last,
        "the mark is before all held rows": read.mark is None or read.mark.row <= oldest,
        "samples are held only without a mark": read.mark is None or read.samples is None,
    }
    return broken(laws) or _window_problems(read)


def _distinct(rows: Sequence[int], taken: int) -> bool:
    return not rows or (len(set(rows)) == len(rows) and min(rows) >= 0 and max(rows) < taken)


def _window_problems(read: _State) -> list[str]:
    """Problems of held rows that are not in this shuffle window, or not in this order."""
    if read.options.kind != "window" or not read.rows:
        return []
    number, given = divmod(read.given, read.options.rows)
    count = given + len(read.rows)
    right = (
        count <= read.options.rows
        and list(read.rows)
        == (window_order(read.options, read.epoch, number, count)[: len(read.rows)])
    )
    return [] if right else ["state.rows: they are not the remaining rows of their shuffle window"]


def _samples(read: _State, problems: list[str]) -> list[Any] | None:
    if read.samples is None:
        return None
    if type(read.samples) is not list or len(read.samples) != len(read.rows):
        problems.append("state.samples: allowed: a list with one sample for each of the rows")
        return None
    try:
        return [revived(sample) for sample in read.samples]
    except (ValueError, RecursionError) as error:
        problems.append(f"state.samples: {error}")
        return None
