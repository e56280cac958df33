"""Groups of documents: where each starts and how many rows it has. A few integers, computed once.

One idea: a group ends with its 10,000th document, or with the document that brings it to 2^25
tokens, counted from the group's own start in stored order. So when a store grows, all groups but
the last stay the same, and planning a group needs only the number of rows of the others.

Groups are planned in pieces: a piece is some groups one after the other, and needs only the number
of its first group and its first document. Pieces are joined in order, whoever planned them: this
process (all groups are then one piece), or others (`tokenloom.cluster`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.bind import unbind
from tokenloom.layout.pack.cut import Tally
from tokenloom.layout.pack.piece_table import Kinds
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.store.handles import lazy
from tokenloom.store.plan_cache import file_name

__all__ = [
    "Bounded",
    "Groups",
    "LookedAt",
    "PlannedGroups",
    "Share",
    "documents_in",
    "join_groups",
    "kept_groups",
    "plan_identity",
]

Int64 = NDArray[np.int64]

Share = Callable[[Sequence[dict[str, int]]], Iterable[dict[str, Any]]]

"""Has pieces of work done elsewhere: the numbers of each → its result, in order, as plain data."""


class Bounded(Protocol):
    """Documents in order, of which only the lengths matter; a `Line` is one."""

    @property
    def documents(self) -> int:
        """Number of documents."""

    @property
    def tokens(self) -> int:
        """Number of tokens in all documents."""

    @property
    def identity(self) -> str:
        """Identifies the documents: the same for the same documents in the same order."""

    def bounds(self, first: int, last: int) -> tuple[Int64, Int64]:
        """Documents [first, last): their numbers [N], and their edges [N + 1]."""


class LookedAt(NamedTuple):
    """A group that was planned in this process.

    Attributes:
        tokens: tokens of its rows [rows].
        digest: of its rows, see `tokenloom.layout.pack.kept_rows`; empty if nobody needs it.
    """

    tokens: NDArray[Any]
    digest: bytes = b""


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a line.

    Attributes:
        document: first document of each group, then the number of documents [groups + 1].
        address: first token of each group, then the end of the line [groups + 1].
        rows: rows of each group [groups].
        tally: what became of all documents.
        tokens: tokens of each row; None if they are cached in a file, see `tokens_of` [rows].
        looked_at: random groups, planned here → what to check such files with.
        digest: sha256 of the arrays; empty if they are not worth a file.
        tokens_digest: the same of `tokens`.
        sampled: groups that were planned to estimate the rows of all; 0: every number is exact.
    """

    document: Int64
    address: Int64
    rows: Int64
    tally: Tally
    tokens: NDArray[Any] | None = None
    looked_at: Mapping[int, LookedAt] = field(default_factory=dict)
    digest: str = ""
    tokens_digest: str = ""
    sampled: int = 0

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.rows)

    @lazy
    def first_row(self) -> Int64:
        """First row of each group, then the number of rows [groups + 1]."""
        return np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)

    def signed(self) -> Groups:
        """A copy with its digest."""
        raw = b"".join(a.astype("<i8").tobytes() for a in (self.document, self.address, self.rows))
        return replace(self, digest=hashlib.sha256(raw).hexdigest())

    def as_json(self) -> dict[str, Any]:
        """What a file keeps of them."""
        return {
            "document": self.document.tolist(),
            "address": self.address.tolist(),
            "rows": self.rows.tolist(),
            "tally": asdict(self.tally),
        }

    def kinds(self, spec: PackSpec) -> Kinds:
        """The dtypes in which rows are kept."""
        sizes = (np.diff(part).max(initial=1) for part in (self.document, self.address))
        return Kinds(spec.width, *map(int, sizes))


@dataclass(frozen=True, eq=False, slots=True)
class PlannedGroups:
    """Some groups, one after the other.

    Attributes:
        document: first document after each group [groups].
        address: first token after each group [groups].
        rows: rows of each group [groups].
        tokens: tokens of each row [rows].
        tally: what became of their documents.
    """

    document: Int64
    address: Int64
    rows: Int64
    tokens: NDArray[Any]
    tally: Tally

    def plain(self) -> dict[str, Any]:
        """The groups as plain data."""
        lists = {name: getattr(self, name).tolist() for name in ("document", "address", "rows")}
        raw = self.tokens.astype(self.tokens.dtype.newbyteorder("<")).tobytes()
        return {**lists, "tokens": raw, "tally": asdict(self.tally)}

    @staticmethod
    def of(plain: Mapping[str, Any], spec: PackSpec) -> PlannedGroups:
        """The groups of `plain`."""
        kind = np.dtype(np.min_scalar_type(spec.seq_len))
        document, address, rows = (
            np.array(plain[name], np.int64) for name in ("document", "address", "rows")
        )
        tokens = np.frombuffer(plain["tokens"], kind.newbyteorder("<")).astype(kind)
        return PlannedGroups(document, address, rows, tokens, Tally(**plain["tally"]))


def documents_in(bounds: Int64, spec: PackSpec) -> int:
    """How many documents the group that starts with these has."""
    ends = bounds[1:] - bounds[0]
    return min(int(np.searchsorted(ends, spec.group_tokens)) + 1, len(ends))


def plan_identity(line: Bounded, spec: PackSpec) -> dict[str, Any]:
    """Names a plan in the plan cache."""
    return {"line": line.identity, "pack": unbind(spec)}


def kept_groups(identity: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the files that keep the groups and the tokens of their rows."""
    return file_name("pack", identity, "json"), file_name("packed-tokens", identity, "ints")


def join_groups(pieces: Iterable[PlannedGroups], spec: PackSpec) -> Groups:
    """All groups, from pieces in order."""
    tally, parts = Tally(), list(pieces)
    for part in parts:
        tally += part.tally
    start, kind = np.zeros(1, np.int64), np.min_scalar_type(spec.seq_len)
    return Groups(
        np.concatenate([start, *(part.document for part in parts)]),
        np.concatenate([start, *(part.address for part in parts)]),
        np.concatenate([start[:0], *(part.rows for part in parts)]),
        tally,
        np.concatenate([np.empty(0, kind), *(part.tokens for part in parts)]),
    )
