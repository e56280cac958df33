"""`tokenloom info` and `tokenloom show`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tokenloom.api.store import Store, open_store
from tokenloom.cli.printing import histogram, percentiles, summary, write
from tokenloom.errors import binary_size, plural
from tokenloom.store.derived.length_counts import LengthCounts, count_lengths

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `info` and `show`."""
    info = commands.add_parser(
        "info",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="what is in a store",
        description="Counts, lengths, tokenizer, digests and size of a store.",
    )
    info.set_defaults(run=_info)
    show = commands.add_parser(
        "show",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="one document, token by token",
        description="One document of a store: its metadata, and each token with the values of "
        "its per-token columns and its text.",
    )
    show.set_defaults(run=_show)
    show.add_argument("--doc", type=int, required=True, help="index of the document, from 0")
    show.add_argument("--start", type=int, default=0, help="first token to print")
    show.add_argument("--limit", type=int, default=40, help="tokens to print (default: 40)")
    for command in (info, show):
        command.add_argument("store", help="directory of the store")
        command.add_argument("--snapshot", type=int, help="number of an older snapshot")


def _info(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.store, snapshot=arguments.snapshot)
    about = summary(store)
    counts = count_lengths(store.reader)
    about["lengths"] = percentiles(counts)
    write(arguments, about, _info_lines(store, about, counts))
    return 0


def _info_lines(store: Store, about: dict[str, Any], counts: LengthCounts) -> Iterator[str]:
    yield f"{store.path}  snapshot {store.snapshot}, store format {about['format']}"
    yield f"  documents   {about['documents']:,}"
    yield f"  tokens      {about['tokens']:,}"
    on_disk = f"{binary_size(about['bytes'])} in {plural(about['shards'], 'shard')}"
    yield f"  size        {on_disk}, ids as {about['dtype']}"
    tokenizer = about["tokenizer"]
    if tokenizer:
        specials = ", ".join(
            f"{name} {'-' if tokenizer[name] is None else tokenizer[name]}"
            for name in ("bos", "eos", "pad")
        )
        yield (
            f"  tokenizer   {tokenizer['name']} ({tokenizer['kind']}), "
            f"{tokenizer['vocab_size']:,} ids, {specials}"
        )
    yield f"  engine      {about['engine']}"
    for name, dtype in about["columns"].items():
        yield f"  column      {name} ({dtype})"
    if about["skipped"] or about["filtered"]:
        yield f"  left out    {about['skipped']:,} skipped, {about['filtered']:,} filtered"
    yield f"  digest      {about['digest']}"
    yield f"  manifest    {about['manifest_sha256']}"
    if about["lengths"]:
        yield "  tokens per document"
        stats = about["lengths"]
        yield "    " + "  ".join(f"{name} {value:,.0f}" for name, value in stats.items())
        yield f"{'tokens':>24} {'documents':>12} {'share':>6}"
        yield from histogram(counts)


def _show(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.store, snapshot=arguments.snapshot)
    ids = store.document(arguments.doc)
    shown = slice(max(0, arguments.start), max(0, arguments.start) + max(0, arguments.limit))
    window = ids[shown]
    tokenizer = store.tokenizer
    strings = tokenizer.token_strings(window) if tokenizer else [str(i) for i in window]
    about = {
        "document": arguments.doc,
        "length": len(ids),
        "start": arguments.start,
        "metadata": store.metadata(arguments.doc),
        "ids": window.tolist(),
        "columns": {
            name: store.document(arguments.doc, name)[shown].tolist() for name in store.columns
        },
        "strings": strings,
        "text": tokenizer.decode(window) if tokenizer else None,
    }
    write(arguments, about, _show_lines(store, about))
    return 0


def _show_lines(store: Store, about: dict[str, Any]) -> Iterator[str]:
    yield f"document {about['document']:,} of {store.num_documents:,}: {about['length']:,} tokens"
    for key, value in about["metadata"].items():
        yield f"  {key}: {value}"
    columns = {name: list(map(_value, some)) for name, some in about["columns"].items()}
    widths = [max(len(name), 8) for name in columns]
    heads = "".join(f" {name:>{width}}" for name, width in zip(columns, widths, strict=True))
    yield f"{'offset':>10} {'id':>8}{heads}  text"
    rows = zip(about["ids"], about["strings"], *columns.values(), strict=True)
    for offset, (token, text, *values) in enumerate(rows, about["start"]):
        shown = "".join(f" {value:>{width}}" for value, width in zip(values, widths, strict=True))
        yield f"{offset:>10,} {token:>8}{shown}  {text}"
    left = about["length"] - about["start"] - len(about["ids"])
    if left > 0:
        yield f"{'':>20}… {left:,} more; --start and --limit show them"


def _value(value: bool | int | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(int(value))
