"""Bare arrays of ids: NumPy files, and files without a header as OLMo and nanoGPT have them.

One idea: such files say little, so what they do not say must be said. A real `.npy` has a header
with dtype and shape. Others (OLMo's `.npy`, nanoGPT's `train.bin`) have nothing: the dtype is in
the name (`tokens.uint16.bin`) or is given. Documents come from a list beside the file (`.csv.gz`,
as OLMo writes it), from the rows of a matrix, or from a token that ends or starts them.

nanoGPT's `meta.pkl` is a pickle, so it is never opened.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Delimiter, Described, damaged
from tokenloom.foreign.formats.delimited import documents_by, listed_lengths
from tokenloom.foreign.formats.series import SUFFIXES, files_of, refuse_others
from tokenloom.foreign.pieces import RawPiece
from tokenloom.foreign.places import DTYPES, ForeignPlace

__all__ = ["DIGITS", "HEADER", "HEADER_BYTES", "describe_flat", "describe_npy", "dtype_of"]

Int64 = NDArray[np.int64]

MAGIC = b"\x93NUMPY"

HEADER_BYTES = 1 << 16

# what NumPy writes, and nothing else: the header is a text that it evaluates
HEADER = re.compile(
    rb"\{'descr': '([<>|][a-zA-Z][0-9]{1,4})', 'fortran_order': (True|False), "
    rb"'shape': \(([0-9]{1,18}(?:, ?[0-9]{1,18}){0,7},?|)\), \}\s*"
)

DIGITS = re.compile(rb"[0-9]+")

NAMED = re.compile(r"(?<![a-z0-9])(" + "|".join(DTYPES) + r")(?![a-z0-9])")

PICKLE_NOTE = "meta.pkl beside it is a pickle and was not opened: say vocab_size= if you know it"


def describe_npy(place: ForeignPlace) -> Described | None:
    """NumPy arrays with their header, one file or a series."""
    named = files_of(place, ".npy")
    if not named or not _has_header(place, named[0]):
        return None
    refuse_others(place, "npy", named)
    looked = [_header(place, name) for name in named]
    pieces = tuple(piece for piece, _ in looked)
    widths = {width for _, width in looked}
    if widths == {0}:
        return _described(place, "npy", pieces)
    if 0 in widths or len(widths) > 1:
        raise damaged(place.where(named[0]), "the arrays of a series have different shapes")
    (width,) = widths
    rows = sum(piece.elements for piece in pieces) // width
    note = f"a row of the matrix is a document: {rows:,} of {width:,} tokens"
    if place.said.eos is not None or place.said.bos is not None:
        return _described(place, "npy", pieces)
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
            raise damaged(place.where(there[0]), "other files of the series have no such list")
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
    found = [listed_lengths(place, name, tokens) for name, tokens in pairs]
    return np.concatenate([np.empty(0, np.int64), *found])


def _piece(place: ForeignPlace, name: str, dtype: str) -> RawPiece:
    size, item = place.size(name) or 0, np.dtype(dtype).itemsize
    if size % item:
        raise damaged(place.where(name), f"{size:,} bytes are no ids as {np.dtype(dtype).name}")
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


def _has_header(place: ForeignPlace, name: str) -> bool:
    return place.bytes(name, 0, len(MAGIC)).tobytes() == MAGIC


def dtype_of(where: str, word: bytes) -> np.dtype[Any]:
    """The dtype that a header names, if there is one of that name."""
    try:
        return np.dtype(word.decode())
    except TypeError:
        raise damaged(where, f"its dtype {word.decode()!r} does not exist") from None


def _header(place: ForeignPlace, name: str) -> tuple[RawPiece, int]:
    """The array of a file, and the length of its rows; 0 if it is no matrix."""
    where = place.where(name)
    raw = place.bytes(name, 0, HEADER_BYTES).tobytes()
    wide = 4 if raw[6:7] == b"\x02" else 2  # bytes of the length of the header
    first = 8 + wide + int.from_bytes(raw[8 : 8 + wide], "little")
    told = HEADER.fullmatch(raw[8 + wide : first])
    if told is None or raw[6:8] not in (b"\x01\0", b"\x02\0") or len(raw) < first:
        raise damaged(where, "its header is no header of an array")
    dtype, shape = dtype_of(where, told[1]), [int(one) for one in DIGITS.findall(told[3])]
    by_column = told[2] == b"True" and len(shape) > 1
    if dtype.kind not in "iu" or len(shape) not in (1, 2) or by_column:
        raise ConfigError(
            f"{where}: it is an array of {dtype} with {len(shape)} dimensions, allowed: integers "
            "with one dimension, or with two in row-major order. Save it so."
        )
    count, size = math.prod(shape), place.size(name) or 0
    if first + count * dtype.itemsize != size:
        raise damaged(
            where, f"its header says {count:,} elements as {dtype.name}, and it has {size:,} bytes"
        )
    piece = RawPiece(file=name, first_byte=first, elements=count, dtype=dtype.str)
    return piece, (shape[1] or 1) if len(shape) == 2 else 0
