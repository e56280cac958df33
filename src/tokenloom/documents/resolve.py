"""Which documents of a store a dataset uses: all of them, one part of a split, or a selection.

One idea: a choice is plain data. Anyone with the choice and the store can compute the documents
again, so it is passed around and saved as a few settings. A line is identified by the documents
themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.bind import BindError, bind, unbind
from tokenloom.documents.conditions import meeting
from tokenloom.documents.line import ChosenLine, Line, WholeLine
from tokenloom.documents.select import Selection, choose, choose_streaming
from tokenloom.documents.spec import SelectSpec
from tokenloom.documents.split import SplitSpec, members
from tokenloom.store.derived.duplicates import hash_blocks, starts_with
from tokenloom.store.reader import Reader

__all__ = ["Choice", "choose_documents", "describe_choice", "line_of", "rebuild_choice"]

Choice = SplitSpec | SelectSpec

Int64 = NDArray[np.int64]


def line_of(reader: Reader, choice: Choice | None, chosen: Selection | None = None) -> Line:
    """The documents of a choice, end to end; pass `chosen` if they are already known."""
    if choice is None:
        return WholeLine(reader)
    documents = (chosen or choose_documents(reader, choice)).documents
    return ChosenLine(reader, documents)


def choose_documents(
    reader: Reader, choice: Choice | None, among: Int64 | None = None
) -> Selection:
    """The documents of a choice: a split's in stored order, a selection's in the order of its mode.

    Reads offsets. A split by id and `doc_key` also read metadata; a split by content and `doc_hash`
    also read the hashes of all documents. No token is read.

    Args:
        reader: the store.
        choice: None means all documents.
        among: what a selection chooses from, if already known.
    """
    if choice is None:
        return Selection(np.arange(reader.manifest.documents), "all")
    if isinstance(choice, SplitSpec):
        return Selection(members(choice, reader), choice.words)
    if among is None and choice.within is not None:
        among = choose_documents(reader, choice.within).documents
    if choice.doc_key is not None:
        meets = meeting(reader, choice.doc_key)
        among = np.flatnonzero(meets) if among is None else among[meets[among]]
    if among is None:
        documents, digest = reader.manifest.documents, reader.manifest.digest
        found = choose_streaming(choice, reader.length_pieces(), documents, digest)
        if found is not None:
            return found
    return choose(
        choice,
        reader.lengths(),
        digest=reader.manifest.digest,
        among=among,
        has_hash=functools.partial(_has_hash, reader),
    )


def _has_hash(reader: Reader, documents: Int64, digits: str) -> NDArray[np.bool_]:
    """Which documents have a hash that starts with `digits`; reads all hashes, but no token."""
    found = [starts_with(hashes, digits) for _, hashes in hash_blocks(reader)]
    return np.concatenate([np.empty(0, np.bool_), *found])[documents]


def describe_choice(choice: Choice | None) -> dict[str, Any] | None:
    """A choice as plain JSON; a split has no "kind"."""
    if choice is None:
        return None
    plain: dict[str, Any] = unbind(choice)
    if isinstance(choice, SplitSpec):
        return plain
    return {"kind": "select", **plain, "within": describe_choice(choice.within)}


def rebuild_choice(plain: Any, path: str = "$.choice") -> Choice | None:
    """The choice that `describe_choice` described.

    Raises:
        BindError: the description is invalid; lists the path of every problem.
    """
    if plain is None:
        return None
    if not isinstance(plain, Mapping):
        raise BindError([f"{path}: found {plain!r:.60}, allowed: an object or null"])
    kind = plain.get("kind", "split")
    fields = {name: value for name, value in plain.items() if name != "kind"}
    if kind == "split":
        return bind(SplitSpec, fields, path=path)
    if kind != "select":
        raise BindError([f"{path}.kind: found {kind!r}, allowed: split, select"])
    within = rebuild_choice(fields.pop("within", None), f"{path}.within")
    return replace(bind(SelectSpec, fields, path=path), within=within)
