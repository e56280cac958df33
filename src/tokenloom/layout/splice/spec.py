"""How to splice: documents placed at chosen positions of a frame, by (document, t, s).

A *splice* takes K tokens of a document from document offset t on and puts them at frame offset s.
Letters, as in the published design: a frame has S tokens, a document L, a splice K.

::

    document  0 1 2 3 4 5 6          t = 2, K = 3            frame  . . 2 3 4 . .
                  └─t─┘                                             0 1 └─s = 2

`choices` says which (t, s) a document has, `shares` how often each is shown, and `rows` turns row
numbers into spans. Everything follows from lengths alone; no token is read.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from tokenloom.arguments import check_between, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.random.keys import check_seed

BALANCED = "coverage_balanced"

WORDS = {
    "mode": ("splice", "slide"),
    "content_start_mode": ("anchor_start", "slide_within", BALANCED, "cyclic_roll"),
    "placement": ("fit", "truncate"),
    "edge": ("inside", "clip"),
    "fill": ("one", "pack"),
    "edge_mode": ("continuous", "duplicate"),
    "jitter_mode": ("uniform", "low_discrepancy"),
    "sampler": ("enumerate", "quota", "stream"),
    "balance_mode": ("by_coverage", "by_document", "by_temperature"),
    "balance_measure": ("length", "starts"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SpliceSpec:
    """How to splice; every field is part of a run's identity.

    Attributes:
        seq_len: S, tokens of a frame.
        mode: "splice", or "slide": frames full of one document, from every start; documents shorter
            than a frame are shown whole, or left out without `adaptive_k`.
        content_start_mode: which (t, s) exist. "coverage_balanced": every start t that leaves K
            tokens, at the right end of the frame. "slide_within": every start at every offset,
            with shorter splices at the end of the document. "anchor_start": t = 0 at every offset.
            "cyclic_roll": as slide_within, but the document wraps around to its start.
        placement: when offsets are swept, "fit" keeps the whole splice inside the frame;
            "truncate" lets the end of the frame cut it off.
        content_length: K; None means as many tokens as fit: min(S, L), and S with edge="clip".
        content_stride: tokens from one start to the next.
        offset_stride: cells from one offset to the next.
        min_copy_len: splices with fewer tokens are skipped.
        include_tail: also show the last start, L - K, if the stride does not land on it.
        edge: "inside": splices lie inside the document; "clip": starts run past both ends and only
            the part inside is shown, so that every token is a target equally often, K - 1 times,
            also in documents shorter than K.
        fill: "one" splice per frame, or "pack": as many as fit, each a segment of its own.
        alpha: prefer starts near the ends by (K / distance)^alpha.
        edge_mode: "continuous" weights, or "duplicate": duplicate starts near the ends at random
            (the older method).
        adaptive_k: show documents shorter than the given K whole; otherwise they are left out.
        offset_jitter: J; shift splices left by 0 to J cells, differently at each visit.
        jitter_mode: visit the J + 1 offsets in random order ("uniform"), or one after the other
            from an arbitrary first one ("low_discrepancy").
        sampler: "enumerate": every (t, s) once; "quota": an exact share of an epoch for every
            document, its choices evenly spaced; "stream": as "quota", but endless and shuffled.
        balance_mode: shares of documents. "by_coverage": in proportion to their choices;
            "by_document": equal; "by_temperature": in proportion to measure ** tau.
        balance_tau: the temperature; 1 is proportional, 0 is equal.
        balance_measure: measure of a document, its "length" or its "starts"; default: "starts" with
            edge="clip", otherwise "length".
        epoch_length: examples per epoch, which are frames also with fill="pack"; default: as many
            as show every choice once. `max_epochs` can make an epoch shorter.
        max_epochs: most times that a document's choices are shown in one epoch.
        doc_weights, doc_strides, doc_alphas: one value per document, in the order of selection.
        doc_groups: group number of each document; groups get equal shares.
        shuffle_offsets, shuffle_content: visit offsets, or starts, in random order; a number n
            shuffles only inside stretches of n. Only for "enumerate".
        offset_seed, content_seed: seeds of these orders; the first is also the seed of jitter, the
            second of duplicates.
        shuffle_per_epoch: draw a new order in every epoch.
        grid: (starts, offsets) to show of each document, evenly spaced.
        roll_loss: train across the seam of "cyclic_roll".
        bos_id: token id inserted before every document, as if it were its first token.
        eos_id: token id put into the last filler cell before a splice.
        content_schedule: (example, K) pairs; each K applies from its example on.
        doc_schedule: (example, documents) pairs; each number of documents applies from its example
            on.
        doc_growth: (epoch, documents) pairs; each number of documents applies from its epoch on.
    """

    seq_len: int
    mode: str = "splice"
    content_start_mode: str = BALANCED
    placement: str = "fit"
    content_length: int | None = None
    content_stride: int = 1
    offset_stride: int = 1
    min_copy_len: int = 2
    include_tail: bool = False
    edge: str = "inside"
    fill: str = "one"
    alpha: float = 0.0
    edge_mode: str = "continuous"
    adaptive_k: bool = True
    offset_jitter: int = 0
    jitter_mode: str = "uniform"
    sampler: str | None = None
    balance_mode: str = "by_temperature"
    balance_tau: float = 1.0
    balance_measure: str | None = None
    epoch_length: int | None = None
    max_epochs: float | None = None
    doc_weights: tuple[float, ...] | None = None
    doc_strides: tuple[int, ...] | None = None
    doc_alphas: tuple[float, ...] | None = None
    doc_groups: tuple[int, ...] | None = None
    shuffle_offsets: bool | int = False
    offset_seed: int = 0
    shuffle_content: bool | int = False
    content_seed: int = 0
    shuffle_per_epoch: bool = True
    grid: tuple[int, ...] | None = None
    roll_loss: bool = False
    bos_id: int | None = None
    eos_id: int | None = None
    content_schedule: tuple[tuple[int, ...], ...] = ()
    doc_schedule: tuple[tuple[int, ...], ...] = ()
    doc_growth: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        enumerates = self.content_start_mode != BALANCED or self.mode == "slide" or self.grid
        usual = {
            "sampler": "enumerate" if enumerates else "quota",
            "balance_measure": "starts" if self.edge == "clip" else "length",
        }
        for name, value in usual.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_fields(self)
        self._check_words()
        self._check_numbers()
        self._check_orders()
        self._check_schedules()
        self._check_together()

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.seq_len

    @property
    def lookahead(self) -> bool:
        """Always False: a splice does not predict the token after its last one."""
        return False

    @property
    def sweeps(self) -> bool:
        """Whether a start is shown at several offsets in one epoch."""
        swept = self.content_start_mode != BALANCED and self.mode == "splice"
        return swept if self.grid is None else self.grid[1] > 1

    # -- checks ----------------------------------------------------------------------------

    def _check_words(self) -> None:
        for name, allowed in WORDS.items():
            one_of(name, getattr(self, name), allowed)

    def _check_numbers(self) -> None:
        check_between("seq_len", self.seq_len, 2, 1 << 30, unit="tokens")
        sizes = [self.content_length, *(pair[-1] for pair in self.content_schedule)]
        for size in sizes:
            why = ", or None for as many tokens as fit: one token has no successor to predict"
            check_between("content_length", size, 2, why=why)
        for name, low in (
            ("content_stride", 1),
            ("offset_stride", 1),
            ("min_copy_len", 1),
            ("offset_jitter", 0),
            ("epoch_length", 1),
        ):
            check_between(name, getattr(self, name), low)
        for name in ("alpha", "balance_tau"):
            check_between(name, getattr(self, name), 0)
        if self.max_epochs is not None and not 0 < self.max_epochs < math.inf:
            raise ConfigError(
                f"max_epochs: found {self.max_epochs}, allowed: more than 0, or None for no cap."
            )
        for name, low in (("doc_strides", 1), ("doc_alphas", 0), ("doc_weights", 0)):
            for place, found in enumerate(getattr(self, name) or ()):
                check_between(f"{name}[{place}]", found, low)

    def _check_orders(self) -> None:
        for name in ("offset_seed", "content_seed"):
            check_seed(getattr(self, name), name)
        for name in ("shuffle_offsets", "shuffle_content"):
            found = getattr(self, name)
            if not isinstance(found, bool) and found < 1:
                raise ConfigError(
                    f"{name}: found {found}, allowed: True, False, or a length of 1 or more."
                )
        if (self.shuffle_offsets or self.shuffle_content) and self.sampler != "enumerate":
            raise ConfigError(
                f"shuffle_offsets, shuffle_content: found with sampler={self.sampler!r}; they only "
                "order an enumeration. Use sampler='enumerate', or shuffle the dataset."
            )
        if self.grid is not None and (len(self.grid) != 2 or min(self.grid) < 1):
            raise ConfigError(
                f"grid: found {self.grid}, allowed: two numbers of 1 or more: starts, offsets."
            )

    def _check_schedules(self) -> None:
        for name in ("content_schedule", "doc_schedule", "doc_growth"):
            pairs: tuple[tuple[int, ...], ...] = getattr(self, name)
            begins = [pair[0] for pair in pairs if len(pair) == 2]
            ascending = all(a < b for a, b in itertools.pairwise(begins))
            if pairs and (len(begins) < len(pairs) or begins[0] != 0 or not ascending):
                raise ConfigError(
                    f"{name}: found {pairs}, allowed: pairs (from, value) that start at 0 and "
                    "ascend, such as ((0, 2), (6400, 4))."
                )
            if any(pair[1] < 1 for pair in pairs):
                raise ConfigError(f"{name}: found {pairs}, allowed: values of 1 or more.")
        if self.doc_growth and (self.doc_schedule or self.content_schedule):
            raise ConfigError(
                "doc_growth: found beside doc_schedule or content_schedule; it counts epochs, they "
                "count examples. Give only one kind."
            )
        if self.content_schedule and self.content_length is not None:
            raise ConfigError(
                f"content_length: found {self.content_length} with content_schedule. Give only one."
            )

    def _check_together(self) -> None:
        balanced = self.content_start_mode == BALANCED or self.mode == "slide"
        edged = self.alpha > 0 or any(self.doc_alphas or ())
        for wanted, name, found in (
            (edged, "alpha", self.alpha),
            (self.offset_jitter > 0, "offset_jitter", self.offset_jitter),
            (self.edge == "clip", "edge", self.edge),
            (self.fill == "pack", "fill", self.fill),
        ):
            if wanted and not balanced:
                raise ConfigError(
                    f"{name}: found {found!r} with content_start_mode="
                    f"{self.content_start_mode!r}, allowed only with {BALANCED!r}."
                )
            if wanted and self.grid is not None:
                raise ConfigError(
                    f"{name}: found {found!r} with a grid, whose places are fixed. Leave one out."
                )
        if self.mode == "slide" and (self.content_length or self.seq_len) < self.seq_len:
            raise ConfigError(
                f"content_length: found {self.content_length} with mode='slide', whose windows are "
                f"{self.seq_len} tokens long. Leave it out, or use mode='splice'."
            )
        if edged and self.edge == "clip":
            raise ConfigError(
                f"alpha: found {self.alpha} with edge='clip', which already shows every token "
                "equally often. Give only one of them."
            )
        if edged and self.include_tail:
            raise ConfigError(
                f"include_tail: found with alpha={self.alpha}, whose weights need evenly spaced "
                "starts. Give only one of them."
            )
        if self.sampler == "enumerate" and self.epoch_length is not None:
            raise ConfigError(
                f"epoch_length: found {self.epoch_length} with sampler='enumerate', which shows "
                "everything once. Use sampler='quota'."
            )
        if self.roll_loss and self.content_start_mode != "cyclic_roll":
            raise ConfigError(
                f"roll_loss: found True with content_start_mode={self.content_start_mode!r}, "
                "allowed only with 'cyclic_roll'."
            )

    def per_document(self, name: str, documents: int) -> Any:
        """A setting with one value per document, after checking the number of values."""
        found = getattr(self, name)
        if found is not None and len(found) != documents:
            raise ConfigError(
                f"{name}: found {len(found)} values for {documents} documents. Give one for each, "
                "in the order in which they were selected."
            )
        return found
