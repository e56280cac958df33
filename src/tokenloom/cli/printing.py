"""A benchmark run compared with an earlier one: old and new values, and whether they differ.

How results are printed: one JSON object, or lines of text.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store
from tokenloom.arguments import one_of
from tokenloom.errors import InputError, StoreError, plural
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.guarded import foreign_bytes
from tokenloom.store.derived.length_counts import LengthCounts
from tokenloom.store.files import replace_file

__all__ = [
    "compare",
    "comparison_lines",
    "histogram",
    "named_in",
    "option",
    "percentiles",
    "read_run",
    "said",
    "summary",
    "write",
    "write_whole",
]


def option(name: str) -> str:
    """An argument as typed on the command line.

    >>> option("batch_size")
    '--batch-size'
    """
    return f"--{name.replace('_', '-')}"


def named_in(name: str, given: str, allowed: Sequence[str]) -> list[str]:
    """The words of a comma-separated option; words that are not allowed are refused.

    >>> named_in("strategies", "full, era", ("full", "era", "block"))
    ['full', 'era']
    """
    words = [word.strip() for word in given.split(",")]
    for word in words:
        one_of(option(name), word, allowed)
    return words


def read_run(path: str, bench: str) -> dict[str, Any]:
    """The run that `tokenloom bench <bench> --json` wrote to a file."""
    try:
        run: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}). "
            f"Write it with: tokenloom bench {bench} --json > FILE"
        ) from None
    known = isinstance(run, dict) and isinstance(run.get("results"), dict)
    if not known or run.get("bench") != bench:
        raise InputError(f"{path}: not an output of `tokenloom bench {bench} --json`.")
    return run


def compare(earlier: dict[str, Any], run: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """Every mean of both runs; a measure that only one run has also counts as a difference.

    >>> old, new = ({"results": {"a": {"b": {"c": {"mean": x}}}}} for x in (1.0, 1.5))
    >>> compare(old, new, 0.1)["differs"], compare(old, new, 0.5)["differs"]
    (True, False)
    """
    before, after = dict(_means(earlier["results"])), dict(_means(run["results"]))
    rows = []
    for name in [*after, *[name for name in before if name not in after]]:
        old, new = before.get(name), after.get(name)
        difference = None if old is None or new is None else new - old
        near = difference is not None and abs(difference) <= tolerance
        rows.append(
            {"name": name, "old": old, "new": new, "difference": difference, "differs": not near}
        )
    old_settings, new_settings = earlier.get("settings", {}), run.get("settings", {})
    changed = {
        name: [old_settings.get(name), new_settings.get(name)]
        for name in {**old_settings, **new_settings}
        if old_settings.get(name) != new_settings.get(name)
    }
    return {
        "tolerance": tolerance,
        "settings_changed": changed,
        "differs": any(row["differs"] for row in rows),
        "rows": rows,
    }


def comparison_lines(path: str, found: dict[str, Any]) -> Iterator[str]:
    """The comparison as a table and a summary line."""
    for name, (old, new) in found["settings_changed"].items():
        yield f"other settings: {name} was {old}, is {new}"
    width = max([len(row["name"]) for row in found["rows"]], default=0)
    yield f"{'':<{width}} {'old':>14} {'new':>14} {'difference':>14}"
    for row in found["rows"]:
        values = (
            f"{'-' if row[name] is None else format(row[name], '.6g'):>14}"
            for name in ("old", "new", "difference")
        )
        yield f"{row['name']:<{width}} {' '.join(values)}{'  differs' * row['differs']}"
    count = sum(row["differs"] for row in found["rows"])
    total, near = len(found["rows"]), f"{found['tolerance']:g}"
    if count:
        yield f"{path}: {count} of {plural(total, 'measure')} differ by more than {near}"
    else:
        yield f"{path}: no difference above {near} in {plural(total, 'measure')}"


def _means(results: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """(path, mean) of every measure, at any depth."""
    for name, value in results.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict) and "mean" in value:
            yield here, float(value["mean"])
        elif isinstance(value, dict):
            yield from _means(value, here)


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


def write_whole(target: Path, text: str, what: str) -> None:
    """Write a file that appears whole or not at all, replacing an existing one."""
    try:
        replace_file(target, text.encode())
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise StoreError(
            f"{target}: the {what} cannot be written: {reason}. Choose another place."
        ) from error
