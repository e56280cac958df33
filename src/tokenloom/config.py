"""Datasets from plain JSON: the way back from `Dataset.describe()`, and splices as configured.

A description holds the digest of its store; a store that holds something else is refused, because
the same indices would then be other examples.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenloom.api import describe as description
from tokenloom.api.dataset import Dataset, SourceConfig
from tokenloom.api.mixed import Mixed
from tokenloom.api.store import open_store
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import BindError, bind
from tokenloom.documents.resolve import rebuild_choice
from tokenloom.errors import ConfigError
from tokenloom.integrations.levanter.mapping import is_splice_config, splice_from_config
from tokenloom.layout.kinds import KINDS
from tokenloom.mixture.spec import MixSpec, Pinned
from tokenloom.order.shuffle import BlockShuffle, rebuild_shuffle
from tokenloom.store.cache import process_cache
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

__all__ = ["from_config"]

PLAIN = ("epochs", "seed", "take", "name", "render")


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoreKeys:
    """What a description says about its store."""

    path: str
    digest: str
    documents: int
    tokens: int
    snapshot: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Keys:
    """The keys of a description and their types."""

    format: str
    order_version: int
    name: str
    store: _StoreKeys
    choice: dict[str, Any] | None
    layout: dict[str, Any]
    shuffle: dict[str, Any] | None
    epochs: int | None
    seed: int
    take: int | None
    render: RenderSpec


def from_config(
    config: Mapping[str, Any], *, path: str | Mapping[str, str] | None = None, **hints: Any
) -> Dataset:
    """The dataset that `Dataset.describe()` described, or that a configuration of splices means.

    Args:
        config: the description; or settings of type splice_single_document or
            splice_multi_document, as `tokenloom.integrations.levanter.splice_from_config` reads
            them.
        path: where the store is now, if it was moved; of a mix a mapping from the names of its
            sources; for descriptions only.
        hints: as for `tokenloom.open`; for settings of splices `seq_len`.

    Raises:
        ConfigError: a key is missing, unknown or of the wrong kind, or the store is another one.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3).seed(7)
    ...     tl.from_config(run.describe()).fingerprint == run.fingerprint
    True
    """
    if is_splice_config(config):
        if path is not None:
            raise ConfigError(
                f"path: found {path!r}, but settings of splices name it as cache_dir."
            )
        return splice_from_config(config, **hints)
    if isinstance(config, Mapping):
        _require(config, "format", description.FORMAT)
        _require(config, "order_version", ORDER_VERSION)
        if "mix" in config:
            return _mixed(config, path, hints)
    if isinstance(path, Mapping):
        raise ConfigError(f"path: found {dict(path)}, allowed is one path; this is no mix.")
    try:
        keys = bind(_Keys, config)
        made = _source(keys)
    except BindError as error:
        raise ConfigError(str(error)) from None
    where = path or keys.store.path
    store = open_store(where, snapshot=keys.store.snapshot, **hints)
    if store.digest != keys.store.digest:
        raise ConfigError(
            f"{where}: its digest is {store.digest}, the description was made from "
            f"{keys.store.digest}. Give the path of the store it was made from."
        )
    return Dataset(store.reader, str(where), made)


@dataclass(frozen=True, kw_only=True, slots=True)
class _MixKeys:
    """The keys of the description of a mix and their types."""

    format: str
    order_version: int
    mix: dict[str, Any]
    sources: tuple[dict[str, Any], ...]


def _mixed(
    config: Mapping[str, Any], path: str | Mapping[str, str] | None, hints: dict[str, Any]
) -> Dataset:
    """The mix that was described."""
    if isinstance(path, str):
        raise ConfigError(f"path: found {path!r}; a mix has several stores. Give {{source: path}}.")
    try:
        keys = bind(_MixKeys, config)
        settings = dict(keys.mix)
        shuffle = rebuild_shuffle(settings.pop("shuffle", None), path="$.mix.shuffle")
        spec = bind(MixSpec, settings, path="$.mix")
    except BindError as error:
        raise ConfigError(str(error)) from None
    head = {"format": keys.format, "order_version": keys.order_version}
    sources = {}
    for number, one in enumerate(keys.sources):
        name = str(one.get("name"))
        if name in sources:
            raise ConfigError(f"$.sources[{number}].name: there are two sources named {name!r}.")
        sources[name] = from_config(head | one, path=(path or {}).get(name), **hints)
    named = [*spec.weights, *(name for edit in spec.edits for name in edit.add)]
    if sorted(named) != sorted(sources):
        raise ConfigError(
            f"$.mix.weights: it speaks of {', '.join(named)}; sources are {', '.join(sources)}."
        )
    appended = {
        (number, name): _reopened(name, pinned, path, hints)
        for number, edit in enumerate(spec.edits, 1)
        for name, pinned in edit.append.items()
    }
    return Mixed(sources, spec, shuffle, appended)


def _reopened(
    name: str, pinned: Pinned, path: Mapping[str, str] | None, hints: dict[str, Any]
) -> Reader:
    """The snapshot of a store that an edit brought."""
    where = (path or {}).get(name, pinned.path)
    store = open_store(where, snapshot=pinned.snapshot, **hints)
    if store.digest != pinned.digest:
        raise ConfigError(
            f"{where}: its digest is {store.digest}, the edit was made with {pinned.digest}."
        )
    return store.reader


def _source(keys: _Keys) -> SourceConfig:
    layout = dict(keys.layout)
    kind = layout.pop("kind", None)
    if kind not in KINDS:
        raise BindError([f"$.layout.kind: found {kind!r}, allowed: {', '.join(KINDS)}"])
    fields = {
        "layout": bind(KINDS[kind], layout, path="$.layout"),
        "choice": rebuild_choice(keys.choice),
        "shuffle": rebuild_shuffle(keys.shuffle),
        **{name: getattr(keys, name) for name in PLAIN},
    }
    try:
        return SourceConfig(**fields)
    except ConfigError as error:
        raise BindError([f"$.{error}"]) from None


def _require(config: Mapping[str, Any], name: str, value: Any) -> None:
    if config.get(name, value) != value:  # one that is missing is told with the others
        raise ConfigError(f"$.{name}: found {config[name]!r}, this version knows {value!r}.")


def _travel_mixed(dataset: Mixed) -> tuple[Any, ...]:
    return from_config, (dataset.describe(),)


def _travel(dataset: Dataset) -> tuple[Any, ...]:
    rules, cache = dataset.reader.rules, dataset.reader.cache
    hints = {
        "verify": rules.verify,
        "gap_bytes": rules.gap,
        "cap_bytes": rules.cap,
        "cache_bytes": None if cache is process_cache() else cache.capacity,
    }
    windows = getattr(dataset.config.shuffle, "cache_windows", None)
    return _arrive, (dataset.describe(), hints, windows)


def _arrive(config: dict[str, Any], hints: dict[str, Any], cache_windows: int | None) -> Dataset:
    made = from_config(config, **hints)
    if not isinstance(made.config.shuffle, BlockShuffle):
        return made
    shuffle = replace(made.config.shuffle, cache_windows=cache_windows)
    return Dataset(made.reader, made.path, replace(made.config, shuffle=shuffle))


copyreg.pickle(Mixed, _travel_mixed)

copyreg.pickle(Dataset, _travel)  # to another process a dataset goes as its description
