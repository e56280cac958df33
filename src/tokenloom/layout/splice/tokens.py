"""How many stored tokens whole epochs of a phase have, without visiting their rows.

The units of a document nearly all have the same number of tokens. Which choices differ follows from
lengths, so the choices of a document fall into a few pieces of equal tokens. What whole epochs add
up to is closed: how often the choices of a piece were shown, times their tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.turns import Even, Wrapped

__all__ = ["UnitTokens"]

Int64 = NDArray[np.int64]

WORTH = 4  # rows for each piece; with fewer, adding up rows is as fast

FEW, OWN = 1 << 12, 16  # pieces that are always worth it: in all, and for each document


class UnitTokens(NamedTuple):
    """Stored tokens of the units of a phase, in pieces: choices of a document with equal tokens.

    Attributes:
        part: the phase.
        way: how documents visit their choices; None if every document is one piece.
        place: the document of each piece, ascending [pieces].
        first, last: its choices are [first, last) [pieces].
        tokens: stored tokens of each of its units [pieces].
    """

    part: SplicePhase
    way: Even | Wrapped | None
    place: Int64
    first: Int64
    last: Int64
    tokens: Int64

    @staticmethod
    def of(part: SplicePhase) -> UnitTokens | None:
        """The pieces of a phase; None if there are too many, or choices that come in no order."""
        shown = np.flatnonzero(part.quota > 0)
        if part.is_even:
            first = np.zeros_like(shown)
            return UnitTokens(part, None, shown, first, part.shown[shown], part.content[shown])
        way, breaks = part.way, part.breaks(shown)
        if way is None or breaks is None:
            return None
        keep = breaks[:, :-1] < breaks[:, 1:]
        place, first, last = shown[np.nonzero(keep)[0]], breaks[:, :-1][keep], breaks[:, 1:][keep]
        tokens = part.unit_tokens(place, first)
        # tokens change evenly from the first choice to the last: all equal if these two are
        size = np.where(tokens == part.unit_tokens(place, last - 1), 1, last - first)
        if size.sum() > max(FEW, OWN * len(shown), part.slots.rows // WORTH):
            return None
        each = np.repeat(np.arange(len(size)), size)
        inner = np.arange(len(each)) - (np.cumsum(size) - size)[each]
        single = size[each] > 1
        last = np.where(single, first[each] + inner + 1, last[each])
        place, first = place[each], first[each] + inner
        tokens = np.where(single, part.unit_tokens(place, first), tokens[each])
        new = np.append(True, (place[1:] != place[:-1]) | (tokens[1:] != tokens[:-1]))
        end = np.append(new[1:], True)
        return UnitTokens(part, way, place[new], first[new], last[end], tokens[new])

    @property
    def least(self) -> int:
        """The fewest tokens of a unit."""
        return int(self.tokens.min())

    def upto(self, epoch: int) -> int:
        """Stored tokens of all epochs before `epoch`, as if the phase started with epoch 0."""
        whole = self.last - self.first == self.part.shown[self.place]  # all choices of a document
        shown = self.part.quota[self.place] * epoch
        if self.way is not None and not whole.all():
            rest = np.flatnonzero(~whole)
            place, first, last = self.place[rest], self.first[rest], self.last[rest]
            shown[rest] = self.way.shown(place, first, last, epoch)
        pairs = zip(shown.tolist(), self.tokens.tolist(), strict=True)
        return sum(count * tokens for count, tokens in pairs)  # may exceed 64 bits
