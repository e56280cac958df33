"""Files of samples with a table of where each starts: what MDS shards and LitData chunks share.

One idea: both formats are an `index.json` and files of the same shape, so one reader of the table
serves both::

    u32 samples, u32 start of each sample and the end, (MDS: the columns as JSON), the samples

Every number is compared with the size of the file before it is used.

In sample and row formats the number of tokens of a file is written nowhere, and a description needs
it before a token is read. So the files are gone through once (`cached_lengths`), and the answer is
kept in the cache directory under their names, sizes, times and first and last bytes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.foreign.locations import damaged, hash_of_ranges
from tokenloom.foreign.pieces import CodedPiece, Piece
from tokenloom.foreign.places import ForeignPlace
from tokenloom.limits import limits
from tokenloom.store import plan_cache
from tokenloom.store.ahead import in_turn

Int64 = NDArray[np.int64]

Bytes = NDArray[np.uint8]

INDEX = "index.json"

KIND = "foreign-lengths"  # of what is remembered

LOOKED = 4096  # bytes at either end of a file


class SizedColumn(NamedTuple):
    """A column of a sample: its name, how it is written, its bytes if they are always the same."""

    name: str
    encoding: str
    size: int | None


class SampleFile(NamedTuple):
    """A file of samples, as its index tells it.

    Attributes:
        name: the file that is there.
        packed: whether it is compressed.
        bytes: its size, uncompressed.
        samples: how many it has.
        columns: what a sample is made of.
    """

    name: str
    packed: bool
    bytes: int
    samples: int
    columns: tuple[SizedColumn, ...]


def index_of(place: ForeignPlace, key: str) -> dict[str, Any] | None:
    """The index in a folder, if it is of the format that has this key."""
    if not place.is_named(INDEX) or place.size(INDEX) is None:
        return None
    found = place.json(INDEX)
    return found if key in found else None


def files_of_index(
    place: ForeignPlace,
    index: dict[str, Any],
    key: str,
    read: Callable[[ForeignPlace, dict[str, Any]], SampleFile],
) -> list[SampleFile]:
    """The files that an index lists, each once: others would be trained on twice."""
    entries = index[key]
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise place.damaged(INDEX, f"its {key} are no list")
    files = [read(place, one) for one in entries]
    refuse_twice(place, INDEX, [file.name for file in files])
    return files


def refuse_twice(place: ForeignPlace, index: str, names: Sequence[str]) -> None:
    """Refuse an index that lists a file twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise place.damaged(index, f"it lists {twice[0]} twice")


def head_of(place: ForeignPlace, file: SampleFile) -> Bytes:
    """The table of a file, without its samples."""
    size = 4 * (file.samples + 2)
    raw = place.bytes(file.name, 0, size)
    if len(raw) < size:
        raise place.damaged(file.name, f"{file.samples:,} samples do not fit into it")
    return raw


def loaded(place: ForeignPlace, file: SampleFile) -> Bytes:
    """A whole file, decompressed."""
    raw = place.bytes(file.name, 0, place.size(file.name) or 0)
    return _unpacked(place, file, raw) if file.packed else raw


def _unpacked(place: ForeignPlace, file: SampleFile, raw: Bytes) -> Bytes:
    """Decompressed piece by piece: what a header claims is never believed."""
    parts, size = [], 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw.tobytes()) as reader:
            while size <= file.bytes and (part := reader.read(limits().unpacked_chunk_bytes)):
                parts.append(part)
                size += len(part)
    except zstandard.ZstdError as error:
        raise place.damaged(file.name, f"it cannot be decompressed ({error})") from None
    if size != file.bytes:
        what = "more" if size > file.bytes else f"{size:,}"
        raise place.damaged(
            file.name, f"it decompresses to {what}, its index says {file.bytes:,} bytes"
        )
    return np.frombuffer(b"".join(parts), np.uint8)


