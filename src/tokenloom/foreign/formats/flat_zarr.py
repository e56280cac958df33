"""Flat Zarr v3 arrays that others wrote: files of compressed inner chunks with an index.

One idea: an element is in inner chunk ``i // inner``, and the index of its file says where that
chunk is. A chunk that is not there has only the fill value; a whole file of such chunks is not
written, so nothing tells it from one that was lost (`FlatZarr.absent`). The declared shape is never
used, since writers declare room that they do not fill::

    c/0   | chunk | chunk | ... | outer / inner x (u64 offset, u64 bytes) | u32 crc32c |

Sizes are compared with the file, and what a compressed chunk says about itself with the size of a
chunk, before any memory is taken.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, MissingExtra
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.places import ForeignPlace
from tokenloom.store import zarr
from tokenloom.store.ahead import in_turn
from tokenloom.store.cache import BlockCache

Array = NDArray[Any]

MAX_METADATA = 1 << 20  # bytes

MAX_CHUNK = 1 << 28  # bytes of a decoded chunk

MAX_CHUNKS = 1 << 22  # inner chunks of a file

MISSING = (1 << 64) - 1

INDEX_BYTES = 64 << 20  # of indexes that are kept

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]

DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("bool", *INTEGERS, "float16", "float32", "float64")
}


class _Geometry(NamedTuple):
    """What a zarr.json says, as far as it is used."""

    dtype: np.dtype[Any]
    outer: int
    inner: int
    codecs: tuple[str, ...]
    fill: Any
    at_start: bool


class FlatZarr:
    """One array; elements beyond those that were written are the fill value.

    Args:
        place: where its files are.
        folder: its folder, relative to the place.
        geometry: what its zarr.json says.
    """

    def __init__(self, place: ForeignPlace, folder: str, geometry: _Geometry) -> None:
        self._place, self.folder, self._of = place, folder, geometry
        self._indexes = BlockCache(INDEX_BYTES)  # threads that need the same one ask once

    @property
    def dtype(self) -> np.dtype[Any]:
        """What its elements are."""
        return self._of.dtype

    @property
    def chunk(self) -> int:
        """Elements of an inner chunk."""
        return self._of.inner

    def files(self, elements: int) -> list[str]:
        """The files that hold the first elements, zarr.json included."""
        there = [self._file(number) for number in self._stored_files(elements)]
        return [f"{self.folder}/zarr.json", *there]

    def absent(self, elements: int) -> tuple[list[str], int]:
        """The files of the first elements that are not there, and how many elements are theirs.

        Ask after `missing`: a claim of many elements is a claim of many files.
        """
        there, outer = set(self._stored_files(elements)), self._of.outer
        numbers = [one for one in range(-(-elements // outer)) if one not in there]
        sizes = [min(outer, elements - one * outer) for one in numbers]
        return [self._file(one) for one in numbers], sum(sizes)

    def missing(self, elements: int) -> tuple[int, int]:
        """How many chunks of the first elements are not stored, and how many are."""
        needed, each = -(-elements // self._of.inner), self._of.outer // self._of.inner
        numbers, stored = self._stored_files(elements), 0
        size = zarr.index_bytes(each)
        makes = ((size, functools.partial(self._index, number)) for number in numbers)
        for number, index in zip(numbers, in_turn(makes, self._place.source), strict=True):
            if index is not None:
                stored += int((index[: needed - number * each, 1] != MISSING).sum())
        return needed - stored, stored

    def _stored_files(self, elements: int) -> list[int]:
        """The numbers of the files that are there; a claim of many costs nothing."""
        names = self._place.names(f"{self.folder}/c")
        numbers = sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]{0,15}", name))
        return [number for number in numbers if number * self._of.outer < elements]

    def read(self, low: int, high: int) -> Array:
        """Elements [low, high)."""
        out = np.empty(high - low, self.dtype)
        inner = self._of.inner
        chunks = range(low // inner, -(-high // inner))
        makes = ((inner * out.itemsize, functools.partial(self._decoded, one)) for one in chunks)
        for chunk, values in zip(chunks, in_turn(makes, self._place.source), strict=True):
            first = chunk * inner
            begin, end = max(low, first), min(high, first + inner)
            out[begin - low : end - low] = values[begin - first : end - first]
        return out

    def _file(self, number: int) -> str:
        return f"{self.folder}/c/{number}"

    def _where(self, number: int) -> str:
        return self._place.where(self._file(number))

    def _decoded(self, chunk: int) -> Array:
        """The elements of an inner chunk."""
        of = self._of
        number, inside = divmod(chunk, of.outer // of.inner)
        index = self._index(number)
        if index is None or index[inside, 1] == MISSING:
            return np.broadcast_to(np.asarray(of.fill, of.dtype), of.inner)
        offset, size = index[inside].tolist()
        raw = self._place.bytes(self._file(number), offset, offset + size)
        body = raw
        for codec in reversed(of.codecs):
            body, wrong = DECODERS[codec](body, of.inner * of.dtype.itemsize)
            if wrong:
                raise damaged(self._where(number), f"inner chunk {inside:,}: {wrong}")
        if body.nbytes != of.inner * of.dtype.itemsize:
            what = f"inner chunk {inside:,} has {body.nbytes:,} bytes"
            raise damaged(self._where(number), what)
        found: Array = body.view(of.dtype)
        return found

    def _index(self, number: int) -> NDArray[np.uint64] | None:
        """(offset, bytes) of the inner chunks of a file; None if there is no such file."""
        found: Array = self._indexes.get(number, functools.partial(self._read_index, number))
        return found if len(found) else None

    def _read_index(self, number: int) -> Array:
        name = self._file(number)
        size = self._place.size(name)
        if size is None:
            return np.empty((0, 2), np.uint64)
        chunks = self._of.outer // self._of.inner
        length = zarr.index_bytes(chunks)
        first = 0 if self._of.at_start else size - length
        if size < length:
            raise damaged(
                self._where(number), f"{size:,} bytes are less than its index of {length:,}"
            )
        raw = self._place.bytes(name, first, first + length).tobytes()
        if zarr.crc32c(raw[: -zarr.CRC]) != int.from_bytes(raw[-zarr.CRC :], "little"):
            raise damaged(self._where(number), "the crc32c of its index does not match")
        index = np.frombuffer(raw[: -zarr.CRC], "<u8").reshape(-1, 2)
        stored = index[index[:, 1] != MISSING]
        if (stored > size).any() or (stored.sum(axis=1) > size).any():
            raise damaged(self._where(number), "its index points outside of the file")
        return index


Decoded = tuple[NDArray[np.uint8], str]
"""The bytes, and what is wrong with them, if anything."""


def _uncheck(raw: NDArray[np.uint8], size: int) -> Decoded:
    """Bytes without the crc32c at their end."""
    body, tail = np.ascontiguousarray(raw[: -zarr.CRC]), raw[-zarr.CRC :].tobytes()
    agrees = zarr.crc32c(body) == int.from_bytes(tail, "little")
    return body, "" if agrees else "its crc32c does not match"


def _unzstd(raw: NDArray[np.uint8], size: int) -> Decoded:
    """A zstd frame, if it says that it has `size` bytes."""
    data = raw.tobytes()
    try:
        if zstandard.frame_content_size(data) != size:
            return raw, "its zstd frame has another size than a chunk"
        whole = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        return raw, f"zstd: {error}"
    return np.frombuffer(whole, np.uint8), ""


def _unblosc(raw: NDArray[np.uint8], size: int) -> Decoded:
    """A blosc buffer, if its header says that it has `size` bytes."""
    try:
        from numcodecs.blosc import decompress
    except ImportError:
        raise MissingExtra("Reading blosc chunks", "numcodecs", "levanter") from None
    if len(raw) < 16:
        return raw, f"{len(raw)} bytes are less than a blosc header"
    claimed, block, stored = raw[4:16].view("<u4").tolist()
    if claimed != size or stored != len(raw) or block > size:
        said, found = f"{claimed:,} bytes in {stored:,}", f"{size:,} in {len(raw):,}"
        return raw, f"its blosc header says {said}, and they are {found}"
    out = np.empty(size, np.uint8)
    try:
        decompress(np.ascontiguousarray(raw), out)
    except (ValueError, RuntimeError) as error:
        return raw, f"blosc: {error}"
    return out, ""


DECODERS = {"blosc": _unblosc, "zstd": _unzstd, "crc32c": _uncheck}


def open_flat_zarr(place: ForeignPlace, folder: str) -> FlatZarr:
    """The array in a folder of a place.

    Raises:
        ConfigError: it is stored in a way that is not read here.
        StoreCorrupt: its zarr.json is missing or cannot be right.
    """
    name = f"{folder}/zarr.json"
    where, found = place.where(name), place.json(name, MAX_METADATA)
    try:
        geometry = _geometry(found)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise damaged(where, f"it is no zarr.json of a flat array ({error!r:.100})") from None
    if geometry is None:
        raise ConfigError(
            f"{where}: found codecs {found.get('codecs')!s:.200}, allowed: sharding_indexed over "
            f"chunks that are little-endian bytes, with {', '.join(DECODERS)} or nothing. Write "
            "the cache again with the settings of Levanter."
        )
    _check_sizes(where, geometry)
    return FlatZarr(place, folder, geometry)


def _check_sizes(where: str, of: _Geometry) -> None:
    """Refuse chunks that nobody writes, before any memory is taken for one."""
    good = isinstance(of.outer, int) and isinstance(of.inner, int) and 0 < of.inner <= of.outer
    fits = good and of.outer // of.inner <= MAX_CHUNKS and of.inner * of.dtype.itemsize <= MAX_CHUNK
    if not fits or of.outer % of.inner:
        raise damaged(where, f"it has chunks of {of.inner!r:.40} in files of {of.outer!r:.40}")


def _geometry(found: Any) -> _Geometry | None:
    """What a zarr.json says; None if it is stored otherwise."""
    (sharding,) = found["codecs"]
    if found["zarr_format"] != 3 or sharding["name"] != "sharding_indexed":
        return None
    if found["chunk_key_encoding"]["name"] != "default" or _separator(found) != "/":
        return None
    settings = sharding["configuration"]
    (outer,) = found["chunk_grid"]["configuration"]["chunk_shape"]
    (inner,) = settings["chunk_shape"]
    dtype = DTYPES[found["data_type"]]
    first, *others = settings["codecs"]
    little = {"endian": "little"}
    index = [(one["name"], one.get("configuration", {})) for one in settings["index_codecs"]]
    plain = first["name"] == "bytes" and first.get("configuration", little) == little
    names = tuple(str(one["name"]) for one in others)
    if (
        not plain
        or index != [("bytes", little), ("crc32c", {})]
        or not set(names) <= DECODERS.keys()
    ):
        return None
    if any(a != "crc32c" and b != "crc32c" for a, b in itertools.pairwise(names)):
        return None  # two compressions, one of the other's bytes
    at_start = settings.get("index_location", "end") == "start"
    return _Geometry(dtype, outer, inner, names, found["fill_value"], at_start)


def _separator(found: Any) -> str:
    return str(found["chunk_key_encoding"].get("configuration", {}).get("separator", "/"))
