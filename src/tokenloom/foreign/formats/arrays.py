"""Bare arrays of ids: NumPy files, and files without a header as OLMo and nanoGPT have them.

Such files say little, so what they do not say must be given. A real `.npy` has a header
with dtype and shape. Others (OLMo's `.npy`, nanoGPT's `train.bin`) have nothing: the dtype is in
the name (`tokens.uint16.bin`) or is given. Documents come from a list beside the file (`.csv.gz`,
as OLMo writes it), from the rows of a matrix, or from a token that ends or starts them.

A folder that `tokenloom export --to npy` wrote has an array of document ends::

    input_ids.npy       tokens end to end
    document_ends.npy   where each document ends, in tokens
    <column>.npy        per-token columns: those that export.json lists, or loss_mask, loss_weights

The header of a .npy file is read with a pattern, never evaluated. nanoGPT's `meta.pkl` is a pickle,
so it is never opened.
"""

from __future__ import annotations

import functools
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Delimiter, Described, ForeignColumn
from tokenloom.foreign.export_notes import export_notes
from tokenloom.foreign.formats.series import SUFFIXES, documents_by, files_of, refuse_others
from tokenloom.foreign.pieces import RawPiece
from tokenloom.foreign.places import DTYPES, ForeignPlace

Int64 = NDArray[np.int64]

MAGIC = b"\x93NUMPY"

HEADER_BYTES = 1 << 16

# what NumPy writes, and nothing else: the header is a text that it evaluates
HEADER = re.compile(
    rb"\{'descr': '([<>|][a-zA-Z][0-9]{1,4})', 'fortran_order': (True|False), "
    rb"'shape': \(([0-9]{1,18}(?:, ?[0-9]{1,18}){0,7},?|)\), \}\s*"
)

IDS, ENDS = "input_ids.npy", "document_ends.npy"  # of an export

COLUMNS = {"loss_mask": "uint8", "loss_weights": "float32"}

LONGEST_LINE = 1 << 20  # bytes of a line in a list of documents

NAMED = re.compile(r"(?<![a-z0-9])(" + "|".join(DTYPES) + r")(?![a-z0-9])")

PICKLE_NOTE = "meta.pkl beside it is a pickle and was not opened: say vocab_size= if you know it"


def describe_arrays(place: ForeignPlace) -> Described | None:
    """The folder of arrays at a path."""
    if not place.is_named(ENDS) or place.size(IDS) is None or place.size(ENDS) is None:
        return None
    notes = export_notes(place)
    wanted = {**COLUMNS, **notes.columns}
    present = {name: kind for name, kind in wanted.items() if place.size(f"{name}.npy") is not None}
    ids, ends = _array(place, IDS)[0], _array(place, ENDS)[0]

    def lengths() -> NDArray[np.int64]:
        found = place.array(ENDS, ends.dtype, ends.first_byte, ends.elements).astype(np.int64)
        return np.diff(found, prepend=0)

    return Described(
        kind="arrays",
        folder=place.folder,
        files=(IDS, ENDS, *(f"{name}.npy" for name in present)),
        tokens=(ids,),
        lengths=lengths,
        columns={
            name: ForeignColumn(dtype=kind, pieces=(_array(place, f"{name}.npy", "uifb")[0],))
            for name, kind in present.items()
        },
        vocab_size=notes.vocab_size,
    )


def describe_npy(place: ForeignPlace) -> Described | None:
    """NumPy arrays with their header, one file or a series."""
    named = files_of(place, ".npy")
    if not named or place.bytes(named[0], 0, len(MAGIC)).tobytes() != MAGIC:
        return None
    refuse_others(place, "npy", named)
    looked = [_array(place, name, dimensions=2) for name in named]
    pieces = tuple(piece for piece, _ in looked)
    widths = {tuple(shape[1:]) for _, shape in looked}
    if len(widths) > 1:
        raise place.damaged(named[0], "the arrays of a series have different shapes")
    if widths == {()} or place.said.eos is not None or place.said.bos is not None:
        return _described(place, "npy", pieces)
    width = max(1, looked[0][1][1])
    rows = sum(piece.elements for piece in pieces) // width
    note = f"a row of the matrix is a document: {rows:,} of {width:,} tokens"
    return Described(
        kind="npy",
        folder=place.folder,
        files=tuple(named),
        tokens=pieces,
        lengths=lambda: np.full(rows, width, np.int64),
        notes=(note,),
    )


def describe_flat(place: ForeignPlace) -> Described | None:
    """Arrays without a header, one file or a series."""
    asked = place.said.format == "flat"
    named = _named(place, any_suffix=asked or place.said.dtype is not None)
    if not named:
        return None
    refuse_others(place, "flat", named)
    pieces = tuple(_piece(place, name, _dtype_of(place, name)) for name in named)
    return _described(place, "flat", pieces)


def _named(place: ForeignPlace, *, any_suffix: bool) -> list[str]:
    for suffix in SUFFIXES["flat"]:
        if named := files_of(place, suffix):
            return named
    alone = not place.is_folder and place.size(place.name) is not None
    return [place.name] if alone and any_suffix else []


