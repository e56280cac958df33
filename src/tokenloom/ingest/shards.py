"""Encoded blocks in, committed shards out, with a place to go on from after each.

One idea: a *cursor* (block, document in the block) says where a shard starts. A shard is a pure
function of the plan and its cursor, so it can be written again after a crash.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Place
from tokenloom.errors import InputError, StoreExists, TokenizerError, sentence
from tokenloom.ingest.crew.executors import Crew, Task
from tokenloom.ingest.cuts import Block, blocks
from tokenloom.ingest.encode import EncodedBlock, bad_records
from tokenloom.ingest.inputs import label
from tokenloom.ingest.plan import GLANCE_BYTES, BuildPlan
from tokenloom.ingest.skips import Skips, Told
from tokenloom.ingest.target import is_our_shard, sizes_of
from tokenloom.progress import Progress
from tokenloom.store import format as fmt
from tokenloom.store.files import Files
from tokenloom.store.metadata import MAX_LINES_BYTES
from tokenloom.store.writer import ShardWriter, shard_entry

log = logging.getLogger("tokenloom")

SHOWN_SKIPS = 5

MAX_GLANCE_BYTES = 1 << 20  # a single record, or a row group, may be larger than GLANCE_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """Where the next document comes from, and what was seen before.

    Attributes:
        block: number of the block.
        document: documents of that block that are already written.
        input: the input that the last block ended in.
        base: records of that input in blocks before this one.
        skipped: records that could not be used, in blocks before this one.
        filtered: records that hooks dropped, in blocks before this one.
        bytes: bytes of input, as stored, in blocks before this one.
        date: the day that the chat template of this build writes, as YYYYMMDD, if nobody set it.

    Records are counted from 0 in messages, as in `_record`.
    """

    block: int = 0
    document: int = 0
    input: int = 0
    base: int = 0
    skipped: int = 0
    filtered: int = 0
    bytes: int = 0
    date: int = 0

    def as_progress(self) -> dict[str, int]:
        """What a shard's commit record keeps."""
        kept = self.__slots__ if self.date else self.__slots__[:-1]
        return {name: getattr(self, name) for name in kept}


def committed_shards(
    files: Files, root: Place, plan: BuildPlan, first: int, cursor: Cursor, *, overwrite: bool
) -> tuple[list[fmt.ShardEntry], Cursor, list[str]]:
    """Shards of a plan that are already there, numbered from `first`.

    Gives them, where to go on, and what is in the way: a shard of ours that lacks a file or, with
    `overwrite`, those of another build.

    Raises:
        StoreExists: a shard of another build is in the way, without `overwrite`.
    """
    what = ", another chat template perhaps," if plan.setup.job.chat else ""
    left = f"build with other inputs or settings{what} left this shard. Run that build"
    entries, last, broken = finished_shards(
        files, root, plan.fingerprint, left, first=first, overwrite=overwrite
    )
    return entries, cursor if last is None else Cursor(**last.progress), broken


def finished_shards(
    files: Files,
    root: Place,
    fingerprint: str,
    left: str,
    *,
    first: int = 0,
    overwrite: bool = False,
) -> tuple[list[fmt.ShardEntry], fmt.ShardRecord | None, list[str]]:
    """Shards of a fingerprint that are already there, the record of the last, what is in the way.

    Args:
        files: how to read.
        root: the store's directory.
        fingerprint: what marks the shards.
        left: says of a shard of another build who left it, and what to run again.
        first: number of the first one.
        overwrite: whether shards of another build are in the way; else they are refused.
    """
    entries: list[fmt.ShardEntry] = []
    last = None
    while True:
        folder = root / fmt.shard_name(first + len(entries))
        raw = files.read(folder / "shard.json", fmt.MAX_RECORD_BYTES)
        if raw is None:
            return entries, last, []
        record = fmt.unseal(fmt.ShardRecord, raw, str(folder / "shard.json"))
        ours = record.fingerprint == fingerprint
        if overwrite and not ours:
            return entries, last, shards_from(files, root, first + len(entries))
        size_of = sizes_of(folder, files)
        if any(size_of(name) != file.bytes for name, file in record.files.items()):
            return entries, last, [folder.name]
        if not ours:
            raise StoreExists(
                f"{folder}: an unfinished {left} again to finish it, or `tokenloom gc "
                "--unfinished` to remove it."
            )
        entries.append(shard_entry(record, raw))
        last = record


def shards_from(files: Files, root: Place, first: int) -> list[str]:
    """Shards of ours from number `first` on."""
    found = [fmt.SHARD_NAME.fullmatch(name) for name in files.list(root)]
    later = [match[0] for match in found if match and int(match[1]) >= first]
    return [name for name in later if is_our_shard(root, name, files)]


