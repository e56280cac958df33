"""Datasets from plain JSON: descriptions of runs, and splice settings of other trainers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.rebuild import check_plain, rebuild
from tokenloom.arguments import MAX_COUNT, near_misses
from tokenloom.errors import ConfigError, TokenloomError
from tokenloom.integrations.levanter.mapping import is_splice_config, splice_from_config
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.coalesce import CAP_BYTES

__all__ = ["from_config"]


@near_misses("from_config")
def from_config(
    config: Mapping[str, Any],
    *,
    path: str | Mapping[str, str] | None = None,
    verify: str = "first",
    cache_bytes: int | None = None,
    gap_bytes: int = 0,
    cap_bytes: int = CAP_BYTES,
    map: bool = True,
    source: ByteSource | None = None,
    seq_len: int | None = None,
) -> Dataset:
    """The dataset that `Dataset.describe()` described, or that splice settings specify.

    Args:
        config: a description; or settings of type splice_single_document or
            splice_multi_document, as `tokenloom.integrations.levanter.splice_from_config` reads
            them.
        path: where the store is now, if it was moved; for a mix, a mapping from source name to
            path. This and the following are only for descriptions.
        verify: when blocks are checked: "first", "always" or "never". This and the following are as
            for `tokenloom.open`, the same for all stores.
        cache_bytes: memory for decoded blocks of each store; default: one cache for all.
        gap_bytes: merge reads up to this many bytes apart.
        cap_bytes: maximum length of a read.
        map: read rows beyond the cache from a map of the files.
        source: where the bytes come from, if not from the directory of the store.
        seq_len: tokens of a frame; only for splice settings, which may have it elsewhere.

    Raises:
        ConfigError: a key is missing, unknown or of the wrong type, it is not the same store, or an
            argument is for the other kind of config.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3).seed(7)
    ...     tl.from_config(run.describe()).fingerprint == run.fingerprint
    True
    """
    hints: dict[str, Any] = {
        "verify": verify,
        "cache_bytes": cache_bytes,
        "gap_bytes": gap_bytes,
        "cap_bytes": cap_bytes,
        "map": map,
        "source": source,
    }
    check_plain(config)
    try:
        made = _made(config, path, hints, seq_len)
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


def _made(
    config: Mapping[str, Any], path: Any, hints: Mapping[str, Any], seq_len: int | None
) -> Dataset:
    if not is_splice_config(config):
        if seq_len is not None:
            raise ConfigError(
                f"seq_len: found {seq_len!r}, allowed: only with splice settings; a description "
                "has its own. Leave it out."
            )
        return rebuild(config, path, hints)
    if path is not None:
        raise ConfigError(f"path: found {path!r}, but splice settings give it as cache_dir.")
    usual = inspect.signature(from_config).parameters
    for name, value in hints.items():
        if value != usual[name].default:
            raise ConfigError(
                f"{name}: found {value!r}, allowed: only with a description; splice settings open "
                "their store themselves. Leave it out."
            )
    return splice_from_config(config, seq_len=seq_len)
