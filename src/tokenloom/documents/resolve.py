"""Which documents of a store a dataset is made of: all of them, a part of a split, a selection.

One idea: a choice is plain data. Whoever holds it and the store can work out the documents again,
so it travels, and is written down, as a few settings; a line is named by the documents themselves.
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
from tokenloom.documents.select import Selection, choose
from tokenloom.documents.spec import SelectSpec
from tokenloom.documents.split import SplitSpec, content_hashes, id_hashes, members
from tokenloom.store.derived.duplicates import hash_blocks, starts_with
from tokenloom.store.reader import Reader

__all__ = ["Choice", "choose_documents", "describe_choice", "line_of", "rebuild_choice"]

Choice = SplitSpec | SelectSpec

Int64 = NDArray[np.int64]


def line_of(reader: Reader, choice: Choice | None, chosen: Selection | None = None) -> Line:
    """The documents of a choice, end to end; `chosen` if they are known already."""
    if choice is None:
        return WholeLine(reader)
    documents = (chosen or choose_documents(reader, choice)).documents
    return ChosenLine(reader, documents)


def choose_documents(
    reader: Reader, choice: Choice | None, among: Int64 | None = None
) -> Selection:
    """The documents of a choice, in its order: a split's as stored, a selection's by its mode.

    Reads offsets; for a split by id and for `doc_key` also metadata, for a split by content and for
    `doc_hash` also the hashes of all documents. No token is read.

    Args:
        reader: the store.
        choice: None is all documents.
        among: what a selection chooses from, if it is known already.
    """
    if choice is None:
        return Selection(np.arange(reader.manifest.documents), "all")
    if isinstance(choice, SplitSpec):
        hash_all = id_hashes if choice.by == "id" else content_hashes
        return Selection(members(choice, hash_all(reader, choice.seed)), choice.words)
    if among is None and choice.within is not None:
        among = choose_documents(reader, choice.within).documents
    if choice.doc_key is not None:
        meets = meeting(reader, choice.doc_key)
        among = np.flatnonzero(meets) if among is None else among[meets[among]]
    return choose(
        choice,
        reader.lengths(),
        digest=reader.manifest.digest,
        among=among,
        has_hash=functools.partial(_has_hash, reader),
    )


def _has_hash(reader: Reader, documents: Int64, digits: str) -> NDArray[np.bool_]:
    """Which documents have a hash that starts so; reads the hashes of all, and no token."""
    found = [starts_with(hashes, digits) for _, hashes in hash_blocks(reader)]
    return np.concatenate([np.empty(0, np.bool_), *found])[documents]


def describe_choice(choice: Choice | None) -> dict[str, Any] | None:
    """A choice as plain JSON; one without a kind is a split."""
    if choice is None:
        return None
    plain: dict[str, Any] = unbind(choice)
    if isinstance(choice, SplitSpec):
        return plain
    return {"kind": "select", **plain, "within": describe_choice(choice.within)}


def rebuild_choice(plain: Any, path: str = "$.choice") -> Choice | None:
    """The choice that `describe_choice` described.

    Raises:
        BindError: with the path of every problem.
    """
    if plain is None:
        return None
    if not isinstance(plain, Mapping):
        raise BindError([f"{path}: found {plain!r:.60}, allowed is an object or null"])
    kind = plain.get("kind", "split")
    fields = {name: value for name, value in plain.items() if name != "kind"}
    if kind == "split":
        return bind(SplitSpec, fields, path=path)
    if kind != "select":
        raise BindError([f"{path}.kind: found {kind!r}, allowed: split, select"])
    within = rebuild_choice(fields.pop("within", None), f"{path}.within")
    return replace(bind(SelectSpec, fields, path=path), within=within)
