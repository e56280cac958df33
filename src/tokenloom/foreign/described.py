"""What is known about a foreign store after a look at its headers: plain data, no token read.

One idea: a format is a function path → `Described`. Everything after that (shards, identity, seals,
reading) is the same for all formats, so a new format is one function that fills in this record.

Where documents end comes from an index (`lengths`) or from a delimiter in the tokens (`Delimiter`),
which is looked for once and remembered with the identity of the store.

Readers know shards, so a foreign store gets *virtual* ones, without a file being written, cut so
that no document lies in two of them. A shard is a stretch of documents whose tokens lie in one file
as they are (then it is read in place), or a stretch that must be decoded. A document that goes over
the end of a file, as in formats that cut their shards anywhere, is a small decoded shard of its
own, between two that are read in place::

    files      |  train_0       |  train_1              |
    documents  |..|....|...|......|....|.....|....|.....|
    shards     |  in place |decoded|     in place       |
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.errors import StoreError
from tokenloom.foreign.locations import ForeignFolder, damaged, hash_of_ranges
from tokenloom.foreign.pieces import Piece, PieceLine, RawPiece, stored_alike
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import Range

DECODED = -1


class VirtualShard(NamedTuple):
    """A stretch of documents.

    Attributes:
        first_token: its first token on the line.
        first_document: its first document.
        tokens: how many it has.
        documents: how many it has.
        piece: the piece of the line that holds all its tokens as they are; -1: decode them.
    """

    first_token: int
    first_document: int
    tokens: int
    documents: int
    piece: int


def document_lengths(described: Described, line: PieceLine) -> Int64:
    """Tokens of every document, in order; a delimiter is looked for in all tokens.

    Raises:
        StoreCorrupt: they are negative, or not as many tokens as there are.
    """
    if isinstance(described.lengths, Delimiter):
        return _delimited(described.lengths, line)
    lengths = np.ascontiguousarray(described.lengths(), np.int64)
    total = int(lengths.sum())
    if (lengths < 0).any() or total != len(line):
        raise damaged(
            described.root,
            f"its documents have {total:,} tokens, the files have {len(line):,}",
        )
    _check_longest(described.root, lengths)
    return lengths


def _check_longest(root: str, lengths: Int64) -> None:
    longest = int(lengths.max(initial=0))
    if longest > fmt.MAX_DOCUMENT_TOKENS:
        raise StoreError(
            f"{root}: document {int(lengths.argmax()):,} has {longest:,} tokens, allowed: up to "
            f"{fmt.MAX_DOCUMENT_TOKENS:,}. Name what tells documents apart (`eos=`)."
        )


def _delimited(delimiter: Delimiter, line: PieceLine) -> Int64:
    found, low = [np.empty(0, np.int64)], 0
    for ids in line.sweep(0, len(line), limits().foreign_chunk_tokens):
        found.append(low + np.flatnonzero(ids == delimiter.id))
        low += len(ids)
    places = np.concatenate(found)
    edges = places + 1 if delimiter.at == "end" else places
    edges = np.unique(np.concatenate([[0], edges, [len(line)]]))
    lengths = np.diff(edges)
    _check_longest(line.root, lengths)
    return lengths


def cut_shards(described: Described, lengths: Int64, *, looked: bool) -> list[VirtualShard]:
    """The shards of a store of these documents.

    Ids that nobody has looked at yet (`looked`) are decoded, that is, looked at whenever they are
    read, unless none can be invalid.

    Worked example: documents of 3, 4, 2 and 5 tokens in files of 5 and 9 are three shards: document
    0 in the first file, document 1 in both (decoded), and documents 2 and 3 in the second file.
    """
    ends = np.cumsum(lengths)
    is_free = looked or not described.must_look
    usable = [is_free and described.is_in_place(piece) for piece in described.tokens]
    label = _piece_of(described, np.array(usable, np.bool_), ends, lengths)
    changes = np.flatnonzero(label[1:] != label[:-1]) + 1
    edges = [0, *changes.tolist(), len(label)] if len(label) else []
    found: list[VirtualShard] = []
    for first, last in itertools.pairwise(edges):
        found += _capped(ends, first, last, int(label[first]))
    return found


def check_shards(described: Described, shards: Sequence[VirtualShard]) -> None:
    """Refuse shards, from a file that anybody may have written, that the files do not have."""
    edges = [0, *itertools.accumulate(piece.elements for piece in described.tokens)]
    token = document = 0
    for shard in shards:
        first, here = shard.first_token, shard.piece
        good = (first, shard.first_document) == (token, document)
        good &= min(shard.tokens, shard.documents) >= 0 and DECODED <= here < len(described.tokens)
        if good and here != DECODED:
            inside = edges[here] <= first and first + shard.tokens <= edges[here + 1]
            good = inside and described.is_in_place(described.tokens[here])
        if not good:
            raise damaged(described.root, f"its seal claims a shard {tuple(shard)} that cannot be")
        token, document = token + shard.tokens, document + shard.documents
    if token != described.num_tokens:
        raise damaged(described.root, f"its seal is of {token:,} tokens")


def _piece_of(
    described: Described, usable: NDArray[np.bool_], ends: Int64, lengths: Int64
) -> Int64:
    """The piece that holds each document in place, or -1 [documents].

    An empty document goes with the one before it.
    """
    sizes = [piece.elements for piece in described.tokens]
    edges = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
    label = np.full(len(ends), DECODED, np.int64)
    full = np.flatnonzero(lengths > 0)
    head = np.searchsorted(edges, (ends - lengths)[full], side="right") - 1
    tail = np.searchsorted(edges, ends[full] - 1, side="right") - 1
    one = (head == tail) & usable[head]
    label[full[one]] = head[one]
    before = np.maximum.accumulate(np.where(lengths > 0, np.arange(len(ends)), -1))
    first = full[0] if len(full) else 0
    return label[np.where(before < 0, first, before)] if len(label) else label


def _capped(ends: Int64, first: int, last: int, piece: int) -> list[VirtualShard]:
    """Documents [first, last) as shards below the limits of a shard."""
    most_tokens = limits().foreign_shard_tokens
    found = []
    while first < last:
        base = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, base + most_tokens, side="right"))
        stop = max(first + 1, min(stop, last, first + fmt.SHARD_DOCUMENTS))
        tokens = int(ends[stop - 1]) - base
        found.append(VirtualShard(base, first, tokens, stop - first, piece))
        first = stop
    return found


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
