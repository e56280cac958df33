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

Cost: that of the loop ``for line in file: orjson.loads(line)``. A row of a table with a list of
numbers costs the same on top of decoding, however long the list is. `python -m benchmarks build`
prints the share of reading.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from json import JSONDecodeError
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tokenloom.ingest.cuts import Block, Cut
from tokenloom.ingest.encodings import decoder
from tokenloom.ingest.inputs import Input, check_size, label, unreadable
from tokenloom.ingest.spool import record_of
from tokenloom.ingest.tables import table_records
from tokenloom.limits import limits
from tokenloom.remote.objects import RangedFile, open_ranged

__all__ = ["RecordError", "Records", "read_block"]

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordError:
    """A record that cannot be used.

    Attributes:
        piece: Index of its piece in the block.
        record: Its number inside the piece, from 0; blank lines count.
        message: What is wrong and what is allowed, without the place: the caller knows the line.
    """

    piece: int
    record: int
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """What one block holds.

    Attributes:
        records: The good records, in order.
        piece: int32, for each record the index of its piece in the block.
        number: int64, for each record its number inside the piece, from 0; blank lines count.
        counts: Records or lines seen per piece, good, bad and blank; their running sum over the
            pieces of an input gives line numbers.
        errors: The bad records, in order.
        notes: What was done to good records, as (piece, number in it, what), in order.
        bytes: Bytes of text in the block: whole lines, unpacked, or the columns of a table.
    """

    records: list[dict[str, Any]]
    piece: NDArray[np.int32]
    number: NDArray[np.int64]
    counts: list[int]
    errors: list[RecordError]
    notes: list[tuple[int, int, str]]
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """One piece: `values` by record number, None for a blank line and for each key of `errors`."""

    values: list[dict[str, Any] | None]
    errors: dict[int, str]
    bytes: int
    complete: bool = False  # no value is None: nothing needs to be looked for
    notes: dict[int, str] = field(default_factory=dict)


def read_block(
    inputs: Sequence[Input],
    block: Block,
    *,
    columns: Sequence[str] | None = None,
    max_record_bytes: int | None = None,
) -> Records:
    """The records of one block.

    Args:
        inputs: The inputs that the block was cut from; their `rows` are not looked at.
        block: One item of `blocks`.
        columns: Columns to read from parquet and Arrow, all if None. Columns that are not there
            are left out, so their keys are missing as in a JSON line without them.
        max_record_bytes: Longer lines and files become errors and are not read whole; that of the
            input if None.

    Raises:
        InputError: A file is gone, unreadable, or no longer of the size it had.
    """
    reads = [
        _read(one, piece, columns, max_record_bytes or one.max_record_bytes)
        for piece in block
        for one in (inputs[piece.input],)
    ]
    records: list[Any] = []
    numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for read in reads:
        numbers.append(np.arange(len(read.values)))
        if read.complete:
            records += read.values
        else:
            numbers[-1] = np.flatnonzero([value is not None for value in read.values])
            records += [value for value in read.values if value is not None]
    kept = [len(part) for part in numbers[1:]]
    return Records(
        records=records,
        piece=np.repeat(np.arange(len(reads), dtype=np.int32), kept),
        number=np.concatenate(numbers),
        counts=[len(read.values) for read in reads],
        errors=[
            RecordError(piece=i, record=number, message=read.errors[number])
            for i, read in enumerate(reads)
            for number in sorted(read.errors)
        ],
        notes=[
            (i, number, read.notes[number])
            for i, read in enumerate(reads)
            for number in sorted(read.notes)
        ],
        bytes=sum(read.bytes for read in reads),
    )


def _read(one: Input, piece: Cut, columns: Sequence[str] | None, limit: int) -> _Read:
    if one.kind in ("hf", "table", "parquet"):
        rows, errors, size = table_records(one, piece, columns, limit)
        return _Read(values=rows, errors=errors, bytes=size)
    if one.kind == "txt":
        return _whole_file(one, piece, limit)
    if piece.data is not None:
        lines = piece.data.split(b"\n")
        start, size = piece.start, len(piece.data)
        if not lines[-1]:
            lines.pop()
    else:
        lines, start, size = _own_lines(one, piece, limit)
    if start == 0 and lines and lines[0].startswith(BOM):
        lines[0], start = lines[0][len(BOM) :], len(BOM)
    return _parse(lines, start, size, one, limit)


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


def _own_lines(one: Input, piece: Cut, limit: int) -> tuple[list[bytes], int, int]:
    """The lines that start in a piece, the position of the first, and their bytes in the file."""
    start, stop = piece.start, piece.stop
    with _opened(one) as file:
        data = _pread(one, file, max(start - 1, 0), stop)
        lines = data.split(b"\n")
        if start > 0:
            # the end of a line that began earlier; empty if the cut is between two lines
            start += len(lines.pop(0))
        size = stop - start
        if lines and not lines[-1]:
            lines.pop()
        elif lines and stop < one.size:
            tail, ended = _tail(one, file, stop, limit - len(lines[-1]))
            lines[-1] += tail
            size += len(tail) + ended
    return lines, start, max(size, 0)


