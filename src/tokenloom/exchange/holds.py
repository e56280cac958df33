"""The documents of a store, some at a time, and which of them a format of others can hold.

Whoever writes a store in another form goes through it once, in order, and holds only a portion of
it: about a million tokens, or one document that is longer. What is read is ranges of tokens, so
nothing here costs Python per document; metadata does, where there is any.

One idea: a format is described by a few limits, and everything that a store has beyond them is
found before the first byte is written. So an export is refused with the first document that would
be lost, or, with ``lossy=True``, leaves out exactly what was found, and counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.store import Store
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.limits import limits
from tokenloom.store.metadata import RESERVED
from tokenloom.store.reader import Reader


class Portion(NamedTuple):
    """Some documents that follow each other.

    Attributes:
        numbers: which documents they are [D].
        lengths: tokens of each [D].
        start: address of the first token in the store.
        stop: address after the last token.
    """

    numbers: NDArray[np.int64]
    lengths: NDArray[np.int64]
    start: int
    stop: int


def portions(reader: Reader, most: int | None = None, *, first: int = 0) -> Iterator[Portion]:
    """All documents of a store, in portions of at most `most` tokens, or of one document.

    Args:
        reader: the store.
        most: tokens of a portion; None for 1 Mi.
        first: documents before this one are skipped.
    """
    most = limits().export_chunk_tokens if most is None else most
    most_documents = limits().export_chunk_documents
    document = token = 0
    for piece in reader.length_pieces():
        lengths = piece.astype(np.int64)
        ends = np.cumsum(lengths)
        low = min(max(first - document, 0), len(lengths))
        while low < len(lengths):
            before = int(ends[low - 1]) if low else 0
            high = int(np.searchsorted(ends, before + most, side="right"))
            high = min(max(high, low + 1), low + most_documents)
            numbers = np.arange(document + low, document + high)
            stop = token + int(ends[high - 1])
            yield Portion(numbers, lengths[low:high], token + before, stop)
            low = high
        document += len(lengths)
        token += int(lengths.sum())


def values_of(
    reader: Reader, portion: Portion, column: str = "input_ids"
) -> Iterator[NDArray[Any]]:
    """The stored values of a portion, end to end, about a million at a time."""
    chunk = limits().export_chunk_tokens
    for start in range(portion.start, portion.stop, chunk):
        yield reader.read_one(start, min(start + chunk, portion.stop), column)


def metadata_of(
    store: Store, numbers: NDArray[np.int64], *, plain: bool = False
) -> list[dict[str, Any]]:
    """What was kept about each of some documents; an empty list if nothing was kept of any.

    Args:
        store: whose documents.
        numbers: which ones, ascending.
        plain: with the number of a document's input as it is stored, not with its name.
    """
    if not len(numbers):
        return []
    if isinstance(store.reader, ForeignReader):
        row = store.reader.inside.described.metadata
        return [] if row is None else [row(number) for number in numbers.tolist()]
    edges, shards = store.reader.first_document, store.reader.manifest.shards
    head, tail = np.searchsorted(edges, numbers[[0, -1]], side="right").tolist()
    names = [name for shard in shards[head - 1 : tail] for name in shard.files]
    if not any(name.startswith("docs.") for name in names):
        return []
    give = store.reader.metadata if plain else store.metadata
    return [give(number) for number in numbers.tolist()]


LENGTHS = 1 << 31  # tokens: the lengths and offsets of others are int32


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a format can hold.

    Attributes:
        name: what it is called.
        longest: tokens of a document, at most.
        empty: whether a document may have no tokens.
        columns: whether it has further per-token columns.
        metadata: whether it keeps what is known about a document.
        beside: whether metadata is a column each, so that no key may be that of a token column.
    """

    name: str
    longest: int = LENGTHS - 1
    empty: bool = True
    columns: bool = True
    metadata: bool = True
    beside: bool = False


