"""Which documents of a store a dataset uses: all of them, one part of a split, or a selection.

One idea: a choice is plain data. Anyone with the choice and the store can compute the documents
again, so it is passed around and saved as a few settings. A line is identified by the documents
themselves.
"""

from __future__ import annotations

import functools
import hashlib
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
from tokenloom.store.format import canonical
from tokenloom.store.hashes import hash_blocks, starts_with
from tokenloom.store.reader import Reader

__all__ = [
    "Choice",
    "KnownSplits",
    "SharedSplits",
    "choose_documents",
    "describe_choice",
    "line_of",
    "rebuild_choice",
]

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


class SharedSplits:
    """Splits that the sources of a mix refer to, each written once under its hash.

    A split of a few parts is spelled out in every source. One of many parts would make a
    description of n parts grow with n squared.
    """

    SPELLED = 16  # parts

    def __init__(self) -> None:
        self.plain: dict[str, dict[str, Any]] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    def name_of(self, split: SplitSpec) -> str | None:
        """The hash of a split; None if it is spelled out."""
        if len(split.names) <= self.SPELLED:
            return None
        which = split.names, split.shares, split.by, split.seed
        name = self._known.get(which)
        if name is None:
            plain = unbind(split)
            del plain["part"]
            name = self._known[which] = hashlib.sha256(canonical(plain)).hexdigest()
            self.plain[name] = plain
        return name


def describe_choice(
    choice: Choice | None, shared: SharedSplits | None = None
) -> dict[str, Any] | None:
    """A choice as plain JSON; a split has no "kind".

    Args:
        choice: what to describe.
        shared: takes splits of many parts, which are then named instead of spelled out.
    """
    if choice is None:
        return None
    if isinstance(choice, SplitSpec):
        name = None if shared is None else shared.name_of(choice)
        plain: dict[str, Any] = (
            unbind(choice) if name is None else {"split": name, "part": choice.part}
        )
        return plain
    plain = unbind(replace(choice, within=None))
    return {"kind": "select", **plain, "within": describe_choice(choice.within, shared)}


class KnownSplits:
    """The splits that a description names, bound when they are first asked for."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._plain = plain
        self._bound: dict[str, SplitSpec] = {}

    def part(self, fields: Mapping[str, Any], path: str) -> SplitSpec:
        """The part of a split that a choice names."""
        name, part = fields["split"], fields.get("part")
        split = self._plain.get(name) if isinstance(name, str) else None
        if not isinstance(split, Mapping):
            allowed = ", ".join(self._plain) or "none, the description has no splits"
            raise BindError([f"{path}.split: found {name!r:.80}, allowed: {allowed:.200}"])
        unknown = sorted(fields.keys() - {"split", "part"})
        if unknown:
            raise BindError([f"{path}.{unknown[0]}: unknown key. Allowed: part, split"])
        known = self._bound.get(name)
        if known is None:
            whole = {**split, "part": part}
            known = self._bound[name] = bind(SplitSpec, whole, path=f"$.splits.{name}")
        if known.part == part:
            return known
        if part not in known.names:
            raise BindError([f"{path}.part: found {part!r:.80}, allowed: a part of the split"])
        return replace(known, part=part)


def rebuild_choice(
    plain: Any, path: str = "$.choice", splits: KnownSplits | None = None
) -> Choice | None:
    """The choice that `describe_choice` described.

    Args:
        plain: the description.
        path: where it is, for messages.
        splits: the splits that it may name.

    Raises:
        BindError: the description is invalid; lists the path of every problem.
    """
    if plain is None:
        return None
    if not isinstance(plain, Mapping):
        raise BindError([f"{path}: found {plain!r:.60}, allowed: an object or null"])
    kind = plain.get("kind", "split")
    fields = {name: value for name, value in plain.items() if name != "kind"}
    if kind == "split" and "split" in fields:
        return (splits or KnownSplits({})).part(fields, path)
    if kind == "split":
        return bind(SplitSpec, fields, path=path)
    if kind != "select":
        raise BindError([f"{path}.kind: found {kind!r}, allowed: split, select"])
    within = rebuild_choice(fields.pop("within", None), f"{path}.within", splits)
    return replace(bind(SelectSpec, fields, path=path), within=within)
