"""Commands that make, look into and tend a store."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.values import document_number, json_of, real, whole
from tokenloom.cli.grammar.verbs import add_executor, add_overrides, add_verb


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
    group.add_argument(
        "--max-record-bytes", type=whole, help="longer records are bad records (default: 128 MiB)"
    )


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
    group.add_argument("--vocab-size", type=whole, help="every id is below this")
    for name in ("bos", "eos", "pad"):
        group.add_argument(f"--{name}", help=f"id or token of {name.upper()}; 'none' if absent")
    group.add_argument("--add-bos", action=flag, default=None, help="BOS before each document")
    group.add_argument("--add-eos", action=flag, default=None, help="EOS after each document")
    group.add_argument("--strict", action="store_true", help="missing specials are errors")
    group.add_argument("--parse-special", action="store_true", help="text may spell special tokens")
    group.add_argument("--engine", choices=("auto", "reference", "fast"), default="auto")
    group.add_argument(
        "--verify-all", action="store_true", help="check every document against the reference"
    )


class _Part(argparse.Action):
    """Keeps the part, and has it done by a module that imports little."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        namespace.part, namespace.work = values, "part:part"


def _add_run_options(group: Any) -> None:
    group.add_argument(
        "--workers", type=whole, help="processes (default: as many as pay, at most one per core)"
    )
    group.add_argument(
        "--stretches", type=whole, help="cut the inputs into that many, as parts would (default: 1)"
    )
    add_executor(group)
    group.add_argument(
        "--part",
        action=_Part,
        metavar="K/N",
        help="do only part K of N, from 1; parts may run at once, anywhere, in any order",
    )
    group.add_argument(
        "--finish", action="store_true", help="publish the store when every part is done"
    )
    group.add_argument("--append", action="store_true", help="add to an existing store")
    group.add_argument(
        "--overwrite", action="store_true", help="replace an existing store when this one is done"
    )
    group.add_argument(
        "--duplicates",
        choices=("warn", "error", "allow"),
        default="warn",
        help="about files listed twice, or with the content of another input",
    )
    group.add_argument("--chunk-tokens", type=whole, help="tokens per io block")
    group.add_argument("--shard-tokens", type=whole, help="largest number of tokens per shard")


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
    export.add_argument(
        "--lossy",
        action="store_true",
        help="leave out what the format cannot hold, and count it",
    )
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
    convert.add_argument("--shard-tokens", type=whole, help="largest number of tokens per shard")
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
    info.add_argument("--snapshot", type=whole, help="number of an older snapshot")
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
    store.add_argument(
        "--doc",
        type=document_number("tokenloom find STORE {id}"),
        help="number of the document, from 0",
    )
    store.add_argument("--start", type=whole, default=0, help="first token to print")
    store.add_argument(
        "--limit", type=whole, help="tokens to print (default: 40; with --text, all of them)"
    )
    store.add_argument("--text", action="store_true", help="the text, with what is trained on")
    store.add_argument("--snapshot", type=whole, help="number of an older snapshot")
    run = show.add_argument_group("examples of a run")
    add_overrides(run)
    run.add_argument("--examples", type=whole, default=5, metavar="N", help="how many (default: 5)")
    run.add_argument(
        "--first", type=whole, default=0, metavar="I", help="the first one (default: 0)"
    )
    run.add_argument("--tokenized", action="store_true", help="also their ids")
    run.add_argument("--row", type=whole, metavar="I", help="one example, cell by cell")
    run.add_argument("--eos", type=whole, metavar="ID", help="counts documents of ready-made ids")


def add_said(verb: argparse.ArgumentParser, *, sealed: bool = True) -> None:
    """Add what is said about files of other projects, where they leave it open."""
    group = verb.add_argument_group("files of other projects")
    group.add_argument("--format", help="their format, if it is not found")
    group.add_argument("--dtype", help="how ids are stored")
    group.add_argument("--eos", type=whole, metavar="ID", help="the id that ends documents")
    group.add_argument("--bos", type=whole, metavar="ID", help="the id that starts documents")
    group.add_argument("--vocab-size", type=whole, help="every id is below this")
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
    gc.add_argument("--old-snapshots", action="store_true", help="also remove older snapshots")
    gc.add_argument("--pin", type=whole, nargs="*", default=[], help="snapshots to keep")
    gc.add_argument(
        "--pin-for",
        nargs="*",
        default=[],
        metavar="FILE",
        help="states or descriptions of runs: keep the snapshots that they name",
    )
    gc.add_argument(
        "--unfinished", action="store_true", help="also remove shards of unfinished builds"
    )
    gc.add_argument(
        "--idle-hours",
        type=real,
        default=24.0,
        metavar="H",
        help="where nothing locks (buckets): only what no build wrote to for so long (default: 24)",
    )
    gc.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    for command in (verify, seal, gc):
        command.add_argument("store", help="directory or URL of the store, or foreign files")
