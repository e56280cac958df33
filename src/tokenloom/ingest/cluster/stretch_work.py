"""One stretch: its shards, and then its record.

One idea: a stretch is a build of its own that publishes no manifest. It has numbers for its shards
that no other stretch has, so any number of processes work in one directory without a word to each
other; whoever dies is replaced by anybody, who goes on after the last finished shard. A stretch
that two processes do at once is done twice, with the same bytes, and published once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from tokenloom.arguments import Place
from tokenloom.errors import StoreError, plural
from tokenloom.ingest.cluster.division import Division, divide, records_before
from tokenloom.ingest.cluster.range_hashes import hash_stretch, stretch_fingerprint
from tokenloom.ingest.cluster.stretch_files import StretchRecord, publish_record, read_record
from tokenloom.ingest.pipeline import executor_for, kept_skips, processes_of
from tokenloom.ingest.plan import BuildPlan
from tokenloom.ingest.shards import Cursor, committed_shards, write_shards
from tokenloom.ingest.skips import Skips
from tokenloom.ingest.target import remove_names, together
from tokenloom.progress import Progress
from tokenloom.store.files import Files

__all__ = ["STEP", "Task", "bytes_of", "run_stretch"]

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