def write_shards(
    plan: BuildPlan,
    executor: Crew,
    files: Files,
    root: Place,
    *,
    snapshot: int,
    first: int,
    cursor: Cursor,
    skips: Skips,
    bar: Progress,
) -> tuple[list[fmt.ShardEntry], Cursor, Skips]:
    """Write all shards of a snapshot from `cursor` on, numbered from `first`.

    Gives them, the last cursor, and what there is to tell of records that no shard has.
    """
    entries: list[fmt.ShardEntry] = []
    stream = _Stream(plan, executor, bar, cursor, skips)
    while True:
        entry = _write_shard(stream, files, root, first + len(entries), snapshot)
        if entry is None:
            return entries, stream.cursor, stream.skips
        entries.append(entry)


@dataclass(slots=True)
class _Stream:
    """Encoded blocks from a cursor on; the cursor moves as documents are taken."""

    plan: BuildPlan
    executor: Crew
    bar: Progress
    cursor: Cursor
    skips: Skips
    documents: int = 0
    tokens: int = 0
    _current: tuple[Block, EncodedBlock] | None = None
    _shown: int = 0
    _results: Iterator[tuple[Task, EncodedBlock]] = field(init=False)

    def __post_init__(self) -> None:
        plan, first = self.plan, self.cursor.block
        size = plan.options.block_bytes
        cut = blocks(
            plan.setup.inputs, first=first, since=plan.since, until=plan.until, block_bytes=size
        )
        tasks = enumerate(cut, first)
        self._results = self.executor.run(iter(tasks))

    def block(self) -> tuple[Block, EncodedBlock] | None:
        """The block under the cursor, or None at the end of the inputs."""
        if self._current is None:
            found = next(self._results, None)
            if found is None:
                return None
            (_, block), encoded = found
            self._report(block, encoded)
            self._current = block, encoded
        return self._current

    def take(self, documents: int) -> None:
        """Move the cursor on by that many documents of the current block."""
        assert self._current is not None  # `block` came first
        block, encoded = self._current
        at = self.cursor
        used = at.document + documents
        if used < len(encoded.lengths):
            self.cursor = replace(at, document=used)
            return
        starts = self.piece_starts(block, encoded)
        self.cursor = replace(
            at,
            block=at.block + 1,
            document=0,
            input=block[-1].input,
            base=int(starts[-1]) + encoded.counts[-1],
            skipped=at.skipped + len(encoded.errors),
            filtered=at.filtered + encoded.filtered,
            bytes=at.bytes + sum(piece.weight for piece in block),
        )
        self.skips = self.skips.plus(self._places(block, encoded, starts))
        self._current = None
        self.documents += len(encoded.lengths)
        self.tokens += len(encoded.ids)
        self.bar.reach(self.cursor.bytes)
        several = f", {self.executor.processes} processes" if self.executor.processes > 1 else ""
        self.bar.count(self.documents, self.tokens, several)

    def piece_starts(self, block: Block, encoded: EncodedBlock) -> NDArray[np.int64]:
        """Number of the first record of each piece of the current block, in its input."""
        starts, seen = [], {self.cursor.input: self.cursor.base}
        for piece, count in zip(block, encoded.counts, strict=True):
            starts.append(seen.get(piece.input, 0))
            seen[piece.input] = starts[-1] + count
        return np.array(starts, np.int64)

    def _places(
        self, block: Block, encoded: EncodedBlock, starts: NDArray[np.int64]
    ) -> Iterator[Told]:
        """What there is to tell of the records of a block, in their order."""
        job = self.plan.setup.job
        added = [name.upper() for name in ("bos", "eos") if getattr(job, name) is not None]
        empty = np.flatnonzero(encoded.lengths == len(added))
        told = [(piece, record, "skipped", why) for piece, record, why in encoded.errors]
        told += [(piece, record, "kept", why) for piece, record, why in encoded.notes]
        places = zip(encoded.piece[empty].tolist(), encoded.record[empty].tolist(), strict=True)
        what = f"empty text, a document of {' and '.join(added)} alone" if added else "empty text"
        told += [(piece, record, "kept", what) for piece, record in places]
        for piece, record, kind, why in sorted(told):
            number = block[piece].input
            name = self.plan.setup.inputs[number].name
            yield Told(number, name, int(starts[piece]) + record, kind, why)

    def _report(self, block: Block, encoded: EncodedBlock) -> None:
        """Raise for the first bad record, or count them and show the first few."""
        starts = self.piece_starts(block, encoded)
        if encoded.fatal is not None:
            piece, record, message = encoded.fatal
            where = _where(self.plan, block[piece].input, int(starts[piece]) + record)
            raise TokenizerError(f"{where}: {message}")
        for piece, record, message in encoded.errors:
            where = _where(self.plan, block[piece].input, int(starts[piece]) + record)
            text = sentence(f"{where}: {message}")
            if self.plan.options.on_error == "raise":
                raise _bad_record(text)
            if self._shown < SHOWN_SKIPS:
                log.warning("skipped %s", text)
            self._shown += 1


