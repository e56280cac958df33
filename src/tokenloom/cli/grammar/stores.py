"""Commands that make, look into and tend a store, or tell what a layout of it would give."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.verbs import (
    add_document,
    add_executor,
    add_flag,
    add_number,
    add_overrides,
    add_verb,
    json_of,
    real,
)

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
    add_number(plan, "--snapshot", "number of an older snapshot")
    add_number(plan, "--seq-len", "tokens of a frame", nargs="+", required=True)
    plan.add_argument("--strategy", nargs="+", default=list(COMPARED), choices=STRATEGIES)
    plan.add_argument("--overflow", nargs="+", default=["split", "truncate"], choices=OVERFLOWS)
    add_flag(plan, "--add-bos", "BOS before every document")
    add_flag(plan, "--add-eos", "EOS after every document")
    add_number(plan, "--group-docs", "documents per group", default=10_000)
    add_number(plan, "--max-docs-per-bin", "largest number of documents per row")


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
    add_number(audit, "--epoch", "epoch (default: 0)", default=0)
    add_number(audit, "--limit", "number of examples (default: all)")
    cover = add_verb(
        views,
        "coverage",
        work="layouts:count_splices",
        example="splice coverage stores/books --seq-len 2048 --num-docs 3",
        help="how often each token is a target and each start is shown",
        description="Count what an epoch shows of each document: targets, starts, offsets.",
    )
    add_number(cover, "--epochs", "number (default: 1)", default=1)
    add_document(cover, "--document", "only this document, with a map", metavar="I")
    cover.add_argument("--svg", metavar="FILE", help="write a picture of one document")
    for command in (audit, cover):
        _add_options(command)


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("store", help="directory of the store")
    add_number(command, "--snapshot", "number of an older snapshot")
    select = command.add_argument_group(
        "documents", "default: all; with any of these options: one, or --num-docs"
    )
    add_number(select, "--num-docs", "number of documents")
    add_document(select, "--doc-index", "exactly these", nargs="+", metavar="I")
    select.add_argument("--doc-select-mode", choices=MODES, help="which of those that qualify")
    add_number(select, "--min-doc-length", "smallest number of tokens")
    add_number(select, "--max-doc-length", "largest number of tokens")
    splice = command.add_argument_group("splices", "the names and defaults of `store.splice`")
    add_number(splice, "--seq-len", "tokens of a frame", required=True)
    for name, what in LENGTHS:
        add_number(splice, f"--{name}", what)
    for name, words, what in CHOICES:
        splice.add_argument(f"--{name}", choices=words, help=what)
    splice.add_argument("--balance-tau", type=real, metavar="X", help="1: proportional, 0: equal")
    splice.add_argument("--alpha", type=real, metavar="X", help="prefer starts near the ends")
    add_flag(splice, "--no-adaptive-k", "leave out shorter documents")
    splice.add_argument(
        "--position-scheme",
        choices=("relative", "absolute", "reset"),
        help="positions of the model",
    )
    add_number(
        splice,
        "--bos",
        "add BOS before documents: the tokenizer's, or this token",
        metavar="ID",
        nargs="?",
        const=True,
    )


def add_build(commands: Any) -> None:
    """Add `build`."""
    build = add_verb(
        commands,
        "build",
        work="build:build",
        example="build 'corpus/*.jsonl' -o stores/wiki -t tokenizer.json --id-key id",
        help="tokenise text into a store",
        description="Tokenise text into a store. If it is killed and run again, it resumes after "
        "the last finished shard.",
    )
    build.add_argument(
        "inputs",
        nargs="+",
        help="files, directories, globs, URLs; a prefix txt:, lines:, jsonl:, parquet: or hf: "
        "gives the format; .gz and .zst are decompressed while reading",
    )
    build.add_argument("-o", "--out", required=True, help="directory or URL of the store")
    build.add_argument(
        "-t",
        "--tokenizer",
        help="tokenizer.json, its directory, bytes, a .model, tiktoken:NAME, a local transformers "
        "name, or module:function; may be left out for ready-made ids (with --vocab-size)",
    )
    _add_record_options(build.add_argument_group("records"))
    _add_chat_options(build.add_argument_group("conversations"))
    _add_token_options(build.add_argument_group("tokens"))
    _add_run_options(build.add_argument_group("run"))


def _add_record_options(group: Any) -> None:
    group.add_argument("--text-key", default="text", help="key of the text (default: text)")
    group.add_argument("--id-key", help="key of the document's id")
    group.add_argument("--ids-key", help="key of ready-made ids (default: input_ids)")
    group.add_argument("--metadata-keys", nargs="*", help="keys to keep (default: all others)")
    group.add_argument(
        "--column",
        action="append",
        metavar="NAME:DTYPE",
        help="a per-token column of ready-made ids; may be repeated",
    )
    group.add_argument("--filter", help="module:function that keeps records")
    group.add_argument("--transform", help="module:function that changes records")
    group.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="what to do on bad records"
    )
    group.add_argument("--encoding", default="utf-8", help="of text")
    group.add_argument(
        "--errors",
        choices=("strict", "replace", "ignore"),
        default="strict",
        help="what becomes of bytes that do not fit the encoding",
    )
    add_number(group, "--max-record-bytes", "longer records are bad records (default: 128 MiB)")


def _add_chat_options(group: Any) -> None:
    group.add_argument(
        "--chat",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="records hold messages, or a prompt and a completion (default: if the first one does)",
    )
    group.add_argument("--chat-template", help="a .jinja file (default: the tokenizer's own)")
    group.add_argument(
        "--train-on",
        choices=("assistant", "last", "completion", "all"),
        help="default: assistant for messages, completion for a prompt and a completion",
    )
    group.add_argument(
        "--template-args", type=json_of, metavar="JSON", help="names that the template may read"
    )


def _add_token_options(group: Any) -> None:
    flag = argparse.BooleanOptionalAction
    add_number(group, "--vocab-size", "every id is below this")
    for name in ("bos", "eos", "pad"):
        group.add_argument(f"--{name}", help=f"id or token of {name.upper()}; 'none' if absent")
    group.add_argument("--add-bos", action=flag, default=None, help="BOS before each document")
    group.add_argument("--add-eos", action=flag, default=None, help="EOS after each document")
    add_flag(group, "--strict", "missing specials are errors")
    add_flag(group, "--parse-special", "text may spell special tokens")
    group.add_argument("--engine", choices=("auto", "reference", "fast"), default="auto")
    add_flag(group, "--verify-all", "check every document against the reference")


class _Part(argparse.Action):
    """Keeps the part, and has it done by a module that imports little."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        namespace.part, namespace.work = values, "part:part"


