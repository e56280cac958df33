"""The two small files that machines leave each other in a store while it is being built.

``plan-000001.json`` is published before the first shard, create-only: whoever comes with other
settings or other inputs is refused with the difference, before anything is encoded.

``stretch-000001-00003.json`` is published after the last shard of stretch 3: its shards, its
counts, and what it read. A stretch with such a record is done; `drive` joins the records.

Both are sealed as manifests are (`tokenloom.store.format`), and removed once the manifest of
their snapshot, here 1, is published: a store has the same files whoever built it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenloom.arguments import Place
from tokenloom.errors import StoreCorrupt, StoreError, StoreExists, plural
from tokenloom.store import format as fmt
from tokenloom.store.files import Files, publish_file

NAME = re.compile(r"(?:plan-|stretch-)([0-9]+)(?:-([0-9]+))?\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An input as it is known before it is read."""

    name: str
    kind: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StretchPlan:
    """What all machines of a build agree on: settings, fingerprint, and the inputs by size."""

    format: str = fmt.FORMAT
    version: int = fmt.VERSION
    number: int
    fingerprint: str
    settings: dict[str, Any]
    inputs: tuple[Listed, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """What a stretch read of one input, and the proof.

    Attributes:
        input: index in the list of inputs.
        start, stop: bytes of a file or rows of an object.
        sha256: identity of the whole input; only of the stretch that reads its start.
        hashes: xxh3_128 of every range that a stretch reads, if the input is cut; of the own range
            alone where `sha256` is empty.
    """

    input: int
    start: int
    stop: int
    sha256: str = ""
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StretchRecord:
    """A finished stretch.

    Attributes:
        number: of the snapshot.
        stretch: counted from 0.
        plan: fingerprint of the `StretchPlan`.
        fingerprint: that of the shards: over the plan, the stretch and what was read.
        shards: in order, as the manifest will list them.
        skipped, filtered: records that are in no shard.
        bytes: of input, as stored.
        records: of the input that the stretch ends in, up to there.
        reads: what was read, in order.
        reasons: why records were left out, as `tokenloom.ingest.skips` counts them.
        places: lines about records after the last shard.
    """

    format: str = fmt.FORMAT
    version: int = fmt.VERSION
    number: int
    stretch: int
    plan: str
    fingerprint: str
    shards: tuple[fmt.ShardEntry, ...]
    skipped: int
    filtered: int
    bytes: int
    records: int
    reads: tuple[Read, ...]
    reasons: dict[str, tuple[int, ...]] = field(default_factory=dict)
    places: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """What a driver is told."""
        return {
            "shards": len(self.shards),
            "documents": sum(shard.documents for shard in self.shards),
            "tokens": sum(shard.tokens for shard in self.shards),
            "skipped": self.skipped,
            "filtered": self.filtered,
            "bytes": self.bytes,
        }


def plan_name(number: int) -> str:
    """`plan-000001.json` for snapshot 1."""
    return f"plan-{number:06d}.json"


def record_name(number: int, stretch: int) -> str:
    """`stretch-000001-00003.json` for stretch 3 of snapshot 1."""
    return f"stretch-{number:06d}-{stretch:05d}.json"


def stretch_files(names: Sequence[str], number: int | None = None) -> list[str]:
    """Plans and records among the names in a store, the plan of a snapshot last.

    Args:
        names: of the store's directory.
        number: of the snapshot; None for all.
    """
    found = [match for name in names if (match := NAME.fullmatch(name))]
    wanted = [match for match in found if number is None or int(match[1]) == number]
    return [match[0] for match in sorted(wanted, key=lambda match: match[2] is None)]


def is_stretch_file(name: str, raw: bytes, path: str) -> bool:
    """Whether the content of a file is what its name says."""
    try:
        if name.startswith("plan-"):
            return plan_name(fmt.unseal(StretchPlan, raw, path).number) == name
        record = fmt.unseal(StretchRecord, raw, path)
    except StoreError:  # not ours, or damaged
        return False
    return record_name(record.number, record.stretch) == name


def publish_plan(files: Files, root: Place, plan: StretchPlan) -> None:
    """Publish the plan, or agree with the one that is there.

    Raises:
        StoreExists: the plan that is there is another one; says in what.
    """
    path, sealed = root / plan_name(plan.number), fmt.seal(plan)
    if publish_file(files, path, sealed):
        return
    raw = files.read(path, fmt.MAX_RECORD_BYTES)
    if raw != sealed:
        there = fmt.unseal(StretchPlan, raw or b"", str(path))
        raise StoreExists(
            f"{path}: an unfinished build in stretches is here, and differs in "
            f"{_difference(there, plan)}. Run every part with the same arguments, or remove that "
            "build with `tokenloom gc --unfinished`."
        )


def _difference(there: StretchPlan, now: StretchPlan) -> str:
    """Settings that differ, and the first input that does."""
    old, new = there.settings, now.settings
    found = [
        f"{key} ({old.get(key, '-')!r} there, {new.get(key, '-')!r} now)"
        for key in sorted(old | new)
        if old.get(key) != new.get(key) and key != "inputs"
    ]
    pairs = zip(there.inputs, now.inputs, strict=False)
    first = next(((a, b) for a, b in pairs if a != b), None)
    if first is not None:
        a, b = first
        found.append(
            f"its inputs ({a.name} of {plural(a.bytes, 'byte')} there, {b.name} of "
            f"{plural(b.bytes, 'byte')} now)"
        )
    elif len(there.inputs) != len(now.inputs):
        found.append(f"its inputs ({len(there.inputs):,} there, {len(now.inputs):,} now)")
    return ", ".join(found) or "the version that wrote it"


def read_plan(files: Files, root: Place, number: int) -> StretchPlan | None:
    """The plan of a snapshot that is being built; None if there is none."""
    path = root / plan_name(number)
    raw = files.read(path, fmt.MAX_RECORD_BYTES)
    return None if raw is None else fmt.unseal(StretchPlan, raw, str(path))


def publish_record(files: Files, root: Place, record: StretchRecord) -> None:
    """Publish the record of a stretch; the same one may be there already."""
    path, sealed = root / record_name(record.number, record.stretch), fmt.seal(record)
    if not publish_file(files, path, sealed) and files.read(path, len(sealed)) != sealed:
        raise StoreExists(
            f"{path}: another process did this stretch with another result. Did an input change? "
            "Remove that build with `tokenloom gc --unfinished` and run every part again."
        )


def read_record(
    files: Files, root: Place, number: int, stretch: int, plan: str
) -> StretchRecord | None:
    """The record of a stretch; None if it is not done.

    Raises:
        StoreCorrupt: it is of another plan.
    """
    path = root / record_name(number, stretch)
    raw = files.read(path, fmt.MAX_RECORD_BYTES)
    if raw is None:
        return None
    record = fmt.unseal(StretchRecord, raw, str(path))
    if (record.number, record.stretch, record.plan) != (number, stretch, plan):
        raise StoreCorrupt(
            f"{path}: it is the record of another stretch or of another plan. Remove that build "
            "with `tokenloom gc --unfinished` and run every part again."
        )
    return record
