"""Opens a store at one snapshot: finds the manifest, checks sizes, makes the reader."""

from __future__ import annotations

from pathlib import Path

from tokenloom.errors import ConfigError
from tokenloom.store import coalesce, snapshots
from tokenloom.store.byte_source import ByteSource, LocalSource
from tokenloom.store.cache import BlockCache, process_cache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.reader import Reader

__all__ = ["open_reader"]


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
    if not isinstance(path, (str, Path)) or str(path) == "":
        raise ConfigError(f"path: found {path!r}, allowed: the directory of a store.")
    root = Path(path)
    found = snapshots.current(root) if snapshot is None else snapshots.load(root, snapshot)
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