def _described(place: ForeignPlace, kind: str, pieces: tuple[RawPiece, ...]) -> Described:
    """Arrays whose documents are listed beside them, or told apart by a token."""
    names = [piece.file for piece in pieces]
    lists = [re.sub(r"\.npy$", "", name) + ".csv.gz" for name in names]
    there = [one for one in lists if place.size(one) is not None]
    lengths: Callable[[], Int64] | Delimiter
    notes: tuple[str, ...] = ()
    if there and place.said.eos is None and place.said.bos is None:
        if len(there) < len(lists):
            raise place.damaged(there[0], "other files of the series have no such list")
        pairs = list(zip(lists, [piece.elements for piece in pieces], strict=True))
        lengths = functools.partial(_listed, place, pairs)
    else:
        lengths, notes = documents_by(place, pieces)
        there = []
    if place.size("meta.pkl") is not None:
        notes = (*notes, PICKLE_NOTE)
    return Described(
        kind=kind,
        folder=place.folder,
        files=(*names, *there),
        tokens=pieces,
        lengths=lengths,
        notes=notes,
    )


def _listed(place: ForeignPlace, pairs: list[tuple[str, int]]) -> Int64:
    found = [_listed_lengths(place, name, tokens) for name, tokens in pairs]
    return np.concatenate([np.empty(0, np.int64), *found])


def _piece(place: ForeignPlace, name: str, dtype: str) -> RawPiece:
    size, item = place.size(name) or 0, np.dtype(dtype).itemsize
    if size % item:
        raise place.damaged(name, f"{size:,} bytes are no ids as {np.dtype(dtype).name}")
    little = np.dtype(dtype).newbyteorder("<").str
    return RawPiece(file=name, first_byte=0, elements=size // item, dtype=little)


def _dtype_of(place: ForeignPlace, name: str) -> str:
    """How ids are stored: said, or in the name."""
    if place.said.dtype is not None:
        return place.said.dtype
    told: list[str] = sorted(set(NAMED.findall(name)))
    if len(told) == 1:
        return told[0]
    size = place.size(name) or 0
    fits = [one for one in DTYPES if size % np.dtype(one).itemsize == 0]
    raise ConfigError(
        f"{place.where(name)}: the file has no header, so the type of its ids is unknown. "
        f"Pass dtype=, one of {', '.join(fits)}."
    )


def _array(
    place: ForeignPlace, name: str, kinds: str = "ui", dimensions: int = 1
) -> tuple[RawPiece, list[int]]:
    """The array of a NumPy file, and its shape; it must end where the file ends."""
    raw = place.bytes(name, 0, HEADER_BYTES).tobytes()
    wide = 4 if raw[6:7] == b"\x02" else 2  # bytes of the length of the header
    first = 8 + wide + int.from_bytes(raw[8 : 8 + wide], "little")
    told = HEADER.fullmatch(raw[8 + wide : first])
    versions = (MAGIC + b"\x01\0", MAGIC + b"\x02\0")
    if told is None or raw[:8] not in versions or len(raw) < first:
        raise place.damaged(name, "its header is no header of an array")
    try:
        dtype = np.dtype(told[1].decode())
    except TypeError:
        raise place.damaged(name, f"its dtype {told[1].decode()!r} does not exist") from None
    shape = [int(one) for one in re.findall(rb"[0-9]+", told[3])]
    by_column = told[2] == b"True" and len(shape) > 1
    if dtype.kind not in kinds or not 1 <= len(shape) <= dimensions or by_column:
        raise ConfigError(
            f"{place.where(name)}: it is an array of {dtype} with {len(shape)} dimensions, "
            "allowed: integers (columns: also floats) with one dimension; ids alone also with two, "
            "in row-major order. Save it so."
        )
    count, size = math.prod(shape), place.size(name) or 0
    if first + count * dtype.itemsize != size:
        what = f"its header says {count:,} elements as {dtype.name}, and it has {size:,} bytes"
        raise place.damaged(name, what)
    piece = RawPiece(file=name, first_byte=first, elements=count, dtype=dtype.str)
    return piece, shape


def _listed_lengths(place: ForeignPlace, name: str, tokens: int) -> Int64:
    """Lengths from a compressed list of documents, a line ``start,end,...`` each.

    Tokens after the last one are a document of their own.

    Args:
        place: where it is.
        name: the file.
        tokens: tokens of the file that it lists.
    """
    raw = place.bytes(name, 0, place.size(name) or 0)
    if not len(raw):
        raise place.damaged(name, "it is no list of documents (it is empty)")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw.tobytes())) as file:
            rows = np.fromiter(_edges(file), np.int64).reshape(-1, 2)
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise place.damaged(name, f"it is no list of documents ({error!s:.100})") from error
    start, stop = rows[:, 0], rows[:, 1]
    before = np.concatenate([[0], stop])
    wrong = (start != before[:-1]) | (stop <= start) | (stop > tokens)
    if wrong.any():
        a, b = rows[int(wrong.argmax())].tolist()
        raise place.damaged(
            name,
            f"it lists a document from {a:,} to {b:,}, allowed: documents end to end, none of them "
            f"empty, in {tokens:,} tokens",
        )
    ends = stop if before[-1] == tokens else np.concatenate([stop, [tokens]])
    return np.diff(ends, prepend=0)


def _edges(file: gzip.GzipFile) -> Iterator[int]:
    """The first two numbers of every line."""
    while line := file.readline(LONGEST_LINE):
        if line.strip():
            start, stop = line.split(b",", 2)[:2]
            yield int(start)
            yield int(stop)
