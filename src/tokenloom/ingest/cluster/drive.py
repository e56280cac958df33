"""Builds in stretches: all of them here, one of them, or the finish of what others did.

One idea: all three ways first make the same plan, from the same arguments, and agree on it through
one file in the store (`stretch_files`). Nothing else is shared, so parts may start in any order,
at any time, on any machine that sees the inputs and the store. A process that does a part opens no
store and no run, so this module imports neither: of a short part, starting is most of the time.

The finish reads no token. Shards, counts and reasons come from the records, the sha256 of the
inputs from what each stretch read, the digest from the hashes that the shards hold. The manifest
has the bytes of a build of one process with the same stretches. Of two that finish at once, one
publishes, and the other finds it done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenloom.arguments import Place, field_names, integer, near_misses, one_of, part_of
from tokenloom.errors import (
    ConfigError,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreNotFound,
    plural,
)
from tokenloom.ingest.cluster.on_ray import refuse_objects, run_tasks
from tokenloom.ingest.cluster.stretch_files import (
    Listed,
    StretchPlan,
    StretchRecord,
    publish_plan,
    read_plan,
    read_record,
    stretch_files,
)
from tokenloom.ingest.cluster.stretch_work import (
    Division,
    Task,
    bytes_of,
    divide,
    hash_stretch,
    join_inputs,
    run_stretch,
)
from tokenloom.ingest.identity import duplicates_among, identify
from tokenloom.ingest.pipeline import (
    BuildMode,
    drop_or_tell,
    kept_skips,
    known_inputs,
    next_number,
    next_shard,
    publish,
    refuse_other,
    report_duplicates,
)
from tokenloom.ingest.plan import (
    MOST_STRETCHES,
    BuildOptions,
    BuildPlan,
    make_plan,
    resolve_tokenizer,
    usable_cores,
    with_inputs,
)
from tokenloom.ingest.shards import Cursor, shards_from
from tokenloom.ingest.skips import MAX_PLACES, Skips
from tokenloom.ingest.target import (
    alone,
    look,
    make_directory,
    place_of,
    remains,
    remove_names,
    sizes_of,
    target_of,
    together,
)
from tokenloom.progress import Progress
from tokenloom.remote.source import source_of
from tokenloom.remote.uploads import files_of
from tokenloom.store import format as fmt
from tokenloom.store.files import Files
from tokenloom.store.snapshots import Snapshot, check_sizes, read_inputs

log = logging.getLogger("tokenloom")


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A build in stretches that is about to start.

    Attributes:
        root: the store's directory.
        files: the seam for effects.
        plan: over inputs that are not hashed yet.
        before: the newest snapshot, or None.
        mode: what may happen to it.
    """

    root: Place
    files: Files
    plan: BuildPlan
    before: Snapshot | None
    mode: BuildMode

    def task(self, stretch: int) -> Task:
        """The task of a stretch, counted from 0."""
        return Task(
            root=self.root,
            number=next_number(self.before),
            first=next_shard(self.before),
            stretch=stretch,
        )


def planned_stretches(out: Any, files: Files | None) -> int:
    """The number of stretches of the build at `out`, unfinished or just published.

    Raises:
        StoreNotFound: there is none.
    """
    root = place_of(out)
    files = files or files_of(root)
    for _ in range(2):  # whoever finishes first publishes, and then removes the plan
        before = look(root, files).snapshot
        plan = read_plan(files, root, next_number(before))
        published = before.manifest.parts[-1].settings if before else {}
        found = (plan.settings if plan else published).get("stretches", 0)
        if isinstance(found, int) and found >= 2:
            return found
    raise StoreNotFound(
        f"{root}: no part of a build is here. Run the parts first, as with --part 1/64."
    )


def prepare(
    inputs: Any, out: Any, options: BuildOptions, mode: BuildMode, files: Files | None
) -> Site:
    """A build in parts: every refusal that needs no content, and no effect.

    Raises:
        StoreExists: another store is at `out`, or other things are.
        InputError: an input is missing, or a file is listed twice.
    """
    if options.stretches == 1:
        raise ConfigError(
            "stretches: found 1, allowed: 2 to 10,000 for a build in parts. Build it without."
        )
    return survey(inputs, out, options, mode, files)


