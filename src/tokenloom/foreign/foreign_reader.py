"""A reader over foreign files: everything above it works as over a store of our own.

One idea: `tokenloom.store.reader.Reader` asks a manifest for counts and shards for columns. Here
both are made from a description and its companion, and never written: tokens of a shard that lie
in a file as they are get a column with a place in that file (`first_byte`), so that coalesced
reads, maps and the compiled loops work on them unchanged; everything else is a column with a
function that decodes it.

A copy, in this process or another, opens the same files again by their absolute path.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreCorrupt
from tokenloom.foreign.companion import Companion, column_lengths
from tokenloom.foreign.described import Described, VirtualShard
from tokenloom.foreign.pieces import Piece, PieceLine, RawPiece
from tokenloom.store import format as fmt
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules, Took
from tokenloom.store.hashes import group_digests
from tokenloom.store.metadata import GROUP, DocumentsReader, Texts
from tokenloom.store.payload import InFiles, Payloads, adopt
from tokenloom.store.reader import Reader
from tokenloom.store.shard import OpenColumn, OpenShard

Array = NDArray[Any]

Int64 = NDArray[np.int64]

LOOK_CACHE = 16 << 20  # bytes of chunks and offsets that are kept during a look

NO_FILE = fmt.FileRecord(bytes=0, sha256="0" * 64)


@dataclass(frozen=True, slots=True)
class Inside:
    """What a foreign store is made of.

    Attributes:
        described: its files.
        shards: its virtual shards.
        companion: the columns that are not in its files.
        identity: "full" if every document was hashed, or "sample".
        groups: digests of groups of documents.
    """

    described: Described
    shards: list[VirtualShard]
    companion: Companion
    identity: str
    groups: tuple[str, ...]

    @property
    def is_sealed(self) -> bool:
        """Whether there are checksums of what is in its files."""
        return self.companion.is_sealed

    def extent(self, file: str) -> int:
        """Bytes from the start of a file to the end of all ids that are read in place."""
        own = self.described
        ends = [
            piece.end_byte
            for piece in own.tokens
            if isinstance(piece, RawPiece) and piece.file == file and own.is_in_place(piece)
        ]
        return max(ends, default=0)

    def hashed(self) -> Inside:
        """The same with the digests of groups that follow from the hashes of the companion."""
        documents = sum(shard.documents for shard in self.shards)
        unknown = replace(self, groups=fmt.unknown_groups(documents))
        return replace(self, groups=tuple(group_digests(look_at(unknown))))

    def manifest(self) -> fmt.Manifest:
        """The manifest that a store with these shards would have; it is never written."""
        entries = tuple(
            fmt.ShardEntry(
                name=fmt.shard_name(number),
                documents=shard.documents,
                tokens=shard.tokens,
                sha256="0" * 64,
                files={},
            )
            for number, shard in enumerate(self.shards)
        )
        documents = sum(shard.documents for shard in self.shards)
        part = fmt.Part(
            manifest=1,
            fingerprint="0" * 64,
            shards=len(self.shards),
            documents=documents,
            tokens=self.described.num_tokens,
            skipped=0,
            filtered=0,
            settings={},
        )
        try:
            return fmt.Manifest(
                number=1,
                parent=None,
                dtype=self.described.dtype,
                vocab_size=self.described.limit,
                chunk_tokens=fmt.CHUNK_TOKENS,
                inner=fmt.INNER,
                columns={name: column.dtype for name, column in self.described.columns.items()},
                tokenizer=self.described.tokenizer,
                documents=documents,
                tokens=self.described.num_tokens,
                digest=fmt.content_digest(self.groups, documents),
                groups=self.groups,
                parts=(part,),
                files={},
                shards=entries,
                producer={"format": self.described.kind},
            )
        except ValueError as error:
            raise StoreCorrupt(
                f"{self.described.root}: {error}. Restore it from a copy."
            ) from error


def look_at(inside: Inside) -> ForeignReader:
    """A reader for a look, which keeps nothing."""
    cache = BlockCache(LOOK_CACHE)
    return ForeignReader(inside, path=inside.described.root, cache=cache, rules=FetchRules())


def lines_of(
    described: Described,
    cache: BlockCache,
    key: str,
    companion: Companion | None = None,
) -> dict[str, PieceLine]:
    """The lines of all columns of a foreign store, ids first; checked if a companion is sealed."""
    sealed = companion if companion is not None and companion.is_sealed else None
    every: dict[str, tuple[tuple[Piece, ...], str, int | None]] = {
        "input_ids": (described.tokens, described.dtype, described.limit)
    }
    every |= {name: (one.pieces, one.dtype, None) for name, one in described.columns.items()}
    return {
        name: PieceLine(
            pieces,
            dtype,
            below,
            source=described.folder.source,
            cache=cache,
            key=(key, name),
            root=described.root,
            sums=None if sealed is None else functools.partial(_sums_of, sealed, name),
            column=None if name == "input_ids" else name,
        )
        for name, (pieces, dtype, below) in every.items()
    }


def _sums_of(companion: Companion, column: str, piece: int) -> Array:
    return companion.whole(-1, sums_name(column, piece))


def sums_name(column: str, piece: int) -> str:
    """What the checksums of the chunks of a piece are called in a companion."""
    return f"{column}:{piece}"


def pages_name(file: str) -> str:
    """What the checksums of the pages of a file are called in a companion."""
    return f"pages:{file}"


class ForeignReader(Reader):
    """Reads the files of others.

    Args:
        inside: what it is made of.
        path: the store as the user named it, for messages.
        cache: keeps decoded blocks.
        rules: what is verified, and how reads are merged.
        identity: what names its blocks in the cache.
        reopen: a function and its arguments that make a copy in another process.
    """

    indexes_ids = False  # they are looked for, document by document
    stamps: Sequence[list[Any]] = ()  # name, size and time of its files when it was opened
    notes: Sequence[str] = ()  # what is worth telling about them, a sentence each

    def __init__(
        self,
        inside: Inside,
        *,
        path: str,
        cache: BlockCache,
        rules: FetchRules,
        identity: str = "",
        reopen: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(
            inside.manifest(),
            inside.described.folder.source,
            path=path,
            cache=cache,
            identity=identity,
            rules=rules,
            root=inside.described.root,
        )
        self.inside, self.folder, self._reopen = inside, inside.described.root, reopen
        self._lines = lines_of(inside.described, cache, identity, inside.companion)
        for name, line in self._lines.items():
            line.locate = self._locate
            line.count = functools.partial(self._count_read, name)
        adopt(self, _ForeignPayloads(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen

    def in_chunks(self, start: Int64, stop: Int64, column: str) -> InFiles | None:
        """Where ranges of the store are in decoded chunks; None if some are read in place."""
        found = self._lines[column].chunks(start, stop)
        if found is not None:
            self.count(column, start, stop, Took())  # chunks were counted when they were read
        return found

    def shard(self, number: int) -> OpenShard:
        """Virtual shard `number`."""
        known = self._shards[number]
        if known is None:
            known = self._shards[number] = self._opened(number)
        return known

    @property
    def opened_as(self) -> dict[str, Any]:
        """See `Reader`; a sample is told apart, so that it is never taken for a full identity."""
        told: dict[str, Any] = {"foreign": dict(self.inside.described.settings)}
        return told | ({"identity": "sample"} if self.inside.identity == "sample" else {})

    def metadata(self, document: int) -> dict[str, Any]:
        """What the files know about a document."""
        known = self.inside.described.metadata
        return {} if known is None else known(document)

    def shard_values(self, number: int, key: str) -> Iterator[list[Any]]:
        """See `Reader`; the files are asked for one document after the other."""
        known, edges = self.inside.described.metadata, self.first_document.tolist()
        for first in range(edges[number], edges[number + 1], GROUP):
            some = range(first, min(first + GROUP, edges[number + 1]))
            yield [None if known is None else known(one).get(key) for one in some]

    def texts(self, key: str) -> Iterator[tuple[int, Texts | None]]:
        """See `Reader`."""
        for values in self.values(key):
            yield len(values), Texts.of(values)

    def _documents_of(self, number: int) -> DocumentsReader | None:
        return None

    def _from_blocks(self, number: int, column: str, low: int, high: int) -> list[Array]:
        """Elements [low, high) of a column of a shard: decoded chunks are shared by shards."""
        first = self.inside.shards[number].first_token
        return list(self._lines[column].views(first + low, first + high))

    def _opened(self, number: int) -> OpenShard:
        shard, companion = self.inside.shards[number], self.inside.companion
        beside = column_lengths(shard, sorted(self.manifest.columns), hashed=True)
        columns = {
            name: _decoded(length, dtype, functools.partial(companion.read, number, name))
            for name, (dtype, length) in beside.items()
        }
        for name, line in self._lines.items():
            columns[name] = self._of_tokens(number, line)
        if self.inside.is_sealed and columns["input_ids"].codec == "none":
            pages = pages_name(columns["input_ids"].file)
            read = functools.partial(companion.read, -1, pages)
            columns["page_crc32c"] = _decoded(companion.lengths[-1, pages], "uint32", read)
        record = _record(number, shard, columns)
        return OpenShard(self.manifest.shards[number].name, record, columns)

    def _of_tokens(self, number: int, line: PieceLine) -> OpenColumn:
        """A per-token column: in its file if it is the ids of a shard in place."""
        shard, inside = self.inside.shards[number], self.inside
        first = shard.first_token
        piece = line.pieces[shard.piece] if shard.piece >= 0 else None
        if not isinstance(piece, RawPiece) or line is not self._lines["input_ids"]:
            return _decoded(shard.tokens, line.dtype.str, functools.partial(_read, line, first))
        item, sums = line.dtype.itemsize, None
        if inside.is_sealed:
            sums = inside.companion.whole(number, "crc32c").astype(np.uint32)
        trusts = sums is None or self.rules.verify == "never"
        return OpenColumn(
            piece.file,
            line.dtype,
            shard.tokens,
            fmt.INNER,
            "none",
            item,
            bytearray((b"\1" if trusts else b"\0") * -(-shard.tokens // fmt.INNER)),
            crcs=sums,
            page_first=-1 if sums is None else 0,
            first_byte=piece.first_byte + (first - line.edges[shard.piece]) * item,
            extent=inside.extent(piece.file),
        )

    def _locate(self, address: int) -> str:
        document = int(self.offsets.documents_at(np.array([address]))[0])
        first = int(self.bounds(np.array([document]))[0][0])
        return f" (token {address - first:,} of document {document:,})"


class _ForeignPayloads(Payloads):
    """Also finds what has to be decoded, chunk by chunk and not range by range."""

    def find(self, start: Int64, stop: Int64, column: str) -> InFiles | None:
        """See `Payloads`."""
        found, reader = super().find(start, stop, column), self._reader()
        if found is None and isinstance(reader, ForeignReader):
            found = reader.in_chunks(start, stop, column)
        return found


def _read(line: PieceLine, first: int, low: int, high: int) -> Array:
    return line.read(first + low, first + high)


def _decoded(length: int, dtype: str, decode: Any) -> OpenColumn:
    kind = np.dtype(dtype).newbyteorder("<")
    checked = bytearray(b"\1" * -(-length // fmt.INNER))
    return OpenColumn("", kind, length, fmt.INNER, "decoded", kind.itemsize, checked, decode=decode)


def _record(number: int, shard: VirtualShard, columns: dict[str, OpenColumn]) -> fmt.ShardRecord:
    """The commit record that the shard would have."""
    told = {
        name: fmt.Column(dtype=column.dtype.name, length=column.length, codec="none")
        for name, column in columns.items()
    }
    empty = fmt.Column(dtype="uint32", length=0, codec="none")
    told |= dict.fromkeys(("crc32c", "page_crc32c"), empty)
    files = {f"{name}/{part}": NO_FILE for name in told for part in ("zarr.json", "c/0")}
    return fmt.ShardRecord(
        number=number,
        documents=shard.documents,
        tokens=shard.tokens,
        inner=fmt.INNER,
        fingerprint="0" * 64,
        engine="none",
        columns=told,
        files=files,
        progress={},
    )
