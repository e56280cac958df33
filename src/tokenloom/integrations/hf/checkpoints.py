"""The place in the run beside a Trainer's checkpoint: `checkpoint-N/tokenloom.json`.

One idea: a Trainer's folder is a checkpoint once `trainer_state.json`, which it writes last, is
whole. Our state is there before, so whatever a kill leaves behind is either complete or passed
over, with a warning, for the newest one that is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenloom.errors import StateError, StoreError, warn
from tokenloom.loader.state import read_state, write_state
from tokenloom.store.files import LOCAL

STATE = "tokenloom.json"

TRAINER_STATE = "trainer_state.json"

LARGEST = 1 << 30  # bytes of it: the logs of a long training are in there

NO_PLACE = f"it has no {STATE}"

UNFINISHED = (
    "checkpoint-is-incomplete.txt"  # a Trainer that is told to stop leaves it until it is done
)


def newest_checkpoint(folder: str | Path) -> str | None:
    """The newest complete checkpoint in a Trainer's output_dir; None if there is none.

    Raises:
        StateError: there are only checkpoints that were saved without a run: training that starts
            anew would overwrite them.
    """
    root = Path(folder)
    numbered = {
        int(match[1]): one
        for one in (root.iterdir() if root.is_dir() else ())
        if (match := re.fullmatch(r"checkpoint-([0-9]+)", one.name)) and one.is_dir()
    }
    found = [numbered[number] for number in sorted(numbered, reverse=True)]
    lacks = list(map(_lacks, found))
    usable = [one for one, lack in zip(found, lacks, strict=True) if lack is None]
    if not usable:
        for one, lack in zip(found, lacks, strict=True):
            if lack == NO_PLACE:
                state_in(one)  # says what to do
    used = f"{usable[0].name} is used" if usable else "None is left: there is nothing to resume"
    for one, lack in zip(found, lacks, strict=True):
        if lack is None:
            break
        warn(
            f"{one}: {lack}, so it is passed over: its writing was cut off, or no run was "
            f"attached. {used}; remove this one."
        )
    return str(usable[0]) if usable else None


def _lacks(checkpoint: Path) -> str | None:
    """What keeps a folder from being a checkpoint; None if it is complete."""
    if (checkpoint / UNFINISHED).exists():
        return f"it holds {UNFINISHED}"
    try:
        steps_in(checkpoint)
    except StateError:
        return f"it has no whole {TRAINER_STATE}"
    return None if (checkpoint / STATE).exists() else NO_PLACE


def steps_in(checkpoint: str | Path) -> int:
    """Optimizer steps done in a checkpoint.

    Raises:
        StateError: it does not say.
    """
    path = Path(checkpoint) / TRAINER_STATE
    try:
        return int(json.loads(LOCAL.read(path, LARGEST) or b"")["global_step"])
    except (StoreError, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{path}: it cannot be read ({error}). It is no checkpoint. Name another folder, or "
            "start without one."
        ) from None


def state_in(checkpoint: str | Path) -> dict[str, Any]:
    """The place in the run that a checkpoint was saved at.

    Raises:
        StateError: it has none; with the line that makes one.
    """
    path = Path(checkpoint) / STATE
    if not path.exists():
        raise StateError(
            f"{path}: there is no such file, so the place in the run is unknown: no run was "
            "attached when this checkpoint was saved. Write one, if you know how many examples it "
            "has seen: "
            f"tokenloom.loader.write_state(run.state(examples), {str(path)!r})."
        )
    return read_state(path)


def write_place(state: Mapping[str, Any], checkpoint: Path) -> None:
    """Write a state into the folder of a checkpoint, which is incomplete from now on."""
    LOCAL.remove(checkpoint / TRAINER_STATE)
    write_state(state, checkpoint / STATE)
