"""Datasets from their descriptions: the inverse of `Dataset.describe()`.

A description holds the digest of its store; a store with different content is refused, because the
same indices would be other examples. A dataset travels to another process as its description, so
pickling is also here; whoever makes datasets imports this module.
"""

from __future__ import annotations

import copyreg
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenloom.api import describe as description
from tokenloom.api.dataset import Dataset
from tokenloom.api.source import Source
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import BindError, bind
from tokenloom.documents.resolve import line_of, rebuild_choice
from tokenloom.errors import ConfigError
from tokenloom.layout.kinds import KINDS, make_layout
from tokenloom.mixture.spec import Edit, MixSpec, Pinned
from tokenloom.order.shuffle import BlockShuffle, rebuild_shuffle
from tokenloom.order.spec import SourceConfig
from tokenloom.store.cache import process_cache
from tokenloom.store.open import open_reader
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

__all__ = ["check_plain", "rebuild"]

Hints = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoreKeys:
    """The keys of the store in a description."""

    path: str
    digest: str
    documents: int
    tokens: int
    snapshot: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _SourceKeys:
    """The keys of a source and their types."""

    name: str
    store: _StoreKeys
    choice: dict[str, Any] | None
    layout: dict[str, Any]
    shuffle: dict[str, Any] | None
    epochs: int | None
    seed: int
    take: int | None
    render: RenderSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class _Keys(_SourceKeys):
    """The keys of the description of a single source."""

    format: str
    order_version: int
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _MixKeys:
    """The keys of the description of a mix."""

    format: str
    order_version: int
    mix: dict[str, Any]
    sources: tuple[dict[str, Any], ...]


MAX_DEPTH = 32  # levels; a description has six

LARGEST = 1 << 63


def check_plain(config: Any) -> None:
    """Refuse what is not plain JSON of moderate depth: descriptions come from files of others.

    Raises:
        ConfigError: with the path of the first value that no description holds.
    """
    level: list[tuple[str, Any]] = [("$", config)]
    for _ in range(MAX_DEPTH):
        inner: list[tuple[str, Any]] = []
        for path, value in level:
            if isinstance(value, Mapping):
                for key in value:
                    _check_leaf(f"{path}.<key>", key if isinstance(key, str) else [key])
                inner += [(f"{path}.{key}", one) for key, one in value.items()]
            elif isinstance(value, (list, tuple)):
                inner += [(f"{path}[{number}]", one) for number, one in enumerate(value)]
            else:
                _check_leaf(path, value)
        level = inner
        if not level:
            return
    raise ConfigError(f"{level[0][0]:.200}: nested more than {MAX_DEPTH} levels deep.")


def _check_leaf(path: str, value: Any) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        good = "\0" not in value and not any(0xD800 <= ord(one) < 0xE000 for one in value)
    elif isinstance(value, int):
        good = -LARGEST <= value < LARGEST
    elif isinstance(value, float):
        good = math.isfinite(value)
    else:
        good = value is None
    if not good:
        large = isinstance(value, int) and not isinstance(value, bool)
        shown = f"an integer of {value.bit_length()} bits" if large else ascii(value)
        raise ConfigError(
            f"{ascii(path)[1:-1]:.200}: found {shown:.100}, allowed: null, true, false, integers "
            "below 2^63, finite numbers, text, lists and objects."
        )


def rebuild(
    config: Mapping[str, Any], path: str | Mapping[str, str] | None, hints: Hints
) -> Dataset:
    """Given a description from `Dataset.describe()`, answers the dataset.

    Args:
        config: the description.
        path: the path of the store, if it was moved; for a mix, a mapping from source to path.
        hints: as in `tokenloom.open`.
    """
    if isinstance(config, Mapping):
        _require(config, "format", description.FORMAT)
        _require(config, "order_version", ORDER_VERSION)
    is_mix = isinstance(config, Mapping) and "mix" in config
    if is_mix and isinstance(path, str):
        raise ConfigError(f"path: found {path!r}; a mix has several stores. Give {{source: path}}.")
    if not is_mix and isinstance(path, Mapping):
        raise ConfigError(f"path: found {dict(path)}, allowed: one path; this is not a mix.")
    try:
        if is_mix:
            return _mix(config, path if isinstance(path, Mapping) else {}, hints)
        return _alone(config, path if isinstance(path, str) else None, hints)
    except BindError as error:
        raise ConfigError(str(error)) from None


def _alone(config: Mapping[str, Any], path: str | None, hints: Hints) -> Dataset:
    """The dataset of a described single source."""
    keys = bind(_Keys, config)
    source = _source(keys, path, hints)
    paths = {} if path is None else {keys.name: path}
    appended = _reopened(keys.edits, paths, hints)
    return Dataset({keys.name: source}, edits=keys.edits, appended=appended)


