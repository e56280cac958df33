"""Integers of the plan cache that stay in their file, for who needs few of very many.

One idea: the tokens of 10^9 packed rows are a file of 1 GB, which a loader has in memory, and a
page that shows sixty places of a run should not. The file is compared with its digest once, a
stretch at a time; then single integers are read where they are. 1,000 of them take about 1 ms.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import TokenloomError
from tokenloom.store import plan_cache

__all__ = ["FEW", "OnDisk", "recall_on_disk"]

FEW = 1 << 17  # that are looked up one by one

Version = tuple[int, ...]

_checked: dict[tuple[Path, Version], OnDisk] = {}  # compared with their digest in this process


@dataclass(frozen=True, eq=False, slots=True)
class OnDisk:
    """Integers that stay in their file, for who needs few of many; like `Parts`, nothing is open.

    Attributes:
        path, version: the file, and what tells it from another one in its place.
        kind: their dtype.
        begin: where they start, in bytes.
    """

    path: Path
    version: Version
    kind: np.dtype[Any]
    begin: int

    def take(self, places: NDArray[np.int64]) -> NDArray[Any] | None:
        """The integers at these places [N]; None if the file has gone."""
        size = self.kind.itemsize
        try:
            with plan_cache._opened(self.path, plan_cache.MAX_ARRAY_BYTES) as file:
                if file is None or plan_cache._version(file) != self.version:
                    return None
                starts = (self.begin + size * places).tolist()
                raw = b"".join(os.pread(file.fileno(), size, one) for one in starts)
        except (OSError, TokenloomError, ValueError):
            return None
        return np.frombuffer(raw, self.kind) if len(raw) == size * len(places) else None


def recall_on_disk(kind: str, identity: Mapping[str, Any]) -> OnDisk | None:
    """The integers that were kept for this identity, if they are there, whole, and ours."""
    path = plan_cache._path(kind, identity, "ints")
    try:
        with plan_cache._opened(path, plan_cache.MAX_ARRAY_BYTES) as file:
            if file is None:
                return None
            known = _checked.get((path, plan_cache._version(file)))
            if known is not None:
                return known
            line = os.pread(file.fileno(), plan_cache.TAIL, 0).partition(b"\n")[0]
            head, begin, digest = json.loads(line), len(line) + 1, hashlib.sha256()
            file.seek(begin)
            while some := file.read(1 << 20):
                digest.update(some)
            named = (
                head["identity"] == plan_cache._hash(plan_cache._named(identity))
                and head["kind"] in plan_cache.KINDS
            )
            if named and head["sha256"] == digest.hexdigest():
                found = OnDisk(path, plan_cache._version(file), np.dtype(head["kind"]), begin)
                _checked[path, found.version] = found
                return found
    except (OSError, TokenloomError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None
