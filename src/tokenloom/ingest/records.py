r"""One block becomes records: plain dicts, each with its number, and one error per bad record.

Nothing in the data raises: a line that is no JSON object becomes a `RecordError`, and the caller
decides whether to stop or to count. Only a file that cannot be read raises `InputError`.

Which lines a range of bytes owns, with ``|`` for cuts at 5 and 10::

    a a \n b b | b b b b b |  b \n  c \n     piece 0 owns aa and bbbbbbbb: it reads on past its end,
    0 1  2 3 4   5 6 7 8 9   10 11 12 13     piece 1 owns nothing, piece 2 owns c

A line belongs to the piece in which it starts, so a piece looks one byte back, drops what comes
before its first newline, and reads on after its last. Only ``\n`` ends a line; one ``\r`` before
it is dropped, like a UTF-8 byte order mark at the start of a file. Blank lines are skipped but
counted.

A list of numbers in a table never becomes Python numbers: each row's list is a read-only view of
one flat NumPy array, so a row of ready-made ids costs the same, however long it is.

Cost: that of the loop ``for line in file: orjson.loads(line)``. A row of a table with a list of
numbers costs the same on top of decoding, however long the list is. `python -m benchmarks build`
prints the share of reading.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import InputError, MissingExtra
from tokenloom.ingest.cuts import Block, Cut, open_parquet
from tokenloom.ingest.inputs import Input, check_size, label, unreadable
from tokenloom.limits import limits
from tokenloom.remote.objects import RangedFile, open_ranged

BOM = b"\xef\xbb\xbf"

Place = tuple[int, int, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """What one block holds.

    Attributes:
        records: The good records, in order.
        piece: int32, for each record the index of its piece in the block.
        number: int64, for each record its number inside the piece, from 0; blank lines count.
        counts: Records or lines seen per piece, good, bad and blank; their running sum over the
            pieces of an input gives line numbers.
        errors: (piece, number in it, message) of the bad records. A message says what is wrong and
            what is allowed, without the place: the caller knows the line.
        notes: What was done to good records, as (piece, number in it, what), in order.
    """

    records: list[dict[str, Any]]
    piece: NDArray[np.int32]
    number: NDArray[np.int64]
    counts: list[int]
    errors: list[Place]
    notes: list[Place]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """One piece: `values` by record number, None for a blank line and for each key of `errors`."""

    values: list[dict[str, Any] | None]
    errors: dict[int, str]
    notes: dict[int, str] = field(default_factory=dict)


def read_block(
    inputs: Sequence[Input], block: Block, *, columns: Sequence[str] | None = None
) -> Records:
    """The records of one block.

    Args:
        inputs: The inputs that the block was cut from; their `rows` are not looked at.
        block: One item of `blocks`.
        columns: Columns to read from parquet and Arrow, all if None. Columns that are not there
            are left out, so their keys are missing as in a JSON line without them.

    Raises:
        InputError: A file is gone, unreadable, or no longer of the size it had.
    """
    reads = [_read(inputs[piece.input], piece, columns) for piece in block]
    records: list[dict[str, Any]] = []
    numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for read in reads:
        good = [value for value in read.values if value is not None]
        records += good
        if len(good) == len(read.values):
            numbers.append(np.arange(len(good)))
        else:
            numbers.append(np.flatnonzero([value is not None for value in read.values]))
    return Records(
        records=records,
        piece=np.repeat(np.arange(len(reads), dtype=np.int32), [len(one) for one in numbers[1:]]),
        number=np.concatenate(numbers),
        counts=[len(read.values) for read in reads],
        errors=[(i, n, why) for i, read in enumerate(reads) for n, why in read.errors.items()],
        notes=[(i, n, what) for i, read in enumerate(reads) for n, what in read.notes.items()],
    )


def _read(one: Input, piece: Cut, columns: Sequence[str] | None) -> _Read:
    if one.kind in ("hf", "table", "parquet"):
        rows, errors = _table_records(one, piece, columns)
        return _Read(values=rows, errors=errors)
    if one.kind == "txt":
        return _whole_file(one, piece)
    if piece.data is not None:
        lines, start = piece.data.split(b"\n"), piece.start
        if not lines[-1]:
            lines.pop()
    else:
        lines, start = _own_lines(one, piece)
    if start == 0 and lines and lines[0].startswith(BOM):
        lines[0], start = lines[0][len(BOM) :], len(BOM)
    return _parse(lines, start, one)


# ---------------------------------------------------------------- bytes to lines
@contextlib.contextmanager
def _opened(one: Input) -> Iterator[RangedFile]:
    assert one.path is not None  # objects travel with their pieces
    try:
        with open_ranged(one.path, one.size, one.etag) as file:
            check_size(one, file.size)
            yield file
    except OSError as error:
        raise unreadable(label(one), error) from error


def _pread(one: Input, file: RangedFile, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of the file, all of them."""
    data = file.read(start, stop)
    if len(data) < stop - start:
        check_size(one, start + len(data))
    return data


