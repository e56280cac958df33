"""Plans that are remembered between processes: files in the user's cache directory.

One idea: what is remembered can always be worked out again, so nothing here may fail a run. A file
is named by the hash of everything that decides it, appears whole or not at all, and is trusted only
as far as it can be checked; whatever is wrong with it, it is forgotten. Small things are JSON, long
lists of integers raw bytes after a line of JSON.

The directory is ``TOKENLOOM_CACHE_DIR``, else ``tokenloom`` in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import TokenloomError
from tokenloom.store.files import LOCAL, publish_file

__all__ = ["cache_dir", "forget", "recall", "remember", "remember_array", "remembered_array"]

MAX_BYTES = 256 << 20

MAX_ARRAY_BYTES = 16 << 30

KINDS = ("|u1", "<u2", "<u4", "<i8")  # of integers in arrays

log = logging.getLogger("tokenloom")


def cache_dir() -> Path:
    """Where plans are kept."""
    named = os.environ.get("TOKENLOOM_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenloom"


def _path(kind: str, identity: Mapping[str, Any], ending: str = "json") -> Path:
    return cache_dir() / f"{kind}-{_hash(identity)}.{ending}"


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def remember(kind: str, identity: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Keep a value; False, with a note, where that is not possible."""
    kept = {"identity": identity, "value": value, "sha256": _hash([identity, value])}
    return _keep(_path(kind, identity), json.dumps(kept, allow_nan=False).encode())


def recall(kind: str, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was kept for this identity, if it is there and whole."""
    path = _path(kind, identity)
    try:
        raw = LOCAL.read(path, MAX_BYTES)
        if raw is None:
            return None
        kept = json.loads(raw)
        if kept["identity"] == identity and kept["sha256"] == _hash([identity, kept["value"]]):
            value: dict[str, Any] = kept["value"]
            return value
    except (OSError, TokenloomError, ValueError, KeyError, TypeError, RecursionError):
        pass
    _wrong(path)
    return None


def forget(kind: str, identity: Mapping[str, Any]) -> None:
    """Remove what was kept for this identity."""
    _remove(_path(kind, identity))


def remembered_array(
    kind: str,
    identity: Mapping[str, Any],
    can_be: Callable[[NDArray[Any]], bool],
    make: Callable[[], NDArray[Any]],
) -> NDArray[Any]:
    """The integers that were kept for this identity, if they can be true; else made, and kept."""
    known = _recalled(kind, identity)
    if known is not None and can_be(known):
        return known
    made = make()
    remember_array(kind, identity, made)
    return made


def remember_array(kind: str, identity: Mapping[str, Any], array: NDArray[Any]) -> bool:
    """Keep these integers and no others; False, with a note, where that is not possible."""
    little = array.dtype.newbyteorder("<")
    raw = np.ascontiguousarray(array, little).tobytes()
    head = {"kind": little.str, "items": len(array), "sha256": hashlib.sha256(raw).hexdigest()}
    path = _path(kind, identity, "ints")
    _remove(path)
    return _keep(path, json.dumps({"identity": _hash(identity), **head}).encode() + b"\n" + raw)


def _recalled(kind: str, identity: Mapping[str, Any]) -> NDArray[Any] | None:
    path = _path(kind, identity, "ints")
    try:
        raw = LOCAL.read(path, MAX_ARRAY_BYTES)
        if raw is None:
            return None
        after = raw.index(b"\n", 0, 4096) + 1
        head = json.loads(raw[:after])
        right = head["identity"] == _hash(identity) and head["kind"] in KINDS
        if right and head["sha256"] == hashlib.sha256(memoryview(raw)[after:]).hexdigest():
            found = np.frombuffer(raw, head["kind"], offset=after)
            if len(found) == head["items"]:
                return found.astype(found.dtype.newbyteorder("="))
    except (OSError, TokenloomError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
        pass
    _wrong(path)
    return None


def _keep(path: Path, raw: bytes) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        publish_file(LOCAL, path, raw)  # somebody else may have been faster, with the same
        return True
    except (OSError, TokenloomError) as error:
        log.info("%s: the plan is kept in memory only (%s).", path, error)
        return False


def _wrong(path: Path) -> None:
    log.warning("%s: it is not the plan that was kept there; it is worked out again.", path)
    _remove(path)


def _remove(path: Path) -> None:
    try:
        LOCAL.remove(path)
    except (OSError, TokenloomError) as error:
        log.info("%s: it cannot be removed (%s).", path, error)
