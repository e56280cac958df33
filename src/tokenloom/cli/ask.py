"""What is trained where: `tokenloom at`, `where` and `find`."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.arguments import check_between, check_names
from tokenloom.cli.printing import screen, table, write
from tokenloom.cli.runs import batch_size_of, open_run, open_target, pair
from tokenloom.errors import ConfigError, plural
from tokenloom.trace.answers import Example

HEADS = ("source", "document", "id", "rows", "cells", "epochs", "first_index")


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
            raise ConfigError(
                "at: nothing says which examples. Give an index, --step N or --steps A:B."
            )
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
    write(arguments, about, _document_lines(about))
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
        "first_index": one.first,
    }


def _document_lines(about: dict[str, Any]) -> Iterator[str]:
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
            yield from table([head.replace("_", " ") for head in HEADS], rows, width=screen())


def where(arguments: argparse.Namespace) -> int:
    """List the places of a document: `tokenloom where`."""
    run = open_run(arguments.run, arguments.set)
    tokens = None if arguments.tokens is None else pair("--tokens", arguments.tokens)
    places = run.where(
        arguments.source,
        arguments.doc,
        id=arguments.id,
        tokens=tokens,
        epochs=arguments.epochs,
        after=arguments.after,
        before=arguments.before,
        batch_size=batch_size_of(arguments, run),
    )
    found = list(itertools.islice(places, arguments.limit + 1))
    more = len(found) > arguments.limit
    found = found[: arguments.limit]
    about = {
        "places": [one.to_dict() for one in found],
        "more": more,
        "reason": None if found else getattr(places, "reason", None),
    }
    write(arguments, about, _place_lines(about))
    return 0


def _place_lines(about: dict[str, Any]) -> Iterator[str]:
    if not about["places"]:
        yield f"no place: {about['reason']}" if about["reason"] else "no place"
        return
    names = [name for name, value in about["places"][0].items() if value is not None]
    rows = [[place[name] for name in names] for place in about["places"]]
    yield from table(names, rows, width=screen())
    if about["more"]:
        yield "… there are more; --limit shows them"


def find(arguments: argparse.Namespace) -> int:
    """The documents of an id: `tokenloom find`."""
    target = open_target(arguments.target, arguments.set)
    if isinstance(target, Store):
        stores = {"": target}
    else:
        stores = {name: Store(one.reader, one.path) for name, one in target.sources.items()}
    found: list[dict[str, Any]] = []
    for name, store in stores.items():
        wanted = arguments.id
        numbers = store.find(hash=wanted).tolist() if arguments.hash else _of_id(store, wanted)
        found += [
            {"source": name or None, "document": n, "metadata": store.metadata(n)} for n in numbers
        ]
    write(arguments, {"found": found}, _found_lines(arguments.id, found))
    return 0 if found else 1


def _of_id(store: Store, wanted: str) -> list[int]:
    """Documents of an id, which may be kept as a number."""
    found = store.find(wanted).tolist()
    if not found and wanted.lstrip("-").isdigit():
        found = store.find(int(wanted)).tolist()
    return list(found)


def _found_lines(wanted: str, found: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{plural(len(found), 'document')} with {wanted!r}"
    if found:
        rows = [[one["source"], one["document"], str(one["metadata"])] for one in found]
        yield from table(("source", "document", "metadata"), rows, width=screen())