def _own_lines(one: Input, piece: Cut) -> tuple[list[bytes], int]:
    """The lines that start in a piece, and the position of the first."""
    start, stop = piece.start, piece.stop
    with _opened(one) as file:
        lines = _pread(one, file, max(start - 1, 0), stop).split(b"\n")
        if start > 0:
            # the end of a line that began earlier; empty if the cut is between two lines
            start += len(lines.pop(0))
        if lines and not lines[-1]:
            lines.pop()
        elif lines and stop < one.size:
            lines[-1] += _tail(one, file, stop, one.max_record_bytes - len(lines[-1]))
    return lines, start


def _tail(one: Input, file: RangedFile, start: int, room: int) -> bytes:
    """The rest of a line from `start` on, if its end is found within `room` bytes.

    Else one byte more than `room`, which is how a line is seen to be too long.
    """
    parts: list[bytes] = []
    step = limits().input_tail_bytes
    while start < one.size and room >= 0:
        part = _pread(one, file, start, min(start + step, one.size, start + room + 1))
        newline = part.find(b"\n")
        if newline >= 0:
            return b"".join([*parts, part[:newline]])
        parts.append(part)
        start, room, step = start + len(part), room - len(part), min(step * 2, 16 << 20)
    return b"".join(parts)


def _whole_file(one: Input, piece: Cut) -> _Read:
    if piece.stop - piece.start > one.max_record_bytes:
        return _Read(values=[None], errors={0: _too_long(one.max_record_bytes)})
    data = piece.data
    if data is None:
        with _opened(one) as file:
            data = _pread(one, file, 0, piece.stop)
    data = data.removeprefix(BOM) if one.encoding == "utf-8" else data
    try:
        text = data.decode(one.encoding, one.errors)
    except UnicodeDecodeError as error:
        return _Read(values=[None], errors={0: _why(data, 0, error, one)})
    return _Read(values=[{"text": text}], errors={}, notes=_notes([data], [text], one))


# ---------------------------------------------------------------- lines to records
def _parse(lines: list[bytes], start: int, one: Input) -> _Read:
    """The records of lines, the first of which starts at byte `start` of the text."""
    values, failed = _parsed(lines, _parser(one, lines))
    errors: dict[int, str] = {}
    if failed:
        starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=start))
        errors = {n: _why(lines[n], starts[n], error, one) for n, error in failed.items()}
    if one.kind == "lines":
        values = [_text_record(value) for value in values]
    elif set(map(type, values)) != {dict}:
        for n, value in enumerate(values):
            if type(value) is not dict and n not in failed and lines[n].strip():
                errors[n] = _FOUND[type(value)]
                values[n] = None
    return _Read(values=values, errors=errors, notes=_notes(lines, values, one))


def _notes(lines: Sequence[bytes], values: Sequence[Any], one: Input) -> dict[int, str]:
    """The lines with a value that had bytes of no character, and what became of these."""
    if one.kind == "rows" or one.errors == "strict":
        return {}
    done = {"replace": "replaced", "ignore": "left out"}[one.errors]
    return {
        n: f"not valid {one.encoding}, bytes {done}"
        for n, (line, value) in enumerate(zip(lines, values, strict=True))
        if value is not None and not _is_valid(line, one.encoding)
    }


