"""One stretch: its shards, and then its record.

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

import hashlib
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from tokenloom.arguments import Place
from tokenloom.errors import InputError, StoreError, plural
from tokenloom.ingest.cluster.division import Division, Reach, divide, length_of, records_before
from tokenloom.ingest.cluster.stretch_files import Read, StretchRecord, publish_record, read_record
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
