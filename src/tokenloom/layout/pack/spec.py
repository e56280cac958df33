"""The setting of a packing, checked: `PackSpec`.

One idea: every field decides rows, so the whole record is a run's identity; what means nothing
beside the other fields is refused, because it would be ignored silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError, near_miss
from tokenloom.layout.pack.packers import check_strategy
from tokenloom.random.keys import check_seed

__all__ = ["OVERFLOWS", "PackSpec"]

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
        stride: tokens that neighbouring pieces of a split document share.
        mask_overlap: do not train shared tokens a second time.
        min_len, max_len: source tokens that a document must have, may have; others are left out.
        max_doc_tokens: use only that many tokens of a document.
        min_row_len: leave out rows with fewer tokens, inserted ones counted.
        max_docs_per_bin: segments of a row, at most.
        bos_id, eos_id: put before and behind every document; None is nothing.
        lookahead: give every row one more cell, as the label of its last one.
        overlap: tokens that neighbouring rows share, 0 or 1; sequential, with `lookahead`.
        shuffle_output: rows of a group in shuffled order.
        shuffle_seed: of that order.
        group_docs, group_tokens: a group ends with its 10,000th document, or with the one
            that makes it 2^25 tokens, whichever comes first.
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
        check_seed(self.shuffle_seed)
        if not 2 <= self.seq_len <= 1 << 30:
            raise ConfigError(f"seq_len: found {self.seq_len}, allowed is 2 to 2^30 tokens.")
        if self.strategy != SEQUENTIAL:
            # an alias would be another identity of the same rows
            object.__setattr__(self, "strategy", check_strategy(self.strategy, (SEQUENTIAL,)))
        if self.overflow not in OVERFLOWS:
            raise ConfigError(
                f"overflow: found {self.overflow!r}, allowed: {', '.join(OVERFLOWS)}."
                f"{near_miss(self.overflow, OVERFLOWS)}"
            )
        _check_counts(self)
        if not 0 <= self.stride < self.width:
            raise ConfigError(
                f"stride: found {self.stride}, allowed is 0 to {self.width - 1}: a piece must have "
                f"something that the one before it has not."
            )
        if self.overlap not in (0, 1) or (self.overlap and not self.lookahead):
            raise ConfigError(
                f"overlap: found {self.overlap}, allowed is 0, and 1 with lookahead=True."
            )
        _check_together(self)

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.seq_len + self.lookahead


def _check_counts(spec: PackSpec) -> None:
    names = ("min_len", "max_len", "max_doc_tokens", "min_row_len", "max_docs_per_bin")
    for name in (*names, "group_docs", "group_tokens"):
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name}: found {value}, allowed is 1 or more.")
    if spec.max_len is not None and spec.max_len < spec.min_len:
        raise ConfigError(f"max_len: found {spec.max_len}, allowed is {spec.min_len} (min_len) up.")
    for name in ("bos_id", "eos_id"):
        value = getattr(spec, name)
        if value is not None and not 0 <= value < 1 << 31:
            raise ConfigError(f"{name}: found {value}, allowed is a token id, 0 to 2^31 - 1.")


def _check_together(spec: PackSpec) -> None:
    """Settings that mean nothing for the strategy are refused: they would be ignored silently."""
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
                f"overflow={spec.overflow!r}, where it means nothing. Leave it out."
            )
