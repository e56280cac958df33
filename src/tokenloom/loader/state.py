"""States: checked before they are loaded, kept in files.

One idea: a state of another run is refused, and the message lists each key that differs, with both
values (`Dataset.state` makes them). Files appear whole or not at all, so the newest
one can be trusted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenloom.api import describe as description
from tokenloom.api.describe import STATE_FORMAT
from tokenloom.arguments import Place, place
from tokenloom.errors import StateError, StoreError
from tokenloom.remote.uploads import files_of, read_whole, write_whole
from tokenloom.store.files import LOCAL

DECIDES = ("format", "examples", "step", "fingerprint", "render", "wrapped")

MAX_BYTES = 16 << 20

MAX_EXAMPLES = 1 << 62

_HEX = re.compile(r"[0-9a-f]{64}")

_NAME = re.compile(r"state-([0-9]{12,19})\.json")

_SHOWN = 200  # characters of a wrong value in a message

_LINES, _LINE = 50, 400  # of differences that are listed: how many, and their characters

log = logging.getLogger("tokenloom")


def flat_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as integers and strings, under the same seven keys for every run.

    Checkpoints of torch and Orbax load into the keys that a state has now, so a state whose
    description grew (an edit of the mix) would not load. The description is one string of JSON: if
    the run is another one, the message names what differs.

    >>> flat_state({name: 0 for name in DECIDES} | {"dataset": {"seed": 7}})["dataset"]
    '{"seed":7}'
    """
    text = state.get("dataset")
    if not isinstance(text, str):
        text = json.dumps(text, separators=(",", ":"), ensure_ascii=False)
    return {**{name: state[name] for name in DECIDES}, "dataset": text}


def check_state(
    state: Any, describe: Mapping[str, Any], n: int | None, *, allow_mismatch: bool = False
) -> int:
    """The examples of a state, which must be complete and of this run.

    Args:
        state: what `Dataset.state` returned, or its JSON.
        describe: description of the run to resume.
        n: examples of that run; None: endless.
        allow_mismatch: accept the number of a state of another run.

    Raises:
        StateError: it is damaged, or of another run; the message lists every difference.
    """
    known = _shape(state)
    if allow_mismatch:
        return int(known["examples"])
    chain = description.chain(describe)
    reached = _edit_behind(known, describe, chain)
    if reached is not None:
        raise StateError(
            f"state: it is {known['examples']:,} examples into the run, but the edit at "
            f"{reached:,} changes what it has already seen. Edit at {known['examples']:,} or "
            "later, or pass allow_mismatch=True."
        )
    if known["fingerprint"] not in chain:
        listed = "\n  ".join(_differences(known.get("dataset"), describe)) or (
            f"fingerprint: the state has {known['fingerprint'][:12]}…, this run has "
            f"{description.fingerprint(describe)[:12]}…"
        )
        raise StateError(
            f"state: it belongs to another run:\n  {listed}\nBuild the dataset as it was "
            f"({_how_it_was(known)}), or pass allow_mismatch=True to take its position anyway."
        )
    render_then = description.render_chain(describe)[chain.index(known["fingerprint"])]
    if known["render"] != render_then:
        saved = known.get("dataset")
        render = _renders(saved)
        now = description.renders(describe)
        listed = "\n  ".join(_differences(render, now)) or (
            f"render: the state has {known['render'][:12]}…, this run has {render_then[:12]}… "
            f"({_how_it_was(known)})"
        )
        raise StateError(
            "state: the same tokens, but labels, masks or positions are rendered otherwise:\n  "
            f"{listed}\nPass allow_mismatch=True if that is intended."
        )
    wrapped = known["wrapped"]
    if wrapped and wrapped != n:
        raise StateError(
            f"state: its run has {wrapped:,} examples and had wrapped around, so what comes next "
            f"depends on its end; this run has {'no end' if n is None else format(n, ',')}. Give "
            "the dataset the same epochs and take, or pass allow_mismatch=True."
        )
    return int(known["examples"])


def _how_it_was(known: Mapping[str, Any]) -> str:
    """How to find out what the run of a state was."""
    if isinstance(known.get("dataset"), Mapping):
        return "the state holds its description, see tokenloom.from_config"
    return "the state holds no description; compare print(run) of both"


def _renders(saved: Any) -> Any:
    """How a saved description renders; None if it is not a description."""
    try:
        return description.renders(saved)
    except (AttributeError, KeyError, TypeError):
        return None


def _edit_behind(
    known: Mapping[str, Any], describe: Mapping[str, Any], chain: list[str]
) -> int | None:
    """The start of the first edit that a state of this run had already passed; None if none."""
    if known["fingerprint"] not in chain[:-1]:
        return None
    later = description.edits_of(describe)[chain.index(known["fingerprint"]) :]
    passed = [int(edit["at"]) for edit in later if edit["at"] < known["examples"]]
    return passed[0] if passed else None


def _differences(saved: Any, now: Any) -> list[str]:
    """What differs, one line each; empty if `saved` is not a description."""
    if not isinstance(saved, Mapping):
        return []
    try:
        lines = description.differences(saved, now)
    except (RecursionError, TypeError, ValueError):  # nested junk, or not comparable
        return []
    cut = [_cut(line, _LINE) for line in lines[:_LINES]]
    return cut + [f"and {len(lines) - _LINES} more"] * (len(lines) > _LINES)


