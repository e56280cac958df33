"""Runs from files and from plain data: run files, descriptions, and the settings of other trainers.

Whoever has settings calls one function, `load` for a file and `from_config` for a
mapping, and is told what they were read as. A run file has sources by name; a description is what
`Dataset.describe()` gives; anything else is looked up among the dialects of other trainers
(`tokenloom.integrations.dialects`), and what such a file says beside its data is told, not
swallowed.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.describe import FORMAT
from tokenloom.api.origin import RunFile
from tokenloom.api.rebuild import check_plain, rebuild
from tokenloom.arguments import MAX_COUNT, near_misses
from tokenloom.errors import ConfigError, TokenloomError
from tokenloom.integrations.dialects import Dialect, dialect_of
from tokenloom.runfiles.make import DIALECT, FileCheck, check_run, is_run_mapping, run_of
from tokenloom.runfiles.reading import Mistake, overridden
from tokenloom.runfiles.text import Written, read_settings
from tokenloom.store.byte_source import ByteSource
from tokenloom.store.coalesce import CAP_BYTES

log = logging.getLogger("tokenloom")


@near_misses("load")
def load(
    path: str | os.PathLike[str], *, overrides: Iterable[str] = (), build: bool = True
) -> Dataset:
    r"""The run of a run file.

    YAML is the usual form; ``.json`` and ``.toml`` are read, too. Relative paths in it are relative
    to the file. What it says about the loader and evaluation sets is in `Dataset.file`, and
    ``tokenloom.Loader(run)`` takes its arguments from there.

    Args:
        path: the file. It may also hold a description (`Dataset.describe()`), or the settings of
            another trainer; the log says which.
        overrides: values that replace or add to those of the file, as ``"loader.batch_size=64"``.
        build: build stores that the file's ``build`` section names and that are not there yet.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: all problems of the file, each with its line, its key, the value found and what
            is allowed.

    >>> import pathlib, tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     text = "sources: {toy: {store: toy, windows: 2}}\nloader: {batch_size: 2}"
    ...     _ = pathlib.Path(folder, "run.yaml").write_text(text)
    ...     run = tl.load(folder + "/run.yaml", overrides=["sources.toy.shuffle=full", "seed=7"])
    ...     next(tl.Loader(run)).tokens.tolist(), run == store.windows(2).shuffle().seed(7)
    ([[103, 104], [101, 102]], True)
    """
    written, changes = read_settings(path), _listed(overrides)
    if is_description(written.plain):
        found = overridden(written, changes).plain
        return _told(from_config(found), written.name, "description of a run")
    if isinstance(written.plain.get("datasets"), list):
        raise ConfigError(
            f"{written.name}: it is a checkpoint of datasets by spec, not a run. Read it with "
            "tokenloom.streams.read_offsets, and name the specs as inputs of a build section."
        )
    dialect = None if _named(written.plain) else dialect_of(written.plain)
    if dialect is not None:
        return _of_dialect(dialect, overridden(written, changes))
    run = run_of(written, changes, build=build)
    log.debug("%s: read as a run file.", written.name)
    return run


def check(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> FileCheck:
    """What is known of a run file: its run, or every problem; nothing is built, no token is read.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    written, changes = read_settings(path), _listed(overrides)
    known = is_description(written.plain)
    if not known and (_named(written.plain) or dialect_of(written.plain) is None):
        return check_run(written, changes)
    try:
        return FileCheck(written=written, run=load(path, overrides=changes))
    except TokenloomError as error:
        lines = [line.removeprefix(f"{written.name}: ") for line in str(error).split("\n")]
        return FileCheck(written=written, problems=[Mistake("", line) for line in lines])


def _listed(overrides: Iterable[str]) -> tuple[str, ...]:
    if isinstance(overrides, str):
        raise ConfigError(f"overrides: found {overrides!r}, allowed: a list, [{overrides!r}].")
    return tuple(overrides)


