"""Logits in the memory of the CPU: the steps of `tokenloom.evaluate.decoding` in few passes.

One idea: judging one token of a row needs no sorted vocabulary. Exponentials are float32, their
sums float64, and rows are taken in pieces that stay in the cache.

- top-k: the k-th largest of a few hundred group maxima is no larger than the k-th largest logit, so
  the k largest are among the few logits that reach it.
- top-p: the mass of all logits that are less than some nats below the largest grows with these
  nats, so halving finds the eighth of a nat in which it reaches p, and only what lies there is
  sorted.
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

STEPS, PER_NAT = 256, 8  # the last step holds everything that is 32 nats and more below the largest

SPREAD = 4  # groups for each of the k largest


def rows_at_once(vocabulary: int) -> int:
    """How many rows of logits are reduced fastest.

    >>> rows_at_once(2048), rows_at_once(1_000_000)
    (128, 1)
    """
    return max(1, PIECE // vocabulary)


class _Rows(NamedTuple):
    """Some logits of each row, side by side; -inf where there is none.

    Attributes:
        logits: [rows, vocabulary].
        scores: [rows, some], those that are asked about.
        top: the largest of each row.
        own: that of the row's token.
        token: its id.
        warmth: T.
    """

    logits: Float32
    scores: Float32
    top: Float32
    own: Float32
    token: Int64
    warmth: float

    def over_top(self, scores: Float32) -> Float32:
        """Scores of the rows minus the largest, over T: 0 and less, -inf for none."""
        found = scores - self.top[:, None]
        if self.warmth != 1:
            found *= np.float32(1 / self.warmth)
        return found

    def equal_before(self, some: Int64) -> Int64:
        """How many tokens with a lower id have the logit of the row's token, of some rows."""
        lower = np.arange(self.logits.shape[1]) < self.token[some, None]
        equal = (self.logits[some] == self.own[some, None]) & lower
        return np.asarray(equal.sum(1), np.int64)


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
        log_probs = _log_probs(_Rows(logits, logits, top, own, tokens, decoding.T), decoding)
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
    over = rows.over_top(rows.scores)
    share = 1.0 if decoding.top_p is None else decoding.top_p
    mass = np.exp(over, out=None if share < 1 else over)
    total = mass.sum(1).astype(np.float64)  # NumPy adds in pairs: a few units in the last place
    if share < 1:
        enough = total * max(share - SLACK, SLACK)
        total, inside = _most_likely(rows, over, mass, enough, total - enough)
        allowed &= inside
    lead = (rows.own.astype(np.float64) - rows.top) / decoding.T
    return np.where(allowed, lead - np.log(total), -np.inf)


def _largest(rows: _Rows, k: int) -> tuple[_Rows, Bools]:
    """The k largest of each row and what equals the last of them; whether the token is among them.

    >>> some, three = np.float32([[3, 1, 2, 2]]), np.float32([3])
    >>> rows = _Rows(some, some, three, three, np.array([0]), 1.0)
    >>> found, among = _largest(rows, 2)
    >>> sorted(found.scores[np.isfinite(found.scores)].tolist()), among.tolist()
    ([2.0, 2.0, 3.0], [True])
    """
    count, size = rows.scores.shape
    groups = SPREAD * k
    if 2 * groups > size:
        some = rows.scores
    else:
        whole = rows.scores[:, : size - size % groups].reshape(count, -1, groups)
        bound = _kth(whole.max(1), k)
        some = _packed(rows.scores, rows.scores >= bound[:, None])
    least = _kth(some, k)
    kept = np.where(some >= least[:, None], some, np.float32(-np.inf))
    return rows._replace(scores=kept), rows.own >= least


def _kth(scores: Float32, k: int) -> Float32:
    place = scores.shape[1] - k
    return np.partition(scores, place, 1)[:, place]


def _packed(scores: Float32, chosen: Bools) -> Float32:
    """The chosen ones of each row side by side; -inf where a row has fewer.

    >>> _packed(np.float32([[5, 6, 7], [8, 9, 4]]), np.array([[0, 1, 1], [0, 1, 0]], bool))
    array([[  6.,   7.],
           [  9., -inf]], dtype=float32)
    """
    place = np.flatnonzero(chosen)
    row = place // chosen.shape[1]
    counts = np.bincount(row, minlength=len(scores))
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.full((len(scores), int(counts.max(initial=0))), -np.inf, np.float32)
    found[row, column] = scores.ravel()[place]
    return found


def _most_likely(
    rows: _Rows, over: Float32, mass: Float32, enough: Float64, spare: Float64
) -> tuple[Float64, Bools]:
    """The mass of the most likely ones when it first is enough; whether the token is among them.

    Args:
        rows: the logits.
        over: the same minus the largest, over T.
        mass: of each.
        enough: the mass that is asked for, of each row.
        spare: the mass that is left then.
    """
    high, low = _step_of(over, mass, enough, spare)
    larger = over > high
    before = (mass * larger).sum(1).astype(np.float64)
    scores = _packed(rows.scores, (over > low) ^ larger)
    ranked = -np.sort(-np.exp(rows.over_top(scores)), 1)
    after = before[:, None] + np.cumsum(ranked, 1, dtype=np.float64)
    last = np.minimum((after < enough[:, None]).sum(1), after.shape[1] - 1)
    own = rows.own[:, None]
    rank = (scores > own).sum(1)
    tied = np.flatnonzero((scores == own).sum(1) > 1)
    if len(tied):  # of equal ones the lowest ids
        rank[tied] += rows.equal_before(tied)
    mine = rows.over_top(own)
    inside = (mine > high) | ((mine > low) & (rank <= last)[:, None])
    return after[np.arange(len(last)), last], inside[:, 0]


def _step_of(
    over: Float32, mass: Float32, enough: Float64, spare: Float64
) -> tuple[Float32, Float32]:
    """Between which two edges below the largest the mass of each row reaches what is enough.

    >>> over = np.float32([[0, -0.2, -0.3, -40]])
    >>> high, low = _step_of(over, np.exp(over), np.array([1.9]), np.array([0.6]))
    >>> high.tolist(), low.tolist()
    ([[-0.25]], [[-0.375]])
    """
    edges = np.arange(STEPS + 1, dtype=np.float32) / np.float32(-PER_NAT)
    edges[0], edges[-1] = np.inf, -np.inf
    # what is e nats below the largest has at most exp(-e) each, so little of it can be spared
    far = np.ceil(PER_NAT * np.log(over.shape[1] / spare)) + 1
    first, last = np.zeros(len(enough), np.int64), np.clip(far, 1, STEPS).astype(np.int64)
    while (last - first).max() > 1:
        middle = (first + last) >> 1
        larger = (over > edges[middle, None]).astype(np.float32)
        small = (mass[:, None] @ larger[:, :, None])[:, 0, 0] < enough  # the fastest masked sum
        first, last = np.where(small, middle, first), np.where(small, last, middle)
    return edges[first, None], edges[last, None]
