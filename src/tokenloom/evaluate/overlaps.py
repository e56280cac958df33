"""Which evaluation documents were trained on: stretches of n tokens that both share.

Text that was copied shares long stretches of tokens with its copy, and text that was not shares
none. All stretches of n tokens of the evaluation documents go into a table of hashes;
training documents are read once, and every stretch of theirs is looked up. A hit is compared token
by token before it counts, so that no hash can accuse anybody.

A document whose stretches are nearly all found in a single training document is a *near-duplicate*;
one with few hits quotes something, or both quote the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.documents import Documents
from tokenloom.api.store import Store
from tokenloom.arguments import integer
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError, plural
from tokenloom.limits import limits
from tokenloom.progress import Progress

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no token is lost

SIEVE = 24  # bits of a hash that decide whether the table is asked at all


class Shared(NamedTuple):
    """What an evaluation document and a training document have in common.

    Attributes:
        document: the evaluation document, by its number in its store.
        training: the training document, by its number in its store.
        share: of the evaluation document's stretches of n tokens, those found in the other.
        stretches: how many these are.
        at, training_at: the first token of the first one, in both.
    """

    document: int
    training: int
    share: float
    stretches: int
    at: int
    training_at: int


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What training and evaluation documents share; made by `tokenloom.evaluate.overlap`.

    Attributes:
        n: tokens of a stretch.
        documents: evaluation documents that were looked at.
        short: those with fewer than n tokens, about which nothing can be said.
        touched: share of each document's stretches that some training document has, by number; only
            those above 0.
        pairs: what each two of them share, most first.

    >>> print(*Overlap(n=13, documents=2, short=0, touched={}, pairs=()).lines())
    0 documents of 2 share 13 tokens in a row with a training document; 0 pairs share 80 % or more
    """

    n: int
    documents: int
    short: int
    touched: dict[int, float]
    pairs: tuple[Shared, ...]

    def near_duplicates(self, share: float = 0.8) -> list[Shared]:
        """Pairs that share at least this much of the evaluation document."""
        return [one for one in self.pairs if one.share >= share]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "n": self.n,
            "documents": self.documents,
            "short": self.short,
            "touched": {str(number): share for number, share in self.touched.items()},
            "pairs": [one._asdict() for one in self.pairs],
        }

    def lines(self, *, most: int = 20) -> Iterator[str]:
        """A verdict, and a table of offenders."""
        yield (
            f"{plural(len(self.touched), 'document')} of {self.documents:,} share {self.n} tokens "
            f"in a row with a training document; {plural(len(self.near_duplicates()), 'pair')} "
            "share 80 % or more"
        )
        if self.short:
            yield f"{plural(self.short, 'document')} shorter than {self.n} tokens: nothing said"
        for one in self.pairs[:most]:
            yield (
                f"  document {one.document}: {one.share:.1%} in training document {one.training}, "
                f"first at token {one.at} and {one.training_at}"
            )
        if len(self.pairs) > most:
            yield f"  … and {len(self.pairs) - most:,} pairs more"


def overlap(
    training: Documents, evaluation: Documents, *, n: int = 13, progress: bool | None = None
) -> Overlap:
    """Find evaluation documents that share stretches of n tokens with training documents.

    The evaluation documents are held in memory, 24 bytes for each of their tokens; training
    documents are read once, one after the other.

    Args:
        training: documents that are trained on.
        evaluation: documents that are evaluated; the ids of both must mean the same.
        n: tokens of a stretch.
        progress: whether to draw a bar; None: on a terminal.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "all work and no play"}, {"text": "makes Jack a dull boy"}]
    ...     train = tl.build(texts, folder + "/train", tokenizer="bytes")
    ...     held = tl.build([{"text": "he makes Jack laugh"}], folder + "/held", tokenizer="bytes")
    ...     found = overlap(train, held, n=8)
    >>> [(one.document, one.training, one.stretches, one.at) for one in found.pairs]
    [(0, 1, 4, 3)]
    """
    chunk = limits().overlap_chunk_tokens
    integer("n", n, 2)
    ours, theirs = (
        Store(one.line.reader, one.line.reader.path).tokenizer_identity
        for one in (evaluation, training)
    )
    if ours != theirs:
        raise ConfigError(
            f"evaluation: its ids are of tokenizer {ours[:12]}, training has {theirs[:12]}, "
            "allowed: ids that mean the same. Build both with one tokenizer"
        )
    table = _Table(evaluation.line, n)
    hits = [np.empty((0, 4), np.int64)]
    with Progress("overlap", total=training.line.tokens, unit="token", show=progress) as bar:
        for piece in _pieces(training.line, n):
            hits.append(table.hits(piece, n))
            bar.advance(chunk)
    touched, pairs = _summed(np.concatenate(hits), table.lengths)
    documents = evaluation.line.documents
    return Overlap(
        n=n,
        documents=documents,
        short=documents - len(table.lengths),
        touched=touched,
        pairs=tuple(pairs),
    )


