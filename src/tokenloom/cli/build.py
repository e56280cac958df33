"""`tokenloom build`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from tokenloom.api.build import build_store
from tokenloom.cli.printing import summary, write
from tokenloom.errors import plural

__all__ = ["build"]


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


def build(arguments: argparse.Namespace) -> int:
    """Make a store: `tokenloom build`."""
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
