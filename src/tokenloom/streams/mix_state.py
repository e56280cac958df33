"""The state of a mixed stream as JSON: how much of every source was consumed, and nothing else.

One idea: the picks are the rows of all sources together, and the rules are functions of counts, so
the counts are the whole state. It is the same on every rank and for any number of ranks.

`tokenloom.streams.state` writes and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tokenloom.streams.picking import MixOptions, Position
from tokenloom.streams.state import as_json, broken, check_same, damaged, not_counts, read_as

__all__ = ["FORMAT", "dump", "load"]

FORMAT = "tokenloom.interleave/1"

COUNTS = ("rows", "tokens", "cost", "epoch", "row")


def dump(
    options: MixOptions,
    positions: Mapping[str, Position],
    finished: bool,
    states: Mapping[str, Any],
) -> dict[str, Any]:
    """The state as JSON; `states` are those of the sources themselves."""
    return as_json(
        FORMAT,
        options.described(),
        picks=sum(at.rows for at in positions.values()),
        finished=finished,
        sources=[
            {"name": name, **asdict(at), "state": states[name]} for name, at in positions.items()
        ],
    )


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
        StateError: it is damaged, or of another mix; the message lists every problem.
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


def _check_same(saved: MixOptions, options: MixOptions) -> None:
    # weights under other names always differ: listing them would add nothing
    renamed = set(saved.sources) != set(options.sources)
    check_same(
        "mix",
        saved.described(),
        options.described(),
        but=["weights"] if renamed else [],
        remedy=". To continue with other sources, use tokenloom.streams.read_offsets",
    )


def _problems(read: _State) -> list[str]:
    counts = {
        f"sources[{number}].{key}": getattr(each, key)
        for number, each in enumerate(read.sources)
        for key in COUNTS
    }
    wrong = not_counts(counts)
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
        "sources drop out only with stop='all_exhausted'": options.stop == "all_exhausted"
        or not any(e.ended for e in every),
        "a stream is finished when all sources have dropped out": options.stop != "all_exhausted"
        or read.finished == all(e.ended for e in every),
        "an endless stream is never finished": last is not None or not read.finished,
    }
    return broken(laws)
