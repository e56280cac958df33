"""Datasets from their descriptions: the inverse of `Dataset.describe()`.

A description holds the digest of its store; a store with different content is refused, because the
same indices would be other examples. What follows from other keys (digests, numbers, defaults) may
be left out, so that a description can be written by hand.

A copy or a pickle of a dataset is its description and its readers, which open their snapshots again
by absolute paths (`tokenloom.store.reader`); the description keeps the paths as the user wrote
them. Copying is also here; whoever makes datasets imports this module.
"""

from __future__ import annotations

import copyreg
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenloom.api import describe as description
from tokenloom.api.dataset import Dataset
from tokenloom.api.origin import RunFile
from tokenloom.api.source import Source, usual_render
from tokenloom.arguments import expanded
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import BindError, bind
from tokenloom.documents.select import line_of
from tokenloom.documents.spec import KnownSplits, rebuild_choice
from tokenloom.errors import ConfigError
from tokenloom.foreign.opened import is_ours, open_any
from tokenloom.foreign.places import Said
from tokenloom.layout.layout import Layout
from tokenloom.mixture.spec import Edit, MixSpec, Pinned, usual_cost
from tokenloom.order.shuffle import rebuild_shuffle
from tokenloom.order.spec import KINDS, MAIN, SourceConfig, make_layout
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

Hints = Mapping[str, Any]

Readers = Mapping[tuple[int, str], Reader]

"""(number of the edit that appended it, or 0; name of the source) → the reader of its store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoreKeys:
    """The keys of the store in a description."""

    path: str
    digest: str | None = None
    documents: int | None = None
    tokens: int | None = None
    snapshot: int | None = None
    foreign: dict[str, Any] | None = None
    identity: str = "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class _SourceKeys:
    """The keys of a source and their types; defaults are for what somebody wrote by hand."""

    store: _StoreKeys
    layout: dict[str, Any]
    name: str = MAIN
    choice: dict[str, Any] | None = None
    shuffle: dict[str, Any] | bool | int | None = None
    epochs: int | None = 1
    seed: int | None = None
    take: int | None = None
    render: RenderSpec = field(default_factory=RenderSpec)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Keys(_SourceKeys):
    """The keys of the description of a single source."""

    format: str = description.FORMAT
    order_version: int = ORDER_VERSION
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _MixKeys:
    """The keys of the description of a mix."""

    mix: dict[str, Any]
    sources: tuple[dict[str, Any], ...]
    splits: dict[str, Any] = field(default_factory=dict)
    format: str = description.FORMAT
    order_version: int = ORDER_VERSION


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the sources of one description share, so that n parts of a store open it once.

    Attributes:
        splits: the splits that sources name.
        hints: as in `tokenloom.open`.
        readers: of stores that are open already.
        laid_out: sources whose layouts need not be made again.
        opened: the stores that were opened for it.
    """

    splits: KnownSplits
    hints: Hints
    readers: Readers
    laid_out: Sequence[Source]
    opened: dict[tuple[str, int | None, str | None], Reader] = field(default_factory=dict)

    def layout(self, reader: Reader, config: SourceConfig) -> Layout:
        """The rows of a source."""
        wanted = config.layout, config.choice
        for one in self.laid_out:
            if one.reader is reader and (one.config.layout, one.config.choice) == wanted:
                return one.layout
        return make_layout(config.layout, line_of(reader, config.choice))


MAX_DEPTH = 32  # levels; a description has six

LARGEST, LARGEST_SEED = 1 << 63, 1 << 64


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
    raise ConfigError(
        f"{level[0][0]:.200}: nested more than {MAX_DEPTH} levels deep. Compare it with what "
        "describe() gives."
    )


