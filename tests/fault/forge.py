"""Stores with right checksums over wrong content: what a hostile or broken writer would make.

`write_shards` goes through the real writer with values it would never be given; `reseal` changes
the records of a store and seals them again, so that nothing but the content gives them away.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from kit import QUICK

from tokenloom.store import format as fmt
from tokenloom.store.writer import ShardWriter, publish_manifest
from tokenloom.testing.stores import first_manifest

Change = Callable[[dict[str, Any]], Any]


def write_shards(root: Path, shards, *, vocab=256, dtype="uint16", inner=64) -> Path:
    """Write shards of (ids, ends of documents, tokens to declare or None), whatever they say."""
    root.mkdir(parents=True)
    entries = []
    for number, (ids, ends, declared) in enumerate(shards):
        writer = ShardWriter(QUICK, root, number, dtype=dtype, inner=inner)
        # one honest document and empty ones, whose offsets are then told otherwise
        writer.append(np.array(ids, np.int64), np.array([len(ids), *[0] * (len(ends) - 1)]))
        writer._columns["offsets"]._tail = np.array([0, *ends], "<u4")
        writer.tokens = len(ids) if declared is None else declared
        entries.append(writer.commit(fingerprint="0" * 64, engine="none", progress={}))
    manifest = first_manifest(entries, vocab_size=vocab, dtype=dtype, inner=inner, chunk_tokens=128)
    publish_manifest(QUICK, root, manifest)
    return root


def seal_text(body: bytes) -> bytes:
    """Any bytes with the seal of a record: `body` is JSON without its last brace."""
    digest = hashlib.sha256(body).hexdigest()
    return body + b',\n "sha256": "%s"\n}\n' % digest.encode()


def load(path: Path) -> dict[str, Any]:
    record = json.loads(path.read_bytes())
    del record["sha256"]
    return record


def reseal(
    root: Path,
    *,
    manifest: Change | None = None,
    shard: Change | None = None,
    number: int = 0,
    files: dict[str, bytes] | None = None,
) -> None:
    """Change a store and make every checksum right again.

    Args:
        root: the store.
        manifest: changes the manifest, as plain JSON, in place or by returning another.
        shard: changes the commit record of a shard.
        number: which shard.
        files: new bytes of files of that shard; sizes and sha256 are updated everywhere.
    """
    path = root / "manifest-000001.json"
    record = load(path)
    entry = record["shards"][number] if record["shards"] else None
    if shard is not None or files is not None:
        assert entry is not None
        folder = root / entry["name"]
        commit = load(folder / "shard.json")
        for name, data in (files or {}).items():
            (folder / name).write_bytes(data)
            commit["files"][name] = {
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            entry["files"][name] = len(data)
        commit = (shard(commit) if shard else None) or commit
        sealed = commit if isinstance(commit, bytes) else fmt.seal(commit)
        (folder / "shard.json").write_bytes(sealed)
        entry["sha256"] = hashlib.sha256(sealed).hexdigest()
        entry["files"]["shard.json"] = len(sealed)
    changed = (manifest(record) if manifest else None) or record
    path.write_bytes(changed if isinstance(changed, bytes) else fmt.seal(changed))
