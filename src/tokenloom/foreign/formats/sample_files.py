"""Files of samples with a table of where each starts: what MDS shards and LitData chunks share.

One idea: both formats are an `index.json` and files of the same shape, so one reader of the table
serves both::

    u32 samples, u32 start of each sample and the end, (MDS: the columns as JSON), the samples

Every number is compared with the size of the file before it is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.foreign.described import damaged
from tokenloom.foreign.pieces import CodedPiece, Piece
from tokenloom.foreign.places import ForeignPlace
from tokenloom.limits import limits
from tokenloom.store import format as fmt

__all__ = [
    "INDEX",
    "SampleFile",
    "SizedColumn",
    "coded_pieces",
    "gathered",
    "head_of",
    "index_of",
    "integers_at",
    "joined_lengths",
    "listed",
    "loaded",
    "refuse_twice",
    "table_of",
]

Int64 = NDArray[np.int64]

Bytes = NDArray[np.uint8]

INDEX = "index.json"


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
    if (place.size(INDEX) or 0) > fmt.MAX_RECORD_BYTES:
        raise damaged(place.where(INDEX), "it is larger than any index")
    try:
        found = fmt.read_json(place.bytes(INDEX, 0, fmt.MAX_RECORD_BYTES).tobytes())
    except (ValueError, RecursionError):
        raise damaged(place.where(INDEX), "it is not JSON") from None
    return found if isinstance(found, dict) and key in found else None


def listed(place: ForeignPlace, index: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The files that an index lists."""
    found = index[key]
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise damaged(place.where(INDEX), f"its {key} are no list")
    return found


def refuse_twice(where: str, names: Iterable[str]) -> None:
    """Refuse an index that lists a file twice: its documents would be trained on twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise damaged(where, f"it lists {name} twice")
        seen.add(name)


def head_of(place: ForeignPlace, file: SampleFile) -> Bytes:
    """The table of a file, without its samples."""
    size = 4 * (file.samples + 2)
    raw = place.bytes(file.name, 0, size)
    if len(raw) < size:
        raise damaged(place.where(file.name), f"{file.samples:,} samples do not fit into it")
    return raw


def loaded(place: ForeignPlace, file: SampleFile) -> Bytes:
    """A whole file, decompressed."""
    raw = place.bytes(file.name, 0, place.size(file.name) or 0)
    if file.packed:
        raw = _unpacked(place, file, raw)
    return raw


def _unpacked(place: ForeignPlace, file: SampleFile, raw: Bytes) -> Bytes:
    """Decompressed piece by piece: what a header claims is never believed."""
    parts, size = [], 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw.tobytes()) as reader:
            while size <= file.bytes and (part := reader.read(limits().unpacked_chunk_bytes)):
                parts.append(part)
                size += len(part)
    except zstandard.ZstdError as error:
        raise damaged(place.where(file.name), f"it cannot be decompressed ({error})") from None
    if size != file.bytes:
        what = "more" if size > file.bytes else f"{size:,}"
        raise damaged(
            place.where(file.name),
            f"it decompresses to {what}, its index says {file.bytes:,} bytes",
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
