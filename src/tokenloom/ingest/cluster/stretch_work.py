"""One stretch: where it starts and ends, its shards, and then its record.

Put all inputs end to end, each as long as its bytes, and cut the line into `stretches` equal
lengths. Where a cut falls inside an input it moves to an edge that a reader can start at::

    small input          the nearer end of it (small: at most a quarter of a stretch)
    plain jsonl, lines   the piece before it (`tokenloom.ingest.cuts`)
    parquet              the row group before it; the footer of that one file is read
    hf, table, rows      the row before it, for tables in steps of 1,024; a row counts as 1 KiB
    txt, .gz, .zst       the nearer end: they can't be read from the middle

So a stretch is a pure function of names, sizes, `block_bytes` and the number of stretches: every
machine finds the same ones without talking to another, and a machine that does stretch 3 looks
into no input of stretch 5. Stretches may be empty.

Document numbers in an input stay what they are in one piece: a stretch that starts inside a file
of lines counts the newlines before it (`records_before`), at less than 1 % of what encoding the
same bytes costs, unless the stretch before it is done and says how many there are.

One idea: a stretch is a build of its own that publishes no manifest. It has numbers for its shards
that no other stretch has, so any number of processes work in one directory without a word to each
other; whoever dies is replaced by anybody, who goes on after the last finished shard. A stretch
that two processes do at once is done twice, with the same bytes, and published once.

Each byte is hashed by whoever encodes it, right before that, so N machines hash as much as one. An
input inside one stretch has its sha256. One that is cut is hashed whole by the stretch that reads
its start, which also notes the xxh3_128 of every range; each other stretch notes that of its own
range. The finish believes the sha256 of an input only if the ranges agree: an input that was
changed between two parts, whatever its size, is found.

Cost: 0.15 ns a byte for xxh3 (7 GB/s), and one sha256 of each input, as in a build on one machine.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import xxhash

from tokenloom.arguments import Place
from tokenloom.errors import InputError, StoreError, plural
from tokenloom.ingest.cluster.stretch_files import Read, StretchRecord, publish_record, read_record
from tokenloom.ingest.cuts import DATASET_ROWS, PIECE_COST, Edge, row_groups
from tokenloom.ingest.identity import content
from tokenloom.ingest.inputs import Input
from tokenloom.ingest.pipeline import executor_for, kept_skips, processes_of
from tokenloom.ingest.plan import BuildPlan
from tokenloom.ingest.shards import Cursor, committed_shards, write_shards
from tokenloom.ingest.skips import Skips
from tokenloom.ingest.spool import Spool
from tokenloom.ingest.target import remove_names, together
from tokenloom.progress import Progress
from tokenloom.store.files import Files

ROW_BYTES = 1024  # what a row of an object counts as: asking would mean reading it

SMALL = 4  # an input below this share of a stretch is never cut


class Reach(NamedTuple):
    """Bytes of a file, or rows of an object, that a stretch reads."""

    input: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """Where the stretches of a list of inputs start.

    Attributes:
        inputs: what is cut.
        stretches: into how many.
        block_bytes: bytes of text per block.
        ends: the length of the line up to the end of each input, in bytes [inputs].
    """

    inputs: Sequence[Input]
    stretches: int
    block_bytes: int
    ends: tuple[int, ...]

    def edge(self, stretch: int) -> Edge:
        """Where a stretch starts; that of number `stretches` is the end of the inputs."""
        place = self.ends[-1] * stretch // self.stretches
        index = bisect.bisect_right(self.ends, place)
        if index == len(self.inputs):
            return Edge(index)
        start = self.ends[index - 1] if index else 0
        length, within = self.ends[index] - start, place - start
        one = self.inputs[index]
        small = length * SMALL * self.stretches <= self.ends[-1]
        if small or one.kind == "txt" or one.compression != "none":
            return Edge(index + (2 * within >= length))
        return Edge(index, self._unit(one, within, length))

    def parts(self, stretch: int) -> list[Reach]:
        """What a stretch reads, in order."""
        since, until = self.edge(stretch), self.edge(stretch + 1)
        found = []
        for index in range(since.input, until.input + bool(until.start)):
            one = self.inputs[index]
            start = _content_place(one, since.start) if index == since.input else 0
            stop = length_of(one)
            if until.start and index == until.input:
                stop = _content_place(one, until.start)
            found.append(Reach(index, start, stop))
        return found if since < until else []

    def cuts(self, index: int) -> list[int]:
        """Where an input is cut, in bytes or rows, ascending; empty if one stretch reads it all."""
        start = self.ends[index - 1] if index else 0
        total, count = self.ends[-1], self.stretches
        near = range(start * count // total, min(count, self.ends[index] * count // total + 2))
        edges = {self.edge(stretch) for stretch in near}
        inside = sorted(edge.start for edge in edges if edge.input == index and edge.start)
        return [_content_place(self.inputs[index], start) for start in inside]

    def _unit(self, one: Input, within: int, length: int) -> int:
        """The last edge of an input at or before a place in it."""
        if _is_object(one):
            step = 1 if one.kind == "rows" else DATASET_ROWS
            return len(one.rows) * within // length // step * step
        if one.kind == "parquet":
            starts = [group.first for group in row_groups(one)]
            ordered = starts == sorted(set(starts))
            return max(0, bisect.bisect_right(starts, within) - 1) if ordered else 0
        parts = max(1, -(-one.size // self.block_bytes))
        return one.size * (parts * within // length) // parts


def divide(inputs: Sequence[Input], stretches: int, block_bytes: int) -> Division:
    """The division of inputs into stretches.

    >>> from pathlib import Path
    >>> one = Input(kind="jsonl", name="a", path=Path("a"), size=1000)
    >>> two = Input(kind="txt", name="b", path=Path("b"), size=100)
    >>> [tuple(divide([one, two], 2, 10).edge(s)) for s in range(3)]
    [(0, 0), (0, 910), (2, 0)]
    """
    lengths = [
        PIECE_COST + length_of(one) * (ROW_BYTES if _is_object(one) else 1) for one in inputs
    ]
    return Division(
        inputs=inputs,
        stretches=stretches,
        block_bytes=block_bytes,
        ends=tuple(itertools.accumulate(lengths)),
    )


def length_of(one: Input) -> int:
    """Bytes of a file, rows of an object."""
    return len(one.rows) if _is_object(one) else one.size


def _is_object(one: Input) -> bool:
    return one.path is None or one.kind == "hf"


def _content_place(one: Input, start: int) -> int:
    """The byte or row of an edge, which in a parquet file is a row group."""
    return row_groups(one)[start].first if one.kind == "parquet" and start else start


def records_before(one: Input, start: int) -> int:
    """Records of an input before an edge in it."""
    if _is_object(one):
        return start
    if one.kind == "parquet":
        return sum(group.rows for group in row_groups(one)[:start])
    # a line that starts at the edge itself is not before it
    parts = (np.frombuffer(part, np.uint8) for part in content(one, 0, max(0, start - 1)))
    newlines = sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)
    return newlines + 1 if start else 0


log = logging.getLogger("tokenloom")

STEP = 10_000  # shard numbers of a stretch

MOST_SHARDS = 1_000_000_000  # numbers that a shard's name has room for


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Which stretch of what.

    Attributes:
        root: the store's directory.
        number: of the snapshot that is being built.
        first: number of the first shard of that snapshot.
        stretch: counted from 0.
    """

    root: Place
    number: int
    first: int
    stretch: int


