"""Removing what no snapshot needs, and nothing else.

Temporary files of builds that died always go. Shards that no manifest names are the work of an
unfinished build or append: they go only with ``unfinished=True``, because running that build
again would go on after them. Older snapshots go only with ``old_snapshots=True``; pinned ones and
the newest stay, and so does every shard that they name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tokenloom.errors import StoreBusy
from tokenloom.store import format as fmt
from tokenloom.store import snapshots
from tokenloom.store.files import LOCAL, TEMPORARY_PREFIX, Files

__all__ = ["Collected", "collect", "held"]


@dataclass(frozen=True, slots=True)
class Collected:
    """Names that were removed, and unfinished shards that were left alone."""

    removed: tuple[str, ...]
    unfinished: tuple[str, ...]


def collect(
    root: Path,
    *,
    old_snapshots: bool = False,
    pinned: Collection[int] = (),
    unfinished: bool = False,
    dry_run: bool = False,
    files: Files = LOCAL,
) -> Collected:
    """Remove what no snapshot needs.

    Raises:
        StoreBusy: when a build is running there.
    """
    if not files.list(root):
        snapshots.current(root, files)  # says what is wrong with the path
    with files.lock(root) as held:
        if held is False:
            raise StoreBusy(f"{root}: a build is running here. Wait for it, then collect again.")
        return _collect(root, old_snapshots, pinned, unfinished, dry_run, files)


def held(root: Path, named: Collection[tuple[int, str]], files: Files = LOCAL) -> list[int]:
    """Those snapshots of a store that are named as (number, digest of the content)."""
    published = snapshots.numbers(files.list(root))
    wanted = [number for number in published if any(number == one for one, _ in named)]
    digests = {n: snapshots.load(root, n, files).manifest.digest for n in wanted}
    return [number for number, digest in digests.items() if (number, digest) in named]


def _collect(
    root: Path,
    old_snapshots: bool,
    pinned: Collection[int],
    unfinished: bool,
    dry_run: bool,
    files: Files,
) -> Collected:
    names = files.list(root)
    published = snapshots.numbers(names)
    drop = {n for n in published[:-1] if n not in pinned} if old_snapshots else set()
    kept = [snapshots.load(root, n, files).manifest for n in published if n not in drop]
    needed = {shard.name for manifest in kept for shard in manifest.shards}
    needed |= {name for manifest in kept for name in manifest.files}
    orphans = [n for n in names if fmt.SHARD_NAME.fullmatch(n) and n not in needed]
    removed = [name for name in names if name.startswith(TEMPORARY_PREFIX)]
    removed += [fmt.manifest_name(number) for number in sorted(drop)]
    removed += orphans if unfinished else []
    removed += [n for n in names if fmt.ROOT_FILE_NAME.fullmatch(n) and n not in needed and kept]
    if not dry_run:
        for name in removed:
            files.remove(root / name)
        files.sync_directory(root)
    return Collected(tuple(removed), () if unfinished else tuple(orphans))
