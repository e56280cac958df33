"""`plan_packing`: what packing costs, of a store, of a part of it, or of lengths alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api.documents import Documents
from tokenloom.api.store import Store
from tokenloom.documents.line import WholeLine
from tokenloom.errors import ConfigError
from tokenloom.layout.pack.compare import SIMPLE, PackingChoice, PackingPlan, compare_packings
from tokenloom.layout.pack.rows import Bounded

__all__ = ["line_of", "plan_packing"]

Int64 = NDArray[np.int64]


@overload
def plan_packing(
    source: Store | Documents | ArrayLike,
    *,
    seq_len: int,
    strategy: str,
    overflow: str = "split",
    **options: Any,
) -> PackingChoice: ...


@overload
def plan_packing(
    source: Store | Documents | ArrayLike,
    *,
    seq_len: int | Sequence[int],
    strategy: str | Sequence[str] | None = None,
    overflow: str | Sequence[str] = "split",
    **options: Any,
) -> PackingChoice | PackingPlan: ...


def plan_packing(
    source: Store | Documents | ArrayLike,
    *,
    seq_len: int | Sequence[int],
    strategy: str | Sequence[str] | None = None,
    overflow: str | Sequence[str] = "split",
    **options: Any,
) -> PackingChoice | PackingPlan:
    """What packing would cost: exactly what a run of `Store.pack` then has, without a token read.

    Args:
        source: a store, documents of one, or the lengths of documents.
        seq_len: tokens of a frame, one length or several.
        strategy: one, several, or None for the usual ones.
        overflow: "split", "truncate", "drop", "error", or several of them.
        options: `add_bos`, `add_eos`, and further fields of `PackSpec`, the same for all.

    Returns:
        For one of each a `PackingChoice` (`rows`, `fill`, `tokens_lost`, `documents_cut`, …); else
        a `PackingPlan`, which prints as a table with a recommendation.

    >>> choice = plan_packing([3, 2, 3, 9], seq_len=8, strategy="best_fit_decreasing")
    >>> choice.rows, choice.tokens_lost, choice.documents_cut
    (3, 0, 1)
    """
    lengths: list[Any] = [seq_len] if _is_one(seq_len) else np.asarray(seq_len).tolist()
    strategies = list(SIMPLE) if strategy is None else _listed(strategy)
    for name in ("bos", "eos"):  # which token it is changes nothing here
        if options.pop(f"add_{name}", False):
            options.setdefault(f"{name}_id", 0)
    plan = compare_packings(line_of(source), lengths, strategies, _listed(overflow), **options)
    single = _is_one(seq_len) and isinstance(strategy, str) and isinstance(overflow, str)
    return plan.choices[0] if single else plan


def _is_one(seq_len: Any) -> bool:
    return not isinstance(seq_len, (list, tuple, range, np.ndarray))


def _listed(words: str | Sequence[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)


def line_of(source: Any) -> Bounded:
    """Documents in order: of a store, of a part of it, or lengths alone."""
    if isinstance(source, Store):
        return WholeLine(source.reader)
    if isinstance(source, Documents):
        return source.line
    lengths = np.asarray(source)
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise ConfigError(
            f"lengths: found {lengths.dtype} in {lengths.ndim}-D, allowed is a store, documents of "
            "one, or one axis of integers."
        )
    if lengths.size and lengths.min() < 0:
        raise ConfigError(f"lengths: found {lengths.min()}, allowed is 0 or more tokens.")
    return Lengths(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class Lengths:
    """Documents of which only the lengths are known."""

    edges: Int64

    @property
    def documents(self) -> int:
        return len(self.edges) - 1

    @property
    def tokens(self) -> int:
        return int(self.edges[-1])

    @property
    def identity(self) -> str:
        return hashlib.sha256(self.edges.tobytes()).hexdigest()

    def bounds(self, first: int, last: int) -> tuple[Int64, Int64]:
        return np.arange(first, last), self.edges[first : last + 1]