def run_stretch(
    plan: BuildPlan, files: Files, task: Task, *, workers: int | None, bar: Progress
) -> StretchRecord:
    """Write, check and publish the shards of a stretch, then its record.

    A stretch whose record is there is done; nothing of it is read again.

    Raises:
        InputError: an input cannot be read, or is in the stretch twice.
        StoreExists: shards of another build are in the way.
    """
    with together(files, task.root):
        found = read_record(files, task.root, task.number, task.stretch, plan.fingerprint)
        return found or _run(plan, files, task, workers, bar)


def _run(
    plan: BuildPlan, files: Files, task: Task, workers: int | None, bar: Progress
) -> StretchRecord:
    division = divide(plan.setup.inputs, plan.options.stretches, plan.options.block_bytes)
    since, until = division.edge(task.stretch), division.edge(task.stretch + 1)
    reads = hash_stretch(division, task.stretch)
    fingerprint = stretch_fingerprint(plan.fingerprint, task.stretch, reads)
    own = replace(plan, fingerprint=fingerprint, since=since, until=until)
    first = task.first + task.stretch * STEP
    start = _start(division, plan, files, task)
    done, cursor, broken = committed_shards(files, task.root, own, first, start, overwrite=False)
    remove_names(task.root, broken, files)
    if done:
        shards = plural(len(done), "finished shard")
        log.info("%s: part %d goes on after %s", task.root, task.stretch + 1, shards)
    kept = kept_skips(files, task.root, done)
    total = bytes_of(division, task.stretch)
    with executor_for(own, workers, cursor, total) as executor:
        fresh, cursor, skips = write_shards(
            own,
            executor,
            files,
            task.root,
            snapshot=task.number,
            first=first + len(done),
            cursor=cursor,
            skips=kept[-1].flushed() if kept else Skips(),
            bar=bar,
        )
        log.debug("%s: encoded in %s: %s", task.root, processes_of(executor), executor.why)
    record = StretchRecord(
        number=task.number,
        stretch=task.stretch,
        plan=plan.fingerprint,
        fingerprint=fingerprint,
        shards=(*done, *fresh),
        skipped=cursor.skipped,
        filtered=cursor.filtered,
        bytes=total,
        records=cursor.base,
        reads=reads,
        reasons={why: tuple(counts) for why, counts in skips.table.items()},
        places=tuple(line.decode() for line in skips.places),
    )
    _check_room(task, record)
    publish_record(files, task.root, record)
    return record


