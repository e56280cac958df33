"""Rows with lists of ids: Parquet, Arrow files, and Hugging Face datasets saved to disk.

A row is a document. `input_ids` is a list of integers; `loss_mask`, `loss_weights`,
`assistant_masks`, `completion_mask` or `labels` (−100: not trained on) say which tokens count; the
other columns are metadata. An `attention_mask` must be all ones: rows that were padded are no
documents.

One idea: a row group, or a record batch, is a piece, and is decoded whole. Which rows have how many
tokens is found in one pass and remembered (`tokenloom.foreign.formats.sample_files`).

Arrow files are mapped, not read: a batch of an uncompressed file costs no copy. In a bucket a row
group or a batch is read when it is asked for. An Arrow file with a footer says where its batches
are; one without (a stream, as `datasets` writes it) is a row of messages, each with its length at
its start, so that one request per message finds the places of all batches::

    FFFFFFFF | u32 bytes of what follows | a table with the kind and the bytes of the body | body
"""

from __future__ import annotations

import functools
import importlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, MissingExtra, StoreError
from tokenloom.foreign.described import Described, ForeignColumn
from tokenloom.foreign.export_notes import ExportNotes, parsed_notes
from tokenloom.foreign.formats.sample_files import cached_lengths, joined_lengths, refuse_twice
from tokenloom.foreign.formats.series import SUFFIXES, refuse_others
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.pieces import CodedPiece, Piece
from tokenloom.foreign.places import ForeignPlace, plain_name
from tokenloom.store import format as fmt
from tokenloom.store.ahead import in_turn
from tokenloom.store.metadata import RESERVED

Int64 = NDArray[np.int64]

STATE = "state.json"

MASKS = ("loss_mask", "assistant_masks", "completion_mask", "labels")  # one at most is taken

PADDING = "attention_mask"

INTEGER_COLUMNS = ("input_ids", "labels")

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]  # of Arrow

FLOATS = ("halffloat", "float", "double")

IGNORED = -100

MARK = b"tokenloom"

FOOTER = 1 << 20  # bytes that are set aside for what a file says of itself

ARROW = b"ARROW1"  # the start of a file with a footer

LOOKED = 4096  # bytes of a message that are asked for first; most have fewer before their body

MOST = 1 << 26  # bytes of a message before its body

HEAD = struct.Struct("<II")

MESSAGE = 0xFFFFFFFF

BATCH = 3  # the kind of a message that is a record batch


class _Group(NamedTuple):
    """Some rows of a file that are decoded together: a row group, or a record batch."""

    file: str
    number: int


class _Rows(NamedTuple):
    """What reads the rows of files.

    Attributes:
        place: where the files are.
        schema: what the columns are, of one file.
        groups: all groups of rows, in order.
        read: gives some columns of a group as an Arrow table or batch.
        validate: looks at every byte of a group; Arrow trusts what it maps, and crashes on less.
    """

    place: ForeignPlace
    schema: Any
    groups: list[_Group]
    read: Callable[[_Group, list[str]], Any]
    validate: Callable[[_Group], None]


def describe_parquet(place: ForeignPlace) -> Described | None:
    """The Parquet file at a path, or all Parquet files in a folder, in order of name."""
    files = _files(place, "parquet")
    if not files:
        return None
    pq = _arrow(place, "pyarrow.parquet")

    footers: dict[str, Any] = {}  # two threads may read one: the same answer twice

    def opened(name: str) -> Any:
        known, file = footers.get(name), place.folder.as_file(name)
        found = pq.ParquetFile(file, metadata=known, page_checksum_verification=True)
        footers[name] = found.metadata
        return found

    def read(group: _Group, columns: list[str]) -> Any:
        return opened(group.file).read_row_group(group.number, columns=columns)

    groups = _groups(place, files, lambda n: opened(n).num_row_groups)
    schema = _guarded(place, files[0], lambda n: _readable(opened(n).schema_arrow))
    rows = _Rows(place, schema, groups, read, validate=lambda _: None)  # decoded, not mapped
    return _described(rows, "parquet", tuple(files))