def _add_run_options(group: Any) -> None:
    add_number(group, "--workers", "processes (default: as many as pay, at most one per core)")
    add_number(group, "--stretches", "cut the inputs into that many, as parts would (default: 1)")
    add_executor(group)
    group.add_argument(
        "--part",
        action=_Part,
        metavar="K/N",
        help="do only part K of N, from 1; parts may run at once, anywhere, in any order",
    )
    add_flag(group, "--finish", "publish the store when every part is done")
    add_flag(group, "--append", "add to an existing store")
    add_flag(group, "--overwrite", "replace an existing store when this one is done")
    group.add_argument(
        "--duplicates",
        choices=("warn", "error", "allow"),
        default="warn",
        help="about files listed twice, or with the content of another input",
    )
    add_number(group, "--chunk-tokens", "tokens per io block")
    add_number(group, "--shard-tokens", "largest number of tokens per shard")


def add_exchange(commands: Any) -> None:
    """Add `convert` and `export`."""
    export = add_verb(
        commands,
        "export",
        work="build:export",
        example="export stores/wiki exports/wiki --to megatron",
        help="write a store as files of another library",
        description="Write the documents of a store as a folder that another library reads. "
        "What its format cannot hold is refused, with the first document that has it. "
        "The folder appears when it is complete.",
    )
    export.add_argument("store", help="directory or URL of a store, or files of others")
    export.add_argument("out", help="the folder to make, on this machine")
    export.add_argument(
        "--to", required=True, choices=("megatron", "levanter", "parquet", "mds", "npy")
    )
    add_flag(export, "--lossy", "leave out what the format cannot hold, and count it")
    convert = add_verb(
        commands,
        "convert",
        work="build:convert",
        example="convert data/text_document stores/wiki",
        help="copy a store, ours or of others, into our own format",
        description="Copy a store into our own format, with the same digest: runs over the "
        "original go on over the copy. If it is killed and run again, it resumes after the last "
        "finished shard.",
    )
    convert.add_argument("store", help="directory or URL of a store, or files of others")
    convert.add_argument("out", help="directory or URL of the copy")
    add_number(convert, "--shard-tokens", "largest number of tokens per shard")
    for command in (export, convert):
        add_said(command)