def _check_leaf(path: str, value: Any) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        good = "\0" not in value and not any(0xD800 <= ord(one) < 0xE000 for one in value)
    elif isinstance(value, int):
        good = -LARGEST <= value < (LARGEST_SEED if path.endswith(".seed") else LARGEST)
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
    config: Mapping[str, Any],
    path: str | Mapping[str, str] | None,
    hints: Hints,
    readers: Readers | None = None,
    laid_out: Sequence[Source] = (),
) -> Dataset:
    """Given a description from `Dataset.describe()`, answers the dataset.

    Args:
        config: the description.
        path: the path of the store, if it was moved; for a mix, a mapping from source to path.
        hints: as in `tokenloom.open`.
        readers: of stores that are open already; the others are opened by their path.
        laid_out: sources whose layouts are used where they are the same.
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
        splits = config.get("splits", {}) if is_mix else {}
        shared = _Shared(KnownSplits(splits), hints, readers or {}, laid_out)
        if is_mix:
            return _mix(config, path if isinstance(path, Mapping) else {}, shared)
        return _alone(config, path if isinstance(path, str) else None, shared)
    except BindError as error:
        raise ConfigError(str(error)) from None


def _alone(config: Mapping[str, Any], path: str | None, shared: _Shared) -> Dataset:
    """The dataset of a described single source."""
    keys = bind(_Keys, config)
    source = _source(keys, config, path, "$", shared)
    paths = {} if path is None else {keys.name: path}
    appended = _reopened(keys.edits, paths, shared)
    return Dataset({keys.name: source}, edits=keys.edits, appended=appended)


def _mix(config: Mapping[str, Any], paths: Mapping[str, str], shared: _Shared) -> Dataset:
    """The dataset of a described mix."""
    keys = bind(_MixKeys, config)
    settings = dict(keys.mix)
    shuffle = rebuild_shuffle(settings.pop("shuffle", None), path="$.mix.shuffle")
    edits = bind(tuple[Edit, ...], settings.pop("edits", ()), path="$.mix.edits")
    settings.setdefault("cost", usual_cost(settings.get("rule")))
    rule = bind(MixSpec, settings, path="$.mix")
    sources: dict[str, Source] = {}
    for number, one in enumerate(keys.sources):
        name = str(one.get("name"))
        if name in sources:
            raise ConfigError(
                f"$.sources[{number}].name: there are two sources named {name!r}. Rename one of "
                "them."
            )
        here = f"$.sources[{number}]"
        known = bind(_SourceKeys, one, path=here)
        sources[name] = _source(known, one, paths.get(name), here, shared)
    named = [*rule.weights, *(name for edit in edits for name in edit.add)]
    if sorted(named) != sorted(sources):
        raise ConfigError(
            f"$.mix.weights: found {', '.join(named)}; the sources are {', '.join(sources)}."
            " Give each of them one weight."
        )
    appended = _reopened(edits, paths, shared)
    return Dataset(sources, rule, shuffle=shuffle, edits=edits, appended=appended)


def _source(
    keys: _SourceKeys,
    given: Mapping[str, Any],
    where: str | None,
    path: str,
    shared: _Shared,
) -> Source:
    """A described source, over its store; `given` are the keys as they were written."""
    layout = dict(keys.layout)
    kind = layout.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        allowed = ", ".join(KINDS)
        raise BindError([f"{path}.layout.kind: found {kind!r}, allowed: {allowed}"])
    if kind == "windows" and layout.get("lookahead") is True:
        layout.setdefault("overlap", 1)  # as `Store.windows` does
    spec = bind(KINDS[kind], layout, path=f"{path}.layout")
    try:
        config = SourceConfig(
            layout=spec,
            choice=rebuild_choice(keys.choice, f"{path}.choice", shared.splits),
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
    which = place, store.snapshot, store.digest
    reader = shared.readers.get((0, keys.name)) or shared.opened.get(which)
    if reader is None:
        hints = shared.hints
        made_from = "the description was made from"
        if store.foreign is not None and not is_ours(expanded("store.path", place)):
            hints = {**hints, "said": Said.of(store.foreign), "identity": store.identity}
        elif store.identity != "full":
            made_from = f"the {store.identity} of foreign files that the description was made from"
        reader = _opened(*which, made_from, hints)
        shared.opened[which] = reader
    rows = shared.layout(reader, config)
    written = {name: getattr(keys.render, name) for name in given.get("render", ())}
    render = RenderSpec(**usual_render(config.layout, reader, written))
    return Source(reader=reader, path=place, config=config, layout=rows, render=render)


def _opened(
    place: str, snapshot: int | None, digest: str | None, made_from: str, hints: Hints
) -> Reader:
    """The reader of a store, which must still have this digest, if one is known."""
    reader = open_any(expanded("store.path", place), snapshot=snapshot, **hints)
    found = reader.manifest.digest
    if digest is not None and found != digest:
        raise ConfigError(
            f"{place}: its digest is {found}, {made_from} {digest}. Give the path of the store it "
            "was made from."
        )
    return reader


def _reopened(
    edits: Sequence[Edit], paths: Mapping[str, str], shared: _Shared
) -> dict[tuple[int, str], Reader]:
    """The snapshots of stores that edits appended."""

    def opened(name: str, one: Pinned) -> Reader:
        place = paths.get(name, one.path)
        return _opened(place, one.snapshot, one.digest, "the edit was made with", shared.hints)

    return {
        (number, name): shared.readers.get((number, name)) or opened(name, one)
        for number, edit in enumerate(edits, 1)
        for name, one in edit.append.items()
    }


def _require(config: Mapping[str, Any], name: str, value: Any) -> None:
    if config.get(name, value) != value:  # a missing key is reported with the others
        raise ConfigError(
            f"$.{name}: found {config[name]!a:.100}, but this version reads {value!r}. Make the "
            "dataset again and call describe(), or use the version of tokenloom that wrote this."
        )


# -- a dataset travels to another process as its description and readers ---------------------
def _travel(dataset: Dataset) -> tuple[Any, ...]:
    readers = {(0, name): source.reader for name, source in dataset.sources.items()}
    opened = {**readers, **dataset._appended}
    return _arrive, (dataset.describe(), opened, dataset._stages, dataset.file)


def _arrive(config: dict[str, Any], readers: Readers, stages: int, file: RunFile | None) -> Dataset:
    return rebuild(config, None, {}, readers)._but(stages=stages, file=file)


copyreg.pickle(Dataset, _travel)
