"""Whether a model cares where in the frame a text is: a diagnosis of trainers, in words.

One idea: with relative positions (RoPE, ALiBi, none at all) and documents that don't see each
other, moving a text changes nothing, so whatever changes has a cause, and which of three changes
it shows with tells which one:

- *moved*: the positions start at s, nothing is before the text. It changes if positions are
  absolute, or if angles are computed with too few bits: then little at first, and more with s.
- *after filler*: s cells of filler come first, positions start at 0. It changes if the text sees
  the filler: attention leaks.
- *both*: filler first, positions go on from it, as a splice at frame offset s has it.

A model that ignores its tokens would pass every comparison, so other tokens must change the answer,
or the report says that it proved nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.arguments import integer, wrong
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.models import NO_TARGET, JudgedRows, scorer_of
from tokenloom.random.keys import draws, key

KINDS = ("moved", "after filler", "both")


@dataclass(frozen=True, kw_only=True)
class PositionReport:
    """How far log-probabilities move when a text does; made by `check_position_invariance`.

    Attributes:
        offsets: cells that the text was moved by.
        moved, after_filler, both: the largest change at each offset, in nats; see the module.
        other_tokens: the change that other tokens before make: without one, nothing is proved.
        tolerance: changes up to this are none.
        model: what the model is.

    >>> nothing = (0.0, 0.0)
    >>> found = PositionReport(
    ...     offsets=(1, 8), moved=nothing, after_filler=(0.2, 0.3), both=(0.2, 0.3),
    ...     other_tokens=2.0, tolerance=1e-3, model="toy",
    ... )
    >>> found.verdict, found.ok
    ('leaks', False)
    """

    offsets: tuple[int, ...]
    moved: tuple[float, ...]
    after_filler: tuple[float, ...]
    both: tuple[float, ...]
    other_tokens: float
    tolerance: float
    model: str

    @property
    def ok(self) -> bool:
        """Whether moving a text changes nothing."""
        return self.verdict == "invariant"

    @property
    def verdict(self) -> str:
        """One of: invariant, leaks, absolute, imprecise, proves nothing."""
        if self.other_tokens <= self.tolerance:
            return "proves nothing"
        if max(self.after_filler) > self.tolerance:
            return "leaks"
        if max(self.moved) <= self.tolerance and max(self.both) <= self.tolerance:
            return "invariant"
        first = max(self.moved[0], self.both[0])
        return "absolute" if first > self.tolerance * 10 else "imprecise"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The verdict in words, and a table."""
        yield f"{self.verdict}: {_WORDS[self.verdict]}"
        yield f"{self.model}; changes of log-probabilities in nats, {self.tolerance:g} is none"
        yield f"{'offset':>8} {'moved':>10} {'after filler':>13} {'both':>10}"
        rows = zip(self.offsets, self.moved, self.after_filler, self.both, strict=True)
        for offset, *values in rows:
            yield "{:>8} {:>10.2g} {:>13.2g} {:>10.2g}".format(f"{offset:,}", *values)


_WORDS = {
    "invariant": (
        "a text has the same losses wherever it is. Sweeping frame offsets of splices teaches this "
        "model nothing: leave them out (position_scheme='relative')."
    ),
    "leaks": (
        "a text sees the filler before it. Packed documents will see each other, too: give the "
        "model a mask by segment ids, or a kernel that has one."
    ),
    "absolute": (
        "losses depend on the place in the frame from the first offset on: positions are learned "
        "or absolute. Train at the places that will be used (position_scheme='absolute'), or let "
        "positions start again with each document."
    ),
    "imprecise": (
        "losses hardly change at small offsets and more at large ones: positions are relative, but "
        "computed with too few bits. Compute the angles of RoPE in float32."
    ),
    "proves nothing": "other tokens change nothing either: this model ignores what comes before.",
}


def check_position_invariance(
    model: Any,
    *,
    vocab_size: int,
    length: int = 32,
    offsets: Sequence[int] = (1, 7, 32, 127),
    rows: int = 4,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> PositionReport:
    """Find out whether losses depend on where in the frame a text is, and why.

    Args:
        model: as for `tokenloom.evaluate.pz`.
        vocab_size: ids are drawn below this.
        length: tokens of a text.
        offsets: cells to move it by, ascending; the model must take `length` more than the largest.
        rows: texts that are tried.
        tolerance: changes up to this, in nats, are none.
        seed: of the texts.

    >>> table = np.random.default_rng(0).normal(size=(50, 20))
    >>> def absolute(tokens, segment_ids, position_ids):
    ...     return table[np.cumsum(tokens * segment_ids, 1) % 50] + table[::-1][position_ids % 50]
    >>> check_position_invariance(absolute, vocab_size=20).verdict
    'absolute'
    """
    integer("vocab_size", vocab_size, 2)
    integer("length", length, 2)
    integer("rows", rows, 1)
    given = tuple(integer("offsets", one, 1) for one in offsets)
    if not given or list(given) != sorted(set(given)):
        raise wrong("offsets", offsets, "ascending numbers of cells, for example (1, 7, 32, 127)")
    scorer = scorer_of(model)
    numbers = np.arange(3 * rows * length, dtype=np.uint64)
    ids = (draws(key(seed, "positions"), numbers) % np.uint64(vocab_size)).astype(np.int32)
    text, filler, other = ids.reshape(3, rows, length)
    with scorer.ready():
        here = _losses(scorer, text, filler, 0, "moved")
        changed = text.copy()
        changed[:, : length // 2] = other[:, : length // 2]
        apart = _losses(scorer, changed, filler, 0, "moved", targets=text)
        found = {
            kind: tuple(_far(here, _losses(scorer, text, filler, s, kind)) for s in given)
            for kind in KINDS
        }
    return PositionReport(
        offsets=given,
        moved=found["moved"],
        after_filler=found["after filler"],
        both=found["both"],
        other_tokens=_far(here[:, length // 2 :], apart[:, length // 2 :]),
        tolerance=tolerance,
        model=scorer.description,
    )


def _losses(
    scorer: Any, text: Any, filler: Any, offset: int, kind: str, targets: Any = None
) -> Any:
    """log-probabilities of the tokens of a text after its first."""
    rows, length = text.shape
    before = 0 if kind == "moved" else offset
    first = 0 if kind == "after filler" else offset
    front = np.resize(filler, (rows, before)).astype(np.int32)
    tokens = np.concatenate([front, text], 1)
    segments = np.concatenate([np.zeros_like(front), np.ones_like(text)], 1)
    places = np.arange(before + length) - before + first
    positions = np.broadcast_to(np.maximum(places, 0), tokens.shape).astype(np.int32)
    wanted = np.full_like(tokens, NO_TARGET)
    wanted[:, before:-1] = (text if targets is None else targets)[:, 1:]
    rows_of = JudgedRows(tokens, segments, positions, wanted)
    return scorer(rows_of, Decoding()).log_probs.reshape(rows, -1)


def _far(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max())
