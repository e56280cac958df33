"""The store behind a dataset that somebody configured: opened, or built from local text.

One idea: nothing is ever fetched. A store that is at `cache_dir` is opened; if none is there, it is
built there from the text that `train_urls` names. An address such as ``gs://...``, or a tokenizer
that is not on this machine, is refused with its key, all of them at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tokenloom.build.tokenizers import resolve
from tokenloom.building import build_store
from tokenloom.errors import ConfigError, InputError, MissingExtra, StoreNotFound, TokenizerError
from tokenloom.splice_configs.sources import Place
from tokenloom.stored import Store, open_store
from tokenloom.words import warn

__all__ = ["open_or_build"]

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_or_build(place: Place) -> Store:
    """The store of a dataset; built from its text if it is not there yet.

    Raises:
        ConfigError: something is not on this machine; every such key is named.
        StoreNotFound: there is no store, and no text to build it from.
        InputError: the text cannot be read.
    """
    folder = os.path.expanduser(place.cache_dir)
    if not ADDRESS.match(folder):
        try:
            store = open_store(folder)
        except StoreNotFound as error:
            if not place.source.train_urls:
                raise StoreNotFound(
                    f"{place.where}.cache_dir: {error} Or give train_urls, local text to build it "
                    "from."
                ) from None
        else:
            _compare_tokenizers(store, place)
            return store
    problems = list(_not_here(place))
    if problems:
        raise ConfigError("\n".join(problems))
    urls = [os.path.expanduser(url) for url in place.source.train_urls]
    try:
        return build_store(
            urls, folder, tokenizer=place.tokenizer, text_key=place.source.format.text_key
        )
    except InputError as error:  # it knows them as inputs[0], inputs[1], ...
        text = re.sub(r"^inputs\b", lambda _: f"{place.where}.train_urls", str(error))
        raise InputError(text) from error


def _not_here(place: Place) -> Iterator[str]:
    """What a build would need from elsewhere."""
    named = {"cache_dir": place.cache_dir}
    named |= {f"train_urls[{n}]": url for n, url in enumerate(place.source.train_urls)}
    for key, text in named.items():
        if ADDRESS.match(text):
            yield (
                f"{place.where}.{key}: found {text!r}, allowed is a local path; nothing is "
                "downloaded. Copy the data to this machine and name it there."
            )
    needed = "the local path of a tokenizer.json or its directory, or 'bytes'"
    if place.tokenizer is None:
        yield (
            f"tokenizer: missing; there is no store at {place.cache_dir!r}, and to build it from "
            f"text takes one: {needed}."
        )
        return
    try:
        resolve(place.tokenizer)
    except (TokenizerError, ConfigError, MissingExtra) as error:
        name = isinstance(place.tokenizer, str) and not _exists(place.tokenizer)
        why = "which is not on this machine" if name else f"which cannot be used: {error}"
        yield f"{place.tokenizer_key}: found {place.tokenizer!r}, {why}. Give {needed}."


def _compare_tokenizers(store: Store, place: Place) -> None:
    """Refuse ids that another tokenizer made, where that can be known."""
    made_by = store.tokenizer
    tokenizer = place.tokenizer
    if tokenizer is None or made_by is None or made_by.kind == "callable":
        return
    if isinstance(tokenizer, str) and tokenizer != "bytes" and not _exists(tokenizer):
        if tokenizer != made_by.name:
            warn(
                f"{place.tokenizer_key}: found {tokenizer!r}, which is no local path, so it was "
                f"not compared with {made_by.name!r}, which made the ids of {store.path}. Give its "
                "path, or leave it out: the store has its tokenizer."
            )
        return
    if resolve(tokenizer)[0].sha256 != made_by.sha256:
        raise ConfigError(
            f"{place.tokenizer_key}: found {tokenizer!r}, but {made_by.name!r}, another one, made "
            f"the ids of {store.path}. Give that one, or another cache_dir to build a store with "
            "this one."
        )


def _exists(text: str) -> bool:
    return Path(text).expanduser().exists()
