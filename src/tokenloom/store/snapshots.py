"""Which snapshot of a store is current, and whether its files are there.

One idea: the highest numbered manifest is the store. Opening reads that one file and compares
the size of every file it names, so that a cut or missing file is found now and not at step 340;
no token, no offset and no commit record is read.

Removing what no snapshot needs, and nothing else.

Temporary files of builds that died always go. Shards that no manifest names are the work of an
unfinished build or append: they go only with ``unfinished=True``, because running that build
again would go on after them. Older snapshots go only with ``old_snapshots=True``; pinned ones and
the newest stay, and so does every shard that they name.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenloom.bind import bind
from tokenloom.errors import StoreBusy, StoreCorrupt, StoreNotFound, plural
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource, read_exactly
from tokenloom.store.files import LOCAL, TEMPORARY_PREFIX, Files

__all__ = [
    "Collected",
    "InputList",
    "InputRecord",
    "Snapshot",
    "check_sizes",
    "collect",
    "current",
    "held",
    "load",
    "numbers",
    "read_inputs",
    "read_sidecar",
]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A manifest and the sha256 of its file, which is the identity of the snapshot."""

    manifest: fmt.Manifest
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRecord:
    """One input of a build, as `inputs-NNNNNN.json` lists it."""

    name: str
    kind: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputList:
    """The content of `inputs-NNNNNN.json`."""

    inputs: tuple[InputRecord, ...]


def numbers(names: Sequence[str]) -> list[int]:
    """The numbers of all snapshots among the names in a store's directory, ascending."""
    matches = [fmt.MANIFEST_NAME.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in matches if match)


def load(root: Path, number: int, files: Files = LOCAL) -> Snapshot:
    """Snapshot `number` of a store."""
    path = root / fmt.manifest_name(number)
    raw = files.read(path, fmt.MAX_RECORD_BYTES)
    if raw is None:
        published = numbers(files.list(root))
        if not published:
            return current(root, files)  # says what is there instead
        have = ", ".join(map(str, published))
        raise StoreNotFound(f"{path}: there is no snapshot {number}. Snapshots here: {have}.")
    manifest = fmt.unseal(fmt.Manifest, raw, str(path))
    if manifest.number != number:
        raise StoreCorrupt(f"{path}: it says it is snapshot {manifest.number}; it was renamed.")
    return Snapshot(manifest, hashlib.sha256(raw).hexdigest())


def current(root: Path, files: Files = LOCAL) -> Snapshot:
    """The newest snapshot of a store.

    Raises:
        StoreNotFound: saying whether nothing is there, or a build has not finished.
    """
    names = files.list(root)
    published = numbers(names)
    if published:
        return load(root, published[-1], files)
    shards = sum(fmt.SHARD_NAME.fullmatch(name) is not None for name in names)
    if shards or any(name.startswith(TEMPORARY_PREFIX) for name in names):
        raise StoreNotFound(
            f"{root}: the build of this store is incomplete: {plural(shards, 'shard')} done, and "
            "no manifest is published. Run the same build again: it goes on where it stopped."
        )
    if names:
        raise StoreNotFound(
            f"{root}: this directory is not a token store (no manifest-NNNNNN.json in it). "
            "Build one with `tokenloom build` or `tokenloom.build(...)`."
        )
    close = difflib.get_close_matches(root.name, files.list(root.parent), n=1)
    hint = f" Did you mean '{root.parent / close[0]}'?" if close and not root.exists() else ""
    raise StoreNotFound(f"{root}: there is no token store here.{hint}")


def check_sizes(source: ByteSource, root: Path, manifest: fmt.Manifest) -> None:
    """Compare the size of every file that the manifest names with what is there."""
    expected = {name: file.bytes for name, file in manifest.files.items()}
    for shard in manifest.shards:
        expected |= {f"{shard.name}/{name}": size for name, size in shard.files.items()}
    for name, size in expected.items():
        found = source.size(name)
        if found is None:
            raise StoreCorrupt(
                f"{root / name}: the file is missing. Restore it or build the store again."
            )
        if found != size:
            raise StoreCorrupt(
                f"{root / name}: it has {found:,} bytes, the manifest says {size:,}. It was "
                "changed after it was published; restore it or build the store again."
            )


def read_inputs(
    source: ByteSource, root: Path, manifest: fmt.Manifest, number: int
) -> tuple[InputRecord, ...]:
    """The inputs of the build that made snapshot `number`; none if the store lists none."""
    name = fmt.inputs_name(number)
    if name not in manifest.files:
        return ()
    raw = read_sidecar(source, root, manifest, name)
    try:
        return bind(InputList, {"inputs": fmt.read_json(raw)}, path=str(root / name)).inputs
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(
            f"{root / name}: it is not a list of inputs ({error!s:.200}). "
            "This is not a file that tokenloom wrote."
        ) from error


def read_sidecar(source: ByteSource, root: Path, manifest: fmt.Manifest, name: str) -> bytes:
    """A small file that the manifest names, compared with its sha256."""
    if name not in manifest.files:
        raise StoreCorrupt(f"{root / name}: the manifest does not name this file.")
    expected = manifest.files[name]
    if expected.bytes > fmt.MAX_RECORD_BYTES:
        raise StoreCorrupt(
            f"{root / name}: it has {expected.bytes:,} bytes, allowed: "
            f"{fmt.MAX_RECORD_BYTES:,}. This is not a file that tokenloom wrote."
        )
    data = read_exactly(source, [(name, 0, expected.bytes)], str(root))[0].tobytes()
    if hashlib.sha256(data).hexdigest() != expected.sha256:
        raise StoreCorrupt(
            f"{root / name}: its sha256 is not the one published. Restore it from a copy."
        )
    return data


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
        current(root, files)  # says what is wrong with the path
    with files.lock(root) as held:
        if held is False:
            raise StoreBusy(f"{root}: a build is running here. Wait for it, then collect again.")
        return _collect(root, old_snapshots, pinned, unfinished, dry_run, files)


def held(root: Path, named: Collection[tuple[int, str]], files: Files = LOCAL) -> list[int]:
    """Those snapshots of a store that are named as (number, digest of the content)."""
    published = numbers(files.list(root))
    wanted = [number for number in published if any(number == one for one, _ in named)]
    digests = {n: load(root, n, files).manifest.digest for n in wanted}
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
    published = numbers(names)
    drop = {n for n in published[:-1] if n not in pinned} if old_snapshots else set()
    kept = [load(root, n, files).manifest for n in published if n not in drop]
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
