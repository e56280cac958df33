"""Every byte of a snapshot, read again and compared with what was published.

First each file against its sha256, then the meaning of what the files hold: offsets
run forwards and end at the token count, ids are inside the vocabulary, and everything that is
derived from tokens and metadata (hashes, digest, counts, index, checksums of pages) is derived
again and compared. The second half finds stores that were *written* wrong, with right checksums
over wrong values.

Both come from one pass where they can: an uncompressed column is at the start of its file, so the
hash of the content, carried on over the rest, is the hash of the file.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Place
from tokenloom.errors import MissingExtra, StoreError
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store import snapshots, zarr
from tokenloom.store.ahead import in_turn
from tokenloom.store.byte_source import ByteSource, Range, read_exactly
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.files import LOCAL, Files
from tokenloom.store.hashes import DocumentHasher, group_digests
from tokenloom.store.id_index import build_index
from tokenloom.store.loss_counts import LossCounter
from tokenloom.store.metadata import id_text
from tokenloom.store.payload import page_sums
from tokenloom.store.reader import Reader
from tokenloom.store.shard import PAGE_BYTES, ChunkSums

SHARDS_AT_ONCE = 4  # in a bucket, where each has dozens of small requests

Tick = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked; `problems` is empty when all is well, else one line per problem.

    `unfinished` says what is there beyond the newest manifest. What was published before it is none
    the worse, so it is no problem of this snapshot; but the newer one is unfinished, or lost.
    `unguarded` says what nothing could be compared with, in foreign files.
    `unseen` says what could not be looked at, where there are no listings.
    """

    path: str
    shards: int
    files: int
    bytes: int
    documents: int
    tokens: int
    problems: tuple[str, ...]
    unfinished: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def verify(
    root: Place,
    snapshot: snapshots.Snapshot,
    source: ByteSource,
    *,
    part: tuple[int, int] = (1, 1),
    files: Files = LOCAL,
    tick: Tick = lambda _: None,
) -> VerifyReport:
    """Read everything and report every problem.

    Args:
        root: the store's directory.
        snapshot: what is verified.
        source: where its bytes come from.
        part: which part of how many, from 1, in shards; the first one also has what concerns the
            store as a whole.
        files: how directories are listed.
        tick: is told the bytes of each step.
    """
    ahead = limits().read_ahead_bytes
    manifest = snapshot.manifest
    number, parts = part
    whole, count = number == 1, len(manifest.shards)
    problems = list(_check_history(root, manifest, files)) if whole else []
    expected = dict(manifest.files) if whole else {}
    proven: set[str] = set()
    reader = Reader(
        manifest,
        source,
        path=str(root),
        cache=BlockCache(0),
        identity=snapshot.sha256,
        rules=FetchRules(verify="always"),
    )
    wanted = range(count * (number - 1) // parts, count * number // parts)
    check = functools.partial(_check_shard, root, reader, files=files, tick=tick)
    makes = ((ahead // SHARDS_AT_ONCE, functools.partial(check, number)) for number in wanted)
    for of_shard in in_turn(makes, source):
        problems += of_shard.problems
        expected |= of_shard.expected
        proven |= of_shard.proven
    problems += _check_digest(root, reader) if whole else []
    others = {name: file for name, file in expected.items() if name not in proven}
    problems += _check_files(root, source, others, tick)
    total = sum(file.bytes for file in expected.values())
    entries = [manifest.shards[number] for number in wanted]
    counts = (sum(one.documents for one in entries), sum(one.tokens for one in entries))
    found = tuple(dict.fromkeys(problems))
    later = tuple(_beyond(root, manifest, files)) if whole else ()
    unseen = getattr(files, "unseen", ())
    return VerifyReport(
        str(root), len(entries), len(expected), total, *counts, found, later, unseen=unseen
    )


class _Checked(NamedTuple):
    """What was found in a shard.

    Attributes:
        problems: a line each.
        expected: its files, by their names in the store.
        proven: those whose sha256 came out right while their meaning was checked.
    """

    problems: list[str]
    expected: dict[str, fmt.FileRecord]
    proven: set[str]


def _check_shard(root: Place, reader: Reader, number: int, files: Files, tick: Tick) -> _Checked:
    """Everything of a shard but the sha256 of files that are not proven by the way."""
    manifest, entry = reader.manifest, reader.manifest.shards[number]
    problems, proven = list[str](), set[str]()
    try:
        record = reader.shard(number).record
    except (StoreError, OSError) as error:
        return _Checked([str(error)], {}, proven)
    if record.snapshot not in (0, _snapshot_of(manifest, number)):
        problems.append(f"{root / entry.name}: it is a shard of snapshot {record.snapshot}.")
    problems += _check_strangers(root, entry, record, files)
    lengths: list[NDArray[np.int64]] = []  # empty if the offsets are of no use
    for column in ("offsets", *(name for name in record.columns if name != "offsets")):
        problems += _check_column(root, reader, number, column, lengths, proven, tick)
    if "id_index" not in record.columns:
        problems += _check_index(reader, number, root / entry.name / "id_index", None)
    named = {f"{entry.name}/{name}": file for name, file in record.files.items()}
    return _Checked(problems, named, proven)


def _snapshot_of(manifest: fmt.Manifest, shard: int) -> int:
    """The number of the snapshot that added a shard."""
    for part in manifest.parts:
        if shard < part.shards:
            return part.manifest
        shard -= part.shards
    return manifest.number


def _check_history(root: Place, manifest: fmt.Manifest, files: Files) -> Iterator[str]:
    """Only what we wrote is there, older snapshots are whole, the parent is the parent."""
    names = files.list(root)
    for name in names:
        if not name.startswith(".") and not snapshots.is_store_name(name):
            yield f"{root / name}: nobody published this file."
    for number in snapshots.numbers(names):
        if number >= manifest.number:
            continue
        try:
            older = snapshots.load(root, number, files)
        except StoreError as error:
            yield str(error)
            continue
        # a manifest without a parent overwrote what was there
        if number == manifest.number - 1 and manifest.parent not in (None, older.sha256):
            yield f"{root / fmt.manifest_name(number)}: it is not the parent of the next snapshot."


def _beyond(root: Place, manifest: fmt.Manifest, files: Files) -> list[str]:
    """What is there after the newest manifest, if this is it."""
    if snapshots.numbers(files.list(root))[-1:] != [manifest.number]:
        return []
    names, number = snapshots.beyond(root, manifest, files)
    return [snapshots.beyond_line(root / name, number) for name in names]


def _check_strangers(
    root: Place, entry: fmt.ShardEntry, record: fmt.ShardRecord, files: Files
) -> Iterator[str]:
    """Files that nobody published."""
    folders = {"": set[str]()}
    for name in (*record.files, "shard.json"):
        parts = name.split("/")
        for depth in range(len(parts)):
            folders.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    for folder, known in folders.items():
        for name in files.list(root / entry.name / folder):
            if name not in known:
                yield f"{root / entry.name / folder / name}: nobody published this file."


def _check_files(
    root: Place, source: ByteSource, expected: Mapping[str, fmt.FileRecord], tick: Tick
) -> Iterator[str]:
    """Every file has the size and the sha256 that were published."""
    step = limits().read_ahead_step_bytes
    sizes = {name: source.size(name) for name in sorted(expected)}
    asked = [
        (name, start, min(step, size - start))
        for name, size in sizes.items()
        if size is not None and size == expected[name].bytes
        for start in range(0, size, step)
    ]
    makes = ((one[2], functools.partial(_tried, root, source, one)) for one in asked)
    answers = zip(asked, in_turn(makes, source), strict=True)
    for name, size in sizes.items():
        if size != expected[name].bytes:
            is_there = "is missing" if size is None else f"has {size:,} bytes"
            published = f"published were {expected[name].bytes:,} bytes"
            yield f"{root / name}: the file {is_there}, {published}."
            continue
        sha256, wrong = hashlib.sha256(), ""
        for (_, _, some), data in itertools.islice(answers, -(-size // step)):
            if isinstance(data, str):
                wrong = wrong or data
                continue
            sha256.update(data.data)
            tick(some)
        if not wrong and sha256.hexdigest() != expected[name].sha256:
            wrong = f"{root / name}: its sha256 is not the one published."
        if wrong:
            yield wrong


def _tried(root: Place, source: ByteSource, asked: Range) -> NDArray[np.uint8] | str:
    """The bytes of a range, or what is wrong with it."""
    try:
        return read_exactly(source, [asked], str(root))[0]
    except OSError as error:
        return str(error) if isinstance(error, StoreError) else f"{root / asked[0]}: {error}"


def _check_column(
    root: Place,
    reader: Reader,
    number: int,
    name: str,
    lengths: list[NDArray[np.int64]],
    proven: set[str],
    tick: Tick,
) -> Iterator[str]:
    """Decode one column of a shard and check what its values say; offsets fill `lengths`."""
    shard = reader.shard(number)
    column, where = shard.record.columns[name], root / shard.name / name
    inner = fmt.inner_of(name, shard.record.inner)
    about = zarr.metadata(column.length, column.dtype, column.codec, inner)
    if hashlib.sha256(about).hexdigest() != shard.record.files[f"{name}/zarr.json"].sha256:
        yield f"{where / 'zarr.json'}: it does not describe this column."
    try:
        if column.codec != "zstd":  # the index of those is needed, and checked, to read them
            yield from _check_zarr_index(reader, number, name)
        if name == "crc32c":  # opening the shard has decoded it
            return
        sha256, pages = hashlib.sha256(), ChunkSums()
        watchers = _watchers(reader, number, name, where, lengths)
        for values in _values(reader, number, name, tick):
            if column.codec == "none":
                raw = values.view(np.uint8)
                sha256.update(raw.data)
                pages.append(raw)
            for watcher in watchers:
                yield from watcher.send(values)
        for watcher in watchers:
            yield from watcher.send(None)
        if column.codec == "none":
            yield from _check_rest(reader, number, name, where, sha256, pages, proven, tick)
    except (StoreError, OSError) as error:
        yield str(error)


def _values(reader: Reader, number: int, name: str, tick: Tick) -> Iterator[NDArray[Any]]:
    """A column from its first to its last element."""
    column, read = reader.shard(number).record.columns[name], reader.elements
    size, item = reader.manifest.chunk_tokens, np.dtype(column.dtype).itemsize
    makes = (
        (size * item, functools.partial(read, number, name, low, min(low + size, column.length)))
        for low in range(0, column.length, size)
    )
    for values in in_turn(makes, reader.source, most=limits().read_ahead_bytes // SHARDS_AT_ONCE):
        tick(values.nbytes if column.codec == "none" else 0)
        yield values


Watcher = Generator[list[str], NDArray[Any] | None, None]

"""Is sent the values of a column, stretch by stretch, then None; answers each with problems."""


def _watchers(
    reader: Reader, number: int, name: str, where: Place, lengths: list[NDArray[np.int64]]
) -> list[Watcher]:
    """Who looks at the values of a column."""
    manifest, found = reader.manifest, list[Watcher]()
    if name == "offsets":
        found.append(_watch_offsets(where, manifest.shards[number].tokens, lengths))
    if name == "input_ids":
        found.append(_watch_ids(where, manifest.vocab_size))
    if (name == "input_ids" or name in manifest.columns) and lengths:
        found.append(_watch_hashes(reader, number, name, where, lengths[0]))
    if name == "id_index":
        found.append(_watch_index(reader, number, where))
    if name in manifest.columns and name in fmt.LOSS_COLUMNS:
        found.append(_watch_counts(reader, number, name, where))
    for watcher in found:
        next(watcher)
    return found


def _watch_hashes(
    reader: Reader, number: int, name: str, where: Place, lengths: NDArray[np.int64]
) -> Watcher:
    """The hash of every document is that of its values."""
    own = sorted(reader.manifest.columns)
    stored, each, place = ("doc_hash", 1, 0)
    if name != "input_ids":
        stored, each, place = "column_hash", len(own), own.index(name)
    hasher = DocumentHasher(lengths, None if name == "input_ids" else name, reader.dtype(name))
    problems: list[str] = []
    while True:
        values = yield problems
        nothing = np.empty(0, reader.dtype(name))
        first, found = hasher.update(nothing if values is None else values)
        span = 2 * each * first, 2 * each * (first + len(found))
        kept = reader.elements(number, stored, *span).reshape(-1, each, 2)[:, place]
        wrong = np.flatnonzero((kept != found).any(axis=1))
        problems = [
            f"{where.parent / stored}: the hash of document {first + document} of the shard is not "
            f"that of its {name}."
            for document in wrong[:1].tolist()
        ]
        if values is None:
            yield problems


def _watch_counts(reader: Reader, number: int, name: str, where: Place) -> Watcher:
    """The counts of a loss column are those of its values."""
    counter, counts, stored = LossCounter(), [np.empty(0, np.uint32)], f"{name}_counts"
    while (values := (yield [])) is not None:
        counts.append(counter.append(values))
    counts.append(np.array([counter.total], np.uint32))
    length = reader.shard(number).record.columns[stored].length
    kept = reader.elements(number, stored, 0, length)
    same = np.array_equal(kept, np.concatenate(counts))
    yield [] if same else [f"{where.parent / stored}: its counts are not those of {name}."]


def _check_zarr_index(reader: Reader, number: int, name: str) -> Iterator[str]:
    """The index after the chunks is right, which we never read, but others do."""
    record = reader.shard(number).record
    column, inner = record.columns[name], fmt.inner_of(name, record.inner)
    sealed = zarr.CRC if column.codec == "crc32c" else 0
    size = inner * np.dtype(column.dtype).itemsize + sealed
    index = zarr.encode_index(np.full(zarr.inner_chunks(column.length, inner), size))
    file, end = f"{reader.shard(number).name}/{name}/c/0", record.files[f"{name}/c/0"].bytes
    (found,) = read_exactly(reader.source, [(file, end - len(index), len(index))], reader.path)
    if found.tobytes() != index:
        yield f"{reader.path}/{file}: its index is not that of its chunks."


def _check_rest(
    reader: Reader,
    number: int,
    name: str,
    where: Place,
    sha256: hashlib._Hash,
    pages: ChunkSums,
    proven: set[str],
    tick: Tick,
) -> Iterator[str]:
    """What comes after the last value of a plain column: padding, index, the end of the hashes."""
    opened = reader.shard(number).columns[name]
    expected = reader.shard(number).record.files[f"{name}/c/0"]
    done = opened.length * opened.item
    if reader.source.size(opened.file) != expected.bytes:
        return  # the files are compared with their sizes later
    (rest,) = read_exactly(reader.source, [(opened.file, done, expected.bytes - done)], reader.path)
    sha256.update(rest.data)
    pages.append(rest[: opened.payload_bytes - done])
    if sha256.hexdigest() == expected.sha256:
        tick(expected.bytes - done)
        proven.add(opened.file)
    wrong = np.flatnonzero(pages.close() != page_sums(reader, number, name))
    for page in wrong[:1].tolist():
        yield (
            f"{where.parent / 'page_crc32c'}: page {page} of {name} (bytes {page * PAGE_BYTES:,} "
            "on) has another crc32c."
        )


def _watch_index(reader: Reader, number: int, where: Place) -> Watcher:
    """The index of ids is that of the metadata."""
    pages = [np.empty(0, np.uint64)]
    while (values := (yield [])) is not None:
        pages.append(values)
    yield list(_check_index(reader, number, where, np.concatenate(pages)))


def _check_index(
    reader: Reader, number: int, where: Place, kept: NDArray[np.uint64] | None
) -> Iterator[str]:
    try:
        ids = [one for group in reader.shard_values(number, "id") for one in group]
    except MissingExtra:  # metadata that cannot be read here is checked as a file only
        return
    except (StoreError, OSError) as error:
        yield str(error)
        return
    found = build_index([id_text(one) for one in ids])
    nothing = np.empty(0, np.uint64)
    if not np.array_equal(nothing if found is None else found, nothing if kept is None else kept):
        yield f"{where}: it is not the index of the ids that the metadata has."


def _check_digest(root: Place, reader: Reader) -> Iterator[str]:
    """The groups are those of the stored hashes; the digest is theirs, or nothing was opened."""
    try:
        for number, (found, kept) in enumerate(
            zip(group_digests(reader), reader.manifest.groups, strict=True)
        ):
            if found != kept:
                yield (
                    f"{root}: group {number} (documents {number * fmt.GROUP_DOCUMENTS:,} on) has "
                    "another digest than the manifest says."
                )
    except (StoreError, OSError) as error:
        yield str(error)


def _watch_ids(where: Place, vocab_size: int) -> Watcher:
    """Every id is inside the vocabulary."""
    start, problems = 0, list[str]()
    while (ids := (yield problems)) is not None:
        problems = []
        if int(ids.max()) >= vocab_size:
            problems.append(
                f"{where}: id {int(ids.max())} at token {start + int(ids.argmax())}, allowed: "
                f"below the vocabulary size {vocab_size}."
            )
        start += len(ids)
    yield []


def _watch_offsets(where: Place, tokens: int, lengths: list[NDArray[np.int64]]) -> Watcher:
    """Offsets run forwards from 0 to the end; if so, `lengths` gets those of the documents."""
    start, last, problems, seen = 0, 0, list[str](), list[NDArray[Any]]()
    good = True
    while (ends := (yield problems)) is not None:
        problems = []
        if start == 0 and int(ends[0]) != 0:
            problems.append(f"{where}: the first offset is {int(ends[0])}, not 0.")
        if int(ends[0]) < last or bool((ends[1:] < ends[:-1]).any()):
            problems.append(f"{where}: offsets run backwards near document {start}.")
        start, last, good = start + len(ends), int(ends[-1]), good and not problems
        seen.append(ends)
    if last != tokens:
        yield [f"{where}: the last offset is {last}, not {tokens}."]
    if good:
        edges = np.concatenate(seen).astype(np.int64)
        lengths.append(edges[1:] - edges[:-1])
    yield []
