"""Exports that are raw arrays: Megatron's indexed dataset, and plain .npy files.

One idea: the payload of a store is already the array that these formats want, so an export streams
it and adds an index. Megatron::

    text_document.bin   tokens end to end, uint16 or int32 (uint32 below 2^31 has the same bytes)
    text_document.idx   "MMIDIDX" and two zeros, u64 1, u8 dtype code, u64 sequences,
                        u64 documents + 1, int32 lengths, int64 byte offsets, int64 first sequence
                        of each document

NumPy::

    input_ids.npy       tokens end to end, uint16 or uint32
    document_ends.npy   int64, where each document ends, in tokens
    <column>.npy        each further per-token column
    export.json         what the arrays do not say: the vocabulary size, the digest, the files
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.exchange.folder import CountedFile, Folder, npy_header
from tokenloom.exchange.holds import Holding, values_of
from tokenloom.progress import Progress

MAGIC = b"MMIDIDX\x00\x00"

CODES = {"uint16": 8, "uint32": 4}  # the latter as int32: ids are below 2^31

STEM = "text_document"  # what Megatron's own tool calls it


def write_megatron(kept: Holding, folder: Folder, bar: Progress) -> None:
    """Write `text_document.bin` and `text_document.idx`."""
    dtype = kept.store.dtype
    with folder.file(f"{STEM}.bin") as out:
        write_column(kept, out, "input_ids", bar)
    with folder.file(f"{STEM}.idx") as out:
        out.write(MAGIC + struct.pack("<QB", 1, CODES[dtype.name]))
        out.write(struct.pack("<QQ", kept.documents, kept.documents + 1))
        for portion in kept.portions():
            out.write(portion.lengths.astype("<i4"))
        for lengths, ends in _ends(kept):
            out.write(((ends - lengths) * dtype.itemsize).astype("<i8"))
        for low in range(0, kept.documents + 1, 1 << 20):  # one sequence for each document
            out.write(np.arange(low, min(low + (1 << 20), kept.documents + 1), dtype="<i8"))


def write_npy(kept: Holding, folder: Folder, bar: Progress) -> None:
    """Write `input_ids.npy`, `document_ends.npy` and an array for each further column."""
    dtypes = {"input_ids": kept.store.dtype.name, **kept.columns}
    for name, dtype in dtypes.items():
        with folder.file(f"{name}.npy") as out:
            out.write(npy_header(np.dtype(dtype).newbyteorder("<").str, kept.tokens))
            write_column(kept, out, name, bar)
    with folder.file("document_ends.npy") as out:
        out.write(npy_header("<i8", kept.documents))
        for _, ends in _ends(kept):
            out.write(ends.astype("<i8"))
    with folder.file("export.json") as out:
        files = [*(f"{name}.npy" for name in dtypes), "document_ends.npy"]
        out.write(json.dumps(about(kept, files), indent=1).encode() + b"\n")


def write_column(kept: Holding, out: CountedFile, name: str, bar: Progress) -> None:
    """The values of a column, end to end, as they are stored."""
    for portion in kept.portions():
        for values in values_of(kept.store.reader, portion, name):
            out.write(np.ascontiguousarray(values))
        bar.advance(portion.stop - portion.start)


def _ends(kept: Holding) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Tokens of some documents at a time, and where each of them ends, in tokens."""
    base = 0
    for portion in kept.portions():
        ends = base + np.cumsum(portion.lengths)
        yield portion.lengths, ends
        base = int(ends[-1])


def about(kept: Holding, files: Sequence[str] = ()) -> dict[str, Any]:
    """What another format has no place for; tokenloom reads it when it opens the export.

    Args:
        kept: what is exported.
        files: those without which the others would be taken for something else.
    """
    store = kept.store
    return {
        "format": "tokenloom-export",
        "version": 1,
        "vocab_size": store.vocab_size,
        "documents": kept.documents,
        "tokens": kept.tokens,
        "columns": kept.columns,
        "digest": store.digest,
        "files": list(files),
    }
