"""Lengths of documents that only a pass over the files can tell: found once, then remembered.

One idea: in row and sample formats the number of tokens of a file is written nowhere, and a
description needs it before a token is read. So the files are gone through, piece by piece, and the
answer is kept in the cache directory under their names, sizes, times and first and last
bytes. Files that changed are gone through again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.foreign.locations import hash_of_ranges
from tokenloom.foreign.places import ForeignPlace
from tokenloom.store import plan_cache
from tokenloom.store.ahead import in_turn

__all__ = ["counted"]

Int64 = NDArray[np.int64]

KIND = "foreign-lengths"

LOOKED = 4096  # bytes at either end of a file


def counted(
    place: ForeignPlace,
    kind: str,
    files: Sequence[str],
    counts: Iterable[tuple[int, Callable[[], Int64]]],
) -> list[Int64]:
    """The tokens of every document of every piece.

    Args:
        place: where the files are.
        kind: the format.
        files: what decides the answer.
        counts: (bytes to be read for it, what gives the lengths) of each piece, in order; several
            are called at the same time if the files are in a bucket.
    """
    key = _key(place, kind, files)
    known = plan_cache.recall(KIND, key)
    if known is not None:
        parts = plan_cache.recall_parts(KIND, key, int(known["pieces"]))
        raw = parts.read(range(len(parts))) if parts is not None else None
        if raw is not None:
            return [np.frombuffer(one, "<i8").astype(np.int64) for one in raw]
    lengths = in_turn(counts, place.source)
    found = [np.ascontiguousarray(one, np.int64) for one in lengths]
    plan_cache.forget(KIND, key)
    if plan_cache.remember_parts(KIND, key, (one.astype("<i8").tobytes() for one in found)):
        plan_cache.remember(KIND, key, {"pieces": len(found)})
    return found


def _key(place: ForeignPlace, kind: str, files: Sequence[str]) -> dict[str, Any]:
    told: list[list[Any]] = [[name, *place.folder.stamp(name)] for name in files]
    ends = [
        (name, low, min(LOOKED, size - low))
        for name, size, _ in told
        for low in (0, max(0, size - LOOKED))
    ]
    sample = hash_of_ranges(place.source, ends, place.root)
    said = place.said.plain
    return {"kind": kind, "root": place.root, "files": told, "said": said, "sample": sample}