def _named(config: Mapping[str, Any]) -> bool:
    """Whether plain data has sources by name, as only run files have."""
    return isinstance(config.get("sources"), Mapping)


def is_description(config: Mapping[str, Any]) -> bool:
    """Whether plain data is what `Dataset.describe()` gives, or was written like it."""
    return config.get("format") == FORMAT or ("store" in config and "layout" in config)


def _told(run: Dataset, name: str, dialect: str, unused: tuple[str, ...] = ()) -> Dataset:
    """The run with its file, after saying what it was read as and what was not used."""
    log.info("%s: read as %s.", name or "from_config", dialect)
    for one in unused:
        log.info("%s: %s", name or "from_config", one)
    return run._but(file=RunFile(path=name, dialect=dialect, unused=unused))


def _of_dialect(dialect: Dialect, written: Written, **options: Any) -> Dataset:
    try:
        run, unused = dialect.make(written.plain, written.folder, **options)
    except ConfigError as error:
        if not written.name:
            raise
        raise ConfigError(f"{written.name}: read as {dialect.name}: {error}") from None
    return _told(run, written.name, dialect.name, tuple(unused))


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
    disk_cache: str | Path | None = None,
    disk_cache_bytes: int | None = None,
    seq_len: int | None = None,
) -> Dataset:
    """The dataset that `Dataset.describe()` described, or that settings specify.

    Args:
        config: a description; the settings of a run file (`load`), whose paths are then relative to
            the working directory; or settings of another trainer, such as those of type
            splice_single_document.
        path: where the store is now, if it was moved; for a mix, a mapping from source name to
            path. This and the following are only for descriptions.
        verify: when blocks are checked: "first", "always" or "never". This and the following are as
            for `tokenloom.open`, the same for all stores.
        cache_bytes: memory for decoded blocks of each store; default: one cache for all.
        gap_bytes: merge reads up to this many bytes apart.
        cap_bytes: maximum length of a read.
        map: read rows beyond the cache from a map of the files.
        source: where the bytes come from, if not from the directory of the store.
        disk_cache: folder of this machine for pieces of stores in buckets.
        disk_cache_bytes: what it may take.
        seq_len: tokens of a frame; only for settings of other trainers, which may have it
            elsewhere.

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
        "disk_cache": disk_cache,
        "disk_cache_bytes": disk_cache_bytes,
    }
    is_run = is_run_mapping(config) and (_named(config) or dialect_of(config) is None)
    if not is_run:
        check_plain(config)
    try:
        made = _made(config, path, hints, seq_len, is_run=is_run)
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
    config: Mapping[str, Any],
    path: Any,
    hints: Mapping[str, Any],
    seq_len: int | None,
    *,
    is_run: bool,
) -> Dataset:
    if is_run:
        _refuse_hints(hints, path, DIALECT)
        if seq_len is not None:
            raise ConfigError(f"seq_len: found {seq_len!r}; a run file has its own. Leave it out.")
        return run_of(Written(plain=dict(config)))
    dialect = dialect_of(config)
    if dialect is None:
        if seq_len is not None:
            raise ConfigError(
                f"seq_len: found {seq_len!r}, allowed: only with splice settings; a description "
                "has its own. Leave it out."
            )
        return rebuild(config, path, hints)
    if path is not None:
        raise ConfigError(f"path: found {path!r}, but {dialect.name} name their own. Leave it out.")
    _refuse_hints(hints, None, dialect.name)
    return _of_dialect(dialect, Written(plain=dict(config)), seq_len=seq_len)


def _refuse_hints(hints: Mapping[str, Any], path: Any, what: str) -> None:
    """Refuse arguments that only a description takes."""
    usual = inspect.signature(from_config).parameters
    if path is not None:
        raise ConfigError(f"path: found {path!r}, but a {what} names its own. Leave it out.")
    for name, value in hints.items():
        if value != usual[name].default:
            raise ConfigError(
                f"{name}: found {value!r}, allowed: only with a description; {what} opens its "
                "stores itself. Leave it out."
            )