def describe_arrow(place: ForeignPlace) -> Described | None:
    """The Arrow file at a path, those in a folder, or a dataset that was saved there."""
    saved = _saved(place)
    files = _files(place, "arrow") if saved is None else saved
    if not files:
        return None
    # two threads may open the same file: the same answer twice
    opened = functools.cache(functools.partial(_batches, place, _arrow(place, "pyarrow")))

    def batch(group: _Group) -> Any:
        found = opened(group.file).read(group.number)
        if found.num_rows < 0:
            raise place.damaged(group.file, f"a batch has {found.num_rows:,} rows")
        found.validate()
        return found

    def read(group: _Group, columns: list[str]) -> Any:
        return batch(group).select(columns)

    groups = _groups(place, files, lambda n: opened(n).total)
    schema = _guarded(place, files[0], lambda n: _readable(opened(n).schema))
    rows = _Rows(place, schema, groups, read, validate=lambda g: batch(g).validate(full=True))
    return _described(rows, "arrow", (*files, *([STATE] if saved else [])))


# -- which files -----------------------------------------------------------------------------


def _files(place: ForeignPlace, kind: str) -> list[str]:
    names = place.names() if place.is_folder else [place.name]
    found = [
        name for name in names if name.endswith(SUFFIXES[kind]) and place.size(name) is not None
    ]
    if found:
        refuse_others(place, kind, found)
    return found


def _saved(place: ForeignPlace) -> list[str] | None:
    """The files of a dataset that was saved to a folder; None if there is none."""
    if not place.is_named(STATE):
        return None
    if place.size("dataset_dict.json") is not None:
        splits = place.json("dataset_dict.json").get("splits")
        raise ConfigError(
            f"{place.path}: found a DatasetDict with the splits {splits!r:.200}, allowed: one of "
            "them. Name its folder."
        )
    state = place.json(STATE) if place.size(STATE) is not None else {}
    if "_data_files" not in state:
        return None
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise ConfigError(
            f"{place.path}: it is a selection of rows (_indices_files), which is not read in "
            "place. Save it again after flatten_indices()."
        )
    try:
        names = [one["filename"] for one in state["_data_files"]]
    except (TypeError, KeyError):
        names = [None]
    if not all(map(plain_name, names)):
        raise place.damaged(STATE, "its list of files names no files of this folder")
    refuse_twice(place, STATE, names)
    missing = [name for name in names if place.size(name) is None]
    if missing:
        raise place.damaged(missing[0], "it is missing")
    return names


def _guarded(place: ForeignPlace, name: str, ask: Callable[[str], Any]) -> Any:
    """What a file answers; whatever Arrow says against it is damage."""
    pa = _arrow(place, "pyarrow")
    try:
        return ask(name)
    except StoreError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise place.damaged(name, f"Arrow cannot read it ({str(error)[:200]})") from error


def _readable(schema: Any) -> Any:
    """The same; names of columns are decoded when they are asked for, and may be no text."""
    _ = schema.names
    return schema


def _groups(place: ForeignPlace, files: Sequence[str], count: Callable[[str], int]) -> list[_Group]:
    """The groups of all files; several files are asked at the same time if in a bucket."""
    makes = ((FOOTER, functools.partial(_guarded, place, name, count)) for name in files)
    counts = zip(files, in_turn(makes, place.source), strict=True)
    return [_Group(name, i) for name, many in counts for i in range(many)]


# -- what is in them -------------------------------------------------------------------------