def _bad_record(text: str) -> InputError:
    return InputError(f"{text} Fix the record, or pass on_error='skip' to skip it.")


def check_first_records(plan: BuildPlan) -> None:
    """Raise for the first bad record at the start of the inputs, as a build does."""
    setup = plan.setup
    if plan.options.on_error != "raise":
        return
    size = min(plan.options.block_bytes, GLANCE_BYTES)
    for block in itertools.islice(blocks(setup.inputs, block_bytes=size), 1):
        if sum(piece.weight for piece in block) > MAX_GLANCE_BYTES:
            return
        for piece, record, message in bad_records(setup.job, plan.kitchen, setup.inputs, block):
            if piece == 0:  # the first of its input, so its records are numbered from 0
                where = _where(plan, block[piece].input, record)
                raise _bad_record(sentence(f"{where}: {message}"))


def _where(plan: BuildPlan, number: int, record: int) -> str:
    """The place of a record: input and number from 0, and the line where there are lines."""
    one = plan.setup.inputs[number]
    line = f" (line {record + 1})" if one.kind in ("lines", "jsonl") else ""
    return f"{label(one)}: record {record}{line}"


def _write_shard(
    stream: _Stream, files: Files, root: Place, number: int, snapshot: int
) -> fmt.ShardEntry | None:
    """One committed shard, or None if there are no more documents."""
    plan = stream.plan
    writer: ShardWriter | None = None
    try:
        while (found := stream.block()) is not None:
            block, encoded = found
            first = stream.cursor.document
            lengths, lines = encoded.lengths[first:], encoded.lines[first:]
            count = fitting(writer, lengths, lines, plan.options.shard_tokens)
            if count:
                writer = writer or ShardWriter(
                    files,
                    root,
                    number,
                    dtype=plan.setup.job.dtype,
                    columns=plan.setup.job.columns,
                    inner=plan.options.inner,
                )
                _append(writer, stream, block, encoded, slice(first, first + count))
            elif first < len(encoded.lengths):
                break  # the shard is full
            stream.take(count)
        if writer is None:
            return None
        progress = stream.cursor.as_progress()
        entry = writer.commit(
            fingerprint=plan.fingerprint,
            engine=plan.engine,
            progress=progress,
            snapshot=snapshot,
            skipped=stream.skips.packed(),
        )
        stream.skips = stream.skips.flushed()
        return entry
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


def fitting(
    writer: ShardWriter | None,
    lengths: NDArray[np.int64],
    lines: Sequence[bytes],
    shard_tokens: int,
) -> int:
    """How many documents of these lengths and metadata (if any) still belong into this shard."""
    if not len(lengths):
        return 0
    if int(lengths.max()) > fmt.MAX_DOCUMENT_TOKENS:
        raise InputError(
            f"a document has {int(lengths.max()):,} tokens, allowed: "
            f"{fmt.MAX_DOCUMENT_TOKENS:,}. Split it before building."
        )
    tokens, documents, metadata = (
        (writer.tokens, writer.documents, writer.metadata_bytes) if writer else (0, 0, 0)
    )
    sizes = np.array([len(line) for line in lines] or [0] * len(lengths), np.int64)
    fits = min(
        int(np.searchsorted(tokens + np.cumsum(lengths), shard_tokens, "right")),
        int(np.searchsorted(metadata + np.cumsum(sizes), MAX_LINES_BYTES, "right")),
        fmt.SHARD_DOCUMENTS - documents,
    )
    # a document above the cap gets a shard of its own
    return max(fits, 1) if writer is None else fits


def _append(
    writer: ShardWriter, stream: _Stream, block: Block, encoded: EncodedBlock, documents: slice
) -> None:
    edges = np.concatenate([[0], np.cumsum(encoded.lengths)])
    tokens = slice(int(edges[documents.start]), int(edges[documents.stop]))
    writer.append(
        encoded.ids[tokens],
        encoded.lengths[documents],
        {name: values[tokens] for name, values in encoded.columns.items()},
    )
    owner = np.array([piece.input for piece in block], np.int64)
    piece = encoded.piece[documents]
    records = stream.piece_starts(block, encoded)[piece] + encoded.record[documents]
    writer.describe_documents(encoded.lines[documents], owner[piece], records)
