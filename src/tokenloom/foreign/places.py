"""What a user points at, and what the user says about it: what every format looks at.

One idea: a look is cheap and takes nothing on trust. A `ForeignPlace` gives names, sizes and a few
bytes of files below one folder (`tokenloom.foreign.locations`); sizes are compared with what a
header claims before any memory is taken for it. `Said` has what files leave open, such as the dtype
of a bare array.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_options, integer, one_of, wrong_type
from tokenloom.errors import ConfigError, StoreCorrupt, StoreError, StoreNotFound
from tokenloom.foreign.locations import damaged, folder_at, read_stretch
from tokenloom.store import format as fmt

DTYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")

INDEXES = (
    "index.json of MDS and LitData, state.json of a saved dataset, document_ends.npy of an export"
)

LEDGER = "shard_ledger.json"  # of a cache of Levanter

MOST_NAMES = 1000  # of a folder that are looked into

MAX_INDEX_BYTES = 1 << 36  # an index above this is refused


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What the user says about foreign files; None is left to the files.

    Attributes:
        format: the name of the format.
        dtype: how ids are stored.
        eos: the token that ends every document.
        bos: the token that starts every document.
        vocab_size: every id is below it.
        seal: the file of its seal, if that is not beside the files.
        missing: "zeros" if ids whose file is missing are zeros (Levanter's caches).
    """

    format: str | None = None
    dtype: str | None = None
    eos: int | None = None
    bos: int | None = None
    vocab_size: int | None = None
    seal: str | None = None
    missing: str | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            one_of("dtype", self.dtype, DTYPES)
        if self.missing is not None:
            one_of("missing", self.missing, ("zeros",))
        for name in ("eos", "bos"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), 0, fmt.MAX_ID)
        if self.vocab_size is not None:
            integer("vocab_size", self.vocab_size, 1, fmt.MAX_ID + 1)
        for name in ("format", "seal"):
            if not isinstance(getattr(self, name), str | None):
                raise wrong_type(name, getattr(self, name), "a text")
        if self.eos is not None and self.bos is not None:
            raise ConfigError(
                "eos, bos: found both, allowed: one of them, the token that ends documents or the "
                "one that starts them. Leave one out."
            )

    @property
    def plain(self) -> dict[str, Any]:
        """What was said, as JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Said:
        """The settings of a description."""
        check_options("store.foreign", given, [one.name for one in fields(cls)])
        return cls(**given)


class ForeignPlace:
    """A path or URL of foreign files.

    Args:
        path: a file, a folder, or the common start of the names of several files; in a bucket, too.
        said: what the user says about it.
    """

    def __init__(self, path: Any, said: Said) -> None:
        self.path, self.said = str(path), said
        self.folder, self.name = folder_at(path)
        self.root, self.source, self.is_folder = self.folder.root, self.folder.source, not self.name

    def names(self, folder: str = "") -> list[str]:
        """The names in its folder, or in one below it, in order; none if there is no folder.

        Raises:
            StoreError: the server lists no names.
        """
        if not self.folder.lists:
            raise StoreError(
                f"{self.path}: found nothing of that name that opens alone, and this server lists "
                f"no names. Allowed here: a single file, or one that names the others ({INDEXES}). "
                "For a folder of files use a bucket (s3://, gs://, az://) or a copy on a disk."
            )
        return self.folder.names(folder)

    def is_named(self, index: str) -> bool:
        """Whether a folder is pointed at, or in it the file that names the others."""
        return self.is_folder or self.name == index

    def size(self, name: str) -> int | None:
        """Bytes of a regular file; None if there is none of that name.

        Raises:
            StoreCorrupt: it is a link, a pipe, or something else that is no file.
        """
        return self.folder.size(name)

    def folders_with(self, index: str) -> list[str]:
        """The folders below its own, at most two deep, that hold a file of that name."""
        found: list[str] = []
        for name in self.names()[:MOST_NAMES] if self.is_folder and self.folder.lists else []:
            if self._holds(name, index):
                found.append(name)
                continue
            inner = (f"{name}/{one}" for one in self.names(name)[:MOST_NAMES])
            found += [one for one in inner if self._holds(one, index)]
        return found

    def _holds(self, folder: str, index: str) -> bool:
        try:
            return self.size(f"{folder}/{index}") is not None
        except StoreCorrupt:  # it is a link
            return False

    def where(self, name: str) -> str:
        """The path of a file, for messages."""
        return f"{self.root}/{name}"

    def damaged(self, name: str, what: str) -> StoreCorrupt:
        """The error for a file that cannot be what it claims to be."""
        return damaged(self.where(name), what)

    def json(self, name: str, limit: int = fmt.MAX_RECORD_BYTES) -> dict[str, Any]:
        """The JSON object in a file.

        Raises:
            StoreCorrupt: it is missing, too large, or something else.
        """
        size = self.size(name)
        if size is None or size > limit:
            raise self.damaged(name, "it is missing" if size is None else f"it has {size:,} bytes")
        try:
            found = fmt.read_json(self.bytes(name, 0, limit).tobytes())
        except (ValueError, RecursionError):
            raise self.damaged(name, "it is not JSON") from None
        if not isinstance(found, dict):
            raise self.damaged(name, "it is no JSON object")
        return found

    def bytes(self, name: str, low: int, high: int) -> NDArray[np.uint8]:
        """Bytes [low, high) of a file, fewer if it ends before."""
        size = self.size(name)
        if size is None:
            raise StoreNotFound(f"{self.where(name)}: there is no such file. Restore it.")
        high = min(high, size)
        if high <= low:
            return np.empty(0, np.uint8)
        return read_stretch(self.source, (name, low, high - low), self.root)

    def array(self, name: str, dtype: str, first_byte: int, count: int) -> NDArray[Any]:
        """An index of `count` elements, if the file can have that many.

        Raises:
            StoreCorrupt: the file ends before that, or the count is absurd.
        """
        size, item = self.size(name) or 0, np.dtype(dtype).itemsize
        if not 0 <= count <= MAX_INDEX_BYTES // item or first_byte + count * item > size:
            raise damaged(
                self.where(name),
                f"it claims {count:,} elements of {item} bytes from byte {first_byte:,} on and has "
                f"{size:,} bytes",
            )
        return self.bytes(name, first_byte, first_byte + count * item).view(dtype)


def plain_name(name: Any) -> bool:
    """Whether an index may name this file: one of its own folder.

    >>> plain_name("shard.00000.mds"), plain_name("../secret"), plain_name("/etc/passwd")
    (True, False, False)
    """
    return (
        isinstance(name, str)
        and bool(name)
        and name not in (".", "..")
        and "\0" not in name
        and ("/" not in name and os.sep not in name)
    )
