"""`tokenloom show RUN`: examples as text, or one row cell by cell.

The heading is the published one: index, tokens, documents and features, centred in dashes.
Documents are counted from what is known: the spans of a run; for rows of others, their
`document_starts`, else their EOS, else they are unknown.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.batch.batch import Batch
from tokenloom.cli.printing import write
from tokenloom.cli.tables import harmless, screen, table
from tokenloom.errors import ConfigError, InputError
from tokenloom.tokenizer.stored import StoredTokenizer

__all__ = ["documents_in", "heading", "row_table", "show_examples", "show_row", "show_rows"]

WIDTH = 110  # characters of a heading where nobody watches

IGNORED = -100  # label of a cell without loss

CELLS = ("cell", "id", "text", "segment", "position", "label", "loss")


def heading(index: int, tokens: int, documents: int | None, features: Iterable[str]) -> str:
    """The line above an example.

    >>> heading(0, 512, 3, ["input_ids", "document_starts"]).strip("-")
    " 0 Tokens: 512, Documents: 3, Features: ['input_ids', 'document_starts'] "
    >>> heading(1, 8, None, ["input_ids"]).strip("-")
    " 1 Tokens: 8, Documents: unknown, Features: ['input_ids'] "
    """
    count = "unknown" if documents is None else str(documents)
    said = f" {index} Tokens: {tokens}, Documents: {count}, Features: {list(features)} "
    return said.center(max(screen() or WIDTH, len(said) + 4), "-")


def documents_in(row: Mapping[str, Any], eos: int | None) -> int | None:
    """The documents of a row of others: by its starts, else by its EOS; None if unknown.

    >>> documents_in({"input_ids": [5, 2, 7, 2], "document_starts": [0, 2]}, None)
    2
    >>> documents_in({"input_ids": [5, 2, 7, 2, 9]}, 2), documents_in({"input_ids": [5]}, None)
    (3, None)
    """
    if "document_starts" in row:
        return len([one for one in row["document_starts"] if one >= 0])
    ids = row["input_ids"]
    if eos is None:
        return None
    return int(sum(one == eos for one in ids) + bool(ids and ids[-1] != eos))


def show_examples(arguments: argparse.Namespace, run: Dataset) -> int:
    """Print some examples of a run as text."""
    first, count = arguments.first, arguments.examples
    last = first + count if run.run.n is None else min(first + count, run.run.n)
    if first >= last:
        raise ConfigError(f"first: found {first:,}, allowed: below {run.run.n:,}, the examples.")
    batch = run.batch(range(first, last))
    about = [_example(run, batch, row) for row in range(last - first)]
    write(arguments, {"examples": about}, _example_lines(about, tokenized=arguments.tokenized))
    return 0


def _example(run: Dataset, batch: Batch, row: int) -> dict[str, Any]:
    kept = batch.segment_ids[row] > 0
    ids = batch.tokens[row][kept].tolist()
    segments = batch.segment_ids[row][kept]
    decoder = decoder_of(run, batch, row)
    edges = [0, *(n for n in range(1, len(ids)) if segments[n] != segments[n - 1]), len(ids)]
    texts = [decoder(ids[a:b]) for a, b in itertools.pairwise(edges) if b > a]
    return {
        "index": int(batch.index[row]),
        "source": batch.source[row],
        "tokens": len(ids),
        "documents": len(texts),
        "features": list(batch.keys()),
        "texts": texts,
        "ids": ids,
    }


def tokenizer_of(run: Dataset, source: str) -> StoredTokenizer | None:
    """The tokenizer of a source, if its store keeps one."""
    known = run.sources[source]
    return Store(known.reader, known.path).tokenizer


def decoder_of(run: Dataset, batch: Batch, row: int) -> Any:
    """Ids → text by the tokenizer of a row's source; the ids themselves if it has none."""
    tokenizer = tokenizer_of(run, batch.source[row])
    return tokenizer.decode if tokenizer else lambda ids: " ".join(map(str, ids))


def _example_lines(about: list[dict[str, Any]], *, tokenized: bool) -> Iterator[str]:
    for one in about:
        yield heading(one["index"], one["tokens"], one["documents"], one["features"])
        for text in one["texts"]:
            yield "".join(c if c in "\n\t" else harmless(c) for c in text)
        if tokenized:
            yield " ".join(map(str, one["ids"]))


def show_row(arguments: argparse.Namespace, run: Dataset) -> int:
    """Print one example cell by cell."""
    batch = run.batch([arguments.row])
    about = row_table(run, batch)
    rows = [[one[name] for name in CELLS] for one in about]
    lines = table(CELLS, rows, width=screen())
    write(arguments, {"index": arguments.row, "cells": about}, lines)
    return 0


def row_table(run: Dataset, batch: Batch) -> list[dict[str, Any]]:
    """Every cell of the first row of a batch: id, text, segment, position, label and loss."""
    tokenizer = tokenizer_of(run, batch.source[0])
    ids = batch.tokens[0].tolist()
    strings = tokenizer.token_strings(batch.tokens[0]) if tokenizer else [str(i) for i in ids]
    segments = batch.segment_ids[0].tolist()
    weights = batch.loss_weights[0].tolist()
    columns = zip(
        ids,
        strings,
        segments,
        batch.position_ids[0].tolist(),
        batch.labels[0].tolist(),
        weights,
        strict=True,
    )
    return [
        {
            "cell": cell,
            "id": token,
            "text": text if segment else "(filler)",
            "segment": segment,
            "position": position,
            "label": None if label == IGNORED else label,
            "loss": weight,
        }
        for cell, (token, text, segment, position, label, weight) in enumerate(columns)
    ]


def show_rows(arguments: argparse.Namespace, path: Path) -> int:
    """Print rows of ready-made ids that others have written, as JSON lines."""
    about = []
    for number, row in enumerate(_rows_of(path, arguments.first + arguments.examples)):
        if number < arguments.first:
            continue
        about.append(
            {
                "index": number,
                "tokens": len(row["input_ids"]),
                "documents": documents_in(row, arguments.eos),
                "features": list(row),
                "texts": [" ".join(map(str, row["input_ids"]))],
                "ids": row["input_ids"],
            }
        )
    write(arguments, {"examples": about}, _example_lines(about, tokenized=False))
    return 0


def _rows_of(path: Path, most: int) -> Iterator[dict[str, Any]]:
    """The first rows of a file of JSON lines."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Allowed: JSON lines of ready-made ids.")
    with path.open(encoding="utf-8") as lines:
        for number, line in zip(range(most), lines, strict=False):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(
                    f"{path}: line {number + 1}: it is not JSON ({error}). Allowed: an object a "
                    "line."
                ) from None
            if not isinstance(row, dict) or not isinstance(row.get("input_ids"), list):
                raise InputError(
                    f"{path}: line {number + 1}: it has no list 'input_ids'. Allowed: a run file, "
                    "a store, or JSON lines of ready-made ids."
                )
            yield row
