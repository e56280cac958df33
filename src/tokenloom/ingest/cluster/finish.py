"""Records of all stretches in, one published manifest out.

One idea: joining reads no token. Shards, counts and reasons come from the records, the sha256 of
the inputs from what each stretch read, the digest from the hashes that the shards hold. The
manifest has the bytes of a build of one process with the same stretches. Of two that finish at
once, one publishes, and the other finds it done.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenloom.arguments import Place
from tokenloom.errors import StoreCorrupt, StoreError, plural
from tokenloom.ingest.cluster.range_hashes import join_inputs
from tokenloom.ingest.cluster.stretch_files import (
    StretchRecord,
    read_plan,
    read_record,
    stretch_files,
)
from tokenloom.ingest.identity import duplicates_among
from tokenloom.ingest.pipeline import (
    BuildMode,
    drop_or_tell,
    kept_skips,
    known_inputs,
    next_number,
    publish,
    report_duplicates,
)
from tokenloom.ingest.plan import BuildPlan, with_inputs
from tokenloom.ingest.shards import Cursor
from tokenloom.ingest.skips import MAX_PLACES, Skips
from tokenloom.ingest.target import alone, look, remove_names, sizes_of
from tokenloom.store import format as fmt
from tokenloom.store.files import Files
from tokenloom.store.snapshots import Snapshot

__all__ = ["finish_stretches"]

SHOWN = 20  # parts that a message names


def _absent(records: Sequence[StretchRecord | None]) -> list[int]:
    """Parts without a record, counted from 1."""
    return [stretch + 1 for stretch, record in enumerate(records) if record is None]


def _records(files: Files, root: Place, plan: BuildPlan, number: int) -> list[StretchRecord | None]:
    """What each part wrote down; None where there is no record."""
    stretches = plan.options.stretches
    if read_plan(files, root, number) is None:
        return [None] * stretches
    return [read_record(files, root, number, s, plan.fingerprint) for s in range(stretches)]


def finish_stretches(
    plan: BuildPlan, files: Files, root: Place, before: Snapshot | None, mode: BuildMode
) -> None:
    """Publish the manifest over the shards of all stretches, and remove their records.

    Raises:
        StoreError: parts are missing; says which.
        InputError: an input changed between two parts, or is there twice.
    """
    number = next_number(before)
    absent = _absent(_records(files, root, plan, number))
    if absent and look(root, files).snapshot == before:  # parts under way keep the lock
        raise _missing(root, absent, plan.options.stretches)
    with alone(files, root) as (now, locked):
        # read once: where nobody can lock, another may publish and clear them away meanwhile
        records = _records(files, root, plan, number)
        known = [record for record in records if record is not None]
        if now.snapshot == before and len(known) == len(records):
            _join(plan, files, root, before, mode, known)
        elif look(root, files).snapshot == before:
            raise _missing(root, _absent(records), len(records))
        left = stretch_files(files.list(root), number)
        remove_names(root, left, files)
        files.sync_directory(root)
        if mode.overwrite:
            drop_or_tell(root, files, locked=locked)


def _missing(root: Place, parts: list[int], stretches: int) -> StoreError:
    shown = ", ".join(map(str, parts[:SHOWN])) + (", …" if len(parts) > SHOWN else "")
    are = "is" if len(parts) == 1 else "are"
    return StoreError(
        f"{root}: {len(parts):,} of {plural(stretches, 'part')} {are} missing: {shown}. Run "
        f"each of them, as with --part {parts[0]}/{stretches}, then finish again."
    )


def _join(
    plan: BuildPlan,
    files: Files,
    root: Place,
    before: Snapshot | None,
    mode: BuildMode,
    records: list[StretchRecord],
) -> None:
    inputs = join_inputs(plan.setup.inputs, records)
    duplicates = duplicates_among(inputs)
    if before is not None and mode.append:
        duplicates += known_inputs(inputs, root, before.manifest)
    report_duplicates(duplicates, len(inputs), mode)
    entries = [entry for record in records for entry in record.shards]
    _check_there(files, root, entries)
    skipped = sum(record.skipped for record in records)
    filtered = sum(record.filtered for record in records)
    publish(
        with_inputs(plan, inputs),
        files,
        root,
        before,
        entries,
        Cursor(skipped=skipped, filtered=filtered),
        _joined_skips(files, root, records),
        keeps=not mode.overwrite,
    )


def _check_there(files: Files, root: Place, entries: Sequence[fmt.ShardEntry]) -> None:
    """A shard may be long finished: somebody may have cleared it away."""
    size_of = sizes_of(root, files)  # of a bucket, one listing
    for entry in entries:
        for name, size in entry.files.items():
            found = size_of(f"{entry.name}/{name}")
            if found != size:
                what = "is missing" if found is None else f"has {found:,} bytes, not {size:,}"
                raise StoreCorrupt(
                    f"{root / entry.name / name}: it {what} since its part was done. Remove this "
                    "build with `tokenloom gc --unfinished` and run every part again."
                )


def _joined_skips(files: Files, root: Place, records: Sequence[StretchRecord]) -> Skips:
    """What all stretches left out; an input that is cut counts once in each of its stretches."""
    table: dict[str, tuple[int, int, int]] = {}
    places: list[bytes] = []
    for record in records:
        for one in kept_skips(files, root, list(record.shards)):
            places += one.places
        places += [line.encode() for line in record.places]
        for why, (count, inputs, last) in record.reasons.items():
            known = table.get(why, (0, 0, -1))
            table[why] = known[0] + count, known[1] + inputs, last
    listed = places[:MAX_PLACES]
    return Skips(table=table, places=tuple(listed), listed=len(listed))
