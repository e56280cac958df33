"""The line of tokens: documents end to end, all of a store or some of them.

A layout only ever cuts one line. An *address* is a position on it. `WholeLine` is the
line of a store as it lies on disk; `ChosenLine` strings chosen documents together, so a split or a
selection is cut exactly like a store, and no layout knows the difference. The two differ in where
their tokens lie in the store (`to_store`); reading them is the same.
"""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.store.cache import BlockCache, Job
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Stretches:
    """The contents of some ranges of a line, document by document, without empty documents.

    Attributes:
        edges: first piece of each range, and the number of pieces [ranges + 1].
        document: index of the document in its store [pieces].
        start: document offset of the first token [pieces].
        length: tokens [pieces].
        address: position of the first token on the line [pieces].
    """

    edges: Int64
    document: Int64
    start: Int64
    length: Int64
    address: Int64


class Line(ABC):
    """Documents end to end.

    Attributes:
        reader: the store that holds them.
        mark: tells the lines of one store apart in a cache that they share.
    """

    reader: Reader
    mark: str = ""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens on the line."""

    @property
    @abstractmethod
    def documents(self) -> int:
        """Documents on the line, empty ones included."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Identifies the line: the same for the same documents in the same order, at any path."""

    @abstractmethod
    def bounds(self, first: int, last: int) -> tuple[Int64, Int64]:
        """Documents [first, last): their index in the store [N], and their edges [N + 1]."""

    @abstractmethod
    def places(self, document: int) -> Int64:
        """Where a document of the store is among those of the line, ascending; empty: nowhere."""

    @abstractmethod
    def pieces(self, start: Int64, stop: Int64) -> Stretches:
        """The documents in each range [N]; ranges must lie inside the line and not be empty."""

    @abstractmethod
    def to_store(self, start: Int64, stop: Int64) -> tuple[Int64, Int64]:
        """Ranges of the line as ranges of the store, in order; one may become none or several."""

    def read(
        self, start: Int64, stop: Int64, column: str = "input_ids", cap: int | None = None
    ) -> list[Array]:
        """Views of the elements of all ranges, in the order requested, as `Reader.read`."""
        return self.reader.read(*self.to_store(start, stop), column, cap)

    def keys(self, tag: str, numbers: Int64, column: str) -> Sequence[Hashable]:
        """Under which stretches are kept in the cache."""
        whose = self.whose(tag, column)
        return [(whose, number) for number in numbers.tolist()]

    def whose(self, tag: str, column: str) -> str:
        """The first half of these keys, in one string: its hash is computed once."""
        return f"{self.reader.identity}/{column}/{self.mark}{tag}"

    def stretches(
        self,
        tag: str,
        numbers: Int64,
        start: Int64,
        stop: Int64,
        column: str,
        cache: BlockCache,
    ) -> list[Array]:
        """Ranges of the line that are kept in the cache: the blocks of a layout; read-only.

        What is missing is read in one request; each stretch has memory of its own, so that it is
        freed when it is dropped.

        Args:
            tag: which division of the line this is.
            numbers: the number of each stretch in it, no two the same [N].
            start: first token of each stretch [N].
            stop: token after it [N].
            column: which per-token column.
            cache: keeps them.
        """

        def load(places: list[int], again: bool = False) -> list[Array]:
            return self.load(start[places], stop[places], column, again=again)

        keys = self.keys(tag, numbers, column)
        return cache.get_many(keys, load, functools.partial(load, again=True))

    def load(self, start: Int64, stop: Int64, column: str, *, again: bool = False) -> list[Array]:
        """Ranges of the line, read in one request, each into memory of its own.

        Args:
            start: first token of each [N].
            stop: token after it [N].
            column: which per-token column.
            again: count its reads as retries.
        """
        cap = self._cut(stop - start, column)
        return self.reader.load(*self.to_store(start, stop), stop - start, column, cap, again=again)

    def promised(
        self,
        tag: str,
        numbers: Int64,
        start: Int64,
        stop: Int64,
        column: str,
        cache: BlockCache,
    ) -> list[Job]:
        """Have the cache keep places for stretches that it lacks, to be read in one request, later.

        Returns:
            what reads each of them, to be done in any thread; see `BlockCache.reserve`.
        """
        if not len(numbers):
            return []
        sizes, cap = stop - start, self._cut(stop - start, column)
        makes = self.reader.promise(*self.to_store(start, stop), sizes, column, cap)
        size = (sizes * self.reader.dtype(column).itemsize).tolist()
        return cache.reserve(self.keys(tag, numbers, column), size, makes)

    def _cut(self, sizes: Int64, column: str) -> int:
        """Most bytes of a read: neighbours are read together, but cut where one ends."""
        most = self.reader.rules.cap
        cap = max(8, int(sizes.max()) * self.reader.dtype(column).itemsize)
        return min(cap, most) if cap % 8 == 0 else most


