"""The directory that a store goes to: whose it is, and how one builder has it alone.

One idea: every refusal comes before the first effect. `look` only looks. A directory is ours if it
holds a manifest that we sealed, or if *everything* in it is proven, by its content, to be of a
build of ours that has not finished. What is not proven is somebody else's: it is never written to,
locked or swept.

What is ever removed (`collect`), only there and only under names that we make, exactly:

- Temporary files of builds that died always go; where there are no locks, those that nothing was
  written into for some hours, because a build that runs has such files, too.
- Shards that no manifest names are the work of an unfinished build or append: they go only with
  ``unfinished=True``, because running that build again would go on after them, and only if their
  commit record is ours.
- Older snapshots go only with ``old_snapshots=True``; pinned ones and the newest stay, and so does
  every shard that they name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokenloom.arguments import Place, Url, place
from tokenloom.bind import bind
from tokenloom.errors import StoreBusy, StoreError, StoreExists, StoreNotFound
from tokenloom.ingest.cluster.stretch_files import is_stretch_file
from tokenloom.remote.uploads import files_of
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.files import FOLDER, LOCAL, LOCK_NAME, TEMPORARY_NAME, Files
from tokenloom.store.snapshots import (
    InputList,
    Snapshot,
    beyond,
    check_sizes,
    commit_record,
    current,
    is_store_name,
    load,
    numbers,
)

log = logging.getLogger("tokenloom")

POLL_SECONDS = 0.1

IDLE_HOURS = 24.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What a directory is to us.

    Attributes:
        names: everything in it; empty also if it does not exist.
        snapshot: the newest one, or None.
        strangers: names that nothing proves to be ours; only looked for where there is no
            manifest, since a store stays ours when somebody leaves a note in it.
    """

    names: tuple[str, ...]
    snapshot: Snapshot | None
    strangers: tuple[str, ...] = ()


def look(root: Place, files: Files = LOCAL) -> Standing:
    """Whose a directory is; changes nothing.

    Raises:
        StoreExists: it is no directory.
        StoreError: a manifest or a commit record in it is damaged, or is not one of ours.
    """
    if isinstance(root, Path) and os.path.lexists(root) and not os.path.isdir(root):
        what = "a link to nothing" if os.path.islink(root) else "no directory"
        raise StoreExists(f"{root}: this is {what}, so it holds no store. Name another path.")
    names = tuple(files.list(root))  # one look: without locks another builder may finish meanwhile
    published = numbers(names)
    if published:
        return Standing(names=names, snapshot=load(root, published[-1], files))
    if any(is_our_sidecar(root, name, files) for name in names if name.startswith("plan-")):
        # a plan is published where nothing was, so shards of thousands of parts are not read again
        strangers = [name for name in names if not is_store_name(name)]
        return Standing(names=names, snapshot=None, strangers=tuple(strangers))
    vouched = any(
        is_our_shard(root, name, files) or is_our_sidecar(root, name, files) for name in names
    )
    strangers = [name for name in names if not _is_ours(root, name, vouched, files)]
    # a living builder renames its files
    there = [name for name in strangers if files.measure(root / name) is not None]
    return Standing(names=names, snapshot=None, strangers=tuple(there))


def _is_ours(root: Place, name: str, vouched: bool, files: Files) -> bool:
    """Whether something in a directory without a manifest is of a build of ours.

    Args:
        root: the directory.
        name: what is looked at.
        vouched: whether a shard or a list of ours is there, which vouches for temporary files.
        files: how to read.
    """
    path = root / name
    if is_our_shard(root, name, files) or is_our_sidecar(root, name, files):
        return True
    size = files.measure(path)
    if name == LOCK_NAME:
        return size is not None and size >= 0
    half = TEMPORARY_NAME if files.folders else fmt.SHARD_NAME  # of a shard that is being written
    if half.fullmatch(name) and size == FOLDER:
        return vouched or is_half_a_shard(path, files)
    if not TEMPORARY_NAME.fullmatch(name) or size is None or size < 0:
        return False
    # the first file that a build publishes: of parts their plan, else perhaps its list of inputs
    raw = b"" if vouched else files.read(path, fmt.MAX_RECORD_BYTES) or b""
    return any(head.startswith(raw[: len(head)]) for head in _HEADS)


_HEADS = (b'[\n {\n  "bytes": ', b'{\n "fingerprint": "')


def is_our_shard(root: Place, name: str, files: Files) -> bool:
    """Whether a shard's directory holds a commit record of ours; one that is damaged raises."""
    if not fmt.SHARD_NAME.fullmatch(name) or files.measure(root / name) != FOLDER:
        return False
    record = commit_record(root, name, files)
    return record is not None and fmt.shard_name(record.number) == name


