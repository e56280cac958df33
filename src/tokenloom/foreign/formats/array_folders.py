"""Folders of .npy arrays with document ends, as `tokenloom export --to npy` writes them.

::

    input_ids.npy       tokens end to end
    document_ends.npy   where each document ends, in tokens
    <column>.npy        per-token columns: those that export.json lists, or loss_mask, loss_weights

One idea: a .npy file is a header and the array itself, so the ids are read in place. The header is
read with a pattern, never evaluated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Described, ForeignColumn, damaged
from tokenloom.foreign.export_notes import export_notes
from tokenloom.foreign.formats.flat import DIGITS, HEADER, HEADER_BYTES, dtype_of
from tokenloom.foreign.pieces import RawPiece
from tokenloom.foreign.places import ForeignPlace

__all__ = ["describe_arrays"]

IDS, ENDS = "input_ids.npy", "document_ends.npy"

COLUMNS = {"loss_mask": "uint8", "loss_weights": "float32"}

MAGIC = b"\x93NUMPY"


def describe_arrays(place: ForeignPlace) -> Described | None:
    """The folder of arrays at a path."""
    if not place.is_named(ENDS) or place.size(IDS) is None or place.size(ENDS) is None:
        return None
    notes = export_notes(place)
    wanted = {**COLUMNS, **notes.columns}
    present = {name: kind for name, kind in wanted.items() if place.size(f"{name}.npy") is not None}
    ids, ends = _array(place, IDS, "ui"), _array(place, ENDS, "ui")

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
            name: ForeignColumn(dtype=kind, pieces=(_array(place, f"{name}.npy", "uifb"),))
            for name, kind in present.items()
        },
        vocab_size=notes.vocab_size,
    )


def _array(place: ForeignPlace, name: str, kinds: str) -> RawPiece:
    """A flat array of one of some kinds, which must end where its file ends."""
    shape, dtype, first = _header(place, name)
    if len(shape) != 1 or dtype.kind not in kinds:
        raise ConfigError(
            f"{place.where(name)}: found an array {list(shape)} of {dtype}, allowed: a flat array "
            "of integers (columns: also of floats)."
        )
    size = place.size(name) or 0
    if first + shape[0] * dtype.itemsize != size:
        raise damaged(
            place.where(name),
            f"{shape[0]:,} elements of {dtype.itemsize} bytes after {first} bytes are not the "
            f"{size:,} bytes that it has",
        )
    return RawPiece(file=name, first_byte=first, elements=int(shape[0]), dtype=dtype.str)


def _header(place: ForeignPlace, name: str) -> tuple[list[int], np.dtype[Any], int]:
    """The shape and dtype of an array, and where its elements start."""
    raw = place.bytes(name, 0, HEADER_BYTES).tobytes()
    wide = 4 if raw[6:7] == b"\x02" else 2  # bytes of the length of the header
    first = 8 + wide + int.from_bytes(raw[8 : 8 + wide], "little")
    told = HEADER.fullmatch(raw[8 + wide : first])
    known = raw[:8] in (MAGIC + b"\x01\0", MAGIC + b"\x02\0")
    if told is None or not known or len(raw) < first:
        raise damaged(place.where(name), "its header is no header of a flat array of numbers")
    shape = [int(one) for one in DIGITS.findall(told[3])]
    return shape, dtype_of(place.where(name), told[1]), first
