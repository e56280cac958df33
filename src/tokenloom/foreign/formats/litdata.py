"""LitData chunks of token arrays.

A chunk of a `TokensLoader` has bare tokens after its table of samples, so it is read in place, by
the same loops as a store of our own. A chunk of the default loader has u32 bytes before each sample
and is decoded whole. One leaf, `no_header_tensor` or `no_header_numpy`, uncompressed; everything
else is refused with the reason.

One idea: a sample is a document, and the table is the document index.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Described
from tokenloom.foreign.formats.sample_files import (
    INDEX,
    SampleFile,
    cached_lengths,
    coded_pieces,
    files_of_index,
    gathered,
    head_of,
    index_of,
    integers_at,
    joined_lengths,
    loaded,
    table_of,
)
from tokenloom.foreign.pieces import Piece, RawPiece
from tokenloom.foreign.places import ForeignPlace, plain_name

Int64 = NDArray[np.int64]

# by their number in an index; torch has two words for some
TORCH = {11: "u1", 12: "i1", 13: "<i2", 14: "<i2", 15: "<i4", 16: "<i4", 17: "<i8", 18: "<i8"}
TORCH |= {20: "<u2"}
NUMPY = dict(enumerate(("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8")))


def describe_litdata(place: ForeignPlace) -> Described | None:
    """The LitData chunks in a folder."""
    index = index_of(place, "chunks")
    if index is None:
        return None
    config = index.get("config")
    if not isinstance(config, dict):
        raise place.damaged(INDEX, "it has no config")
    dtype = _dtype(place, config)
    bare = config.get("item_loader") == "TokensLoader"
    files = files_of_index(place, index, "chunks", _file)
    names = (INDEX, *(one.name for one in files))
    item, head = dtype.itemsize, 0 if bare else 4

    def count(file: SampleFile) -> Int64:
        sizes = np.diff(table_of(place, file, head_of(place, file))) - head
        if (sizes % item).any() or (sizes < 0).any():
            raise place.damaged(file.name, f"a sample is no array of {dtype.name}")
        return sizes // item

    counts = ((4 * one.samples, functools.partial(count, one)) for one in files)
    lengths = cached_lengths(place, "litdata", names, counts)
    if bare:
        tokens: tuple[Piece, ...] = tuple(
            RawPiece(
                file=file.name,
                first_byte=4 * (file.samples + 2),
                elements=int(found.sum()),
                dtype=dtype.str,
            )
            for file, found in zip(files, lengths, strict=True)
        )
    else:
        tokens = coded_pieces(files, lengths, functools.partial(_values, place, dtype))
    return Described(
        kind="litdata",
        folder=place.folder,
        files=names,
        tokens=tokens,
        lengths=lambda: joined_lengths(lengths),
    )


def _dtype(place: ForeignPlace, config: dict[str, Any]) -> np.dtype[Any]:
    for key in ("compression", "compression_level", "encryption"):
        if config.get(key):
            raise ConfigError(
                f"{place.path}: found {key} {config[key]!r:.80} in its index, allowed: none. Write "
                f"the chunks without {key}."
            )
    found = config.get("data_format")
    known = {"no_header_tensor": TORCH, "no_header_numpy": NUMPY}
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], str):
        kind, _, number = found[0].partition(":")
        if kind in known and number.isdigit() and int(number) in known[kind]:
            return np.dtype(known[kind][int(number)])
    raise ConfigError(
        f"{place.path}: found samples of {found!r:.200}, allowed: one array of integers "
        "(no_header_tensor or no_header_numpy), as a TokensLoader wants it."
    )


def _file(place: ForeignPlace, told: dict[str, Any]) -> SampleFile:
    name, samples, size = (told.get(key) for key in ("filename", "chunk_size", "chunk_bytes"))
    if not (plain_name(name) and isinstance(samples, int) and isinstance(size, int)) or samples < 0:
        raise place.damaged(INDEX, "a chunk of its list is not described as LitData does")
    found = place.size(str(name))
    if found != size:
        what = "is missing" if found is None else f"has {found:,} bytes"
        raise place.damaged(str(name), f"it {what}, its index says {size:,} bytes")
    return SampleFile(str(name), False, size, samples, ())


def _values(place: ForeignPlace, dtype: np.dtype[Any], file: SampleFile) -> NDArray[Any]:
    raw = loaded(place, file)
    starts = table_of(place, file, raw)
    sizes = np.diff(starts) - 4
    if (integers_at(raw, starts[:-1], 4) != sizes).any():
        raise place.damaged(file.name, "a sample is not as long as its head says")
    return gathered(raw, starts[:-1] + 4, sizes).view(dtype)
