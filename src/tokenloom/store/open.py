"""Opens a store at one snapshot: finds the manifest, checks sizes, makes the reader."""

from __future__ import annotations

import logging
from pathlib import Path

from tokenloom.arguments import local_path
from tokenloom.store import coalesce, snapshots
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource, LocalSource
from tokenloom.store.cache import BlockCache, process_cache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.reader import Reader

__all__ = ["open_reader"]

log = logging.getLogger("tokenloom")


def open_reader(
    path: str | Path,
    *,
    snapshot: int | None = None,
    verify: str = "first",
    cache_bytes: int | None = None,
    gap_bytes: int = 0,
    cap_bytes: int = coalesce.CAP_BYTES,
    source: ByteSource | None = None,
) -> tuple[snapshots.Snapshot, Reader]:
    """The snapshot of a store, and what reads it; `tokenloom.open` documents the arguments."""
    root = local_path("path", path)
    found = snapshots.current(root) if snapshot is None else snapshots.load(root, snapshot)
    if snapshot is None:
        _tell_of_more(root, found.manifest)
    source = source or LocalSource(root)
    snapshots.check_sizes(source, root, found.manifest)
    reader = Reader(
        found.manifest,
        source,
        path=str(root),
        cache=process_cache() if cache_bytes is None else BlockCache(cache_bytes),
        identity=found.sha256,
        rules=FetchRules(verify=verify, gap=gap_bytes, cap=cap_bytes),
    )
    return found, reader


def _tell_of_more(root: Path, manifest: fmt.Manifest) -> None:
    """A newer snapshot that is unfinished, or whose manifest was lost, is not passed over."""
    names, number = snapshots.beyond(root, manifest)
    if names:
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        line = snapshots.beyond_line(root / what, number)
        log.warning("%s Opened is snapshot %d.", line, manifest.number)
