"""`tokenloom info` and `tokenloom show`: a store, its documents, and examples of a run.

The heading of an example is the published one: index, tokens, documents and features, centred in
dashes. Documents are counted from what is known: the spans of a run; for rows of other loaders,
their `document_starts`, else their EOS, else they are unknown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store, open_store
from tokenloom.batch.batch import Batch
from tokenloom.cli.printing import (
    harmless,
    histogram,
    percentiles,
    said,
    screen,
    summary,
    table,
    write,
    write_whole,
)
from tokenloom.cli.runs import RUN_FILES, open_run, refuse_ignored, refuse_overrides
from tokenloom.errors import ConfigError, InputError, binary_size, plural
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.seals import guard_lines
from tokenloom.inspect.length_picture import length_picture
from tokenloom.order.working_set import loss_columns
from tokenloom.store.length_counts import LengthCounts, count_lengths
from tokenloom.store.loss_counts import trained_tokens
from tokenloom.tokenizer.stored import StoredTokenizer

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
    decoder = _decoder(tokenizer_of(run, batch.source[row]))
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


def _decoder(tokenizer: StoredTokenizer | None) -> Any:
    """Ids → text by a tokenizer; the ids themselves if there is none."""
    return tokenizer.decode if tokenizer else lambda ids: " ".join(map(str, ids))


def _example_lines(about: list[dict[str, Any]], *, tokenized: bool) -> Iterator[str]:
    for one in about:
        yield heading(one["index"], one["tokens"], one["documents"], one["features"])
        for text in one["texts"]:
            yield _harmless(text)
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


def info(arguments: argparse.Namespace) -> int:
    """Describe a store: `tokenloom info`."""
    store = open_store(arguments.store, snapshot=arguments.snapshot, **said(arguments))
    about = {**summary(store), **_guards(store)}
    counts = count_lengths(store.reader)
    about["lengths"] = percentiles(counts)
    about["trained"] = _trained_in(store)
    about["svg"] = arguments.svg
    if arguments.svg is not None:
        write_whole(Path(arguments.svg), length_picture(str(store.path), counts), "picture")
    write(arguments, about, _info_lines(store, about, counts))
    return 0


def _info_lines(store: Store, about: dict[str, Any], counts: LengthCounts) -> Iterator[str]:
    foreign = about["foreign"]
    if foreign is None:
        yield f"{store.path}  snapshot {store.snapshot}, store format {about['format']}"
    else:
        yield f"{store.path}  files of format {foreign}"
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
    if foreign is None:
        yield f"  engine      {about['engine']}"
    else:
        yield from (f"  guard       {line}" for line in about["guard"])
        yield from (f"  note        {line}" for line in about["notes"])
    for name, dtype in about["columns"].items():
        yield f"  column      {name} ({dtype})"
    if about["trained"] is not None:
        share = about["trained"] / max(1, about["tokens"])
        yield f"  trained     {about['trained']:,} tokens ({share:.1%}), by the loss columns"
    if about["skipped"] or about["filtered"]:
        yield f"  left out    {about['skipped']:,} skipped, {about['filtered']:,} filtered"
    yield f"  digest      {about['digest']}"
    if foreign is None:
        yield f"  manifest    {about['manifest_sha256']}"
    if about["lengths"]:
        yield "  tokens per document"
        stats = about["lengths"]
        yield "    " + "  ".join(f"{name} {value:,.0f}" for name, value in stats.items())
        yield f"{'tokens':>24} {'documents':>12} {'share':>6}"
        yield from histogram(counts)


def _guards(store: Store) -> dict[str, Any]:
    """Of which format a store is, if it is not ours, and what guards its bytes."""
    reader = store.reader
    if not isinstance(reader, ForeignReader):
        return {"foreign": None, "guard": ["sealed: every chunk has a crc32c"], "notes": []}
    kind = reader.inside.described.kind
    return {"foreign": kind, "guard": guard_lines(reader), "notes": list(reader.notes)}


def _trained_in(store: Store) -> int | None:
    """How many tokens of a store its loss columns train on; None if it has none."""
    columns = loss_columns(store.reader)
    if not columns:
        return None
    start, stop = np.zeros(1, np.int64), np.full(1, store.num_tokens, np.int64)
    return int(trained_tokens(store.reader, columns, start, stop)[0])


def show(arguments: argparse.Namespace) -> int:
    """Print a document of a store, or examples of a run: `tokenloom show`."""
    target = Path(arguments.target)
    if target.suffix == ".jsonl":
        refuse_overrides(arguments.set, "JSON lines")
        _refuse_others(arguments, "JSON lines", ("examples", "first", "eos"))
        return show_rows(arguments, target)
    if not target.is_dir() and (target.exists() or target.suffix in RUN_FILES):
        _refuse_others(arguments, "a run", ("examples", "first", "tokenized", "row"))
        run = open_run(arguments.target, arguments.set)
        return show_examples(arguments, run) if arguments.row is None else show_row(arguments, run)
    return _show_document(arguments)


USUAL: dict[str, Any] = {"start": 0, "text": False, "examples": 5, "first": 0, "tokenized": False}
USUAL |= dict.fromkeys(("doc", "limit", "snapshot", "row", "eos"))


def _refuse_others(arguments: argparse.Namespace, what: str, own: tuple[str, ...]) -> None:
    others = {name: usual for name, usual in USUAL.items() if name not in own}
    refuse_ignored(arguments, what, others)


def _show_document(arguments: argparse.Namespace) -> int:
    """One document of a store."""
    refuse_overrides(arguments.set, "a store")
    _refuse_others(arguments, "a store", ("doc", "start", "limit", "text", "snapshot"))
    store = open_store(arguments.target, snapshot=arguments.snapshot)
    if arguments.doc is None:
        raise ConfigError(
            f"doc: missing; the store has {store.num_documents:,} documents. Give the number of "
            "one."
        )
    ids = store.document(arguments.doc)
    limit = arguments.limit
    if limit is None:
        limit = len(ids) if arguments.text else 40
    shown = slice(max(0, arguments.start), max(0, arguments.start) + max(0, limit))
    window = ids[shown]
    tokenizer = store.tokenizer
    strings = tokenizer.token_strings(window) if tokenizer else [str(i) for i in window]
    values = {name: store.document(arguments.doc, name) for name in store.columns}
    weights = _weights(store, values)
    about = {
        "document": arguments.doc,
        "length": len(ids),
        "start": arguments.start,
        "metadata": store.metadata(arguments.doc),
        "ids": window.tolist(),
        "columns": {name: some[shown].tolist() for name, some in values.items()},
        "strings": strings,
        "text": tokenizer.decode(window) if tokenizer else None,
        "trained": None if weights is None else int(np.count_nonzero(weights)),
    }
    if arguments.text:
        parts = _parts(store, window, None if weights is None else weights[shown])
        about["parts"] = [{"text": text, "weight": weight} for text, weight in parts]
    write(arguments, about, _show_lines(store, about))
    return 0


def _weights(store: Store, values: dict[str, NDArray[Any]]) -> NDArray[Any] | None:
    """How much each token of a document counts; None if the store has no loss columns."""
    columns = [values[name].astype(np.float64) for name in loss_columns(store.reader)]
    return np.prod(columns, axis=0) if columns else None


def _parts(
    store: Store, ids: NDArray[Any], weights: NDArray[Any] | None
) -> list[tuple[str, float]]:
    """The text in stretches of tokens that count alike."""
    decoder = _decoder(store.tokenizer)
    counts = np.ones(len(ids)) if weights is None else weights
    edges = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(ids)]
    pairs = itertools.pairwise(edges)
    return [(decoder(ids[a:b]), float(counts[a])) for a, b in pairs if b > a]


def _marked(parts: list[dict[str, Any]], dim: bool) -> str:
    """The text of parts: what does not count is dim, or what counts is in brackets."""
    texts = []
    for part in parts:
        text, weight = _harmless(part["text"]), part["weight"]
        times = "" if weight in (0, 1) else f"×{weight:g}"
        if dim:
            texts.append(f"{text}{times}" if weight else f"\x1b[2m{text}\x1b[22m")
        else:
            texts.append(f"⟦{text}⟧{times}" if weight else text)
    return "".join(texts)


def _harmless(text: str) -> str:
    """The text without what would steer a terminal."""
    return "".join(c if c in "\n\t" else harmless(c) for c in text)


def _show_lines(store: Store, about: dict[str, Any]) -> Iterator[str]:
    trained = "" if about["trained"] is None else f", {about['trained']:,} trained on"
    place = f"document {about['document']:,} of {store.num_documents:,}"
    yield f"{place}: {about['length']:,} tokens{trained}"
    for key, value in about["metadata"].items():
        yield f"  {key}: {value}"
    if "parts" in about:
        yield _marked(about["parts"], sys.stdout.isatty())
        return
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
