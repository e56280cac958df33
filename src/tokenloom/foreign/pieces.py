"""Where the elements of a foreign column are: pieces end to end, read by one function.

One idea: whatever a format looks like, its tokens are one line of *pieces*. A `RawPiece` lies in a
file as it is; a `CodedPiece` has a function that decodes it. `PieceLine` reads any range of the
line; what had to be converted or decoded is kept in the block cache, chunk by chunk.

::

    line    0 ........ 70 ............. 200 ......... 260
    pieces  |  train_0  |    train_1     |   train_2   |
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreCorrupt
from tokenloom.store import format as fmt
from tokenloom.store import zarr
from tokenloom.store.ahead import in_turn
from tokenloom.store.byte_source import ByteSource, Range, drop_copies, read_exactly
from tokenloom.store.cache import BlockCache
from tokenloom.store.handles import lazy
from tokenloom.store.loss_counts import LOSS_VALUES, first_wrong_loss
from tokenloom.store.payload import InFiles
from tokenloom.store.shard import corrupt

Array = NDArray[Any]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPiece:
    """Elements that lie in a file as they are.

    Attributes:
        file: its name, relative to the folder of the store.
        first_byte: where the first element starts.
        elements: how many there are; all of them must be inside the file.
        dtype: with its byte order, such as "<u2" or ">i8".
    """

    file: str
    first_byte: int
    elements: int
    dtype: str

    @property
    def end_byte(self) -> int:
        """The byte after the last element."""
        return self.first_byte + self.elements * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class CodedPiece:
    """Elements that have to be decoded.

    Attributes:
        file: what to name in messages, relative to the folder of the store.
        elements: how many there are.
        decode: gives elements [low, high) as integers or floats of any dtype. `low` is a multiple
            of `chunk`, `high` too or the end. Several threads may call it at the same time; it is
            never pickled.
        chunk: elements that are decoded together; a chunk is kept in the block cache.
    """

    file: str
    elements: int
    decode: Callable[[int, int], Array]
    chunk: int = fmt.CHUNK_TOKENS


Piece = RawPiece | CodedPiece


def chunk_of(piece: Piece) -> int:
    """Elements that are converted or decoded, kept and checked together."""
    return fmt.CHUNK_TOKENS if isinstance(piece, RawPiece) else piece.chunk


def stored_alike(dtype: str, wanted: str) -> bool:
    """Whether elements of a dtype are, byte by byte, also those of another.

    Negative integers become too large to be ids, so they are found by the same comparison.

    >>> stored_alike("<i4", "uint32"), stored_alike("<u2", "uint16"), stored_alike(">u2", "uint16")
    (True, True, False)
    """
    found, other = np.dtype(dtype), np.dtype(wanted).newbyteorder("<")
    return found == other or (found, other) == (np.dtype("<i4"), np.dtype("<u4"))


CHUNK_BITS = 40  # of a piece and a chunk in one number


class PieceLine:
    """The elements of one column, by their place on the line.

    Args:
        pieces: end to end.
        dtype: what elements are given as; ids as unsigned integers.
        below: every value must be below this, and not negative; None for columns that are no ids.
        source: reads the files.
        cache: keeps converted and decoded chunks.
        key: names the column in the cache.
        root: the folder, for messages.
        sums: gives the crc32c of each chunk of a piece, as it is given to others; None: not sealed.
        column: the name of a further column, whose values are checked; None for ids.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        dtype: str,
        below: int | None,
        *,
        source: ByteSource,
        cache: BlockCache,
        key: tuple[str, ...],
        root: str,
        sums: Callable[[int], Array] | None = None,
        column: str | None = None,
    ) -> None:
        self.pieces, self.dtype = tuple(pieces), np.dtype(dtype).newbyteorder("<")
        self.edges = [0, *itertools.accumulate(piece.elements for piece in pieces)]
        self._below, self._source, self._cache = below, source, cache
        self._key, self.root, self._sums, self._column = key, root, sums, column
        self.locate: Callable[[int], str] = lambda _: ""  # which document has an element, in words
        self.count: Callable[[int], None] = lambda _: None  # told the bytes of every read

    def __len__(self) -> int:
        return self.edges[-1]

    def unchecked(self) -> PieceLine:
        """The same line for somebody who comes back to check it, when documents are known."""
        key, root = (*self._key, "unchecked"), self.root
        source, cache = self._source, self._cache
        return PieceLine(
            self.pieces, self.dtype.str, None, source=source, cache=cache, key=key, root=root
        )

    def read(self, low: int, high: int) -> Array:
        """Elements [low, high) of the line."""
        parts = list(self.views(low, high))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty(0, self.dtype), *parts])

    def views(self, low: int, high: int) -> Iterator[Array]:
        """The same, in pieces that need not be copied."""
        number = bisect.bisect_right(self.edges, low) - 1
        while low < high:
            base = self.edges[number]
            stop = min(high, self.edges[number + 1])
            if stop > low:
                yield from self._of_piece(number, low - base, stop - base)
            low, number = max(low, stop), number + 1

    def sweep(self, low: int, high: int, size: int) -> Iterator[Array]:
        """Elements [low, high) of the line in order, several stretches of it on their way.

        What has to be converted or decoded comes in whole chunks, so that each is decoded once.

        Args:
            low: the first element.
            high: the one after the last.
            size: elements of a stretch; fewer at the end of a piece, more if a chunk has more.
        """
        return self.several(self._cut(low, high, size))

    def several(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Array]:
        """Elements [low, high) of each range, in their order; several are on their way."""
        makes = ((self._taken(*one), functools.partial(self.read, *one)) for one in ranges)
        return in_turn(makes, self._source)

    def _taken(self, low: int, high: int) -> int:
        """Bytes that it takes to read a range: whole chunks, where there are any."""
        head, tail = (bisect.bisect_right(self.edges, one) - 1 for one in (low, max(low, high - 1)))
        chunks = [int(self._sizes[one]) for one in {head, tail} if self._kept[one]]
        return max(high - low, *chunks, 0) * self.dtype.itemsize

    def _cut(self, low: int, high: int, size: int) -> Iterator[tuple[int, int]]:
        """[low, high) cut at the ends of pieces, and of whole chunks where there are any."""
        number = bisect.bisect_right(self.edges, low) - 1
        while low < high:
            base, end = self.edges[number], min(high, self.edges[number + 1])
            chunk = int(self._sizes[number]) if self._kept[number] else 1
            each = max(size // chunk, 1) * chunk
            while low < end:
                inside = (low - base) // chunk * chunk  # where the chunk of `low` starts
                stop = min(base + inside + each, end)
                yield low, stop
                low = stop
            number += 1

    def chunks(self, low: Int64, high: Int64) -> InFiles | None:
        """The chunks that hold the elements of many ranges, and where; None if any is not kept.

        Args:
            low: first element of each range [N].
            high: the element after it [N].
        """
        left, parts = np.flatnonzero(high > low), []
        low, edges = low[left], np.array(self.edges)
        while len(left):  # as often as the longest range has chunks
            number = np.searchsorted(edges, low, side="right") - 1
            if not self._kept[number].all():
                return None
            inside, size = low - edges[number], self._sizes[number]
            stop = np.minimum(high[left], edges[number] + (inside // size + 1) * size)
            stop = np.minimum(stop, edges[number + 1])
            parts.append((left, number, inside // size, inside % size, stop - low))
            more = stop < high[left]
            left, low = left[more], stop[more]
        if not parts:
            none = np.empty(0, np.int64)
            return InFiles([], none, none, none)
        owner, number, chunk, first, length = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(owner, kind="stable")  # the parts of a range come in order
        wanted, which = np.unique((number << CHUNK_BITS | chunk)[order], return_inverse=True)
        found = [self._chunk(*divmod(one, 1 << CHUNK_BITS)) for one in wanted.tolist()]
        return InFiles(found, which, first[order], length[order])

    @lazy
    def _sizes(self) -> Int64:
        """Elements of a chunk of every piece [pieces]."""
        return np.array([chunk_of(piece) for piece in self.pieces], np.int64)

    @lazy
    def _kept(self) -> NDArray[np.bool_]:
        """Whether the chunks of a piece are kept in the cache [pieces]."""
        return np.array([not self._is_read_in_place(piece) for piece in self.pieces], np.bool_)

    def _is_read_in_place(self, piece: Piece) -> bool:
        plain = isinstance(piece, RawPiece) and stored_alike(piece.dtype, self.dtype.str)
        return plain and self._sums is None

    def _chunk(self, number: int, chunk: int) -> Array:
        """A chunk of a piece, converted or decoded, from the cache."""
        piece = self.pieces[number]
        first = chunk * chunk_of(piece)
        last = min(first + chunk_of(piece), piece.elements)
        load = functools.partial(self._converted, number, first, last)
        return self._cache.get((*self._key, number, chunk), load)

    def _of_piece(self, number: int, low: int, high: int) -> Iterator[Array]:
        piece = self.pieces[number]
        if isinstance(piece, RawPiece) and self._is_read_in_place(piece):
            yield self._checked(number, self._raw(piece, low, high).view(self.dtype), low)
            return
        size = chunk_of(piece)
        for chunk in range(low // size, (high - 1) // size + 1):
            first = chunk * size
            yield self._chunk(number, chunk)[max(low - first, 0) : high - first]

    def _raw(self, piece: RawPiece, low: int, high: int) -> Array:
        dtype = np.dtype(piece.dtype)
        asked = piece.file, piece.first_byte + low * dtype.itemsize, (high - low) * dtype.itemsize
        self.count(asked[2])
        return read_exactly(self._source, [asked], self.root)[0].view(dtype)

    def _converted(self, number: int, low: int, high: int) -> Array:
        """A chunk as it is given to others."""
        try:
            return self._read_chunk(number, low, high)
        except StoreCorrupt:
            drop_copies(self._source, self._ranges_of(self.pieces[number], low, high))
            raise

    def _read_chunk(self, number: int, low: int, high: int) -> Array:
        piece = self.pieces[number]
        if isinstance(piece, RawPiece):
            found = self._raw(piece, low, high)
        else:
            found = np.asarray(piece.decode(low, high))
            self.count(found.nbytes)
            if len(found) != high - low:
                raise StoreCorrupt(
                    f"{self.root}/{piece.file}: elements {low:,} to {high:,} decode to "
                    f"{len(found):,}. The file was changed or cut short; restore it from a copy."
                )
        made = self._checked(number, found, low).astype(self.dtype)
        chunk = low // chunk_of(piece)
        if self._sums is not None and zarr.crc32c(made.view(np.uint8)) != self._sums(number)[chunk]:
            raise corrupt(
                f"{self.root}/{piece.file}",
                f"elements {low:,} to {high:,}: the crc32c is not the one of its seal",
            )
        return made

    def _ranges_of(self, piece: Piece, low: int, high: int) -> list[Range]:
        """Where elements are in their file; of a coded piece, the whole file."""
        if isinstance(piece, RawPiece):
            size = np.dtype(piece.dtype).itemsize
            return [(piece.file, piece.first_byte + low * size, (high - low) * size)]
        return [(piece.file, 0, self._source.size(piece.file) or 0)]

    def _checked(self, number: int, found: Array, low: int) -> Array:
        """The same values, if all of them are ids, or what a further column can hold."""
        if self._column is not None:
            self._check_column(number, found, low)
        if self._below is None or not len(found):
            return found
        least = int(found.min()) if found.dtype.kind != "u" else 0
        if least >= 0 and int(found.max()) < self._below:
            return found
        place = int(((found < 0) | (found >= self._below)).argmax())
        value = int(found[place])
        if found.dtype.str == "<u4" and value > fmt.MAX_ID:  # a negative int32, most likely
            value -= 1 << 32
        where = self.locate(self.edges[number] + low + place)
        raise StoreCorrupt(
            f"{self.root}/{self.pieces[number].file}: element {low + place:,}{where} is {value:,}, "
            f"allowed: ids from 0 to {self._below - 1:,}. The file is damaged, its dtype is "
            "another one (`dtype=`), or its vocabulary is larger (`vocab_size=`)."
        )

    def _check_column(self, number: int, found: Array, low: int) -> None:
        """Refuse values that mean nothing in a loss column, or that the dtype cannot hold."""
        place, allowed = None, f"values of {self.dtype.name}"
        if self._column in LOSS_VALUES:
            place, allowed = first_wrong_loss(self._column, found), LOSS_VALUES[self._column]
        elif self.dtype.kind in "biu" and found.dtype != self.dtype:
            with np.errstate(invalid="ignore"):
                other = np.flatnonzero(found.astype(self.dtype) != found)
            place = int(other[0]) if len(other) else None
        if place is not None:
            where = self.locate(self.edges[number] + low + place)
            raise StoreCorrupt(
                f"{self.root}/{self.pieces[number].file}: element {low + place:,}{where} of "
                f"{self._column} is {found[place]!s}, allowed: {allowed}. The file is damaged, or "
                "was written wrongly; write it again."
            )
