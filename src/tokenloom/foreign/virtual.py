"""Virtual shards: a foreign line of tokens, cut so that no document lies in two of them.

One idea: readers know shards, so a foreign store gets some, without a file being written. A shard
is a stretch of documents whose tokens lie in one file as they are (then it is read in place), or a
stretch that must be decoded. A document that goes over the end of a file, as in formats that cut
their shards anywhere, is a small decoded shard of its own, between two that are read in place::

    files      |  train_0       |  train_1              |
    documents  |..|....|...|......|....|.....|....|.....|
    shards     |  in place |decoded|     in place       |
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreError
from tokenloom.foreign.described import Delimiter, Described
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.pieces import PieceLine
from tokenloom.limits import limits
from tokenloom.store import format as fmt

Int64 = NDArray[np.int64]

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
