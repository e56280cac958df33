"""What is known about a foreign store after a look at its headers: plain data, no token read.

One idea: a format is a function path → `Described`. Everything after that (shards, identity, seals,
reading) is the same for all formats, so a new format is one function that fills in this record.

Where documents end comes from an index (`lengths`) or from a delimiter in the tokens (`Delimiter`),
which is looked for once and remembered with the identity of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.errors import StoreCorrupt
from tokenloom.foreign.pieces import Piece, RawPiece, stored_alike
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource

__all__ = ["Delimiter", "Described", "ForeignColumn", "ForeignFolder", "damaged"]

Int64 = NDArray[np.int64]

LARGEST_FILE = 1 << 40  # bytes, that addresses reach (`tokenloom.store.coalesce`)


class ForeignFolder(Protocol):
    """A folder of foreign files, on this machine or in a bucket (`tokenloom.foreign.locations`)."""

    @property
    def root(self) -> str:
        """Its absolute path, or its URL."""

    @property
    def source(self) -> ByteSource:
        """What reads its files."""

    @property
    def lists(self) -> bool:
        """Whether its names can be listed; a plain web server lists none."""

    def names(self, folder: str = "") -> list[str]:
        """The names in it, or in a folder below it, in order; none if there is no folder."""

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none of that name."""

    def stamp(self, name: str) -> list[int]:
        """What changes when a file is written again: its bytes, and the time in nanoseconds."""

    def as_file(self, name: str) -> Any:
        """What a library can open: its path, or a file object that can be sought in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delimiter:
    """A token that tells documents apart; it belongs to the document it ends or starts.

    Attributes:
        id: the token.
        at: "end" if it is the last token of a document, "start" if the first. Tokens after the last
            end, or before the first start, are a document, too.
    """

    id: int
    at: str = "end"

    def __post_init__(self) -> None:
        one_of("delimiter", self.at, ("end", "start"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignColumn:
    """A further per-token column: as many elements as there are tokens.

    Attributes:
        dtype: what it is given as, one of `tokenloom.store.format.COLUMN_DTYPES`.
        pieces: end to end.
    """

    dtype: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """A foreign store.

    Attributes:
        kind: the format, such as "megatron".
        folder: where its files are.
        files: all files that decide its content, by their names in the folder; a change of one of
            them is noticed by its size and time.
        tokens: where the ids are.
        lengths: gives the tokens of every document, in order (called once, its result is
            remembered), or how documents are told apart.
        columns: further per-token columns, by name.
        vocab_size: every id is below it; None if the files do not say.
        tokenizer: what the files say about it.
        settings: what the user said about it, so that it can be opened again.
        notes: what is worth telling, a sentence each.
        doubts: what may be damage or may be meant, and nothing in the files tells which, a sentence
            each.
        metadata: what the files know about a document, by its number.
    """

    kind: str
    folder: ForeignFolder
    files: tuple[str, ...]
    tokens: tuple[Piece, ...]
    lengths: Callable[[], Int64] | Delimiter
    columns: Mapping[str, ForeignColumn] = field(default_factory=dict)
    vocab_size: int | None = None
    tokenizer: fmt.TokenizerRecord | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    metadata: Callable[[int], dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            found = sum(piece.elements for piece in column.pieces)
            if found != self.num_tokens:
                raise damaged(
                    self.root,
                    f"its column {name} has {found:,} elements and there are "
                    f"{self.num_tokens:,} tokens",
                )

    @property
    def root(self) -> str:
        """The path or URL of its folder, absolute and without links."""
        return self.folder.root

    @property
    def num_tokens(self) -> int:
        """Tokens in all pieces."""
        return sum(piece.elements for piece in self.tokens)

    @property
    def dtype(self) -> str:
        """What ids are given as: "uint16" if no piece can hold larger ones, else "uint32"."""
        raw = [piece.dtype for piece in self.tokens if isinstance(piece, RawPiece)]
        short = len(raw) == len(self.tokens) and all(np.dtype(x).itemsize <= 2 for x in raw)
        return "uint16" if short else "uint32"

    @property
    def limit(self) -> int:
        """Every id is below this: what is said, or else what the dtype can hold."""
        return self.vocab_size or (1 << 16 if self.dtype == "uint16" else fmt.MAX_ID + 1)

    def is_in_place(self, piece: Piece) -> bool:
        """Whether its ids can be read from the file as they are."""
        if not isinstance(piece, RawPiece) or piece.end_byte >= LARGEST_FILE:
            return False
        return stored_alike(piece.dtype, self.dtype)

    def columns_of_files(self) -> dict[str, str]:
        """File → the per-token column that it holds, for files that hold one."""
        found = {name: one.pieces for name, one in self.columns.items()}
        found["input_ids"] = self.tokens  # the last, since a file may hold several
        return {piece.file: name for name, pieces in found.items() for piece in pieces}

    @property
    def must_look(self) -> bool:
        """Whether ids could be invalid, so that somebody has to look at them."""
        return self.dtype != "uint16" or self.limit < 1 << 16


def damaged(where: str, what: str) -> StoreCorrupt:
    """The error for files that cannot be what they claim to be."""
    return StoreCorrupt(
        f"{where}: {what}. The file is damaged, cut short, or of another format (`format=`); "
        "nothing was read from it. Restore it from a copy."
    )
