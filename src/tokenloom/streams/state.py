"""The state of a mixed stream as JSON: how much of every source was consumed, and nothing else.

One idea: the picks are the rows of all sources together, and the rules are functions of counts, so
the counts are the whole state. It is the same on every rank and knows nothing of their number.

Reading trusts nothing; a state of another mix is refused, naming each option and both values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from tokenloom.arguments import MAX_COUNT
from tokenloom.bind import BindError, bind
from tokenloom.errors import StateError
from tokenloom.streams.picking import MixOptions, Position

__all__ = ["FORMAT", "damaged", "dump", "load", "read_as", "shown"]

T = TypeVar("T")

FORMAT = "tokenloom.interleave/1"

COUNTS = ("rows", "tokens", "cost", "epoch", "row")


def dump(
    options: MixOptions,
    positions: Mapping[str, Position],
    finished: bool,
    states: Mapping[str, Any],
) -> dict[str, Any]:
    """The state as JSON; `states` are those of the sources themselves."""
    return {
        "format": FORMAT,
        "options": options.described(),
        "picks": sum(at.rows for at in positions.values()),
        "finished": finished,
        "sources": [
            {"name": name, **asdict(at), "state": states[name]} for name, at in positions.items()
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source(Position):
    name: str
    rows: int
    tokens: int
    cost: int
    epoch: int
    row: int
    ended: bool
    state: Any


@dataclass(frozen=True, slots=True)
class _State:
    format: Literal["tokenloom.interleave/1"]
    options: MixOptions
    picks: int
    finished: bool
    sources: tuple[_Source, ...]


def load(options: MixOptions, state: Any) -> tuple[dict[str, Position], bool, dict[str, Any]]:
    """(positions, finished, states of the sources) of a state, in the order of the listing.

    Raises:
        StateError: it is damaged, or of another mix; every problem is named.
    """
    read = read_as(_State, state)
    _check_same(read.options, options)
    problems = _problems(read)
    if problems:
        raise damaged(problems)
    found = {each.name: each for each in read.sources}
    positions = {
        name: Position(**{key: getattr(found[name], key) for key in (*COUNTS, "ended")})
        for name in options.sources
    }
    return positions, read.finished, {name: found[name].state for name in options.sources}


def read_as(record: type[T], state: Any) -> T:
    """A state as a record; raises StateError, naming every problem."""
    try:
        return bind(record, state, path="state")
    except BindError as error:
        raise damaged(error.problems) from None
    except (ValueError, OverflowError, RecursionError):  # what cannot even be shown
        raise damaged(["state: it is nested too deeply, or a number is too long"]) from None


def damaged(problems: list[str]) -> StateError:
    """What is wrong with a state, a line each."""
    more = [f"and {len(problems) - 20} more"] if len(problems) > 20 else []
    return StateError("\n".join(problems[:20] + more) + "\nIt is not what state_dict() gave.")


def _check_same(saved: MixOptions, options: MixOptions) -> None:
    then, now = saved.described(), options.described()
    keys = [key for key in now if then[key] != now[key]]
    if "sources" in keys and set(saved.sources) != set(options.sources):
        keys.remove("weights")  # they differ because of that
    if keys:
        lines = [f"{key}: the state has {then[key]!r}, this one {now[key]!r}" for key in keys]
        raise StateError(
            "state: it belongs to another mix:\n  " + "\n  ".join(lines) + "\nMake the mix as it "
            "was. To go on with other sources, use read_offsets (tokenloom.streams.checkpoint)."
        )


def _problems(read: _State) -> list[str]:
    wrong = [
        f"state.sources[{number}].{key}: found {shown(getattr(each, key))}, allowed is 0 to 2^63-1"
        for number, each in enumerate(read.sources)
        for key in COUNTS
        if not 0 <= getattr(each, key) <= MAX_COUNT
    ]
    options, names = read.options, [each.name for each in read.sources]
    if sorted(names) != sorted(options.sources):
        wrong.append(f"state.sources: found {names}, the options have {list(options.sources)}")
    if wrong:
        return wrong
    every, last = read.sources, options.epochs
    laws = {
        "picks are the rows of all sources": read.picks == sum(each.rows for each in every),
        "a pass has no more rows than all passes": all(e.row <= e.rows for e in every),
        "the first pass has all rows": all(e.row == e.rows for e in every if not e.epoch),
        "with cost='rows' the cost is the rows": options.cost != "rows"
        or all(e.cost == e.rows for e in every),
        "no pass comes after the last": options.stop == "repeat"
        or all(e.epoch < (last or 1) for e in every),
        "sources drop out with stop='all_exhausted' only": options.stop == "all_exhausted"
        or not any(e.ended for e in every),
        "a stream is finished when all sources have dropped out": options.stop != "all_exhausted"
        or read.finished == all(e.ended for e in every),
        "a stream for ever is never finished": last is not None or not read.finished,
    }
    return [f"state: {law}, but it does not hold" for law, holds in laws.items() if not holds]


def shown(value: int) -> str:
    """A number, unless it is too long to be read."""
    return str(value) if abs(value) < 1 << 100 else "a very long number"
