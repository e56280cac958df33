"""`Store`: a thin façade over the records of `tokenloom.store`.

A store is opened at one snapshot and never changes while it is open: appends publish a new
snapshot, which the next `open` sees.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api.documents import Documents
from tokenloom.arguments import Place, field_names, near_misses, part_of, place
from tokenloom.batch.views.annexes import annex
from tokenloom.documents.spec import SplitSpec
from tokenloom.errors import ConfigError, StoreCorrupt
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.opened import open_any
from tokenloom.foreign.places import Said
from tokenloom.foreign.seals import foreign_bytes, verify_foreign
from tokenloom.page.document import View, table
from tokenloom.progress import Progress
from tokenloom.store import coalesce, snapshots
from tokenloom.store import verify as verification
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.files import LOCAL
from tokenloom.store.handles import lazy
from tokenloom.store.hashes import BUDGET_BYTES, equal_documents, find_hash, hex_of, stored_hashes
from tokenloom.store.id_index import find_id
from tokenloom.store.reader import Reader
from tokenloom.tokenizer.stored import StoredTokenizer
from tokenloom.trace.forward import decoder_of


class Store(Documents):
    """Tokens, document boundaries, per-token columns and per-document metadata, read-only.

    Made by `tokenloom.open` and `tokenloom.build`. Safe to share between threads, and with the
    child of a fork. A copy or a pickle of it opens the same snapshot by its absolute path or its
    URL; if there is another one by then, it is refused.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     store.num_documents, store.document(1).tolist(), store.tokens(2, 5).tolist()
    (2, [100, 101, 102, 103, 104], [99, 100, 101])
    """

    def __init__(self, reader: Reader, root: str | Place) -> None:
        super().__init__(reader, str(root), None)  # as written: a Path turns "./a" into "a"
        self.reader = reader
        self.path = place("path", root)

    # -- what it is ------------------------------------------------------------------------

    @property
    def num_documents(self) -> int:
        """Documents in the store."""
        return self.reader.manifest.documents

    @property
    def num_tokens(self) -> int:
        """Tokens in the store."""
        return self.reader.manifest.tokens

    @property
    def vocab_size(self) -> int:
        """Every id is below this."""
        return self.reader.manifest.vocab_size

    @property
    def dtype(self) -> np.dtype[Any]:
        """How ids are stored (they are delivered as int32)."""
        return np.dtype(self.reader.manifest.dtype)

    @property
    def chunk_tokens(self) -> int:
        """Tokens per io block, the unit in which a shuffled reader fetches."""
        return self.reader.manifest.chunk_tokens

    @property
    def columns(self) -> dict[str, str]:
        """Additional per-token columns, name → dtype."""
        return dict(self.reader.manifest.columns)

    @property
    def digest(self) -> str:
        """Identity of the content (tokens, boundaries, columns): 64 hex digits.

        The same for every stored dtype, division into shards and number of workers.
        """
        return self.reader.manifest.digest

    @property
    def manifest_sha256(self) -> str:
        """Identity of this snapshot on disk, including metadata and files."""
        return self.reader.identity

    @property
    def snapshot(self) -> int:
        """The number of the manifest that this object reads."""
        return self.reader.manifest.number

    @lazy
    def tokenizer(self) -> StoredTokenizer | None:
        """The tokenizer that made the ids, or None for ready-made ids."""
        return decoder_of(self.reader)

    @property
    def tokenizer_identity(self) -> str:
        """Equal for stores whose ids mean the same: derived from the vocabulary and special ids.

        If no vocabulary is known (ready-made ids, a function), it is the vocabulary size.
        """
        record = self.reader.manifest.tokenizer
        return (record.identity if record else "") or f"vocab_size={self.vocab_size}"

    # -- what is in it ---------------------------------------------------------------------

    @lazy
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each document [num_documents]; reads offsets only, no token."""
        lengths = self.reader.lengths()
        lengths.flags.writeable = False
        return lengths

    def __len__(self) -> int:
        return self.num_documents

    def __getitem__(self, index: SupportsIndex) -> NDArray[Any]:
        return self.document(index)

    def document(self, index: SupportsIndex, column: str | None = None) -> NDArray[Any]:
        """The tokens of one document as int32 [length], or the values of another column."""
        return self.documents([_index(index)], column)[0]

    def documents(self, indices: ArrayLike, column: str | None = None) -> list[NDArray[Any]]:
        """The tokens of several documents, in one coalesced read, in the requested order."""
        wanted = _indices(indices, self.num_documents, "document")
        start, stop = self.reader.bounds(wanted)
        flat = self._values(start, stop, column)
        ends = np.cumsum(stop - start)
        return np.split(flat, ends[:-1].tolist()) if len(ends) else []

    def tokens(self, start: int, stop: int, column: str | None = None) -> NDArray[Any]:
        """Tokens [start, stop) of the whole store as int32, with documents end to end."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(
                f"{self.path}: tokens {start:,} to {stop:,} of a store of {self.num_tokens:,}; "
                "allowed: 0 <= start <= stop <= num_tokens."
            )
        if column is None:
            return self.reader.read_one(start, stop).astype(np.int32)
        return self.reader.read_one(start, stop, self._column(column))

    def metadata(self, index: SupportsIndex) -> dict[str, Any]:
        """What was kept about one document: its record's other keys, its id, where it came from.

        `_input` is the input's name and `_record` the number of the record in it, from 0.
        """
        (place,) = _indices([_index(index)], self.num_documents, "document").tolist()
        return self.reader.named_metadata(place)

    def find(self, id: str | int | None = None, *, hash: str | None = None) -> NDArray[np.int64]:
        """The numbers of all documents with this id, or with this hash of their tokens, ascending.

        Empty if there are none, also if no record had an id. An id takes one or two reads of 4 KiB
        per shard; a hash takes 16 bytes per document.

        Args:
            id: the id as kept in the metadata: 7 and "7" are different ids.
            hash: 8 to 32 hex digits, the start of the hash; `document_hashes` gives whole ones.

        >>> import tempfile, tokenloom as tl
        >>> rows = [{"text": "ab", "id": "x"}, {"text": "c", "id": 7}, {"text": "ab", "id": "x"}]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build(rows, folder + "/toy", tokenizer="bytes", id_key="id")
        ...     store.find("x").tolist(), store.find(7).tolist(), store.find("7").tolist()
        ([0, 2], [1], [])
        """
        if (id is None) == (hash is None):
            raise ConfigError("find: found both or neither of id and hash, allowed: one of them.")
        return find_id(self.reader, id) if hash is None else find_hash(self.reader, hash)

    def document_hashes(self, indices: ArrayLike) -> list[str]:
        """The hash of the tokens of some documents, 32 hex digits each; no token is read."""
        wanted = _indices(indices, self.num_documents, "document")
        found = [stored_hashes(self.reader, i, i + 1)[0] for i in wanted.tolist()]
        return hex_of(np.concatenate(found)) if found else []

    def duplicates(self, *, budget_bytes: int = BUDGET_BYTES) -> list[NDArray[np.int64]]:
        """Groups of documents with the same tokens, each ascending, in order of their first.

        Reads 16 bytes per document and no token; all empty documents are equal.

        Args:
            budget_bytes: memory for sorting. With less than 64 bytes per document, the hashes are
                read several times, one range of them each time.

        >>> import tempfile, tokenloom as tl
        >>> rows = [{"text": "ab"}, {"text": "c"}, {"text": "ab"}]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tl.build(rows, folder + "/toy", tokenizer="bytes").duplicates()
        [array([0, 2])]
        """
        return equal_documents(self.reader, budget_bytes)

    @lazy
    def inputs(self) -> list[tuple[snapshots.InputRecord, ...]]:
        """What was read to make the store: for every build or append, its inputs."""
        return snapshots.inputs_of(self.reader.source, self.path, self.reader.manifest)

    # -- what to make of it ----------------------------------------------------------------

    @near_misses("split")
    def split(
        self, shares: Mapping[str, float], *, by: str = "id", seed: int = 0
    ) -> dict[str, Documents]:
        """Documents divided by a hash of their id or content: disjoint, complete, stable.

        Args:
            shares: name of each part → its share; the shares add up to 1.
            by: "id" (the document's number if it has no id) or "content".
            seed: another seed gives another split.
        """
        parts = SplitSpec.all_of(shares, by, seed)
        return {name: Documents(self.reader, self._path, spec) for name, spec in parts.items()}

    # -- health ----------------------------------------------------------------------------

    @property
    def reads(self) -> ReadCounters:
        """Requests to the per-token columns, and the reads they took, since opening."""
        return self.reader.counters()

    @property
    def index_reads(self) -> ReadCounters:
        """Requests to the document offsets, and the reads they took, since opening."""
        return self.reader.counters(index=True)

    def verify(self, *, progress: bool | None = None) -> verification.VerifyReport:
        """Read every byte again and compare it with what was published.

        Raises:
            StoreCorrupt: naming every file and what is wrong with it.
        """
        report = self.check(progress=progress)
        if not report.ok:
            raise StoreCorrupt("\n".join(report.problems))
        return report

    def check(
        self, *, part: str | None = None, progress: bool | None = None
    ) -> verification.VerifyReport:
        """As `verify`, but problems are in the report instead of an exception.

        Args:
            part: which part of how many, as "3/64", so that several processes or machines verify a
                store together: a part of its shards, and with the first one what concerns the
                store as a whole. The report on everything (None) is the sum of these reports.
            progress: show a progress bar; default: if standard error is a terminal.
        """
        total = sum(sum(shard.files.values()) for shard in self.reader.manifest.shards)
        reader, which = self.reader, (1, 1) if part is None else part_of(part)
        if isinstance(reader, ForeignReader):
            total = foreign_bytes(reader)
        with Progress("verify", total=total, unit="B", show=progress) as bar:
            if isinstance(reader, ForeignReader):
                if part is not None:
                    raise ConfigError(
                        f"part: found {part!r} for {self.path}, which has files of another format. "
                        "They are verified as a whole: leave it out."
                    )
                return verify_foreign(reader, tick=bar.advance)
            source: ByteSource = getattr(reader.source, "uncached", reader.source)
            root = place("root", reader.root)
            files = getattr(source, "listing", LOCAL)
            return verification.verify(
                root, reader.snapshot, source, part=which, files=files, tick=bar.advance
            )

    def __repr__(self) -> str:
        return (
            f"Store({str(self.path)!r}: {self.num_documents:,} documents, {self.num_tokens:,} "
            f"tokens, {self.dtype.name}, digest {self.digest[:12]})"
        )

    def _repr_html_(self) -> str:
        """What it holds as a table, for notebooks."""
        rows = [
            ("documents", self.num_documents),
            ("tokens", self.num_tokens),
            ("dtype", self.dtype.name),
            ("vocabulary", self.vocab_size),
            ("columns", ", ".join(self.columns) or "none"),
            ("digest", self.digest),
        ]
        return table(f"Store {self.path}", rows)

    def view(self) -> View:
        """What its report says, for a notebook: contents, lengths, duplicates, rows."""
        return annex("report").view_store(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.reader, self.reader.path)

    # -- inside ----------------------------------------------------------------------------

    def _column(self, column: str | None) -> str:
        if column is None or column in self.columns:
            return column or "input_ids"
        have = ", ".join(self.columns) or "none"
        raise KeyError(f"{self.path}: no per-token column {column!r}. Allowed: {have}.")

    def _values(
        self, start: NDArray[np.int64], stop: NDArray[np.int64], column: str | None
    ) -> NDArray[Any]:
        name = self._column(column)
        views = self.reader.read(start, stop, name)
        dtype = np.dtype(np.int32) if column is None else self.reader.dtype(name)
        if not views:
            return np.empty(0, dtype)
        return np.concatenate(views, dtype=dtype, casting="unsafe")


def _index(index: SupportsIndex) -> int:
    """An index as an integer; bools are refused."""
    if isinstance(index, bool | np.bool_):
        raise TypeError(f"document: found {index}, allowed: an integer.")
    if isinstance(index, str):
        raise TypeError(
            f"document: found {index!r:.80}, allowed: its number. store.find({index!r:.80}) gives "
            "the numbers of the documents with that id."
        )
    return operator.index(index)


def _indices(indices: ArrayLike, size: int, what: str) -> NDArray[np.int64]:
    """Indices as int64, all inside [0, size); negative ones are refused."""
    array = np.asarray(indices)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} indices: found {array.dtype}, allowed: integers.")
    array = np.atleast_1d(array.astype(np.int64))
    outside = (array < 0) | (array >= size)
    if outside.any():
        raise IndexError(f"{what} {array[outside][0]} of {size}; allowed: 0 to {size - 1}.")
    return array


@near_misses("open")
def open_store(
    path: str | Place,
    *,
    snapshot: int | None = None,
    verify: str = "first",
    cache_bytes: int | None = None,
    gap_bytes: int = 0,
    cap_bytes: int = coalesce.CAP_BYTES,
    map: bool = True,
    source: ByteSource | None = None,
    disk_cache: str | Path | None = None,
    disk_cache_bytes: int | None = None,
    format: str | None = None,
    dtype: str | None = None,
    eos: int | None = None,
    bos: int | None = None,
    vocab_size: int | None = None,
    seal: str | None = None,
    missing: str | None = None,
    identity: str = "full",
) -> Store:
    """Open a store, or the files of another project as if they were one.

    Reads one file and calls `stat` on each file of the store; no token is read, whatever its size.
    In a bucket it reads one listing and one object; sizes are compared with every later answer.
    Foreign files are read once from end to end when they are first opened, to find documents and to
    hash them; the result is remembered. docs/stores.md lists the formats.

    Args:
        path: the store's directory, or its URL, such as ``s3://bucket/stores/wiki`` (extra
            `remote`; credentials and endpoints come from the usual environment). For foreign files
            also a file or the common start of names, on this machine or in a bucket.
        snapshot: number of the manifest to read; default: the newest.
        verify: "first" checks each chunk against its crc32c when this process first reads it, in a
            bucket each time it is fetched; "always" every time, "never" not at all.
        cache_bytes: memory for decoded blocks of this store alone; default: all stores of the
            process share 640 MiB.
        gap_bytes: merge reads up to this many bytes apart.
        cap_bytes: maximum length of a read.
        map: read rows beyond the cache from a map of the files; False uses `pread`, which gives the
            same bytes at half the speed (see `tokenloom.store.payload`).
        source: where the bytes come from, if not from the directory.
        disk_cache: folder of this machine for pieces of a store in a bucket, shared by all
            processes that name it; default: ``TOKENLOOM_DISK_CACHE``, or none. A store that is on
            this machine takes no notice of it; foreign files must be sealed for it.
        disk_cache_bytes: what it may take; default: ``TOKENLOOM_DISK_CACHE_BYTES``, or 64 GiB.
        format: the format of foreign files, if several fit; usually it is found.
        dtype: how foreign files store ids, where they do not say.
        eos: the token that ends every document, where foreign files have no index.
        bos: the token that starts every document, instead.
        vocab_size: all ids of foreign files are below this; default: what they say, or what their
            dtype can hold.
        seal: the file of the seal of foreign files, if it is not beside them.
        missing: "zeros" reads ids of a Levanter cache as 0 where their file is missing, which is
            otherwise refused: TensorStore stores no file of zeros, and an incomplete copy lacks
            some.
        identity: "full" hashes every document of foreign files (once), so that a run goes on over a
            converted copy; "sample" hashes a sample of the tokens, which nothing but another such
            sample agrees with. Sealed files have the full identity without a pass: a seal beside
            them decides, and "sample" together with `seal` is refused.

    Raises:
        ConfigError: foreign files leave something open that must be said.
        StoreNotFound: nothing is published there, or a build has not finished.
        StoreCorrupt: a file is missing or changed.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     built = tl.build([{"text": "hi"}], folder + "/toy", tokenizer="bytes")
    ...     tl.open(folder + "/toy").document(0)
    array([104, 105], dtype=int32)
    """
    given = locals()
    said = Said(**{name: given[name] for name in field_names(Said)})
    reader = open_any(
        path,
        snapshot=snapshot,
        said=said,
        identity=identity,
        verify=verify,
        cache_bytes=cache_bytes,
        gap_bytes=gap_bytes,
        cap_bytes=cap_bytes,
        map=map,
        source=source,
        disk_cache=disk_cache,
        disk_cache_bytes=disk_cache_bytes,
    )
    return Store(reader, path)
