"""Files that belong to a tokenizer: settings beside it, and snapshots in the local cache.

One idea: a file that is not there says nothing, and a file that cannot be read is an error. Nothing
is fetched.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from tokenloom.errors import TokenizerError

__all__ = ["cached_file", "read_settings"]


def read_settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file.

    Raises:
        TokenizerError: the file is not JSON.

    >>> read_settings(Path("nowhere/tokenizer_config.json"))
    {}
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as problem:
        raise TokenizerError(f"{path}: is not JSON ({problem}). Repair or remove it.") from None
    return data if isinstance(data, dict) else {}


def cached_file(repository: str, file: str) -> Path | None:
    """Where a file of a repository is in the local Hugging Face cache; None: it is not there."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    hub = importlib.import_module("huggingface_hub")
    try:
        there = hub.try_to_load_from_cache(repository, file)
    except ValueError:  # not even a possible repository name
        return None
    return Path(there) if isinstance(there, str) else None
