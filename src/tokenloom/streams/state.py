"""The codec of stream states: how each of them is written, read, and refused.

One idea: a state is one JSON object, ``{"format": "tokenloom.…/1", "options": {…}, …}``, and a
dataclass defines what it holds. `as_json` writes it. `read_as` binds it and reports every problem
at once; `check_same` compares its options with those of the stream that loads it, and shows both
values. What JSON types cannot express are *laws* between its numbers, which `broken` checks.
Nothing that is read is trusted.

Packers (`pack_state`), shuffles (`buffer_state`) and mixes (`mix_state`) use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tokenloom.arguments import MAX_COUNT
from tokenloom.bind import BindError, bind
from tokenloom.errors import StateError

__all__ = ["as_json", "broken", "check_same", "damaged", "not_counts", "read_as", "shown"]

T = TypeVar("T")

LINES = 20  # problems that are listed


def as_json(name: str, options: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A state as JSON; `name` is the name of its format.

    >>> as_json("tokenloom.packer/1", {"mode": "bin"}, finished=False)
    {'format': 'tokenloom.packer/1', 'options': {'mode': 'bin'}, 'finished': False}
    """
    return {"format": name, "options": dict(options), **fields}


def read_as(record: type[T], state: Any) -> T:
    """A state as a record.

    Raises:
        StateError: it is not a state; the message lists every problem by its path.
    """
    try:
        return bind(record, state, path="state")
    except BindError as error:
        raise damaged(error.problems) from None
    except (ValueError, OverflowError, RecursionError):  # values that cannot even be printed
        raise damaged(["state: it is nested too deeply, or a number is too long"]) from None


def check_same(
    what: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    but: Iterable[str] = (),
    remedy: str = "",
) -> None:
    """Refuse a state of another stream.

    Args:
        what: the kind of stream.
        then: options of the state.
        now: options of the stream.
        but: options that may differ.
        remedy: an alternative, appended to "Make the … as it was".

    Raises:
        StateError: with a line for each option that differs.

    >>> check_same("shuffle", {"rows": 4, "seed": 0}, {"rows": 8, "seed": 0})
    Traceback (most recent call last):
        ...
    tokenloom.errors.StateError: state: it belongs to another shuffle:
      rows: the state has 4, this one 8
    Make the shuffle as it was.
    """
    keys = [key for key in {**then, **now} if key not in but and then.get(key) != now.get(key)]
    if keys:
        lines = [f"  {k}: the state has {then.get(k)!r}, this one {now.get(k)!r}" for k in keys]
        told = "\n".join([f"state: it belongs to another {what}:", *lines])
        raise StateError(f"{told}\nMake the {what} as it was{remedy}.")


def damaged(problems: list[str]) -> StateError:
    """The error that lists what is wrong with a state, one problem per line."""
    more = [f"and {len(problems) - LINES} more"] if len(problems) > LINES else []
    return StateError("\n".join([*problems[:LINES], *more, "It is not what state_dict() gave."]))


def not_counts(counts: Mapping[str, int]) -> list[str]:
    """A problem for each number that is not a count, by its path in the state."""
    return [
        f"state.{path}: found {shown(value)}, allowed: 0 to 2^63 - 1"
        for path, value in counts.items()
        if not 0 <= value <= MAX_COUNT
    ]


def broken(laws: Mapping[str, bool], where: str = "state") -> list[str]:
    """A problem for each law that does not hold."""
    return [f"{where}: {law}, but it does not hold" for law, holds in laws.items() if not holds]


def shown(value: int) -> str:
    """A number as text, unless it is too long to read."""
    return str(value) if abs(value) < 1 << 100 else "a very long number"