def _described(rows: _Rows, kind: str, files: tuple[str, ...]) -> Described:
    place, notes = rows.place, _notes(rows, files[0])
    _check_ids(rows)
    columns = _columns(rows, notes)
    lengths = cached_lengths(place, kind, files, _counts(rows, columns))
    further = {
        name: ForeignColumn(
            dtype=dtype, pieces=_pieces(rows, lengths, functools.partial(_flat, rows, column))
        )
        for name, (column, dtype) in columns.items()
    }
    read = {"input_ids", PADDING, *(column for column, _ in columns.values())}
    others = [name for name in rows.schema.names if name not in read | RESERVED]
    return Described(
        kind=kind,
        folder=place.folder,
        files=files,
        tokens=_pieces(rows, lengths, functools.partial(_flat, rows, "input_ids")),
        lengths=lambda: joined_lengths(lengths),
        columns=further,
        vocab_size=notes.vocab_size,
        metadata=_Metadata(rows, lengths, others).row if others else None,
    )


def _notes(rows: _Rows, file: str) -> ExportNotes:
    """What an export by tokenloom says about itself; nothing for files that others wrote."""
    return parsed_notes(rows.place.where(file), (rows.schema.metadata or {}).get(MARK, b"{}"))


def _check_ids(rows: _Rows) -> None:
    names, place = rows.schema.names, rows.place
    if "input_ids" not in names:
        raise ConfigError(
            f"{place.path}: its columns are {', '.join(names)[:200]}, allowed: rows with "
            "input_ids, a list of integers. Text is tokenised by `tokenloom build`."
        )
    for name in ("input_ids", PADDING, "loss_weights", *MASKS):
        if name in names and not _can_hold(rows.schema.field(name).type, name):
            raise ConfigError(
                f"{place.path}: its column {name} is {rows.schema.field(name).type}, allowed: a "
                f"list of {'integers' if name in INTEGER_COLUMNS else 'numbers'} for each row."
            )


def _can_hold(kind: Any, name: str) -> bool:
    """Whether an Arrow type is a list of what a column of this name holds."""
    form, _, _ = str(kind).partition("<")
    if form not in ("list", "large_list", "fixed_size_list"):
        return False
    inner = str(kind.value_type)
    if name in INTEGER_COLUMNS:
        return inner in INTEGERS
    return inner in (*INTEGERS, "bool") or (name not in (PADDING, *MASKS) and inner in FLOATS)


def _columns(rows: _Rows, notes: ExportNotes) -> dict[str, tuple[str, str]]:
    """Further per-token columns: our name → (theirs, dtype)."""
    names = rows.schema.names
    found = {name: (name, dtype) for name, dtype in notes.columns.items() if name in names}
    masks = [name for name in MASKS if name in names]
    if len(masks) > 1:
        raise ConfigError(
            f"{rows.place.path}: {' and '.join(masks)} both say which tokens are trained on, "
            "allowed: one of them. Drop a column, or build the rows (`tokenloom build`)."
        )
    if masks:
        found.setdefault("loss_mask", (masks[0], "uint8"))
    if "loss_weights" in names:
        found.setdefault("loss_weights", ("loss_weights", "float32"))
    return found


def _counts(
    rows: _Rows, columns: dict[str, tuple[str, str]]
) -> Iterator[tuple[int, Callable[[], Int64]]]:
    """For each group about how large it is, and what gives its lengths."""
    beside = [name for name, _ in columns.values()]
    beside += [PADDING] if PADDING in rows.schema.names else []
    groups = Counter(group.file for group in rows.groups)
    for group in rows.groups:
        size = (rows.place.size(group.file) or 0) // groups[group.file]
        yield size, functools.partial(_count, rows, group, beside)


def _count(rows: _Rows, group: _Group, beside: list[str]) -> Int64:
    """The lengths of a group; what is beside the ids is compared with them."""
    _guarded(rows.place, group.file, lambda _: rows.validate(group))
    lengths = _lengths(rows, group, _column(rows, group, "input_ids"))
    for name in beside:
        _check_beside(rows, group, name, lengths)
    return lengths


def _lengths(rows: _Rows, group: _Group, column: Any) -> Int64:
    pc = _arrow(rows.place, "pyarrow.compute")
    found = pc.list_value_length(column)
    if found.null_count:
        row = np.flatnonzero(np.asarray(found.is_null()))[0]
        raise rows.place.damaged(group.file, f"row {row} of group {group.number} is null")
    return np.asarray(found).astype(np.int64)


