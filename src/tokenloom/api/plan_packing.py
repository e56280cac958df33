"""`plan_packing`: what packing costs for a store, for a part of it, or for lengths alone."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from tokenloom.api.documents import Documents
from tokenloom.arguments import field_names, near_misses
from tokenloom.arrays import Int64
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.trained import trained_in
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError
from tokenloom.layout.pack.compare import SIMPLE, PackingChoice, PackingPlan, compare_packings
from tokenloom.layout.pack.rows import Bounded, Groups, Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.order.working_set import loss_columns

COMBINED = ("seq_len", "strategy", "overflow")  # each may have several values


class PackOptions(TypedDict, total=False):
    """Arguments of `plan_packing` that are the same for all combinations."""

    stride: int
    mask_overlap: bool
    min_len: int
    max_len: int | None
    max_doc_tokens: int | None
    min_row_len: int
    max_docs_per_bin: int | None
    add_bos: bool
    add_eos: bool
    bos_id: int | None
    eos_id: int | None
    lookahead: bool
    overlap: int
    shuffle_output: bool
    shuffle_seed: int
    group_docs: int
    group_tokens: int


@overload
def plan_packing(
    source: Documents | ArrayLike,
    *,
    seq_len: int,
    strategy: str,
    overflow: str = "split",
    **options: Unpack[PackOptions],
) -> PackingChoice: ...


@overload
def plan_packing(
    source: Documents | ArrayLike,
    *,
    seq_len: int | Sequence[int],
    strategy: str | Sequence[str] | None = None,
    overflow: str | Sequence[str] = "split",
    **options: Unpack[PackOptions],
) -> PackingChoice | PackingPlan: ...


@near_misses("plan_packing")
def plan_packing(
    source: Documents | ArrayLike,
    *,
    seq_len: int | Sequence[int],
    strategy: str | Sequence[str] | None = None,
    overflow: str | Sequence[str] = "split",
    stride: int = 0,
    mask_overlap: bool = True,
    min_len: int = 1,
    max_len: int | None = None,
    max_doc_tokens: int | None = None,
    min_row_len: int = 1,
    max_docs_per_bin: int | None = None,
    add_bos: bool = False,
    add_eos: bool = False,
    bos_id: int | None = None,
    eos_id: int | None = None,
    lookahead: bool = False,
    overlap: int = 0,
    shuffle_output: bool = False,
    shuffle_seed: int = 0,
    group_docs: int = 10_000,
    group_tokens: int = 1 << 25,
) -> PackingChoice | PackingPlan:
    """What packing would cost, exactly as `Store.pack` would do it; no token is read.

    If the store has a loss column, its trained tokens are counted from the counts kept with it.

    Args:
        source: a store, documents of one, or the lengths of documents.
        seq_len: tokens of a frame, one length or several.
        strategy: one, several, or None for the usual ones.
        overflow: "split", "truncate", "drop", "error", or several of them.
        stride: tokens that adjacent pieces of a split document share. This and all that follow are
            as in `Store.pack`, the same for all combinations.
        mask_overlap: do not train shared tokens a second time.
        min_len: skip documents with fewer tokens.
        max_len: skip documents with more tokens.
        max_doc_tokens: use at most that many tokens of a document.
        min_row_len: skip rows with fewer tokens, counting inserted ones.
        max_docs_per_bin: maximum segments of a row.
        add_bos: count a BOS before every document.
        add_eos: count an EOS after every document.
        bos_id: same as `add_bos`; the value of the token does not matter here.
        eos_id: same as `add_eos`.
        lookahead: one more cell for each row, as the label of its last one.
        overlap: tokens that adjacent rows share, 0 or 1; for "sequential" with `lookahead`.
        shuffle_output: shuffle the rows of each group.
        shuffle_seed: seed of that shuffle.
        group_docs: maximum documents of a group; each group is packed by itself.
        group_tokens: a group also ends with the document that brings it to this many tokens.

    Returns:
        A `PackingChoice` (`rows`, `fill`, `tokens_lost`, `documents_cut`, …) for one length,
        strategy and overflow; otherwise a `PackingPlan`, which prints as a table with a
        recommendation.

    >>> choice = plan_packing([3, 2, 3, 9], seq_len=8, strategy="best_fit_decreasing")
    >>> choice.rows, choice.tokens_lost, choice.documents_cut
    (3, 0, 1)
    """
    given = locals()
    options = {name: given[name] for name in field_names(PackSpec) if name not in COMBINED}
    if add_bos and bos_id is None:
        options["bos_id"] = 0
    if add_eos and eos_id is None:
        options["eos_id"] = 0
    lengths: list[Any] = [seq_len] if _is_one(seq_len) else np.asarray(seq_len).tolist()
    strategies = list(SIMPLE) if strategy is None else _listed(strategy)
    line = line_of(source)
    count = _counter(line)
    plan = compare_packings(line, lengths, strategies, _listed(overflow), count, **options)
    single = _is_one(seq_len) and isinstance(strategy, str) and isinstance(overflow, str)
    return plan.choices[0] if single else plan


def _counter(line: Bounded) -> Callable[[PackSpec, Groups], int] | None:
    """Counts the trained predictions of a packing; None if all tokens are trained on."""
    if not isinstance(line, Line) or not loss_columns(line.reader):
        return None

    def count(spec: PackSpec, groups: Groups) -> int:
        layout, found = Packed(spec, line, groups), 0
        for first, last in itertools.pairwise(groups.first_row.tolist()):
            if last > first:
                spans = layout.spans(0, np.arange(first, last))
                found += int(trained_in(spans, spec.width, RenderSpec(), line).sum())
        return found

    return count


def _is_one(seq_len: Any) -> bool:
    return not isinstance(seq_len, (list, tuple, range, np.ndarray))


def _listed(words: str | Sequence[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)


def line_of(source: Any) -> Bounded:
    """Documents in order: of a store, of a part of it, or given by their lengths alone."""
    if isinstance(source, Documents):
        return source.line
    lengths = np.asarray(source)
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise ConfigError(
            f"lengths: found {lengths.dtype} in {lengths.ndim}-D, allowed: a store, documents of "
            "one, or one axis of integers."
        )
    if lengths.size and lengths.min() < 0:
        raise ConfigError(f"lengths: found {lengths.min()}, allowed: 0 or more tokens.")
    return _Lengths(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class _Lengths:
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
