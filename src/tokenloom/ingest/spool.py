"""Objects as inputs: iterators, tables, and one record as bytes.

One idea: records that come only once become a list that is not in memory. They are written as
canonical JSON lines into an unnamed temporary file (in ``TMPDIR``), packed with zstd, and hashed.
From then on they are an input like a list of the same records: the same identity, the same blocks,
the same bytes in the store; workers and a resume after a kill work alike. The file has no name, so
nothing is left of it when the process ends, however it ends.

Resuming: the records must be given again. They are spooled and hashed again, and the build goes on
only if they are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import zstandard

from tokenloom.errors import InputError, MissingExtra, binary_size, plural
from tokenloom.limits import limits
from tokenloom.store.metadata import MAX_DEPTH, TooDeep

__all__ = ["Spool", "as_table", "canonical_line", "record_of", "spool"]

log = logging.getLogger("tokenloom")

SHARE = 0.9  # of the free space: an endless iterator must not fill the disk for everybody


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Spool:
    """Records in a temporary file, which is closed with this.

    Attributes:
        descriptor: of the open file, packed; it has no name.
        count: how many records.
        sha256: of their canonical lines, as `identify` would give for a list of them.
    """

    descriptor: int
    count: int
    sha256: str

    def __len__(self) -> int:
        return self.count

    def lines(self) -> Iterator[bytes]:
        """The canonical line of every record, without its newline, as often as asked."""
        chunk = limits().spool_read_bytes
        unpack = zstandard.ZstdDecompressor().decompressobj()
        rest, place = b"", 0
        while data := os.pread(self.descriptor, chunk, place):
            place += len(data)
            *lines, rest = (rest + unpack.decompress(data)).split(b"\n")
            yield from lines


def spool(where: str, kind: str, first: object, rest: Iterable[object]) -> Spool:
    """Write records into a temporary file, and tell so.

    Args:
        where: what messages call the iterator.
        kind: what it is.
        first: its first record.
        rest: the others.

    Raises:
        InputError: something is no record, the iterator raised, or there is no room for it.
    """
    folder = tempfile.gettempdir()
    room = int(shutil.disk_usage(folder).free * SHARE)
    file = tempfile.TemporaryFile(dir=folder, prefix="tokenloom-")  # noqa: SIM115 - the spool's
    sha256, count, size = hashlib.sha256(), 0, 0
    pack = zstandard.ZstdCompressor(level=1).compressobj()
    try:
        for record in _records(where, first, rest):
            line = canonical_line(record, f"{where}[{count}]") + b"\n"
            sha256.update(line)
            size += file.write(pack.compress(line))
            count += 1
            if size > room:
                raise InputError(
                    f"{where}: {plural(count, 'record')} fill {binary_size(size)} of {folder}, and "
                    "there are more. Is it endless? Else set TMPDIR to a directory with more room, "
                    "or write the records to files."
                )
        size += file.write(pack.flush())
        file.flush()
    except OSError as error:
        file.close()
        raise InputError(
            f"{where}: after {plural(count, 'record')}, writing to {folder}: "
            f"{error.strerror or error}. Set TMPDIR to a directory with more room."
        ) from error
    except BaseException:
        file.close()
        raise
    log.info(
        "%s: the %s gave %s, kept in a temporary file (%s in %s) until the build is done; to "
        "resume after a kill, give the same records again",
        where,
        kind,
        plural(count, "record"),
        binary_size(size),
        folder,
    )
    kept = Spool(descriptor=os.dup(file.fileno()), count=count, sha256=sha256.hexdigest())
    weakref.finalize(kept, os.close, kept.descriptor)
    file.close()
    return kept


def _records(where: str, first: object, rest: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    """The records, each of which must be one; errors of the iterator say how far it came."""
    record, number, source = first, 0, iter(rest)
    end = object()
    while record is not end:
        if not isinstance(record, Mapping):
            raise InputError(
                f"{where}[{number}]: found {type(record).__name__} among records, allowed: a "
                "mapping such as {'text': …}."
            )
        yield record
        number += 1
        try:
            record = next(source, end)
        except Exception as error:
            raise InputError(
                f"{where}: it raised {type(error).__name__} after {plural(number, 'record')}: "
                f"{error!s:.200}. Mend it, and give it again."
            ) from error


def as_table(where: str, item: Any) -> Any:
    """An Arrow table of anything that speaks Arrow: pandas, polars, DuckDB, pyarrow itself."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(f"{where}: reading a table", "pyarrow", "parquet") from error
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    try:
        if frame is not None and isinstance(item, frame):
            table = pa.Table.from_pandas(item, preserve_index=False)
        else:
            table = pa.table(item)
    except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{where}: this {type(item).__name__} is no Arrow table ({error!s:.200}). Give columns "
            "of one type each, with names that are different strings."
        ) from error
    names = table.column_names
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: columns {names}, allowed: names that are different strings.")
    return table.replace_schema_metadata(None)


# -- one record as bytes -------------------------------------------------------------------
def canonical_line(row: Mapping[str, Any], where: str) -> bytes:
    """One record as JSON with sorted keys and no spaces, the same on every machine, no newline.

    Objects inside it keep the order of their keys: a chat template prints them in it. NumPy arrays
    and numbers are written as lists and numbers. The standard encoder writes it, not a faster one:
    an identity must not depend on which packages are installed. Any depth is written: whether a
    value is nested too deeply is said where it is used, and records that are skipped count too.

    Raises:
        InputError: A value or key that JSON cannot hold, with its path (``rows[17].meta.date``).
    """
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        if not _has_odd_keys(row):  # 1 and "1" would be one key
            return _ENCODER.encode(dict(sorted(row.items()))).encode()
    return _any_line(row, where)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)


