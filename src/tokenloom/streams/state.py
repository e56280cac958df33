"""The states of streams: one JSON object each, sealed by the sha256 of its canonical text.

One idea: a state is ``{"format": "tokenloom.…/2", "options": {…}, …, "sha256": "…"}``. Whatever was
changed after `state_dict()` gave it, by accident or by hand, has another sha256 and is refused, so
nothing in it has to be checked again. `check_same` compares its options with those of the stream
that loads it, and shows both values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tokenloom.errors import StateError


def sealed(name: str, options: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A state as JSON; `name` is the name of its format.

    >>> sealed("tokenloom.packer/2", {"mode": "bin"}, finished=False)["finished"]
    False
    """
    state = {"format": name, "options": dict(options), **fields}
    return {**state, "sha256": _digest(state)}


def opened(name: str, state: Any) -> dict[str, Any]:
    """A state of this format as `sealed` made it.

    Raises:
        StateError: it is another format, or was changed.

    >>> opened("tokenloom.packer/2", sealed("tokenloom.packer/2", {}, rows=[]) | {"rows": [1]})
    Traceback (most recent call last):
        ...
    tokenloom.errors.StateError: state: its sha256 does not match its content, so it was changed or
    damaged. Load another checkpoint.
    """
    if not isinstance(state, Mapping):
        kind = type(state).__name__
        raise StateError(f"state: found {kind}, allowed: what state_dict() gave.")
    found = state.get("format")
    if found != name:
        raise StateError(f"state.format: found {found!r:.80}, allowed: {name!r}.")
    content = {key: value for key, value in state.items() if key != "sha256"}
    try:
        is_whole = state.get("sha256") == _digest(content)
    except (TypeError, ValueError, RecursionError):  # it is not JSON
        is_whole = False
    if not is_whole:
        raise StateError(
            "state: its sha256 does not match its content, so it was changed or damaged. Load "
            "another checkpoint."
        )
    return content


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


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
