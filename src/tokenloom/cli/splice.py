"""`tokenloom splice audit` and `tokenloom splice coverage`: what a splice shows, before it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import open_store
from tokenloom.arguments import check_between
from tokenloom.cli.printing import write, write_whole
from tokenloom.documents.spec import MODES
from tokenloom.errors import plural
from tokenloom.inspect.coverage import Coverage, coverage
from tokenloom.inspect.splices import Listing, triples
from tokenloom.layout.splice.spec import WORDS

__all__ = ["add_commands"]

CHUNK = 1 << 14  # examples listed at once

SELECTING = ("num_docs", "doc_index", "doc_select_mode", "min_doc_length", "max_doc_length")

COLUMNS = ("index", "epoch", "document", "t", "s")

LENGTHS = (
    ("content-length", "tokens of a splice (default: as many as fit)"),
    ("content-stride", "tokens from one start to the next"),
    ("offset-stride", "cells from one offset to the next"),
    ("min-copy-len", "leave out splices with fewer tokens"),
    ("offset-jitter", "move splices to the left by up to N cells"),
    ("epoch-length", "examples per epoch"),
)

CHOICES = (
    ("mode", "splices, or frames full of a document"),
    ("content-start-mode", "which starts and offsets are used"),
    ("placement", "fit splices into the frame, or cut them"),
    ("balance-mode", "shares of documents"),
    ("sampler", "how an epoch iterates over them"),
    ("edge", "stay inside a document, or run past its ends"),
    ("fill", "one splice per frame, or several"),
)


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `splice`, a command with one sub-command per view."""
    splice = commands.add_parser(
        "splice",
        allow_abbrev=False,  # a later option must not change what an old command means
        help="what a splice would show",
        description="What `store.splice` shows, from lengths alone.",
    )
    views = splice.add_subparsers(dest="view", required=True, metavar="VIEW")
    audit = views.add_parser(
        "audit",
        parents=[common],
        allow_abbrev=False,
        help="every (document, t, s), one per line",
        description="List what an epoch shows: index, epoch, document, t (document offset at which "
        "a splice starts) and s (frame offset at which it is placed). Standard output has only the "
        "list; its heading goes to standard error.",
    )
    audit.set_defaults(run=_audit)
    audit.add_argument("--epoch", type=int, default=0, metavar="N", help="epoch (default: 0)")
    audit.add_argument("--limit", type=int, metavar="N", help="number of examples (default: all)")
    cover = views.add_parser(
        "coverage",
        parents=[common],
        allow_abbrev=False,
        help="how often each token is a target and each start is shown",
        description="Count what an epoch shows of each document: targets, starts, offsets.",
    )
    cover.set_defaults(run=_coverage)
    cover.add_argument("--epochs", type=int, default=1, metavar="N", help="number (default: 1)")
    cover.add_argument("--document", type=int, metavar="I", help="only this document, with a map")
    cover.add_argument("--svg", metavar="FILE", help="write a picture of one document")
    for command in (audit, cover):
        _add_options(command)


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("store", help="directory of the store")
    command.add_argument("--snapshot", type=int, help="number of an older snapshot")
    select = command.add_argument_group(
        "documents", "default: all; with any of these options: one, or --num-docs"
    )
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    select.add_argument("--num-docs", help="number of documents", **number)
    select.add_argument("--doc-index", type=int, nargs="+", metavar="I", help="exactly these")
    select.add_argument("--doc-select-mode", choices=MODES, help="which of those that qualify")
    select.add_argument("--min-doc-length", help="smallest number of tokens", **number)
    select.add_argument("--max-doc-length", help="largest number of tokens", **number)
    splice = command.add_argument_group("splices", "the names and defaults of `store.splice`")
    splice.add_argument("--seq-len", required=True, help="tokens of a frame", **number)
    for name, what in LENGTHS:
        splice.add_argument(f"--{name}", help=what, **number)
    for name, what in CHOICES:
        splice.add_argument(f"--{name}", choices=WORDS[name.replace("-", "_")], help=what)
    splice.add_argument("--balance-tau", type=float, metavar="X", help="1: proportional, 0: equal")
    splice.add_argument("--alpha", type=float, metavar="X", help="prefer starts near the ends")
    splice.add_argument("--no-adaptive-k", action="store_true", help="leave out shorter documents")
    splice.add_argument(
        "--position-scheme",
        choices=("relative", "absolute", "reset"),
        help="positions of the model",
    )
    splice.add_argument(
        "--bos",
        type=int,
        nargs="?",
        const=True,
        metavar="ID",
        help="add BOS before documents: the tokenizer's, or this token",
    )


def _dataset(arguments: argparse.Namespace) -> Dataset:
    """The requested dataset; endless, so that any epoch can be shown."""
    store = open_store(arguments.store, snapshot=arguments.snapshot)
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    select = {name: given[name] for name in SELECTING if name in given}
    names = [name.replace("-", "_") for name, _ in (*LENGTHS, *CHOICES)]
    names += ["balance_tau", "alpha", "position_scheme", "bos"]
    options = {name: given[name] for name in names if name in given}
    if arguments.no_adaptive_k:
        options["adaptive_k"] = False
    documents = store.select(**select) if select else store
    return documents.splice(arguments.seq_len, **options).epochs(None)


# -- audit ---------------------------------------------------------------------------------
def _audit(arguments: argparse.Namespace) -> int:
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
    for low in range(first, last, CHUNK):
        print(_lines(triples(dataset, np.arange(low, min(low + CHUNK, last)))))
    return 0


def _lines(found: Listing) -> str:
    columns = [getattr(found, name).tolist() for name in COLUMNS]
    return "\n".join(map(_columns, zip(*columns, strict=True)))


def _columns(cells: Iterable[int | str]) -> str:
    return " ".join(f"{cell:>10}" for cell in cells)


# -- coverage ------------------------------------------------------------------------------
def _coverage(arguments: argparse.Namespace) -> int:
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
