"""MDS, the shards of MosaicML's streaming library, uncompressed or zstd.

A sample is its columns in order of name: u32 bytes of each column that has no fixed size, then the
columns. `input_ids` or `tokens` are ids, as `ndarray:DTYPE` of one axis, or as `bytes` if `dtype`
is said; `loss_mask` and `loss_weights` are per-token columns; text, numbers and JSON are metadata.
Everything else is refused with the reason.

One idea: samples have heads, so ids do not lie end to end and a shard is decoded whole: 64 MiB, if
its writer was left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Described, ForeignColumn
from tokenloom.foreign.export_notes import ExportNotes, export_notes
from tokenloom.foreign.formats.sample_files import (
    INDEX,
    SampleFile,
    SizedColumn,
    cached_lengths,
    coded_pieces,
    files_of_index,
    gathered,
    index_of,
    integers_at,
    joined_lengths,
    loaded,
    table_of,
)
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.places import DTYPES, ForeignPlace, plain_name
from tokenloom.store import format as fmt
from tokenloom.store.metadata import RESERVED

Int64 = NDArray[np.int64]

Bytes = NDArray[np.uint8]

IDS = ("input_ids", "tokens")

COLUMNS = {"loss_mask": "uint8", "loss_weights": "float32"}

SCALARS = {"int": "<i8"} | {
    name: np.dtype(name).newbyteorder("<").str for name in (*DTYPES, "float32", "float64")
}


def describe_mds(place: ForeignPlace) -> Described | None:
    """The MDS dataset in a folder."""
    index = index_of(place, "shards")
    if index is None:
        return None
    if index.get("version") != 2:
        raise place.damaged(INDEX, f"its version is {index.get('version')!r}, allowed: 2")
    files = files_of_index(place, index, "shards", _file)
    notes = export_notes(place)
    ids = _ids(place, files)
    further = _columns(place, files, notes)
    names = (INDEX, *(one.name for one in files))

    def count(file: SampleFile) -> Int64:
        raw = loaded(place, file)
        lengths = _cells(place, file, raw, ids)[1]
        for name in further:
            if (_cells(place, file, raw, name)[1] != lengths).any():
                raise place.damaged(file.name, f"{name} and {ids} differ in length")
        return lengths

    counts = ((one.bytes, functools.partial(count, one)) for one in files)
    lengths = cached_lengths(place, "mds", names, counts)
    return Described(
        kind="mds",
        folder=place.folder,
        files=names,
        tokens=coded_pieces(files, lengths, functools.partial(_values, place, ids)),
        lengths=lambda: joined_lengths(lengths),
        columns={
            name: ForeignColumn(
                dtype=dtype,
                pieces=coded_pieces(files, lengths, functools.partial(_values, place, name)),
            )
            for name, dtype in further.items()
        },
        vocab_size=notes.vocab_size,
        metadata=_metadata(place, files, lengths, {ids, *further}),
    )


def _file(place: ForeignPlace, told: dict[str, Any]) -> SampleFile:
    where = place.where(INDEX)
    try:
        names, encodings = told["column_names"], told["column_encodings"]
        sizes = told["column_sizes"]
        columns = tuple(map(SizedColumn, names, encodings, sizes))
        raw, packed = told["raw_data"], told["zip_data"]
        samples, size = int(told["samples"]), int(raw["bytes"])
        right = len(names) == len(encodings) == len(sizes) and told["format"] == "mds"
        right = right and samples >= 0 and size >= 0 and plain_name(raw["basename"])
    except (KeyError, TypeError, ValueError):
        right = False
    if not right or not all(isinstance(x, str) for one in columns for x in one[:2]):
        raise damaged(where, "a shard of its list is not described as MDS describes one")
    if place.size(raw["basename"]) is not None:
        found = place.size(raw["basename"])
        if found != size:
            raise place.damaged(raw["basename"], f"it has {found:,} bytes, its index says {size:,}")
        return SampleFile(raw["basename"], False, size, samples, columns)
    if not packed:
        raise place.damaged(raw["basename"], "it is missing")
    kind = str(told.get("compression")).partition(":")[0]
    if kind != "zstd":
        raise ConfigError(
            f"{where}: its shards are compressed with {kind!r}, allowed: zstd, or none. "
            "Decompress them (streaming keeps both with keep_zip=False), or write them again."
        )
    if not plain_name(packed.get("basename")) or place.size(packed["basename"]) is None:
        raise damaged(where, f"neither {raw['basename']} nor its compressed form is there")
    return SampleFile(packed["basename"], True, size, samples, columns)


def _ids(place: ForeignPlace, files: Sequence[SampleFile]) -> str:
    """The column of ids, the same in all shards."""
    columns = {file.columns for file in files}
    if len(columns) > 1:
        raise place.damaged(INDEX, "its shards differ in their columns")
    known = {one.name: one for one in next(iter(columns), ())}
    name = next((name for name in IDS if name in known), None)
    if name is None and files:
        raise ConfigError(
            f"{place.path}: its samples have {', '.join(known) or 'no columns'}, allowed: "
            f"{' or '.join(IDS)}. Text is tokenised by `tokenloom build`."
        )
    if name is not None:
        _dtype_of(place, known[name])
    return name or IDS[0]


def _columns(
    place: ForeignPlace, files: Sequence[SampleFile], notes: ExportNotes
) -> dict[str, str]:
    """Further per-token columns, name → dtype: those that we know, and those that we exported."""
    if not files:
        return {}
    wanted = {**COLUMNS, **notes.columns}
    known = {one.name: one for one in files[0].columns if one.encoding.startswith("ndarray")}
    for name in notes.columns:
        if name not in known:
            raise place.damaged(INDEX, f"its samples have no arrays {name} any more")
    return {name: dtype for name, dtype in wanted.items() if name in known}


def _dtype_of(place: ForeignPlace, column: SizedColumn) -> np.dtype[Any]:
    """The dtype of an array column; raises ConfigError if its values cannot be what it names."""
    kind, _, rest = column.encoding.partition(":")
    dtype, _, shape = rest.partition(":")
    if kind == "bytes":
        if place.said.dtype is None:
            raise ConfigError(
                f"{place.path}: its column {column.name} is bytes, and nothing says of what. Pass "
                "dtype=…, such as dtype='int64' for files that LLM Foundry wrote."
            )
        return np.dtype(place.said.dtype).newbyteorder("<")
    if kind != "ndarray" or not dtype or "," in shape:
        raise ConfigError(
            f"{place.path}: its column {column.name} is written as {column.encoding!r}, allowed: "
            "ndarray:DTYPE with one axis, or bytes. Write it again with its dtype named."
        )
    try:
        found = np.dtype(dtype).newbyteorder("<")
    except (TypeError, ValueError, SyntaxError):
        raise place.damaged(INDEX, f"its dtype {dtype!r} does not exist") from None
    kinds, allowed = ("iu", "integers") if column.name in IDS else ("biuf", "numbers")
    if found.kind not in kinds:
        raise ConfigError(
            f"{place.path}: its column {column.name} is written as {column.encoding!r}, allowed: "
            f"arrays of {allowed}. Write it again with such a dtype."
        )
    return found


def _values(place: ForeignPlace, name: str, file: SampleFile) -> NDArray[Any]:
    """All values of a column in a file, end to end."""
    raw = loaded(place, file)
    starts, lengths, dtype = _cells(place, file, raw, name)
    return gathered(raw, starts, lengths * dtype.itemsize).view(dtype)


def _cells(
    place: ForeignPlace, file: SampleFile, raw: Bytes, name: str
) -> tuple[Int64, Int64, np.dtype[Any]]:
    """Where the values of a column start, how many there are of each sample, and their dtype."""
    column = next(one for one in file.columns if one.name == name)
    dtype, (start, size) = _dtype_of(place, column), _spans(place, file, raw)[name]
    if column.encoding.count(":") == 1:  # an array that says its own length
        head = integers_at(raw, start, 1)
        width = 1 << (head & 3).astype(np.int64)
        if ((head >> 2) != 1).any() or (size < 1 + width).any():
            raise place.damaged(file.name, f"a sample's {name} is no array of one axis")
        length = np.zeros(len(start), np.int64)
        for bytes_ in (1, 2, 4, 8):
            these = width == bytes_
            length[these] = integers_at(raw, start[these] + 1, bytes_)
        start, size = start + 1 + width, size - 1 - width
        wrong = (length < 0) | (length > len(raw)) | (length * dtype.itemsize != size)
        if wrong.any():
            raise place.damaged(file.name, f"a sample's {name} has not the length it says")
    if (size % dtype.itemsize).any():
        raise place.damaged(file.name, f"a sample's {name} is no array of {dtype.name}")
    return start, size // dtype.itemsize, dtype


def _spans(place: ForeignPlace, file: SampleFile, raw: Bytes) -> dict[str, tuple[Int64, Int64]]:
    """Where each column of each sample starts, and its bytes."""
    starts = table_of(place, file, raw)
    free = [one for one in file.columns if not one.size]
    begin, stop = starts[:-1], starts[1:]
    if (stop - begin < 4 * len(free)).any():
        raise place.damaged(file.name, "a sample is shorter than its head")
    heads = {one.name: integers_at(raw, begin + 4 * i, 4) for i, one in enumerate(free)}
    at = begin + 4 * len(free)
    found = {}
    for column in file.columns:
        size = heads.get(column.name)
        size = np.full(len(begin), column.size, np.int64) if size is None else size
        found[column.name] = at, size
        at = at + size
    if (at != stop).any():
        raise place.damaged(file.name, "a sample is not as long as its columns")
    return found


def _metadata(
    place: ForeignPlace, files: Sequence[SampleFile], lengths: Sequence[Int64], taken: set[str]
) -> Callable[[int], dict[str, Any]] | None:
    """Gives what a sample has beside its arrays: text, numbers, JSON."""
    columns = files[0].columns if files else ()
    kept = [
        one
        for one in columns
        if one.name not in taken and (one.encoding in SCALARS or one.encoding in ("str", "json"))
    ]
    if not kept:
        return None
    edges = np.cumsum([0, *map(len, lengths)])

    @functools.lru_cache(maxsize=1)
    def opened(number: int) -> tuple[Bytes, dict[str, tuple[Int64, Int64]]]:
        raw = loaded(place, files[number])
        return raw, _spans(place, files[number], raw)

    def row(document: int) -> dict[str, Any]:
        number = int(np.searchsorted(edges, document, side="right")) - 1
        raw, spans = opened(number)
        found: dict[str, Any] = {}
        for column in kept:
            start, size = (int(one[document - edges[number]]) for one in spans[column.name])
            value = _scalar(place, column, raw[start : start + size].tobytes())
            if column.name == "metadata" and isinstance(value, dict):
                found |= value
            else:
                found[column.name] = value
        return {key: value for key, value in found.items() if key not in RESERVED}

    return row


def _scalar(place: ForeignPlace, column: SizedColumn, raw: bytes) -> Any:
    try:
        if column.encoding == "json":
            return fmt.read_json(raw)
        if column.encoding == "str":
            return raw.decode()
        return np.frombuffer(raw, SCALARS[column.encoding])[0].item()
    except (ValueError, IndexError, RecursionError) as error:
        raise place.damaged(INDEX, f"a sample's {column.name} is no {column.encoding}") from (error)
