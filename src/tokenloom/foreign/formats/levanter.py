"""Levanter's caches: a ledger, and per leaf a flat array of values and one of offsets.

::

    shard_ledger.json                what is finished, and how much
    input_ids/data, input_ids/offsets
    assistant_masks/...              a column: what was said by the assistant
    loss_weights/...                 a column: the weight of the prediction after each token

``offsets[0]`` is the number of rows and ``offsets[i]`` the end of row i - 1; whatever lies beyond
was not committed. In the layout "sharded" the top folder has only a ledger, which names folders
that are caches of their own, end to end.

Stored loss columns here weight the prediction *of* a token (`loss_mask`, `loss_weights`).
`assistant_masks` has that meaning already; `loss_weights` is moved by one token along the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.bind import BindError, bind
from tokenloom.errors import ConfigError, StoreCorrupt, StoreError, plural
from tokenloom.foreign.described import Described, ForeignColumn
from tokenloom.foreign.formats.flat_zarr import FlatZarr, open_flat_zarr
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.pieces import CodedPiece
from tokenloom.foreign.places import LEDGER, ForeignPlace
from tokenloom.store import format as fmt

Array = NDArray[Any]

Int64 = NDArray[np.int64]

IDS, MASKS, WEIGHTS = "input_ids", "assistant_masks", "loss_weights"

SPARE = 1024  # chunks that may be missing beside as many as are stored


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ledger:
    """A ledger; other keys may come with newer versions and are not looked at."""

    total_num_rows: int
    shard_rows: dict[str, int] = field(default_factory=dict)
    is_finished: bool = False
    finished_shards: tuple[str, ...] = ()
    field_counts: dict[str, int] = field(default_factory=dict)
    field_counts_by_shard: dict[str, dict[str, int]] = field(default_factory=dict)
    layout: str = "consolidated"
    metadata: Any = None


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf of one cache folder.

    Attributes:
        values: its elements.
        offsets: where its rows end.
        rows: number of rows.
        elements: number of elements of all rows.
    """

    values: FlatZarr
    offsets: FlatZarr
    rows: int
    elements: int

    def lengths(self) -> Int64:
        """Elements of every row."""
        ends = self.offsets.read(0, self.rows + 1).astype(np.int64)
        ends[0] = 0
        return np.diff(ends)

    def files(self) -> list[str]:
        """Its files that are read."""
        return [*self.values.files(self.elements), *self.offsets.files(self.rows + 1)]


def describe_levanter(place: ForeignPlace) -> Described | None:
    """The cache in a folder, or that of which the ledger is named."""
    if not place.is_named(LEDGER) or place.size(LEDGER) is None:
        return None
    if not place.folder.lists:
        raise StoreError(
            f"{place.path}: found a cache of Levanter on a server that lists no names, and no file "
            "of it says which of its chunks are stored. Use a bucket (s3://, gs://, az://) or a "
            "copy on a disk."
        )
    ledger = _read_ledger(place, "")
    shards = _shards(place, ledger)
    ids = [_opened(place, folder, IDS, rows) for folder, rows in shards]
    _check_counts(place, ledger, shards, ids)
    if place.said.missing is None:
        _refuse_absent(place, ids)
    columns: dict[str, ForeignColumn] = {}
    read, doubts = ids, _absent_note(IDS, ids)
    for leaf, make in ((MASKS, _masks), (WEIGHTS, _weights)):
        lacking = [f for f, _ in shards if place.size(f"{f}{leaf}/data/zarr.json") is None]
        if lacking and len(lacking) < len(shards):
            raise place.damaged(f"{lacking[0]}{leaf}", "it is missing, and other shards have it")
        if not lacking:
            found = [_opened(place, folder, leaf, rows) for folder, rows in shards]
            columns |= make(found)
            read, doubts = read + found, doubts + _absent_note(leaf, found)
    ledgers = [LEDGER, *(f"{folder}{LEDGER}" for folder, _ in shards if folder)]
    return Described(
        kind="levanter",
        folder=place.folder,
        files=(*ledgers, *(name for leaf in read for name in leaf.files())),
        tokens=tuple(map(_piece, ids)),
        lengths=lambda: _lengths(place, ids, read),
        columns=columns,
        notes=tuple(_notes(place, ledger, shards[0][0])),
        doubts=tuple(doubts),
    )