class Loss(NamedTuple):
    """Something that a format cannot hold.

    Attributes:
        what: in words, such as "empty documents".
        first: the first document that has it.
        documents: how many have it; 0 if they were not counted.
    """

    what: str
    first: int
    documents: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What of a store goes into a format.

    Attributes:
        store: where it comes from.
        limits: the format.
        documents: how many are kept.
        tokens: how many they have.
        columns: the further per-token columns that are kept, name → dtype.
    """

    store: Store
    limits: Limits
    documents: int
    tokens: int
    columns: dict[str, str]

    @staticmethod
    def of(store: Store, limits: Limits) -> Holding:
        """Counts what fits; reads lengths and no token."""
        documents = tokens = 0
        for portion in portions(store.reader):
            fits = _fitting(portion, limits)
            documents += int(fits.sum())
            tokens += int(portion.lengths[fits].sum())
        columns = dict(store.columns) if limits.columns else {}
        return Holding(store, limits, documents, tokens, columns)

    def portions(self) -> Iterator[Portion]:
        """The documents that are kept, some at a time, in order."""
        for portion in portions(self.store.reader):
            fits = _fitting(portion, self.limits)
            if not fits.any():
                continue  # one that is too long is alone in its portion
            yield portion._replace(numbers=portion.numbers[fits], lengths=portion.lengths[fits])

    def metadata(self, portion: Portion) -> list[dict[str, Any]]:
        """What is kept about each document of a portion; empty where there is nothing."""
        return [self._kept(row) for row in metadata_of(self.store, portion.numbers)]

    def _kept(self, row: dict[str, Any]) -> dict[str, Any]:
        out = _lost_keys(self.store, self.limits, row) | RESERVED
        return {key: value for key, value in row.items() if key not in out}


def losses(store: Store, limits: Limits, *, counted: bool) -> list[Loss]:
    """Everything of a store that a format cannot hold; reads lengths and metadata, no token.

    Args:
        store: what is exported.
        limits: what the format can hold.
        counted: count the documents whose metadata is lost; otherwise only the first is found.
    """
    found = []
    if not limits.empty:
        found += _where(store, "empty documents", lambda one: one.lengths == 0)
    too_long = f"documents of more than {limits.longest:,} tokens"
    found += _where(store, too_long, lambda one: one.lengths > limits.longest)
    if not limits.columns:
        documents = store.num_documents
        found += [Loss(f"the column {name}", 0, documents) for name in store.columns]
    return [*found, *_lost_metadata(store, limits, counted)]


def _fitting(portion: Portion, limits: Limits) -> NDArray[np.bool_]:
    fits = portion.lengths <= limits.longest
    return fits if limits.empty else fits & (portion.lengths > 0)


def _where(store: Store, what: str, is_lost: Callable[[Portion], Any]) -> list[Loss]:
    first, count = -1, 0
    for portion in portions(store.reader):
        lost = portion.numbers[is_lost(portion)]
        first = int(lost[0]) if len(lost) and first < 0 else first
        count += len(lost)
    return [Loss(what, first, count)] if count else []


def _lost_keys(store: Store, limits: Limits, row: dict[str, Any]) -> set[str]:
    if not limits.metadata:
        return set(row)
    return {"input_ids", *store.columns} & row.keys() if limits.beside else set()


def _lost_metadata(store: Store, limits: Limits, counted: bool) -> list[Loss]:
    """The first document whose record has keys that the format has no place for.

    Which input a document came from (`_input`, `_record`) stays with the store: it is about the
    store's inputs, and a document keeps its number.
    """
    if limits.metadata and not limits.beside:
        return []
    found: Loss | None = None
    for portion in portions(store.reader):
        rows = zip(portion.numbers.tolist(), metadata_of(store, portion.numbers), strict=False)
        for document, row in rows:
            lost = sorted(_lost_keys(store, limits, row) - RESERVED)
            if lost:
                found = found or Loss(f"metadata ({', '.join(lost[:3])})", document, 0)
                if not counted:
                    return [found]
                found = found._replace(documents=found.documents + 1)
    return [found] if found else []
