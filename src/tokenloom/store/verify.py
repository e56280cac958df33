"""Every byte of a snapshot, read again and compared with what was published.

One idea: first each file against its sha256, then the meaning of what the files hold: offsets
run forwards and end at the token count, ids are inside the vocabulary, arrays have the digest
that the store is named by. The second half finds stores that were *written* wrong, with right
checksums over wrong values.

Both come from one pass where they can: a column that is stored as it is begins its file, so the
hash of the content, carried on over the rest, is the hash of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreError
from tokenloom.store import format as fmt
from tokenloom.store import snapshots, zarr
from tokenloom.store.byte_source import ByteSource, read_exactly
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.files import LOCAL, Files
from tokenloom.store.reader import Reader

__all__ = ["VerifyReport", "verify"]

READ_BYTES = 8 << 20

Tick = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked; `problems` is empty when all is well, else one line per problem."""

    path: str
    shards: int
    files: int
    bytes: int
    documents: int
    tokens: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def verify(
    root: Path,
    snapshot: snapshots.Snapshot,
    source: ByteSource,
    *,
    files: Files = LOCAL,
    tick: Tick = lambda _: None,
) -> VerifyReport:
    """Read everything and report every problem; `tick` is told the bytes of each step."""
    manifest = snapshot.manifest
    problems = list(_check_history(root, manifest, files))
    expected = dict(manifest.files)
    proven: set[str] = set()  # files whose sha256 came out right while their meaning was checked
    reader = Reader(
        manifest,
        source,
        path=str(root),
        cache=BlockCache(0),
        identity=snapshot.sha256,
        rules=FetchRules(verify="always"),
    )
    for number, entry in enumerate(manifest.shards):
        try:
            record = reader.shard(number).record
        except (StoreError, OSError) as error:
            problems.append(str(error))
            continue
        expected |= {f"{entry.name}/{name}": file for name, file in record.files.items()}
        problems += _check_strangers(root, entry, record, files)
        for column in record.columns:
            problems += _check_column(root, reader, number, column, proven, tick)
    if fmt.combine_digests(manifest.shards) != manifest.digest:
        problems.append(f"{root}: its digest is not that of its shards.")
    for name in sorted(expected.keys() - proven):
        problems += _check_file(root, source, name, expected[name], tick)
    total = sum(file.bytes for file in expected.values())
    counts = (manifest.documents, manifest.tokens)
    found = tuple(dict.fromkeys(problems))
    return VerifyReport(str(root), len(manifest.shards), len(expected), total, *counts, found)


def _check_history(root: Path, manifest: fmt.Manifest, files: Files) -> Iterator[str]:
    """Only what we wrote is there, older snapshots are whole, the parent is the parent."""
    names = files.list(root)
    for name in names:
        if not fmt.is_store_name(name):
            yield f"{root / name}: nobody published this file."
    for number in snapshots.numbers(names):
        if number >= manifest.number:
            continue
        try:
            older = snapshots.load(root, number, files)
        except StoreError as error:
            yield str(error)
            continue
        if number == manifest.number - 1 and older.sha256 != manifest.parent:
            yield f"{root / fmt.manifest_name(number)}: it is not the parent of the next snapshot."


def _check_strangers(
    root: Path, entry: fmt.ShardEntry, record: fmt.ShardRecord, files: Files
) -> Iterator[str]:
    """Files that nobody published, and commit records that disagree with the manifest."""
    sizes = {name: file.bytes for name, file in record.files.items()}
    if record.digest != entry.digest or sizes != {
        name: size for name, size in entry.files.items() if name != "shard.json"
    }:
        yield f"{root / entry.name / 'shard.json'}: it does not agree with the manifest."
    folders = {"": set[str]()}
    for name in (*record.files, "shard.json"):
        parts = name.split("/")
        for depth in range(len(parts)):
            folders.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    for folder, known in folders.items():
        for name in files.list(root / entry.name / folder):
            if name not in known:
                yield f"{root / entry.name / folder / name}: nobody published this file."


