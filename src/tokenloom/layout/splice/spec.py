"""How to splice: documents placed at chosen positions of a frame, by (document, t, s).

A *splice* takes K tokens of a document from document offset t on and puts them at frame offset s.
Letters, as in the published design: S tokens of a frame, L of a document, K of a splice.

::

    document  0 1 2 3 4 5 6          t = 2, K = 3            frame  . . 2 3 4 . .
                  └─t─┘                                             0 1 └─s = 2

`choices` says which (t, s) a document has, `shares` how often each is shown, `rows` turns row
numbers into spans. Costs come from lengths alone; no token is read.
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

__all__ = ["SpliceSpec"]

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
        mode: "splice", or "slide": frames full of a document, from every start; documents shorter
            than a frame come as a whole, or not at all without `adaptive_k`.
        content_start_mode: which (t, s) there are. "coverage_balanced": every start t that leaves
            K tokens, at the right end of the frame. "slide_within": every start and every offset,
            with shorter splices at the end of the document. "anchor_start": t = 0 at every offset.
            "cyclic_roll": as slide_within on a document whose end is followed by its begin.
        placement: where offsets are swept, "fit" the splice into the frame or let the frame's end
            "truncate" it.
        content_length: K; None is as many tokens as fit.
        content_stride: from one start to the next.
        offset_stride: from one offset to the next.
        min_copy_len: splices with fewer tokens are left out.
        include_tail: show the last start L - K, too, where the stride does not meet it.
        edge: "inside" the document, or "clip": starts run past both ends and the splice is what
            of it lies inside, so that every token is a target equally often.
        fill: "one" splice in a frame, or "pack": as many as have room, as segments of their own.
        alpha: prefer starts near the ends by (K / distance)^alpha.
        edge_mode: "continuous" weights, or "duplicate" starts near the ends at random (as it was
            done before).
        adaptive_k: splice documents shorter than K as a whole; else they are left out.
        offset_jitter: J; move splices to the left by 0 to J cells, another one at each visit.
        jitter_mode: go through the J + 1 offsets in "uniform" random order, or "low_discrepancy":
            one after the other, beginning anywhere.
        sampler: "enumerate" every (t, s) once; "quota": an exact share of an epoch for every
            document, its choices evenly spaced; "stream": the same for ever, shuffled.
        balance_mode: shares of documents: "by_coverage": as many as it has choices;
            "by_document": equal; "by_temperature": in proportion to measure ** tau.
        balance_tau: the temperature, 1 in proportion and 0 equal.
        balance_measure: of a document, its "length" or its "starts"; "starts" with edge="clip"
            unless told otherwise.
        epoch_length: examples of an epoch; None is as many as there are choices.
        max_epochs: the most times that a document's choices are shown in one epoch.
        doc_weights, doc_strides, doc_alphas: for each document, in the order of selection.
        doc_groups: a number for each document; groups get equal shares.
        shuffle_offsets, shuffle_content: go through offsets, or starts, in random order; a number
            shuffles inside stretches of that many. For "enumerate".
        offset_seed, content_seed: of these orders; the first also of jitter, the second also of
            duplicates.
        shuffle_per_epoch: another such order in every epoch.
        grid: show so many starts and so many offsets of each document, evenly spaced.
        roll_loss: train across the seam of "cyclic_roll".
        bos_id: a token before every document, as if it were its first.
        eos_id: a token in the last filler cell before a splice.
        content_schedule: (example, K) pairs: from that example on K is another.
        doc_schedule: (example, documents) pairs: from that example on so many of them.
        doc_growth: (epoch, documents) pairs: from that epoch on so many of them.
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
        """A splice has no token behind its last one that it would predict."""
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
                f"max_epochs: found {self.max_epochs}, allowed is more than 0, or None for no cap."
            )
        for name, low in (("doc_strides", 1), ("doc_alphas", 0), ("doc_weights", 0)):
            for place, found in enumerate(getattr(self, name) or ()):
                check_between(f"{name}[{place}]", found, low)

    def _check_orders(self) -> None:
        for name in ("offset_seed", "content_seed"):
            try:
                check_seed(getattr(self, name))
            except ConfigError as error:
                raise ConfigError(str(error).replace("seed", name, 1)) from None
        for name in ("shuffle_offsets", "shuffle_content"):
            found = getattr(self, name)
            if not isinstance(found, bool) and found < 1:
                raise ConfigError(
                    f"{name}: found {found}, allowed is True, False, or a length of 1 or more."
                )
        if (self.shuffle_offsets or self.shuffle_content) and self.sampler != "enumerate":
            raise ConfigError(
                f"shuffle_offsets, shuffle_content: found them with sampler={self.sampler!r}; they "
                "are orders of an enumeration. Take sampler='enumerate', or shuffle the dataset."
            )
        if self.grid is not None and (len(self.grid) != 2 or min(self.grid) < 1):
            raise ConfigError(
                f"grid: found {self.grid}, allowed are two numbers of 1 or more: starts, offsets."
            )

    def _check_schedules(self) -> None:
        for name in ("content_schedule", "doc_schedule", "doc_growth"):
            pairs: tuple[tuple[int, ...], ...] = getattr(self, name)
            begins = [pair[0] for pair in pairs if len(pair) == 2]
            ascending = all(a < b for a, b in itertools.pairwise(begins))
            if pairs and (len(begins) < len(pairs) or begins[0] != 0 or not ascending):
                raise ConfigError(
                    f"{name}: found {pairs}, allowed are pairs (from, value) that begin with 0 and "
                    "ascend, such as ((0, 2), (6400, 4))."
                )
            if any(pair[1] < 1 for pair in pairs):
                raise ConfigError(f"{name}: found {pairs}, allowed are values of 1 or more.")
        if self.doc_growth and (self.doc_schedule or self.content_schedule):
            raise ConfigError(
                "doc_growth: counts epochs, and doc_schedule and content_schedule count examples. "
                "Give one of the two kinds."
            )
        if self.content_schedule and self.content_length is not None:
            raise ConfigError(
                f"content_length: found {self.content_length} beside content_schedule. Give one."
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
                raise ConfigError(f"{name}: found {found!r} with a grid, which is fixed.")
        if self.mode == "slide" and (self.content_length or self.seq_len) < self.seq_len:
            raise ConfigError(
                f"content_length: found {self.content_length} with mode='slide', whose windows are "
                f"{self.seq_len} tokens long. Leave it out, or take mode='splice'."
            )
        if edged and self.edge == "clip":
            raise ConfigError(
                f"alpha: found {self.alpha} with edge='clip', which shows every token equally "
                "often already. Give one of them."
            )
        if edged and self.include_tail:
            raise ConfigError(
                f"include_tail: found it with alpha={self.alpha}, whose weights are for starts at "
                "equal distances. Give one of them."
            )
        if self.sampler == "enumerate" and self.epoch_length is not None:
            raise ConfigError(
                f"epoch_length: found {self.epoch_length} with sampler='enumerate', which shows "
                "everything once. Take sampler='quota'."
            )
        if self.roll_loss and self.content_start_mode != "cyclic_roll":
            raise ConfigError("roll_loss: it is for content_start_mode='cyclic_roll'.")

    def per_document(self, name: str, documents: int) -> Any:
        """A setting that has a value for each document, checked for their number."""
        found = getattr(self, name)
        if found is not None and len(found) != documents:
            raise ConfigError(
                f"{name}: found {len(found)} values for {documents} documents. Give one for each, "
                "in the order in which they were selected."
            )
        return found
