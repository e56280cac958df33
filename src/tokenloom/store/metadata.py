"""Per-document metadata: one JSON object per document, kept as Parquet, or as JSON lines.

With pyarrow installed a shard has `docs.parquet` (zstd, groups of 8,192 documents): columns
`_input` and `_record` say which record of which input a document came from, the others are the
record's own keys. A key whose values are all of one plain kind becomes a column of that kind;
everything else (nested values, mixed kinds, integers beyond 64 bits) becomes JSON text in a
column marked ``tokenloom: json`` and is decoded again on reading. Without pyarrow the same objects
are `docs.jsonl.zst`, one line per document. Both read back equal; null values are dropped.

Metadata is not part of a store's digest: it never decides what is trained on.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from tokenloom.errors import MissingExtra, StoreCorrupt
from tokenloom.store.handles import Single, lock_of

GROUP = 8192  # documents per Parquet row group

MAX_LINES_BYTES = 256 << 20  # metadata of one shard: the writer starts another one there

ORIGIN_BYTES = 64  # `_input` and `_record` of one document, at most

JSON_MARK = {b"tokenloom": b"json"}

RESERVED = frozenset({"_input", "_record"})  # where a document came from

MAX_DEPTH = 64  # levels of nesting in a value; parsers and people give up at some hundreds

_INT64 = range(-(1 << 63), 1 << 63)

_EXACT = range(-(1 << 53), (1 << 53) + 1)  # integers that a double holds exactly

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=False
).encode


def json_line(record: dict[str, Any]) -> bytes:
    """One document's metadata as JSON without spaces and without nulls.

    >>> json_line({"id": "a", "score": 0.5, "lang": None})
    b'{"id":"a","score":0.5}'
    """
    return _encode({k: v for k, v in record.items() if v is not None}).encode(
        "utf-8", "surrogatepass"
    )


def unstorable(record: dict[str, Any], keys: Sequence[str]) -> str | None:
    """Why these keys of a record cannot be kept as metadata, or None.

    >>> unstorable({"_input": "a.jsonl"}, ["_input"])[:57]
    "the key '_input' is reserved: it says which input and rec"
    """
    for key in keys:
        if key in RESERVED:
            return (
                f"the key {key!r} is reserved: it says which input and record a document came from."
                " Rename it with a transform, or leave it out with metadata_keys=[…]"
            )
        value = record[key]
        if _is_deep(value):
            return (
                f"{key!r} is nested more than {MAX_DEPTH} levels deep, the most allowed. Flatten "
                "it, or leave it out with metadata_keys=[…]"
            )
    return None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [one for one in level if isinstance(one, (dict, list, tuple))]
        if not level:
            return False
        level = [x for one in level for x in (one.values() if isinstance(one, dict) else one)]
    return True


def id_text(value: Any) -> bytes | None:
    """An id as it is hashed: its JSON text; None for what is no id.

    >>> id_text("7"), id_text(7), id_text(7.0), id_text(True), id_text(None), id_text([7])
    (b'"7"', b'7', b'7', b'true', None, None)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int | float) or value in (math.inf, -math.inf) or value != value:
        return None
    return _encode(value).encode("utf-8", "surrogatepass")


def id_texts(lines: Sequence[bytes]) -> list[bytes | None]:
    """The `id_text` of every document; None for one without an id.

    >>> id_texts([b'{"id":"a","n":1}', b'{"n":{"id":2}}', b'{"n":1,"id":2.0}'])
    [b'"a"', None, b'2']
    """
    return [found[1] if (found := _FIRST_ID.match(line)) else _later_id(line) for line in lines]


# the usual place, and text that needs no second look: what `json_line` wrote is what is hashed
_FIRST_ID = re.compile(rb'\{"id":("(?:[^"\\]|\\.)*"|-?\d+)[,}]')


def _later_id(line: bytes) -> bytes | None:
    return id_text(json.loads(line).get("id")) if b'"id":' in line else None


def have_pyarrow() -> bool:
    """Whether Parquet can be written here."""
    try:
        return importlib.util.find_spec("pyarrow") is not None
    except ImportError:
        return False


def file_name() -> str:
    """The name of the metadata file that this process would write."""
    return "docs.parquet" if have_pyarrow() else "docs.jsonl.zst"


def encode_documents(
    name: str, lines: Sequence[bytes], inputs: NDArray[np.int64], records: NDArray[np.int64]
) -> bytes:
    """The whole metadata file of a shard, as bytes.

    Args:
        name: `docs.parquet` or `docs.jsonl.zst`.
        lines: one JSON object per document.
        inputs: index of each document's input in the store's list of inputs [documents].
        records: number of each document's record in its input, from 0 [documents].
    """
    if name == "docs.parquet":
        return _encode_parquet(lines, inputs, records)
    whole = b"".join(
        b'{"_input":%d,"_record":%d%s%s\n' % (i, r, b"" if line == b"{}" else b",", line[1:])
        for i, r, line in zip(inputs.tolist(), records.tolist(), lines, strict=True)
    )
    return zstandard.ZstdCompressor(level=3).compress(whole)