def _mix(config: Mapping[str, Any], paths: Mapping[str, str], hints: Hints) -> Dataset:
    """The dataset of a described mix."""
    keys = bind(_MixKeys, config)
    settings = dict(keys.mix)
    shuffle = rebuild_shuffle(settings.pop("shuffle", None), path="$.mix.shuffle")
    edits = bind(tuple[Edit, ...], settings.pop("edits", ()), path="$.mix.edits")
    rule = bind(MixSpec, settings, path="$.mix")
    sources: dict[str, Source] = {}
    for number, one in enumerate(keys.sources):
        name = str(one.get("name"))
        if name in sources:
            raise ConfigError(f"$.sources[{number}].name: there are two sources named {name!r}.")
        known = bind(_SourceKeys, one, path=f"$.sources[{number}]")
        sources[name] = _source(known, paths.get(name), hints, path=f"$.sources[{number}]")
    named = [*rule.weights, *(name for edit in edits for name in edit.add)]
    if sorted(named) != sorted(sources):
        raise ConfigError(
            f"$.mix.weights: found {', '.join(named)}; the sources are {', '.join(sources)}."
        )
    appended = _reopened(edits, paths, hints)
    return Dataset(sources, rule, shuffle=shuffle, edits=edits, appended=appended)


def _source(keys: _SourceKeys, where: str | None, hints: Hints, path: str = "$") -> Source:
    """A described source, over its store."""
    layout = dict(keys.layout)
    kind = layout.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        allowed = ", ".join(KINDS)
        raise BindError([f"{path}.layout.kind: found {kind!r}, allowed: {allowed}"])
    spec = bind(KINDS[kind], layout, path=f"{path}.layout")
    try:
        config = SourceConfig(
            layout=spec,
            choice=rebuild_choice(keys.choice),
            shuffle=rebuild_shuffle(keys.shuffle, path=f"{path}.shuffle"),
            epochs=keys.epochs,
            seed=keys.seed,
            take=keys.take,
            name=keys.name,
        )
    except ConfigError as error:
        raise BindError([f"{path}.{error}"]) from None
    store = keys.store
    place = where or store.path
    reader = _opened(place, store.snapshot, store.digest, "the description was made from", hints)
    rows = make_layout(spec, line_of(reader, config.choice))
    return Source(reader=reader, path=place, config=config, layout=rows, render=keys.render)


def _opened(place: str, snapshot: int | None, digest: str, made_from: str, hints: Hints) -> Reader:
    """The reader of a store, which must still have this digest."""
    _, reader = open_reader(place, snapshot=snapshot, **hints)
    found = reader.manifest.digest
    if found != digest:
        raise ConfigError(
            f"{place}: its digest is {found}, {made_from} {digest}. Give the path of the store it "
            "was made from."
        )
    return reader


def _reopened(
    edits: Sequence[Edit], paths: Mapping[str, str], hints: Hints
) -> dict[tuple[int, str], Reader]:
    """The snapshots of stores that edits appended."""

    def opened(name: str, one: Pinned) -> Reader:
        place = paths.get(name, one.path)
        return _opened(place, one.snapshot, one.digest, "the edit was made with", hints)

    return {
        (number, name): opened(name, one)
        for number, edit in enumerate(edits, 1)
        for name, one in edit.append.items()
    }


def _require(config: Mapping[str, Any], name: str, value: Any) -> None:
    if config.get(name, value) != value:  # a missing key is reported with the others
        raise ConfigError(f"$.{name}: found {config[name]!r}, this version knows {value!r}.")


# -- a dataset travels to another process as its description --------------------------------
def _travel(dataset: Dataset) -> tuple[Any, ...]:
    first = next(iter(dataset.sources.values())).reader
    hints = {
        "verify": first.rules.verify,
        "gap_bytes": first.rules.gap,
        "cap_bytes": first.rules.cap,
        "cache_bytes": None if first.cache is process_cache() else first.cache.capacity,
    }
    windows = {
        name: getattr(source.config.shuffle, "cache_windows", None)
        for name, source in dataset.sources.items()
    }
    return _arrive, (dataset.describe(), hints, windows)


def _arrive(config: dict[str, Any], hints: Hints, windows: Mapping[str, int | None]) -> Dataset:
    made = rebuild(config, None, hints)
    sources = {}
    for name, source in made.sources.items():
        shuffle = source.config.shuffle
        if isinstance(shuffle, BlockShuffle):
            source = source.with_config(shuffle=replace(shuffle, cache_windows=windows[name]))
        sources[name] = source
    return made._but(sources=sources)


copyreg.pickle(Dataset, _travel)
