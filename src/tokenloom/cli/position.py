"""What a run will train, and where a saved one is: `tokenloom plan` and `state`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import check_between
from tokenloom.cli.printing import screen, table, write
from tokenloom.cli.runs import batch_size_of, open_run, refuse_overrides, saved_state
from tokenloom.config import from_config
from tokenloom.errors import ConfigError, TokenloomError, binary_size, plural
from tokenloom.loader.loader import Loader
from tokenloom.loader.state import check_state
from tokenloom.order.schedule import Steps

PLAN_HEADS = ("name", "rows", "share", "tokens", "fill", "epochs")

SIMULATED = 1000  # steps of the forecast


def plan(arguments: argparse.Namespace) -> int:
    """Print what a run trains: `tokenloom plan`."""
    check_between("--steps", arguments.steps, 1)
    run = open_run(arguments.run, arguments.set)
    size = batch_size_of(arguments, run, needed=arguments.steps is not None)
    examples = run.run.n
    if arguments.steps is not None:
        wanted = Steps(size).begin(arguments.steps)
        examples = wanted if examples is None else min(wanted, examples)
    about: dict[str, Any] = {
        "fingerprint": run.fingerprint,
        "seq_len": run.seq_len,
        "examples": run.run.n,
        "planned": examples,
        "batch_size": size,
        "sources": [] if examples is None else _sources(run, examples),
        "forecast": None if size is None else _forecast(run, size, arguments.steps),
    }
    write(arguments, about, _plan_lines(run, about))
    return 0


def _sources(run: Dataset, examples: int) -> list[dict[str, Any]]:
    """What the first examples take from each source."""
    found = []
    for one in run.consumed(examples):
        cells = one["rows"] * run.seq_len
        found.append(
            {
                **one,
                "share": one["rows"] / examples if examples else 0.0,
                "fill": one["tokens"] / cells if cells else None,
            }
        )
    return found


def _forecast(run: Dataset, size: Any, steps: int | None) -> dict[str, Any]:
    """What one rank that loads all rows fetches in its first steps."""
    with Loader(run, size, rank=0, world_size=1) as loader:
        simulated = min(SIMULATED, steps or SIMULATED)
        found = asdict(loader.forecast(simulated))
    examples = max(1, found["examples"])
    return {**found, "reads_per_example": found["fetches"] / examples}


def _plan_lines(run: Dataset, about: dict[str, Any]) -> Iterator[str]:
    yield repr(run)
    planned = about["planned"]
    if planned is None:
        yield "endless; --steps N says what the first N steps train"
    else:
        yield ""
        yield f"{plural(planned, 'example')}, {planned * about['seq_len']:,} cells"
        rows = [[_shown(one, head) for head in PLAN_HEADS] for one in about["sources"]]
        yield from table(("source", *PLAN_HEADS[1:]), rows, width=screen())
    told = about["forecast"]
    if told is not None:
        yield ""
        yield (
            f"first {plural(told['steps'], 'step')}: {told['fetches']:,} fetches of "
            f"{told['blocks']:,} blocks, {told['reads_per_example']:.4g} reads an example; "
            f"{told['how']}, {binary_size(told['needed_bytes'])} of memory at once"
        )
        if told["advice"]:
            yield told["advice"]


def _shown(one: dict[str, Any], head: str) -> Any:
    value = one[head]
    return f"{value:.1%}" if head in ("share", "fill") and value is not None else value


STATE_HEADS = ("source", "rows", "of", "percent", "tokens", "epochs")


def state(arguments: argparse.Namespace) -> int:
    """Print a position: `tokenloom state`."""
    rate = arguments.tokens_per_second
    if rate is not None and not rate > 0:
        raise ConfigError(f"tokens_per_second: found {rate:g}, allowed: above 0.")
    saved = saved_state(arguments.file)
    run, trouble = _run_of(arguments, saved)
    about = position(saved, run)
    left = about["tokens_left"]
    about["seconds_left"] = None if rate is None or left is None else left / rate
    about["trouble"] = trouble
    write(arguments, about, _state_lines(about))
    return 0


def _run_of(
    arguments: argparse.Namespace, saved: Mapping[str, Any]
) -> tuple[Dataset | None, str | None]:
    """The run of a state; None if its stores are not there, and what is wrong."""
    if arguments.run is not None:
        run = open_run(arguments.run, arguments.set)
        check_state(saved, run.describe(), run.run.n)
        return run, None
    refuse_overrides(arguments.set, "a state")
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


def _state_lines(about: dict[str, Any]) -> Iterator[str]:
    whole = "" if about["of"] is None else f" of {about['of']:,} ({about['percent']:g} %)"
    yield f"step {about['step']:,}: {about['examples']:,} examples{whole}"
    yield f"run {about['fingerprint'][:16]}"
    if about["sources"]:
        rows = [
            [one.get("name", one.get(h)) if h == "source" else one[h] for h in STATE_HEADS]
            for one in about["sources"]
        ]
        yield from table(STATE_HEADS, rows, width=screen())
    if about["seconds_left"] is not None:
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