def survey(
    inputs: Any, out: Any, options: BuildOptions, mode: BuildMode, files: Files | None = None
) -> Site:
    """What a build would do: every refusal that needs no more than first records, and no effect."""
    root, files, standing = target_of(out, files)
    before = standing.snapshot
    if mode.append and before is None:
        raise StoreNotFound(f"{root}: there is no store to append to. Build it first.")
    resolved = resolve_tokenizer(options)  # before hours of reading
    found = options.expand(inputs)
    if mode.duplicates == "error":  # files listed twice; equal content is found by the finish
        report_duplicates(duplicates_among(found), len(found), mode)
    plan = make_plan(found, options, before.sha256 if before and mode.append else None, resolved)
    begun = read_plan(files, root, next_number(before)) if options.stretches > 1 else None
    plan = plan.on_day_of(begun.settings) if begun else plan
    site = Site(root=root, files=files, plan=plan, before=before, mode=mode)
    if before is not None and not mode.overwrite and not is_published(site):
        refuse_other(root, before, plan, mode)
    return site


def is_published(site: Site) -> bool:
    """Whether the newest snapshot came from these settings, and inputs of these sizes."""
    if site.before is None:
        return False
    manifest = site.before.manifest
    last = manifest.parts[-1]
    again = site.plan.on_day_of(last.settings).settings
    again = {**again, "parent": manifest.parent, "inputs": last.settings["inputs"]}
    if last.settings != again:
        return False
    listed = read_inputs(source_of(site.root), site.root, manifest, last.manifest)
    found = [(one.name, one.kind, one.size) for one in site.plan.setup.inputs]
    return [(one.name, one.kind, one.bytes) for one in listed] == found


def agree(site: Site) -> None:
    """Publish the plan of a build, or raise if another one is there."""
    make_directory(site.files, site.root)
    with together(site.files, site.root):
        publish_plan(site.files, site.root, _shared(site))


def _shared(site: Site) -> StretchPlan:
    plan = site.plan
    return StretchPlan(
        number=next_number(site.before),
        fingerprint=plan.fingerprint,
        settings=plan.settings,
        inputs=tuple(Listed(name=i.name, kind=i.kind, bytes=i.size) for i in plan.setup.inputs),
    )


def run_part(
    site: Site, part: int, *, workers: int | None, progress: bool | None
) -> StretchRecord | None:
    """Do one part, counted from 1, if it is not done yet.

    Gives its record; None if the store is already published.

    Raises:
        ConfigError: there is no such part.
        StoreExists: parts with other settings or inputs are here, or a store of other content.
    """
    stretches = site.plan.options.stretches
    part = integer("part", part, 1, stretches)
    if is_published(site):
        _check_content(site, part - 1)
        log.info("%s: this build is already published; part %d is not needed", site.root, part)
        return None
    agree(site)
    total = bytes_of(_division(site), part - 1)
    with Progress(f"part {part}/{stretches}", total=total or None, show=progress) as bar:
        return run_stretch(site.plan, site.files, site.task(part - 1), workers=workers, bar=bar)


def _check_content(site: Site, stretch: int) -> None:
    """What a part would read must be what the published store was made of."""
    assert site.before is not None  # it is published
    manifest = site.before.manifest
    number = manifest.parts[-1].manifest
    listed = read_inputs(source_of(site.root), site.root, manifest, number)
    for read in hash_stretch(_division(site), stretch):
        if read.sha256 and read.sha256 != listed[read.input].sha256 and not site.mode.overwrite:
            raise StoreExists(
                f"{site.root}: this build is already published, of another "
                f"{listed[read.input].name}, which has changed since. Build into another "
                "directory, or pass append=True to add it."
            )


def run_all(site: Site, *, executor: str, workers: int | None, progress: bool | None) -> None:
    """Do every stretch that is not done yet, here or on Ray, and finish."""
    if is_published(site) and _same_content(site):
        log.info("%s: this build is already there", site.root)
        _tidy(site)
        return
    if executor != "local":
        refuse_objects(site.plan.setup, executor)
    begin(site)
    total = sum(one.size for one in site.plan.setup.inputs)
    tasks = [site.task(stretch) for stretch in range(site.plan.options.stretches)]
    with Progress("build", total=total or None, show=progress) as bar:
        if executor == "local":
            done = 0
            for task in tasks:
                bar.start_at(done)
                done += run_stretch(site.plan, site.files, task, workers=workers, bar=bar).bytes
        else:
            run_tasks(site.plan, tasks, executor=executor, workers=workers, bar=bar)
    _finish(site)


