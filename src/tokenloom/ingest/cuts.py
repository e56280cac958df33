"""Inputs are cut into blocks of about 4 MiB: the units of parallel work and of resume.

The cut is a pure function of the inputs and of `block_bytes`, never of who reads them. Block k is
the same for one worker and for ninety, any process can read it, and a build goes on at a block
number. A block is a tuple of pieces; a piece is a range of one input::

    plain jsonl, lines   bytes [start, stop): owns the lines that BEGIN there, no scan is needed
    plain txt            the whole file
    .gz, .zst            bytes of the unpacked stream, cut after a line; the piece carries them
    parquet              row groups [start, stop); the reader decodes them itself
    hf, table            rows [start, stop), carried as an Arrow stream
    rows                 rows [start, stop), carried as JSON lines

A record in an archive that is too long is cut after `max_record_bytes` and the rest of it is thrown
away while it is unpacked, so memory is bounded whatever an archive unpacks to; `read_block` sees
that it is too long.

Every input has at least one piece, so an empty file is still seen. Small pieces share a block
until it is full. Planning plain files reads nothing; `first` skips those for free, while archives
are unpacked again up to the block.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenloom.errors import InputError, MissingExtra
from tokenloom.ingest.identity import arrow_bytes
from tokenloom.ingest.inputs import Input, check_size, label, unreadable
from tokenloom.ingest.spool import Spool, canonical_line

__all__ = ["BLOCK_BYTES", "Block", "Cut", "blocks"]

BLOCK_BYTES = 4 << 20

# Opening a file costs about as much as parsing this many bytes; it also keeps a million empty
# files from ending up in one block.
PIECE_COST = 4096

DATASET_ROWS = 1024

# Bytes given to a decompressor at once. Deflate gives at most 1,032 bytes for one and zstd 32,768
# (a run-length block), so an archive made to explode yields at most 64 or 128 MiB per call.
FEED_BYTES = {"gz": 64 << 10, "zst": 4 << 10}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A range of one input.

    Attributes:
        input: Index in the list of inputs.
        start: First byte, row group or row; see the module's table.
        stop: One past the last.
        data: The content, where the reader cannot fetch it from the middle of a file.
        weight: Bytes of the input, as stored, that this piece covers; a progress bar adds
            them up to the size of the file.
    """

    input: int
    start: int
    stop: int
    data: bytes | None = None
    weight: int = field(default=0, compare=False)


Block = tuple[Cut, ...]


def blocks(
    inputs: Sequence[Input],
    *,
    first: int = 0,
    block_bytes: int = BLOCK_BYTES,
    max_record_bytes: int | None = None,
) -> Iterator[Block]:
    """The blocks of all inputs, in order, from block number `first` on.

    Args:
        inputs: What `expand` gave.
        first: Number of the first block wanted, counted from 0.
        block_bytes: Bytes of text aimed at per block. Changing it changes every cut.
        max_record_bytes: The longest line or file that is unpacked from an archive; that of the
            input if None.

    Raises:
        InputError: A file changed its size, or an archive is damaged.
    """
    if block_bytes < 1:
        raise InputError(f"block_bytes: {block_bytes} is too small, allowed: 1 or more.")
    pieces = (
        weighed
        for index, one in enumerate(inputs)
        for weighed in _pieces(index, one, block_bytes, max_record_bytes or one.max_record_bytes)
    )
    return itertools.islice(_grouped(pieces, block_bytes), first, None)


def _grouped(pieces: Iterator[tuple[Cut, int]], block_bytes: int) -> Iterator[Block]:
    """Fills each block until the next piece would make it larger than `block_bytes`."""
    block: list[Cut] = []
    total = 0
    for piece, weight in pieces:
        cost = weight + PIECE_COST
        if block and total + cost > block_bytes:
            yield tuple(block)
            block, total = [], 0
        block.append(piece)
        total += cost
    if block:
        yield tuple(block)


