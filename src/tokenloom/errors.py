"""The exceptions of tokenloom, one tree.

Every message reads *path: what is wrong with the value seen, what is allowed, what to do*.
Each class is also the builtin that a caller would guess, so ``except FileNotFoundError`` works.

::

    TokenloomError
    ├─ ConfigError(ValueError)         an argument or a setting that cannot be meant
    ├─ InputError(ValueError)          a record or an input file that cannot be used
    ├─ TokenizerError(ValueError)      a tokenizer that is missing, unsuitable, or gives wrong ids
    ├─ StateError(ValueError)          a state that is damaged, or of another run
    ├─ NoTrainedTokens(ValueError)     a batch in which no token is trained on
    ├─ WorkerError(RuntimeError)       a worker process died
    ├─ MissingExtra(ImportError)       an optional dependency is needed and absent
    └─ StoreError(OSError)             reading or writing a store failed
       ├─ StoreNotFound(FileNotFoundError)   nothing published at that path
       ├─ StoreExists(FileExistsError)       the target holds something else
       ├─ StoreBusy(StoreError)              another process is building there
       └─ StoreCorrupt(StoreError)           bytes differ from what was published
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "InputError",
    "MissingExtra",
    "NoTrainedTokens",
    "StateError",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreNotFound",
    "TokenizerError",
    "TokenloomError",
    "WorkerError",
]


class TokenloomError(Exception):
    """The root of everything that tokenloom raises on purpose."""


class ConfigError(TokenloomError, ValueError):
    """An argument or a setting that cannot be meant."""


class InputError(TokenloomError, ValueError):
    """A record or an input file that cannot be used."""


class TokenizerError(TokenloomError, ValueError):
    """A tokenizer that is missing, unsuitable, or gives wrong ids."""


class StateError(TokenloomError, ValueError):
    """A state that is damaged, or belongs to another run."""


class NoTrainedTokens(TokenloomError, ValueError):
    """A batch in which no token is trained on."""


class WorkerError(TokenloomError, RuntimeError):
    """A worker process died or stopped answering."""


class MissingExtra(TokenloomError, ImportError):
    """An optional dependency is needed and absent."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'tokenloom[{extra}]'"
        )


class StoreError(TokenloomError, OSError):
    """Reading or writing a store failed."""


class StoreNotFound(StoreError, FileNotFoundError):
    """Nothing is published at that path."""


class StoreExists(StoreError, FileExistsError):
    """The target holds something else."""


class StoreBusy(StoreError):
    """Another process is building at that path."""


class StoreCorrupt(StoreError):
    """Bytes on disk differ from what was published."""
