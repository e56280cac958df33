"""Text to training batches for language models; every example is a pure function of its index.

>>> import tokenloom as tl
>>> store = tl.build("corpus/*.jsonl", "stores/wiki", tokenizer="tokenizer.json")  # doctest: +SKIP
>>> store = tl.open("stores/wiki")  # doctest: +SKIP
"""

from tokenloom.building import build_store as build
from tokenloom.errors import (
    ConfigError,
    InputError,
    MissingExtra,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreNotFound,
    TokenizerError,
    TokenloomError,
    WorkerError,
)
from tokenloom.stored import Store
from tokenloom.stored import open_store as open
from tokenloom.version import __version__

__all__ = [
    "ConfigError",
    "InputError",
    "MissingExtra",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreNotFound",
    "TokenizerError",
    "TokenloomError",
    "WorkerError",
    "__version__",
    "build",
    "open",
]
