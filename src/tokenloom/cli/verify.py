"""`tokenloom verify`, `tokenloom seal` and `tokenloom gc`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tokenloom.api.describe import named_snapshots
from tokenloom.api.store import open_store
from tokenloom.arguments import Place, Url, place
from tokenloom.cli.printing import said, write
from tokenloom.errors import ConfigError, StoreCorrupt, binary_size, plural
from tokenloom.foreign.described import Described
from tokenloom.foreign.opened import describe_files, is_ours, open_foreign
from tokenloom.foreign.places import Said
from tokenloom.foreign.seals import check_target, foreign_bytes, seal_files, seal_path
from tokenloom.ingest.target import Collected, collect, held
from tokenloom.progress import Progress
from tokenloom.remote.source import source_of
from tokenloom.remote.uploads import files_of, read_whole
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.verify import VerifyReport

MAX_BYTES = 16 << 20


def verify(arguments: argparse.Namespace) -> int:
    """Compare a store with what was published: `tokenloom verify`."""
    quiet = False if arguments.quiet else None
    try:
        store = open_store(arguments.store, **said(arguments))
    except StoreCorrupt as error:
        report = VerifyReport(arguments.store, 0, 0, 0, 0, 0, (str(error),))
    else:
        report = store.check(part=arguments.part, progress=quiet)
    ok = report.ok and not report.unfinished
    write(arguments, {**asdict(report), "ok": ok}, _verify_lines(report))
    return 0 if ok else 1


def _verify_lines(report: VerifyReport) -> Iterator[str]:
    yield from report.problems
    yield from report.unfinished
    yield from (f"{report.path}: {line}" for line in report.unguarded)
    yield from report.unseen
    if report.problems:
        yield f"{report.path}: {plural(len(report.problems), 'problem')}"
        return
    well = "what was published is well" if report.unfinished else "all is well"
    if report.unguarded:
        well = "what can be checked is well"
    yield (
        f"{report.path}: {well} ({plural(report.shards, 'shard')}, {report.files} files, "
        f"{binary_size(report.bytes)}, {report.tokens:,} tokens)"
    )


def seal(arguments: argparse.Namespace) -> int:
    """Write checksums for files that have none: `tokenloom seal`."""
    told = Said(**{**said(arguments), "seal": None})
    described = None if is_ours(arguments.store) else describe_files(arguments.store, told)
    if described is None:
        raise ConfigError(
            f"{arguments.store}: found no files of a foreign format, allowed: those of another "
            "project. A store of ours has its checksums inside; `tokenloom verify` compares them."
        )
    target = place("to", arguments.to) if arguments.to else seal_path(described)
    check_target(target)
    reader = open_foreign(
        described, path=arguments.store, rules=FetchRules(), cache=BlockCache(0), use_seal=False
    )
    show = False if arguments.quiet else None
    with Progress("seal", total=foreign_bytes(reader), unit="B", show=show) as bar:
        path = seal_files(reader, target, tick=bar.advance)
    size = source_of(path.parent).size(path.name) or 0
    about = {"path": arguments.store, "seal": str(path), "bytes": size}
    about |= {"digest": reader.manifest.digest, "tokens": reader.manifest.tokens}
    words = f"{arguments.store}: sealed by {path} ({binary_size(size)})"
    write(arguments, about, [words, *_seal_hint(arguments, described, path)])
    return 0


def _seal_hint(arguments: argparse.Namespace, described: Described, path: Place) -> Iterator[str]:
    usual = seal_path(described)
    if path != usual and (isinstance(path, Url) or path.resolve() != usual):
        yield f"open it with tokenloom.open({arguments.store!r}, seal={str(path)!r})"


def gc(arguments: argparse.Namespace) -> int:
    """Remove what no snapshot needs: `tokenloom gc`."""
    root = place("store", arguments.store)
    files = files_of(root)
    named = {one for path in arguments.pin_for for one in named_snapshots(_json(path))}
    collected = collect(
        root,
        old_snapshots=arguments.old_snapshots,
        pinned=[*arguments.pin, *held(root, named, files)],
        unfinished=arguments.unfinished,
        idle_hours=arguments.idle_hours,
        dry_run=arguments.dry_run,
        files=files,
    )
    write(arguments, asdict(collected), _gc_lines(arguments, collected))
    return 0


def _json(path: str) -> Any:
    """The content of a file with a state or a description."""
    raw = read_whole(place("pin_for", path), MAX_BYTES)
    if raw is None:
        raise ConfigError(
            f"{path}: there is no such file. Allowed: a state or a description of a run."
        )
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: it is not JSON ({error}). Allowed: a state or a description of a run."
        ) from None


def _gc_lines(arguments: argparse.Namespace, collected: Collected) -> Iterator[str]:
    verb = "would remove" if arguments.dry_run else "removed"
    for name in collected.removed:
        yield f"{verb} {name}"
    if collected.unfinished:
        yield (
            f"left alone: {', '.join(collected.unfinished)}, of an unfinished or lost snapshot "
            "(run that build again, restore its manifest, or gc --unfinished)"
        )
    if collected.strangers:
        yield f"left alone: {', '.join(collected.strangers)}, which tokenloom did not write"
    if not collected.removed:
        yield f"{arguments.store}: nothing to remove"
    if isinstance(place("store", arguments.store), Url):
        yield (
            "not seen: parts of uploads that other programs began and left, and older versions of "
            "objects; a lifecycle rule of the bucket clears them (AbortIncompleteMultipartUpload)"
        )