# -- the ledger ----------------------------------------------------------------------------------
def _read_ledger(place: ForeignPlace, folder: str) -> _Ledger:
    where = place.where(f"{folder}{LEDGER}")
    try:
        ledger = bind(_Ledger, place.json(f"{folder}{LEDGER}"), unknown="ignore")
    except BindError as error:
        raise damaged(where, f"it is no ledger ({error!s:.200})") from None
    if not ledger.is_finished:
        raise ConfigError(
            f"{where}: found is_finished false, allowed: true. This cache is still being built, or "
            "its build failed; let Levanter finish it."
        )
    if ledger.layout not in ("consolidated", "sharded"):
        raise ConfigError(
            f"{where}: found layout {ledger.layout!r:.40}, allowed: consolidated, sharded. A newer "
            "Levanter wrote it; update tokenloom."
        )
    if ledger.total_num_rows < 0:
        raise damaged(where, f"it says {ledger.total_num_rows:,} rows")
    return ledger


def _shards(place: ForeignPlace, ledger: _Ledger) -> list[tuple[str, int]]:
    """(folder, rows) of every cache that has arrays, in order; the top folder is ""."""
    where = place.where(LEDGER)
    if ledger.layout == "consolidated":
        return [("", ledger.total_num_rows)]
    names = ledger.finished_shards
    if len(set(names)) != len(names):
        raise damaged(where, "it names a shard twice")
    found = []
    for name in names:
        parts = name.split("/")
        if "://" in name or "\0" in name or "\\" in name or not all(parts) or ".." in parts:
            raise damaged(where, f"its shard {name!r:.100} is not a folder below it")
        rows = ledger.shard_rows.get(name, -1)
        own = _read_ledger(place, f"{name}/")
        if rows < 0 or own.total_num_rows != rows or own.layout != "consolidated":
            raise damaged(
                where, f"it has {rows:,} rows for shard {name}, which says {own.total_num_rows:,}"
            )
        found.append((f"{name}/", rows))
    total = sum(rows for _, rows in found)
    if total != ledger.total_num_rows:
        raise damaged(
            where, f"its shards have {total:,} rows and it says {ledger.total_num_rows:,}"
        )
    if not found:
        raise damaged(where, "it names no shard")
    return found


def _check_counts(
    place: ForeignPlace, ledger: _Ledger, shards: Sequence[tuple[str, int]], ids: Sequence[_Leaf]
) -> None:
    """Compare elements with the counts of a ledger, which older ones do not have."""
    where = place.where(LEDGER)
    for (folder, _), leaf in zip(shards, ids, strict=True):
        counts = ledger.field_counts_by_shard.get(folder.rstrip("/"), {}) if folder else {}
        wanted = counts.get(IDS, leaf.elements)
        if wanted != leaf.elements:
            raise damaged(where, f"shard {folder} has {leaf.elements:,} ids, not {wanted:,}")
    total = sum(leaf.elements for leaf in ids)
    wanted = ledger.field_counts.get(IDS, total)
    if wanted != total:
        raise damaged(where, f"there are {total:,} ids and it says {wanted:,}")


def _notes(place: ForeignPlace, ledger: _Ledger, folder: str) -> list[str]:
    """What is worth telling: what made the cache, and leaves that are not read."""
    whole = ledger.metadata if isinstance(ledger.metadata, dict) else {}
    made = whole.get("preprocessor_metadata")
    tokenizer = made.get("tokenizer") if isinstance(made, dict) else None
    told = []
    if isinstance(tokenizer, str):
        told.append(f"its tokenizer was {tokenizer!r:.100}, which it does not hold")
    others = [
        name
        for name in place.names(folder)
        if name not in (IDS, MASKS, WEIGHTS)
        and place.size(f"{folder}{name}/data/zarr.json") is not None
    ]
    if others:
        told.append(f"its leaves {', '.join(others)} are not read")
    return told


# -- leaves --------------------------------------------------------------------------------------
def _opened(place: ForeignPlace, folder: str, name: str, rows: int) -> _Leaf:
    """A leaf of a cache folder; only the ends of its offsets are read."""
    values = open_flat_zarr(place, f"{folder}{name}/data")
    offsets = open_flat_zarr(place, f"{folder}{name}/offsets")
    where = place.where(f"{folder}{name}")
    if place.size(f"{folder}{name}/shapes/zarr.json") is not None:
        raise ConfigError(
            f"{where}: its rows have shapes, allowed: flat rows. Such leaves are not token columns."
        )
    if offsets.dtype != np.dtype("<i8"):
        raise damaged(where, f"its offsets are {offsets.dtype}, allowed: int64")
    stored = int(offsets.read(0, 1)[0])
    if stored != rows:
        raise damaged(where, f"it has {stored:,} rows and the ledger says {rows:,}")
    _check_stored(where, "offsets", offsets, rows + 1)
    elements = int(offsets.read(rows, rows + 1)[0]) if rows else 0
    if elements < 0:
        raise damaged(where, f"its rows end at {elements:,}")
    _check_stored(where, "values", values, elements)
    return _Leaf(values, offsets, rows, elements)


