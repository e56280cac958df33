"""The exceptions of tokenloom, one tree.

Every message reads *path: what is wrong with the value seen, what is allowed, what to do*.
Each class subclasses the builtin that a caller would guess, so ``except FileNotFoundError`` works.

::

    TokenloomError
    ├─ ConfigError(ValueError)         an invalid argument or setting
    ├─ InputError(ValueError)          a record or an input file that cannot be used
    ├─ TokenizerError(ValueError)      a tokenizer that is missing, unsuitable, or gives wrong ids
    ├─ StateError(ValueError)          a state that is damaged, or belongs to another run
    ├─ NoTrainedTokens(ValueError)     a step in which no token is trained on
    ├─ LoaderExhausted(RuntimeError)   another loop over a loader that is at its end
    ├─ WorkerError(RuntimeError)       a worker process died
    ├─ MissingExtra(ImportError)       an optional dependency is needed and absent
    └─ StoreError(OSError)             reading or writing a store failed
       ├─ StoreNotFound(FileNotFoundError)   nothing published at that path
       ├─ StoreExists(FileExistsError)       the target holds something else
       ├─ StoreBusy(StoreError)              another process is building there
       └─ StoreCorrupt(StoreError)           bytes differ from what was published

The rest of the module holds the small pieces that messages are built from.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = [
    "ConfigError",
    "InputError",
    "LoaderExhausted",
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
    "binary_size",
    "choices",
    "near_miss",
    "plural",
    "sentence",
    "warn",
]


class TokenloomError(Exception):
    """The root of everything that tokenloom raises on purpose."""


class ConfigError(TokenloomError, ValueError):
    """An invalid argument or setting."""


class InputError(TokenloomError, ValueError):
    """A record or an input file that cannot be used."""


class TokenizerError(TokenloomError, ValueError):
    """A tokenizer that is missing, unsuitable, or gives wrong ids."""


class StateError(TokenloomError, ValueError):
    """A state that is damaged, or belongs to another run."""


class NoTrainedTokens(TokenloomError, ValueError):
    """A step of a loader in which no token is trained on."""


class LoaderExhausted(TokenloomError, RuntimeError):
    """Another loop over a loader that has delivered everything, and so would be empty."""


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


_PACKAGE = str(Path(__file__).parent)


ELSEWHERE = {"input_ids": "tokens", "inputs": "tokens", "targets": "labels"}

"""What other libraries call our arrays: spelling alone would suggest another one."""


def near_miss(word: str, allowed: Sequence[str]) -> str:
    """A sentence that suggests the closest allowed word; empty if none is close.

    >>> near_miss("wkii", ["wiki", "code"])
    " Did you mean 'wiki'?"
    >>> near_miss("input_ids", ["tokens", "segment_ids"])  # not the one that looks like it
    " Did you mean 'tokens'?"
    """
    close = [name for name in allowed if name == ELSEWHERE.get(word)]
    close = close or [name for name in allowed if word and name.startswith(word)]
    close = close or difflib.get_close_matches(word, allowed, n=1, cutoff=0.6)
    close = close or [name for name in allowed if len(word) > 1 and word.startswith(name)]
    return f" Did you mean {close[0]!r}?" if close else ""


def choices(found: object, allowed: Iterable[object]) -> str:
    """The end of a message about an unknown word: the allowed words, and the closest one.

    >>> choices("wkii", ["wiki", "code"]), choices("wiki", [])
    ("wiki, code. Did you mean 'wiki'?", 'none.')
    """
    words = list(map(str, allowed))
    return f"{', '.join(words) or 'none'}.{near_miss(str(found), words)}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "shard"), plural(1200, "shard")
    ('1 shard', '1,200 shards')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """The text with final punctuation, so that another sentence can follow.

    >>> sentence("no key 'a'"), sentence("Did you mean 'b'?")
    ("no key 'a'.", "Did you mean 'b'?")
    """
    return text if text.endswith((".", "?", "!")) else text + "."


def binary_size(count: int) -> str:
    """A byte count in binary units, for people.

    >>> binary_size(1536)
    '1.5 KiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def warn(message: str) -> None:
    """Warn at the line of the user's code that led here, however deep the call."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
