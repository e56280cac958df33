"""`tokenloom at`: what is trained at an index, or in which documents some steps train."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import check_between, check_names
from tokenloom.cli.printing import write
from tokenloom.cli.runs import batch_size_of, open_run, pair
from tokenloom.cli.tables import screen, table
from tokenloom.errors import ConfigError, plural
from tokenloom.trace.answers import Example

__all__ = ["at"]

HEADS = ("source", "document", "id", "rows", "cells", "epochs", "first index")


def at(arguments: argparse.Namespace) -> int:
    """Look at examples: `tokenloom at`."""
    run = open_run(arguments.run, arguments.set)
    if arguments.steps is not None:
        return _documents(arguments, run)
    for name in ("source", "rank", "world"):
        if getattr(arguments, name) is not None:
            raise ConfigError(f"{name}: it chooses rows of --steps A:B; give those as well.")
    needed = arguments.step is not None
    options = {
        "batch_size": batch_size_of(arguments, run, needed=needed),
        "text": arguments.text,
        "metadata": arguments.metadata,
    }
    if arguments.step is None:
        if arguments.index is None:
            raise ConfigError("at: give an index, --step N or --steps A:B.")
        found: Any = run.at(arguments.index, **options)
    else:
        found = run.at(step=arguments.step, row=arguments.row, **options)
    examples = [found] if isinstance(found, Example) else list(found)
    lines = [line for one in examples for line in repr(one).splitlines()]
    write(arguments, {"examples": [one.to_dict() for one in examples]}, lines)
    return 0


@dataclass(slots=True)
class _Trained:
    """What some steps train of one document."""

    source: str
    document: int
    first: int
    rows: int = 0
    cells: int = 0
    epochs: set[int] = field(default_factory=set)


def _documents(arguments: argparse.Namespace, run: Dataset) -> int:
    """The documents of several steps: new ones, and those that were trained before."""
    first, last = pair("--steps", arguments.steps)
    size = batch_size_of(arguments, run, needed=True)
    if arguments.source is not None:
        check_names("source", [arguments.source], list(run.sources))
    trained: dict[tuple[str, int], _Trained] = {}
    rows = 0
    for step in range(first, last):
        for one in _ranked(arguments, run.at(step=step, batch_size=size)):
            rows += 1
            _add(trained, one, arguments.source)
    start = min(int(one.index) for one in run.at(step=first, batch_size=size))
    new: list[_Trained] = []
    again: list[_Trained] = []
    for part in trained.values():
        known = next(iter(run.where(part.source, part.document, before=start)), None)
        (new if known is None else again).append(part)
    about = {
        "steps": [first, last],
        "batch_size": size,
        "rows": rows,
        "new": [_row(run, one) for one in new],
        "repeated": [_row(run, one) for one in again],
    }
    write(arguments, about, _lines(about))
    return 0


def _ranked(arguments: argparse.Namespace, examples: Sequence[Example]) -> Sequence[Example]:
    """The rows of one rank: [r·B//W, (r+1)·B//W) of the step."""
    rank, world = arguments.rank, arguments.world
    if (rank is None) != (world is None):
        raise ConfigError("--rank and --world: found one of them, allowed: both or neither.")
    if rank is None:
        return examples
    check_between("--world", world, 1)
    check_between("--rank", rank, 0, world - 1)
    rows = len(examples)
    return examples[rank * rows // world : (rank + 1) * rows // world]


def _add(trained: dict[tuple[str, int], _Trained], one: Example, source: str | None) -> None:
    seen = set()
    for span in one.spans:
        if span.blank or (source is not None and span.source != source):
            continue
        key = span.source, span.document
        known = trained.setdefault(key, _Trained(*key, first=one.index))
        known.first = min(known.first, one.index)
        known.cells += span.tokens
        known.epochs.add(span.epoch)
        known.rows += key not in seen
        seen.add(key)


def _row(run: Dataset, one: _Trained) -> dict[str, Any]:
    metadata = run.sources[one.source].reader.metadata(one.document)
    return {
        "source": one.source,
        "document": one.document,
        "id": metadata.get("id"),
        "rows": one.rows,
        "cells": one.cells,
        "epochs": sorted(one.epochs),
        "first index": one.first,
    }


def _lines(about: dict[str, Any]) -> Iterator[str]:
    first, last = about["steps"]
    yield f"steps {first:,} to {last - 1:,}: {plural(about['rows'], 'row')}"
    for name, said in (("new", "trained for the first time"), ("repeated", "trained before")):
        found = about[name]
        yield ""
        yield f"{plural(len(found), 'document')} {said}" + (":" if found else "")
        if found:
            rows = [
                [", ".join(map(str, row[h])) if h == "epochs" else row[h] for h in HEADS]
                for row in found
            ]
            yield from table(HEADS, rows, width=screen())
