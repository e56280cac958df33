"""P(z): how likely a model is to write a stretch of text by itself, and what follows from it.

A sequence z has a prefix of a tokens, which the model is given, and a suffix of k tokens:

    P(z) = product over the suffix of P(token | everything before it)

One pass over the sequence gives all factors. With 50 tokens a suffix has probabilities like
10^-60, so everything here is in logarithms and float64, and nothing is turned into a probability
before it is compared.

Whoever draws n continuations sees the suffix with probability ``1 - (1 - P(z))^n``. A sequence is
*(n, p)-discoverable* if that is at least p (Hayes et al.), which is the single threshold
``log P(z) >= log_threshold(n, p)``. Greedy extraction (Carlini et al.) asks whether the suffix is
what greedy decoding gives; one pass tells that, too, because every token before it is the true one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.arguments import integer, wrong
from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding, token_scores

Float64 = NDArray[np.float64]

TINY = -18.0  # below this log P(z), log1p(-P(z)) is -P(z) to the last bit


def log_pz(
    logits: ArrayLike,
    tokens: ArrayLike,
    prefix: int,
    *,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
) -> NDArray[np.float64] | np.float64:
    """The logarithm of P(z), from the logits of one pass.

    Args:
        logits: [..., tokens, vocabulary]; those at cell i predict token i + 1.
        tokens: [..., tokens], prefix and suffix together.
        prefix: tokens that are given, at least 1.
        decoding: the way of decoding.

    Returns:
        One float64 for each sequence; -inf if decoding can never give its suffix.

    >>> float(log_pz(np.zeros((4, 10)), [3, 1, 4, 1], prefix=2)) == -2 * math.log(10)
    True
    """
    scores, ids = np.asarray(logits), np.asarray(tokens)
    if scores.ndim != ids.ndim + 1 or scores.shape[:-1] != ids.shape:
        raise ConfigError(
            f"logits: found shape {list(scores.shape)} with tokens {list(ids.shape)}, allowed: "
            "[..., tokens, vocabulary] of the same tokens, as the model gives them."
        )
    length = ids.shape[-1]
    if not 1 <= integer("prefix", prefix) < length:
        raise wrong("prefix", prefix, f"1 to {length - 1}, so that {length} tokens have a suffix")
    each = token_scores(scores[..., prefix - 1 : -1, :], ids[..., prefix:], decoding).log_probs
    found: NDArray[np.float64] | np.float64 = each.sum(-1)
    return found


def log_threshold(n: int, p: float) -> float:
    """The least log P(z) that is seen with probability p among n draws.

    >>> round(math.exp(log_threshold(693, 0.5)), 6), math.exp(log_threshold(1, 0.5))
    (0.001, 0.5)
    """
    integer("n", n, 1)
    _check_chance(p)
    return math.log(-math.expm1(math.log1p(-p) / n))


def draws_needed(log_pz: ArrayLike, p: float) -> Float64:
    """How many draws show a suffix at least once with probability p.

    Args:
        log_pz: logarithms of P(z); an array of the same shape comes back, whatever they are.
        p: the probability to see it, between 0 and 1.

    Returns:
        Whole numbers as float64, at least 1; inf where P(z) is 0.

    >>> draws_needed([math.log(0.001), math.log(0.5), 0.0, -math.inf], 0.5).tolist()
    [693.0, 1.0, 1.0, inf]
    >>> f"{draws_needed(np.log(1e-17), 0.5):.3g}"
    '6.93e+16'
    """
    _check_chance(p)
    given = np.asarray(log_pz, np.float64)
    if (given > 0).any() or np.isnan(given).any():
        raise wrong("log_pz", float(given.max()), "logarithms of probabilities: 0 or less")
    with np.errstate(divide="ignore"):
        misses = np.where(given < TINY, -np.exp(given), np.log1p(-np.exp(given)))  # log(1 - P(z))
        small = np.exp(math.log(-math.log1p(-p)) - given)  # also where P(z) itself underflows
        found = np.where(given < TINY, small, math.log1p(-p) / misses)
    return np.maximum(np.ceil(found), 1.0)


def _check_chance(p: float) -> None:
    if not 0 < p < 1:
        raise wrong("p", p, "a number between 0 and 1, both excluded")


def longest_suffix(log_probs: ArrayLike, threshold: float) -> NDArray[np.int64]:
    """k*: the longest suffix whose P(z) reaches a threshold.

    Args:
        log_probs: [..., suffix], the logarithm of each token's probability.
        threshold: the least log P(z).

    >>> longest_suffix(np.log([[0.9, 0.9, 0.1, 0.9]]), math.log(0.5)).tolist()
    [2]
    """
    total = np.cumsum(np.asarray(log_probs, np.float64), -1)
    reached = np.minimum.accumulate(total >= threshold, -1)
    return np.asarray(reached.sum(-1, dtype=np.int64))
