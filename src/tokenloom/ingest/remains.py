"""What builds leave behind: removing what no snapshot needs, and nothing else.

One idea: only names that we make, exactly, and only in a directory that holds a store of ours
(`tokenloom.ingest.target`) are ever removed.

- Temporary files of builds that died always go.
- Shards that no manifest names are the work of an unfinished build or append: they go only with
  ``unfinished=True``, because running that build again would go on after them, and only if their
  commit record is ours.
- Older snapshots go only with ``old_snapshots=True``; pinned ones and the newest stay, and so does
  every shard that they name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenloom.errors import StoreBusy, StoreError, StoreNotFound
from tokenloom.ingest.target import (
    Standing,
    is_our_shard,
    is_our_sidecar,
    look,
    remains,
    remove_names,
)
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.files import LOCAL, LOCK_NAME, Files
from tokenloom.store.snapshots import beyond, check_sizes, current, load, numbers

__all__ = ["Collected", "collect", "drop_older", "held"]


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed and what was left.

    Attributes:
        removed: names that were removed.
        unfinished: shards and lists of a build that has not finished, or whose manifest was lost.
        strangers: names as we make them, over content that is not ours.
    """

    removed: tuple[str, ...]
    unfinished: tuple[str, ...]
    strangers: tuple[str, ...] = ()


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
        StoreNotFound: the directory holds no store; nothing in it was touched.
        StoreBusy: a build is running there.
    """
    standing = _ours(root, files)
    locked = LOCK_NAME in standing.names or not dry_run  # a dry run leaves not even a lock
    with files.lock(root) if locked else contextlib.nullcontext() as held:
        if held is False:
            raise StoreBusy(f"{root}: a build is running here. Wait for it, then collect again.")
        standing = _ours(root, files)  # somebody may have been here before we had the lock
        found = _collectable(root, standing, old_snapshots, pinned, unfinished, files)
        if not dry_run:
            remove_names(root, found.removed, files)
            files.sync_directory(root)
        return found


def _ours(root: Path, files: Files) -> Standing:
    """A directory that holds a store of ours, finished or not; any other is refused."""
    standing = look(root, files)
    if standing.strangers or not standing.names:
        if standing.names and not set(standing.strangers) >= set(standing.names):
            raise StoreNotFound(
                f"{root}: there is no manifest here, and other things "
                f"({', '.join(standing.strangers[:3])}), so nothing is removed."
            )
        current(root, files)  # says what is wrong with the path
        raise StoreNotFound(f"{root}: this directory is not a token store.")
    if standing.snapshot is not None:
        check_sizes(LocalSource(root), root, standing.snapshot.manifest)
    return standing


def drop_older(root: Path, files: Files) -> tuple[str, ...]:
    """Remove every snapshot but the newest, with the files that only they name.

    Whoever calls this has the lock.
    """
    found = _collectable(root, look(root, files), True, (), False, files)
    remove_names(root, found.removed, files)
    files.sync_directory(root)
    return found.removed


def held(root: Path, named: Collection[tuple[int, str]], files: Files = LOCAL) -> list[int]:
    """Those snapshots of a store that are named as (number, digest of the content)."""
    published = numbers(files.list(root))
    wanted = [number for number in published if any(number == one for one, _ in named)]
    digests = {n: load(root, n, files).manifest.digest for n in wanted}
    return [number for number, digest in digests.items() if (number, digest) in named]


def _collectable(
    root: Path,
    standing: Standing,
    old_snapshots: bool,
    pinned: Collection[int],
    unfinished: bool,
    files: Files,
) -> Collected:
    names, published = standing.names, numbers(standing.names)
    drop = {n for n in published[:-1] if n not in pinned} if old_snapshots else set()
    manifests = {number: load(root, number, files).manifest for number in published}
    kept = [manifest for number, manifest in manifests.items() if number not in drop]
    needed = {name for manifest in kept for name in _named(manifest)}
    dropped = {name for number in drop for name in _named(manifests[number])} - needed
    others = [name for name in names if name not in needed | dropped]
    orphans = list(_orphans(root, others, files))
    later = set(beyond(root, kept[-1], files)[0]) if kept else {name for name, _ in orphans}
    ours = [name for name, proven in orphans if proven]
    removed = remains(standing)
    # manifests last: whoever dies in between has still named what was to go
    removed += [name for name in names if name in dropped]
    removed += [fmt.manifest_name(number) for number in sorted(drop)]
    # a shard that no manifest names may be gone on after; a list of an old snapshot may not
    waiting = [name for name in ours if name in later or fmt.SHARD_NAME.fullmatch(name)]
    removed += [name for name in ours if unfinished or name not in waiting]
    strangers = tuple(name for name, proven in orphans if not proven)
    return Collected(tuple(removed), () if unfinished else tuple(waiting), strangers)


def _named(manifest: fmt.Manifest) -> set[str]:
    """Shards and files of a snapshot."""
    return {shard.name for shard in manifest.shards} | manifest.files.keys()


def _orphans(root: Path, names: Sequence[str], files: Files) -> Iterator[tuple[str, bool]]:
    """Shards and sidecars among the names, each with whether its content is ours."""
    for name in names:
        if fmt.SHARD_NAME.fullmatch(name):
            try:
                yield name, is_our_shard(root, name, files)
            except StoreError:  # a commit record of ours, but damaged: whoever wants it gone, may
                yield name, False
        elif fmt.ROOT_FILE_NAME.fullmatch(name):
            yield name, is_our_sidecar(root, name, files)
