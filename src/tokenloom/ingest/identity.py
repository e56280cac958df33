"""What an input contains, as a sha256: of a file's raw bytes, or of an object's values.

`identify` fills it in before anything is built, because it is part of a build's fingerprint;
`duplicates_among` finds what would be stored twice. Objects have canonical bytes too
(`canonical_line`, `arrow_bytes`), which are also what travels to worker processes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from tokenloom.arguments import Place, Url
from tokenloom.ingest.inputs import Input, Kind, check_size, label, unreadable
from tokenloom.ingest.spool import Spool, canonical_line
from tokenloom.limits import limits
from tokenloom.remote.objects import open_ranged

HASH_ROWS = 1024


def arrow_bytes(dataset: Any, start: int, stop: int) -> bytes:
    """Rows [start, stop) of a ``datasets.Dataset`` or an Arrow table as one Arrow IPC stream.

    The bytes depend on the values alone: ``take`` copies into fresh buffers, where a slice would
    carry bits of its neighbours and the layout of the files it came from.
    """
    import pyarrow as pa

    if isinstance(dataset, pa.Table):
        table = dataset.slice(start, stop - start)
    else:
        table = dataset.with_format("arrow")[start:stop].replace_schema_metadata(None)
    fresh = table.take(pa.array(np.arange(table.num_rows))).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, fresh.schema) as writer:
        writer.write_table(fresh)
    return bytes(sink.getvalue().to_pybytes())


def identify(
    inputs: Sequence[Input], *, threads: int, progress: Callable[[int], None] | None = None
) -> list[Input]:
    """The same inputs with `sha256` filled in: of a file's raw bytes, or of an object's values.

    Args:
        inputs: What `expand` gave.
        threads: How many inputs are hashed at once (hashing releases the interpreter lock).
        progress: Called with the number of bytes hashed since its last call, one call at a time.

    Raises:
        InputError: A file changed its size or became unreadable, or a record is not JSON.
    """
    stop, lock = threading.Event(), threading.Lock()  # noqa: TID251 - of this call alone

    def digest(one: Input) -> str:
        if isinstance(one.rows, Spool):
            return one.rows.sha256
        hasher = hashlib.sha256()
        for part in content(one):
            if stop.is_set():
                break
            hasher.update(part)
            if progress is not None:
                with lock:
                    progress(len(part))
        return hasher.hexdigest()

    pool = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="identify")
    try:
        digests = list(pool.map(digest, inputs))
    finally:
        # on an error or Ctrl-C the other threads end after their current read, not their last
        stop.set()
        pool.shutdown(cancel_futures=True)
    return [replace(one, sha256=digest) for one, digest in zip(inputs, digests, strict=True)]


def identify_equal_sizes(inputs: Sequence[Input]) -> list[Input]:
    """The same inputs, identified where another one has as many bytes: others are no duplicates."""
    sizes = Counter(one.size for one in inputs)
    alike = [one for one in inputs if sizes[one.size] > 1]
    known = iter(identify(alike, threads=1))
    return [next(known) if sizes[one.size] > 1 else one for one in inputs]


def content(one: Input, start: int = 0, stop: int | None = None) -> Iterator[bytes | memoryview]:
    """The bytes that make up what an input contains, in pieces.

    Args:
        one: An input.
        start: First byte of a file, or first row of an object; of a table, a multiple of 1,024.
        stop: One past the last; the end if None.
    """
    if one.path is not None and one.kind != "hf":
        yield from _file_content(one, one.path, start, one.size if stop is None else stop)
        return
    end = len(one.rows) if stop is None else stop
    if one.kind in ("hf", "table"):
        for first in range(start, end, HASH_ROWS):
            yield arrow_bytes(one.rows, first, min(first + HASH_ROWS, end))
    else:
        yield from (line + b"\n" for line in row_lines(one.rows, start, end))


def row_lines(rows: Any, start: int, stop: int) -> Iterator[bytes]:
    """Rows [start, stop) of a list of mappings or a spool as canonical lines."""
    if isinstance(rows, Spool):
        return itertools.islice(rows.lines(), start, stop)
    each = enumerate(itertools.islice(rows, start, stop), start)
    return (canonical_line(row, f"rows[{i}]") for i, row in each)


def _file_content(one: Input, path: Place, start: int, stop: int) -> Iterator[bytes | memoryview]:
    most = limits().request_bytes
    if isinstance(path, Url):
        with open_ranged(path, one.size, one.etag) as found:
            for first in range(start, stop, most):
                yield found.read(first, min(first + most, stop))
        return
    buffer, seen = memoryview(bytearray(min(limits().input_hash_bytes, one.size + 1))), start
    limit = stop if stop < one.size else sys.maxsize  # a whole file is read until it ends
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            while count := file.readinto(buffer[: limit - seen]):
                seen += count
                yield buffer[:count]
    except OSError as error:
        raise unreadable(path, error) from error
    check_size(one, seen if stop == one.size or seen < stop else None)


def duplicates_among(inputs: Iterable[Input]) -> list[str]:
    """Which inputs are one file listed twice, or have the content of another of the same kind.

    One sentence for each such input. Empty files are no duplicates of each other. Content is
    compared where `identify` has run.
    """
    by_path: dict[str, Input] = {}
    by_content: dict[tuple[Kind, str], Input] = {}
    found: list[str] = []
    for one in inputs:
        if one.path is not None:
            url = isinstance(one.path, Url)
            first = by_path.setdefault(label(one) if url else os.path.realpath(label(one)), one)
            if first is not one:
                found.append(f"{label(one)} is the same file as {label(first)}")
                continue
        if one.sha256 and (one.size or one.rows is not None):
            first = by_content.setdefault((one.kind, one.sha256), one)
            if first is not one:
                found.append(f"{label(one)} has the same content as {label(first)}")
    return found
