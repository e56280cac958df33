"""The documents of a store, some at a time, in order.

One idea: whoever writes a store in another form goes through it once, and holds only a portion of
it: about a million tokens, or one document that is longer. What is read is ranges of tokens, so
nothing here costs Python per document; metadata does, where there is any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.store import Store
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.limits import limits
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
        first: documents before this one are left out.
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
