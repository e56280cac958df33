"""Sums by key that no order of adding changes.

One idea: float64 additions round, so a sum depends on who added what first. Here a loss is split
into two integers, multiples of 2^-20 and of 2^-60, and integers add up without rounding. So the
losses of four ranks, or of other batches, have the sum that one rank finds, to the last bit, and
results are put together by adding.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LossTally"]

Int64 = NDArray[np.int64]

HIGH, LOW = 20, 40  # bits after the point; further bits of the rest

MOST = 1 << 22  # tokens that are added at once: their rests stay below 2^62


class LossTally(NamedTuple):
    """Losses of tokens, summed by key; keys ascend.

    Attributes:
        key: what the tokens of a sum have in common, for example their document.
        tokens: how many have a finite loss.
        never: how many have probability 0; their losses are in no sum.
        text: bytes of the text that the tokens stand for, both kinds together.
        greedy: how many greedy decoding would have given.
        high, low: the sum of losses in nats, as multiples of 2^-20 and 2^-60.

    >>> one = LossTally.of(np.array([5, 3, 5]), np.array([0.1, 0.3, 0.2]))
    >>> one.key.tolist(), one.tokens.tolist(), one.nats().tolist() == [0.3, 0.1 + 0.2]
    ([3, 5], [1, 2], True)
    >>> LossTally.joined([one, one]).tokens.tolist()
    [2, 4]
    """

    key: Int64
    tokens: Int64
    never: Int64
    text: Int64
    greedy: Int64
    high: Int64
    low: Int64

    @staticmethod
    def of(
        key: Int64,
        losses: NDArray[np.float64],
        text: Int64 | None = None,
        greedy: NDArray[np.bool_] | None = None,
    ) -> LossTally:
        """The sums of some tokens.

        Args:
            key: of each token.
            losses: of each, in nats, from 0; inf for a token of probability 0.
            text: bytes that each stands for.
            greedy: whether greedy decoding gives it.
        """
        finite = np.isfinite(losses)
        scaled = np.where(finite, losses, 0.0) * (1 << HIGH)
        whole = np.floor(scaled)
        rest = np.rint((scaled - whole) * (1 << LOW)).astype(np.int64)
        nothing = np.zeros(len(key), np.int64)
        columns = (
            finite.astype(np.int64),
            (~finite).astype(np.int64),
            nothing if text is None else text,
            nothing if greedy is None else greedy.astype(np.int64),
            whole.astype(np.int64),
            rest,
        )
        parts = [
            _added(key[some], [column[some] for column in columns])
            for some in (slice(i, i + MOST) for i in range(0, max(1, len(key)), MOST))
        ]
        return parts[0] if len(parts) == 1 else LossTally.joined(parts)

    @staticmethod
    def joined(parts: Sequence[LossTally]) -> LossTally:
        """The sums of several, as if they had been one from the start."""
        key, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _added(key, columns)

    def nats(self) -> NDArray[np.float64]:
        """The sum of each key, rounded once."""
        pairs = zip(self.high.tolist(), self.low.tolist(), strict=True)
        return np.array([_rounded(high, low) for high, low in pairs], np.float64)

    def all(self) -> LossTally:
        """The sums of all keys together, under key 0."""
        return _added(np.zeros(len(self.key), np.int64), list(self[1:]))


def _added(key: Int64, columns: Sequence[Int64]) -> LossTally:
    keys, where = np.unique(key, return_inverse=True)
    sums = [np.zeros(len(keys), np.int64) for _ in columns]
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, where, column)
    tokens, never, text, greedy, high, low = sums
    high, low = high + (low >> LOW), low & ((1 << LOW) - 1)
    return LossTally(keys, tokens, never, text, greedy, high, low)


def _rounded(high: int, low: int) -> float:
    return float(Fraction((high << LOW) + low, 1 << (HIGH + LOW)))
