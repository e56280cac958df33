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
are unpacked again up to the block. Between two edges (`tokenloom.ingest.cluster.stretch_work`)
blocks begin anew, so what one machine reads does not depend on the others.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tokenloom.arguments import Place, Url
from tokenloom.errors import InputError, MissingExtra
from tokenloom.ingest.identity import arrow_bytes, row_lines
from tokenloom.ingest.inputs import Input, check_size, label, unreadable
from tokenloom.limits import limits
from tokenloom.remote.objects import RangedFile, as_stream, open_ranged

BLOCK_BYTES = 4 << 20

# Opening a file costs about as much as parsing this many bytes; it also keeps a million empty
# files from ending up in one block.
PIECE_COST = 4096

DATASET_ROWS = 1024


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


class Edge(NamedTuple):
    """A place between two pieces: all inputs before `input` and its pieces before `start`.

    `start` is a byte, row group or row, as in `Cut`; 0 is the edge before the whole input.
    """

    input: int
    start: int = 0


BEGINNING = Edge(0)


def blocks(
    inputs: Sequence[Input],
    *,
    first: int = 0,
    since: Edge = BEGINNING,
    until: Edge | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Block]:
    """The blocks of all inputs, or of those between two edges, from block number `first` on.

    Args:
        inputs: What `expand` gave.
        first: Number of the first block wanted, counted from 0 at `since`.
        since: Where block 0 starts.
        until: Where the last block ends; the end of the inputs if None.
        block_bytes: Bytes of text aimed at per block. Changing it changes every cut.

    Raises:
        InputError: A file changed its size, or an archive is damaged.
    """
    end = until or Edge(len(inputs))
    pieces = (
        weighed
        for index in range(since.input, end.input + bool(end.start))
        for weighed in _pieces(
            index,
            inputs[index],
            block_bytes,
            since.start if index == since.input else 0,
            end.start if index == end.input else None,
        )
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
    index: int, one: Input, block_bytes: int, start: int, stop: int | None
) -> Iterator[tuple[Cut, int]]:
    """The pieces of one input from `start` to `stop`, each with the bytes of text it covers."""
    if one.kind in ("hf", "table"):
        return _dataset_pieces(index, one, block_bytes, start, stop)
    if one.path is None:
        return _row_pieces(index, one, block_bytes, start, stop)
    check_size(one)
    if one.kind == "parquet":
        return _parquet_pieces(index, one, block_bytes, start, stop)
    if one.compression != "none":
        return _archive_pieces(index, one, one.path, block_bytes)
    edges = (edge for edge in line_edges(one, block_bytes) if edge >= start)
    inside = edges if stop is None else itertools.takewhile(lambda edge: edge <= stop, edges)
    return (
        (Cut(input=index, start=a, stop=b, weight=b - a), b - a)
        for a, b in itertools.pairwise(inside)
    )


