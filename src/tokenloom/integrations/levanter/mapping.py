"""Splices from plain data: the `data` section of a trainer's YAML, unchanged.

One idea: the signature of a constructor is the schema. Keys, types and records are checked
together, and every message starts with the path of its key, such as
``data.base.configs.wiki.cache_dir``. Other sections of the file are ignored, except for the length
of a frame.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from typing import Any, TypeVar

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import one_of, wrong_type
from tokenloom.bind import BindError, bind
from tokenloom.errors import ConfigError, InputError, StoreNotFound, choices
from tokenloom.integrations.levanter.constructors import (
    FURTHER,
    SpliceMultiDocumentLMConfig,
    SpliceSingleDocumentLMConfig,
    keywords,
    setting_names,
)
from tokenloom.integrations.levanter.sources import (
    Base,
    LMMixtureDatasetConfig,
    UrlDatasetSourceConfig,
    UrlSingleDatasetLMConfig,
)

T = TypeVar("T")

Constructor = Callable[..., Dataset]

KINDS: dict[str, Constructor] = {
    "splice_single_document": SpliceSingleDocumentLMConfig,
    "splice_multi_document": SpliceMultiDocumentLMConfig,
}

BASES: dict[str, type] = {
    "mixture": LMMixtureDatasetConfig,
    "url_single_dataset": UrlSingleDatasetLMConfig,
}

OUTSIDE = ("train_seq_len", "model.seq_len", "model.max_seq_len")


def is_splice_config(config: Any) -> bool:
    """Whether a mapping, or its `data` section, has a splice type."""
    if not isinstance(config, Mapping):
        return False
    data = config.get("data", config)
    return isinstance(data, Mapping) and str(data.get("type", "")).startswith("splice")


def splice_from_config(config: Mapping[str, Any], *, seq_len: int | None = None) -> Dataset:
    """The dataset of a `data` section of type splice_single_document or splice_multi_document.

    Args:
        config: the section, or a mapping that has it under `data`. Paths in it are local; relative
            ones are relative to the working directory.
        seq_len: tokens of a frame; default: `seq_len` of the section, or outside of it the first of
            `train_seq_len`, `model.seq_len` and `model.max_seq_len` that is given.

    Raises:
        ConfigError: keys are unknown, missing or invalid.

    >>> splice_from_config({"data": {"type": "splice_single_document", "doc_idx": 3}})
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: data.doc_idx: unknown key. Allowed: ... Did you mean 'doc_index'?
    """
    path, data = _section(config)
    kind = data.get("type")
    one_of(f"{path}.type", kind, KINDS)
    constructor, problems = KINDS[str(kind)], list[str]()
    given = {name: value for name, value in data.items() if name not in ("type", "base")}
    bound = _bind(_schema(constructor), given, path, problems)
    base = base_of(data.get("base"), f"{path}.base", problems)
    frame = frame_of(config, seq_len, given.get("seq_len"), problems)
    if problems:
        raise ConfigError("\n".join(problems))
    settings = {name: getattr(bound, name) for name in given} | {"seq_len": frame}
    try:
        return constructor(base=base, **settings)
    except (ConfigError, InputError, StoreNotFound) as error:
        raise type(error)(_under(path, error, constructor)) from error


def _section(config: Any) -> tuple[str, Mapping[str, Any]]:
    """The `data` section and its path."""
    path, data = "$", config
    if isinstance(config, Mapping) and "data" in config:
        path, data = "data", config["data"]
    if not isinstance(data, Mapping):
        raise wrong_type(path, data, "a mapping")
    return path, data


@functools.cache
def _schema(constructor: Constructor) -> type:
    """The arguments of a constructor as a dataclass; further options are checked elsewhere."""
    hints = typing.get_type_hints(constructor)
    own = {name: default for name, default in keywords(constructor).items() if name != "base"}
    fields: list[Any] = [(name, hints[name], field(default=own[name])) for name in own]
    fields += [(name, Any, field(default=None)) for name in FURTHER if name not in own]
    return make_dataclass(constructor.__name__, fields, frozen=True, kw_only=True)


def _bind(cls: type[T], value: Any, path: str, problems: list[str]) -> T | None:
    try:
        return bind(cls, value, path=path)
    except BindError as error:
        problems += error.problems
        return None


def base_of(value: Any, path: str, problems: list[str]) -> Base:
    """The record for the `base` of a section."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {type(value).__name__}, allowed: a mapping.")
        return None
    usual = "mixture" if "configs" in value else "url_single_dataset"
    kind, rest = _typed(value, usual, list(BASES), path, problems)
    if kind == "mixture" and isinstance(rest.get("configs"), Mapping):
        rest["configs"] = {
            str(name): _read_source(one, f"{path}.configs.{name}", problems)
            for name, one in rest["configs"].items()
        }
        if None in rest["configs"].values():  # already reported
            rest["configs"] = {}
    _read_format(rest, path, problems)
    made: Base = _bind(BASES[kind], rest, path, problems)
    return made


def _read_source(value: Any, path: str, problems: list[str]) -> UrlDatasetSourceConfig | None:
    if isinstance(value, Mapping):
        _, value = _typed(value, "url", ["url"], path, problems)
        _read_format(value, path, problems)
    return _bind(UrlDatasetSourceConfig, value, path, problems)


def _read_format(source: dict[str, Any], path: str, problems: list[str]) -> None:
    if isinstance(source.get("format"), Mapping):
        where = f"{path}.format"
        _, source["format"] = _typed(source["format"], "text", ["text"], where, problems)


def _typed(
    value: Mapping[str, Any], usual: str, allowed: list[str], path: str, problems: list[str]
) -> tuple[str, dict[str, Any]]:
    """The `type` of a mapping, and its other keys."""
    kind = value.get("type", usual)
    if kind not in allowed:
        problems.append(f"{path}.type: found {kind!r}, allowed: {choices(kind, allowed)}")
        kind = usual
    return kind, {name: each for name, each in value.items() if name != "type"}


def frame_of(
    config: Mapping[str, Any], given: int | None, inside: Any, problems: list[str]
) -> int | None:
    """Tokens of a frame: as given, from the section, or from the sections next to it."""
    if given is not None or inside is not None:
        return inside if given is None else given
    path, found = outer_frame(config) if "data" in config else ("", None)
    if found is not None and type(found) is not int:
        problems.append(f"{path}: found {found!r}, allowed: an integer, tokens of a frame.")
        return None
    return found


def outer_frame(config: Mapping[str, Any]) -> tuple[str, Any]:
    """The key next to a data section that gives the length of a frame, and the length."""
    for path in OUTSIDE:
        section, _, name = path.rpartition(".")
        place = config.get(section) if section else config
        found = place.get(name) if isinstance(place, Mapping) else None
        if found is not None:
            return path, found
    return "", None


def _under(path: str, error: Exception, constructor: Constructor) -> str:
    """A message in which every line that starts with a key has the key's full path."""
    is_setting = isinstance(error, ConfigError)
    names = setting_names(constructor) if is_setting else ["base"]  # others start with files
    lines = str(error).split("\n")
    told = [f"{path}.{one}" if re.split(r"[:.,[]", one)[0] in names else one for one in lines]
    if is_setting and told[0] == lines[0]:
        told[0] = f"{path}: {lines[0]}"
    return "\n".join(told)