def _encode_parquet(
    lines: Sequence[bytes], inputs: NDArray[np.int64], records: NDArray[np.int64]
) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = kinds_of(_loads(lines))
    origin = [pa.field("_input", pa.int32()), pa.field("_record", pa.int64())]
    schema = pa.schema([*origin, *arrow_fields(kinds)])
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, len(lines), GROUP):
            stop = min(start + GROUP, len(lines))
            rows = list(_loads(lines[start:stop]))
            columns = [
                arrow_array(inputs[start:stop].tolist(), pa.int32()),
                arrow_array(records[start:stop].tolist(), pa.int64()),
                *arrow_columns(rows, kinds, schema),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=GROUP)
    return sink.getvalue()


def arrow_fields(kinds: dict[str, str]) -> list[Any]:
    """The fields of a schema for keys of these kinds (see `kinds_of`)."""
    import pyarrow as pa

    types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    return [
        pa.field(key, types.get(kind, pa.string()), metadata=JSON_MARK if kind == "json" else None)
        for key, kind in kinds.items()
    ]


def arrow_columns(rows: list[dict[str, Any]], kinds: dict[str, str], schema: Any) -> list[Any]:
    """The values of some documents under these keys, an Arrow array each."""
    return [
        arrow_array([_cell(row, key, kind) for row in rows], schema.field(key).type)
        for key, kind in kinds.items()
    ]


def arrow_array(values: list[Any], kind: Any) -> Any:
    """An Arrow array of plain values, some of them None.

    As `pa.array`, which however imports pandas wherever that is installed (a second and more).
    """
    import pyarrow as pa

    present = np.array([value is not None for value in values], np.bool_)
    valid = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    if kind == pa.string():
        texts = [b"" if v is None else v.encode("utf-8", "surrogatepass") for v in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        data = [pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(texts))]
    elif kind == pa.bool_():
        bits = np.array([bool(v) for v in values], np.bool_)
        data = [pa.py_buffer(np.packbits(bits, bitorder="little").tobytes())]
    else:
        numbers = np.array([0 if v is None else v for v in values], kind.to_pandas_dtype())
        data = [pa.py_buffer(numbers.tobytes())]
    return pa.Array.from_buffers(kind, len(values), [valid, *data])


