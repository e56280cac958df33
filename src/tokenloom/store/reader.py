"""Tokens by address: any ranges of any per-token column of a store.

The store is one line of tokens, shard after shard, and a request is any list of ranges
on that line. This module turns them into ranges inside shards, leaves the reading to
`tokenloom.store.fetch`, keeps decoded blocks, and adds up the counts.

Cost: opening is one file per manifest and one `stat` per file of the store (none in a bucket);
document offsets are read chunk by chunk when asked for. `python -m benchmarks read` prints the cost
of a range.

A copy of a reader, in this process or another, opens the same snapshot again by its absolute path
or its URL; where there is another snapshot by then, it is refused.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Place, Url, local_path, place
from tokenloom.arrays import Int64
from tokenloom.errors import StoreCorrupt, StoreError
from tokenloom.store import coalesce, snapshots
from tokenloom.store import format as fmt
from tokenloom.store.ahead import Underway
from tokenloom.store.byte_source import (
    ByteSource,
    LocalSource,
    Traffic,
    came_short,
    parallel_reads,
)
from tokenloom.store.cache import BlockCache, process_cache
from tokenloom.store.fetch import (
    FetchRules,
    ReadCounters,
    Took,
    distinct,
    fetch,
    fetch_stretch,
    joined,
)
from tokenloom.store.files import LOCAL, Files
from tokenloom.store.handles import lazy, lock_of
from tokenloom.store.metadata import DocumentsReader, Texts
from tokenloom.store.offsets import Offsets
from tokenloom.store.shard import OpenColumn, OpenShard, are_plain, open_shard, read_checked

Array = NDArray[Any]


class Reader:
    """The plain record below `tokenloom.Store`: a manifest, a byte source, a cache.

    Args:
        manifest: the snapshot to read.
        source: where its bytes are.
        path: the store as the user named it, for messages.
        cache: keeps decoded blocks.
        identity: sha256 of the manifest, the cache key of this store.
        rules: what is verified, and how reads are merged.
        root: its absolute path or URL, by which a copy opens it; default: from `path`, now.
    """

    indexes_ids = True  # a shard without an index has no id

    def __init__(
        self,
        manifest: fmt.Manifest,
        source: ByteSource,
        *,
        path: str,
        cache: BlockCache,
        identity: str,
        rules: FetchRules,
        root: str | None = None,
    ) -> None:
        self.manifest, self.source, self.cache = manifest, source, cache
        self.path = self.folder = path  # of what it is, and of what is in it, for messages
        self.root, self.identity = root or os.path.abspath(path), identity
        if rules.verify == "first" and (hasattr(source, "traffic") or parallel_reads(source) > 1):
            # a network may give other bytes the second time; and of several threads that read one
            # chunk, the first to check it must not decide what the others read
            rules = replace(rules, verify="always")
        self.rules, self._trusting = rules, rules.verify != "always"
        self._per_token = frozenset({"input_ids", *manifest.columns})
        self.offsets = Offsets(manifest, self._read_offsets, cache, identity, path)
        self.first_token, self.first_document = (
            self.offsets.first_token,
            self.offsets.first_document,
        )
        self._token_edges: list[int] = self.first_token.tolist()
        self._shards: list[OpenShard | None] = [None] * len(manifest.shards)
        self._documents: dict[int, DocumentsReader] = {}
        self._input_names: dict[int, list[str]] = {}  # by part
        self._lock = lock_of(self)
        self._counters = {True: ReadCounters(), False: ReadCounters()}  # is it index?
        self._traffic: Traffic = getattr(source, "traffic", dict)

    def __reduce__(self) -> tuple[Any, ...]:
        source = None if isinstance(self.source, LocalSource) else self.source
        number = self.manifest.number
        return _reopened, (
            self.root,
            self.path,
            number,
            self.identity,
            self.rules,
            self.cache,
            source,
        )

    def _forked(self, torn: bool) -> None:
        """Only counts take several steps; those that another thread was adding to start over."""
        if torn:
            self._counters = {True: ReadCounters(), False: ReadCounters()}

    def shard(self, number: int) -> OpenShard:
        """Shard `number`, opened and checked on first use."""
        shard = self._shards[number]
        if shard is None:
            trust = self.rules.verify == "never"
            shard = open_shard(self.source, self.path, self.manifest, number, trust=trust)
            with self._lock:
                shard = self._shards[number] = self._shards[number] or shard
        return shard

    @property
    def snapshot(self) -> snapshots.Snapshot:
        """What it reads."""
        return snapshots.Snapshot(self.manifest, self.identity)

    @property
    def opened_as(self) -> dict[str, Any]:
        """What opens it again, beside path and snapshot, as JSON; nothing for a store of ours."""
        return {}

    def counters(self, *, index: bool = False) -> ReadCounters:
        """Counts over the per-token columns, or over all others (`index`), offsets first of all."""
        with self._lock:
            found = replace(self._counters[index])
        for column, took in self._traffic().items():
            if (column not in self._per_token) == index:
                found.add_traffic(*took)
        return found

    @property
    def place(self) -> Place:
        """Where it is, as the user named it."""
        return place("path", self.path)

    # -- documents -------------------------------------------------------------------------

    def bounds(self, documents: Int64) -> tuple[Int64, Int64]:
        """First token of each document and the token after it, as addresses [N]."""
        return self.offsets.bounds(documents)

    def lengths(self) -> Int64:
        """Tokens of every document, in order [documents]. Reads offsets only, no token."""
        for number in range(len(self.manifest.shards)):
            self.shard(number)  # all counts are backed by files before memory is taken for them
        return self.offsets.lengths()

    def length_pieces(self) -> Iterator[Array]:
        """The same, a few documents at a time; unsigned integers."""
        return self.offsets.length_pieces()

    def metadata(self, document: int) -> dict[str, Any]:
        """The metadata of one document; empty if the store keeps none."""
        number = int(np.searchsorted(self.first_document, document, side="right")) - 1
        documents = self._documents_of(number)
        return documents.row(document - int(self.first_document[number])) if documents else {}

    def named_metadata(self, document: int) -> dict[str, Any]:
        """The same, with the name of its input under `_input` instead of its number."""
        row = self.metadata(document)
        if "_input" in row:
            row["_input"] = self.input_name(document, row["_input"])
        return row

    def input_name(self, document: int, number: Any) -> str:
        """The name of input `number` of the build or append that added a document.

        Raises:
            StoreCorrupt: that build had no such input.
        """
        part = bisect.bisect_right(self._part_ends, document)
        names = self._input_names.get(part)
        if names is None:  # two threads may read it: the same names twice
            snapshot = self.manifest.parts[part].manifest
            inputs = snapshots.read_inputs(self.source, self.place, self.manifest, snapshot)
            names = self._input_names[part] = [one.name for one in inputs]
        if not isinstance(number, int) or not 0 <= number < len(names):
            raise StoreCorrupt(
                f"{self.path}: document {document} comes from input {number!r}, but its build had "
                f"{len(names)} inputs. The metadata is not what a build writes. Restore the store "
                "from a copy."
            )
        return names[number]

    @lazy
    def _part_ends(self) -> list[int]:
        """The documents of the store after each build or append."""
        return list(itertools.accumulate(part.documents for part in self.manifest.parts))

    def values(self, key: str) -> Iterator[list[Any]]:
        """What all documents have under a key of their metadata, in groups; None for nothing."""
        for number in range(len(self.manifest.shards)):
            yield from self.shard_values(number, key)

    def shard_values(self, number: int, key: str) -> Iterator[list[Any]]:
        """The same for the documents of one shard."""
        documents = self._documents_of(number)
        if documents:
            yield from documents.values(key)
        else:
            yield [None] * self.manifest.shards[number].documents

    def texts(self, key: str) -> Iterator[tuple[int, Texts | None]]:
        """The same as texts, in groups: their number, and None if no document has the key."""
        for number, shard in enumerate(self.manifest.shards):
            documents = self._documents_of(number)
            if documents:
                yield from documents.texts(key)
            else:
                yield shard.documents, None

    def _documents_of(self, number: int) -> DocumentsReader | None:
        """The metadata of a shard, if it keeps any."""
        known = self._documents.get(number)
        if known is None:
            shard = self.shard(number)
            names = [name for name in shard.record.files if name.startswith("docs.")]
            if not names:
                return None
            where = f"{self.path}/{shard.name}/{names[0]}"
            raw = read_checked(self.source, self.path, shard, names[0])
            known = DocumentsReader(names[0], raw, shard.record.documents, where)
            self._documents[number] = known
        return known

    # -- tokens ----------------------------------------------------------------------------

    def read(
        self,
        start: Int64,
        stop: Int64,
        column: str = "input_ids",
        cap: int | None = None,
        *,
        again: bool = False,
    ) -> list[Array]:
        """Views of the stored elements of all ranges, in the order asked.

        Args:
            start: first token of each range, as an address in the store [N].
            stop: token after each range [N]; ranges may overlap, repeat, be empty, and cross
                shards. A range may come as several views; an empty one gives none.
            column: which per-token column.
            cap: reads are cut after this many bytes, a multiple of 8, or after the largest range
                with the chunks that must be checked below it; the store's own if not given.
            again: count its reads as retries.
        """
        shard, low, high = self.inside_shards(start, stop)
        if len(shard) == 0:
            return []
        columns, file = self._columns_of(shard, column)
        if are_plain(columns):
            views, took = fetch(
                self.source, columns, file, low, high, rules=self.rules, root=self.folder, cut=cap
            )
        else:
            pieces = zip(shard.tolist(), low.tolist(), high.tolist(), strict=True)
            views = [part for n, a, b in pieces for part in self._from_blocks(n, column, a, b)]
            took = Took()  # the blocks were counted when they were read
        if again:
            self._count(column, 0, 0, took.again())
        else:
            self.count(column, start, stop, took)
        return views

    def _columns_of(self, shard: Int64, column: str) -> tuple[list[OpenColumn], Int64]:
        """The column in the shards of some ranges, and the place of each range's among them."""
        used, file = shard[:1], np.zeros(len(shard), np.int64)
        if (shard != shard[0]).any():
            used, file = np.unique(shard, return_inverse=True)
        return [self.shard(number).columns[column] for number in used.tolist()], file

    def load(
        self,
        start: Int64,
        stop: Int64,
        sizes: Int64,
        column: str,
        cap: int | None = None,
        *,
        again: bool = False,
    ) -> list[Array]:
        """Ranges read in one request and joined into arrays, each with memory of its own.

        Args:
            start: see `read`, as the others.
            stop: see `read`.
            sizes: elements of each array: the ranges, in order, make them up [arrays].
            column: which per-token column.
            cap: see `read`.
            again: see `read`.
        """
        found = self.read(start, stop, column, cap, again=again)
        views, dtype = iter(found), self.dtype(column)
        return [joined(views, size, dtype) for size in sizes.tolist()]

    def promise(
        self, start: Int64, stop: Int64, sizes: Int64, column: str, cap: int | None = None
    ) -> list[Callable[[], Array]]:
        """What `load` gives, array by array and later: what to call for each, once, in any thread.

        Which reads there are is decided now; a read is made, and counted, when the first array that
        needs it is asked for.
        """
        shard, low, high = self.inside_shards(start, stop)
        columns, file = self._columns_of(shard, column)
        if not are_plain(columns):
            edges = np.concatenate([[0], np.cumsum(sizes)])
            begin = np.searchsorted(np.cumsum(stop - start) - (stop - start), edges).tolist()
            return [
                functools.partial(self._loaded, start[a:b], stop[a:b], size, column, cap)
                for (a, b), size in zip(itertools.pairwise(begin), sizes.tolist(), strict=True)
            ]
        request = Underway(
            self.source,
            columns,
            file,
            low,
            high,
            sizes,
            rules=self.rules,
            root=self.folder,
            cut=cap,
            count=functools.partial(self._count_read, column),
        )
        ranges, _, _, useful, _ = request.plan.took
        self.count(column, start, stop, Took(ranges, useful_bytes=useful))
        return [functools.partial(request.array, number) for number in range(len(sizes))]

    def _loaded(self, start: Int64, stop: Int64, size: int, column: str, cap: int | None) -> Array:
        return self.load(start, stop, np.array([size]), column, cap)[0]

    def _count_read(self, column: str, size: int) -> None:
        self._count(column, 0, 0, Took(read_ops=1, bytes=size))

    def announce(self, start: Int64, stop: Int64, column: str = "input_ids") -> None:
        """Tell the system which ranges are read soon, if it can be told."""
        if not isinstance(self.source, LocalSource) or not len(start):
            return
        shard, low, high = self.inside_shards(start, stop)
        ranges = []
        for number, first, last in zip(shard.tolist(), low.tolist(), high.tolist(), strict=True):
            opened = self.shard(number).columns[column]
            if opened.codec == "none":
                place = opened.first_byte + first * opened.item
                ranges.append((opened.file, place, (last - first) * opened.item))
        self.source.announce(ranges)

    def read_one(self, start: int, stop: int, column: str = "input_ids") -> Array:
        """Stored elements [start, stop) of one range: the short way, without planning."""
        edges = self._token_edges
        number = bisect.bisect_right(edges, start) - 1
        if stop <= start or stop > edges[number + 1]:
            parts = self.read(np.array([start]), np.array([stop]), column)
            return np.concatenate([np.empty(0, self.dtype(column)), *parts])
        base = edges[number]
        return self.elements(number, column, start - base, stop - base, 1)

    def block(self, number: int, block: int, column: str = "input_ids") -> Array:
        """Io block `block` of shard `number`, kept in the cache; read-only, in its stored dtype.

        Every block has `chunk_tokens` tokens, the last of a shard fewer.
        """
        size = self.manifest.chunk_tokens
        tokens = self.manifest.shards[number].tokens

        def load() -> Array:
            return self.elements(number, column, block * size, min((block + 1) * size, tokens))

        return self.cache.get((self.identity, number, column, "block", block), load)

    def elements(self, number: int, name: str, low: int, high: int, examples: int = 0) -> Array:
        """Elements [low, high) of one column of one shard, counted as that many examples."""
        column = (self._shards[number] or self.shard(number)).columns[name]
        if high <= low:
            return np.empty(0, column.dtype)
        item, inner = column.item, column.inner
        size = (high - low) * item
        if (
            (not self._trusting and column.crcs is not None)
            or size > self.rules.cap
            or column.codec != "none"
            or column.checked.find(0, low // inner, (high - 1) // inner + 1) >= 0
        ):
            values, took = fetch_stretch(
                self.source, column, low, high, rules=self.rules, root=self.folder
            )
            self._count(name, examples, examples, took)
            return values
        asked = (column.file, column.first_byte + low * item, size)
        raw = self.source.read((asked,))[0]
        if len(raw) != size:
            raise came_short(asked, len(raw), self.folder)
        counters = self._counters[name not in self._per_token]
        with self._lock:  # written out: the call of `add` costs more than its additions
            counters.examples += examples
            counters.unique_examples += examples
            counters.ranges += 1
            counters.read_ops += 1
            counters.bytes += size
            counters.useful_bytes += size
        return raw.view(column.dtype)

    def dtype(self, column: str) -> np.dtype[Any]:
        """The stored dtype of a column."""
        fixed = {"input_ids": self.manifest.dtype, **fmt.FIXED_DTYPES}
        name = fixed.get(column) or self.manifest.columns[column]
        return np.dtype(name).newbyteorder("<")

    def inside_shards(self, start: Int64, stop: Int64) -> tuple[Int64, Int64, Int64]:
        """See `tokenloom.store.offsets.Offsets`."""
        return self.offsets.inside_shards(start, stop)

    def _from_blocks(self, number: int, column: str, low: int, high: int) -> list[Array]:
        """Elements [low, high) of a column that must be decoded, as views of cached blocks."""
        size = self.manifest.chunk_tokens
        return [
            self.block(number, b, column)[max(low - b * size, 0) : high - b * size]
            for b in range(low // size, (high - 1) // size + 1)
        ]

    def _read_offsets(self, number: int, low: int, high: int) -> Array:
        return self.elements(number, "offsets", low, high)

    def count(self, column: str, start: Int64, stop: Int64, took: Took) -> None:
        """Count a request for these ranges."""
        self._count(column, len(start), distinct(start, stop), took)

    def _count(self, column: str, examples: int, unique: int, took: Took) -> None:
        with self._lock:
            self._counters[column not in self._per_token].add(examples, unique, took)


def open_reader(
    path: str | Place,
    *,
    snapshot: int | None = None,
    verify: str = "first",
    cache_bytes: int | None = None,
    gap_bytes: int = 0,
    cap_bytes: int = coalesce.CAP_BYTES,
    map: bool = True,
    source: ByteSource | None = None,
) -> Reader:
    """What reads a snapshot of a store; `tokenloom.open` documents the arguments."""
    root: Place = local_path("path", path) if source is None else place("path", path)
    files: Files = getattr(source, "listing", LOCAL)
    if snapshot is None:
        found = snapshots.current(root, files)
        snapshots.tell_of_more(root, found.manifest, files)
    else:
        found = snapshots.load(root, snapshot, files)
    source = source or LocalSource(str(root))
    snapshots.match_sizes(source, root, found)
    return Reader(
        found.manifest,
        source,
        path=str(path),  # as it was written
        root=str(root) if isinstance(root, Url) else None,
        cache=process_cache() if cache_bytes is None else BlockCache(cache_bytes),
        identity=found.sha256,
        rules=FetchRules(verify=verify, gap=gap_bytes, cap=cap_bytes, map=map),
    )


def _reopened(
    root: str,
    path: str,
    number: int,
    identity: str,
    rules: FetchRules,
    cache: BlockCache,
    source: ByteSource | None,
) -> Reader:
    """A copy of a reader: the same snapshot, called by the same name, opened again."""
    where, files = place("root", root), getattr(source, "listing", LOCAL)
    found = snapshots.load(where, number, files)
    if found.sha256 != identity:
        raise StoreError(
            f"{root}: snapshot {number} has the sha256 {found.sha256}, the store that was copied "
            f"had {identity}. It was built again; open it and make the copy from there."
        )
    source = source or LocalSource(root)
    snapshots.match_sizes(source, where, found)
    return Reader(
        found.manifest, source, path=path, root=root, cache=cache, identity=identity, rules=rules
    )