class WholeLine(Line):
    """All documents of a store, as they are stored."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    @property
    def tokens(self) -> int:
        """See `Line`."""
        return self.reader.manifest.tokens

    @property
    def documents(self) -> int:
        """See `Line`."""
        return self.reader.manifest.documents

    @property
    def identity(self) -> str:
        """See `Line`."""
        return self.reader.manifest.digest

    def bounds(self, first: int, last: int) -> tuple[Int64, Int64]:
        """See `Line`."""
        return np.arange(first, last), self.reader.offsets.edges(first, last)

    def places(self, document: int) -> Int64:
        """See `Line`; all documents are there, under their own numbers."""
        return np.array([document] if 0 <= document < self.documents else [], np.int64)

    def pieces(self, start: Int64, stop: Int64) -> Stretches:
        """See `Line`."""
        return Stretches(*self.reader.offsets.cut(start, stop))

    def to_store(self, start: Int64, stop: Int64) -> tuple[Int64, Int64]:
        """See `Line`; the line is the store."""
        return start, stop


class ChosenLine(Line):
    """Some documents of a store, in the order given.

    Args:
        reader: the store.
        documents: their indices [N]; costs three integers of memory per document.
    """

    def __init__(self, reader: Reader, documents: Int64) -> None:
        self.reader, self._documents = reader, documents
        raw = documents.astype("<i8", copy=False).tobytes()
        self._identity = hashlib.sha256(raw).hexdigest()
        self.mark = f"{self._identity}/"
        self._begin, end = reader.offsets.bounds(documents)
        self._edges = np.concatenate([[0], np.cumsum(end - self._begin)])

    @property
    def tokens(self) -> int:
        """See `Line`."""
        return int(self._edges[-1])

    @property
    def documents(self) -> int:
        """See `Line`."""
        return len(self._documents)

    @property
    def identity(self) -> str:
        """See `Line`."""
        return f"{self.reader.manifest.digest}/{self._identity}"

    def bounds(self, first: int, last: int) -> tuple[Int64, Int64]:
        """See `Line`."""
        return self._documents[first:last], self._edges[first : last + 1]

    def places(self, document: int) -> Int64:
        """See `Line`; by bisection if the documents ascend, which they do in every split."""
        if not self._ascends:
            return np.flatnonzero(self._documents == document)
        low = int(np.searchsorted(self._documents, document, side="left"))
        return np.arange(low, int(np.searchsorted(self._documents, document, side="right")))

    @lazy
    def _ascends(self) -> bool:
        return bool((self._documents[1:] >= self._documents[:-1]).all())

    def pieces(self, start: Int64, stop: Int64) -> Stretches:
        """See `Line`."""
        first = np.searchsorted(self._edges, start, side="right") - 1
        last = np.searchsorted(self._edges, stop - 1, side="right") - 1
        count = last - first + 1
        owner = np.repeat(np.arange(len(first)), count)  # the range of each document
        place = np.arange(len(owner)) - (np.cumsum(count) - count)[owner] + first[owner]
        low = np.maximum(self._edges[place], start[owner])
        length = np.minimum(self._edges[place + 1], stop[owner]) - low
        keep = length > 0
        if not keep.all():  # empty documents inside a range
            place, owner, low, length = place[keep], owner[keep], low[keep], length[keep]
        edges = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(start)))])
        return Stretches(edges, self._documents[place], low - self._edges[place], length, low)

    def to_store(self, start: Int64, stop: Int64) -> tuple[Int64, Int64]:
        """See `Line`; a range becomes one range for every document in it."""
        full = stop > start
        pieces = self.pieces(start[full], stop[full])
        place = np.searchsorted(self._edges, pieces.address, side="right") - 1
        first = self._begin[place] + pieces.start
        return first, first + pieces.length
