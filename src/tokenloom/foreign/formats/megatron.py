r"""Megatron's indexed datasets: `<name>.bin` with tokens, `<name>.idx` with where they are.

The index, little-endian and unaligned::

    9 bytes  MMIDIDX\0\0          u64  version, 1         u8   code of the dtype
    u64      sequences             u64  entries of the document index
    i32 [sequences]  tokens of each sequence; i64 where the size of the file says so
    i64 [sequences]  its first byte in the .bin
    i64 [entries]    the first sequence of each document, and the number of sequences
    i8  [sequences]  modes, in files of several modalities only

A document may have several sequences (sentences); here it is one document, and their number is a
note. Sequences must lie end to end, as its own builder writes them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Described
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.pieces import RawPiece
from tokenloom.foreign.places import ForeignPlace

Int64 = NDArray[np.int64]

MAGIC = b"MMIDIDX\0\0"

HEADER = struct.Struct("<9sQBQQ")

# 9 and 10 are a branch's; codes of floats hold no ids
DTYPES = {1: "|u1", 2: "|i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}

FLOATS = (6, 7)


class _Index(NamedTuple):
    """What an index says before its arrays are read."""

    dtype: str
    sequences: int
    entries: int
    lengths: str


def describe_megatron(place: ForeignPlace) -> Described | None:
    """The indexed dataset at a path, named with or without its suffix."""
    stem = _stem(place)
    if stem is None:
        return None
    index, payload = f"{stem}.idx", f"{stem}.bin"
    head = _read_header(place, index)
    size = place.size(payload)
    if size is None:
        raise place.damaged(index, f"there is no {payload} beside it")
    item = np.dtype(head.dtype).itemsize
    if size % item:
        raise place.damaged(payload, f"{size:,} bytes are no ids of {item} bytes")
    several = (
        f"{head.sequences:,} sequences are {head.entries - 1:,} documents: a document is what the "
        "document index says, its sequences are joined"
    )
    return Described(
        kind="megatron",
        folder=place.folder,
        files=(payload, index),
        tokens=(RawPiece(file=payload, first_byte=0, elements=size // item, dtype=head.dtype),),
        lengths=lambda: _lengths(place, index, head, size),
        notes=() if head.entries == head.sequences + 1 else (several,),
    )


def _stem(place: ForeignPlace) -> str | None:
    """The name without suffix of the dataset that is pointed at."""
    if place.is_folder:
        stems = [name[:-4] for name in place.names() if name.endswith(".idx")]
        stems = [stem for stem in stems if _is_index(place, f"{stem}.idx")]
        if len(stems) > 1:
            raise ConfigError(
                f"{place.path}: found {len(stems)} indexed datasets ({', '.join(stems[:4])}), "
                "allowed: one at a time. Name one of them, without suffix, and mix them."
            )
        return stems[0] if stems else None
    stem = place.name.removesuffix(".bin").removesuffix(".idx")
    return stem if _is_index(place, f"{stem}.idx") else None


def _is_index(place: ForeignPlace, name: str) -> bool:
    return place.size(name) is not None and place.bytes(name, 0, 9).tobytes() == MAGIC


def _read_header(place: ForeignPlace, name: str) -> _Index:
    raw = place.bytes(name, 0, HEADER.size).tobytes()
    where = place.where(name)
    if len(raw) < HEADER.size:
        raise damaged(where, f"{len(raw)} bytes are less than its header has")
    _, version, code, sequences, entries = HEADER.unpack(raw)
    if version != 1:
        raise damaged(where, f"its version is {version}, allowed: 1")
    if code in FLOATS:
        raise ConfigError(
            f"{where}: it holds floats (code {code}), allowed: integers, which can be ids. Write "
            "the dataset with an integer dtype."
        )
    if code not in DTYPES:
        raise damaged(where, f"its dtype has the code {code}, allowed: {sorted(DTYPES)}")
    size = place.size(name) or 0
    least = HEADER.size + 12 * sequences + 8 * entries
    wide = least + 4 * sequences
    if size not in (least, least + sequences, wide, wide + sequences):
        raise damaged(
            where,
            f"{sequences:,} sequences and {entries:,} entries take {least:,} bytes and it has "
            f"{size:,}",
        )
    if entries < 1:
        raise damaged(where, "its document index is empty")
    return _Index(DTYPES[code], sequences, entries, "<i8" if size >= wide else "<i4")


def _lengths(place: ForeignPlace, name: str, head: _Index, size: int) -> Int64:
    """Tokens of every document."""
    where, first, count = place.where(name), HEADER.size, head.sequences
    sizes = place.array(name, head.lengths, first, count).astype(np.int64)
    first += sizes.nbytes // (2 if head.lengths == "<i4" else 1)
    pointers = place.array(name, "<i8", first, count)
    documents = place.array(name, "<i8", first + 8 * count, head.entries)
    wrong = (sizes < 0) | (sizes > size)
    if wrong.any():
        raise damaged(
            where, f"sequence {int(wrong.argmax()):,} has {int(sizes[wrong.argmax()]):,} tokens"
        )
    edges = np.concatenate([[0], np.cumsum(sizes)])
    item = np.dtype(head.dtype).itemsize
    wrong = pointers != edges[:-1] * item
    if wrong.any():
        raise damaged(
            where,
            f"sequence {int(wrong.argmax()):,} does not start where the one before it ends; such "
            "files cannot be read in place",
        )
    if int(edges[-1]) * item != size:
        raise damaged(
            where, f"its sequences have {int(edges[-1]) * item:,} bytes and the .bin has {size:,}"
        )
    if documents[0] != 0 or documents[-1] != head.sequences or (np.diff(documents) < 0).any():
        raise damaged(where, "its document index runs backwards or leaves the sequences")
    lengths: Int64 = np.diff(edges[documents])
    return lengths