def _shown(value: Any) -> str:
    """Any value as text short enough for a message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep, or an integer of thousands of digits
        text = f"a {type(value).__name__} that cannot be shown"
    return _cut(text, _SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _shape(state: Any) -> dict[str, Any]:
    """The state, in which every known key must have the right type; unknown keys are kept."""
    if not isinstance(state, Mapping):
        raise StateError(f"state: found {type(state).__name__}, allowed: what state_dict() gave.")
    wrong = []
    if state.get("format") != STATE_FORMAT:
        wrong.append(f"format: found {_shown(state.get('format'))}, allowed: {STATE_FORMAT!r}")
    for name in ("examples", "step", "wrapped"):
        value = state.get(name)
        if type(value) is not int or not 0 <= value <= MAX_EXAMPLES:
            wrong.append(f"{name}: found {_shown(value)}, allowed: an integer from 0 to 2^62")
    for name in ("fingerprint", "render"):
        value = state.get(name)
        if not isinstance(value, str) or not _HEX.fullmatch(value):
            wrong.append(f"{name}: found {_shown(value)}, allowed: 64 hex digits")
    if wrong:
        raise StateError(
            "state: "
            + "\n  ".join(wrong)
            + "\nIt is not what state_dict() gave. Use that, or another checkpoint."
        )
    known = dict(state)
    if isinstance(known.get("dataset"), str):  # of `flat_state`
        text = known.pop("dataset")
        with contextlib.suppress(ValueError, RecursionError):
            known["dataset"] = json.loads(text)
    return known


# -- files ---------------------------------------------------------------------------------
def write_state(state: Mapping[str, Any], path: str | Place) -> Place:
    """Write a state to a file that appears whole or not at all.

    Args:
        state: what `Loader.state_dict()` returned.
        path: a file ``NAME.json``, which is replaced; or a directory, made if it is missing, in
            which the file is named after its examples. `latest_state` finds both. Or the URL of
            either.

    Returns:
        The path of the file.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     loader = tl.Loader(store.windows(2), batch_size=2).seek(1)
    ...     write_state(loader.state_dict(), folder).name
    'state-000000000002.json'
    """
    known, target = _shape(state), place("path", path)
    try:
        raw = json.dumps(known, indent=1, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            f"state: it cannot be written as JSON ({error}). Allowed: what state_dict() gave."
        ) from None
    if len(raw) > MAX_BYTES:
        raise StateError(f"state: it has {len(raw):,} bytes as JSON, allowed: {MAX_BYTES:,}.")
    if _is_folder(target):
        target = target / f"state-{known['examples']:012d}.json"
    if isinstance(target, Path):
        _make_folder(target.parent)
    write_whole(target, raw)
    return target


def _is_folder(target: Place) -> bool:
    """Whether states go into it; a bucket has names only, so there the suffix decides."""
    named = target.name.endswith(".json")
    if isinstance(target, Path):
        return target.is_dir() or not (named or target.exists())
    return not named


def _make_folder(folder: Path) -> None:
    """A directory and those above it, durably; nothing if it is there."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another rank was faster
            LOCAL.mkdir(one)
        LOCAL.sync_directory(one.parent)


def read_state(path: str | Place) -> dict[str, Any]:
    """A state from its file; runs no code and reads at most 16 MiB.

    Raises:
        StateError: there is no such file, it cannot be read, or it does not hold a state.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle()
    ...     path = write_state(tl.Loader(run, batch_size=2).seek(1).state_dict(), folder)
    ...     resumed = tl.Loader(run, batch_size=1)  # another batch size, the same place
    ...     resumed.load_state_dict(read_state(path))
    ...     resumed.examples, len(resumed)
    (2, 2)
    """
    target = place("path", path)
    try:
        raw = read_whole(target, MAX_BYTES)
    except StoreError as error:
        raise StateError(str(error)) from error
    if raw is None:
        raise StateError(f"{target}: no such file. Pass a file that write_state wrote.")
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"{target}: it is not JSON ({error}). It is not a state file. Allowed: what "
            "write_state wrote."
        ) from None
    try:
        return _shape(value)
    except StateError as error:
        raise StateError(f"{target}: {error}") from None


def latest_state(folder: str | Place) -> dict[str, Any] | None:
    """The state with the most examples in a directory (or in a file); damaged files are skipped.

    Files that `write_state` was given a name for are found, too, and win if another one has as many
    examples; other JSON files are passed over.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     loader = tl.Loader(store.windows(2), batch_size=1)
    ...     paths = [write_state(loader.seek(step).state_dict(), folder) for step in (1, 3)]
    ...     latest_state(folder)["examples"], latest_state(folder + "/toy")
    (3, None)
    """
    root = place("folder", folder)
    files = files_of(root)
    if root.is_file() if isinstance(root, Path) else (files.measure(root) or 0) > 0:
        return read_state(root)
    names = files.list(root)
    named = [found for found in map(_named_state, names, [root] * len(names)) if found is not None]
    best = max(named, key=lambda state: int(state["examples"]), default=None)
    numbered = [match for match in map(_NAME.fullmatch, names) if match]
    for match in sorted(numbered, key=lambda match: int(match[1]), reverse=True):
        if best is not None and int(match[1]) <= best["examples"]:
            break
        try:
            return read_state(root / match[0])
        except StateError as error:
            log.warning("%s; using an older state.", str(error).rstrip("."))
    return best


def _named_state(name: str, root: Place) -> dict[str, Any] | None:
    """A state under a name of the user's own; None for anything else."""
    if not name.endswith(".json") or _NAME.fullmatch(name):
        return None
    with contextlib.suppress(StateError):
        return read_state(root / name)
    return None
