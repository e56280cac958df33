"""The identity of a foreign store: its documents, hashed once, or a sample of its tokens.

One idea: a foreign store has the digest that a copy of ours would have, so a run goes on over
either. That takes one pass over the tokens, after which the result is remembered under path, sizes,
times and a keyed sample of the bytes of the files (`tokenloom.foreign.companion`); a file that
changed is passed over again. ``identity="sample"`` hashes all lengths and a keyed sample of the
tokens instead. The two never agree: a sample proves less. A seal has the full identity, which then
costs no pass, so where there is one it is used, whatever was asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.errors import StoreError
from tokenloom.foreign.companion import (
    Beside,
    Companion,
    InMemory,
    PartList,
    pass_cache_bytes,
    worked_out,
)
from tokenloom.foreign.described import Described
from tokenloom.foreign.foreign_reader import Inside, lines_of
from tokenloom.foreign.manifests import hashed_groups, manifest_of
from tokenloom.foreign.sampled import sample_of_bytes, sampled_groups, stamps_of
from tokenloom.foreign.seals import open_seal
from tokenloom.foreign.virtual import VirtualShard, check_shards, cut_shards, document_lengths
from tokenloom.progress import Progress
from tokenloom.store import format as fmt
from tokenloom.store import plan_cache
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.cache import BlockCache

__all__ = ["identified"]

Int64 = NDArray[np.int64]

KIND = "foreign"


def identified(
    described: Described,
    source: ByteSource,
    identity: str,
    *,
    progress: bool | None = None,
    use_seal: bool = True,
) -> tuple[Inside, fmt.Manifest]:
    """A foreign store with its shards, its companion and the manifest that it would have.

    Args:
        described: its files.
        source: reads them.
        identity: "full" or "sample", if they are not sealed.
        progress: whether to show the progress of a pass; None: if someone watches.
        use_seal: whether a seal of the files counts.
    """
    one_of("identity", identity, ("full", "sample"))
    key = _key(described, source, identity)
    known = _sealed(described, key["sample"]) if use_seal else None
    known = known or _recalled(described, source, key, identity)
    if known is not None:
        return known
    lines = lines_of(described, source, BlockCache(pass_cache_bytes()), "pass")
    full = identity == "full"
    line = lines["input_ids"]
    lengths = document_lengths(described, line.unchecked() if full else line)
    shards = cut_shards(described, lengths, looked=full)
    ends = np.cumsum(lengths)
    for each in lines.values():
        each.locate = functools.partial(_place_of, ends)
    further = {name: line for name, line in lines.items() if name != "input_ids"}
    total = sum(len(line) * line.dtype.itemsize for line in lines.values()) if full else 0
    with Progress("identify", total=total, unit="B", show=progress) as bar:
        parts = list(
            worked_out(shards, lengths, lines["input_ids"], further, hashed=full, tick=bar.advance)
        )
    inside = _inside(described, shards, InMemory(parts), identity)
    sampled = functools.partial(sampled_groups, lines["input_ids"], lengths)
    groups = hashed_groups(inside, source) if full else sampled()
    plan_cache.forget(KIND, key)
    if plan_cache.remember_parts(KIND, key, parts):
        value = {"shards": [list(shard) for shard in shards], "groups": list(groups)}
        plan_cache.remember(KIND, key, value)
    return inside, manifest_of(described, shards, groups)


def _inside(
    described: Described, shards: Sequence[VirtualShard], parts: PartList, identity: str
) -> Inside:
    names, hashed = sorted(described.columns), identity == "full"
    beside = Beside(shards=shards, columns=names, hashed=hashed)
    return Inside(described, list(shards), Companion(parts, beside, described.root), identity)


def _sealed(described: Described, sample: str) -> tuple[Inside, fmt.Manifest] | None:
    """What the seal of the files says, if they have one."""
    found = open_seal(described, sample)
    if found is None:
        return None
    companion, groups = found
    shards = list(companion.beside.shards)
    check_shards(described, shards)
    inside = Inside(described, shards, companion, "full")
    return inside, manifest_of(described, shards, groups)


def _recalled(
    described: Described, source: ByteSource, key: dict[str, Any], identity: str
) -> tuple[Inside, fmt.Manifest] | None:
    """What was remembered, if it is there and whole."""
    kept = plan_cache.recall(KIND, key)
    if kept is None:
        return None
    try:
        shards = [VirtualShard(*map(int, one)) for one in kept["shards"]]
        check_shards(described, shards)
        inside = _inside(described, shards, InMemory(), identity)
        parts = plan_cache.recall_parts(KIND, key, inside.companion.parts)
        if parts is None:
            return None
        inside = _inside(described, shards, parts, identity)
        manifest = manifest_of(described, shards, tuple(kept["groups"]))
        return inside, manifest
    except (ValueError, KeyError, TypeError, StoreError):
        plan_cache.forget(KIND, key)
        return None


def _key(described: Described, source: ByteSource, identity: str) -> dict[str, Any]:
    """What decides a companion: where the files are, and what is in them as far as one looks."""
    return {
        "kind": described.kind,
        "root": described.root,
        "settings": {k: v for k, v in described.settings.items() if k != "seal"},
        "files": stamps_of(described),
        "identity": identity,
        "vocab_size": described.vocab_size,
        "sample": sample_of_bytes(described, source),
    }


def _place_of(ends: Int64, address: int) -> str:
    document = int(np.searchsorted(ends, address, side="right"))
    first = int(ends[document - 1]) if document else 0
    return f" (token {address - first:,} of document {document:,})"
