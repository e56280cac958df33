"""Where the documents of a splice are, as records under the names that users of Levanter know.

One idea: a base tells where documents are, and how they are shuffled unless the splices say. Its
other fields (weights, the rule of a mixture) are for training on the base itself: `lm_from_config`
uses them; a splice accepts them, so that a configuration loads unchanged, and ignores them.

The store of a configured dataset: opened, or built from local text.

One idea: nothing is ever downloaded. If there is a store at `cache_dir`, it is opened; otherwise it
is built there from the text that `train_urls` names; text of `validation_urls` has a store of its
own, at `cache_dir` with "-validation" at the end (`build_caches`). Addresses such as ``gs://...``,
and tokenizers that are not on this machine, are refused with their keys, all at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenloom.api.build import build_store
from tokenloom.api.store import Store, open_store
from tokenloom.arguments import one_of, wrong_type
from tokenloom.bind import check_fields
from tokenloom.errors import (
    ConfigError,
    InputError,
    MissingExtra,
    StoreNotFound,
    TokenizerError,
    choices,
    warn,
)
from tokenloom.tokenizer.spec import resolve


@dataclass(frozen=True, kw_only=True, slots=True)
class TextLmDatasetFormat:
    """Records of text.

    Attributes:
        text_key: key of the text in each record.

    >>> TextLmDatasetFormat(text_key="body")
    TextLmDatasetFormat(text_key='body')
    """

    text_key: str = "text"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class UrlDatasetSourceConfig:
    """One dataset: a store, or text to build it from.

    Attributes:
        cache_dir: directory of the store.
        train_urls: local files, directories or globs; read if there is no store yet.
        format: format of the records in them.
        validation_urls: text of the validation side, of which `build_caches` makes a store.
        tags: ignored.

    >>> import pathlib, tempfile
    >>> from tokenloom.integrations.levanter import SpliceSingleDocumentLMConfig
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"body": "abc"}')
    ...     wiki = UrlDatasetSourceConfig(
    ...         cache_dir=folder + "/wiki",  # no store yet, so it is built from the text
    ...         train_urls=[folder + "/*.jsonl"],
    ...         format=TextLmDatasetFormat(text_key="body"),
    ...     )
    ...     made = SpliceSingleDocumentLMConfig(base=wiki, tokenizer="bytes", seq_len=4)
    ...     made[0].tokens.tolist()
    [[0, 97, 98, 99]]
    """

    cache_dir: str | None = None
    train_urls: tuple[str, ...] = ()
    format: TextLmDatasetFormat = field(default_factory=TextLmDatasetFormat)
    validation_urls: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _set(self, "cache_dir", _as_text(self.cache_dir))
        for name in ("train_urls", "validation_urls"):
            given = getattr(self, name)
            listed = given if isinstance(given, list | tuple) else (given,)
            _set(self, name, tuple(map(_as_text, listed)))
        if not isinstance(self.format, TextLmDatasetFormat):
            raise wrong_type("format", self.format, "a TextLmDatasetFormat")
        check_fields(self)

    def build_caches(self, split: str, *, tokenizer: Any = None) -> dict[str, Store]:
        """The stores of a split by name, opened or built; see `build_caches`."""
        return build_caches(self, split, tokenizer=tokenizer)


@dataclass(frozen=True, kw_only=True, slots=True)
class UrlSingleDatasetLMConfig(UrlDatasetSourceConfig):
    """One dataset with the tokenizer of its text.

    Attributes:
        tokenizer: as for `tokenloom.build`.
        shuffle: as for `LMMixtureDatasetConfig`.
        shuffle_per_epoch, permutation_type, cache_options: ignored.

    >>> import pathlib, tempfile
    >>> from tokenloom.integrations.levanter import SpliceSingleDocumentLMConfig
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = pathlib.Path(folder, "a.jsonl")
    ...     _ = text.write_text('{"text": "abc"}')
    ...     base = UrlSingleDatasetLMConfig(
    ...         cache_dir=folder + "/wiki", train_urls=text, tokenizer="bytes"
    ...     )
    ...     SpliceSingleDocumentLMConfig(base=base, seq_len=4)[0].tokens.tolist()
    [[0, 97, 98, 99]]
    """

    tokenizer: Any = None
    shuffle: Any = None
    shuffle_per_epoch: Any = None
    permutation_type: Any = None
    cache_options: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LMMixtureDatasetConfig:
    """Several datasets by name.

    Attributes:
        tokenizer: tokenizer of their text, as for `tokenloom.build`.
        configs: name → dataset.
        cache_dir: parent directory of datasets that have no directory of their own, by name.
        max_train_batches: name → number of its batches that were trained on.
        shuffle: the shuffle of splices that have none of their own: True, False, a number of rows,
            a `BlockShuffle`, or a mapping of its fields.
        train_weights, shuffle_per_epoch, permutation_type, stop_strategy, mixture_block_size,
            num_validation_sequences, cache_options: ignored by splices; see `lm_from_config`.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.integrations.levanter import SpliceSingleDocumentLMConfig
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("wiki", "code"):
    ...         _ = tl.build([{"text": name}], f"{folder}/{name}", tokenizer="bytes")
    ...     each = {name: UrlDatasetSourceConfig() for name in ("wiki", "code")}
    ...     base = LMMixtureDatasetConfig(cache_dir=folder, configs=each)
    ...     made = SpliceSingleDocumentLMConfig(base=base, dataset_name="code", seq_len=4)
    ...     bytes(made[0].tokens[0].tolist())
    b'code'
    """

    tokenizer: Any = None
    configs: dict[str, Any] = field(default_factory=dict)
    cache_dir: str | None = None
    max_train_batches: dict[str, int] | None = None
    train_weights: Any = None
    shuffle: Any = None
    shuffle_per_epoch: Any = None
    permutation_type: Any = None
    stop_strategy: Any = None
    mixture_block_size: Any = None
    num_validation_sequences: Any = None
    cache_options: Any = None

    def __post_init__(self) -> None:
        _set(self, "cache_dir", _as_text(self.cache_dir))
        check_fields(self)
        for name, one in self.configs.items():
            if not isinstance(one, UrlDatasetSourceConfig):
                raise ConfigError(
                    f"configs.{name}: found {type(one).__name__}, allowed: a "
                    "UrlDatasetSourceConfig."
                )

    def build_caches(self, split: str, *, tokenizer: Any = None) -> dict[str, Store]:
        """The stores of a split by name, opened or built; see `build_caches`."""
        return build_caches(self, split, tokenizer=tokenizer)


Base = LMMixtureDatasetConfig | UrlDatasetSourceConfig | str | os.PathLike[str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StorePlace:
    """One dataset of a base.

    Attributes:
        where: its name in messages.
        cache_dir: directory of its store, existing or not.
        source: what it is built from.
        tokenizer: tokenizer of its text, None if not given.
        tokenizer_key: the key that gave the tokenizer.
        max_train_batches: number of its batches that were trained on, if the base has it.
        shuffle: the base's.
        split: "train" or "validation".
    """

    where: str
    cache_dir: str
    source: UrlDatasetSourceConfig
    tokenizer: Any
    tokenizer_key: str
    max_train_batches: int | None = None
    shuffle: Any = None
    split: str = "train"

    @property
    def urls(self) -> tuple[str, ...]:
        """The text of its split."""
        found: tuple[str, ...] = getattr(self.source, self.urls_key)
        return found

    @property
    def urls_key(self) -> str:
        """The key of that text."""
        return f"{self.split}_urls"

    def side(self, split: str) -> StorePlace:
        """The same dataset, of another split."""
        if split == self.split:
            return self
        return replace(self, split=split, cache_dir=f"{self.cache_dir.rstrip('/')}-{split}")


def build_caches(base: Base, split: str, *, tokenizer: Any = None) -> dict[str, Store]:
    """The stores of all datasets of a base, opened, or built from their text if there is none yet.

    Args:
        base: the datasets.
        split: "train", or "validation": datasets without `validation_urls` are then left out.
        tokenizer: tokenizer of the text; default: the base's.

    Raises:
        ConfigError: something is not on this machine; names every such key.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"text": "abc"}')
    ...     _ = pathlib.Path(folder, "held.jsonl").write_text('{"text": "de"}')
    ...     wiki = UrlDatasetSourceConfig(
    ...         cache_dir=folder + "/wiki",
    ...         train_urls=[folder + "/a.jsonl"],
    ...         validation_urls=[folder + "/held.jsonl"],
    ...     )
    ...     found = build_caches(wiki, "validation", tokenizer="bytes")
    ...     [store.num_tokens for store in found.values()]
    [2]
    """
    one_of("split", split, ("train", "validation"))
    names = list(base.configs) if isinstance(base, LMMixtureDatasetConfig) else [None]
    places = {name or "main": find_place(base, name, tokenizer).side(split) for name in names}
    return {
        name: open_or_build(place)
        for name, place in places.items()
        if split == "train" or place.urls or _is_store(place)
    }


def _is_store(place: StorePlace) -> bool:
    return Path(os.path.expanduser(place.cache_dir)).is_dir()


def find_place(base: Base, dataset_name: str | None, tokenizer: Any) -> StorePlace:
    """The dataset of a base with this name; a base that is one dataset accepts any name."""
    if isinstance(base, str | os.PathLike):
        base = UrlDatasetSourceConfig(cache_dir=os.fspath(base))
    if isinstance(base, LMMixtureDatasetConfig):
        return _component(base, _chosen(base, dataset_name), tokenizer)
    if not isinstance(base, UrlDatasetSourceConfig):
        raise ConfigError(
            f"base: found {'nothing' if base is None else type(base).__name__}, allowed: a "
            "LMMixtureDatasetConfig, a UrlSingleDatasetLMConfig, a UrlDatasetSourceConfig or the "
            "path of a store."
        )
    given = getattr(base, "tokenizer", None), getattr(base, "shuffle", None)
    return _place("base", base, base.cache_dir, tokenizer, *given)


def _chosen(base: LMMixtureDatasetConfig, name: str | None) -> str:
    names = list(base.configs)
    if not names:
        raise ConfigError("base.configs: found no dataset, allowed: one or more.")
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        raise ConfigError(f"dataset_name: found {name!r}, allowed: {choices(name or '', names)}")
    return name


def _component(base: LMMixtureDatasetConfig, name: str, tokenizer: Any) -> StorePlace:
    source = base.configs[name]
    folder = source.cache_dir
    if folder is None and base.cache_dir is not None:
        folder = f"{base.cache_dir.rstrip('/')}/{name}"
    most = (base.max_train_batches or {}).get(name)
    given = tokenizer, base.tokenizer, base.shuffle
    return _place(f"base.configs.{name}", source, folder, *given, most)


def _place(
    where: str,
    source: UrlDatasetSourceConfig,
    cache_dir: str | None,
    tokenizer: Any,
    of_base: Any,
    shuffle: Any,
    max_train_batches: int | None = None,
) -> StorePlace:
    if not cache_dir:
        raise ConfigError(
            f"{where}.cache_dir: missing; pass the directory of a store, or where to build one."
        )
    key = "base.tokenizer" if tokenizer is None and of_base is not None else "tokenizer"
    if None not in (tokenizer, of_base) and tokenizer is not of_base and tokenizer != of_base:
        raise ConfigError(
            f"tokenizer: found {tokenizer!r}, but base.tokenizer is {of_base!r}. Pass only one."
        )
    return StorePlace(
        where=where,
        cache_dir=cache_dir,
        source=source,
        tokenizer=of_base if tokenizer is None else tokenizer,
        tokenizer_key=key,
        max_train_batches=max_train_batches,
        shuffle=shuffle,
    )


def _as_text(path: Any) -> Any:
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _set(record: Any, name: str, value: Any) -> None:
    object.__setattr__(record, name, value)


ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_or_build(place: StorePlace) -> Store:
    """The store of a dataset; built from its text if it does not exist yet.

    Raises:
        ConfigError: something is not on this machine; names every such key.
        StoreNotFound: there is no store, and no text to build it from.
        InputError: the text cannot be read.
    """
    folder = os.path.expanduser(place.cache_dir)
    if not ADDRESS.match(folder):
        try:
            store = open_store(folder)
        except StoreNotFound as error:
            if not place.urls:
                raise StoreNotFound(
                    f"{place.where}.cache_dir: {error} Or pass {place.urls_key}, local text to "
                    "build it from."
                ) from None
        else:
            _compare_tokenizers(store, place)
            return store
    problems = list(_not_here(place))
    if problems:
        raise ConfigError("\n".join(problems))
    urls = [os.path.expanduser(url) for url in place.urls]
    try:
        return build_store(
            urls, folder, tokenizer=place.tokenizer, text_key=place.source.format.text_key
        )
    except InputError as error:  # its message calls them inputs[0], inputs[1], ...
        text = re.sub(r"^inputs\b", lambda _: f"{place.where}.{place.urls_key}", str(error))
        raise InputError(text) from error


def _not_here(place: StorePlace) -> Iterator[str]:
    """What a build needs that is not on this machine."""
    named = {"cache_dir": place.cache_dir}
    named |= {f"{place.urls_key}[{n}]": url for n, url in enumerate(place.urls)}
    for key, text in named.items():
        if ADDRESS.match(text):
            yield (
                f"{place.where}.{key}: found {text!r}, allowed: a local path; nothing is "
                "downloaded. Copy the data to this machine and use that path."
            )
    needed = "the local path of a tokenizer.json or its directory, or 'bytes'"
    if place.tokenizer is None:
        yield (
            f"tokenizer: missing; there is no store at {place.cache_dir!r}, and building it from "
            f"text needs one: {needed}."
        )
        return
    try:
        resolve(place.tokenizer)
    except (TokenizerError, ConfigError, MissingExtra) as error:
        name = isinstance(place.tokenizer, str) and not _exists(place.tokenizer)
        why = "which is not on this machine" if name else f"which cannot be used: {error}"
        yield f"{place.tokenizer_key}: found {place.tokenizer!r}, {why}. Pass {needed}."


def _compare_tokenizers(store: Store, place: StorePlace) -> None:
    """Refuse a store made by another tokenizer, where that can be known."""
    made_by = store.tokenizer
    tokenizer = place.tokenizer
    if tokenizer is None or made_by is None or made_by.kind == "callable":
        return
    if isinstance(tokenizer, str) and tokenizer != "bytes" and not _exists(tokenizer):
        if tokenizer != made_by.name:
            warn(
                f"{place.tokenizer_key}: found {tokenizer!r}, which is not a local path, so it was "
                f"not compared with {made_by.name!r}, which made the ids of {store.path}. Pass its "
                "path, or leave it out: the store has its tokenizer."
            )
        return
    if resolve(tokenizer)[0].sha256 != made_by.sha256:
        raise ConfigError(
            f"{place.tokenizer_key}: found {tokenizer!r}, but {made_by.name!r}, a different "
            f"tokenizer, made the ids of {store.path}. Pass that one, or another cache_dir to "
            "build a store with this one."
        )


def _exists(text: str) -> bool:
    return Path(text).expanduser().exists()
