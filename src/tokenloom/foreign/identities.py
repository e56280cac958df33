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
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.foreign.companion import Companion, InMemory, derive, pass_cache_bytes
from tokenloom.foreign.described import Described, keyed_places
from tokenloom.foreign.foreign_reader import Inside, lines_of
from tokenloom.foreign.pieces import PieceLine
from tokenloom.foreign.seals import open_seal
from tokenloom.foreign.virtual import VirtualShard, cut_shards, document_lengths
from tokenloom.progress import Progress
from tokenloom.store import format as fmt
from tokenloom.store import plan_cache
from tokenloom.store.cache import BlockCache

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
