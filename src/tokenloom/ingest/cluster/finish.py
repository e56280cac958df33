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
from tokenloom.ingest.identity import refuse_duplicates
from tokenloom.ingest.pipeline import (
    BuildMode,
    drop_or_tell,
    kept_skips,
    next_number,
    publish,
    refuse_known,
)
from tokenloom.ingest.plan import BuildPlan, with_inputs
from tokenloom.ingest.shards import Cursor
from tokenloom.ingest.skips import MAX_PLACES, Skips
from tokenloom.ingest.target import alone, look, remove_names, sizes_of
from tokenloom.store import format as fmt
from tokenloom.store.files import Files
from tokenloom.store.snapshots import Snapshot

__all__ = ["finish_stretches", "missing_parts"]

SHOWN = 20  # parts that a message names


def missing_parts(files: Files, root: Place, plan: BuildPlan, number: int) -> list[int]:
    """Parts whose record is not there, counted from 1."""
    stretches = plan.options.stretches
    if read_plan(files, root, number) is None:
        return list(range(1, stretches + 1))
    found = [read_record(files, root, number, s, plan.fingerprint) for s in range(stretches)]
    return [stretch + 1 for stretch, record in enumerate(found) if record is None]


def finish_stretches(
    plan: BuildPlan, files: Files, root: Place, before: Snapshot | None, mode: BuildMode
) -> None:
    """Publish the manifest over the shards of all stretches, and remove their records.

    Raises:
        StoreError: parts are missing; says which.
        InputError: an input changed between two parts, or is there twice.
    """
    missing = missing_parts(files, root, plan, next_number(before))
    if missing and look(root, files).snapshot != before:
        return  # another has finished meanwhile, and cleared the records away
    if missing:
        shown = ", ".join(map(str, missing[:SHOWN])) + (", …" if len(missing) > SHOWN else "")
        stretches, are = plan.options.stretches, "is" if len(missing) == 1 else "are"
        raise StoreError(
            f"{root}: {len(missing):,} of {plural(stretches, 'part')} {are} missing: {shown}. Run "
            f"each of them, as with --part {missing[0]}/{stretches}, then finish again."
        )
    with alone(files, root) as (now, locked):
        if now.snapshot == before:  # else another has finished meanwhile
            _join(plan, files, root, before, mode)
        left = stretch_files(files.list(root), next_number(before))
        remove_names(root, left, files)
        files.sync_directory(root)
        if mode.overwrite:
            drop_or_tell(root, files, locked=locked)


def _join(
    plan: BuildPlan, files: Files, root: Place, before: Snapshot | None, mode: BuildMode
) -> None:
    number = next_number(before)
    found = (
        read_record(files, root, number, stretch, plan.fingerprint)
        for stretch in range(plan.options.stretches)
    )
    records = [record for record in found if record is not None]
    inputs = join_inputs(plan.setup.inputs, records)
    if not mode.allow_duplicates:
        refuse_duplicates(inputs)
        if before is not None and mode.append:
            refuse_known(inputs, root, before.manifest)
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