def line_edges(one: Input, block_bytes: int) -> Iterator[int]:
    """The bytes at which a plain file is cut, 0 and its size included."""
    # equal parts instead of full blocks and a rest: no block is nearly empty
    parts = 1 if one.kind == "txt" else max(1, -(-one.size // block_bytes))
    return (one.size * part // parts for part in range(parts + 1))


# ---------------------------------------------------------------- objects and parquet
def _row_pieces(
    index: int, one: Input, block_bytes: int, start: int, stop: int | None
) -> Iterator[tuple[Cut, int]]:
    end = len(one.rows) if stop is None else stop
    size, lines = 0, list[bytes]()
    for i, line in enumerate(row_lines(one.rows, start, end), start):
        lines.append(line + b"\n")
        size += len(lines[-1])
        if size >= block_bytes:
            yield Cut(input=index, start=start, stop=i + 1, data=b"".join(lines)), size
            start, size, lines = i + 1, 0, []
    if lines or not len(one.rows):
        yield Cut(input=index, start=start, stop=end, data=b"".join(lines)), size


def _dataset_pieces(
    index: int, one: Input, block_bytes: int, first: int, last: int | None
) -> Iterator[tuple[Cut, int]]:
    # Cut by the size of what is carried: a function of the values, where the library's own
    # figures depend on how the files happen to be chunked.
    rows = len(one.rows) if last is None else last
    for start in range(first, max(rows, 1), DATASET_ROWS):
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


def _parquet_pieces(
    index: int, one: Input, block_bytes: int, start: int, stop: int | None
) -> Iterator[tuple[Cut, int]]:
    groups = row_groups(one)
    total, count = 0, max(1, len(groups))

    def piece(stop: int) -> Cut:
        edges = (one.size * start // count, one.size * stop // count)
        return Cut(input=index, start=start, stop=stop, weight=edges[1] - edges[0])

    for group, found in list(enumerate(groups))[start:stop]:
        if group > start and total + found.bytes > block_bytes:
            yield piece(group), total
            start, total = group, 0
        total += found.bytes
    yield piece(len(groups) if stop is None else stop), total


class RowGroup(NamedTuple):
    """Unpacked bytes, rows and first byte of a row group."""

    bytes: int
    rows: int
    first: int


def row_groups(one: Input) -> list[RowGroup]:
    """The row groups of a parquet file, from its footer alone."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(f"Reading {label(one)}", "pyarrow", "parquet") from error
    try:
        with open_parquet(one) as file:
            footer = file.metadata
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        return [RowGroup(g.total_byte_size, g.num_rows, _first_byte(g)) for g in groups]
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{label(one)}: not a readable parquet file ({error}). Write it again."
        ) from error


def _first_byte(group: Any) -> int:
    """Where the first page of a row group is; a dictionary comes before its data."""
    columns = [group.column(i) for i in range(group.num_columns)]
    pages = [(one.dictionary_page_offset, one.data_page_offset) for one in columns]
    return min((min(page for page in both if page) for both in pages), default=0)


@contextlib.contextmanager
def open_parquet(one: Input) -> Iterator[Any]:
    """A Parquet file of an input, on this machine or in a bucket; an object is read in ranges."""
    import pyarrow.parquet as pq

    assert one.path is not None  # objects are no files
    if not isinstance(one.path, Url):
        with pq.ParquetFile(label(one)) as file:
            yield file
        return
    with (
        open_ranged(one.path, one.size, one.etag) as ranged,
        pq.ParquetFile(as_stream(ranged), pre_buffer=True) as file,
    ):
        yield file


# ---------------------------------------------------------------- archives
def _archive_pieces(
    index: int, one: Input, path: Place, block_bytes: int
) -> Iterator[tuple[Cut, int]]:
    """Cuts the unpacked stream after the line that fills a piece; a txt file is never cut."""
    lines, limit = one.kind != "txt", one.max_record_bytes
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


def _fed(file: RangedFile, size: int) -> Iterator[bytes]:
    """A file in pieces of `size` bytes, read in larger ones; more than it had is read, too."""
    chunk = limits().input_read_bytes
    start = 0
    while data := file.read(start, start + chunk):
        yield from (data[at : at + size] for at in range(0, len(data), size))
        start += len(data)


def _unpacked(one: Input, path: Place) -> Iterator[tuple[bytes, int]]:
    """The unpacked bytes of an archive, all members and frames, in chunks of bounded size.

    Each comes with the bytes of the archive read so far.
    """
    import zstandard

    def start() -> Any:
        if one.compression == "gz":
            return zlib.decompressobj(wbits=31)
        return zstandard.ZstdDecompressor().decompressobj()

    # deflate gives at most 1,032 bytes for one and zstd 32,768 (a run-length block), so an archive
    # made to explode yields at most 64 or 128 MiB per call
    is_gzip = one.compression == "gz"
    fed = limits().gzip_feed_bytes if is_gzip else limits().zstd_feed_bytes
    engine, position, packed = start(), 0, 0
    try:
        with open_ranged(path, one.size, one.etag) as file:
            for data in _fed(file, fed):
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