def _check_file(
    root: Path, source: ByteSource, name: str, expected: fmt.FileRecord, tick: Tick
) -> Iterator[str]:
    found = source.size(name)
    if found != expected.bytes:
        is_there = "is missing" if found is None else f"has {found:,} bytes"
        yield f"{root / name}: the file {is_there}, published were {expected.bytes:,} bytes."
        return
    sha256 = hashlib.sha256()
    try:
        for start in range(0, expected.bytes, READ_BYTES):
            size = min(READ_BYTES, expected.bytes - start)
            (data,) = read_exactly(source, [(name, start, size)], str(root))
            sha256.update(data.data)
            tick(size)
    except OSError as error:
        yield str(error) if isinstance(error, StoreError) else f"{root / name}: {error}"
        return
    if sha256.hexdigest() != expected.sha256:
        yield f"{root / name}: its sha256 is not the one published."


def _check_column(
    root: Path, reader: Reader, number: int, name: str, proven: set[str], tick: Tick
) -> Iterator[str]:
    """Decode one column of a shard and check what its values say."""
    shard = reader.shard(number)
    column, where = shard.record.columns[name], root / shard.name / name
    about = zarr.metadata(column.length, column.dtype, column.codec, shard.record.inner)
    if hashlib.sha256(about).hexdigest() != shard.record.files[f"{name}/zarr.json"].sha256:
        yield f"{where / 'zarr.json'}: it does not describe this column."
    if name == "crc32c":  # opening the shard has decoded it
        return
    sha256 = hashlib.sha256()
    try:
        yield from _check_values(reader, number, name, where, sha256, tick)
        if sha256.hexdigest() != column.content:
            yield f"{where}: its content is not what the digest of the store was made from."
        elif column.codec == "none":
            file = f"{shard.name}/{name}/c/0"
            expected = shard.record.files[f"{name}/c/0"]
            done = column.length * reader.dtype(name).itemsize
            if _carried_on(reader, file, sha256, done, expected):
                tick(expected.bytes - done)
                proven.add(file)
    except (StoreError, OSError) as error:
        yield str(error)


def _check_values(
    reader: Reader, number: int, name: str, where: Path, sha256: hashlib._Hash, tick: Tick
) -> Iterator[str]:
    """Read a column from its first to its last element, hashing what is read."""
    column = reader.shard(number).record.columns[name]
    size, last = reader.manifest.chunk_tokens, 0
    for start in range(0, column.length, size):
        values = reader.elements(number, name, start, min(start + size, column.length))
        sha256.update(values.view(np.uint8).data)
        tick(values.nbytes if column.codec == "none" else 0)
        if name == "input_ids":
            yield from _check_ids(where, start, values, reader.manifest.vocab_size)
        if name == "offsets":
            yield from _check_offsets(where, start, values, last)
            last = int(values[-1])
    if name == "offsets" and last != reader.manifest.shards[number].tokens:
        yield f"{where}: the last offset is {last}, not {reader.manifest.shards[number].tokens}."


def _carried_on(
    reader: Reader, file: str, sha256: hashlib._Hash, done: int, expected: fmt.FileRecord
) -> bool:
    """Whether a hash of the first `done` bytes of a file ends, behind the rest, as published."""
    if reader.source.size(file) != expected.bytes:
        return False
    (rest,) = read_exactly(reader.source, [(file, done, expected.bytes - done)], reader.path)
    sha256.update(rest.data)
    return sha256.hexdigest() == expected.sha256


def _check_ids(where: Path, start: int, ids: NDArray[Any], vocab_size: int) -> Iterator[str]:
    if int(ids.max()) >= vocab_size:
        place = start + int(ids.argmax())
        yield (
            f"{where}: id {int(ids.max())} at token {place}, allowed is below the vocabulary "
            f"size {vocab_size}."
        )


def _check_offsets(where: Path, start: int, ends: NDArray[Any], before: int) -> Iterator[str]:
    if start == 0 and int(ends[0]) != 0:
        yield f"{where}: the first offset is {int(ends[0])}, not 0."
    if int(ends[0]) < before or bool((ends[1:] < ends[:-1]).any()):
        yield f"{where}: offsets run backwards near document {start}."