def _check_beside(rows: _Rows, group: _Group, name: str, lengths: Int64) -> None:
    """Refuse a column that does not fit the ids, and what they could not mean."""
    column = _column(rows, group, name)
    where = f"{rows.place.where(group.file)}: group {group.number}"
    if not np.array_equal(_lengths(rows, group, column), lengths):
        raise damaged(where, f"{name} and input_ids differ in length")
    if name not in (PADDING, "labels"):
        return
    values = _values(rows, group, name)
    if name == PADDING and not values.all():
        raise ConfigError(
            f"{where}: its {PADDING} has zeros, so rows are padded and no documents. Build them "
            "(`tokenloom build` cuts padding off), or save them without padding."
        )
    if name == "labels":
        ids = _values(rows, group, "input_ids")
        if ((values != IGNORED) & (values != ids)).any():
            raise ConfigError(
                f"{where}: its labels are not its tokens, allowed: {IGNORED} or the token itself. "
                "They were shifted, or are of another task."
            )


def _column(rows: _Rows, group: _Group, name: str) -> Any:
    """A column of a group, as Arrow has it."""

    def ask(_: str) -> Any:
        try:
            found = rows.read(group, [name])
        except KeyError:  # of Arrow; Parquet passes over what is not there
            return None
        return found.column(0) if found.num_columns == 1 else None

    where = rows.place.where(group.file)
    column = _guarded(rows.place, group.file, ask)
    if column is None:
        raise damaged(where, f"it has no column {name}, which the first file has")
    if not _can_hold(column.type, name):
        raise damaged(where, f"its column {name} is {column.type!s:.80}, in the first file a list")
    return column


def _values(rows: _Rows, group: _Group, name: str) -> NDArray[Any]:
    """All values of a list column of a group, end to end."""
    column = _column(rows, group, name)
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    parts = [one.flatten() for one in chunks]
    if any(one.null_count for one in parts):
        raise rows.place.damaged(group.file, f"{name} has a null inside a row")
    kind = np.empty(0, _kind(rows.schema.field(name).type.value_type))
    return np.concatenate([kind, *(one.to_numpy(zero_copy_only=False) for one in parts)])


def _kind(inner: Any) -> Any:
    return np.bool_ if str(inner) == "bool" else inner.to_pandas_dtype()


def _flat(rows: _Rows, name: str, group: _Group, low: int, high: int) -> NDArray[Any]:
    values = _values(rows, group, name)
    values = values != IGNORED if name == "labels" else values
    return values[low:high].astype(np.uint8) if values.dtype == np.bool_ else values[low:high]


def _pieces(
    rows: _Rows, lengths: Sequence[Int64], decode: Callable[..., NDArray[Any]]
) -> tuple[Piece, ...]:
    found = []
    for group, of_group in zip(rows.groups, lengths, strict=True):
        size = int(of_group.sum())
        part = functools.partial(decode, group)
        found.append(CodedPiece(file=group.file, elements=size, decode=part, chunk=max(1, size)))
    return tuple(found)


class _Metadata:
    """What rows have beside their tokens; the group read last is kept."""

    def __init__(self, rows: _Rows, lengths: Sequence[Int64], columns: list[str]) -> None:
        self._rows, self._columns = rows, columns
        self._edges = np.cumsum([0, *map(len, lengths)])
        self._held: tuple[int, list[dict[str, Any]]] = -1, []
        fields = [rows.schema.field(name) for name in columns]
        self._coded = {one.name for one in fields if (one.metadata or {}).get(MARK) == b"json"}

    def row(self, document: int) -> dict[str, Any]:
        """The row of a document; nulls are left out."""
        number = int(np.searchsorted(self._edges, document, side="right")) - 1
        held, rows = self._held
        if held != number:
            group = self._rows.groups[number]
            read = functools.partial(self._rows.read, group, self._columns)
            found = _guarded(self._rows.place, group.file, lambda _: read().to_pylist())
            rows = [self._decoded(row) for row in found]
            self._held = number, rows
        return dict(rows[document - int(self._edges[number])])

    def _decoded(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            key: fmt.read_json(value.encode()) if key in self._coded else value
            for key, value in row.items()
            if value is not None
        }


