"""Logits in the memory of the CPU: the steps of `tokenloom.evaluate.decoding` in few passes.

One idea: judging one token of a row needs no sorted vocabulary. Exponentials are float32, their
sums float64, and rows are taken in pieces that stay in the cache.

- top-k: the k-th largest of a few hundred group maxima is no larger than the k-th largest logit, so
  the k largest are among the few logits that reach it.
- top-p: masses are added up by bins of an eighth of a nat below the largest. The bin in which they
  reach p is found by adding bins, and only its own few logits are sorted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.evaluate.decoding import SLACK, Decoding, TokenScores

__all__ = ["rows_at_once", "scores_in_memory"]

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

PIECE = 1 << 18  # logits that are reduced together: 1 MiB

BINNED = 1 << 15  # the same where they are put into bins, which must stay in the cache, too

BINS, PER_NAT = 256, 8  # the last bin holds everything that is 32 nats and more below the largest

SPREAD = 4  # groups for each of the k largest


def rows_at_once(vocabulary: int, decoding: Decoding) -> int:
    """How many rows of logits are reduced fastest.

    >>> rows_at_once(2048, Decoding()), rows_at_once(2048, Decoding(top_p=0.9))
    (128, 16)
    """
    return max(1, (PIECE if decoding.top_p is None else BINNED) // vocabulary)


class _Rows(NamedTuple):
    """Some logits of each row, side by side; -inf where there is none.

    Attributes:
        scores: [rows, some].
        ids: the tokens that they are of; None: those of all tokens.
        top: the largest of each row.
        own: that of the row's token.
        token: its id.
        warmth: T.
    """

    scores: Float32
    ids: Int64 | None
    top: Float32
    own: Float32
    token: Int64
    warmth: float

    def below(self, scores: Float32) -> Float32:
        """How far scores of the rows are below the largest, over T: from 0 up, inf for none."""
        found = self.top[:, None] - scores
        return found if self.warmth == 1 else found * np.float32(1 / self.warmth)


def scores_in_memory(logits: Float32, tokens: Int64, decoding: Decoding) -> TokenScores:
    """What `token_scores` says, up to the rounding of float32.

    Args:
        logits: [rows, vocabulary], float32; see `rows_at_once`.
        tokens: [rows], ids in the vocabulary.
        decoding: the way of decoding.

    >>> found = scores_in_memory(np.zeros((1, 4), np.float32), np.array([3]), Decoding(top_k=2))
    >>> found.log_probs.round(6).tolist(), found.greedy.tolist()  # ties with the second stay
    ([-1.386294], [False])
    """
    top = logits.max(1)
    wrong = ~np.isfinite(top)
    if wrong.any():
        logits = np.where(wrong[:, None], np.float32(0), logits)
        top = np.where(wrong, np.float32(0), top)
    own = logits[np.arange(len(tokens)), tokens]
    greedy, margins = _compared(logits, tokens, own, top)
    if decoding.T == 0:
        log_probs = np.where(greedy, 0.0, -np.inf)
    else:
        log_probs = _log_probs(_Rows(logits, None, top, own, tokens, decoding.T), decoding)
    log_probs[wrong], greedy[wrong] = np.nan, False
    return TokenScores(log_probs, greedy, margins)


def _compared(
    logits: Float32, tokens: Int64, own: Float32, top: Float32
) -> tuple[Bools, NDArray[np.float32]]:
    """Whether each token is the greedy one, and its lead over the best other one."""
    margins = own - top
    greedy = own == top
    first = np.flatnonzero(greedy)
    if len(first):
        some, its = logits[first], tokens[first]
        greedy[first] = some.argmax(1) == its  # of equal ones the first
        some[np.arange(len(first)), its] = -np.inf
        margins[first] = own[first] - some.max(1)
    return greedy, margins


def _log_probs(rows: _Rows, decoding: Decoding) -> Float64:
    allowed = np.ones(len(rows.own), bool)
    if decoding.top_k is not None and decoding.top_k < rows.scores.shape[1]:
        rows, allowed = _largest(rows, decoding.top_k)
    below = rows.below(rows.scores)
    mass = np.exp(-below)
    total = mass.sum(1, dtype=np.float64)
    if decoding.top_p is not None and decoding.top_p < 1:
        enough = total * max(decoding.top_p - SLACK, SLACK)
        total, inside = _most_likely(rows, _bins(below), mass, enough)
        allowed &= inside
    lead = (rows.own.astype(np.float64) - rows.top) / decoding.T
    return np.where(allowed, lead - np.log(total), -np.inf)


def _largest(rows: _Rows, k: int) -> tuple[_Rows, Bools]:
    """The k largest of each row and what equals the last of them; whether the token is among them.

    >>> three = np.float32([3])
    >>> rows = _Rows(np.float32([[3, 1, 2, 2]]), None, three, three, np.array([0]), 1.0)
    >>> found, among = _largest(rows, 2)
    >>> sorted(found.scores[np.isfinite(found.scores)].tolist()), among.tolist()
    ([2.0, 2.0, 3.0], [True])
    """
    count, size = rows.scores.shape
    groups = SPREAD * k
    if 2 * groups > size:
        some, ids = rows.scores, None
    else:
        whole = rows.scores[:, : size - size % groups].reshape(count, -1, groups)
        bound = _kth(whole.max(1), k)
        some, ids = _packed(rows.scores, rows.scores >= bound[:, None])
    least = _kth(some, k)
    kept = np.where(some >= least[:, None], some, np.float32(-np.inf))
    return rows._replace(scores=kept, ids=ids), rows.own >= least


def _kth(scores: Float32, k: int) -> Float32:
    place = scores.shape[1] - k
    return np.partition(scores, place, 1)[:, place]


def _packed(scores: Float32, chosen: Bools) -> tuple[Float32, Int64]:
    """The chosen ones of each row side by side, and their places; -inf where a row has fewer.

    >>> _packed(np.float32([[5, 6, 7], [8, 9, 4]]), np.array([[0, 1, 1], [0, 1, 0]], bool))[0]
    array([[  6.,   7.],
           [  9., -inf]], dtype=float32)
    """
    row, place = np.divmod(np.flatnonzero(chosen), chosen.shape[1])
    counts = np.bincount(row, minlength=len(scores))
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    wide = int(counts.max(initial=0))
    found = np.full((len(scores), wide), -np.inf, np.float32)
    ids = np.zeros((len(scores), wide), np.int64)
    found[row, column], ids[row, column] = scores[row, place], place
    return found, ids


def _bins(below: Float32) -> Int64:
    """The bin of each; 0 holds the largest.

    >>> _bins(np.float32([0, 0.2, 31, 99, np.inf])).tolist()
    [0, 1, 248, 255, 255]
    """
    return np.minimum(below * np.float32(PER_NAT), np.float32(BINS - 1)).astype(np.int64)


def _most_likely(
    rows: _Rows, place: Int64, mass: Float32, enough: Float64
) -> tuple[Float64, Bools]:
    """The mass of the most likely ones when it first is enough; whether the token is among them.

    Args:
        rows: the logits.
        place: their bins.
        mass: of each.
        enough: the mass that is asked for, of each row.
    """
    every = np.arange(len(enough))
    number = place + BINS * every[:, None]
    summed = np.bincount(number.ravel(), mass.ravel(), BINS * len(enough)).reshape(-1, BINS)
    summed = np.cumsum(summed, 1)
    crossed = np.minimum((summed < enough[:, None]).sum(1), BINS - 1)
    before = np.where(crossed > 0, summed[every, crossed - 1], 0.0)
    scores, ids = _packed(rows.scores, place == crossed[:, None])
    if rows.ids is not None:
        ids = np.take_along_axis(rows.ids, ids, 1)
    ranked = -np.sort(-np.exp(-rows.below(scores)), 1)
    after = before[:, None] + np.cumsum(ranked, 1, dtype=np.float64)
    last = np.minimum((after < enough[:, None]).sum(1), after.shape[1] - 1)
    own = rows.own[:, None]
    rank = ((scores > own) | ((scores == own) & (ids < rows.token[:, None]))).sum(1)
    mine = _bins(rows.below(own))[:, 0]
    inside = (mine < crossed) | ((mine == crossed) & (rank <= last))
    return after[every, last], inside
