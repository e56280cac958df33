"""What a layout of a store would give: `tokenloom pack-plan`, `splice audit`, `splice coverage`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.api.plan_packing import plan_packing
from tokenloom.api.store import open_store
from tokenloom.arguments import check_between
from tokenloom.cli.grammar.stores import CHOICES, LENGTHS
from tokenloom.cli.printing import write, write_whole
from tokenloom.errors import plural
from tokenloom.inspect.coverage import Coverage, coverage
from tokenloom.inspect.splices import Listing, triples
from tokenloom.layout.pack.compare import PackingChoice
from tokenloom.limits import limits

SELECTING = ("num_docs", "doc_index", "doc_select_mode", "min_doc_length", "max_doc_length")

COLUMNS = ("index", "epoch", "document", "t", "s")


def pack_plan(arguments: argparse.Namespace) -> int:
    """Compare ways of packing: `tokenloom pack-plan`."""
    store = open_store(arguments.store, snapshot=arguments.snapshot)
    names = ("add_bos", "add_eos", "group_docs")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.max_docs_per_bin is not None:
        options["max_docs_per_bin"] = arguments.max_docs_per_bin
    plan = plan_packing(
        store,
        seq_len=arguments.seq_len,
        strategy=arguments.strategy,
        overflow=arguments.overflow,
        **options,
    )
    assert not isinstance(plan, PackingChoice)  # lists were given
    write(arguments, plan.as_json(), str(plan).splitlines())
    return 0


def _dataset(arguments: argparse.Namespace) -> Dataset:
    """The requested dataset; endless, so that any epoch can be shown."""
    store = open_store(arguments.store, snapshot=arguments.snapshot)
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    select = {name: given[name] for name in SELECTING if name in given}
    names = [name.replace("-", "_") for name, *_ in (*LENGTHS, *CHOICES)]
    names += ["balance_tau", "alpha", "position_scheme", "bos"]
    options = {name: given[name] for name in names if name in given}
    if arguments.no_adaptive_k:
        options["adaptive_k"] = False
    documents = store.select(**select) if select else store
    return documents.splice(arguments.seq_len, **options).epochs(None)


# -- audit ---------------------------------------------------------------------------------
def list_splices(arguments: argparse.Namespace) -> int:
    """List what an epoch shows: `tokenloom splice audit`."""
    chunk = limits().inspected_chunk_examples
    for name, least in (("epoch", 0), ("limit", 1)):
        check_between(f"--{name}", getattr(arguments, name), least)
    dataset = _dataset(arguments)
    phases = dataset.run.sources[0].phases
    first, stop = phases.start(arguments.epoch), phases.start(arguments.epoch + 1)
    last = stop if arguments.limit is None else min(stop, first + arguments.limit)
    if arguments.json:
        found = triples(dataset, np.arange(first, last))
        about = {"epoch": arguments.epoch, "examples": stop - first, "listed": last - first}
        columns = {name: getattr(found, name).tolist() for name in COLUMNS}
        write(arguments, {**about, "splices": columns}, ())
        return 0
    if not arguments.quiet:
        shown = "" if last == stop else f", the first {last - first:,} of them"
        of = f"epoch {arguments.epoch} of {arguments.store}"
        print(f"tokenloom: {of}: {plural(stop - first, 'example')}{shown}", file=sys.stderr)
        print(_columns(COLUMNS), file=sys.stderr, flush=True)
    for low in range(first, last, chunk):
        print(_lines(triples(dataset, np.arange(low, min(low + chunk, last)))))
    return 0


def _lines(found: Listing) -> str:
    columns = [getattr(found, name).tolist() for name in COLUMNS]
    return "\n".join(map(_columns, zip(*columns, strict=True)))


def _columns(cells: Iterable[int | str]) -> str:
    return " ".join(f"{cell:>10}" for cell in cells)


# -- coverage ------------------------------------------------------------------------------
def count_splices(arguments: argparse.Namespace) -> int:
    """Count what epochs show: `tokenloom splice coverage`."""
    dataset, one = _dataset(arguments), arguments.document
    documents = None if one is None else [one]
    found = coverage(dataset, documents=documents, epochs=arguments.epochs)
    if one is None and len(found.documents) == 1:
        one = int(found.documents[0])
    about = found.as_json() if arguments.json else {}
    if arguments.svg is not None:
        drawn = _most_shown(found) if one is None else one
        about["svg"] = {"file": arguments.svg, "document": drawn}
        write_whole(Path(arguments.svg), found.svg(drawn), "picture")
        if not arguments.quiet:
            print(f"tokenloom: {arguments.svg}: document {drawn}", file=sys.stderr)
    lines = found.lines()
    if one is not None:
        lines += ["", *found.map(one).splitlines()]
    write(arguments, about, lines)
    return 0


def _most_shown(found: Coverage) -> int:
    """The document with the most splices; the first one if several are equal."""
    return int(found.documents[np.argmax(found.splices)])
