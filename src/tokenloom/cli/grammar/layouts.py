"""Commands that answer what a layout of a store would give."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.values import document_number, real, whole
from tokenloom.cli.grammar.verbs import add_verb

# the words of the layouts, written again so that reading a command line loads none of them; a test
# keeps them equal
STRATEGIES = (
    "sequential",
    "greedy",
    "first_fit",
    "best_fit",
    "first_fit_decreasing",
    "best_fit_decreasing",
    "one_doc",
    "bin",
)
COMPARED = ("one_doc", "greedy", "sequential", "best_fit", "best_fit_decreasing")
OVERFLOWS = ("split", "truncate", "drop", "error")
MODES = ("first", "longest", "shortest", "random")

LENGTHS = (
    ("content-length", "tokens of a splice (default: as many as fit)"),
    ("content-stride", "tokens from one start to the next"),
    ("offset-stride", "cells from one offset to the next"),
    ("min-copy-len", "leave out splices with fewer tokens"),
    ("offset-jitter", "move splices to the left by up to N cells"),
    ("epoch-length", "examples per epoch"),
)

CHOICES = (
    ("mode", ("splice", "slide"), "splices, or frames full of a document"),
    (
        "content-start-mode",
        ("anchor_start", "slide_within", "coverage_balanced", "cyclic_roll"),
        "which starts and offsets are used",
    ),
    ("placement", ("fit", "truncate"), "fit splices into the frame, or cut them"),
    ("balance-mode", ("by_coverage", "by_document", "by_temperature"), "shares of documents"),
    ("sampler", ("enumerate", "quota", "stream"), "how an epoch iterates over them"),
    ("edge", ("inside", "clip"), "stay inside a document, or run past its ends"),
    ("fill", ("one", "pack"), "one splice per frame, or several"),
)


def add_pack_plan(commands: Any) -> None:
    """Add `pack-plan`."""
    plan = add_verb(
        commands,
        "pack-plan",
        work="layouts:pack_plan",
        example="pack-plan stores/wiki --seq-len 2048 4096",
        help="what each way of packing would cost",
        description="Rows, fill, lost tokens and cut documents of every strategy, from lengths "
        "alone: exactly what `store.pack` gives.",
    )
    plan.add_argument("store", help="directory of the store")
    plan.add_argument("--snapshot", type=whole, help="number of an older snapshot")
    plan.add_argument("--seq-len", type=whole, nargs="+", required=True, help="tokens of a frame")
    plan.add_argument("--strategy", nargs="+", default=list(COMPARED), choices=STRATEGIES)
    plan.add_argument("--overflow", nargs="+", default=["split", "truncate"], choices=OVERFLOWS)
    plan.add_argument("--add-bos", action="store_true", help="BOS before every document")
    plan.add_argument("--add-eos", action="store_true", help="EOS after every document")
    plan.add_argument("--group-docs", type=whole, default=10_000, help="documents per group")
    plan.add_argument("--max-docs-per-bin", type=whole, help="largest number of documents per row")


def add_splice(commands: Any) -> None:
    """Add `splice`, a command with one sub-command per view."""
    splice = commands.add_parser(
        "splice",
        allow_abbrev=False,  # a later option must not change what an old command means
        help="what a splice would show",
        description="What `store.splice` shows, from lengths alone.",
    )
    views = splice.add_subparsers(dest="view", required=True, metavar="VIEW")
    audit = add_verb(
        views,
        "audit",
        work="layouts:list_splices",
        example="splice audit stores/books --seq-len 2048 --num-docs 3 --limit 20",
        help="every (document, t, s), one per line",
        description="List what an epoch shows: index, epoch, document, t (document offset at which "
        "a splice starts) and s (frame offset at which it is placed). Standard output has only the "
        "list; its heading goes to standard error.",
    )
    audit.add_argument("--epoch", type=whole, default=0, metavar="N", help="epoch (default: 0)")
    audit.add_argument("--limit", type=whole, metavar="N", help="number of examples (default: all)")
    cover = add_verb(
        views,
        "coverage",
        work="layouts:count_splices",
        example="splice coverage stores/books --seq-len 2048 --num-docs 3",
        help="how often each token is a target and each start is shown",
        description="Count what an epoch shows of each document: targets, starts, offsets.",
    )
    cover.add_argument("--epochs", type=whole, default=1, metavar="N", help="number (default: 1)")
    cover.add_argument(
        "--document",
        type=document_number("tokenloom find STORE {id}"),
        metavar="I",
        help="only this document, with a map",
    )
    cover.add_argument("--svg", metavar="FILE", help="write a picture of one document")
    for command in (audit, cover):
        _add_options(command)


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("store", help="directory of the store")
    command.add_argument("--snapshot", type=whole, help="number of an older snapshot")
    select = command.add_argument_group(
        "documents", "default: all; with any of these options: one, or --num-docs"
    )
    number: dict[str, Any] = {"type": whole, "metavar": "N"}
    select.add_argument("--num-docs", help="number of documents", **number)
    select.add_argument(
        "--doc-index",
        type=document_number("tokenloom find STORE {id}"),
        nargs="+",
        metavar="I",
        help="exactly these",
    )
    select.add_argument("--doc-select-mode", choices=MODES, help="which of those that qualify")
    select.add_argument("--min-doc-length", help="smallest number of tokens", **number)
    select.add_argument("--max-doc-length", help="largest number of tokens", **number)
    splice = command.add_argument_group("splices", "the names and defaults of `store.splice`")
    splice.add_argument("--seq-len", required=True, help="tokens of a frame", **number)
    for name, what in LENGTHS:
        splice.add_argument(f"--{name}", help=what, **number)
    for name, words, what in CHOICES:
        splice.add_argument(f"--{name}", choices=words, help=what)
    splice.add_argument("--balance-tau", type=real, metavar="X", help="1: proportional, 0: equal")
    splice.add_argument("--alpha", type=real, metavar="X", help="prefer starts near the ends")
    splice.add_argument("--no-adaptive-k", action="store_true", help="leave out shorter documents")
    splice.add_argument(
        "--position-scheme",
        choices=("relative", "absolute", "reset"),
        help="positions of the model",
    )
    splice.add_argument(
        "--bos",
        type=whole,
        nargs="?",
        const=True,
        metavar="ID",
        help="add BOS before documents: the tokenizer's, or this token",
    )
