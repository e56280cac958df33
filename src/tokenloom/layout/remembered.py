"""Plans that are remembered between processes: small JSON files in the user's cache directory.

One idea: what is remembered can always be worked out again, so nothing here may fail a run. A file
is named by the hash of everything that decides it, appears whole or not at all, and is trusted only
as far as it can be checked; whatever is wrong with it, it is forgotten.

The directory is ``TOKENLOOM_CACHE_DIR``, else ``tokenloom`` in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenloom.errors import TokenloomError
from tokenloom.store.files import LOCAL, publish_file

__all__ = ["cache_dir", "forget", "recall", "remember"]

MAX_BYTES = 256 << 20
log = logging.getLogger("tokenloom")


def cache_dir() -> Path:
    """Where plans are kept."""
    named = os.environ.get("TOKENLOOM_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenloom"


def _path(kind: str, identity: Mapping[str, Any]) -> Path:
    return cache_dir() / f"{kind}-{_hash(identity)}.json"


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def remember(kind: str, identity: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Keep a value; False, with a note, where that is not possible."""
    path = _path(kind, identity)
    kept = {"identity": identity, "value": value, "sha256": _hash([identity, value])}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return publish_file(LOCAL, path, json.dumps(kept, allow_nan=False).encode())
    except (OSError, TokenloomError) as error:
        log.info("%s: the plan is kept in memory only (%s).", path, error)
        return False


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
    log.warning("%s: it is not the plan that was kept there; it is worked out again.", path)
    forget(kind, identity)
    return None


def forget(kind: str, identity: Mapping[str, Any]) -> None:
    """Remove what was kept for this identity."""
    try:
        LOCAL.remove(_path(kind, identity))
    except (OSError, TokenloomError) as error:
        log.info("%s: it cannot be removed (%s).", _path(kind, identity), error)