def _is_valid(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _parser(one: Input, lines: list[bytes]) -> Callable[[bytes], Any]:
    """What makes a value of a line; rows are lines that we wrote ourselves."""
    encoding, errors = one.encoding, one.errors
    plain = one.kind == "rows" or (encoding == "utf-8" and errors == "strict")
    decode: Callable[[bytes], Any] = (
        bytes.decode if plain else lambda line: line.decode(encoding, errors)
    )
    parse = decode
    if one.kind != "lines":
        loads = _json_parser(one)
        parse = loads if plain else lambda line: loads(decode(line).encode())
    if max(map(len, lines), default=0) > one.max_record_bytes:
        parse = _bounded(parse, one.max_record_bytes)
    return parse


def _parsed(
    lines: list[bytes], parse: Callable[[bytes], Any]
) -> tuple[list[Any], dict[int, Exception]]:
    """The value of every line (None for a blank one), and why there is none."""
    values: list[Any] = []
    failed: dict[int, Exception] = {}
    rest = iter(lines)
    while len(values) < len(lines):
        try:
            # runs in C until a line fails; what came before it stays in `values`
            values.extend(map(parse, rest))
        except ValueError as error:
            number = len(values)
            values.append(None)
            if lines[number].strip():
                failed[number] = error.with_traceback(None)
                continue
            # blank lines come in millions: no exception for each of them
            while number + 1 < len(lines) and not lines[number + 1].strip():
                number += 1
                next(rest)
                values.append(None)
    return values, failed


def _text_record(line: str | None) -> dict[str, Any] | None:
    if not line or line.isspace():
        return None
    return {"text": line.removesuffix("\r")}


# one string each, however many lines are wrong
_FOUND = {
    kind: f"found {name}, allowed: one JSON object per line."
    for kind, name in {
        list: "a list",
        str: "a string",
        int: "a number",
        float: "a number",
        bool: "a boolean",
        type(None): "null",
    }.items()
}


def _bounded(parse: Callable[[bytes], Any], limit: int) -> Callable[[bytes], Any]:
    def bounded(line: bytes) -> Any:
        if len(line) > limit:
            raise _TooLong(_too_long(limit))
        return parse(line)

    return bounded


class _TooLong(ValueError):
    """A line above the limit, told apart from one that does not parse."""


def _too_long(limit: int) -> str:
    return (
        f"longer than {limit} bytes, the most allowed. Split it, check that this is text, or pass "
        f"max_record_bytes={2 * limit}."
    )


def _why(line: bytes, start: int, error: Exception, one: Input) -> str:
    """What is wrong with a line that starts at byte `start` and that parsing refused."""
    if isinstance(error, _TooLong):
        return str(error)
    encoding = "utf-8" if one.kind == "rows" else one.encoding
    if not isinstance(error, UnicodeDecodeError):
        try:
            line.decode(encoding, one.errors)
        except UnicodeDecodeError as bad:
            error = bad
    if isinstance(error, UnicodeDecodeError):
        name = "UTF-8" if error.encoding in ("utf-8", "utf8") else error.encoding
        byte, place = error.object[error.start], start + error.start
        wide = line.startswith((b"\xff\xfe", b"\xfe\xff"))
        likely = "utf-16" if wide else "cp1252"
        also = "It starts like UTF-16: pass" if wide else "Name its encoding, as"
        return (
            f"not valid {name}: byte 0x{byte:02x} at byte {place} of the text. {also} "
            f"encoding={likely!r}, pass errors='replace', or convert the file, for example with "
            "iconv."
        )
    seen = line[:60].decode(errors="replace")
    what = str(error)
    if isinstance(error, json.JSONDecodeError):
        what = f"{error.msg}, character {error.pos}"
    return f"not valid JSON ({what}) in {seen!r}, allowed: one JSON object per line."


def _json_parser(one: Input) -> Callable[[bytes], Any]:
    try:
        import orjson
    except ImportError as error:
        if one.kind == "rows":
            return lambda line: _ROWS.decode(line.decode())
        raise MissingExtra(f"Reading {label(one)}", "orjson", "build") from error
    loads: Callable[[bytes], Any] = orjson.loads
    return loads


def _as_orjson(digits: str) -> int | float:
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else float(digits)


# Records that were given directly need no orjson: their lines are what we wrote ourselves.
_ROWS = json.JSONDecoder(parse_int=_as_orjson)


# ---------------------------------------------------------------- rows of tables
def _table_records(
    one: Input, piece: Cut, columns: Sequence[str] | None
) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    """The rows of a piece (None where one cannot be used), and why not.

    Args:
        one: An input of kind ``parquet`` or ``hf``.
        piece: Row groups of a parquet file, or rows carried as an Arrow stream.
        columns: Columns to read, all if None; those that are not there are skipped.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(f"Reading {label(one)}", "pyarrow", "parquet") from error
    if one.kind == "parquet":
        check_size(one)
    errors: dict[int, str] = {}
    try:
        table = _row_groups(one, piece, columns) if one.kind == "parquet" else _stream(piece)
        if columns is not None:
            table = table.select([name for name in table.column_names if name in set(columns)])
        names = table.column_names
        parts = [_column(name, table.column(i), errors) for i, name in enumerate(names)]
        if table.nbytes > one.max_record_bytes:
            _refuse_long(names, parts, one.max_record_bytes, errors)
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(
            f"{label(one)}: cannot be read ({error}). Check the file, or read fewer columns."
        ) from error
    values: list[dict[str, Any] | None] = [{} for _ in range(0 if names else table.num_rows)]
    values += [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    for number in errors:
        values[number] = None
    return values, errors


def _refuse_long(
    names: list[str], parts: list[list[Any]], limit: int, errors: dict[int, str]
) -> None:
    for name, values in zip(names, parts, strict=True):
        for number, value in enumerate(values):
            data = value.encode() if isinstance(value, str) else value
            if isinstance(data, bytes) and len(data) > limit:
                errors[number] = (
                    f"{name} is longer than {limit} bytes, the most allowed. Split it, or pass "
                    f"max_record_bytes={2 * limit}."
                )


def _row_groups(one: Input, piece: Cut, columns: Sequence[str] | None) -> Any:
    with open_parquet(one) as file:
        if columns is not None:
            columns = [name for name in file.schema_arrow.names if name in set(columns)]
        groups = range(piece.start, piece.stop)
        return file.read_row_groups(groups, columns=columns, use_threads=False)


def _stream(piece: Cut) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(piece.data) as reader:
        return reader.read_all()


def _column(name: str, column: Any, errors: dict[int, str]) -> list[Any]:
    """The values of a column; lists of numbers as read-only NumPy views of one flat array."""
    values: list[Any] = []
    for chunk in column.chunks:
        if _is_number_list(chunk):
            flat = chunk.values.to_numpy()
            rows = [flat[a:b] for a, b in itertools.pairwise(chunk.offsets.to_numpy().tolist())]
            if chunk.null_count:
                valid = chunk.is_valid().to_pylist()
                rows = [row if ok else None for row, ok in zip(rows, valid, strict=True)]
            values += rows
            continue
        try:
            values += chunk.to_pylist()
        except UnicodeDecodeError:
            # Arrow does not check UTF-8 when it reads, so look for the rows that are wrong
            values += _rows_one_by_one(name, chunk, len(values), errors)
    return values


def _is_number_list(chunk: Any) -> bool:
    from pyarrow import types

    if not (types.is_list(chunk.type) or types.is_large_list(chunk.type)):
        return False
    inner = chunk.type.value_type
    return (types.is_integer(inner) or types.is_floating(inner)) and not chunk.values.null_count


def _rows_one_by_one(name: str, chunk: Any, first: int, errors: dict[int, str]) -> list[Any]:
    values: list[Any] = []
    for number, scalar in enumerate(chunk, start=first):
        try:
            values.append(scalar.as_py())
        except UnicodeDecodeError as bad:
            values.append(None)
            errors[number] = (
                f"{name}: not valid UTF-8: byte 0x{bad.object[bad.start]:02x} at byte {bad.start} "
                "of the value. Write the file again with text in UTF-8."
            )
    return values
