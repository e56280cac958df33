"""`tokenloom.build`: from inputs to a published store.

One idea: finished shards are the only progress there is. A build looks which shards of its
fingerprint are committed, continues after the last one, and publishes the manifest when all are
there. Killed at any instant and run again, it gives the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenloom import version
from tokenloom.arguments import integer, one_of
from tokenloom.errors import InputError, StoreExists, StoreNotFound, plural
from tokenloom.ingest.executors import Executor, InProcess, Processes
from tokenloom.ingest.identity import identify, refuse_duplicates
from tokenloom.ingest.inputs import Input, expand
from tokenloom.ingest.plan import (
    BuildOptions,
    BuildPlan,
    default_workers,
    describe_inputs,
    make_plan,
)
from tokenloom.ingest.shards import Cursor, write_shards
from tokenloom.progress import Progress
from tokenloom.store import format as fmt
from tokenloom.store import snapshots
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.derived.hashes import with_digest
from tokenloom.store.files import TEMPORARY_PREFIX, Files
from tokenloom.store.snapshots import Snapshot
from tokenloom.store.writer import publish_manifest, publish_sidecar, shard_entry
from tokenloom.tokenizer.vocabulary import vocabulary_identity

__all__ = ["run_build"]

log = logging.getLogger("tokenloom")

POLL_SECONDS = 0.1


def run_build(
    inputs: Any,
    root: Path,
    options: BuildOptions,
    *,
    workers: int | None,
    executor: str,
    append: bool,
    allow_duplicates: bool,
    progress: bool | None,
    files: Files,
) -> None:
    """Build or append; afterwards the newest snapshot at `root` is the wanted one."""
    one_of("executor", executor, ("local",))
    if workers is not None:
        workers = integer("workers", workers, 1)
    found = expand(inputs)
    total = sum(one.size for one in found)
    workers = workers or default_workers(total)
    with Progress("inputs", total=total, show=progress) as bar:
        found = identify(found, threads=workers, progress=bar.advance)
    if not allow_duplicates:
        refuse_duplicates(found)
    _make_directory(files, root)
    with _alone(files, root):
        before = _snapshot(files, root)
        if append and before is None:
            raise StoreNotFound(f"{root}: there is no store to append to. Build it first.")
        plan = _plan(found, options, root, before, append, allow_duplicates, files)
        if plan is None:
            return
        if before is not None:
            _check_fits(root, before.manifest, plan)
        with Progress("build", total=total or None, show=progress) as bar:
            _build(plan, files, root, before, workers, bar)


def _plan(
    found: list[Input],
    options: BuildOptions,
    root: Path,
    before: Snapshot | None,
    append: bool,
    allow_duplicates: bool,
    files: Files,
) -> BuildPlan | None:
    """The plan, or None if the newest snapshot is already its result."""
    plan = make_plan(found, options, before.sha256 if before and append else None)
    if before is None:
        return plan
    last = before.manifest.parts[-1]
    # the same call again: the newest snapshot came from these settings and its own parent
    again = {**plan.settings, "parent": before.manifest.parent}
    if last.settings == again:
        log.info("%s: this build is already there", root)
        files.sync_directory(root)  # its builder may have died before it could
        return None
    if not append:
        raise StoreExists(
            f"{root}: a store is already here and differs in "
            f"{_differences(before.manifest.parts[0].settings, plan.settings)}. Build into another "
            "directory, pass append=True to add to it, or remove it first."
        )
    snapshots.check_sizes(LocalSource(root), root, before.manifest)
    if not allow_duplicates:
        _refuse_known(found, root, before.manifest)
    return plan


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    keys = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    shown = [
        "its inputs" if key == "inputs" else f"{key} ({old.get(key)!r} there, {new.get(key)!r} now)"
        for key in keys
        if key != "parent"
    ]
    return ", ".join(shown) or "later appends"


def _refuse_known(found: list[Input], root: Path, manifest: fmt.Manifest) -> None:
    """An append must not add a file whose content is already in the store."""
    source = LocalSource(root)
    known: dict[tuple[str, str], str] = {}
    for part in manifest.parts:
        listed = snapshots.read_inputs(source, root, manifest, part.manifest)
        known |= {(one.kind, one.sha256): one.name for one in listed}
    for one in found:
        if (one.kind, one.sha256) in known:
            raise InputError(
                f"{one.name}: its content is already in the store, as "
                f"{known[one.kind, one.sha256]}. Leave it out, or pass allow_duplicates=True."
            )


def _check_fits(root: Path, manifest: fmt.Manifest, plan: BuildPlan) -> None:
    """What is appended must mean the same as what is there."""
    old, new = manifest.parts[0].settings, plan.settings
    shared = ("tokenizer", "vocab_size", "columns", "chunk_tokens", "inner")
    changed = {key: old.get(key) for key in shared if old.get(key) != new.get(key)}
    if changed:
        raise StoreExists(
            f"{root}: what is appended differs from the store in "
            f"{_differences(changed, {key: new.get(key) for key in changed})}. Append with the "
            "same settings, or build another store."
        )


def _build(
    plan: BuildPlan,
    files: Files,
    root: Path,
    before: Snapshot | None,
    workers: int,
    bar: Progress,
) -> None:
    first = _next_shard(before)
    done, cursor = _committed(files, root, plan, first)
    if done:
        log.info("%s: going on after %s", root, plural(len(done), "finished shard"))
    with _executor(plan, workers) as executor:
        fresh, cursor = write_shards(
            plan, executor, files, root, first=first + len(done), cursor=cursor, bar=bar
        )
    _publish(plan, files, root, before, done + fresh, cursor)


def _next_shard(before: Snapshot | None) -> int:
    if before is None or not before.manifest.shards:
        return 0
    return int(before.manifest.shards[-1].name.removeprefix("shard-")) + 1


def _committed(
    files: Files, root: Path, plan: BuildPlan, first: int
) -> tuple[list[fmt.ShardEntry], Cursor]:
    """Shards of this very build that are already there, and where to go on."""
    entries: list[fmt.ShardEntry] = []
    cursor = Cursor()
    while True:
        folder = root / fmt.shard_name(first + len(entries))
        raw = files.read(folder / "shard.json", fmt.MAX_RECORD_BYTES)
        if raw is None:
            return entries, cursor
        record = fmt.unseal(fmt.ShardRecord, raw, str(folder / "shard.json"))
        if not _is_whole(folder, record):
            log.warning("%s: a file of this shard is missing or cut; it is written again", folder)
            files.remove(folder)
            return entries, cursor
        if record.fingerprint != plan.fingerprint:
            raise StoreExists(
                f"{folder}: an unfinished build with other inputs or settings left this shard. "
                "Run that build again to finish it, or `tokenloom gc --unfinished` to remove it."
            )
        entries.append(shard_entry(record, raw))
        cursor = Cursor(**record.progress)


def _is_whole(folder: Path, record: fmt.ShardRecord) -> bool:
    source = LocalSource(folder)
    return all(source.size(name) == file.bytes for name, file in record.files.items())


@contextmanager
def _executor(plan: BuildPlan, workers: int) -> Iterator[Executor]:
    reason = plan.setup.stays_here()
    if workers > 1 and reason is not None:
        log.warning("encoding in one process: %s", reason)
    one = workers == 1 or reason is not None
    executor = InProcess(plan.setup, plan.kitchen) if one else Processes(plan.setup, workers)
    try:
        yield executor
    finally:
        executor.close()


def _publish(
    plan: BuildPlan,
    files: Files,
    root: Path,
    before: Snapshot | None,
    entries: list[fmt.ShardEntry],
    cursor: Cursor,
) -> None:
    old = before.manifest if before else None
    number = old.number + 1 if old else 1
    sidecars = dict(old.files) if old else {}
    listed = fmt.canonical(describe_inputs(plan.setup.inputs)) + b"\n"
    name = fmt.inputs_name(number)
    sidecars[name] = publish_sidecar(files, root, name, listed)
    tokenizer = old.tokenizer if old else None
    if not old:
        tokenizer, more = _publish_tokenizer(plan, files, root)
        sidecars |= more
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
        parent=before.sha256 if before else None,
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
    # shards and sidecars of a killed run may be there without being safe: first they, then we
    files.sync_directory(root)
    publish_manifest(files, root, with_digest(manifest, LocalSource(root), root, known=old))
    if cursor.skipped or cursor.filtered:
        log.warning(
            "%s: %s skipped, %d filtered",
            root,
            plural(cursor.skipped, "record"),
            cursor.filtered,
        )


def _publish_tokenizer(
    plan: BuildPlan, files: Files, root: Path
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


# -- the target directory ------------------------------------------------------------------
def _make_directory(files: Files, root: Path) -> None:
    """Make the store's directory and those above it, durably."""
    missing = []
    path = root
    while not path.exists():
        missing.append(path)
        path = path.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another builder was faster
            files.mkdir(path)
    # A killed run may have made directories without syncing them. Such a directory holds nothing
    # but the next one, so sync upwards as long as that is so.
    path = root.absolute()
    files.sync_directory(path.parent)
    try:
        while len(files.list(path.parent)) == 1 and path.parent != path:
            path = path.parent
            files.sync_directory(path.parent)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):  # those above may not be ours to open
            raise


@contextmanager
def _alone(files: Files, root: Path) -> Iterator[None]:
    """Wait until no other process builds here; remove what dead builders left."""
    waiting = False
    while True:
        with files.lock(root) as held:
            if held is not False:
                if held:  # really locked: no temporary file here belongs to a living build
                    _sweep(files, root)
                yield
                return
        if not waiting:
            log.warning("%s: another process is building here; waiting for it", root)
            waiting = True
        time.sleep(POLL_SECONDS)


def _sweep(files: Files, root: Path) -> None:
    for name in files.list(root):
        if name.startswith(TEMPORARY_PREFIX):
            files.remove(root / name)


def _snapshot(files: Files, root: Path) -> Snapshot | None:
    """The newest snapshot, or None; a directory that holds something else is refused."""
    names = files.list(root)  # one look: without locks another builder may finish meanwhile
    numbers = snapshots.numbers(names)
    if numbers:
        return snapshots.load(root, numbers[-1], files)
    strangers = [name for name in names if not fmt.is_store_name(name)]
    if strangers:
        raise StoreExists(
            f"{root}: this directory holds other things ({', '.join(strangers[:3])}). "
            "Name a new directory for the store."
        )
    return None
