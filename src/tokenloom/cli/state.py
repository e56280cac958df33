"""`tokenloom state`: where a saved run is, and how long it still takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.cli.printing import write
from tokenloom.cli.runs import open_run
from tokenloom.cli.tables import screen, table
from tokenloom.config import from_config
from tokenloom.errors import ConfigError, StateError, TokenloomError
from tokenloom.loader.state import check_state, latest_state

__all__ = ["state", "time_words"]

HEADS = ("source", "rows", "of", "percent", "tokens", "epochs")


def state(arguments: argparse.Namespace) -> int:
    """Print a position: `tokenloom state`."""
    rate = arguments.tokens_per_second
    if rate is not None and not rate > 0:
        raise ConfigError(f"tokens_per_second: found {rate:g}, allowed: above 0.")
    saved = latest_state(arguments.file)
    if saved is None:
        raise StateError(f"{arguments.file}: there is no state in it.")
    run, trouble = _run_of(arguments, saved)
    about = {**position(saved, run), "trouble": trouble}
    if rate is not None and about["tokens_left"] is not None:
        about["seconds_left"] = about["tokens_left"] / rate
    write(arguments, about, _lines(about))
    return 0


def _run_of(
    arguments: argparse.Namespace, saved: Mapping[str, Any]
) -> tuple[Dataset | None, str | None]:
    """The run of a state; None if its stores are not there, and what is wrong."""
    if arguments.run is not None:
        run = open_run(arguments.run)
        check_state(saved, run.describe(), run.run.n)
        return run, None
    if not saved.get("dataset"):
        return None, "the state has no description of its run; give it with --run."
    try:
        return from_config(saved["dataset"]), None
    except TokenloomError as error:
        return None, f"{error} Totals are left out; give the run as it is now with --run."


def position(saved: Mapping[str, Any], run: Dataset | None) -> dict[str, Any]:
    """What a state says: the whole run, and each source."""
    examples = int(saved["examples"])
    n = None if run is None else run.run.n
    sources = []
    for one in saved.get("sources") or ():
        of = None if run is None else run.rows_of(one["name"])
        share = round(100 * one["rows"] / of, 2) if of else None
        sources.append({**one, "of": of, "percent": share})
    left = None if run is None or n is None else max(0, n - examples) * run.seq_len
    return {
        "examples": examples,
        "step": saved["step"],
        "of": n,
        "percent": round(100 * examples / n, 2) if n else None,
        "tokens_left": left,
        "fingerprint": saved["fingerprint"],
        "sources": sources,
    }


def _lines(about: dict[str, Any]) -> Iterator[str]:
    whole = "" if about["of"] is None else f" of {about['of']:,} ({about['percent']:g} %)"
    yield f"step {about['step']:,}: {about['examples']:,} examples{whole}"
    yield f"run {about['fingerprint'][:16]}"
    if about["sources"]:
        rows = [
            [one.get("name", one.get(h)) if h == "source" else one[h] for h in HEADS]
            for one in about["sources"]
        ]
        yield from table(HEADS, rows, width=screen())
    if about.get("seconds_left") is not None:
        left = time_words(about["seconds_left"])
        yield f"{about['tokens_left']:,} cells are left: {left} at that rate"
    if about["trouble"]:
        yield f"note: {about['trouble']}"


def time_words(seconds: float) -> str:
    """A duration in words.

    >>> time_words(42), time_words(3725), time_words(200_000)
    ('42 s', '1 h 2 min', '2 d 7 h')
    """
    whole = round(seconds)
    parts = [
        (whole // 86_400, "d"),
        (whole // 3600 % 24, "h"),
        (whole // 60 % 60, "min"),
        (whole % 60, "s"),
    ]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{n} {unit}" for n, unit in parts[:2])
