"""How results look: one JSON object, or lines for a person."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.stored import Store

__all__ = ["histogram", "percentiles", "summary", "write"]

BAR = 40  # characters of the longest bar
PERCENTS = (1, 5, 25, 50, 75, 95, 99)


def write(arguments: argparse.Namespace, value: dict[str, Any], lines: Iterable[str]) -> None:
    """Print `value` as JSON if that was asked for, else `lines`."""
    if arguments.json:
        print(json.dumps(value, indent=1, ensure_ascii=False))
        return
    for line in lines:
        print(line)


def summary(store: Store) -> dict[str, Any]:
    """What a store is, as JSON."""
    manifest = store.reader.manifest
    shard_bytes = sum(sum(shard.files.values()) for shard in manifest.shards)
    tokenizer = manifest.tokenizer
    return {
        "path": str(store.path),
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
            for name in ("kind", "name", "vocab_size", "bos", "eos", "pad", "sha256")
        },
    }


def percentiles(lengths: NDArray[np.int64]) -> dict[str, float]:
    """Length statistics in tokens; empty for no documents."""
    if not len(lengths):
        return {}
    values = np.percentile(lengths, PERCENTS)
    found = {f"p{percent}": float(v) for percent, v in zip(PERCENTS, values, strict=True)}
    return {
        "min": float(lengths.min()),
        **found,
        "max": float(lengths.max()),
        "mean": float(lengths.mean()),
    }


def histogram(lengths: NDArray[np.int64]) -> list[str]:
    """One bar per doubling of length: documents, and the share of all tokens they hold.

    >>> histogram(np.array([0, 3, 3, 9]))[-1].split()[0]
    '8-15'
    """
    if not len(lengths):
        return []
    # 0 → bin 0, 1 → 1, 2-3 → 2, 4-7 → 3: the number of binary digits
    bins = np.zeros(len(lengths), np.int64)
    some = lengths > 0
    bins[some] = np.floor(np.log2(lengths[some])).astype(np.int64) + 1
    documents = np.bincount(bins)
    tokens = np.bincount(bins, weights=lengths)
    first = int(np.flatnonzero(documents)[0])
    rows = []
    for b in range(first, len(documents)):
        low, high = (1 << b) >> 1, max((1 << b) - 1, 0)
        name = str(low) if low == high else f"{low:,}-{high:,}"
        bar = "█" * int(np.ceil(documents[b] / documents.max() * BAR))
        share = tokens[b] / max(1.0, tokens.sum())
        rows.append(f"{name:>24} {documents[b]:>12,} {share:>6.1%} {bar}".rstrip())
    return rows