def _loads(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    # a group as one JSON list: one call of the parser instead of thousands, 7 times faster
    for start in range(0, len(lines), GROUP):
        yield from json.loads(b"[%b]" % b",".join(lines[start : start + GROUP]))


def kinds_of(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Key → one kind that holds every value of that key, in order of first appearance."""
    kinds: dict[str, str] = {}
    for row in rows:
        for key, value in row.items():
            seen = kinds.get(key)
            kinds[key] = _kind(value) if seen is None else _join(seen, _kind(value))
    # "exact" and "int" are both whole numbers; they differ only in what they may be mixed with
    return {key: "int" if kind == "exact" else kind for key, kind in kinds.items()}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "exact" if value in _EXACT else "int" if value in _INT64 else "json"
    if isinstance(value, float):
        return "float"
    return "str" if isinstance(value, str) else "json"


def _join(a: str, b: str) -> str:
    if a == b:
        return a
    return {frozenset(("exact", "float")): "float", frozenset(("exact", "int")): "int"}.get(
        frozenset((a, b)), "json"
    )


def _cell(row: dict[str, Any], key: str, kind: str) -> Any:
    """A value of a document as its column of that kind keeps it; None if there is none."""
    value = row.get(key)
    return _encode(value) if kind == "json" and value is not None else value


class Texts(NamedTuple):
    """Values of documents as texts, end to end; an integer as its digits.

    Attributes:
        ends: where each text starts, and where the last one ends [N + 1].
        data: their bytes of UTF-8.
        absent: which documents have none, if any do not [N].
    """

    ends: NDArray[np.int64]
    data: NDArray[np.uint8]
    absent: NDArray[np.bool_] | None

    @staticmethod
    def of(values: list[Any]) -> Texts:
        """The texts of plain values; None is no value."""
        absent = np.array([one is None for one in values], np.bool_)
        texts = [b"" if v is None else str(v).encode("utf-8", "surrogatepass") for v in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        data = np.frombuffer(b"".join(texts), np.uint8)
        return Texts(ends, data, absent if absent.any() else None)

    @staticmethod
    def of_arrow(column: Any) -> Texts:
        """The texts of an Arrow column of strings or integers, without a copy of each."""
        array = column.combine_chunks()
        array = array.chunk(0) if hasattr(array, "chunk") else array
        absent = None
        if array.null_count:
            absent = ~np.array(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        array = array.cast("large_string")
        _, ends, data = array.buffers()
        edges = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
        return Texts(edges, np.frombuffer(data or b"", np.uint8), absent)


class DocumentsReader(Single):
    """The metadata of one shard, from the bytes of its file.

    One thread reads at a time: two that read the same `ParquetFile` crash the process.

    Args:
        name: `docs.parquet` or `docs.jsonl.zst`.
        raw: the whole file.
        documents: how many documents the shard has.
        path: what to call the file in messages.
    """

    def __init__(self, name: str, raw: NDArray[np.uint8], documents: int, path: str) -> None:
        self._path = path
        # the group read last and its rows: one value, as several threads may ask
        self._held: tuple[int, list[dict[str, Any]]] = -1, []
        self._parquet: Any = None
        self._raw, self._lock = raw, lock_of(self)
        if name == "docs.parquet" and not have_pyarrow():
            raise MissingExtra(f"{path}: reading it", "pyarrow", "parquet")
        with self._guarded("cannot be read"):
            if name == "docs.parquet":
                self._parquet = _opened(raw)
                rows = self._parquet.metadata.num_rows
            else:
                limit = MAX_LINES_BYTES + ORIGIN_BYTES * documents
                lines = _decompress(raw, limit).splitlines()
                self._held = -1, [json.loads(line) for line in lines]
                rows = len(lines)
            if rows != documents:
                raise ValueError(f"it has {rows:,} rows for {documents:,} documents")

    def _forked(self, torn: bool) -> None:
        """A file that another thread was reading is opened again."""
        if torn and self._parquet is not None:
            self._parquet = _opened(self._raw)

    def row(self, document: int) -> dict[str, Any]:
        """The metadata of one document; `document` counts inside the shard."""
        with self._guarded(f"has no metadata of document {document}"):
            held, rows = self._held
            if self._parquet is None:
                return dict(rows[document])
            group, place = divmod(document, GROUP)
            if group != held:
                rows = _decode_group(self._read(group, None))
                self._held = group, rows
            return dict(rows[place])

    def values(self, key: str) -> Iterator[list[Any]]:
        """What all documents have under a key, in groups; None where they have nothing."""
        with self._guarded(f"cannot be read for {key!r}"):
            if self._parquet is None:
                yield [row.get(key) for row in self._held[1]]
                return
            known = key in self._parquet.schema_arrow.names
            for group in range(self._parquet.num_row_groups):
                table = self._read(group, [key] if known else ["_record"])
                yield [row.get(key) for row in _decode_group(table)]

    def texts(self, key: str) -> Iterator[tuple[int, Texts | None]]:
        """The same as texts, in groups: their number, and None if no document has the key."""
        if self._parquet is None:
            for values in self.values(key):
                yield len(values), Texts.of(values)
            return
        with self._guarded(f"cannot be read for {key!r}"):
            schema, metadata = self._parquet.schema_arrow, self._parquet.metadata
            known = key in schema.names
            plain = known and not schema.field(key).metadata and str(schema.field(key).type)
            for group in range(self._parquet.num_row_groups):
                count = metadata.row_group(group).num_rows
                if not known:
                    yield count, None
                    continue
                table = self._read(group, [key])
                if plain in ("string", "int64"):
                    yield count, Texts.of_arrow(table.column(0))
                else:
                    yield count, Texts.of([row.get(key) for row in _decode_group(table)])

    def _read(self, group: int, columns: list[str] | None) -> Any:
        """A row group; all columns by default."""
        with self._lock:
            if self._parquet.metadata.row_group(group).num_rows > GROUP:
                raise ValueError(f"row group {group} has more than {GROUP} rows")
            return self._parquet.read_row_group(group, columns, use_threads=columns is None)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Whatever a library finds wrong with the bytes becomes one kind of error."""
        try:
            yield
        except (StoreCorrupt, MissingExtra):
            raise
        except Exception as error:
            kind = type(error).__name__
            raise StoreCorrupt(
                f"{self._path}: it {what} ({kind}: {error!s:.200}). It is not what was written. "
                "Restore the file from a copy."
            ) from error


def _opened(raw: NDArray[np.uint8]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(raw)))


def _decompress(raw: NDArray[np.uint8], limit: int) -> bytes:
    """The lines of a `docs.jsonl.zst`; more than `limit` bytes no writer makes."""
    text = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(raw.tobytes()) as reader:
        while chunk := reader.read(1 << 20):
            text += chunk
            if len(text) > limit:
                raise ValueError(f"it unpacks to more than {limit:,} bytes")
    return bytes(text)


def _decode_group(table: Any) -> list[dict[str, Any]]:
    marked = {field.name for field in table.schema if field.metadata == JSON_MARK}
    return [
        {k: json.loads(v) if k in marked else v for k, v in row.items() if v is not None}
        for row in table.to_pylist()
    ]
