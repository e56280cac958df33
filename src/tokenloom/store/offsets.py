"""Where documents start, and which document holds a token, without loading all offsets.

The offsets of a shard are read in chunks, each kept in the block cache with one entry
more than it has documents, so that both ends of a document are in one chunk. Which chunk a token
belongs to is told by a directory, the first offset of every chunk, made when a shard is first asked
for an address. Requests are grouped by chunk, so cost is Python per chunk, not per document.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom import native
from tokenloom.arrays import Int64, distinct, grouped
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store.cache import BlockCache
from tokenloom.store.shard import corrupt

Read = Callable[[int, int, int], NDArray[Any]]

"""(shard, first entry, entry after the last) → stored offsets."""


def _stretches(ordered: Int64) -> Iterator[tuple[int, slice]]:
    """Each different number of a sorted array with the stretch where it occurs."""
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    edges = [0, *cuts.tolist(), len(ordered)] if len(ordered) else []
    for start, stop in itertools.pairwise(edges):
        yield int(ordered[start]), slice(start, stop)


def _in_order(numbers: Int64) -> tuple[Int64, Int64 | None]:
    """Numbers sorted, and where each came from, if they were not: neighbours are found fastest."""
    if (numbers[1:] >= numbers[:-1]).all():
        return numbers, None
    order = np.argsort(numbers)
    return numbers[order], order


def _back(values: Int64, order: Int64) -> Int64:
    """What was found in order, as it was asked for."""
    found = np.empty_like(values)
    found[order] = values
    return found


def _segment(starts: NDArray[Any], numbers: Int64) -> Int64:
    """The last of some ascending starts that is not after each number."""
    return np.searchsorted(starts, numbers.astype(starts.dtype, copy=False), side="right") - 1


class Offsets:
    """The document boundaries of a snapshot, as addresses on its line of tokens.

    Attributes:
        first_token: address of the first token of each shard, and the end [shards + 1].
        first_document: the same for documents.
    """

    def __init__(
        self, manifest: fmt.Manifest, read: Read, cache: BlockCache, identity: str, path: str
    ) -> None:
        self._manifest, self._read, self._cache = manifest, read, cache
        self._identity, self._path = identity, path
        self.first_token = starts_of([shard.tokens for shard in manifest.shards])
        self.first_document = starts_of([shard.documents for shard in manifest.shards])
        self._directories: dict[int, Int64] = {}

    def bounds(self, documents: Int64) -> tuple[Int64, Int64]:
        """First token of each document and the token after it [N]."""
        ordered, order = _in_order(documents)
        start, stop = np.empty(len(ordered), np.int64), np.empty(len(ordered), np.int64)
        for number, here in _stretches(_segment(self.first_document, ordered)):
            local, base = ordered[here] - self.first_document[number], self.first_token[number]
            for chunk, among in _stretches(local // self._manifest.inner):
                block, inner = self._chunk(number, chunk), local[among]
                inner -= chunk * self._manifest.inner
                np.add(block[inner], base, out=start[here][among])
                inner += 1
                np.add(block[inner], base, out=stop[here][among])
        return (start, stop) if order is None else (_back(start, order), _back(stop, order))

    def edges(self, first: int, last: int) -> Int64:
        """Where documents [first, last) start, and the end of the last [documents + 1]."""
        found, inner = np.zeros(last - first + 1, np.int64), self._manifest.inner
        at = first
        while at < last:
            number = int(np.searchsorted(self.first_document, at, side="right")) - 1
            chunk, low = divmod(at - int(self.first_document[number]), inner)
            block = self._chunk(number, chunk)
            count = min(last - at, len(block) - 1 - low)
            here = slice(at - first, at - first + count + 1)
            np.add(block[low : low + count + 1], self.first_token[number], out=found[here])
            at += count
        return found

    def inside_shards(self, start: Int64, stop: Int64) -> tuple[Int64, Int64, Int64]:
        """Ranges of the store as (shard, first element, element after the last), as asked.

        A range over k shards becomes k ranges, an empty one none.
        """
        head = np.searchsorted(self.first_token, start, side="right") - 1
        tail = np.searchsorted(self.first_token, stop, side="left") - 1
        if (head == tail).all() and (stop > start).all():
            base = self.first_token[head]
            return head, start - base, stop - base
        count = np.where(stop > start, tail - head + 1, 0)
        owner = np.repeat(np.arange(len(start)), count)
        step = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        shard = head[owner] + step
        base = self.first_token[shard]
        low = np.maximum(start[owner], base) - base
        high = np.minimum(stop[owner], self.first_token[shard + 1]) - base
        return shard, low, high

    def documents_at(self, addresses: Int64) -> Int64:
        """The document that holds each token [N]; addresses are inside the store."""
        ordered, order = _in_order(addresses)
        found = np.empty(len(ordered), np.int64)
        for number, here in _stretches(_segment(self.first_token, ordered)):
            local = ordered[here] - self.first_token[number]
            for chunk, among in _stretches(_segment(self._directory(number), local)):
                # of several documents that start at one token, all but the last are empty
                inner = _segment(self._chunk(number, chunk), local[among])
                first = self.first_document[number] + chunk * self._manifest.inner
                np.add(inner, first, out=found[here][among])
        return found if order is None else _back(found, order)

    def cut(self, start: Int64, stop: Int64) -> tuple[Int64, Int64, Int64, Int64, Int64]:
        """The documents in ranges of tokens, without empty ones; ranges are not empty.

        Args:
            start: first token of each range [N]; inside the store.
            stop: token after it [N].

        Returns:
            the first piece of each range, then the number of pieces [N + 1]; and of each piece its
            document, the document offset of its first token, its tokens, and its address [pieces].
        """
        if native.compiled is None or not len(start):
            return self._cut(start, stop)
        chunks, base, number = self._chunks(start, stop)
        edges, room = np.empty(len(start) + 1, np.int64), 0
        columns: list[Int64] = []
        usual = int((stop - start).sum()) * self._manifest.documents // self._manifest.tokens
        count = len(start) + usual + usual // 4
        while count > room:  # what does not fit is counted, and fits the next time
            room = count
            columns = [np.empty(room, np.int64) for _ in range(4)]
            ranges = (native.plain(one, np.int64) for one in (start, stop))
            count = native.compiled.cut(chunks, base, number, *ranges, edges, *columns)
        document, begin, length, address = (one[:count] for one in columns)
        return edges, document, begin, length, address

    def _chunks(self, start: Int64, stop: Int64) -> tuple[list[NDArray[Any]], Int64, Int64]:
        """The chunks that some ranges touch, what to add to their offsets, and to documents."""
        addresses = np.concatenate([start, stop - 1])
        shard = _segment(self.first_token, addresses)
        chunk = np.empty(len(addresses), np.int64)
        for number, here in grouped(shard):
            local = addresses[here] - self.first_token[number]
            chunk[here] = _segment(self._directory(number), local)
        inner = self._manifest.inner
        first_chunk = starts_of([-(-one.documents // inner) for one in self._manifest.shards])
        chunk += first_chunk[shard]
        low, high = chunk[: len(start)], chunk[len(start) :]
        needed, _ = distinct(chunk)
        if (high - low).max() > 1:  # and those that a range covers from end to end
            between = zip(low.tolist(), high.tolist(), strict=True)
            needed, _ = distinct(np.concatenate([np.arange(a, b + 1) for a, b in between]))
        shard = _segment(first_chunk, needed)
        chunk = needed - first_chunk[shard]
        places = zip(shard.tolist(), chunk.tolist(), strict=True)
        document = self.first_document[shard] + chunk * inner
        return [self._chunk(*place) for place in places], self.first_token[shard], document

    def _cut(self, start: Int64, stop: Int64) -> tuple[Int64, Int64, Int64, Int64, Int64]:
        """The same in NumPy."""
        order = np.argsort(start)  # sorted lookups are several times faster
        first, last = start[order], stop[order]
        low, high = self.documents_at(first), self.documents_at(last - 1)
        count = high - low + 1
        owner = np.repeat(np.arange(len(first)), count)
        document = np.arange(len(owner)) - (np.cumsum(count) - count)[owner] + low[owner]
        begin, end = self.bounds(document)
        address = np.maximum(begin, first[owner])
        length = np.minimum(end, last[owner]) - address
        keep = np.flatnonzero(length > 0)  # not the empty documents inside a range
        # back to the order of the request: the pieces of a range stay together
        keep = keep[np.argsort(order[owner[keep]], kind="stable")]
        edges = np.zeros(len(start) + 1, np.int64)
        np.cumsum(np.bincount(order[owner[keep]], minlength=len(start)), out=edges[1:])
        found = address[keep]
        return edges, document[keep], found - begin[keep], length[keep], found

    def lengths(self) -> Int64:
        """Tokens of every document, in order [documents]."""
        lengths, done = np.empty(self._manifest.documents, np.int64), 0
        for piece in self.length_pieces():
            lengths[done : done + len(piece)] = piece
            done += len(piece)
        return lengths

    def length_pieces(self) -> Iterator[NDArray[Any]]:
        """Tokens of every document, in order, a few documents at a time; unsigned integers."""
        chunk = limits().offset_chunk_documents
        for number, entry in enumerate(self._manifest.shards):
            for low in range(0, entry.documents, chunk):
                high = min(low + chunk, entry.documents)
                offsets = self._read(number, low, high + 1)
                self._check(number, offsets, first=low == 0, last=high == entry.documents)
                yield offsets[1:] - offsets[:-1]

    def _chunk(self, number: int, chunk: int) -> NDArray[Any]:
        """Offsets of the documents of one chunk, and the end of the last [documents + 1]."""
        inner, documents = self._manifest.inner, self._manifest.shards[number].documents

        def load() -> NDArray[Any]:
            last = min((chunk + 1) * inner, documents)
            offsets = self._read(number, chunk * inner, last + 1)
            self._check(number, offsets, first=chunk == 0, last=last == documents)
            return offsets

        return self._cache.get((self._identity, number, "offsets", chunk), load)

    def _directory(self, number: int) -> Int64:
        """The first offset of every chunk of a shard."""
        known = self._directories.get(number)
        if known is None:
            inner, documents = self._manifest.inner, self._manifest.shards[number].documents
            if documents <= inner:
                known = np.zeros(1, np.int64)
            else:
                known = self._read(number, 0, documents)[::inner].astype(np.int64)
                if known[0] != 0 or (known[1:] < known[:-1]).any():
                    raise self._wrong(number)
            self._directories[number] = known
        return known

    def _check(self, number: int, offsets: NDArray[Any], *, first: bool, last: bool) -> None:
        """A hostile store may have right checksums over wrong offsets.

        The `first` of a shard is 0 and the `last` its end, or some token would be in no document.
        """
        tokens, end = self._manifest.shards[number].tokens, int(offsets[-1])
        ordered = bool((offsets[1:] >= offsets[:-1]).all())
        if not ordered or end > tokens or (first and offsets[0] != 0) or (last and end != tokens):
            raise self._wrong(number)

    def _wrong(self, number: int) -> Exception:
        name = self._manifest.shards[number].name
        return corrupt(f"{self._path}/{name}/offsets", "they run backwards or leave the shard")


def starts_of(sizes: list[int]) -> Int64:
    """Where each of these stretches starts, and where the last one ends [len + 1]."""
    edges = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(np.array(sizes, np.int64), out=edges[1:])
    return edges
