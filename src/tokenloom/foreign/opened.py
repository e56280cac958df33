"""From a path to a reader over foreign files: which format it is, and what the user says about it.

One idea: every format is a function that looks at a place and answers with a description, or None
if the files are not of its kind (`foreign.formats`). The first that answers is opened; what the
files leave open (`dtype`, `eos`, `vocab_size`) must be said, and is never guessed.

A foreign store has the digest that a copy of ours would have, so a run continues over either. That
takes one pass over the tokens, after which the result is remembered under path, sizes, times and a
keyed sample of the bytes of the files (`tokenloom.foreign.companion`); a file that changed is
passed over again. ``identity="sample"`` hashes all lengths and a keyed sample of the tokens
instead. The two never agree: a sample proves less. A seal has the full identity, which then costs
no pass, so where there is one it is used, whatever was asked for.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import Url, one_of, place
from tokenloom.errors import ConfigError, StoreError, StoreNotFound, plural
from tokenloom.foreign.companion import Companion, InMemory, derive, pass_cache_bytes
from tokenloom.foreign.described import (
    Delimiter,
    Described,
    VirtualShard,
    cut_shards,
    document_lengths,
    keyed_places,
)
from tokenloom.foreign.export_notes import refuse_incomplete
from tokenloom.foreign.foreign_reader import ForeignReader, Inside, lines_of, look_at
from tokenloom.foreign.formats import FORMATS, look_for
from tokenloom.foreign.locations import BucketFolder, BucketSource
from tokenloom.foreign.pieces import PieceLine
from tokenloom.foreign.places import LEDGER, ForeignPlace, Said
from tokenloom.foreign.seals import has_seal, open_seal, refuse_lone_seals
from tokenloom.progress import Progress
from tokenloom.remote.disk_cache import DiskCache
from tokenloom.remote.source import RemoteSource, open_place
from tokenloom.store import coalesce, plan_cache, snapshots
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.cache import BlockCache, process_cache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.files import LOCAL
from tokenloom.store.reader import Reader

Int64 = NDArray[np.int64]

KIND = "foreign"

SAMPLE_PLACES, SAMPLE_TOKENS = 1024, 256  # of identity="sample"


def identified(
    described: Described, identity: str, *, progress: bool | None = None, use_seal: bool = True
) -> Inside:
    """A foreign store with its shards, its companion and its digests.

    Args:
        described: its files.
        identity: "full" or "sample", if they are not sealed.
        progress: whether to show the progress of a pass; None: if someone watches.
        use_seal: whether a seal of the files counts.
    """
    one_of("identity", identity, ("full", "sample"))
    key = _key(described, identity)
    known = open_seal(described, key["sample"]) if use_seal else None
    known = known or _recalled(described, key, identity)
    if known is not None:
        return known
    lines = lines_of(described, BlockCache(pass_cache_bytes()), "pass")
    full = identity == "full"
    line = lines["input_ids"]
    lengths = document_lengths(described, line.unchecked() if full else line)
    shards = cut_shards(described, lengths, looked=full)
    ends = np.cumsum(lengths)
    for each in lines.values():
        each.locate = functools.partial(_place_of, ends)
    companion = Companion(described.root, shards, described.columns, hashed=full)
    total = sum(len(line) * line.dtype.itemsize for line in lines.values()) if full else 0
    with Progress("identify", total=total, unit="B", show=progress) as bar:
        parts = InMemory(derive(shards, lengths, lines, hashed=full, tick=bar.advance))
    companion.stored = parts
    inside = Inside(described, shards, companion, identity, () if full else _sampled(line, lengths))
    inside = inside.hashed() if full else inside
    plan_cache.forget(KIND, key)
    if plan_cache.remember_parts(KIND, key, parts):
        value = {"shards": [list(shard) for shard in shards], "groups": list(inside.groups)}
        plan_cache.remember(KIND, key, value)
    return inside


def _recalled(described: Described, key: dict[str, Any], identity: str) -> Inside | None:
    """What was remembered, if it is there and whole."""
    kept = plan_cache.recall(KIND, key)
    if kept is None:
        return None
    shards = [VirtualShard(*one) for one in kept["shards"]]
    full = identity == "full"
    companion = Companion(described.root, shards, described.columns, hashed=full)
    parts = plan_cache.recall_parts(KIND, key, companion.parts)
    if parts is None:
        return None
    companion.stored = parts
    return Inside(described, shards, companion, identity, tuple(kept["groups"]))


def _sampled(line: PieceLine, lengths: Int64) -> tuple[str, ...]:
    """Digests in place of those of groups, each of all lengths and of sampled tokens."""
    found = hashlib.sha256(b"tokenloom sample of tokens")
    found.update(np.ascontiguousarray(lengths, "<u8").data)
    for ids in line.several(
        (low, min(low + SAMPLE_TOKENS, len(line)))
        for low in keyed_places(str(len(line)), SAMPLE_PLACES, len(line)).tolist()
    ):
        found.update(np.ascontiguousarray(ids, "<u4").data)
    count = fmt.group_count(len(lengths))
    whole = found.digest()
    return tuple(hashlib.sha256(whole + i.to_bytes(8, "little")).hexdigest() for i in range(count))


def _key(described: Described, identity: str) -> dict[str, Any]:
    """What decides a companion: where the files are, and what is in them as far as one looks."""
    return {
        "kind": described.kind,
        "root": described.root,
        "settings": {k: v for k, v in described.settings.items() if k != "seal"},
        "files": described.stamps(),
        "identity": identity,
        "vocab_size": described.vocab_size,
        "sample": described.sample_of_bytes(),
    }


def _place_of(ends: Int64, address: int) -> str:
    document = int(np.searchsorted(ends, address, side="right"))
    first = int(ends[document - 1]) if document else 0
    return f" (token {address - first:,} of document {document:,})"


log = logging.getLogger("tokenloom")

MOST_TOLD = 8  # caches that a message names


def describe_files(path: Any, said: Said) -> Described | None:
    """What is at a path, if it is of a format that is known.

    Args:
        path: a file, a folder, or the common start of the names of several files.
        said: what the user says about it.

    Raises:
        ConfigError: something must be said, or the files are not of the format that was named.
        StoreCorrupt: they are of a known format, and damaged.
    """
    files = ForeignPlace(path, said)
    refuse_incomplete(files)
    refuse_lone_seals(files)
    if said.format is not None:
        one_of("format", said.format, FORMATS)
    for name in FORMATS:
        if said.format in (None, name):
            found = look_for(name)(files)
            if found is not None:
                if said.missing is not None and found.kind != "levanter":
                    raise ConfigError(
                        f"missing: found for {path}, files of format {found.kind}, allowed: a "
                        "cache of Levanter. Leave it out."
                    )
                limit = said.vocab_size or found.vocab_size
                _tell(path, found)
                return replace(found, settings=said.plain, vocab_size=limit)
    if said.format is not None:
        raise ConfigError(
            f"{path}: found no files of format {said.format!r} there. Leave `format` out, or name "
            "the file, folder, or common start of the names."
        )
    return None


def _tell(path: Any, found: Described) -> None:
    """Say once what is worth knowing about files that were found."""
    for note in (*found.notes, *found.doubts):
        _say(path, note)


def _say(path: Any, note: str) -> None:
    if (str(path), note) not in _told:
        _told.add((str(path), note))
        log.info("%s: %s.", path, note)


_told: set[tuple[str, str]] = set()


def open_any(
    path: Any,
    *,
    snapshot: int | None = None,
    said: Said | None = None,
    identity: str = "full",
    verify: str = "first",
    cache_bytes: int | None = None,
    gap_bytes: int = 0,
    cap_bytes: int = coalesce.CAP_BYTES,
    map: bool = True,
    source: ByteSource | None = None,
    **bucket: Any,
) -> Reader:
    """What reads the store at a path, ours or foreign; `tokenloom.open` documents the arguments."""
    said = said or Said()
    one_of("identity", identity, ("full", "sample"))
    own: dict[str, Any] = {
        "snapshot": snapshot,
        "verify": verify,
        "cache_bytes": cache_bytes,
        "gap_bytes": gap_bytes,
        "cap_bytes": cap_bytes,
        "map": map,
        "source": source,
        **bucket,
    }
    reader, in_bucket = None, isinstance(place("path", path), Url)
    if source is not None or in_bucket or is_ours(path):  # in a bucket, opening it is looking
        try:
            reader = open_place(path, **own)
        except StoreNotFound:
            if source is not None or not in_bucket or is_ours(path):
                raise
    if reader is not None and (said.plain or identity != "full"):
        word = next(iter(said.plain), "identity")
        raise ConfigError(
            f"{word}: found for {path}, a store of ours, which says it itself. Leave it out."
        )
    if identity == "sample" and said.seal is not None:
        raise ConfigError(
            f"identity: found 'sample' and a seal for {path}, allowed: one of them. A seal has the "
            "full identity, so no pass is needed for it: leave `identity` out."
        )
    described = describe_files(path, said) if reader is None else None
    if described is None:
        return reader or _ours_only(path, own)
    if snapshot not in (None, 1):
        raise ConfigError(
            f"snapshot: found {snapshot} for {path}, files of format {described.kind}, which have "
            "no snapshots. Leave it out."
        )
    return open_foreign(
        described,
        path=str(path),
        identity=identity,
        rules=FetchRules(verify=verify, gap=gap_bytes, cap=cap_bytes, map=map),
        cache=process_cache() if cache_bytes is None else BlockCache(cache_bytes),
        disk_cache=_chosen(path, described, **bucket),
    )


def is_ours(path: Any) -> bool:
    """Whether a store of ours is there, or was begun."""
    root = place("path", path)
    if isinstance(root, Url):
        return any(map(snapshots.is_store_name, RemoteSource(root).listing.list(root)))
    return root.is_dir() and any(map(snapshots.is_store_name, LOCAL.list(root)))


def _ours_only(path: Any, own: dict[str, Any]) -> Reader:
    """The store of ours at a path; where nothing is, the error says what would open."""
    try:
        return open_place(path, **own)
    except StoreNotFound as error:
        if is_ours(path) or str(error).endswith("?"):  # a build under way; a name that is near
            raise
        below = ForeignPlace(path, Said()).folders_with(LEDGER)
        if below:
            more = ", …" if len(below) > MOST_TOLD else ""
            raise StoreNotFound(
                f"{path}: it is no token store itself, and holds {plural(len(below), 'cache')} of "
                f"Levanter: {', '.join(below[:MOST_TOLD])}{more}. Open one of them, or mix several "
                "(`tokenloom.mix`)."
            ) from None
        raise StoreNotFound(
            f"{error} Files of other projects open as they are ({', '.join(FORMATS)}): docs/"
            "stores.md says how each is found, and what must be said about it."
        ) from None


def _chosen(
    path: Any,
    described: Described,
    *,
    disk_cache: str | Path | None = None,
    disk_cache_bytes: int | None = None,
) -> DiskCache | None:
    """The disk cache for files of a bucket: only sealed ones have an identity to keep them by."""
    if not isinstance(described.folder, BucketFolder):
        return None
    if has_seal(described):
        return DiskCache.chosen(disk_cache, disk_cache_bytes)
    if disk_cache is not None:
        raise ConfigError(
            f"disk_cache: found one for {path}, files that are not sealed, so nothing tells their "
            "pieces from those of other files of that name. Seal them (`tokenloom seal`), or leave "
            "it out."
        )
    if DiskCache.chosen(None, disk_cache_bytes) is not None:
        _say(path, "the disk cache is not used, since these files are not sealed")
    return None


def open_foreign(
    described: Described,
    *,
    path: str,
    identity: str = "full",
    rules: FetchRules,
    cache: BlockCache,
    use_seal: bool = True,
    disk_cache: DiskCache | None = None,
) -> ForeignReader:
    """A reader over the files of a description.

    Args:
        described: what the files are.
        path: the store as the user named it.
        identity: "full", or "sample" to hash a sample of the tokens only, unless there is a seal.
        rules: how to read.
        cache: keeps decoded blocks.
        use_seal: whether a seal of the files counts.
        disk_cache: keeps pieces of sealed files of a bucket.
    """
    source, stamps = described.folder.source, described.stamps()
    inside = identified(described, identity, use_seal=use_seal)
    sealed = inside.is_sealed
    if inside.identity != identity:
        _say(path, "it is sealed, so its identity is the full one and no sample")
    told = {"manifest": inside.manifest(), "files": stamps, "sealed": sealed}
    sha256 = hashlib.sha256(fmt.canonical(told)).hexdigest()  # also names its blocks in the cache
    disk_cache = disk_cache if sealed else None
    if isinstance(source, BucketSource):
        source.columns = described.columns_of_files()
        source.keep(disk_cache, sha256)
    said = dict(described.settings)
    if "seal" in said:
        said["seal"] = _anywhere(said["seal"])
    again = _anywhere(path), path, said, inside.identity, sha256, rules, cache, disk_cache
    made = ForeignReader(
        inside, path=path, cache=cache, rules=rules, identity=sha256, reopen=(_reopened, again)
    )
    made.stamps = stamps
    late = _never_there(made)
    for note in late:
        _say(path, note)
    made.notes = (*described.notes, *late)
    return made


def _never_there(reader: ForeignReader) -> list[str]:
    """A note if the token that tells documents apart is in none of the files."""
    by, manifest = reader.inside.described.lengths, reader.manifest
    if not isinstance(by, Delimiter) or manifest.documents != 1:
        return []
    place = manifest.tokens - 1 if by.at == "end" else 0
    if int(look_at(reader.inside).read_one(place, place + 1)[0]) == by.id:
        return []
    word = "ends documents (eos=)" if by.at == "end" else "starts documents (bos=)"
    return [f"the token {by.id} that {word} occurs nowhere, so all tokens are one document"]


def _anywhere(path: str) -> str:
    """A path or URL that also names its file in another process."""
    where = place("path", path)
    return str(where) if isinstance(where, Url) else os.path.abspath(where)


def _reopened(
    where: str,
    path: str,
    said: dict[str, Any],
    mode: str,
    identity: str,
    rules: FetchRules,
    cache: BlockCache,
    disk_cache: DiskCache | None,
) -> ForeignReader:
    """A copy of a reader: the same files, opened again."""
    described = describe_files(where, Said.of(said))
    if described is None:
        raise StoreError(
            f"{where}: the files of the store that was copied are not there any more. Restore them."
        )
    made = open_foreign(
        described, path=path, identity=mode, rules=rules, cache=cache, disk_cache=disk_cache
    )
    if made.identity != identity:
        raise StoreError(
            f"{where}: its digest is {made.manifest.digest}, the store that was copied had another "
            "one. Its files were changed; open it and make the copy from there."
        )
    return made