def _start(division: Division, plan: BuildPlan, files: Files, task: Task) -> Cursor:
    """Where the first document of a stretch comes from.

    Records of its first input that come before are counted, unless the stretch before has done so.
    """
    edge = division.edge(task.stretch)
    if not edge.start:
        return Cursor(input=edge.input)
    done = read_record(files, task.root, task.number, task.stretch - 1, plan.fingerprint)
    if done is not None:
        return Cursor(input=edge.input, base=done.records)
    return Cursor(input=edge.input, base=records_before(division.inputs[edge.input], edge.start))


def bytes_of(division: Division, stretch: int) -> int:
    """Bytes of files, as stored, that a stretch reads."""
    sizes = (
        part.stop - part.start
        for part in division.parts(stretch)
        if division.inputs[part.input].size
    )
    return sum(sizes)


def _check_room(task: Task, record: StretchRecord) -> None:
    """A stretch has numbers for `STEP` shards; more would be those of the next one."""
    last = task.first + (task.stretch + 1) * STEP
    if len(record.shards) > STEP or last > MOST_SHARDS:
        raise StoreError(
            f"{task.root}: part {task.stretch + 1} has {len(record.shards):,} shards from number "
            f"{last - STEP:,} on, allowed: {STEP:,} shards with numbers below {MOST_SHARDS:,}. Use "
            "more stretches, or larger shards."
        )


def hash_stretch(division: Division, stretch: int) -> tuple[Read, ...]:
    """What a stretch is about to read.

    Raises:
        InputError: a file changed its size or became unreadable.
    """
    return tuple(_read(division, part) for part in division.parts(stretch))


def _read(division: Division, part: Reach) -> Read:
    one = division.inputs[part.input]
    found = Read(input=part.input, start=part.start, stop=part.stop)
    if part.start:
        return replace(found, hashes=(_hashes(one, [part.start, part.stop])[1][0],))
    cuts = division.cuts(part.input)
    if not cuts and isinstance(one.rows, Spool):
        return replace(found, sha256=one.rows.sha256)
    sha256, hashes = _hashes(one, [0, *cuts, length_of(one)])
    return replace(found, sha256=sha256, hashes=hashes if cuts else ())


def _hashes(one: Input, edges: Sequence[int]) -> tuple[str, tuple[str, ...]]:
    """The sha256 of the bytes between the first edge and the last, and the hash of each range."""
    whole, hashes = hashlib.sha256(), list[str]()
    first = edges[0] == 0
    for start, stop in itertools.pairwise(edges):
        own = xxhash.xxh3_128()
        for piece in content(one, start, stop):
            own.update(piece)
            if first:
                whole.update(piece)
        hashes.append(own.hexdigest())
    return whole.hexdigest(), tuple(hashes)


def stretch_fingerprint(plan: str, stretch: int, reads: Sequence[Read]) -> str:
    """The fingerprint of the shards of a stretch: over the plan and what was read."""
    told = [f"{one.input}:{one.start}:{one.stop}:{one.sha256}:{one.hashes}" for one in reads]
    return hashlib.sha256("\n".join([plan, str(stretch), *told]).encode()).hexdigest()


def join_inputs(inputs: Sequence[Input], records: Sequence[StretchRecord]) -> list[Input]:
    """The inputs with their sha256, from the records of all stretches.

    Raises:
        InputError: an input changed while its stretches were encoded.
    """
    whole: dict[int, Read] = {}
    ranges: dict[int, list[tuple[StretchRecord, Read]]] = {}
    for record in records:
        for read in record.reads:
            if read.sha256:
                whole[read.input] = read
            else:
                ranges.setdefault(read.input, []).append((record, read))
    for index, read in whole.items():
        later = ranges.get(index, [])
        for expected, (record, found) in zip(read.hashes[1:], later, strict=True):
            if found.hashes != (expected,):
                raise InputError(
                    f"{inputs[index].name}: part {record.stretch + 1} read other bytes than the "
                    "part that hashed it, so it changed between the two. Remove this build with "
                    "`tokenloom gc --unfinished` and run every part again."
                )
    return [replace(one, sha256=whole[index].sha256) for index, one in enumerate(inputs)]
