"""How results are printed: one JSON object, lines, tables; and what stores and lengths show."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store
from tokenloom.errors import StoreError
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.seals import foreign_bytes
from tokenloom.store.files import replace_file
from tokenloom.store.length_counts import LengthCounts

GAP = "  "
NARROW = 12  # characters that a cut column keeps at least


def screen() -> int | None:
    """Characters of a line of the terminal; None if the output goes elsewhere."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return None


def words(value: Any) -> str:
    r"""A cell as text: integers with commas, None as a dash.

    >>> words(1234567), words(0.25), words(None), words(True), words("a\tb")
    ('1,234,567', '0.25', '-', 'yes', 'a\\tb')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return harmless(str(value))


def harmless(text: str) -> str:
    r"""The text on one line, without what would steer a terminal.

    >>> harmless("two\nlines \x1b[31m")
    'two\\nlines \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None
) -> Iterator[str]:
    r"""The lines of a table.

    Args:
        heads: names of the columns.
        rows: cells, one sequence per row.
        width: characters of a line; None for as many as it takes.

    >>> rows = [["wiki", 12000], ["a very long name", 7]]
    >>> print(*table(["name", "rows"], rows, width=20), sep="\n")
    name            rows
    ------------  ------
    wiki          12,000
    a very long…       7
    """
    shown = [[words(cell) for cell in row] for row in rows]
    columns = list(zip(list(heads), *shown, strict=True))
    right = [all(_is_number(row[n]) for row in rows) and bool(rows) for n in range(len(heads))]
    widths = _fitted([max(map(len, column)) for column in columns], right, width)
    for cells in (list(heads), ["-" * one for one in widths], *shown):
        placed = [
            _cut(cell, wide).rjust(wide) if numbers else _cut(cell, wide).ljust(wide)
            for cell, wide, numbers in zip(cells, widths, right, strict=True)
        ]
        yield GAP.join(placed).rstrip()


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cut(cell: str, wide: int) -> str:
    return cell if len(cell) <= wide else cell[: wide - 1] + "…"


def _fitted(widths: list[int], right: list[bool], width: int | None) -> list[int]:
    """Widths that fit: the widest column of words gives, one character at a time."""
    over = 0 if width is None else sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        free = [n for n, one in enumerate(widths) if one > NARROW and not right[n]]
        if not free:
            break
        widest = max(free, key=lambda n: widths[n])
        widths[widest] -= 1
        over -= 1
    return widths


BAR = 40  # characters of the longest bar

OF_STORE = ("format", "dtype", "eos", "bos", "vocab_size", "seal", "missing")

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
    return {name: getattr(arguments, name, None) for name in OF_STORE}


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
