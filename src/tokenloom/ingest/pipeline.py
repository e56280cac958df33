"""`tokenloom.build`: from inputs to a published store.

One idea: finished shards are the only progress there is. A build looks which shards of its
fingerprint are committed, continues after the last one, and publishes the manifest when all are
there. Killed at any instant and run again, it gives the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from tokenloom import version
from tokenloom.arguments import Place, Url, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError, InputError, StoreExists, StoreNotFound, plural, warn
from tokenloom.ingest.cluster.stretch_files import stretch_files
from tokenloom.ingest.crew.executors import Crew
from tokenloom.ingest.identity import duplicates_among, identify
from tokenloom.ingest.inputs import Input, label
from tokenloom.ingest.plan import (
    BuildOptions,
    BuildPlan,
    describe_inputs,
    make_plan,
    resolve_tokenizer,
    usable_cores,
    with_inputs,
)
from tokenloom.ingest.shards import Cursor, committed_shards, write_shards
from tokenloom.ingest.skips import Skips, read_skips
from tokenloom.ingest.target import (
    Standing,
    alone,
    drop_older,
    is_our_sidecar,
    make_directory,
    remains,
    remove_names,
    sizes_of,
    target_of,
)
from tokenloom.progress import Progress
from tokenloom.remote.source import source_of
from tokenloom.store import format as fmt
from tokenloom.store import snapshots
from tokenloom.store.files import Files
from tokenloom.store.hashes import with_digest
from tokenloom.store.snapshots import Snapshot
from tokenloom.store.writer import publish_manifest, publish_sidecar
from tokenloom.tokenizer.vocabulary import vocabulary_identity

log = logging.getLogger("tokenloom")

MAX_NAMED = 3  # duplicates that a message names

HASHED_ALONE = 16 << 20  # bytes of input that are hashed by one thread

HASHED_REMOTE = 8  # objects that are hashed at once: who waits for a bucket does not compute


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildMode:
    """What may happen to what is already there."""

    append: bool = False
    overwrite: bool = False
    duplicates: str = "warn"

    def __post_init__(self) -> None:
        check_fields(self)
        one_of("duplicates", self.duplicates, ("warn", "error", "allow"))
        if self.append and self.overwrite:
            raise ConfigError("append, overwrite: found both, allowed: one of them.")


def run_build(
    inputs: Any,
    out: Any,
    options: BuildOptions,
    mode: BuildMode,
    *,
    workers: int | None,
    progress: bool | None,
    files: Files | None,
) -> None:
    """Build or append; afterwards the newest snapshot at `out` is the wanted one."""
    root, files, standing = target_of(out, files)
    if mode.append and standing.snapshot is None:
        raise StoreNotFound(f"{root}: there is no store to append to. Build it first.")
    resolved = resolve_tokenizer(options)  # before hours of reading

    def planned(found: list[Input], snapshot: Snapshot | None) -> BuildPlan:
        parent = snapshot.sha256 if snapshot and mode.append else None
        return make_plan(found, options, parent, resolved)

    found = options.expand(inputs)
    whole = planned(found, standing.snapshot)
    total = sum(one.size for one in found)
    with Progress("inputs", total=total, show=progress) as bar:
        found = identify(found, threads=_threads(found, workers), progress=bar.advance)
    # every refusal, and no effect
    plan = _needed(with_inputs(whole, found), root, standing, mode, files)
    if plan is None and not mode.overwrite and not remains(standing):
        return
    make_directory(files, root)
    with alone(files, root) as (now, locked):
        if now.snapshot != standing.snapshot:  # another build has finished meanwhile
            plan = _needed(planned(found, now.snapshot), root, now, mode, files)
        if plan is not None:
            with Progress("build", total=total or None, show=progress) as bar:
                _build(plan, files, root, now.snapshot, workers, bar, mode=mode, locked=locked)
        elif remains(standing):
            files.sync_directory(root)
        if mode.overwrite:
            drop_or_tell(root, files, locked=locked)


def _threads(found: list[Input], workers: int | None) -> int:
    """How many inputs are hashed at once."""
    if any(isinstance(one.path, Url) for one in found):
        return max(workers or 1, HASHED_REMOTE)
    large = sum(one.size for one in found) >= HASHED_ALONE
    return workers or (usable_cores() if large else 1)


def drop_or_tell(root: Place, files: Files, *, locked: bool) -> None:
    """Remove what an overwritten store had; where nothing locks, say that it stays."""
    if locked:
        drop_older(root, files)
    else:
        log.warning(
            "%s: there are no locks here, so the files of older snapshots stay; "
            "`tokenloom gc --old-snapshots` removes them",
            root,
        )


def _needed(
    plan: BuildPlan, root: Place, standing: Standing, mode: BuildMode, files: Files
) -> BuildPlan | None:
    """The plan, or None if the newest snapshot is already its result."""
    before, found = standing.snapshot, plan.setup.inputs
    duplicates = duplicates_among(found)
    if mode.duplicates == "error":
        report_duplicates(duplicates, len(found), mode)
    if before is not None and _is_done(plan, root, before, files):
        return None
    if before is not None and not mode.overwrite:
        refuse_other(root, before, plan, mode)
        snapshots.check_sizes(sizes_of(root, files), root, before.manifest)
        duplicates += known_inputs(found, root, before.manifest)
    _committed(files, root, plan, before, overwrite=mode.overwrite)
    report_duplicates(duplicates, len(found), mode)
    return plan


def _is_done(plan: BuildPlan, root: Place, before: Snapshot, files: Files) -> bool:
    """Whether the newest snapshot came from these very settings."""
    last = before.manifest.parts[-1]
    # the same call again: the newest snapshot came from these settings and its own parent
    again = {**plan.on_day_of(last.settings).settings, "parent": before.manifest.parent}
    if last.settings == again:
        log.info("%s: this build is already there", root)
        files.sync_directory(root)  # its builder may have died before it could
        return True
    return False


def differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """In what the settings of two builds differ, as a message says it."""
    keys = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    names = {name: f"the {name.upper()} added to documents" for name in ("bos", "eos")}
    shown = [
        "its inputs"
        if key == "inputs"
        else f"{names.get(key, key)} ({old.get(key)!r} there, {new.get(key)!r} now)"
        for key in keys
        if key != "parent"
    ]
    return ", ".join(shown) or "later appends"


def report_duplicates(duplicates: Sequence[str], inputs: int, mode: BuildMode) -> None:
    """Raise or warn about inputs that are stored twice, as `duplicates` says.

    Args:
        duplicates: a sentence for each.
        inputs: the number of all inputs.
        mode: says what to do.
    """
    if not duplicates or mode.duplicates == "allow":
        return
    some = "; ".join(duplicates[:MAX_NAMED]) + ("; …" if len(duplicates) > MAX_NAMED else "")
    if mode.duplicates == "error":
        raise InputError(
            f"duplicates: found {len(duplicates):,} among {plural(inputs, 'input')}, allowed with "
            f"'error': none. {some}. Leave them out, or pass duplicates='allow' to store them "
            "twice."
        )
    are = "is" if len(duplicates) == 1 else "are"
    warn(
        f"{len(duplicates):,} of {plural(inputs, 'input')} {are} stored twice: {some}. Leave them "
        "out, or pass duplicates='error' to refuse them, duplicates='allow' if they are meant."
    )


def known_inputs(found: Sequence[Input], root: Place, manifest: fmt.Manifest) -> list[str]:
    """Which inputs have content that is already in the store, a sentence each."""
    source = source_of(root)
    known: dict[tuple[str, str], str] = {}
    for part in manifest.parts:
        listed = snapshots.read_inputs(source, root, manifest, part.manifest)
        known |= {(one.kind, one.sha256): one.name for one in listed}
    return [
        f"the content of {label(one)} is already in the store, as {known[one.kind, one.sha256]}"
        for one in found
        if (one.kind, one.sha256) in known and (one.size or one.rows is not None)
    ]


def refuse_other(root: Place, before: Snapshot, plan: BuildPlan, mode: BuildMode) -> None:
    """Raise for another store than the one that is there, or for what does not fit an append."""
    old, new = before.manifest.parts[0].settings, plan.settings
    if not mode.append:
        raise StoreExists(
            f"{root}: a store is already here and differs in {differences(old, new)}. Build into "
            "another directory, pass append=True to add to it, or overwrite=True to replace it."
        )
    shared = ("tokenizer", "vocab_size", "columns", "chunk_tokens", "inner")
    changed = {key: old.get(key) for key in shared if old.get(key) != new.get(key)}
    if changed:
        raise StoreExists(
            f"{root}: what is appended differs from the store in "
            f"{differences(changed, {key: new.get(key) for key in changed})}. Append with the "
            "same settings, or build another store."
        )


def _build(
    plan: BuildPlan,
    files: Files,
    root: Place,
    before: Snapshot | None,
    workers: int | None,
    bar: Progress,
    *,
    mode: BuildMode,
    locked: bool,
) -> None:
    overwrite = mode.overwrite and locked  # else it may be of a builder that lives
    done, cursor, broken = _committed(files, root, plan, before, overwrite=overwrite)
    kept = kept_skips(files, root, done)
    if broken:
        log.warning("%s: not whole, or of another build; it is written again", root / broken[0])
    remove_names(root, broken, files)
    if done:
        log.info("%s: going on after %s", root, plural(len(done), "finished shard"))
    if done and cursor.date:
        plan = plan.on_day_of({"chat_date": str(date.fromisoformat(str(cursor.date)))})
    with executor_for(plan, workers, cursor) as executor:
        fresh, cursor, skips = write_shards(
            plan,
            executor,
            files,
            root,
            snapshot=next_number(before),
            first=next_shard(before) + len(done),
            cursor=cursor,
            skips=kept[-1].flushed() if kept else Skips(),
            bar=bar,
        )
        log.debug("%s: encoded in %s: %s", root, processes_of(executor), executor.why)
    kept += kept_skips(files, root, fresh)
    skips = replace(skips, places=tuple(line for one in [*kept, skips] for line in one.places))
    publish(plan, files, root, before, done + fresh, cursor, skips, keeps=not mode.overwrite)


def kept_skips(files: Files, root: Place, entries: list[fmt.ShardEntry]) -> list[Skips]:
    """What the shards of a build kept of records that were left out."""
    found = []
    for entry in entries:
        path = root / entry.name / "skipped.jsonl.zst"
        size = entry.files.get(path.name)
        if size is not None:
            found.append(read_skips(files.read(path, size) or b"", str(path)))
    return found


def _inputs_json(plan: BuildPlan) -> bytes:
    return fmt.canonical(describe_inputs(plan.setup.inputs)) + b"\n"


def next_number(before: Snapshot | None) -> int:
    """The number of the next snapshot."""
    return before.manifest.number + 1 if before else 1


def next_shard(before: Snapshot | None) -> int:
    """The number of the first shard after a snapshot."""
    if before is None or not before.manifest.shards:
        return 0
    return int(before.manifest.shards[-1].name.removeprefix("shard-")) + 1


def _committed(
    files: Files, root: Place, plan: BuildPlan, before: Snapshot | None, *, overwrite: bool
) -> tuple[list[fmt.ShardEntry], Cursor, list[str]]:
    """Shards of this very build that are already there, where to go on, and what is in the way.

    In the way are a shard of ours that lacks a file, and with `overwrite` shards and the list of
    inputs of another build that has not finished; without it, these are refused.
    """
    listed = fmt.inputs_name(next_number(before))
    raw = files.read(root / listed, fmt.MAX_RECORD_BYTES)
    other = raw is not None and raw != _inputs_json(plan)
    if other and not overwrite:
        raise StoreExists(
            f"{root / listed}: an unfinished build with other inputs left this list. Run that "
            "build again to finish it, or `tokenloom gc --unfinished` to remove it."
        )
    sidecar = [listed] if other and is_our_sidecar(root, listed, files) else []
    stretched = stretch_files(files.list(root), next_number(before))
    if stretched and not overwrite:
        raise StoreExists(
            f"{root / stretched[-1]}: an unfinished build in stretches is here. Finish it with the "
            "same number of them (`--stretches N`, or `--part K/N` and `--finish`), or remove it "
            "with `tokenloom gc --unfinished`."
        )
    first = next_shard(before)
    entries, cursor, broken = committed_shards(
        files, root, plan, first, Cursor(date=plan.day), overwrite=overwrite
    )
    return entries, cursor, sidecar + stretched + broken


@contextmanager
def executor_for(
    plan: BuildPlan, workers: int | None, cursor: Cursor, total: int | None = None
) -> Iterator[Crew]:
    """Who encodes the blocks of a plan from a cursor on; `total` is bytes of input in all."""
    reason = plan.setup.stays_here()
    if workers is not None and workers > 1 and reason is not None:
        log.warning("encoding in one process: %s", reason)
    inputs = plan.setup.inputs
    known = all(one.kind not in ("hf", "table", "rows") for one in inputs)
    total = sum(one.size for one in inputs) if total is None else total
    executor = Crew(
        plan.setup,
        plan.kitchen,
        workers if reason is None else 1,
        most=usable_cores(),
        left=total - cursor.bytes if known else None,
        opened=plan.opened,
        reason=reason,
    )
    well = False
    try:
        yield executor
        well = True
    finally:
        executor.close(well=well)


def processes_of(executor: Crew) -> str:
    """How many processes encode, in words."""
    return "1 process" if executor.processes == 1 else f"{executor.processes} processes"


def publish(
    plan: BuildPlan,
    files: Files,
    root: Place,
    before: Snapshot | None,
    entries: list[fmt.ShardEntry],
    cursor: Cursor,
    skips: Skips,
    *,
    keeps: bool,
) -> None:
    """Publish the manifest over committed shards, and what belongs beside it.

    Args:
        plan: with identified inputs.
        files: the seam for effects.
        root: the store's directory.
        before: the newest snapshot.
        entries: the shards of the new one.
        cursor: what was left out.
        skips: why.
        keeps: whether the shards of `before` belong to the new one.
    """
    number = next_number(before)
    old = before.manifest if before and keeps else None
    sidecars = dict(old.files) if old else {}
    name = fmt.inputs_name(number)
    sidecars[name] = publish_sidecar(files, root, name, _inputs_json(plan))
    tokenizer = old.tokenizer if old else None
    if not old:
        tokenizer, more = _publish_tokenizer(plan, files, root)
        sidecars |= more
    listed = f"skipped-{number:06d}.jsonl"
    if skips.table:
        places = b"\n".join([*skips.places, b""])
        sidecars[listed] = publish_sidecar(files, root, listed, places)
    part = fmt.Part(
        manifest=number,
        fingerprint=plan.fingerprint,
        shards=len(entries),
        documents=sum(entry.documents for entry in entries),
        tokens=sum(entry.tokens for entry in entries),
        skipped=cursor.skipped,
        filtered=cursor.filtered,
        settings=plan.settings,
    )
    shards = (*(old.shards if old else ()), *entries)
    documents = sum(shard.documents for shard in shards)
    groups = fmt.unknown_groups(documents)
    manifest = fmt.Manifest(
        number=number,
        parent=before.sha256 if before and keeps else None,
        dtype=plan.setup.job.dtype,
        vocab_size=plan.setup.job.vocab_size,
        chunk_tokens=plan.options.chunk_tokens,
        inner=plan.options.inner,
        columns=plan.setup.job.columns,
        tokenizer=tokenizer,
        documents=documents,
        tokens=sum(shard.tokens for shard in shards),
        digest=fmt.content_digest(groups, documents),
        groups=groups,
        parts=(*(old.parts if old else ()), part),
        files=sidecars,
        shards=shards,
        producer={"tokenloom": version.__version__},
    )
    _warn_if_empty(root, part, skips)
    # shards and sidecars of a killed run may be there without being safe: first they, then we
    files.sync_directory(root)
    publish_manifest(files, root, with_digest(manifest, source_of(root), root, known=old))
    counts = f"{plural(cursor.skipped, 'record')} skipped, {cursor.filtered:,} filtered"
    if skips.table:
        told = "\n".join([*skips.rows(), f"their places: {root / listed}"])
        level = logging.WARNING if cursor.skipped else logging.INFO
        log.log(level, "%s: %s; reasons:\n%s", root, counts, told)
    elif cursor.filtered:
        log.warning("%s: %s", root, counts)


def _warn_if_empty(root: Place, part: fmt.Part, skips: Skips) -> None:
    """A store without a text is reported before it is published."""
    empty = sum(n for why, (n, _, _) in skips.table.items() if why.startswith("kept: empty text"))
    if part.documents and empty == part.documents:
        texts = "its only text" if empty == 1 else f"every one of its {empty:,} texts"
        warn(
            f"{root}: {texts} is empty, so there is "
            "nothing to train on. Is the text under another key? Look at text_key and transform."
        )
    elif not part.documents:
        warn(
            f"{root}: it has no documents: {plural(part.skipped, 'record')} skipped, "
            f"{part.filtered:,} filtered, so there is nothing to train on. Look at the inputs."
        )


def _publish_tokenizer(
    plan: BuildPlan, files: Files, root: Place
) -> tuple[fmt.TokenizerRecord | None, dict[str, fmt.FileRecord]]:
    """Keep the tokenizer in the store, so that its ids can always be read as text."""
    spec = plan.setup.spec
    if spec is None:
        return None, {}
    record = fmt.TokenizerRecord(**spec.describe(), identity=vocabulary_identity(spec))
    if not spec.payload:
        return record, {}
    suffix = "model" if spec.kind == "sentencepiece" else "json"
    name = f"tokenizer-{spec.sha256[:8]}.{suffix}"
    file = publish_sidecar(files, root, name, spec.payload)
    return replace(record, file=name), {name: file}