class _Piece(NamedTuple):
    """Some tokens of a line, and the stretches of n tokens that start there.

    Attributes:
        tokens: n - 1 more than stretches may start at.
        first: where in `tokens` each stretch starts; it lies inside one document.
        document: of each stretch.
        at: its first token in the document.
    """

    tokens: UInt64
    first: Int64
    document: Int64
    at: Int64


def _pieces(line: Line, n: int) -> Iterator[_Piece]:
    """All stretches of a line, about a million tokens at a time, each once."""
    chunk = limits().overlap_chunk_tokens
    for begin in range(0, line.tokens, chunk):
        end = min(begin + chunk, line.tokens)
        stop = min(end + n - 1, line.tokens)
        where = np.array([begin]), np.array([stop])
        views, found = line.read(*where), line.pieces(*where)
        count = np.clip(np.minimum(found.length - n + 1, end - found.address), 0, None)
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        yield _Piece(
            np.concatenate(views).astype(np.uint64),
            np.repeat(found.address - begin, count) + inside,
            np.repeat(found.document, count),
            np.repeat(found.start, count) + inside,
        )


def _hashes(piece: _Piece, n: int) -> UInt64:
    """The hash of each stretch: a polynomial in its tokens, mixed."""
    size = max(0, len(piece.tokens) - n + 1)
    found = np.zeros(size, np.uint64)
    for place in range(n):
        found *= FACTOR
        found += piece.tokens[place : place + size] + np.uint64(1)
    found = found[piece.first]
    found ^= found >> np.uint64(29)
    found *= FACTOR
    return found ^ (found >> np.uint64(32))


class _Table:
    """The stretches of the evaluation documents, by hash.

    Attributes:
        hash: ascending; equal stretches have several entries.
        piece: all tokens, and the stretch of each entry.
        sieve: whether a hash with these high bits is in the table.
        lengths: stretches of each document, by number.
    """

    def __init__(self, line: Line, n: int) -> None:
        pieces = list(_pieces(line, n))
        if not any(len(piece.first) for piece in pieces):
            raise ConfigError(
                f"evaluation: no document has {n} tokens, allowed: at least {n} in one of them. "
                "Ask for a smaller n"
            )
        ends = itertools.accumulate((len(piece.tokens) for piece in pieces), initial=0)
        moved = [
            piece._replace(first=piece.first + begin)
            for piece, begin in zip(pieces, ends, strict=False)
        ]
        whole = _Piece(*(np.concatenate(column) for column in zip(*moved, strict=True)))
        hashes = _hashes(whole, n)
        order = np.argsort(hashes, kind="stable")
        self.hash = hashes[order]
        self.piece = _Piece(whole.tokens, *(column[order] for column in whole[1:]))
        self.sieve = np.zeros(1 << SIEVE, bool)
        self.sieve[hashes >> np.uint64(64 - SIEVE)] = True
        numbers, counts = np.unique(whole.document, return_counts=True)
        self.lengths = dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def hits(self, piece: _Piece, n: int) -> Int64:
        """(document, at, training document, at) of every stretch that both have [hits, 4]."""
        hashes, mine = _hashes(piece, n), self.piece
        some = np.flatnonzero(self.sieve[hashes >> np.uint64(64 - SIEVE)])
        low = np.searchsorted(self.hash, hashes[some], side="left")
        count = np.searchsorted(self.hash, hashes[some], side="right") - low
        theirs = np.repeat(some, count)
        ours = np.repeat(low - (np.cumsum(count) - count), count) + np.arange(count.sum())
        same = np.ones(len(ours), bool)
        for place in range(n):
            same &= (
                mine.tokens[mine.first[ours] + place] == piece.tokens[piece.first[theirs] + place]
            )
        ours, theirs = ours[same], theirs[same]
        columns = (mine.document[ours], mine.at[ours], piece.document[theirs], piece.at[theirs])
        return np.stack(columns, 1)


def _summed(hits: Int64, lengths: Mapping[int, int]) -> tuple[dict[int, float], list[Shared]]:
    """(share of each document, pairs): a stretch counts once for each other document."""
    numbers, counts = np.unique(np.unique(hits[:, :2], axis=0)[:, 0], return_counts=True)
    touched = {
        number: count / lengths[number]
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }
    hits = np.unique(hits[:, [0, 2, 1, 3]], axis=0)  # by both documents, then by place
    stretches = hits[np.unique(hits[:, :3], axis=0, return_index=True)[1]]
    _, first, sizes = np.unique(stretches[:, :2], axis=0, return_index=True, return_counts=True)
    pairs = [
        Shared(ours, theirs, size / lengths[ours], size, at, training_at)
        for (ours, theirs, at, training_at), size in zip(
            stretches[first].tolist(), sizes.tolist(), strict=True
        )
    ]
    return touched, sorted(pairs, key=lambda one: (-one.share, one.document, one.training))
