"""`tokenloom where`, `tokenloom next` and `tokenloom find`: a document → its places."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.cli.printing import write
from tokenloom.cli.runs import batch_size_of, open_run, open_target, pair
from tokenloom.cli.tables import screen, table
from tokenloom.errors import plural
from tokenloom.trace.answers import Nowhere, Place

__all__ = ["find", "following", "where"]


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
    write(arguments, about, _lines(about))
    return 0


def following(arguments: argparse.Namespace) -> int:
    """The next place of a document: `tokenloom next`."""
    run = open_run(arguments.run, arguments.set)
    size = batch_size_of(arguments, run)
    found: Place | Nowhere
    if arguments.id is None:
        found = run.next(arguments.source, arguments.doc, after=arguments.after, batch_size=size)
    else:
        places = run.where(arguments.source, id=arguments.id, batch_size=size)
        found = next((one for one in places if one.index > arguments.after), Nowhere("no place"))
    about: dict[str, Any] = {"place": None, "reason": None}
    if isinstance(found, Nowhere):
        about["reason"] = found.reason
    else:
        about["place"] = found.to_dict()
    write(arguments, about, [repr(found)])
    return 0


def _lines(about: dict[str, Any]) -> Iterator[str]:
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
    target = open_target(arguments.target)
    stores = {"": target} if isinstance(target, Store) else _stores(target)
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


def _stores(run: Dataset) -> dict[str, Store]:
    """The store of each source."""
    return {name: Store(source.reader, source.path) for name, source in run.sources.items()}


def _found_lines(wanted: str, found: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{plural(len(found), 'document')} with {wanted!r}"
    if found:
        rows = [[one["source"], one["document"], str(one["metadata"])] for one in found]
        yield from table(("source", "document", "metadata"), rows, width=screen())