def add_look(commands: Any) -> None:
    """Add `info` and `show`."""
    info = add_verb(
        commands,
        "info",
        work="show:info",
        example="info stores/wiki",
        help="what is in a store",
        description="Counts, lengths, tokenizer, digests and size of a store.",
    )
    info.add_argument("store", help="directory or URL of a store, or files of others")
    add_number(info, "--snapshot", "number of an older snapshot")
    info.add_argument("--svg", metavar="FILE", help="also draw the lengths of its documents")
    add_said(info)
    for name, example in (
        ("show", "show stores/wiki --doc 17 --limit 20"),
        ("dataset", "dataset run.yaml --tokenized --examples 5"),
    ):
        _add_show(commands, name, example)


def _add_show(commands: Any, name: str, example: str) -> None:
    """Add `show`, which is also `dataset`."""
    show = add_verb(
        commands,
        name,
        work="show:show",
        example=example,
        help="a document of a store, or examples of a run" if name == "show" else "as show",
        description="One document of a store: its metadata, and each token with the values of "
        "its per-token columns and its text. With --text, the text itself: what is not trained on "
        "is dim in a terminal, otherwise what is trained on is in ⟦brackets⟧. Of a run: some "
        "examples as text, or one cell by cell. Of JSON lines with input_ids: some rows.",
    )
    show.add_argument("target", help="a store, a run file, or JSON lines of ready-made ids")
    store = show.add_argument_group("a document of a store")
    add_document(store, "--doc", "number of the document, from 0")
    add_number(store, "--start", "first token to print", default=0)
    add_number(store, "--limit", "tokens to print (default: 40; with --text, all of them)")
    add_flag(store, "--text", "the text, with what is trained on")
    add_number(store, "--snapshot", "number of an older snapshot")
    run = show.add_argument_group("examples of a run")
    add_overrides(run)
    add_number(run, "--examples", "how many (default: 5)", default=5)
    add_number(run, "--first", "the first one (default: 0)", metavar="I", default=0)
    add_flag(run, "--tokenized", "also their ids")
    add_number(run, "--row", "one example, cell by cell", metavar="I")
    add_number(run, "--eos", "counts documents of ready-made ids", metavar="ID")


def add_said(verb: argparse.ArgumentParser, *, sealed: bool = True) -> None:
    """Add what is said about files of other projects, where they leave it open."""
    group = verb.add_argument_group("files of other projects")
    group.add_argument("--format", help="their format, if it is not found")
    group.add_argument("--dtype", help="how ids are stored")
    add_number(group, "--eos", "the id that ends documents", metavar="ID")
    add_number(group, "--bos", "the id that starts documents", metavar="ID")
    add_number(group, "--vocab-size", "every id is below this")
    words = "Levanter: ids whose file is missing are zeros"
    group.add_argument("--missing", choices=["zeros"], help=words)
    if sealed:
        group.add_argument("--seal", metavar="FILE", help="their seal, if it is not beside them")


def add_tend(commands: Any) -> None:
    """Add `verify`, `seal` and `gc`."""
    verify = add_verb(
        commands,
        "verify",
        work="verify:verify",
        example="verify stores/wiki",
        help="compare every byte with what was published",
        description="Read a whole store and compare it with what was published. "
        "Exit code 1 if anything differs, or if a newer snapshot is unfinished or lost.",
    )
    seal = add_verb(
        commands,
        "seal",
        work="verify:seal",
        example="seal data/corpus_text_document --to seals/corpus.seal",
        help="write checksums for files of other projects",
        description="Read the files of another project once and write the checksums of every chunk "
        "and the hashes of all documents into one file. From then on reads are checked.",
    )
    seal.add_argument("--to", metavar="FILE", help="the file to write (default: beside the files)")
    verify.add_argument("--part", metavar="K/N", help="only part K of N of the shards, from 1")
    add_said(verify)
    add_said(seal, sealed=False)
    gc = add_verb(
        commands,
        "gc",
        work="verify:gc",
        example="gc stores/wiki --dry-run",
        help="remove what no snapshot needs",
        description="Remove temporary files of builds that died, and more on request.",
    )
    add_flag(gc, "--old-snapshots", "also remove older snapshots")
    add_number(gc, "--pin", "snapshots to keep", nargs="*", default=[])
    gc.add_argument(
        "--pin-for",
        nargs="*",
        default=[],
        metavar="FILE",
        help="states or descriptions of runs: keep the snapshots that they name",
    )
    add_flag(gc, "--unfinished", "also remove shards of unfinished builds")
    gc.add_argument(
        "--idle-hours",
        type=real,
        default=24.0,
        metavar="H",
        help="where nothing locks (buckets): only what no build wrote to for so long (default: 24)",
    )
    add_flag(gc, "--dry-run", "only print what would be removed")
    for command in (verify, seal, gc):
        command.add_argument("store", help="directory or URL of the store, or foreign files")
