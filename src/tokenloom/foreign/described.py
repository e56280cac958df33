"""What is known about a foreign store after a look at its headers: plain data, no token read.

One idea: a format is a function path → `Described`. Everything after that (shards, identity, seals,
reading) is the same for all formats, so a new format is one function that fills in this record.

Where documents end comes from an index (`lengths`) or from a delimiter in the tokens (`Delimiter`),
which is looked for once and remembered with the identity of the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.foreign.locations import ForeignFolder, damaged, hash_of_ranges
from tokenloom.foreign.pieces import Piece, RawPiece, stored_alike
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import Range

Int64 = NDArray[np.int64]

LARGEST_FILE = 1 << 40  # bytes, that addresses reach (`tokenloom.store.coalesce`)


SAMPLED = 64  # stretches of bytes that are compared whenever a store is opened

SAMPLE_BYTES = 4096


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

    # -- what tells whether the files are still the same -----------------------------------

    def stamps(self) -> list[list[Any]]:
        """Name, size and time of every file: [name, bytes, nanoseconds]."""
        return [[name, *self.folder.stamp(name)] for name in self.files]

    def changed_since(self, stamps: Sequence[list[Any]]) -> list[str]:
        """The files that have another size or time than they had, or are gone.

        In a bucket none: there every answer is compared with the size and etag first seen.
        """
        try:
            now = {name: rest for name, *rest in self.stamps()}
        except FileNotFoundError as error:
            return [str(error.filename)]
        return [name for name, *rest in stamps if now.get(name) != rest]

    def sample_of_bytes(self) -> str:
        """The sha256 of the first and last bytes of every file and of others at keyed places."""
        return hash_of_ranges(self.folder.source, self._sampled_ranges(), self.root)

    def _sampled_ranges(self) -> Iterator[Range]:
        sizes = np.array([size for _, size, _ in self.stamps()], np.int64)
        edges = np.concatenate([[0], np.cumsum(sizes)])
        places = keyed_places(f"{self.kind}:{int(edges[-1])}", SAMPLED, int(edges[-1]))
        owner = np.searchsorted(edges, places, side="right") - 1
        for number, (name, size) in enumerate(zip(self.files, sizes.tolist(), strict=True)):
            inside = (places[owner == number] - edges[number]).tolist()
            for low in [0, *inside, max(0, size - SAMPLE_BYTES)]:
                yield name, low, min(SAMPLE_BYTES, size - low)


def keyed_places(key: str, count: int, below: int) -> Int64:
    """Places below a bound, ascending, decided by a key: the same everywhere and always."""
    if not below:
        return np.empty(0, np.int64)
    words = [hashlib.sha256(f"{key}:{i}".encode()).digest()[:8] for i in range(count)]
    return np.sort(np.array([int.from_bytes(word, "little") % below for word in words], np.int64))
