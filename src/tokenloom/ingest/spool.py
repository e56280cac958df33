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
import shutil
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from tokenloom.errors import InputError, MissingExtra, binary_size, plural
from tokenloom.limits import limits

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
    an identity must not depend on which packages are installed.

    Raises:
        InputError: A value or key that JSON cannot hold, with its path (``rows[17].meta.date``).
    """
    try:
        with contextlib.suppress(TypeError, ValueError):
            if not _has_odd_keys(row):  # 1 and "1" would be one key
                return _ENCODER.encode(dict(sorted(row.items()))).encode()
        _refuse_odd(dict(row), where)
    except RecursionError:
        pass
    raise InputError(f"{where}: it is inside itself, or nested too deeply for JSON. Flatten it.")


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)


def _has_odd_keys(value: object) -> bool:
    """Whether a key of a mapping, at any depth, is no string.

    >>> _has_odd_keys({"a": [{"b": 1}]}), _has_odd_keys({"a": [0, {1: 2}]})
    (False, True)
    """
    if isinstance(value, Mapping):
        odd = any(not isinstance(key, str) for key in value)
        return odd or any(map(_has_odd_keys, value.values()))
    if not isinstance(value, list | tuple):
        return False
    # lists of ids are long: their types are looked at in C
    deep = any(issubclass(kind, Mapping | list | tuple) for kind in set(map(type, value)))
    return deep and any(map(_has_odd_keys, value))


def _refuse_odd(value: object, place: str) -> None:
    """Raise for the first value or key inside a record that JSON cannot hold."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not _is_text(key):
                raise InputError(f"{place}: the key {key!r} is not a string. Use string keys.")
            _refuse_odd(item, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _refuse_odd(item, f"{place}[{number}]")
    else:
        try:
            _ENCODER.encode(value).encode()
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{place}: found {type(value).__name__} {repr(value)[:40]}, allowed: strings of "
                "whole characters, finite numbers, booleans, None, lists and dicts. Convert it."
            ) from error


def _is_text(key: str) -> bool:
    try:
        return bool(key.encode()) or not key
    except UnicodeEncodeError:  # half a character
        return False
