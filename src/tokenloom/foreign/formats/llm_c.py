"""Shards of llm.c and its kin (modded-nanogpt and others): a header of 256 int32, then ids.

::

    i32  magic       20240520: ids are uint16, version 1 (GPT-2)
                     20240801: ids are uint32, version 7 (Llama 3)
                     278895051: the fourth number says how many bytes an id has
    i32  version
    i32  tokens      after the header, to the end of the file
    ...              to byte 1,024

Documents are cut wherever a shard is full, so one may go on in the next file; its tokens are read
from both. In front of each document there is the tokenizer's end-of-text token, which the files do
not name: say ``bos=50256`` for GPT-2.
"""

from __future__ import annotations

import numpy as np

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Described
from tokenloom.foreign.formats.series import documents_by, files_of, refuse_others
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.pieces import RawPiece
from tokenloom.foreign.places import ForeignPlace

HEADER = 1024

MAGICS = {20240520: (1, "<u2"), 20240801: (7, "<u4")}

WITH_WIDTH = 278895051  # another number says how wide ids are

EXAMPLES = 20240522  # of an evaluation with several choices

WIDTHS = {2: "<u2", 4: "<u4"}


def describe_llm_c(place: ForeignPlace) -> Described | None:
    """A shard, or a folder of shards in order of name."""
    asked = place.said.format == "llm.c"
    named = files_of(place, ".bin")
    if not named or not (asked or _magic(place, named[0]) in {*MAGICS, WITH_WIDTH, EXAMPLES}):
        return None
    refuse_others(place, "llm.c", named)
    pieces = tuple(_piece(place, name) for name in named)
    lengths, notes = documents_by(place, pieces)
    return Described(
        kind="llm.c",
        folder=place.folder,
        files=tuple(named),
        tokens=pieces,
        lengths=lengths,
        notes=notes,
    )


def _magic(place: ForeignPlace, name: str) -> int:
    raw = place.bytes(name, 0, 4)
    return int(raw.view("<i4")[0]) if len(raw) == 4 else 0


def _piece(place: ForeignPlace, name: str) -> RawPiece:
    where, size = place.where(name), place.size(name) or 0
    raw = place.bytes(name, 0, HEADER)
    if len(raw) < HEADER:
        raise damaged(where, f"{size:,} bytes are less than its header has")
    magic, version, tokens, width = raw.view("<i4")[:4].tolist()
    if magic == EXAMPLES:
        raise ConfigError(
            f"{where}: it holds the examples of an evaluation, allowed: shards of tokens. Name "
            "those."
        )
    dtype = _dtype(place, where, magic, version, width)
    if tokens < 0 or size != HEADER + tokens * np.dtype(dtype).itemsize:
        raise damaged(
            where,
            f"its header says {tokens:,} tokens as {np.dtype(dtype).name}, and it has {size:,} "
            "bytes",
        )
    return RawPiece(file=name, first_byte=HEADER, elements=tokens, dtype=dtype)


def _dtype(place: ForeignPlace, where: str, magic: int, version: int, width: int) -> str:
    """How ids are stored, as the header says it, or the user where it does not."""
    if magic == WITH_WIDTH and version == 1 and width in WIDTHS:
        return WIDTHS[width]
    if magic in MAGICS:
        known, dtype = MAGICS[magic]
        if version != known:
            raise damaged(where, f"its version is {version}, allowed: {known}")
        return dtype
    if place.said.dtype is None:
        allowed = ", ".join(map(str, MAGICS))
        raise ConfigError(
            f"{where}: its magic number is {magic}, allowed: {allowed}. If it has the same header, "
            "say how ids are stored (`dtype=`)."
        )
    return np.dtype(place.said.dtype).newbyteorder("<").str
