"""`tokenloom build`."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from tokenloom.api.build import build_store
from tokenloom.cli.printing import summary, write
from tokenloom.errors import plural

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `build`."""
    build = commands.add_parser(
        "build",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="tokenise text into a store",
        description="Tokenise text into a store. If it is killed and run again, it resumes after "
        "the last finished shard.",
    )
    build.set_defaults(run=_build)
    build.add_argument(
        "inputs",
        nargs="+",
        help="files, directories, globs; a prefix txt:, lines:, jsonl:, parquet: or hf: gives the "
        "format; .gz and .zst are decompressed while reading",
    )
    build.add_argument("-o", "--out", required=True, help="directory of the store")
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
    group.add_argument(
        "--encoding", nargs="+", default=["utf-8"], help="of text; several are tried in order"
    )
    group.add_argument(
        "--errors",
        choices=("strict", "replace", "ignore"),
        default="strict",
        help="what becomes of bytes that fit no encoding",
    )
    group.add_argument(
        "--max-record-bytes", type=int, help="longer records are bad records (default: 128 MiB)"
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
        "--template-args", type=json.loads, metavar="JSON", help="names that the template may read"
    )


def _add_token_options(group: Any) -> None:
    flag = argparse.BooleanOptionalAction
    group.add_argument("--vocab-size", type=int, help="every id is below this")
    for name in ("bos", "eos", "pad"):
        group.add_argument(f"--{name}", help=f"id or token of {name.upper()}; 'none' if absent")
    group.add_argument("--add-bos", action=flag, default=None, help="BOS before each document")
    group.add_argument("--add-eos", action=flag, default=None, help="EOS after each document")
    group.add_argument("--strict", action="store_true", help="missing specials are errors")
    group.add_argument("--parse-special", action="store_true", help="text may spell special tokens")
    group.add_argument(
        "--engine", choices=("auto", "reference", "tiktoken", "fast"), default="auto"
    )
    group.add_argument(
        "--verify-all", action="store_true", help="check every document against the reference"
    )


def _add_run_options(group: Any) -> None:
    group.add_argument(
        "--workers", type=int, help="processes (default: as many as pay, at most one per core)"
    )
    group.add_argument("--append", action="store_true", help="add to an existing store")
    group.add_argument(
        "--overwrite", action="store_true", help="replace an existing store when this one is done"
    )
    group.add_argument("--allow-duplicates", action="store_true", help="accept an input twice")
    group.add_argument("--chunk-tokens", type=int, help="tokens per io block")
    group.add_argument("--shard-tokens", type=int, help="largest number of tokens per shard")


_PASSED_ON = (
    "text_key",
    "id_key",
    "ids_key",
    "metadata_keys",
    "filter",
    "transform",
    "chat",
    "chat_template",
    "train_on",
    "template_args",
    "on_error",
    "encoding",
    "errors",
    "vocab_size",
    "add_bos",
    "add_eos",
    "strict",
    "parse_special",
    "engine",
    "verify_all",
    "workers",
    "append",
    "overwrite",
    "allow_duplicates",
)


def _build(arguments: argparse.Namespace) -> int:
    settings: dict[str, Any] = {name: getattr(arguments, name) for name in _PASSED_ON}
    for name in ("chunk_tokens", "shard_tokens", "max_record_bytes"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    for name in ("bos", "eos", "pad"):
        if getattr(arguments, name) is not None:
            settings[name] = _special(getattr(arguments, name))
    if arguments.column:
        settings["columns"] = dict(item.partition(":")[::2] for item in arguments.column)
    began = time.perf_counter()
    store = build_store(
        arguments.inputs,
        arguments.out,
        tokenizer=arguments.tokenizer,
        progress=False if arguments.quiet else None,
        **settings,
    )
    seconds = time.perf_counter() - began
    write(arguments, {**summary(store), "seconds": round(seconds, 3)}, _lines(store, seconds))
    return 0


def _special(text: str) -> int | str | None:
    """`none` is absent, digits are an id, anything else is a token."""
    if text.lower() == "none":
        return None
    return int(text) if text.isdigit() else text


def _lines(store: Any, seconds: float) -> list[str]:
    part = store.reader.manifest.parts[-1]
    left_out = f", {part.skipped:,} skipped, {part.filtered:,} filtered"
    return [
        (
            f"{store.path}: {plural(store.num_documents, 'document')}, "
            f"{plural(store.num_tokens, 'token')}"
            f"{left_out if part.skipped or part.filtered else ''} in {seconds:.1f} s"
        ),
        (
            f"digest {store.digest[:16]}, snapshot {store.snapshot}, "
            f"{plural(len(store.reader.manifest.shards), 'shard')}, {store.dtype.name}"
        ),
    ]