def table_of(place: ForeignPlace, file: SampleFile, raw: Bytes) -> Int64:
    """Where each sample starts, and the end, in bytes of the file."""
    where, after = place.where(file.name), 4 * (file.samples + 2)
    if len(raw) < after:
        raise damaged(where, f"{file.samples:,} samples do not fit into {len(raw):,} bytes")
    table = raw[:after].view("<u4").astype(np.int64)
    if table[0] != file.samples:
        raise damaged(where, f"it has {table[0]:,} samples, its index says {file.samples:,}")
    starts = table[1:]
    if starts[0] < after or starts[-1] != file.bytes or (np.diff(starts) < 0).any():
        raise damaged(where, "its table of samples runs backwards or leaves the file")
    return starts


def integers_at(raw: Bytes, places: Int64, width: int) -> Int64:
    """Little-endian integers of that many bytes at some places."""
    found = np.zeros(len(places), np.int64)
    for byte in range(width):
        found |= raw[np.minimum(places + byte, len(raw) - 1)].astype(np.int64) << (8 * byte)
    return found


def gathered(raw: Bytes, starts: Int64, sizes: Int64) -> Bytes:
    """Stretches of a file, end to end."""
    stops = (starts + sizes).tolist()
    parts = [raw[a:b] for a, b in zip(starts.tolist(), stops, strict=True)]
    return np.concatenate([np.empty(0, np.uint8), *parts])


def coded_pieces(
    files: Sequence[SampleFile],
    lengths: Sequence[Int64],
    values: Callable[[SampleFile], NDArray[Any]],
) -> tuple[Piece, ...]:
    """A piece for each file, which is decoded whole."""
    found = []
    for file, of_file in zip(files, lengths, strict=True):
        size = int(of_file.sum())
        decode = functools.partial(_part, values, file)
        found.append(CodedPiece(file=file.name, elements=size, decode=decode, chunk=max(1, size)))
    return tuple(found)


def _part(
    values: Callable[[SampleFile], NDArray[Any]], file: SampleFile, low: int, high: int
) -> NDArray[Any]:
    return values(file)[low:high]


def joined_lengths(lengths: Sequence[Int64]) -> Int64:
    """The lengths of the documents of all pieces."""
    return np.concatenate([np.empty(0, np.int64), *lengths])


def cached_lengths(
    place: ForeignPlace,
    kind: str,
    files: Sequence[str],
    counts: Iterable[tuple[int, Callable[[], Int64]]],
) -> list[Int64]:
    """The tokens of every document of every piece.

    Args:
        place: where the files are.
        kind: the format.
        files: what decides the answer.
        counts: (bytes to be read for it, what gives the lengths) of each piece, in order; several
            are called at the same time if the files are in a bucket.
    """
    key = _key(place, kind, files)
    known = plan_cache.recall(KIND, key)
    if known is not None:
        parts = plan_cache.recall_parts(KIND, key, int(known["pieces"]))
        raw = parts.read(range(len(parts))) if parts is not None else None
        if raw is not None:
            return [np.frombuffer(one, "<i8").astype(np.int64) for one in raw]
    lengths = in_turn(counts, place.source)
    found = [np.ascontiguousarray(one, np.int64) for one in lengths]
    plan_cache.forget(KIND, key)
    if plan_cache.remember_parts(KIND, key, (one.astype("<i8").tobytes() for one in found)):
        plan_cache.remember(KIND, key, {"pieces": len(found)})
    return found


def _key(place: ForeignPlace, kind: str, files: Sequence[str]) -> dict[str, Any]:
    told: list[list[Any]] = [[name, *place.folder.stamp(name)] for name in files]
    ends = [
        (name, low, min(LOOKED, size - low))
        for name, size, _ in told
        for low in (0, max(0, size - LOOKED))
    ]
    sample = hash_of_ranges(place.source, ends, place.root)
    said = place.said.plain
    return {"kind": kind, "root": place.root, "files": told, "said": said, "sample": sample}
