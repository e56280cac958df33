"""Which documents explain what is above the usual: scores, a threshold, and one after the other.

One idea: the loss above the usual of a unit (a row, a step, or a document in a row) is the sum of
what its documents add, each by its share of the tokens, and noise. A document's score is its least
squares estimate, taken alone, over its standard error. The highest is named if it is above the
threshold, its part is taken away, and the others are scored again: so those that only share rows
with it are not named beside it. The named are estimated together in the end.

The threshold is found by chance itself. Losses are dealt anew to the units, again and again; if no
document matters, the highest score of the real deal is above those of `deals` others with
probability 1 / (deals + 1). What lies beyond the tail of all the others is cut down to it first
(`tokenloom.inspect.suspects.usual.tail_level`), or what is looked for would hide itself. So the
bound holds if that tail is no heavier than an exponential one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.inspect.suspects.usual import deviation, tail_level
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations

__all__ = ["MOST_NAMED", "Incidence", "Scored", "name_documents", "rivals_of"]

Float64 = NDArray[np.float64]

Int64 = NDArray[np.int64]

MOST_NAMED = 64

RIVALS = 32  # that are listed

TOLD_APART = 9.0  # squared standard deviations: three


class Incidence(NamedTuple):
    """Which documents are in which units.

    Attributes:
        units: number of units.
        documents: number of documents.
        unit, document: the pairs, each once [pairs].
        share: weight of the document in the unit [pairs].
    """

    units: int
    documents: int
    unit: Int64
    document: Int64
    share: Float64


class Scored(NamedTuple):
    """Estimates of documents.

    Attributes:
        effect, error: of every document, taken alone; of the named ones, all together [documents].
        score: effect over error [documents].
        named: the named documents, in order of naming.
        threshold: the score above which a document is named.
        noise: standard deviation of a unit.
        left: what the named documents leave of the losses [units].
    """

    effect: Float64
    error: Float64
    score: Float64
    named: list[int]
    threshold: float
    noise: float
    left: Float64


def name_documents(known: Incidence, above: Float64, false_positives: float) -> Scored:
    """Score all documents and name those that explain what is above the usual.

    Args:
        known: which documents are in which units.
        above: loss above the usual of every unit [units].
        false_positives: the probability that anybody is named if no document matters.
    """
    noise = max(deviation(above), 1e-12)
    weight = _weight(known)
    error = noise / np.sqrt(np.maximum(weight, 1e-300))
    threshold = _threshold(known, above, error, false_positives)
    left = above.copy()
    named: list[int] = []
    together, errors = np.empty(0), np.empty(0)
    while len(named) < MOST_NAMED:
        effect = _alone(known, left, weight)
        score = np.where(weight > 0, effect / error, -np.inf)
        score[named] = -np.inf
        best = int(score.argmax()) if len(score) else 0
        if not len(score) or score[best] <= threshold:
            break
        named.append(best)
        together, errors, left = _together(known, above, named, noise)
    effect = _alone(known, left, weight)
    effect[named], error[named] = together, errors
    score = np.where(weight > 0, effect / np.maximum(error, 1e-300), -np.inf)
    return Scored(effect, error, score, named, threshold, noise, left)


def _weight(known: Incidence) -> Float64:
    """The sum of the squared shares of every document."""
    found = np.bincount(known.document, known.share**2, known.documents)
    return found.astype(np.float64)


def _alone(known: Incidence, above: Float64, weight: Float64) -> Float64:
    """The effect of every document as if it were the only one."""
    sums = np.bincount(known.document, known.share * above[known.unit], known.documents)
    return sums / np.maximum(weight, 1e-300)


def _threshold(known: Incidence, above: Float64, error: Float64, false_positives: float) -> float:
    """The highest score of any document, in as many new deals of the losses as it takes."""
    usual = np.minimum(above, tail_level(above, false_positives))
    weight = _weight(known)
    deals, highest = max(1, round(1 / false_positives) - 1), 0.0
    every = np.arange(len(above)).astype(np.uint64)
    for number in range(deals):
        order = permutations(len(above), [key(number, "blame", "deal")], "feistel")
        dealt = usual[order.forward(every).view(np.int64)]
        score = _alone(known, dealt, weight) / error
        highest = max(highest, float(score[weight > 0].max(initial=0.0)))
    return highest


def _together(
    known: Incidence, above: Float64, named: list[int], noise: float
) -> tuple[Float64, Float64, Float64]:
    """Effects and errors of some documents together, and what they leave of the losses."""
    place = np.full(known.documents, -1)
    place[named] = np.arange(len(named))
    here = np.flatnonzero(place[known.document] >= 0)
    units, row = np.unique(known.unit[here], return_inverse=True)
    # [units that hold any of them, named]
    table = np.zeros((len(units), len(named)))
    table[row, place[known.document[here]]] = known.share[here]
    effect = np.linalg.lstsq(table, above[units], rcond=1e-9)[0].astype(np.float64)
    errors = noise * np.sqrt(np.maximum(np.diag(np.linalg.pinv(table.T @ table)), 0.0))
    left = above.copy()
    left[units] -= table @ effect
    return effect, errors, left


def rivals_of(known: Incidence, scored: Scored, document: int) -> list[tuple[int, int]]:
    """Documents that explain nearly as well what one named document explains.

    Those are the ones whose score, in its place, is so high that the sum of squares would grow by
    less than `TOLD_APART` times the noise: the same rows in the same shares give the same sum.

    Returns:
        (document, how many units hold only one of the two), the most alike first.
    """
    here = known.document == document
    own = known.unit[here]
    left = scored.left.copy()
    left[own] += known.share[here] * scored.effect[document]
    inside = np.zeros(known.units, bool)
    inside[own] = True
    weight = _weight(known)
    score = _alone(known, left, weight) * np.sqrt(weight) / scored.noise
    shared = np.bincount(known.document[inside[known.unit]], minlength=known.documents)
    shown = np.bincount(known.document, minlength=known.documents)
    near = (shared > 0) & (score > 0) & (score[document] ** 2 - score**2 < TOLD_APART)
    near[[document, *scored.named]] = False
    found = np.flatnonzero(near)
    found = found[np.argsort(-score[found], kind="stable")][:RIVALS]
    apart = len(own) + shown - 2 * shared
    return [(one, int(apart[one])) for one in found.tolist()]
