"""Validated packing settings: `PackSpec`.

One idea: every field affects the rows, so the whole record is part of a run's identity. A setting
that has no effect next to the others is refused, because it would be ignored silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenloom.arguments import check_between, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.layout.pack.packers import check_strategy
from tokenloom.random.keys import check_seed

SEQUENTIAL = "sequential"

OVERFLOWS = ("split", "truncate", "drop", "error")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackSpec:
    """How to pack; every field is part of a run's identity.

    Attributes:
        seq_len: tokens of a frame.
        strategy: "sequential", or one of `tokenloom.layout.pack.packers.STRATEGIES`.
        overflow: what to do with a document longer than a frame: "split" (nothing is lost),
            "truncate", "drop" or "error".
        stride: tokens that adjacent pieces of a split document share.
        mask_overlap: do not train shared tokens a second time.
        min_len, max_len: fewest and most source tokens of a document; others are left out.
        max_doc_tokens: use only the first this many tokens of a document.
        min_row_len: leave out rows with fewer tokens, counting inserted ones.
        max_docs_per_bin: most segments per row.
        bos_id, eos_id: token ids inserted before and after every document; None inserts nothing.
        lookahead: give every row one more cell, as the label of its last one.
        overlap: tokens that adjacent rows share, 0 or 1; 1 needs "sequential" and `lookahead`.
        shuffle_output: shuffle the rows of each group.
        shuffle_seed: seed for `shuffle_output`.
        group_docs, group_tokens: a group ends with its `group_docs`-th document, or with the one
            that brings it to `group_tokens` tokens, whichever comes first.
    """

    seq_len: int
    strategy: str = "best_fit_decreasing"
    overflow: str = "split"
    stride: int = 0
    mask_overlap: bool = True
    min_len: int = 1
    max_len: int | None = None
    max_doc_tokens: int | None = None
    min_row_len: int = 1
    max_docs_per_bin: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    lookahead: bool = False
    overlap: int = 0
    shuffle_output: bool = False
    shuffle_seed: int = 0
    group_docs: int = 10_000
    group_tokens: int = 1 << 25

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.shuffle_seed, "shuffle_seed")
        check_between("seq_len", self.seq_len, 2, 1 << 30, unit="tokens")
        if self.strategy != SEQUENTIAL:
            # an alias would give the same rows another identity
            object.__setattr__(self, "strategy", check_strategy(self.strategy, (SEQUENTIAL,)))
        one_of("overflow", self.overflow, OVERFLOWS)
        _check_counts(self)
        why = ": a piece must have a token that the previous one does not have"
        check_between("stride", self.stride, 0, self.width - 1, why=why)
        if self.overlap not in (0, 1) or (self.overlap and not self.lookahead):
            raise ConfigError(
                f"overlap: found {self.overlap}, allowed: 0, or 1 with lookahead=True."
            )
        _check_together(self)

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.seq_len + self.lookahead


def _check_counts(spec: PackSpec) -> None:
    names = ("min_len", "max_len", "max_doc_tokens", "min_row_len", "max_docs_per_bin")
    for name in (*names, "group_docs", "group_tokens"):
        check_between(name, getattr(spec, name), 1)
    check_between("max_len", spec.max_len, spec.min_len, why=" (min_len)")
    for name in ("bos_id", "eos_id"):
        check_between(name, getattr(spec, name), 0, (1 << 31) - 1, why=", a token id")


def _check_together(spec: PackSpec) -> None:
    """Refuses settings that do not apply to the strategy: they would be ignored silently."""
    wrong: dict[str, bool] = {
        "overlap": spec.strategy != SEQUENTIAL and spec.overlap > 0,
        "stride": spec.stride > 0 and (spec.strategy == SEQUENTIAL or spec.overflow != "split"),
        "overflow": spec.strategy == SEQUENTIAL and spec.overflow != "split",
        "max_docs_per_bin": spec.strategy == SEQUENTIAL and spec.max_docs_per_bin is not None,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigError(
                f"{name}: found {getattr(spec, name)} with strategy={spec.strategy!r} and "
                f"overflow={spec.overflow!r}, where it has no effect. Leave it out."
            )