def is_our_sidecar(root: Place, name: str, files: Files) -> bool:
    """Whether the content of a file beside the manifests is what its name says."""
    path = root / name
    size = files.measure(path) if fmt.ROOT_FILE_NAME.fullmatch(name) else None
    if size is None or size < 0:
        return False
    raw = files.read(path, fmt.MAX_RECORD_BYTES) or b""
    if name.startswith("tokenizer-"):
        return hashlib.sha256(raw).hexdigest().startswith(name[10:18])
    if name.startswith(("plan-", "stretch-")):
        return is_stretch_file(name, raw, str(path))
    with contextlib.suppress(ValueError, RecursionError):
        if name.startswith("skipped-"):
            first = fmt.read_json(raw.split(b"\n", 1)[0])
            return isinstance(first, dict) and {"input", "record", "reason"} <= first.keys()
        return bool(bind(InputList, {"inputs": fmt.read_json(raw)}).inputs)
    return False


def is_half_a_shard(folder: Place, files: Files) -> bool:
    """Whether everything below a directory has a name that a shard's writer gives.

    In a bucket, a shard that is being written has its own name, but no commit record yet.
    """
    found = files.below(folder)
    if not files.folders and ("shard.json" in found or not found):
        return False
    return all(map(_is_of_a_shard, found, found.values()))


def _is_of_a_shard(name: str, size: int) -> bool:
    if size == FOLDER:
        column, _, rest = name.partition("/")
        return rest in ("", "c") and fmt.COLUMN_NAME.fullmatch(column) is not None
    return size >= 0 and fmt.SHARD_FILE_NAME.fullmatch(name) is not None


# -- the directory of a build --------------------------------------------------------------
def place_of(out: object) -> Place:
    """Where a build goes: `out`, with links resolved once, so that none can be moved later.

    Raises:
        ConfigError: it is neither a path of this machine nor a URL.
    """
    root = place("out", out)
    if isinstance(root, Url):
        return root
    real = os.path.realpath(root)
    linked = real != os.path.abspath(root) and os.path.exists(root)
    return Path(real) if linked else root


def refuse(root: Place, standing: Standing) -> None:
    """Raises if a directory without a manifest holds anything that is not ours."""
    if standing.strangers:
        raise StoreExists(
            f"{root}: the directory holds other files ({', '.join(standing.strangers[:3])}), and "
            "nothing was changed. Choose a new directory for the store."
        )


def target_of(out: object, files: Files | None) -> tuple[Place, Files, Standing]:
    """Where a build goes, what writes there, and what is there; refused unless that is ours."""
    root = place_of(out)
    files = files or files_of(root)
    standing = look(root, files)
    refuse(root, standing)
    return root, files, standing


def make_directory(files: Files, root: Place) -> None:
    """Make the store's directory and those above it, durably; a bucket is tried instead."""
    if not isinstance(root, Path):
        files.mkdir(root)
        return
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
def alone(files: Files, root: Place) -> Iterator[tuple[Standing, bool]]:
    """Wait until no other process builds here, then look again.

    Gives what is there now, and whether the lock is really held. If it is, no temporary file
    belongs to a living build: those of dead ones are removed.
    """
    with _waiting(root, partial(files.lock, root)) as held:
        standing = look(root, files)
        refuse(root, standing)
        if held:
            remove_names(root, remains(standing), files)
        yield standing, held


@contextmanager
def together(files: Files, root: Place) -> Iterator[None]:
    """Wait until nobody wants the directory alone; others may build here in the same way."""
    with _waiting(root, partial(files.lock, root, shared=True)):
        yield


@contextmanager
def _waiting(
    root: Place, lock: Callable[[], contextlib.AbstractContextManager[bool | None]]
) -> Iterator[bool]:
    """Inside, a lock is held, or there are none (False)."""
    waiting = False
    while True:
        with lock() as held:
            if held is not False:
                yield bool(held)
                return
        if not waiting:
            log.warning("%s: another process is building here; waiting for it", root)
            waiting = True
        time.sleep(POLL_SECONDS)


def remains(standing: Standing) -> list[str]:
    """Temporary names, of builds that live or died."""
    return [name for name in standing.names if TEMPORARY_NAME.fullmatch(name)]


def remove_names(root: Place, names: Sequence[str], files: Files) -> None:
    """Remove files and directories of a store; a name that we do not make is refused."""
    wrong = [name for name in names if not is_store_name(name)]
    if wrong:
        raise StoreError(
            f"{root / wrong[0]}: this is no name of ours, so nothing was removed. Remove it "
            "yourself."
        )
    for name in names:
        files.remove(root / name)


