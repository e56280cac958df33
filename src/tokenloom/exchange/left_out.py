"""What a lossy export left out: written beside it, so that nothing is lost without a trace.

::

    left_out/documents.jsonl   a line for each document that is missing, or whose metadata is
    left_out/<column>.npy      a per-token column of the whole store, documents end to end

One idea: lines for what belongs to single documents, arrays for what all of them have.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tokenloom.exchange.folder import Folder, npy_header
from tokenloom.exchange.holds import Holding, Loss
from tokenloom.exchange.portions import Portion, metadata_of, portions, values_of

__all__ = ["write_left_out"]

FOLDER = "left_out"


def write_left_out(kept: Holding, lost: list[Loss], folder: Folder) -> dict[str, int]:
    """Write what the format could not hold; gives each thing in words → documents that had it."""
    counts = {one.what: one.documents for one in lost}
    for name in kept.store.columns.keys() - kept.columns.keys():
        _write_column(kept, folder, name)
    metadata = next((what for what in counts if what.startswith("metadata")), None)
    with folder.file(f"{FOLDER}/documents.jsonl") as out:
        for line in itertools.chain(_first_weight(kept, lost), _missing(kept)):
            out.write(_text(line))
        for line in _lost_metadata(kept) if metadata else ():
            counts[str(metadata)] += 1
            out.write(_text(line))
    return counts


def _write_column(kept: Holding, folder: Folder, name: str) -> None:
    store = kept.store
    dtype = np.dtype(store.columns[name]).newbyteorder("<")
    with folder.file(f"{FOLDER}/{name}.npy") as out:
        out.write(npy_header(dtype.str, store.num_tokens))
        for portion in portions(store.reader):
            for values in values_of(store.reader, portion, name):
                out.write(np.ascontiguousarray(values))


def _first_weight(kept: Holding, lost: list[Loss]) -> Iterator[dict[str, Any]]:
    """The weight that a format which moves weights has no place for."""
    for what, document, _ in lost:
        if what.startswith("the loss weight"):
            weight = float(kept.store.tokens(0, 1, "loss_weights")[0])
            yield {"document": document, "loss_weights": [weight]}


def _missing(kept: Holding) -> Iterator[dict[str, Any]]:
    """The documents that are missing: they are empty, or too long."""
    for portion in portions(kept.store.reader):
        gone = ~kept.fits(portion)
        numbers, lengths = portion.numbers[gone].tolist(), portion.lengths[gone].tolist()
        for number, length in zip(numbers, lengths, strict=True):
            yield {"document": number, "tokens": length}


def _lost_metadata(kept: Holding) -> Iterator[dict[str, Any]]:
    for portion in portions(kept.store.reader):
        yield from _lost_rows(kept, portion)


def _lost_rows(kept: Holding, portion: Portion) -> Iterator[dict[str, Any]]:
    rows = metadata_of(kept.store, portion.numbers)
    for number, row in zip(portion.numbers.tolist(), rows, strict=False):
        more = kept.divided(row)[1]
        if more:
            yield {"document": number, "metadata": more}


def _text(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
