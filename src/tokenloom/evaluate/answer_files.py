"""Answers as bytes, and the answers of all ranks as one.

An answer is some arrays and a few plain values. Written as one `.npz` without pickle, it can be
saved, sent, and read by anything that knows NumPy; the shares of ranks are sent this way and
joined in order of indices.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import InputError

ABOUT = "about"

FORMAT = 2


class AnswerFile(Protocol):
    """What evaluation gives: it can be written, read and joined."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, because one rank has judged everything."""

    def to_bytes(self) -> bytes:
        """As one file."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`."""

    @staticmethod
    def joined(parts: Any) -> Any:
        """The shares of several ranks as one."""


A = TypeVar("A", bound=AnswerFile)


def packed(kind: str, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays and plain values as the bytes of a file; equal for equal contents.

    >>> data = packed("toy", {"a": 1}, {"x": np.arange(3)})
    >>> about, arrays = unpacked("toy", data)
    >>> about, arrays["x"].tolist()
    ({'a': 1}, [0, 1, 2])
    """
    head = json.dumps({"kind": kind, "format": FORMAT, "about": about}, sort_keys=True)
    named: dict[str, Any] = {ABOUT: np.frombuffer(head.encode(), np.uint8)}
    file = io.BytesIO()
    np.savez(file, **(named | dict(sorted(arrays.items()))))
    return file.getvalue()


def unpacked(kind: str, data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """(plain values, arrays) of `packed`.

    Raises:
        InputError: the bytes are something else.
    """
    head, arrays = _read(data)
    if (head.get("kind"), head.get("format")) != (kind, FORMAT):
        found = f"{head.get('kind')} in format {head.get('format')}" if head else "something else"
        raise InputError(
            f"answer: found {found:.80}, allowed: {kind} in format {FORMAT}. Evaluate again."
        )
    about: dict[str, Any] = head["about"]
    return about, arrays


def kind_in(data: bytes) -> str:
    """Which kind of answer is in the bytes of a file; empty if they are something else.

    >>> kind_in(packed("toy", {}, {})), kind_in(b"something else")
    ('toy', '')
    """
    return str(_read(data)[0].get("kind", ""))


def _read(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """(what is written about the arrays, the arrays); nothing if the bytes are something else."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(arrays.pop(ABOUT).tobytes())
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile):
        return {}, {}
    return (head, arrays) if isinstance(head, dict) else ({}, {})


def gathered(share: A) -> A:
    """The answer of all ranks of `torch.distributed`, on every rank.

    Args:
        share: what this rank found; every rank must call it. A whole answer stays what it is.

    >>> from tokenloom.evaluate import Losses
    >>> share = Losses(tables={}, sources=("main",), settings={}, judged=((0, 2),), examples=4)
    >>> gathered(share) is share  # there is one rank
    True
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return share
    if share.is_whole:
        return share
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, share.to_bytes())
    joined: A = type(share).joined([type(share).from_bytes(one) for one in found])
    return joined
