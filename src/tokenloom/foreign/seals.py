"""A seal: checksums for files that have none, kept in one file beside them or elsewhere.

One idea: a seal is the companion of a foreign store (offsets, document hashes, counts) together
with a crc32c of every chunk and every page of its files. With it, nothing has to be passed over to
know the identity, and reads are checked as in a store of our own. The file has parts, each with a
sha256, a table of these, and a last line with the sha256 of the table; part 0 says what was sealed.

A seal that does not fit the files (other sizes, another sample of their bytes) is refused: either
the files changed, or it is the seal of others.

What guards foreign files is said in words, and all that can be checked is checked on request.
Without a seal nothing in the files themselves says whether a byte is right; ids and boundaries can
be checked, and the documents can be compared with the hashes that were remembered when the files
were first opened. With a seal every chunk, page and document is compared, as in a tokenloom store.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Place, Url, place
from tokenloom.errors import StoreCorrupt, StoreError, StoreExists, plural
from tokenloom.foreign.companion import (
    PART,
    Companion,
    InMemory,
    Tick,
    column_lengths,
    derive,
    in_parts,
    pass_cache_bytes,
)
from tokenloom.foreign.described import Described, VirtualShard, check_shards, document_lengths
from tokenloom.foreign.foreign_reader import ForeignReader, Inside, lines_of, pages_name, sums_name
from tokenloom.foreign.locations import as_stored
from tokenloom.foreign.pieces import PieceLine, chunk_of
from tokenloom.foreign.places import ForeignPlace
from tokenloom.remote.client import client_of
from tokenloom.remote.source import source_of
from tokenloom.remote.uploads import RemoteFiles
from tokenloom.store import format as fmt
from tokenloom.store.ahead import read_through
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.cache import BlockCache
from tokenloom.store.files import LOCAL, temporary_name, unreadable
from tokenloom.store.plan_cache import ENTRY, with_table
from tokenloom.store.shard import PAGE_BYTES, ChunkSums
from tokenloom.store.verify import VerifyReport


def guard_lines(reader: ForeignReader) -> list[str]:
    """What guards the files of a reader, and what does not, a sentence each."""
    doubts = reader.inside.described.doubts
    if reader.inside.is_sealed:
        return ["sealed: every chunk is compared with its crc32c when it is first read", *doubts]
    told = [
        "not sealed: the files have no checksums, so a changed byte is found only if it is no id"
    ]
    if reader.inside.identity == "sample":
        told.append("identified by a sample: documents were not hashed")
    return [*told, *doubts]


def foreign_bytes(reader: ForeignReader) -> int:
    """Bytes of all files of a foreign store."""
    described = reader.inside.described
    return sum(described.folder.size(name) or 0 for name in described.files)


def verify_foreign(reader: ForeignReader, *, tick: Tick = lambda _: None) -> VerifyReport:
    """Read everything, compare what can be compared, and say what could not.

    Args:
        reader: the store.
        tick: told the bytes of each step.
    """
    inside, cache = reader.inside, BlockCache(pass_cache_bytes())
    lines = lines_of(inside.described, cache, "verify", inside.companion)
    problems: list[str] = []
    with as_stored(reader.source):
        for check in (_check_documents, _check_pages):
            try:
                problems += check(reader, lines, tick)
            except (StoreError, OSError) as error:
                problems.append(str(error))
    return VerifyReport(
        reader.path,
        len(inside.shards),
        len(inside.described.files),
        foreign_bytes(reader),
        reader.manifest.documents,
        reader.manifest.tokens,
        tuple(dict.fromkeys(problems)),
        unguarded=() if inside.is_sealed else tuple(guard_lines(reader)),
    )


def _check_documents(
    reader: ForeignReader, lines: dict[str, PieceLine], tick: Tick
) -> Iterator[str]:
    """Boundaries, hashes and counts are what they were when the files were opened or sealed."""
    inside, companion = reader.inside, reader.inside.companion
    lengths = document_lengths(inside.described, lines["input_ids"])
    if not np.array_equal(lengths, reader.lengths()):
        yield f"{reader.path}: its documents are not those that it had when it was identified."
        return
    parts = derive(inside.shards, lengths, lines, hashed=True, tick=tick)
    if not companion.hashed:
        deque(parts, maxlen=0)  # the pass looks at every id
        return
    names = sorted(inside.described.columns)
    for number, shard in enumerate(inside.shards):
        for name, (_, length) in column_lengths(shard, names, hashed=True).items():
            made = b"".join(islice(parts, -(-length // PART)))
            if made != companion.whole(number, name).tobytes():
                first, last = shard.first_document, shard.first_document + shard.documents
                yield (
                    f"{reader.path}: {name.replace('_', ' ')} of documents {first:,} to {last:,} "
                    "differ from what was remembered or sealed: the files were changed."
                )


def _check_pages(reader: ForeignReader, lines: dict[str, PieceLine], tick: Tick) -> Iterator[str]:
    """Pages of files that are read in place are those that were sealed."""
    inside, companion = reader.inside, reader.inside.companion
    for file in inside.described.files if companion.is_sealed else ():
        if not inside.extent(file):
            continue
        wrong = np.flatnonzero(page_sums(inside, file) != companion.whole(-1, pages_name(file)))
        if len(wrong):
            at = int(wrong[0]) * PAGE_BYTES
            yield (
                f"{reader.root}/{file}: {plural(len(wrong), 'page')} of 4,096 bytes differ from "
                f"what was sealed, the first at byte {at:,}."
            )


Array = NDArray[Any]

FORMAT = "tokenloom.seal/1"

SUFFIX = ".seal"

TAIL = 4096  # bytes at the end of a seal that hold its last line


def seal_path(described: Described) -> Place:
    """Where the seal of files is, unless the user says otherwise: beside the first of them."""
    named = described.settings.get("seal")
    beside = place("seal", described.root) / f"{described.files[0]}{SUFFIX}"
    return beside if named is None else place("seal", named)


def has_seal(described: Described) -> bool:
    """Whether there is a file where the seal should be; nobody has looked into it."""
    path, source = _place_of(described)
    return source.size(path.name) is not None


def refuse_lone_seals(where: ForeignPlace) -> None:
    """Refuse a folder, or a start of names, in which a seal lies without its file.

    The other files of a sealed set would open as a smaller one that is not sealed.

    Raises:
        StoreCorrupt: the first file of a sealed set is missing.
    """
    if not where.folder.lists or (where.name and where.size(where.name) is not None):
        return
    for name in where.names():
        file = name.removesuffix(SUFFIX)
        of_it = re.fullmatch(re.escape(where.name) + r"[-_.0-9]*\.\w+", file) or where.is_folder
        if name == file or not of_it or where.size(file) is not None:
            continue
        size = where.size(name) or 0
        if FORMAT.encode() in where.bytes(name, max(0, size - TAIL), size).tobytes():
            raise StoreCorrupt(
                f"{where.where(file)}: it is missing, and its seal {name} is here. Restore it; if "
                "it was removed on purpose, remove the seal, too."
            )


def _place_of(described: Described) -> tuple[Place, ByteSource]:
    """Where the seal should be, links followed, and what reads the folder that it is in."""
    path = seal_path(described)
    if isinstance(path, Path):
        path = Path(os.path.realpath(path))
    return path, source_of(path.parent)


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class SealFile:
    """The parts of a seal; each is compared with its sha256 whenever it is read.

    Attributes:
        path: the file.
        source: reads the folder that it is in.
        edges: where each part starts, and where the last one ends [parts + 1].
        digests: sha256 of each part [parts]; part 0 says what was sealed.
    """

    path: Place
    source: ByteSource
    edges: NDArray[np.int64]
    digests: NDArray[np.void]

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """See `tokenloom.foreign.companion.PartList`."""
        return self.parts([number + 1 for number in numbers])

    def parts(self, parts: Sequence[int]) -> list[bytes]:
        """Some parts of the file."""
        edges = [self.edges[part : part + 2].tolist() for part in parts]
        asked = [(self.path.name, low, high - low) for low, high in edges]
        found = [raw.tobytes() for raw in self.source.read(asked)]
        for part, raw in zip(parts, found, strict=True):
            if hashlib.sha256(raw).digest() != self.digests[part].tobytes():
                raise damaged_seal(self.path, f"part {part} has another sha256")
        return found


def damaged_seal(path: Place, what: str) -> StoreCorrupt:
    """The error for a seal that cannot be believed."""
    return StoreCorrupt(
        f"{path}: {what}, so the seal is not used. Restore it from a copy, or remove it and seal "
        "the files again (`tokenloom seal`)."
    )


def open_seal(described: Described, sample: str) -> Inside | None:
    """What the seal of these files says about them; None without a seal.

    Args:
        described: the files.
        sample: hash of a sample of their bytes, as it is now.

    Raises:
        StoreCorrupt: it is damaged, or the seal of other files.
    """
    path, source = _place_of(described)
    size = source.size(path.name)
    if size is None:
        if described.settings.get("seal") is not None:
            raise StoreError(f"{path}: there is no such seal. Make one with `tokenloom seal`.")
        return None
    file = _table(path, source, size)
    try:
        told = fmt.read_json(file.parts([0])[0])
        mismatch = _mismatch(told, _about(described, sample))
        shards = [VirtualShard(*map(int, one)) for one in told["shards"]]
        sums = {str(name): int(count) for name, count in told["sums"].items()}
        columns = map(str, told["columns"])
        companion = Companion(described.root, shards, columns, hashed=True, sums=sums)
        groups = tuple(map(str, told["groups"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged_seal(path, f"it says nothing about files ({error!s:.80})") from error
    if mismatch:
        raise StoreCorrupt(
            f"{path}: it is not the seal of these files: {mismatch}. If they were changed on "
            "purpose, remove it and seal them again (`tokenloom seal`); if not, restore them."
        )
    if companion.parts != len(file.digests) - 1:
        what = f"it has {len(file.digests) - 1} parts, expected are {companion.parts}"
        raise damaged_seal(path, what)
    companion.stored = file
    check_shards(described, shards)
    return Inside(described, shards, companion, "full", groups)


def _table(path: Place, source: ByteSource, size: int) -> SealFile:
    """The parts of a seal, if its last line and its table can be believed."""
    try:
        low = max(0, size - TAIL)
        last = source.read([(path.name, low, size - low)])[0].tobytes().rpartition(b"\n")[2]
        told = fmt.read_json(last)
        count = int(told["parts"]) if told["format"] == FORMAT else 0
        length = count * ENTRY.itemsize
        begin = size - len(last) - 1 - length
        digest = str(told["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise damaged_seal(path, f"it is no seal ({error!s:.80})") from error
    possible = count >= 1 and begin >= 0
    table = source.read([(path.name, begin, length)])[0].tobytes() if possible else b""
    if not possible or hashlib.sha256(table).hexdigest() != digest:
        raise damaged_seal(path, "it is no seal, or was cut short")
    rows = np.frombuffer(table, ENTRY)
    edges = np.concatenate([[0], rows["end"].astype(np.int64)])
    if edges[-1] != begin or (np.diff(edges) < 0).any():
        raise damaged_seal(path, "its parts do not fill it")
    return SealFile(path, source, edges, rows["sha256"])


def _mismatch(told: dict[str, Any], now: dict[str, Any]) -> str:
    """The first thing that a seal says otherwise than the files; empty if nothing."""
    was, found = _by_name(told), _by_name(now)
    for name in {**found, **was}:
        if was.get(name) != found.get(name):
            then, here = (f"{one.get(name, 'not there')!s:.100}" for one in (was, found))
            return f"{name!s:.100} was {then} and is {here}"
    if list(was) != list(found):
        return "its files come in another order"
    return "" if told["sample"] == now["sample"] else "a sample of their bytes is another one"


def _by_name(about: dict[str, Any]) -> dict[str, Any]:
    files = {f"the file {name}": f"{int(size):,} bytes" for name, size in about["files"]}
    columns = ", ".join(sorted(map(str, about["columns"])))  # of another name would not be read
    return {"the format": about["kind"], **about["settings"], **files, "the columns": columns}


def _about(described: Described, sample: str) -> dict[str, Any]:
    """What a seal says about the files that it seals."""
    said = {k: v for k, v in described.settings.items() if k not in ("seal", "format")}
    sizes = [[name, described.folder.size(name)] for name in described.files]
    about = {"kind": described.kind, "settings": said, "files": sizes, "sample": sample}
    return about | {"columns": sorted(described.columns)}


# -- making ------------------------------------------------------------------------------------


def seal_files(
    reader: ForeignReader, to: Place | None = None, *, tick: Tick = lambda _: None
) -> Place:
    """Write the seal of foreign files; it appears whole or not at all.

    Args:
        reader: reads them, with their full identity.
        to: the file of the seal, on this machine or in a bucket; default: beside them.
        tick: told the bytes of each step.

    Raises:
        StoreExists: there is one in the bucket; it is not replaced, since others may be reading it.
        StoreCorrupt: the files are not those that were identified before, or changed meanwhile.
    """
    described, shards = reader.inside.described, reader.inside.shards
    path = to or seal_path(described)
    before = described.stamps(), described.sample_of_bytes()
    lines = lines_of(described, BlockCache(pass_cache_bytes()), "seal")
    parts = InMemory(derive(shards, reader.lengths(), lines, hashed=True, sealed=True, tick=tick))
    companion = Companion(described.root, shards, described.columns, hashed=True, sums={})
    companion.stored = parts
    same = replace(reader.inside, companion=companion).hashed().groups == reader.manifest.groups
    sums: dict[str, int] = {}
    for name, values in _all_sums(reader.inside, lines):
        sums[name] = len(values)
        parts += in_parts(values)
    if not same or (described.stamps(), described.sample_of_bytes()) != before:
        raise StoreCorrupt(
            f"{described.root}: its files changed while they were sealed. Try again."
        )
    about = _about(described, before[1]) | {"sums": sums, "groups": list(reader.manifest.groups)}
    about |= {"shards": [list(one) for one in shards]}
    _write(path, with_table([json.dumps(about).encode(), *parts], {"format": FORMAT}))
    return path


def check_target(path: Place) -> None:
    """Refuse a place that takes no seal, before everything is read for one.

    Raises:
        StoreExists: there is a seal in the bucket.
        StoreError: it is no bucket, or one that ignores conditions.
    """
    if not isinstance(path, Url):
        return
    if not client_of(path).lists:
        raise StoreError(
            f"{path}: a plain web server takes no files. Write the seal elsewhere (`tokenloom seal "
            "--to`) and open the files with `seal=`."
        )
    if client_of(path).head(path.key) is not None:
        raise _sealed_already(path)
    RemoteFiles(client_of(path)).mkdir(path.parent)  # tries whether conditions hold there


def _sealed_already(url: Url) -> StoreExists:
    return StoreExists(
        f"{url}: there is a seal already, and readers may be using it. Remove it first, or write "
        "another one elsewhere (`tokenloom seal --to`)."
    )


def _all_sums(inside: Inside, lines: dict[str, PieceLine]) -> Iterator[tuple[str, Array]]:
    """Checksums of the chunks of all pieces, and of the pages of files that are read in place."""
    for name, line in lines.items():
        for number, piece in enumerate(line.pieces):
            size = chunk_of(piece)
            sums = ChunkSums(size * line.dtype.itemsize)
            for values in line.sweep(line.edges[number], line.edges[number + 1], size):
                sums.append(values.view(np.uint8))
            yield sums_name(name, number), sums.close()
    for file in inside.described.files:
        if inside.extent(file):
            yield pages_name(file), page_sums(inside, file)


def page_sums(inside: Inside, file: str) -> Array:
    """Checksums of the pages of a file that is read in place, as it is now."""
    described, sums = inside.described, ChunkSums(PAGE_BYTES)
    for part in read_through(described.folder.source, file, inside.extent(file), described.root):
        sums.append(part)
    return sums.close()


def _write(path: Place, parts: Iterator[bytes]) -> None:
    if isinstance(path, Url):
        _upload(path, parts)
        return
    temporary = path.parent / temporary_name()
    try:
        out = LOCAL.create(temporary)
        for part in parts:
            out.write(part)
        out.close()
        os.replace(temporary, path)  # noqa: TID251 - beside files that are not a store's
    except OSError as error:
        raise error if isinstance(error, StoreError) else unreadable(error, path) from error
    finally:
        LOCAL.remove(temporary)
    LOCAL.sync_directory(path.parent)


def _upload(url: Url, parts: Iterator[bytes]) -> None:
    """Create a seal in a bucket, if its name is free."""
    files, waiting = RemoteFiles(client_of(url)), url.parent / temporary_name()
    out = files.create(waiting)
    for part in parts:
        out.write(part)
    if not files.link_new(waiting, url):
        raise _sealed_already(url)
