"""`tokenloom plan`: what a run will train, before it costs anything."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import check_between
from tokenloom.cli.printing import write
from tokenloom.cli.runs import batch_size_of, open_run
from tokenloom.cli.tables import screen, table
from tokenloom.errors import binary_size, plural
from tokenloom.loader.loader import Loader
from tokenloom.loader.steps import Steps

__all__ = ["plan"]

HEADS = ("source", "rows", "share", "tokens", "fill", "epochs")

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
    write(arguments, about, _lines(run, about))
    return 0


def _sources(run: Dataset, examples: int) -> list[dict[str, Any]]:
    """What the first examples take from each source."""
    found = []
    for one in run.consumed(examples):
        cells = one["rows"] * run.seq_len
        found.append(
            {
                **one,
                "source": one["name"],
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


def _lines(run: Dataset, about: dict[str, Any]) -> Iterator[str]:
    yield repr(run)
    planned = about["planned"]
    if planned is None:
        yield "endless; --steps N says what the first N steps train"
    else:
        yield ""
        yield f"{plural(planned, 'example')}, {planned * about['seq_len']:,} cells"
        rows = [[_shown(one, head) for head in HEADS] for one in about["sources"]]
        yield from table(HEADS, rows, width=screen())
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
