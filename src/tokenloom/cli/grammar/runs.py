"""Commands that ask a run: what it will train, what it trains where, and whether two are equal."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.verbs import (
    add_document,
    add_flag,
    add_number,
    add_overrides,
    add_verb,
    real,
    rows_of_steps,
    whole,
)


def add_files(commands: Any) -> None:
    """Add `init` and `check`."""
    init = add_verb(
        commands,
        "init",
        work="run_files:init",
        example="init corpus",
        help="write a commented run file for a folder of data",
        description="Write a run file for the stores and the text in a folder. It loads as it is, "
        "and shows every document once.",
    )
    init.add_argument("folder", help="folder with stores or text")
    init.add_argument("-o", "--out", help="the file to write (default: run.yaml in the folder)")
    add_number(init, "--seq-len", "tokens of a frame (2048)", default=2048)
    add_number(init, "--batch-size", "rows of a step (64)", default=64)
    check = add_verb(
        commands,
        "check",
        work="run_files:check_file",
        example="check run.yaml --set loader.batch_size=128 --set sources.wiki.epochs=3",
        help="every problem of a run file, or the tree of its run",
        description="Read a run file and print all its problems with their lines, or the run that "
        "it describes. Nothing is built and no token is read. Of stores that would be built, the "
        "inputs are listed and their first records read.",
    )
    check.add_argument("file", nargs="?", help="run file (.yaml, .json, .toml)")
    add_overrides(check)
    add_flag(check, "--schema", "print the JSON schema for editors")


def add_plan(commands: Any) -> None:
    """Add `plan` and `state`."""
    plan = add_verb(
        commands,
        "plan",
        work="position:plan",
        example="plan run.yaml --steps 10000",
        help="what a run will train",
        description="The tree of a run, its steps, and what each source gives: rows, tokens, share "
        "and epochs; then what the first steps of a loader would read. No token is read, but "
        "stores of the file's build section that are not there yet are built first; `tokenloom "
        "check` builds nothing.",
    )
    _add_run(plan)
    add_batch_size(plan)
    add_number(plan, "--steps", "steps to plan (default: all of them)")
    state = add_verb(
        commands,
        "state",
        work="position:state",
        example="state checkpoints/ --tokens-per-second 250000",
        help="where a saved run is",
        description="The position in a state file: examples, and rows, tokens, percent and epochs "
        "of each source. Of a directory, the newest state in it.",
    )
    state.add_argument("file", help="a state, or a directory of states")
    state.add_argument("--run", help="the run, if the stores that the state names were moved")
    add_overrides(state, "the file of --run")
    state.add_argument(
        "--tokens-per-second", type=real, metavar="X", help="also tell the time that is left"
    )


def add_ask(commands: Any) -> None:
    """Add `at`, `where` and `find`."""
    at = add_verb(
        commands,
        "at",
        work="ask:at",
        example="at run.yaml --step 340 --row 7 --batch-size 64 --text",
        help="what is trained at a step",
        description="What an example holds: its documents, their cells, and the way there. With "
        "--steps, a table of the documents trained in several steps, those that appear for the "
        "first time and those that were trained before.",
    )
    _add_run(at)
    add_batch_size(at)
    at.add_argument("index", type=whole, nargs="?", help="index of the example")
    add_number(at, "--step", "instead of an index: all rows of a step")
    add_number(at, "--row", "with --step: only this row")
    at.add_argument("--steps", metavar="A:B", help="documents of steps A to B - 1, as a table")
    at.add_argument("--source", metavar="NAME", help="with --steps: only this source")
    add_number(at, "--rank", "with --steps: only rows of this rank", metavar="R")
    add_number(at, "--world", "number of ranks", metavar="W")
    add_flag(at, "--text", "also the text")
    add_flag(at, "--metadata", "also what is known of each document")
    where = add_verb(
        commands,
        "where",
        work="ask:where",
        example="where run.yaml --source wiki --doc 123 --batch-size 64",
        help="where a document is trained",
        description="Every place at which a document is trained, in the order of training. "
        "--after INDEX --limit 1 is the next one.",
    )
    _add_run(where)
    add_batch_size(where)
    where.add_argument("--source", metavar="NAME", help="its source; not needed if there is one")
    add_document(
        where, "--doc", "number of the document in its store, from 0", "--id {id}", metavar="N"
    )
    where.add_argument("--id", metavar="ID", help="instead of --doc: every document of that id")
    where.add_argument("--tokens", metavar="A:B", help="only these tokens of the document")
    add_number(where, "--epochs", "only the first N epochs")
    add_number(where, "--after", "only examples after this one", metavar="INDEX", default=-1)
    add_number(where, "--before", "only examples before this one", metavar="INDEX")
    add_number(where, "--limit", "places (default: 20)", default=20)
    find = add_verb(
        commands,
        "find",
        work="ask:find",
        example="find stores/wiki 'https://example.org/page'",
        help="the document with an id",
        description="The numbers of the documents with an id, or with a content hash, in a store "
        "or in every source of a run.",
    )
    find.add_argument("target", help="a store, or a run file")
    find.add_argument("id", help="the id, as it was built with --id-key")
    add_overrides(find)
    add_flag(find, "--hash", "the id is 32 hex digits of a hash")


def add_compare(commands: Any) -> None:
    """Add `digest`, `diff` and `edit`."""
    digest = add_verb(
        commands,
        "digest",
        work="compare:digest",
        example="digest run.yaml --first 0 --last 6400",
        help="the identity of examples, or of a store",
        description="One sha256 over the arrays of some examples of a run: equal on every machine, "
        "with every number of ranks, in every framework. Of a store, the identity of its content.",
    )
    digest.add_argument("target", help="a run file, or a store")
    add_overrides(digest)
    add_number(digest, "--first", "the first example (default: 0)", metavar="I")
    add_number(digest, "--last", "the end (default: all)", metavar="I")
    add_flag(digest, "--plan", "of what is where; reads no token")
    diff = add_verb(
        commands,
        "diff",
        work="compare:diff",
        example="diff run.yaml run2.yaml",
        help="whether two runs train the same",
        description="The first example that differs, the share of equal examples, and every "
        "setting that differs, with what it changes. Exit code 1 if the runs differ.",
    )
    diff.add_argument("run", help="a run file")
    diff.add_argument("other", help="another run file, or the same one with --set")
    add_overrides(diff, "the other run file")
    edit = add_verb(
        commands,
        "edit",
        work="compare:edit",
        example="edit run.yaml --at 6400 --weights code=4 -o run2.yaml",
        help="change the future of a run",
        description="Write a run file that is the given run up to an example and another one from "
        "there on, and print the proof: the plan digest of everything before.",
    )
    _add_run(edit)
    add_number(edit, "--at", "first example that changes", metavar="I", required=True)
    edit.add_argument("--weights", nargs="+", default=[], metavar="NAME=X", help="new weights")
    edit.add_argument("--remove", nargs="+", default=[], metavar="NAME", help="sources that end")
    edit.add_argument(
        "--quarantine",
        nargs="+",
        default=[],
        metavar="NAME:DOC",
        help="documents that become filler without loss",
    )
    edit.add_argument("-o", "--out", required=True, help="the new run file")


def add_explore(commands: Any) -> None:
    """Add `explore`."""
    explore = add_verb(
        commands,
        "explore",
        work="explore:explore",
        example="explore run.yaml --batch-size 64",
        help="look at any step of a run in a browser",
        description="Serve pages about a run to the browser of this machine: its steps, rows, "
        "tokens and documents, and how it differs from another run. The address has a secret in "
        "it; nothing is written outside the cache directory. Ctrl-C ends it.",
    )
    explore.add_argument("run", help="a run file, or a description as JSON")
    explore.add_argument("other", nargs="?", help="another one, to be compared with it")
    add_overrides(explore, "the run file, or of the other one if there are two")
    add_batch_size(explore)
    add_number(explore, "--port", "port to listen on (default: a free one)", default=0)
    explore.add_argument(
        "--seconds", type=real, metavar="X", help="end by itself after that time (default: Ctrl-C)"
    )


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("run", help="a run file, or a description as JSON")
    add_overrides(verb)


def add_batch_size(verb: Any) -> None:
    """Add `--batch-size`."""
    verb.add_argument(
        "--batch-size",
        type=rows_of_steps,
        metavar="B",
        help="rows of a step over all ranks, or a schedule: 0:64,6400:128 (default: the file's)",
    )
