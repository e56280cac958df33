"""Which snapshot of a store is current, and whether its files are there.

The highest numbered manifest is the store. Opening reads that one file and compares
the size of every file it names, so that a cut or missing file is found now and not at step 340;
no token, no offset and no commit record is read (but for shards beyond that manifest, which belong
to a snapshot that is unfinished or lost, and are told).
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenloom.arguments import Place
from tokenloom.bind import bind
from tokenloom.errors import StoreCorrupt, StoreError, StoreNotFound, plural
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource, checking, read_exactly
from tokenloom.store.files import LOCAL, LOCK_NAME, TEMPORARY_NAME, Files

log = logging.getLogger("tokenloom")


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


def load(root: Place, number: int, files: Files = LOCAL) -> Snapshot:
    """Snapshot `number` of a store."""
    path = root / fmt.manifest_name(number)
    raw = files.read(path, fmt.MAX_RECORD_BYTES)
    if raw is None:
        published = numbers(files.list(root))
        if not published:
            return current(root, files)  # says what is there instead
        have = ", ".join(map(str, published))
        raise StoreNotFound(f"{path}: there is no snapshot {number}. Allowed: {have}.")
    manifest = fmt.unseal(fmt.Manifest, raw, str(path))
    if manifest.number != number:
        raise StoreCorrupt(
            f"{path}: it says it is snapshot {manifest.number}; it was renamed. Give it its name "
            "back."
        )
    return Snapshot(manifest, hashlib.sha256(raw).hexdigest())


def current(root: Place, files: Files = LOCAL) -> Snapshot:
    """The newest snapshot of a store.

    Raises:
        StoreNotFound: saying whether nothing is there, or a build has not finished.
    """
    names = files.list(root)
    published = numbers(names)
    if published:
        return load(root, published[-1], files)
    shards = sum(fmt.SHARD_NAME.fullmatch(name) is not None for name in names)
    begun = names == [LOCK_NAME] or any(TEMPORARY_NAME.fullmatch(name) for name in names)
    ours = filter(fmt.ROOT_FILE_NAME.fullmatch, names)
    parts = any(name.startswith("plan-") for name in ours)  # of a build that many share
    if shards or begun or parts:
        again = "the same build again: it goes on where it stopped"
        if parts:
            again = "the parts that are missing (`--part K/N`) and then `--finish`, or " + again
        raise StoreNotFound(
            f"{root}: the build of this store is incomplete: {plural(shards, 'shard')} done, and "
            f"no manifest is published. Run {again}."
        )
    if names:
        raise StoreNotFound(
            f"{root}: this directory is not a token store (no manifest-NNNNNN.json in it). "
            "Build one with `tokenloom build` or `tokenloom.build(...)`."
        )
    beside = files.list(root.parent) if files.folders else []  # those of a bucket may be millions
    close = difflib.get_close_matches(root.name, beside, n=1)
    hint = " Build one with `tokenloom build` or `tokenloom.build(...)`."
    if close and files.measure(root) is None:
        hint = f" Did you mean '{root.parent / close[0]}'?"
    raise StoreNotFound(f"{root}: there is no token store here.{hint}")


def published_sizes(manifest: fmt.Manifest) -> dict[str, int]:
    """The size in bytes of every file that a manifest names."""
    sizes = {name: file.bytes for name, file in manifest.files.items()}
    for shard in manifest.shards:
        sizes |= {f"{shard.name}/{name}": size for name, size in shard.files.items()}
    return sizes


def check_sizes(size_of: Callable[[str], int | None], root: Place, manifest: fmt.Manifest) -> None:
    """Compare the size of every file that the manifest names with what is there."""
    for name, size in published_sizes(manifest).items():
        found = size_of(name)
        if found is None:
            raise StoreCorrupt(
                f"{root / name}: the file is missing. Restore it or build the store again."
            )
        if found != size:
            raise StoreCorrupt(
                f"{root / name}: it has {found:,} bytes, the manifest says {size:,}. It was "
                "changed after it was published; restore it or build the store again."
            )


def match_sizes(source: ByteSource, root: Place, snapshot: Snapshot) -> None:
    """Files have the size that was published: all are compared now, or each when it is read."""
    expect = getattr(source, "expect", None)
    if expect is None:
        check_sizes(source.size, root, snapshot.manifest)
    else:
        expect(published_sizes(snapshot.manifest), snapshot.sha256)


def read_inputs(
    source: ByteSource, root: Place, manifest: fmt.Manifest, number: int
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
            "This is not a file that tokenloom wrote. Restore it from a copy."
        ) from error


def inputs_of(
    source: ByteSource, root: Place, manifest: fmt.Manifest
) -> list[tuple[InputRecord, ...]]:
    """What was read to make a store: for every build or append, its inputs."""
    return [read_inputs(source, root, manifest, part.manifest) for part in manifest.parts]


def read_sidecar(source: ByteSource, root: Place, manifest: fmt.Manifest, name: str) -> bytes:
    """A small file that the manifest names, compared with its sha256."""
    if name not in manifest.files:
        raise StoreCorrupt(
            f"{root / name}: the manifest does not name this file. Restore the store from a copy."
        )
    expected = manifest.files[name]
    if expected.bytes > fmt.MAX_RECORD_BYTES:
        raise StoreCorrupt(
            f"{root / name}: it has {expected.bytes:,} bytes, allowed: "
            f"{fmt.MAX_RECORD_BYTES:,}. This is not a file that tokenloom wrote. Restore it from "
            "a copy."
        )
    asked = name, 0, expected.bytes
    data = read_exactly(source, [asked], str(root))[0].tobytes()
    with checking(source, [asked]):
        if hashlib.sha256(data).hexdigest() != expected.sha256:
            raise StoreCorrupt(
                f"{root / name}: its sha256 is not the one published. Restore it from a copy."
            )
    return data


def is_store_name(name: str) -> bool:
    """Whether we make files or directories of that name at the top of a store.

    >>> [is_store_name(name) for name in ("shard-00000", ".lock", ".tmp-" + "0" * 32, ".tmp-mine")]
    [True, True, True, False]
    """
    patterns = (fmt.MANIFEST_NAME, fmt.SHARD_NAME, fmt.ROOT_FILE_NAME, TEMPORARY_NAME)
    return name == LOCK_NAME or any(pattern.fullmatch(name) for pattern in patterns)


def commit_record(root: Place, name: str, files: Files = LOCAL) -> fmt.ShardRecord | None:
    """The commit record of a shard; None if there is none, or one that is not ours."""
    path = root / name / "shard.json"
    if files.folders and (files.measure(path) or 0) < 0:  # a link is a link
        return None
    raw = files.read(path, fmt.MAX_RECORD_BYTES)
    if raw is None or fmt.FORMAT.encode() not in raw:
        return None
    return fmt.unseal(fmt.ShardRecord, raw, str(path))


def beyond_line(what: Place, number: int | None) -> str:
    """How a file or a shard beyond the newest manifest is told."""
    which = "" if number is None else f" ({number})"
    manifest = "its manifest" if number is None else fmt.manifest_name(number)
    return (
        f"{what}: of an unfinished or lost snapshot{which}. A build is running or was interrupted "
        f"(run it again, or `tokenloom gc --unfinished`), or {manifest} was lost (restore it)."
    )


def beyond(
    root: Place, manifest: fmt.Manifest, files: Files = LOCAL
) -> tuple[list[str], int | None]:
    """Shards and sidecars after the newest manifest, and the snapshot that their records name.

    They are of a build that runs, or was interrupted, or whose manifest was lost.
    """
    known = {shard.name for shard in manifest.shards} | manifest.files.keys()
    last = max([int(shard.name[6:]) for shard in manifest.shards], default=-1)
    found, number = list[str](), None
    for name in files.list(root):
        shard, sidecar = fmt.SHARD_NAME.fullmatch(name), fmt.ROOT_FILE_NAME.fullmatch(name)
        if shard and name not in known and int(shard[1]) > last:
            with contextlib.suppress(StoreError):
                record = commit_record(root, name, files)
                number = record.snapshot or None if record and number is None else number
            found.append(name)
        elif sidecar and name not in known:
            theirs = int(sidecar[1] or sidecar[2] or sidecar[3] or 0)
            if theirs > manifest.number:
                number = theirs
                found.append(name)
    return found, number


def tell_of_more(root: Place, manifest: fmt.Manifest, files: Files = LOCAL) -> None:
    """A newer snapshot that is unfinished, or whose manifest was lost, is not passed over."""
    names, number = beyond(root, manifest, files)
    if names:
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        line = beyond_line(root / what, number)
        log.warning("%s Opened is snapshot %d.", line, manifest.number)
