"""Groups of documents: where each starts and how many rows it has. A few integers, computed once.

One idea: a group ends with its 10,000th document, or with the document that brings it to 2^25
tokens, counted from the group's own start in stored order. So when a store grows, all groups but
the last stay the same, and planning a group needs only the number of rows of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.bind import unbind
from tokenloom.layout.pack.cut import Tally
from tokenloom.layout.pack.piece_table import Kinds
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.store.handles import lazy

__all__ = ["Bounded", "Groups", "documents_in", "plan_identity"]

Int64 = NDArray[np.int64]


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


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a line.

    Attributes:
        document: first document of each group, then the number of documents [groups + 1].
        address: first token of each group, then the end of the line [groups + 1].
        rows: rows of each group [groups].
        tally: what became of all documents.
        tokens: tokens of each row; None if they are cached in a file, see `tokens_of` [rows].
    """

    document: Int64
    address: Int64
    rows: Int64
    tally: Tally
    tokens: NDArray[Any] | None = None

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.rows)

    @lazy
    def first_row(self) -> Int64:
        """First row of each group, then the number of rows [groups + 1]."""
        return np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)

    def as_json(self) -> dict[str, Any]:
        """What a file keeps of them."""
        return {
            "document": self.document.tolist(),
            "address": self.address.tolist(),
            "rows": self.rows.tolist(),
            "tally": asdict(self.tally),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Groups:
        """The groups of `as_json`; the tokens of their rows are in a file of their own."""
        document, address, rows = (
            np.array(value[name], np.int64) for name in ("document", "address", "rows")
        )
        return Groups(document, address, rows, Tally(**value["tally"]))

    def kinds(self, spec: PackSpec) -> Kinds:
        """The dtypes in which rows are kept."""
        sizes = (np.diff(part).max(initial=1) for part in (self.document, self.address))
        return Kinds(spec.width, *map(int, sizes))


def documents_in(bounds: Int64, spec: PackSpec) -> int:
    """How many documents the group that starts with these has."""
    ends = bounds[1:] - bounds[0]
    return min(int(np.searchsorted(ends, spec.group_tokens)) + 1, len(ends))


def plan_identity(line: Bounded, spec: PackSpec) -> dict[str, Any]:
    """Names a plan in the plan cache."""
    return {"line": line.identity, "pack": unbind(spec)}