def _check_stored(where: str, what: str, array: FlatZarr, elements: int) -> None:
    """Refuse a claim of elements of which next to nothing is stored."""
    missing, stored = array.missing(elements)
    if missing > SPARE + stored:
        raise damaged(where, f"{missing:,} chunks of its {what} are missing, {stored:,} are there")


def _absent(leaves: Sequence[_Leaf]) -> tuple[list[str], int]:
    """Files of values that are missing inside of what was committed, and how many values of them.

    TensorStore writes no file whose elements are all 0, so this can be meant; a copy that was not
    finished looks the same.
    """
    found = [leaf.values.absent(leaf.elements) for leaf in leaves]
    return [name for names, _ in found for name in names], sum(count for _, count in found)


def _refuse_absent(place: ForeignPlace, ids: Sequence[_Leaf]) -> None:
    """Refuse ids that are missing: nobody has a file of ids that are all 0 without knowing it."""
    names, count = _absent(ids)
    if names:
        more = f" and {plural(len(names) - 1, 'other file')}" if len(names) > 1 else ""
        raise StoreCorrupt(
            f"{place.where(names[0])}{more}: {count:,} ids should be there, and there is no file. "
            "Restore it from a copy; if these ids are all 0, which TensorStore does not store, say "
            'so (`missing="zeros"`).'
        )


def _absent_note(leaf: str, leaves: Sequence[_Leaf]) -> list[str]:
    names, count = _absent(leaves)
    files = plural(len(names), "file")
    return [f"{files} of {leaf} missing: {count:,} values are read as 0"] if names else []


def _piece(leaf: _Leaf) -> CodedPiece:
    if leaf.values.dtype.kind not in "iu":
        raise damaged(leaf.values.folder, f"its ids are {leaf.values.dtype}, allowed: integers")
    name = leaf.values.folder
    return CodedPiece(
        file=name, elements=leaf.elements, decode=leaf.values.read, chunk=leaf.values.chunk
    )


def _lengths(place: ForeignPlace, ids: Sequence[_Leaf], leaves: Sequence[_Leaf]) -> Int64:
    """Tokens of every row; all leaves must have rows of the same lengths."""
    found = np.concatenate([np.empty(0, np.int64), *(leaf.lengths() for leaf in ids)])
    for first in range(len(ids), len(leaves), len(ids)):
        others = leaves[first : first + len(ids)]
        lengths = [leaf.lengths() for leaf in others]
        if not np.array_equal(np.concatenate([np.empty(0, np.int64), *lengths]), found):
            where = place.where(others[0].values.folder)
            raise damaged(where, "its rows have other lengths than those of input_ids")
    return found


def _masks(leaves: Sequence[_Leaf]) -> dict[str, ForeignColumn]:
    """`assistant_masks` as our `loss_mask`."""
    pieces = tuple(_column_piece(leaf, leaf.values.read) for leaf in leaves)
    return {"loss_mask": ForeignColumn(dtype="uint8", pieces=pieces)}


def _weights(leaves: Sequence[_Leaf]) -> dict[str, ForeignColumn]:
    """`loss_weights` as ours, which are those of the token before."""

    def before(number: int) -> Array:
        """The last weight before a shard; there is none before the first."""
        for leaf in reversed(leaves[:number]):
            if leaf.elements:
                return leaf.values.read(leaf.elements - 1, leaf.elements)
        return np.zeros(1, np.float32)

    def made(number: int, leaf: _Leaf) -> CodedPiece:
        def decode(low: int, high: int) -> Array:
            values = leaf.values.read(max(low - 1, 0), high - 1)
            if not low:
                values = np.concatenate([before(number), values])
            return values

        return _column_piece(leaf, decode)

    wide = any(leaf.values.dtype == np.float64 for leaf in leaves)
    pieces = tuple(made(number, leaf) for number, leaf in enumerate(leaves))
    dtype = "float64" if wide else "float32"
    return {"loss_weights": ForeignColumn(dtype=dtype, pieces=pieces)}


def _column_piece(leaf: _Leaf, decode: Any) -> CodedPiece:
    size = min(leaf.values.chunk, fmt.CHUNK_TOKENS)
    return CodedPiece(file=leaf.values.folder, elements=leaf.elements, decode=decode, chunk=size)