def begin(site: Site) -> None:
    """Agree on the plan; with `overwrite`, first clear away another unfinished build."""
    if site.mode.append and site.before is not None:
        check_sizes(sizes_of(site.root, site.files), site.root, site.before.manifest)
    if site.mode.overwrite:
        _clear(site)
    agree(site)


def _clear(site: Site) -> None:
    number = next_number(site.before)
    make_directory(site.files, site.root)
    with alone(site.files, site.root) as (_, locked):
        there = read_plan(site.files, site.root, number)
        if locked and there is not None and there != _shared(site):
            doomed = shards_from(site.files, site.root, next_shard(site.before))
            listed = stretch_files(site.files.list(site.root), number)
            remove_names(site.root, [*doomed, *listed], site.files)


def finish_parts(site: Site) -> None:
    """Publish what the parts did; if that is done, clear away what a dead finisher left."""
    if is_published(site):
        log.info("%s: this build is already published", site.root)
        _tidy(site)
    else:
        _finish(site)


def _tidy(site: Site) -> None:
    """Whoever published may have died before the rest was removed."""
    standing = look(site.root, site.files)
    left = stretch_files(standing.names, next_number(site.before) - 1)
    if not left and not remains(standing) and not site.mode.overwrite:
        return
    with alone(site.files, site.root) as (_, locked):
        remove_names(site.root, left, site.files)
        site.files.sync_directory(site.root)
        if site.mode.overwrite:
            drop_or_tell(site.root, site.files, locked=locked)


def _division(site: Site) -> Division:
    options = site.plan.options
    return divide(site.plan.setup.inputs, options.stretches, options.block_bytes)


def _same_content(site: Site) -> bool:
    """Whether the published store holds these very inputs; raises if they only look alike."""
    assert site.before is not None  # it is published
    found = identify(site.plan.setup.inputs, threads=usable_cores())
    last = site.before.manifest.parts[-1].settings
    if with_inputs(site.plan, found).settings["inputs"] == last["inputs"]:
        return True
    if site.mode.overwrite:
        return False
    refuse_other(site.root, site.before, site.plan, site.mode)
    return False


SHOWN = 20  # parts that a message names


def _absent(records: Sequence[StretchRecord | None]) -> list[int]:
    """Parts without a record, counted from 1."""
    return [stretch + 1 for stretch, record in enumerate(records) if record is None]


def _records(site: Site) -> list[StretchRecord | None]:
    """What each part wrote down; None where there is no record."""
    files, root, number = site.files, site.root, next_number(site.before)
    stretches = site.plan.options.stretches
    if read_plan(files, root, number) is None:
        return [None] * stretches
    return [read_record(files, root, number, s, site.plan.fingerprint) for s in range(stretches)]


def _finish(site: Site) -> None:
    """Publish the manifest over the shards of all stretches, and remove their records.

    Raises:
        StoreError: parts are missing; says which.
        InputError: an input changed between two parts, or is there twice.
    """
    files, root, before = site.files, site.root, site.before
    absent = _absent(_records(site))
    if absent and look(root, files).snapshot == before:  # parts under way keep the lock
        raise _missing(site, absent)
    with alone(files, root) as (now, locked):
        # read once: where nobody can lock, another may publish and clear them away meanwhile
        records = _records(site)
        known = [record for record in records if record is not None]
        if now.snapshot == before and len(known) == len(records):
            _join(site, known)
        elif look(root, files).snapshot == before:
            raise _missing(site, _absent(records))
        remove_names(root, stretch_files(files.list(root), next_number(before)), files)
        files.sync_directory(root)
        if site.mode.overwrite:
            drop_or_tell(root, files, locked=locked)


def _missing(site: Site, parts: list[int]) -> StoreError:
    stretches = site.plan.options.stretches
    shown = ", ".join(map(str, parts[:SHOWN])) + (", …" if len(parts) > SHOWN else "")
    are = "is" if len(parts) == 1 else "are"
    return StoreError(
        f"{site.root}: {len(parts):,} of {plural(stretches, 'part')} {are} missing: {shown}. Run "
        f"each of them, as with --part {parts[0]}/{stretches}, then finish again."
    )