# -- removing what no snapshot needs --------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed and what was left.

    Attributes:
        removed: names that were removed.
        unfinished: shards and lists of a build that has not finished, or whose manifest was lost,
            and where there are no locks temporary files that may be of a build that runs.
        strangers: names as we make them, over content that is not ours.
    """

    removed: tuple[str, ...]
    unfinished: tuple[str, ...]
    strangers: tuple[str, ...] = ()

    def without(self, names: Collection[str]) -> Collected:
        """The same, with these names left as they are."""
        removed = tuple(name for name in self.removed if name not in names)
        return Collected(removed, (*self.unfinished, *names), self.strangers)


def collect(
    root: Place,
    *,
    old_snapshots: bool = False,
    pinned: Collection[int] = (),
    unfinished: bool = False,
    idle_hours: float = IDLE_HOURS,
    dry_run: bool = False,
    files: Files = LOCAL,
) -> Collected:
    """Remove what no snapshot needs.

    Where there are no locks, as in buckets, a build that runs cannot be told from one that died:
    its shards and temporary files are removed only if nothing was written into them for
    `idle_hours`.

    Raises:
        StoreNotFound: the directory holds no store; nothing in it was touched.
        StoreBusy: a build is running there, or may be.
    """
    standing = _ours(root, files)
    locked = LOCK_NAME in standing.names or not dry_run  # a dry run leaves not even a lock
    with files.lock(root) if locked else contextlib.nullcontext() as held:
        if held is False:
            raise StoreBusy(f"{root}: a build is running here. Wait for it, then collect again.")
        standing = _ours(root, files)  # somebody may have been here before we had the lock
        found = _collectable(root, standing, old_snapshots, pinned, unfinished, files)
        if held is None and locked:
            waiting = _collectable(root, standing, old_snapshots, pinned, False, files).unfinished
            temporary = remains(standing)
            if unfinished:
                _refuse_fresh(root, [*waiting, *temporary], idle_hours, files)
            found = found.without(_fresh(root, temporary, idle_hours, files))
        if not dry_run:
            remove_names(root, found.removed, files)
            files.sync_directory(root)
        return found


def _fresh(root: Place, names: Sequence[str], idle_hours: float, files: Files) -> dict[str, float]:
    """What was written a short while ago, perhaps by a build that runs: name → hours ago."""
    hours = {name: files.idle(root / name) / 3600 for name in names}
    return {name: ago for name, ago in hours.items() if ago < idle_hours}


def _refuse_fresh(root: Place, names: Sequence[str], idle_hours: float, files: Files) -> None:
    """Raises if something was written a short while ago."""
    for name, hours in _fresh(root, names, idle_hours, files).items():
        raise StoreBusy(
            f"{root / name}: it was written {hours:.1f} hours ago, perhaps by a build that is "
            f"running: there are no locks here to tell. Allowed: {idle_hours:g} hours without "
            "a change. If no build is running, pass --idle-hours 0."
        )


def _ours(root: Place, files: Files) -> Standing:
    """A directory that holds a store of ours, finished or not; any other is refused."""
    standing = look(root, files)
    if standing.strangers or not standing.names:
        if standing.names and not set(standing.strangers) >= set(standing.names):
            raise StoreNotFound(
                f"{root}: there is no manifest here, and other things "
                f"({', '.join(standing.strangers[:3])}), so nothing is removed."
                " Name the directory of a store."
            )
        current(root, files)  # says what is wrong with the path
        raise StoreNotFound(
            f"{root}: this directory is not a token store. Name one that `tokenloom info` knows."
        )
    if standing.snapshot is not None:
        check_sizes(sizes_of(root, files), root, standing.snapshot.manifest)
    return standing


def sizes_of(root: Place, files: Files) -> Callable[[str], int | None]:
    """What gives the bytes of a file of a store as it is now; of a bucket, from one listing."""
    return LocalSource(root).size if isinstance(root, Path) else files.below(root).get


def drop_older(root: Place, files: Files) -> tuple[str, ...]:
    """Remove every snapshot but the newest, with the files that only they name.

    Whoever calls this has the lock.
    """
    found = _collectable(root, look(root, files), True, (), False, files)
    remove_names(root, found.removed, files)
    files.sync_directory(root)
    return found.removed


def held(root: Place, named: Collection[tuple[int, str]], files: Files = LOCAL) -> list[int]:
    """Those snapshots of a store that are named as (number, digest of the content)."""
    published = numbers(files.list(root))
    wanted = [number for number in published if any(number == one for one, _ in named)]
    digests = {n: load(root, n, files).manifest.digest for n in wanted}
    return [number for number, digest in digests.items() if (number, digest) in named]


def _collectable(
    root: Place,
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


def _orphans(root: Place, names: Sequence[str], files: Files) -> Iterator[tuple[str, bool]]:
    """Shards and sidecars among the names, each with whether its content is ours."""
    for name in names:
        if fmt.SHARD_NAME.fullmatch(name):
            half = not files.folders and is_half_a_shard(root / name, files)
            try:
                yield name, half or is_our_shard(root, name, files)
            except StoreError:  # a commit record of ours, but damaged: whoever wants it gone, may
                yield name, False
        elif fmt.ROOT_FILE_NAME.fullmatch(name):
            yield name, is_our_sidecar(root, name, files)
