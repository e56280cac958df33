"""datatrove's tokenized files: `<name>.ds` with ids, `<name>.ds.index` with document ends.

::

    .ds        u16 or u32 [tokens]      how wide follows from the sizes of both files
    .ds.index  u64 [documents]          where each document ends, in tokens
    .ds.loss   u8 [tokens]              1 where a token is trained on, if it was written
    .ds.metadata                        name of the tokenizer, number of tokens, as text

A folder of several files is one store, in order of name; a document never spans two of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Described, ForeignColumn
from tokenloom.foreign.formats.series import files_of, refuse_others
from tokenloom.foreign.pieces import RawPiece
from tokenloom.foreign.places import ForeignPlace

Int64 = NDArray[np.int64]

WIDTHS = {2: "<u2", 4: "<u4"}

METADATA_BYTES = 1 << 16


class _File(NamedTuple):
    """One `.ds` file: its name, the number of its documents and tokens, and bytes of an id."""

    name: str
    documents: int
    tokens: int
    width: int


def describe_datatrove(place: ForeignPlace) -> Described | None:
    """A `.ds` file, or a folder of them, each with its index."""
    named = files_of(place, ".ds")
    if not named or any(place.size(f"{name}.index") is None for name in named):
        return None
    refuse_others(place, "datatrove", named)
    files = [_looked_at(place, name) for name in named]
    _check_widths(place, files)
    with_loss = [name for name in named if place.size(f"{name}.loss") is not None]
    if with_loss and len(with_loss) < len(named):
        raise place.damaged(with_loss[0], "it has a .loss file and others have none")
    told = sorted({_metadata(place, name)[0] for name in named} - {""})
    if len(told) > 1:
        raise ConfigError(
            f"{place.path}: found files of several tokenizers ({', '.join(told)}), allowed: one. "
            "Name the files of one of them."
        )
    columns = {}
    if with_loss:
        pieces = tuple(
            RawPiece(file=f"{one.name}.loss", first_byte=0, elements=one.tokens, dtype="|u1")
            for one in files
        )
        columns["loss_mask"] = ForeignColumn(dtype="bool", pieces=pieces)
    beside = [".index", *([".loss"] if with_loss else [])]
    return Described(
        kind="datatrove",
        folder=place.folder,
        files=tuple(f"{name}{end}" for name in named for end in ("", *beside)),
        tokens=tuple(
            RawPiece(file=one.name, first_byte=0, elements=one.tokens, dtype=WIDTHS[one.width])
            for one in files
        ),
        lengths=lambda: _lengths(place, files),
        columns=columns,
        notes=tuple(f"its tokenizer is {name!r}" for name in told),
    )


def _looked_at(place: ForeignPlace, name: str) -> _File:
    """Counts of one file, from the sizes of its parts and the last entry of its index."""
    index, size = f"{name}.index", place.size(name) or 0
    documents, rest = divmod(place.size(index) or 0, 8)
    if rest:
        raise place.damaged(index, f"{rest} bytes are left over after its last entry")
    last = place.array(index, "<u8", 8 * (documents - 1), 1) if documents else np.zeros(1)
    tokens = int(last[0])
    wide = [width for width in WIDTHS if size == width * tokens]
    if not wide:
        raise place.damaged(
            name, f"it has {size:,} bytes and its index ends at {tokens:,} tokens of 2 or 4 bytes"
        )
    loss = place.size(f"{name}.loss")
    if loss not in (None, tokens):
        raise place.damaged(f"{name}.loss", f"it has {loss:,} bytes for {tokens:,} tokens")
    return _File(name, documents, tokens, wide[0])


def _check_widths(place: ForeignPlace, files: list[_File]) -> None:
    """Refuse a file of uint32 that was cut in half: it looks like one of uint16.

    What tells it is another file of the series, a metadata file, or the user.
    """
    said = place.said.dtype
    known = {np.dtype(said).itemsize} if said else {one.width for one in files if one.tokens}
    for one in files:
        told = _metadata(place, one.name)[1]
        wide = known | ({int(told)} if told in ("2", "4") else set())
        if one.tokens and wide != {one.width}:
            raise place.damaged(
                one.name,
                f"its ids have {one.width} bytes by its size, and {sorted(wide)} are expected",
            )


def _metadata(place: ForeignPlace, name: str) -> tuple[str, str]:
    """The name of the tokenizer, and the bytes of an id, if a metadata file says them."""
    beside = f"{name}.metadata"
    if place.size(beside) is None:
        return "", ""
    text = place.bytes(beside, 0, METADATA_BYTES).tobytes().decode("utf-8", "replace")
    tokenizer, _, width = text.split("\n")[0].partition("|")
    return tokenizer.strip()[:200], width.strip()


def _lengths(place: ForeignPlace, files: list[_File]) -> Int64:
    """Tokens of every document of all files."""
    found = [np.empty(0, np.int64)]
    for one in files:
        index = f"{one.name}.index"
        ends = place.array(index, "<u8", 0, one.documents)
        backwards = ends[1:] < ends[:-1]
        if backwards.any():
            document = int(backwards.argmax()) + 1
            raise place.damaged(index, f"document {document:,} ends before it starts")
        edges = np.concatenate([[0], ends.astype(np.int64)])
        found.append(edges[1:] - edges[:-1])
    return np.concatenate(found)
