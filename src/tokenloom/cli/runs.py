"""What a command is pointed at: a run file, a description, or a store.

One idea: every command opens what it is given in one place, so that it takes the same files, says
the same things about them, and knows the batch size that a run file gives.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store, open_store
from tokenloom.config import load
from tokenloom.errors import ConfigError, InputError, StateError
from tokenloom.loader.state import latest_state
from tokenloom.runfiles.make import only_looked_at
from tokenloom.store.files import LOCAL

MOST_BYTES = 64 << 20  # of a certificate, or of a file that may be one

RUN_FILES = (".yaml", ".yml", ".json", ".toml")


def open_run(path: str, changed: list[str] | None = None) -> Dataset:
    """The run of a run file or of a description, with other values of some keys."""
    if Path(path).is_dir():
        raise ConfigError(
            f"{path}: it is a directory, allowed: a run file. `tokenloom init {path}` writes one."
        )
    try:
        return load(path, overrides=changed or ())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. `tokenloom init FOLDER` writes one.") from None


@contextlib.contextmanager
def only_looking() -> Iterator[None]:
    """For commands that show a run: it may be empty, and documents that it chose are not listed."""
    log = logging.getLogger("tokenloom")
    log.addFilter(_is_no_list)
    try:
        with only_looked_at():
            yield
    finally:
        log.removeFilter(_is_no_list)


def _is_no_list(record: logging.LogRecord) -> bool:
    return "Selected " not in str(record.msg)


def open_target(path: str, changed: list[str]) -> Dataset | Store:
    """A store if it is a directory, or a URL that is not one of a run file; else a run."""
    remote = "://" in path and PurePath(path).suffix not in RUN_FILES
    if not remote and not Path(path).is_dir():
        return open_run(path, changed)
    refuse_overrides(changed, "a store")
    return open_store(path)


def refuse_overrides(changed: list[str], what: str) -> None:
    """Refuse other values for what has none, instead of ignoring them.

    >>> refuse_overrides(["seed=3"], "a store")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: --set: found seed=3, allowed: only with a run file; ...
    """
    if changed:
        raise ConfigError(
            f"--set: found {changed[0]}, allowed: only with a run file; {what} has no such values. "
            "Leave it out."
        )


def refuse_ignored(arguments: argparse.Namespace, what: str, usual: Mapping[str, Any]) -> None:
    """Refuse options that would be ignored silently: those that have no usual value."""
    for name, one in usual.items():
        if getattr(arguments, name) != one:
            raise ConfigError(f"{name}: found with {what}, where it has no effect. Leave it out.")


def saved_state(path: str) -> dict[str, Any]:
    """The state in a file, or the newest one in a directory."""
    saved = latest_state(path)
    if saved is None:
        raise StateError(
            f"{path}: there is no state in it, allowed: what write_state wrote, or a directory of "
            "such files."
        )
    return saved


def certificate_bytes(path: str) -> bytes:
    """What is in the file of a certificate."""
    raw = LOCAL.read(Path(path), MOST_BYTES)
    if raw is None:
        raise ConfigError(
            f"{path}: there is no such file. Write it with: tokenloom audit RUN -o FILE"
        )
    return raw


def batch_size_of(arguments: argparse.Namespace, run: Dataset, *, needed: bool = False) -> Any:
    """The batch size that was typed, else the one of the run file; None if there is none."""
    given = arguments.batch_size
    if given is None and run.file is not None:
        given = run.file.loader.get("batch_size")
    if given is None and needed:
        raise ConfigError("batch_size: the run file has none, so a step has no rows; give it.")
    return given


def pair(name: str, text: str) -> tuple[int, int]:
    """Two numbers, as in ``1200:1210``.

    >>> pair("--steps", "1200:1210")
    (1200, 1210)
    """
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise ConfigError(f"{name}: found {text!r}, allowed: two numbers A:B, A below B.")
    return int(first), int(last)