def _pieces(
    index: int, one: Input, block_bytes: int, max_record_bytes: int
) -> Iterator[tuple[Cut, int]]:
    """The pieces of one input, each with the bytes of text it covers."""
    if one.kind in ("hf", "table"):
        return _dataset_pieces(index, one, block_bytes)
    if one.path is None:
        return _row_pieces(index, one, block_bytes)
    check_size(one)
    if one.kind == "parquet":
        return _parquet_pieces(index, one, block_bytes)
    if one.compression != "none":
        return _archive_pieces(index, one, one.path, block_bytes, max_record_bytes)
    # equal parts instead of full blocks and a rest: no block is nearly empty
    parts = 1 if one.kind == "txt" else max(1, -(-one.size // block_bytes))
    cuts = (one.size * part // parts for part in range(parts + 1))
    return (
        (Cut(input=index, start=start, stop=stop, weight=stop - start), stop - start)
        for start, stop in itertools.pairwise(cuts)
    )


# ---------------------------------------------------------------- objects and parquet
def _row_pieces(index: int, one: Input, block_bytes: int) -> Iterator[tuple[Cut, int]]:
    start, size, lines = 0, 0, list[bytes]()
    for i, line in enumerate(_row_lines(one.rows)):
        lines.append(line + b"\n")
        size += len(lines[-1])
        if size >= block_bytes:
            yield Cut(input=index, start=start, stop=i + 1, data=b"".join(lines)), size
            start, size, lines = i + 1, 0, []
    if lines or not len(one.rows):
        yield Cut(input=index, start=start, stop=len(one.rows), data=b"".join(lines)), size


def _row_lines(rows: Any) -> Iterator[bytes]:
    if isinstance(rows, Spool):
        return rows.lines()
    return (canonical_line(row, f"rows[{i}]") for i, row in enumerate(rows))


def _dataset_pieces(index: int, one: Input, block_bytes: int) -> Iterator[tuple[Cut, int]]:
    # Cut by the size of what is carried: a function of the values, where the library's own
    # figures depend on how the files happen to be chunked.
    rows = len(one.rows)
    for start in range(0, max(rows, 1), DATASET_ROWS):
        stop = min(start + DATASET_ROWS, rows)
        data = arrow_bytes(one.rows, start, stop)
        step = max(1, (stop - start) * block_bytes // len(data))
        if step >= stop - start:
            yield Cut(input=index, start=start, stop=stop, data=data), len(data)
            continue
        for a in range(start, stop, step):
            b = min(a + step, stop)
            data = arrow_bytes(one.rows, a, b)
            yield Cut(input=index, start=a, stop=b, data=data), len(data)


def _parquet_pieces(index: int, one: Input, block_bytes: int) -> Iterator[tuple[Cut, int]]:
    sizes = _row_group_sizes(one)
    start, total = 0, 0

    def piece(stop: int) -> Cut:
        edges = (one.size * start // max(1, len(sizes)), one.size * stop // max(1, len(sizes)))
        return Cut(input=index, start=start, stop=stop, weight=edges[1] - edges[0])

    for group, size in enumerate(sizes):
        if group > start and total + size > block_bytes:
            yield piece(group), total
            start, total = group, 0
        total += size
    yield piece(len(sizes)), total


def _row_group_sizes(one: Input) -> list[int]:
    """Unpacked bytes of each row group, from the footer alone."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra(f"Reading {label(one)}", "pyarrow", "parquet") from error
    try:
        footer = pq.read_metadata(one.path)
        return [footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)]
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{label(one)}: not a readable parquet file ({error}). Write it again."
        ) from error


# ---------------------------------------------------------------- archives
def _archive_pieces(
    index: int, one: Input, path: Path, block_bytes: int, limit: int
) -> Iterator[tuple[Cut, int]]:
    """Cuts the unpacked stream after the line that fills a piece; a txt file is never cut."""
    lines = one.kind != "txt"
    least = block_bytes if lines else limit + 1
    buffer = bytearray()
    position, given = 0, -1  # of the buffer's first byte in the stream; packed bytes given so far
    too_long = False  # inside the rest of a line that is too long
    for chunk, packed in _unpacked(one, path):
        if too_long:
            newline = chunk.find(b"\n")
            rest = len(chunk) if newline < 0 else newline + 1
            position, chunk, too_long = position + rest, chunk[rest:], newline < 0
        scan = len(buffer)
        buffer += chunk
        while len(buffer) >= least:
            newline = buffer.find(b"\n", max(scan, least - 1)) if lines else -1
            end = len(buffer) if newline < 0 else newline
            # lines before this one are shorter than a piece; `read_block` looks at those
            start = buffer.rfind(b"\n", 0, min(least - 1, end)) + 1 if lines else 0
            too_long = newline < 0 and end - start > limit
            if newline < 0 and not too_long:
                break
            stop = end if newline < 0 else newline + 1
            data = bytes(memoryview(buffer)[: min(stop, start + limit + 1)])
            weight = packed - max(given, 0)
            cut = Cut(input=index, start=position, stop=position + stop, data=data, weight=weight)
            yield cut, len(data)
            if not lines:
                return  # there is no other record
            del buffer[:stop]
            position, given, scan = position + stop, packed, 0
    if buffer or given < 0:
        stop, weight = position + len(buffer), one.size - max(given, 0)
        data = bytes(buffer)
        cut = Cut(input=index, start=position, stop=stop, data=data, weight=weight)
        yield cut, len(data)


def _unpacked(one: Input, path: Path) -> Iterator[tuple[bytes, int]]:
    """The unpacked bytes of an archive, all members and frames, in chunks of bounded size.

    Each comes with the bytes of the archive read so far.
    """
    import zstandard

    def start() -> Any:
        if one.compression == "gz":
            return zlib.decompressobj(wbits=31)
        return zstandard.ZstdDecompressor().decompressobj()

    engine, position, packed = start(), 0, 0
    try:
        with path.open("rb") as file:
            while data := file.read(FEED_BYTES[one.compression]):
                packed += len(data)
                while data:
                    if engine.eof:
                        # gzip allows zeros after the last member, to fill a tape block
                        if one.compression == "gz" and not data.strip(b"\0"):
                            break
                        engine = start()
                    chunk = engine.decompress(data)
                    position += len(chunk)
                    yield chunk, packed
                    data = engine.unused_data if engine.eof else b""
    except OSError as error:
        raise unreadable(label(one), error) from error
    except (zlib.error, zstandard.ZstdError) as error:
        raise InputError(
            f"{label(one)}: damaged or followed by something else, at byte {position} of the "
            f"unpacked data ({error}). Check it with gzip -t or zstd -t and fetch it again."
        ) from error
    check_size(one, packed)
    if not engine.eof:
        raise InputError(
            f"{label(one)}: ends in the middle, at byte {position} of the unpacked data. "
            "The file is incomplete: fetch it again."
        )