# -- record batches of Arrow -----------------------------------------------------------------


class _Batches(NamedTuple):
    """The record batches of an Arrow file.

    Attributes:
        schema: its columns.
        total: how many there are.
        read: gives one of them.
    """

    schema: Any
    total: int
    read: Callable[[int], Any]


def _batches(place: ForeignPlace, pa: Any, name: str) -> _Batches:
    """The batches of a file: views of a map of it on this machine, read one by one in a bucket."""
    file = place.folder.as_file(name)
    has_footer = place.bytes(name, 0, len(ARROW)).tobytes() == ARROW
    if isinstance(file, str):
        mapped = pa.memory_map(file)
        if not has_footer:
            stream = pa.ipc.open_stream(mapped)
            found = list(stream)
            return _Batches(stream.schema, len(found), found.__getitem__)
        reader = pa.ipc.open_file(mapped)
        found = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        return _Batches(reader.schema, len(found), found.__getitem__)
    if has_footer:
        reader = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
        return _Batches(reader.schema, reader.num_record_batches, reader.get_batch)
    head, batches = _messages(place, name)

    def read(span: tuple[int, int]) -> bytes:
        return place.bytes(name, *span).tobytes()

    before = b"".join(map(read, head))

    def batch(number: int) -> Any:
        raw = pa.py_buffer(before + read(batches[number]))
        return pa.ipc.open_stream(raw).read_next_batch()

    schema = pa.ipc.open_stream(pa.py_buffer(before)).schema
    return _Batches(schema, len(batches), batch)


Spans = list[tuple[int, int]]


def _messages(place: ForeignPlace, name: str) -> tuple[Spans, Spans]:
    """Where the messages of a stream are: schema and dictionaries, and the batches."""
    size = place.size(name) or 0
    head: Spans = []
    batches: Spans = []
    start = 0
    while start < size:
        raw = place.bytes(name, start, start + LOOKED).tobytes()
        mark, length = HEAD.unpack_from(raw.ljust(HEAD.size, b"\0"))
        if mark == MESSAGE and not length:
            break
        if mark != MESSAGE or length > min(MOST, size - start):
            raise place.damaged(name, f"no message of Arrow starts at byte {start:,}")
        if HEAD.size + length > len(raw):
            raw = place.bytes(name, start, start + HEAD.size + length).tobytes()
        try:
            kind, body = _told(raw[HEAD.size : HEAD.size + length])
        except struct.error:
            raise place.damaged(name, f"no message of Arrow is at byte {start:,}") from None
        stop = start + HEAD.size + length + body
        if not 0 <= body <= size or stop > size:
            raise place.damaged(name, f"its message at byte {start:,} goes on to byte {stop:,}")
        (batches if kind == BATCH else head).append((start, stop))
        start = stop
    return head, batches


def _told(table: bytes) -> tuple[int, int]:
    """The kind of a message and the bytes of its body, from its flatbuffer."""
    (root,) = struct.unpack_from("<I", table)
    (back,) = struct.unpack_from("<i", table, root)
    field = functools.partial(_field, table, root, root - back)
    return field(1, "<B"), field(3, "<q")


def _field(table: bytes, root: int, entries: int, number: int, kind: str) -> int:
    """A number of a flatbuffer's table; one that is left out is 0."""
    (size,) = struct.unpack_from("<H", table, entries)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", table, entries + place) if place < size else (0,)
    (found,) = struct.unpack_from(kind, table, root + offset) if offset else (0,)
    return int(found)


def _arrow(place: ForeignPlace, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(f"{place.path}: reading it", "pyarrow", "parquet") from None
