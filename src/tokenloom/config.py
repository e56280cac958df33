"""Datasets from plain JSON: descriptions of runs, and splice settings of other trainers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.rebuild import check_plain, rebuild
from tokenloom.arguments import MAX_COUNT
from tokenloom.errors import ConfigError, TokenloomError
from tokenloom.integrations.levanter.mapping import is_splice_config, splice_from_config

__all__ = ["from_config"]


def from_config(
    config: Mapping[str, Any], *, path: str | Mapping[str, str] | None = None, **hints: Any
) -> Dataset:
    """The dataset that `Dataset.describe()` described, or that splice settings specify.

    Args:
        config: a description; or settings of type splice_single_document or
            splice_multi_document, as `tokenloom.integrations.levanter.splice_from_config` reads
            them.
        path: where the store is now, if it was moved; for a mix, a mapping from source name to
            path. Only for descriptions.
        hints: as for `tokenloom.open`; for splice settings, `seq_len`.

    Raises:
        ConfigError: a key is missing, unknown or of the wrong type, or it is not the same store.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3).seed(7)
    ...     tl.from_config(run.describe()).fingerprint == run.fingerprint
    True
    """
    check_plain(config)
    try:
        made = _made(config, path, hints)
        n = made.run.n
    except TokenloomError:
        raise
    except _UNFORESEEN as bad:  # plain data of a shape that nobody has thought of
        raise ConfigError(
            f"$: this is no description that can be rebuilt ({type(bad).__name__}: {bad!s:.200}). "
            "Compare it with what describe() gives."
        ) from bad
    if n is not None and n > MAX_COUNT:
        raise ConfigError(f"$: a run of {n:,} examples, allowed: below 2^63. Look at epochs.")
    return made


_UNFORESEEN = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)


def _made(config: Mapping[str, Any], path: Any, hints: Mapping[str, Any]) -> Dataset:
    if not is_splice_config(config):
        return rebuild(config, path, hints)
    if path is not None:
        raise ConfigError(f"path: found {path!r}, but splice settings give it as cache_dir.")
    return splice_from_config(config, **hints)
