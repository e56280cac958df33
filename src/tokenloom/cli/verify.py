"""`tokenloom verify` and `tokenloom gc`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenloom.api.describe import named_snapshots
from tokenloom.api.store import open_store
from tokenloom.cli.printing import write
from tokenloom.errors import ConfigError, StoreCorrupt, binary_size, plural
from tokenloom.ingest.target import Collected, collect, held
from tokenloom.store.files import LOCAL
from tokenloom.store.verify import VerifyReport

__all__ = ["gc", "verify"]

MAX_BYTES = 16 << 20


def verify(arguments: argparse.Namespace) -> int:
    """Compare a store with what was published: `tokenloom verify`."""
    try:
        store = open_store(arguments.store)
    except StoreCorrupt as error:
        report = VerifyReport(arguments.store, 0, 0, 0, 0, 0, (str(error),))
    else:
        report = store.check(progress=False if arguments.quiet else None)
    ok = report.ok and not report.unfinished
    write(arguments, {**asdict(report), "ok": ok}, _verify_lines(report))
    return 0 if ok else 1


def _verify_lines(report: VerifyReport) -> Iterator[str]:
    yield from report.problems
    yield from report.unfinished
    if report.problems:
        yield f"{report.path}: {plural(len(report.problems), 'problem')}"
        return
    well = "what was published is well" if report.unfinished else "all is well"
    yield (
        f"{report.path}: {well} ({plural(report.shards, 'shard')}, {report.files} files, "
        f"{binary_size(report.bytes)}, {report.tokens:,} tokens)"
    )


def gc(arguments: argparse.Namespace) -> int:
    """Remove what no snapshot needs: `tokenloom gc`."""
    root = Path(arguments.store)
    named = {one for path in arguments.pin_for for one in named_snapshots(_json(path))}
    collected = collect(
        root,
        old_snapshots=arguments.old_snapshots,
        pinned=[*arguments.pin, *held(root, named)],
        unfinished=arguments.unfinished,
        dry_run=arguments.dry_run,
    )
    write(arguments, asdict(collected), _gc_lines(arguments, collected))
    return 0


def _json(path: Path) -> Any:
    """The content of a file with a state or a description."""
    raw = LOCAL.read(path, MAX_BYTES)
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