def _join(site: Site, records: list[StretchRecord]) -> None:
    inputs = join_inputs(site.plan.setup.inputs, records)
    duplicates = duplicates_among(inputs)
    if site.before is not None and site.mode.append:
        duplicates += known_inputs(inputs, site.root, site.before.manifest)
    report_duplicates(duplicates, len(inputs), site.mode)
    entries = [entry for record in records for entry in record.shards]
    _check_there(site.files, site.root, entries)
    skipped = sum(record.skipped for record in records)
    filtered = sum(record.filtered for record in records)
    publish(
        with_inputs(site.plan, inputs),
        site.files,
        site.root,
        site.before,
        entries,
        Cursor(skipped=skipped, filtered=filtered),
        _joined_skips(site.files, site.root, records),
        keeps=not site.mode.overwrite,
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


# -- one part of a build that several machines share -----------------------------------------
_MODE = tuple(field_names(BuildMode))

SETTINGS = (*(name for name in field_names(BuildOptions) if name != "stretches"), *_MODE)

"""What a part may be told, named as in `tokenloom.build`; the rest is how it is made."""


@near_misses("build_part", *SETTINGS)
def build_part(
    inputs: Any,
    out: str | Path,
    part: str,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    files: Files | None = None,
    **settings: Any,
) -> dict[str, int]:
    """Do one part of a build that several machines share; `finish_build` publishes it.

    Every part gets the same arguments but for `part`. Parts run in any order, at once or one after
    the other, on machines that see the inputs and `out`; nothing else connects them. A part that
    was killed is run again and continues after its last finished shard; one that is done returns at
    once.

    Args:
        inputs: as in `tokenloom.build`, apart from iterators, which only one process can read.
        out: directory of the store.
        part: which part of how many stretches, counted from 1, as ``"3/64"``.
        workers: number of encoding processes; see `tokenloom.build`.
        progress: show a progress bar; default: if standard error is a terminal.
        files: the interface that everything is written through; default: by `out`.
        settings: as in `tokenloom.build`.

    Returns:
        What the part holds: shards, documents, tokens, records skipped and filtered, bytes of
        input; empty if the store is already published.

    Raises:
        StoreExists: parts with other settings or inputs are at `out`; says in what they differ.
        InputError: a bad record or file.

    >>> import tempfile, tokenloom.cluster as cluster
    >>> folder = tempfile.TemporaryDirectory()
    >>> rows, out = [{"text": "ab"}, {"text": "c"}], folder.name + "/toy"
    >>> for part in ("2/2", "1/2"):
    ...     done = cluster.build_part(rows, out, part, tokenizer="bytes")
    ...     print(done["documents"], done["tokens"])
    1 1
    1 2
    >>> cluster.finish_build(rows, out, tokenizer="bytes").lengths.tolist()
    [2, 1]
    >>> folder.cleanup()
    """
    number, stretches = part_of(part)
    if stretches > MOST_STRETCHES:
        raise ConfigError(f"part: found {part!r}, allowed: 1 to {MOST_STRETCHES:,} parts in all.")
    one_of("progress", progress, (None, True, False))
    site = site_of("build_part", inputs, out, stretches, files, settings)
    if workers is not None:
        workers = integer("workers", workers, 1)
    record = run_part(site, number, workers=workers, progress=progress)
    return record.counts() if record else {}


def site_of(
    where: str, inputs: Any, out: Any, stretches: int, files: Files | None, settings: dict[str, Any]
) -> Site:
    """A build as its parts see it.

    Args:
        where: the function that was called, for messages.
        inputs: as in `tokenloom.build`.
        out: directory of the store.
        stretches: the number of parts.
        files: the interface that everything is written through; None: by `out`.
        settings: as in `tokenloom.build`; those of the mode are taken out.
    """
    if "tokenizer" not in settings:
        raise ConfigError(f"{where}: no tokenizer. Pass tokenizer=..., None for ready-made ids.")
    mode = BuildMode(**{name: settings.pop(name) for name in _MODE if name in settings})
    options = BuildOptions(**settings, stretches=stretches)
    return prepare(inputs, out, options, mode, files)
