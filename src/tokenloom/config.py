"""Datasets from plain JSON: the way back from `Dataset.describe()`.

A description holds the digest of its store; a store that holds something else is refused, because
the same indices would then be other examples.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any

from tokenloom import describe as description
from tokenloom.batch import RenderSpec
from tokenloom.bind import BindError, bind
from tokenloom.dataset import Dataset, SourceConfig
from tokenloom.errors import ConfigError
from tokenloom.layout.windows import WindowsSpec
from tokenloom.order import ORDER_VERSION
from tokenloom.shuffle import rebuild_shuffle
from tokenloom.split import SplitSpec
from tokenloom.stored import open_store

__all__ = ["from_config"]

KEYS = {
    "format",
    "order_version",
    "name",
    "store",
    "choice",
    "layout",
    "shuffle",
    "epochs",
    "seed",
    "take",
    "render",
}


def from_config(config: Mapping[str, Any], *, path: str | None = None, **hints: Any) -> Dataset:
    """The dataset that `Dataset.describe()` described.

    Args:
        config: the description.
        path: where the store is now, if it was moved.
        hints: as for `tokenloom.open`.

    Raises:
        ConfigError: a key is missing, unknown or of the wrong kind, or the store is another one.
    """
    problems = [f"$.{key}: unknown key" for key in config.keys() - KEYS]
    problems += [f"$.{key}: missing" for key in KEYS - config.keys()]
    if problems:
        raise ConfigError("\n".join(sorted(problems)))
    _require(config, "format", description.FORMAT)
    _require(config, "order_version", ORDER_VERSION)
    try:
        made = _config(config)
    except BindError as error:
        raise ConfigError(str(error)) from None
    where = path or config["store"]["path"]
    store = open_store(where, snapshot=config["store"].get("snapshot"), **hints)
    if store.digest != config["store"]["digest"]:
        raise ConfigError(
            f"{where}: its digest is {store.digest}, the description was made from "
            f"{config['store']['digest']}. Give the path of the store it was made from."
        )
    return Dataset(store.reader, str(where), made)


def _config(config: Mapping[str, Any]) -> SourceConfig:
    layout = dict(config["layout"])
    if layout.pop("kind", None) != "windows":
        raise BindError(
            [f"$.layout.kind: found {config['layout'].get('kind')!r}, allowed: windows"]
        )
    choice = config["choice"]
    return SourceConfig(
        layout=bind(WindowsSpec, layout, path="$.layout"),
        choice=None if choice is None else bind(SplitSpec, choice, path="$.choice"),
        shuffle=rebuild_shuffle(config["shuffle"]),
        epochs=config["epochs"],
        seed=config["seed"],
        take=config["take"],
        name=config["name"],
        render=bind(RenderSpec, config["render"], path="$.render"),
    )


def _require(config: Mapping[str, Any], name: str, value: Any) -> None:
    if config[name] != value:
        raise ConfigError(f"$.{name}: found {config[name]!r}, this version knows {value!r}.")


def _travel(dataset: Dataset) -> tuple[Any, ...]:
    return from_config, (dataset.describe(),)


copyreg.pickle(Dataset, _travel)  # to another process a dataset goes as its description
