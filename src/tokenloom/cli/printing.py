"""How results are printed: one JSON object, or lines of text; and what stores and lengths show."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store
from tokenloom.errors import StoreError
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.guarded import foreign_bytes
from tokenloom.store.files import replace_file
from tokenloom.store.length_counts import LengthCounts

BAR = 40  # characters of the longest bar

PERCENTS = (1, 5, 25, 50, 75, 95, 99)


def write(arguments: argparse.Namespace, value: dict[str, Any], lines: Iterable[str]) -> None:
    """Print `value` as JSON if requested, else `lines`."""
    if arguments.json:
        print(json.dumps(value, indent=1, ensure_ascii=False))
        return
    for line in lines:
        print(line)


def said(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a command line says about foreign files."""
    names = ("format", "dtype", "eos", "bos", "vocab_size", "seal", "missing")
    return {name: getattr(arguments, name, None) for name in names}


def summary(store: Store) -> dict[str, Any]:
    """The properties of a store, as JSON."""
    manifest = store.reader.manifest
    shard_bytes = sum(sum(shard.files.values()) for shard in manifest.shards)
    tokenizer, reader = manifest.tokenizer, store.reader
    if isinstance(reader, ForeignReader):
        shard_bytes = foreign_bytes(reader)
    return {
        "path": str(store.path),
        "format": manifest.version,
        "snapshot": store.snapshot,
        "documents": store.num_documents,
        "tokens": store.num_tokens,
        "vocab_size": store.vocab_size,
        "dtype": store.dtype.name,
        "columns": store.columns,
        "chunk_tokens": store.chunk_tokens,
        "shards": len(manifest.shards),
        "parts": len(manifest.parts),
        "bytes": shard_bytes + sum(file.bytes for file in manifest.files.values()),
        "digest": store.digest,
        "manifest_sha256": store.manifest_sha256,
        "engine": manifest.parts[-1].settings.get("engine"),
        "skipped": sum(part.skipped for part in manifest.parts),
        "filtered": sum(part.filtered for part in manifest.parts),
        "tokenizer": tokenizer
        and {
            name: getattr(tokenizer, name)
            for name in ("kind", "name", "vocab_size", "bos", "eos", "pad", "sha256", "identity")
        },
    }


def percentiles(counts: LengthCounts) -> dict[str, float]:
    """Length statistics in tokens; empty for no documents."""
    if not len(counts.length):
        return {}
    found = {f"p{percent}": counts.percentile(percent) for percent in PERCENTS}
    return {
        "min": float(counts.length[0]),
        **found,
        "max": float(counts.length[-1]),
        "mean": counts.mean,
        "std": counts.std,
    }


def histogram(counts: LengthCounts) -> list[str]:
    """One bar per doubling of length: documents, and the share of all tokens they hold.

    >>> import numpy as np
    >>> histogram(LengthCounts(np.array([0, 3, 9]), np.array([1, 2, 1])))[-1].split()[0]
    '8-15'
    """
    bars = counts.doublings()
    most = max((bar.documents for bar in bars), default=1)
    drawn = ("█" * math.ceil(bar.documents / most * BAR) for bar in bars)
    return [
        f"{name:>24} {documents:>12,} {share:>6.1%} {blocks}".rstrip()
        for (name, documents, share), blocks in zip(bars, drawn, strict=True)
    ]


def write_whole(target: Path, content: str | bytes, what: str) -> None:
    """Write a file that appears whole or not at all, replacing an existing one."""
    try:
        replace_file(target, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise StoreError(
            f"{target}: the {what} cannot be written: {reason}. Choose another place."
        ) from error
