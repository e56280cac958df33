"""Choices of documents as plain data: a part of a split, or a selection by length, number or hash.

A choice says what to choose, never what was chosen. It can therefore be saved, compared, and
resolved again by anyone who opens the store (`tokenloom.documents.select`). Invalid choices are
refused here, before any store is read.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from tokenloom.arguments import check_between, check_options, integer, one_of, wrong_type
from tokenloom.bind import BindError, bind, check_fields, unbind
from tokenloom.errors import ConfigError, plural
from tokenloom.random.keys import check_seed
from tokenloom.store.format import canonical

MODES = ("first", "longest", "shortest", "random")

SHORTAGES = ("error", "fewer", "backfill_longest")

INDEX_POLICIES = ("fallback", "honor", "error")

SELECTOR = {"min_len": "min_doc_length", "max_len": "max_doc_length", "hash": "doc_hash"}

_HASH = re.compile(r"[0-9a-f]{8,32}")

SHOWN = 5  # documents named in a message


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitSpec:
    """One part of a split.

    Attributes:
        names, shares: all parts of the split, in order.
        part: the part to use.
        by: "id" (the document's id, or its number in a store without ids) or "content".
        seed: seed of the split; another seed gives another split.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    part: str
    by: str = "id"
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        one_of("split.by", self.by, ("id", "content"))
        if len(self.names) != len(self.shares) or len(set(self.names)) < len(self.names):
            raise ConfigError(
                f"split: the names {self.names} and shares {self.shares} do not belong together. "
                "Give every part one name of its own and one share."
            )
        _check_shares(dict(zip(self.names, self.shares, strict=True)))
        one_of("split.part", self.part, self.names)

    @property
    def words(self) -> str:
        """The part in a few words, such as "train by id"."""
        return f"{self.part} by {self.by}"

    @staticmethod
    def all_of(shares: Mapping[str, float], by: str, seed: int) -> dict[str, SplitSpec]:
        """The parts of a split by name."""
        _check_shares(shares)
        names, values = tuple(shares), tuple(float(share) for share in shares.values())
        return {
            name: SplitSpec(names=names, shares=values, part=name, by=by, seed=seed)
            for name in names
        }


def _check_shares(shares: Mapping[str, Any]) -> None:
    numbers = all(
        isinstance(share, Real) and float(share) >= 0 for share in shares.values()
    )  # no NaN
    if not numbers or not abs(math.fsum(shares.values()) - 1) <= 1e-9:
        raise ConfigError(
            f"split: the shares {dict(shares)} are not parts of a whole. Give numbers of 0 or more "
            "that add up to 1."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectSpec:
    """Which documents; every field is part of a run's identity.

    Attributes:
        num_docs: how many; None means one.
        doc_index: exactly these, in this order; others only replace those that do not qualify.
        doc_key: only documents whose metadata meets this; see `tokenloom.documents.conditions`.
        doc_hash: only documents whose stored hash starts with these 8 to 32 hex digits.
        doc_select_mode: "longest", "shortest", "first" or "random".
        min_doc_length, max_doc_length: fewest and most tokens of a document.
        training_tokens: only documents that lie entirely within this many leading tokens of the
            store.
        on_shortage: if too few documents qualify, "error", "fewer" (take what qualifies, at least
            one) or "backfill_longest" (fill up with the longest others). None becomes
            "backfill_longest" for a single document, "error" for several.
        doc_index_policy: if a document of `doc_index` does not qualify, "fallback" (replace it by
            the mode's choice), "honor" (take it whatever its length) or "error".
        seed: seed of the "random" mode.
        documents: only these, ascending; the result of a function of the metadata.
        within: choose among the documents of this choice; None means the whole store.
    """

    num_docs: int | None = None
    doc_index: int | tuple[int, ...] | None = None
    doc_key: str | None = None
    doc_hash: str | None = None
    doc_select_mode: str = "longest"
    min_doc_length: int | None = None
    max_doc_length: int | None = None
    training_tokens: int | None = None
    on_shortage: str | None = None
    doc_index_policy: str = "fallback"
    seed: int = 0
    documents: tuple[int, ...] | None = None
    within: SplitSpec | SelectSpec | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        if not isinstance(self.within, SplitSpec | SelectSpec | None):
            raise wrong_type("within", self.within, "a split or a selection")
        _check_numbers(self)
        _check_index(self)
        one_of("doc_select_mode", self.doc_select_mode, MODES)
        one_of("doc_index_policy", self.doc_index_policy, INDEX_POLICIES)
        single = self.num_docs is None and not isinstance(self.doc_index, tuple)
        if self.on_shortage is None:
            object.__setattr__(self, "on_shortage", SHORTAGES[2 if single else 0])
        one_of("on_shortage", self.on_shortage, SHORTAGES)
        if self.doc_hash is not None:
            object.__setattr__(self, "doc_hash", _checked_hash(self.doc_hash))

    @property
    def wanted(self) -> tuple[int, ...]:
        """The documents of `doc_index`, as a tuple."""
        if self.doc_index is None:
            return ()
        return self.doc_index if isinstance(self.doc_index, tuple) else (self.doc_index,)

    @property
    def words(self) -> str:
        """The selection in a few words.

        >>> SelectSpec(num_docs=3, min_doc_length=1024).words
        'longest 3, min_doc_length=1024'
        """
        what = self.doc_select_mode
        if self.doc_index is not None:
            what = f"doc_index {listed(self.wanted)}"
        elif self.num_docs is not None:
            what += f" {self.num_docs:,}"
        if self.seed:
            what += f" (seed {self.seed})"
        return ", ".join([what, *self.conditions])

    @property
    def conditions(self) -> list[str]:
        """The conditions that a document must meet, in words."""
        names = ("min_doc_length", "max_doc_length", "training_tokens", "doc_key", "doc_hash")
        found = [f"{n}={getattr(self, n)}" for n in names if getattr(self, n) is not None]
        if self.documents is not None:
            found.append(f"among {listed(self.documents)}")
        return found if self.within is None else [*found, f"within ({self.within.words})"]


def _check_numbers(spec: SelectSpec) -> None:
    for name, least in (
        ("num_docs", 1),
        ("min_doc_length", 0),
        ("max_doc_length", 1),
        ("training_tokens", 1),
    ):
        unit = "documents" if name == "num_docs" else "tokens"
        check_between(name, getattr(spec, name), least, unit=unit)
    if spec.min_doc_length is not None:
        why = " (min_doc_length)"
        check_between("max_doc_length", spec.max_doc_length, spec.min_doc_length, why=why)
    if spec.documents is not None and (
        not spec.documents or spec.documents[0] < 0 or not _ascending(spec.documents)
    ):
        raise ConfigError(
            f"documents: found {listed(spec.documents)}, allowed: one or more document numbers, "
            "ascending."
        )


def _check_index(spec: SelectSpec) -> None:
    if spec.doc_index is None:
        return
    if isinstance(spec.doc_index, tuple) and len(spec.doc_index) == 1:
        object.__setattr__(spec, "doc_index", spec.doc_index[0])  # one identity for one meaning
    wanted = spec.wanted
    if not wanted or min(wanted) < 0 or not _ascending(sorted(wanted)):
        raise ConfigError(
            f"doc_index: found {listed(wanted)}, allowed: document numbers of 0 or more, each "
            "once; negative indices do not count from the end."
        )
    if spec.num_docs not in (None, len(wanted)):
        raise ConfigError(
            f"doc_index: found {plural(len(wanted), 'document')}, but num_docs is "
            f"{spec.num_docs}. Leave one of them out."
        )
    for name in ("doc_key", "doc_hash", "documents"):
        if getattr(spec, name) is not None:
            raise ConfigError(
                f"doc_index: found together with {name}; each names the document to use. "
                "Leave one of them out."
            )


def _checked_hash(digits: str) -> str:
    if not _HASH.fullmatch(digits.lower()):
        raise ConfigError(
            f"doc_hash: found {digits!r}, allowed: 8 to 32 hex digits, the start of the "
            "xxh3_128 of a document's tokens, as in `store.document_hashes`."
        )
    return digits.lower()


def _ascending(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))


def listed(documents: Sequence[int]) -> str:
    """A short text that lists the first few of some numbers.

    >>> listed([4, 1, 7, 0, 3, 9, 8])
    '4, 1, 7, 0, 3 and 2 more'
    """
    shown = ", ".join(map(str, documents[:SHOWN]))
    more = len(documents) - SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown or "none"


Choice = SplitSpec | SelectSpec


# -- from the arguments of `select` to fields of a selection ---------------------------------------
def training_cutoff(
    restrict: bool,
    max_train_batches: int | None,
    initial_batch_size: int | None,
    seq_len: int | None,
) -> int | None:
    """Tokens of the store that training uses: the product of the three; None without `restrict`.

    >>> training_cutoff(True, 1, 128, 16)
    2048
    """
    if not isinstance(restrict, bool | np.bool_):
        raise ConfigError(
            f"restrict_to_training_subset: found {restrict!r}, allowed: True or False."
        )
    if not restrict:
        return None
    parts = {
        "max_train_batches": max_train_batches,
        "initial_batch_size": initial_batch_size,
        "seq_len": seq_len,
    }
    missing = [name for name, value in parts.items() if value is None]
    if missing:
        raise ConfigError(
            f"restrict_to_training_subset: {' and '.join(missing)} missing. The subset is the "
            f"first {' x '.join(parts)} tokens of the store; give all three."
        )
    tokens = 1
    for name, value in parts.items():
        tokens *= integer(name, value, least=1)
    return tokens


def with_selector(selector: Mapping[str, Any] | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a selection, updated with those of a `doc_selector`.

    >>> with_selector({"min_len": 5}, {"min_doc_length": None})
    {'min_doc_length': 5}
    """
    if selector is None:
        return fields
    if not isinstance(selector, Mapping):
        raise wrong_type("doc_selector", selector, f"a mapping with {', '.join(SELECTOR)}")
    check_options("doc_selector", map(str, selector), list(SELECTOR))
    found = dict(fields)
    for name, value in selector.items():
        field = SELECTOR[name]
        if value is None:
            continue
        if found.get(field) not in (None, value):
            raise ConfigError(
                f"doc_selector.{name}: found {value!r}, but {field} is {found[field]!r}. Give one "
                "of them."
            )
        found[field] = value
    return found


# -- choices in descriptions -----------------------------------------------------------------
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
        return unbind(choice) if name is None else {"split": name, "part": choice.part}
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