def _has_odd_keys(value: object) -> bool:
    """Whether a key of a mapping, at any depth, is no string; a list is judged by its first item.

    >>> _has_odd_keys({"a": [{"b": 1}]}), _has_odd_keys({"a": [{1: 2}]})
    (False, True)
    """
    if isinstance(value, Mapping):
        odd = any(type(key) is not str for key in value)
        return odd or any(map(_has_odd_keys, value.values()))
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], _DEEP):
        return False
    return any(map(_has_odd_keys, value))


_DEEP = (Mapping, list, tuple)


def _is_text(key: str) -> bool:
    try:
        return bool(key.encode()) or not key
    except UnicodeEncodeError:  # half a character
        return False


class _Level(NamedTuple):
    """A list or dict that is being written: its place, its end, and the items still to come."""

    step: str
    end: str
    value: object
    items: Iterator[tuple[str, str, object]]


def _any_line(row: Mapping[str, Any], where: str) -> bytes:
    """The same line of a record nested to any depth: without recursion, so slowly.

    Raises:
        InputError: For the first value inside it that JSON cannot hold.
    """
    _refuse_keys(row, lambda: where)
    first = dict(sorted(row.items()))
    parts, levels, inside = ["{"], [_Level("", "}", first, _items(first))], {id(row), id(first)}
    while levels:
        for step, before, item in levels[-1].items:
            value = item.tolist() if isinstance(item, np.ndarray) else item
            parts.append(before)
            if not isinstance(value, dict | list | tuple):
                parts.append(_leaf(value, partial(_place, where, levels, step)))
                continue
            if id(value) in inside:
                place = _place(where, levels, step)
                raise InputError(f"{place}: it is inside itself, which JSON cannot write. Cut it.")
            _refuse_keys(value, partial(_place, where, levels, step))
            begin, end = "{}" if isinstance(value, dict) else "[]"
            parts.append(begin)
            inside.add(id(value))
            levels.append(_Level(step, end, value, _items(value)))
            break
        else:
            done = levels.pop()
            parts.append(done.end)
            inside.discard(id(done.value))
    return "".join(parts).encode()


def _items(value: Any) -> Iterator[tuple[str, str, object]]:
    """For each item of a list or dict: the step to it, what is written before it, and itself."""
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield f".{key}", f"{',' * bool(number)}{_ENCODER.encode(key)}:", item
    else:
        for number, item in enumerate(value):
            yield f"[{number}]", "," * bool(number), item


def _place(where: str, levels: Sequence[_Level], step: str) -> str:
    """The path of a value; of a long one its first steps and the last."""
    steps = [level.step for level in levels] + [step]
    shown = steps if len(steps) <= 20 else [*steps[:10], "…", *steps[-3:]]
    return where + "".join(shown)


def _refuse_keys(value: Any, place: Callable[[], str]) -> None:
    for key in value if isinstance(value, Mapping) else ():
        if not isinstance(key, str) or not _is_text(key):
            raise InputError(f"{place()}: the key {key!r} is not a string. Use string keys.")


def _leaf(value: object, place: Callable[[], str]) -> str:
    """What JSON writes for a value that is no list and no dict."""
    try:
        text = _ENCODER.encode(value)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place()}: found {type(value).__name__} {repr(value)[:40]}, allowed: strings of "
            "whole characters, finite numbers, booleans, None, lists and dicts. Convert it."
        ) from error
    return text


# -- and back, where it is too deep for a parser -------------------------------------------
def record_of(line: bytes, loads: Callable[[bytes], Any]) -> dict[str, Any]:
    """The record of a line that is nested too deeply for `loads`, with `TooDeep` in these places.

    So one value that nobody can read spoils no other: it may be left out by its key, and is refused
    by it if it is kept. What is inside it is not looked at.

    Raises:
        ValueError: Not this is what is wrong with the line.
    """
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH or not line.lstrip().startswith(b"{"):
        raise ValueError("not deep")
    deep = _deep_values(line)
    if not deep:
        raise ValueError("not deep")
    ends = [0, *(end for _, _, end in deep)]
    starts = [*(start for _, start, _ in deep), len(line)]
    rest = b"null".join(line[a:b] for a, b in zip(ends, starts, strict=True))
    record: dict[str, Any] = loads(rest)
    return record | {str(loads(key)): TooDeep() for key, _, _ in deep}


def _deep_values(line: bytes) -> list[tuple[bytes, int, int]]:
    """(key, start, end) of values of the outermost object with more than MAX_DEPTH levels.

    >>> _deep_values(b'{"a": [], "b": ' + b"[" * 65 + b"]" * 65 + b"}")
    [(b'"b"', 15, 145)]
    """
    found, depth, deepest, start, key = [], 0, 0, 0, b""
    for token in _TOKENS.finditer(line):
        sign = line[token.start()]
        if sign == ord('"'):
            key = token[0] if depth == 1 else key  # the last text before a list is its key
        elif sign in b"[{":
            depth += 1
            start, deepest = (token.start(), 0) if depth == 2 else (start, deepest)
            deepest = max(deepest, depth - 1)
        else:
            depth -= 1
            if depth == 1 and deepest > MAX_DEPTH:
                found.append((key, start, token.end()))
    return found


_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