def _tail(one: Input, file: RangedFile, start: int, room: int) -> tuple[bytes, bool]:
    """The rest of a line from `start` on, and if its end was found within `room` bytes.

    One byte more than `room` is read when there is one, which is how a line is seen to be too long.
    """
    parts: list[bytes] = []
    step = limits().input_tail_bytes
    while start < one.size and room >= 0:
        part = _pread(one, file, start, min(start + step, one.size, start + room + 1))
        newline = part.find(b"\n")
        if newline >= 0:
            return b"".join([*parts, part[:newline]]), True
        parts.append(part)
        start, room, step = start + len(part), room - len(part), min(step * 2, 16 << 20)
    return b"".join(parts), False


def _whole_file(one: Input, piece: Cut, limit: int) -> _Read:
    size = piece.stop - piece.start
    if size > limit:
        return _Read(values=[None], errors={0: _too_long(limit)}, bytes=0)
    data = piece.data
    if data is None:
        with _opened(one) as file:
            data = _pread(one, file, 0, piece.stop)
    notes: list[str] = []
    data = data.removeprefix(BOM) if "utf-8" in one.encodings else data
    try:
        text = decoder(one.encodings, one.errors, notes.append)(data)
    except UnicodeDecodeError as error:
        return _Read(values=[None], errors={0: _why(data, 0, error, one)}, bytes=size)
    return _Read(values=[{"text": text}], errors={}, bytes=size, notes=dict(enumerate(notes[:1])))


# ---------------------------------------------------------------- lines to records
def _parse(lines: list[bytes], start: int, size: int, one: Input, limit: int) -> _Read:
    """The records of lines, the first of which starts at byte `start` of the text."""
    notes: dict[int, str] = {}
    values, failed = _parsed(lines, _parser(one, len(lines), size, limit, notes))
    for number, record in _deep_records(lines, failed, one, notes).items():
        values[number] = record
        del failed[number]
    errors: dict[int, str] = {}
    if failed:
        starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=start))
        errors = {n: _why(lines[n], starts[n], error, one) for n, error in failed.items()}
    if one.kind == "lines":
        values = [_text_record(value) for value in values]
        return _Read(values=values, errors=errors, bytes=size, notes=notes)
    complete = set(map(type, values)) == {dict}
    if not complete:
        for n, value in enumerate(values):
            if type(value) is not dict and n not in failed and lines[n].strip():
                errors[n] = _FOUND[type(value)]
                values[n] = None
    return _Read(values=values, errors=errors, bytes=size, complete=complete, notes=notes)


def _parser(
    one: Input, count: int, size: int, limit: int, notes: dict[int, str]
) -> Callable[[bytes], Any]:
    """What makes a value of a line; rows are lines that we wrote ourselves."""
    plain = one.kind == "rows" or (tuple(one.encodings) == ("utf-8",) and one.errors == "strict")
    decode = (
        bytes.decode
        if plain
        else decoder(one.encodings, one.errors, lambda what: notes.update({count: what}))
    )
    loads = _json_parser()
    parse: Callable[[bytes], Any] = decode
    if one.kind != "lines":
        parse = loads if plain else lambda line: loads(decode(line).encode())
    if size > limit:
        parse = _bounded(parse, limit)
    return parse if plain else _numbered(parse, notes, count)


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
        except (ValueError, RecursionError) as error:
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


def _deep_records(
    lines: list[bytes], failed: dict[int, Exception], one: Input, notes: dict[int, str]
) -> dict[int, dict[str, Any]]:
    """The records among lines that failed which are only nested too deeply, by number."""
    found: dict[int, dict[str, Any]] = {}
    loads = _json_parser()
    for number, error in failed.items():
        if one.kind == "lines" or isinstance(error, _TooLong):
            continue
        with contextlib.suppress(ValueError, RecursionError):
            line = lines[number]
            if one.kind != "rows":
                note = notes.__setitem__
                line = decoder(one.encodings, one.errors, partial(note, number))(line).encode()
            found[number] = record_of(line, loads)
    return found


def _numbered(
    parse: Callable[[bytes], Any], notes: dict[int, str], end: int
) -> Callable[[bytes], Any]:
    """Notes under the number of the line that they are about; they come under `end`."""
    count = itertools.count()

    def numbered(line: bytes) -> Any:
        number = next(count)
        notes.pop(end, None)  # of a line that failed
        value = parse(line)
        if end in notes:
            notes[number] = notes.pop(end)
        return value

    return numbered


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
    first = "utf-8" if one.kind == "rows" else one.encodings[0]
    if not isinstance(error, UnicodeDecodeError):
        try:
            line.decode(first, one.errors)
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
    if isinstance(error, RecursionError):
        return "JSON nested too deeply, allowed: about 1,000 levels."
    what = f"{error.msg}, character {error.pos}" if isinstance(error, JSONDecodeError) else error
    return f"not valid JSON ({what}) in {seen!r}, allowed: one JSON object per line."


def _json_parser() -> Callable[[bytes], Any]:
    try:
        import orjson
    except ImportError:
        return _loads
    loads: Callable[[bytes], Any] = orjson.loads
    return loads


# The standard parser, held to the language of orjson: no NaN, no infinite numbers, no half
# surrogate pairs, and integers outside 64 bits become floats. Only the deepest nesting allowed
# differs (1,024 levels there, the interpreter's limit here).
def _loads(line: bytes) -> Any:
    text = line.decode()
    value = _DECODER.decode(text)
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _parse_int(digits: str) -> int | float:
    if len(digits) < 19:
        return int(digits)
    value = int(digits) if len(digits) <= 20 else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else _parse_float(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is infinite as a float")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_DECODER = json.JSONDecoder(
    parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant
)
