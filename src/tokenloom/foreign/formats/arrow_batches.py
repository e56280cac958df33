"""The record batches of Arrow files: mapped on this machine, read one by one in a bucket.

One idea: a batch is asked for by its number. On this machine all batches of a file are views of a
map of it. In a bucket a file with a footer says itself where its batches are; one without (a
stream, as `datasets` writes it) is a row of messages, each with its length at its start::

    FFFFFFFF | u32 bytes of what follows | a table with the kind and the bytes of the body | body

so one request per message finds the places of all batches, and a batch is read together with the
schema before it, which is a stream again. Every length is compared with the size of the file.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tokenloom.foreign.described import damaged
from tokenloom.foreign.places import ForeignPlace

__all__ = ["ArrowBatches"]

MAGIC = b"ARROW1"

LOOKED = 4096  # bytes of a message that are asked for first; most have fewer before their body

MOST = 1 << 26  # bytes of a message before its body

HEAD = struct.Struct("<II")

MARK = 0xFFFFFFFF

BATCH = 3  # the kind of a message that is a record batch


class _Opened(NamedTuple):
    """A file.

    Attributes:
        schema: its columns.
        batches: how many it has.
        batch: gives one of them.
    """

    schema: Any
    batches: int
    batch: Callable[[int], Any]


class ArrowBatches:
    """The record batches of Arrow files of both forms, with and without a footer.

    Args:
        place: where the files are.
        pa: the module pyarrow.
    """

    def __init__(self, place: ForeignPlace, pa: Any) -> None:
        self._place, self._pa = place, pa
        self._known: dict[str, _Opened] = {}

    def count(self, name: str) -> int:
        """How many batches a file has."""
        return self._opened(name).batches

    def schema(self, name: str) -> Any:
        """The columns of a file."""
        return self._opened(name).schema

    def batch(self, name: str, number: int) -> Any:
        """A batch of a file, with counts that can be true."""
        found = self._opened(name).batch(number)
        if found.num_rows < 0:
            raise damaged(self._place.where(name), f"a batch has {found.num_rows:,} rows")
        found.validate()
        return found

    def validate(self, name: str, number: int) -> None:
        """Compare every offset and text of a batch with where it must be."""
        self.batch(name, number).validate(full=True)

    def _opened(self, name: str) -> _Opened:
        if name not in self._known:  # two threads may do it: the same answer twice
            file = self._place.folder.as_file(name)
            footed = self._place.bytes(name, 0, len(MAGIC)).tobytes() == MAGIC
            if isinstance(file, str):
                made = _mapped(self._pa, file, footed)
            else:
                made = _footed(self._pa, file) if footed else self._streamed(name)
            self._known[name] = made
        return self._known[name]

    def _streamed(self, name: str) -> _Opened:
        """A stream in a bucket."""
        head, batches = _messages(self._place, name)

        def read(span: tuple[int, int]) -> bytes:
            return self._place.bytes(name, *span).tobytes()

        before = b"".join(map(read, head))
        schema = self._pa.ipc.open_stream(self._pa.py_buffer(before)).schema

        def batch(number: int) -> Any:
            raw = self._pa.py_buffer(before + read(batches[number]))
            return self._pa.ipc.open_stream(raw).read_next_batch()

        return _Opened(schema, len(batches), batch)


def _mapped(pa: Any, path: str, footed: bool) -> _Opened:
    mapped = pa.memory_map(path)
    if footed:
        reader = pa.ipc.open_file(mapped)
        found = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    else:
        reader = pa.ipc.open_stream(mapped)
        found = list(reader)
    return _Opened(reader.schema, len(found), found.__getitem__)


def _footed(pa: Any, file: Any) -> _Opened:
    reader = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
    return _Opened(reader.schema, reader.num_record_batches, reader.get_batch)


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
        if mark == MARK and not length:
            break
        if mark != MARK or length > min(MOST, size - start):
            raise damaged(place.where(name), f"no message of Arrow starts at byte {start:,}")
        if HEAD.size + length > len(raw):
            raw = place.bytes(name, start, start + HEAD.size + length).tobytes()
        try:
            kind, body = _told(raw[HEAD.size : HEAD.size + length])
        except struct.error:
            raise damaged(place.where(name), f"no message of Arrow is at byte {start:,}") from None
        stop = start + HEAD.size + length + body
        if not 0 <= body <= size or stop > size:
            raise damaged(
                place.where(name), f"its message at byte {start:,} goes on to byte {stop:,}"
            )
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
