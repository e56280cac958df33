"""Paths in a run file: relative to the file, with ``${NAME}`` as written wherever they are shown.

One idea: a path has two forms. One is opened; the other is what descriptions, states and messages
say, so that a run moves between machines with its variables and no value of the environment ends
up in a checkpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenloom.arguments import expanded, place
from tokenloom.errors import ConfigError
from tokenloom.remote.uploads import files_of
from tokenloom.store.snapshots import numbers

KIND = re.compile(r"(txt|lines|jsonl|parquet|hf):")

CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a store is published in a directory or a bucket."""
    where = place("store", path)
    return bool(numbers(files_of(where).list(where)))


class FilePath(NamedTuple):
    """A path.

    Attributes:
        opened: the path to open.
        shown: the same path as descriptions and messages have it.
    """

    opened: str
    shown: str

    def quoted(self, message: str) -> str:
        """A message with the path, and those beside it, as they were written."""
        opened, shown = self
        while shown and opened and "${" in shown:  # else both are the same
            message = message.replace(opened, shown)
            opened, shown = os.path.dirname(opened), os.path.dirname(shown)
        return message


def place_of(where: str, text: str, folder: str) -> FilePath:
    """The path that a file means.

    >>> place_of("store", "stores/wiki", "runs"), place_of("store", "/data/wiki", "runs").opened
    (FilePath(opened='runs/stores/wiki', shown='runs/stores/wiki'), '/data/wiki')
    """
    if not text:
        raise ConfigError(f"{where}: found an empty path, allowed: the path of a store.")
    full = os.path.expanduser(expanded(where, text))
    if os.path.isabs(full) or ADDRESS.match(full):
        return FilePath(full, text)
    return FilePath(_joined(folder, full), _joined(folder, text))


def _joined(folder: str, text: str) -> str:
    """A path in a folder, which may be one of a bucket.

    >>> _joined("runs", "../wiki"), _joined("s3://bucket/runs", "../wiki"), _joined("", "wiki")
    ('wiki', 's3://bucket/wiki', 'wiki')
    """
    address = ADDRESS.match(folder)
    scheme = address[0] if address else ""
    joined = os.path.normpath(os.path.join(folder.removeprefix(scheme), text)) if folder else text
    return scheme + joined


def input_places(where: str, inputs: Any, folder: str) -> list[FilePath]:
    """The inputs of a build, each with its kind, such as ``txt:``, before the path."""
    listed = [inputs] if isinstance(inputs, str) else list(inputs)
    found = []
    for one in listed:
        kind = KIND.match(one)
        prefix = kind[0] if kind else ""
        place = place_of(where, one.removeprefix(prefix), folder)
        found.append(FilePath(prefix + place.opened, prefix + place.shown))
    return found


def tokenizer_place(where: str, name: str | None, folder: str) -> str | None:
    """The tokenizer of a build: a path if there is one, else the name as it is.

    Raises:
        ConfigError: it names a function: a file of settings runs no code.
    """
    if name is None or name == "bytes" or name.startswith("tiktoken:"):
        return name
    place = place_of(where, name, folder).opened
    if os.path.exists(place):
        return place
    if CODE.fullmatch(name):
        raise ConfigError(
            f"{where}: found {name!r}, which names a function, but a run file names no code. Call "
            "tokenloom.build(...) in Python and give its store here."
        )
    looks_like_path = name.startswith((".", "/", "~", "$")) or "." in os.path.basename(name)
    return place if looks_like_path else name


class StoreShelf(NamedTuple):
    """A store that a file names.

    Attributes:
        place: where it is.
        digest: the digest that it must have, if the file says so.
        hints: arguments of `tokenloom.open`.
    """

    place: FilePath
    digest: str | None
    hints: dict[str, Any]

    @staticmethod
    def of(where: str, given: str | Mapping[str, Any], folder: str) -> StoreShelf:
        """The store of a path, or of a path and how to open it."""
        if isinstance(given, str):
            return StoreShelf(place_of(where, given, folder), None, {})
        hints = {name: one for name, one in given.items() if name not in ("path", "digest")}
        if "path" not in given:
            raise ConfigError(f"{where}.path: missing. Give the path of a store.")
        place = place_of(f"{where}.path", given["path"], folder)
        return StoreShelf(place, given.get("digest"), hints)
