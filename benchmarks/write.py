"""Writing a shard without tokenising: hashes, checksums, fsync and commit included.

Documents of 1,000 tokens on average come in appends of 1 Mi tokens, as a build delivers them; and
documents of 100 tokens, where the hash of every document weighs most.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np

from benchmarks.clock import Case, Row, Table, against, interleave, rate, want
from benchmarks.stores import documents, write_shard
from tokenloom.store import format as fmt
from tokenloom.store.hashes import hash_ids
from tokenloom.store.shard import ChunkSums

__all__ = ["SIZES", "run"]

# size → (tokens, rounds)
SIZES = {
    "tiny": (1 << 18, 1),
    "small": (1 << 23, 3),
    "default": (1 << 25, 7),
    "full": (1 << 27, 9),
}
Parts = list[tuple[np.ndarray, np.ndarray]]


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of writing."""
    tokens, rounds = SIZES[size]
    narrow, wide = documents(tokens, "uint16"), documents(tokens, "uint32")
    short = documents(tokens, "uint16", mean=100)
    whole = np.concatenate([ids for ids, _ in narrow])
    place = folder / "write"

    def into(write: Callable[[Path], object]) -> Case:
        def fresh() -> Path:
            # what the case before wrote goes first: removing it must not be timed
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            return Path(tempfile.mkdtemp(dir=place))

        return Case(prepare=fresh, run=write)

    timing = interleave(
        {
            "write": into(lambda root: _write(root, narrow)),
            "sha256": lambda: [hashlib.sha256(ids) for ids, _ in narrow],
            "crc32c": lambda: [_checksums(ids) for ids, _ in narrow],
            "pages": lambda: [_page_checksums(ids) for ids, _ in narrow],
            "hashes": lambda: [hash_ids(*part) for part in narrow],
            "hashes of short": lambda: [hash_ids(*part) for part in short],
            "all": into(lambda root: _write(root, narrow, hashed=True)),
            "shard": into(lambda root: write_shard(root, 0, narrow, "uint16")),
            "short": into(lambda root: write_shard(root, 0, short, "uint16")),
            "described": into(lambda root: write_shard(root, 0, narrow, "uint16", describe=True)),
            "wide": into(lambda root: write_shard(root, 0, wide, "uint32")),
            "save": into(lambda root: _save(root, whole)),
        },
        rounds,
    )

    def row(name: str, what: str) -> Row:
        return rate(what, timing[name], tokens / 1e6, "Mtok/CPU-s")

    limit = row("all", "limit: write, sha256, crc32c and fsync of the same bytes")
    goal = against(row("shard", "ShardWriter, uint16"), limit, "limit")
    brief = against(row("short", "ShardWriter, uint16, documents of 100 tokens"), limit, "limit")
    others = {
        "described": "ShardWriter, uint16, metadata of every document",
        "wide": "ShardWriter, uint32",
        "write": "bare write + fsync, uint16",
        "sha256": "sha256 alone, uint16",
        "crc32c": "crc32c per 64 KiB alone, uint16",
        "pages": "crc32c per 4 KiB alone, uint16",
        "hashes": "hashes of documents alone, uint16",
        "hashes of short": "hashes of documents of 100 tokens alone, uint16",
        "save": "np.save + fsync, uint16, no checksum",
    }
    rows = [limit, want(goal, ">=", 330), want(brief, ">=", 180)]
    rows += [against(row(name, what), limit, "limit") for name, what in others.items()]
    count, many = (sum(len(lengths) for _, lengths in parts) for parts in (narrow, short))
    note = (
        f"{tokens:,} tokens in {count:,} documents ({many:,} short ones), {rounds} "
        "rounds; making, syncing and renaming the shard's files is included, the disk's own time "
        "is not (CPU-seconds)."
    )
    title = "write: one shard, without tokenising"
    return [Table(title=title, command=command, rows=rows, notes=[note])]


def _checksums(ids: np.ndarray) -> None:
    for start in range(0, len(ids), fmt.INNER):
        google_crc32c.value(ids[start : start + fmt.INNER].view(np.uint8))


def _page_checksums(ids: np.ndarray) -> None:
    sums = ChunkSums()
    sums.append(ids.view(np.uint8))
    sums.close()


def _write(root: Path, parts: Parts, *, hashed: bool = False) -> None:
    sha256 = hashlib.sha256()
    file = os.open(root / "payload", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    for ids, _ in parts:
        os.write(file, ids)
        if hashed:
            sha256.update(ids)
            _checksums(ids)
    os.fsync(file)
    os.close(file)


def _save(root: Path, ids: np.ndarray) -> None:
    with open(root / "payload.npy", "wb") as file:
        np.save(file, ids)
        file.flush()
        os.fsync(file.fileno())
