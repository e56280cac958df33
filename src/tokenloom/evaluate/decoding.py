"""How likely a token is under a way of decoding: temperature, then top-k, then top-p.

Decoding changes the distribution that a token is drawn from, and the probability of a sequence is a
product under the changed one. The steps are those of samplers, in their order:

1. logits in float32 or better; sums in float64.
2. divided by T. ``T=0`` is greedy: the largest logit has probability 1, and of equal ones the one
   with the lowest id.
3. top-k: logits at least as large as the k-th largest stay; ties with it stay, too.
4. top-p: of these, the most likely ones until their mass reaches p; at least one. Equal ones are
   taken by id, and a millionth short of p is reached: frameworks add in float32.
5. what stays is normalised; everything else has probability 0, whose logarithm, -inf, is a legal
   value.

This is the only form of it, in NumPy and float64. Where all tokens may be drawn,
`tokenloom.evaluate.models` leaves the log-softmax to the framework of the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.arguments import check_between, integer, number, wrong
from tokenloom.errors import ConfigError

Float64 = NDArray[np.float64]

SLACK = 1e-6  # how much less than top_p is enough


@dataclass(frozen=True, slots=True)
class Decoding:
    """A way of decoding. The default draws from the model's own distribution.

    Attributes:
        T: the temperature that logits are divided by; 0 is greedy.
        top_k: how many of the largest logits may be drawn; None: all.
        top_p: the mass that the most likely tokens must reach to be enough; None: all of it.

    >>> Decoding(T=0.7, top_k=40)
    Decoding(T=0.7, top_k=40, top_p=None)
    >>> Decoding().is_plain
    True
    """

    T: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        check_between("decoding.T", number("decoding.T", self.T), 0)
        if self.top_k is not None:
            integer("decoding.top_k", self.top_k, 1)
        if self.top_p is not None and not 0 < number("decoding.top_p", self.top_p) <= 1:
            raise wrong("decoding.top_p", self.top_p, "a number above 0, up to 1")

    @property
    def is_plain(self) -> bool:
        """Whether it is the model's own distribution."""
        return self.T == 1 and self.top_k is None and self.top_p is None


class TokenScores(NamedTuple):
    """What a model says about given tokens.

    Attributes:
        log_probs: float64, the logarithm of each token's probability; -inf where it can't be drawn.
        greedy: whether it is the one that greedy decoding takes.

    >>> token_scores([[0.0, 1.0]], [1]).greedy.tolist()
    [True]
    """

    log_probs: Float64
    greedy: NDArray[np.bool_]

    @staticmethod
    def joined(parts: Sequence[TokenScores]) -> TokenScores:
        """The scores of several pieces, one after the other."""
        nothing = np.empty(0), np.empty(0, bool)
        return TokenScores(*(np.concatenate(one) for one in zip(nothing, *parts, strict=True)))


def token_scores(
    logits: ArrayLike, tokens: ArrayLike, decoding: Decoding = Decoding()
) -> TokenScores:
    """What logits say about the tokens that came.

    Args:
        logits: [..., vocabulary]; each row of them predicts one token.
        tokens: [...], ids in [0, vocabulary).
        decoding: the way of decoding.

    Returns:
        Scores of the shape of the tokens. NaN where logits are no distribution: one is NaN or +inf,
        or all are -inf.

    Raises:
        ConfigError: shapes do not belong together, or an id is outside the vocabulary.

    >>> token_scores([[0.0, 0.0]], [1]).log_probs.tolist() == [-np.log(2)]
    True
    >>> token_scores([[1.0, 3.0, 2.0]], [2], Decoding(top_k=1)).log_probs.tolist()
    [-inf]
    """
    scores, ids = _checked(np.asarray(logits), np.asarray(tokens))
    flat = scores.reshape(-1, scores.shape[-1])
    wanted = ids.reshape(-1, 1).astype(np.int64)
    own = np.take_along_axis(flat, wanted, 1)[:, 0]
    greedy = flat.argmax(1) == wanted[:, 0]  # of equal ones the first
    with np.errstate(invalid="ignore"):
        log_probs = _log_probs(flat, wanted[:, 0], own, greedy, decoding)
        log_probs[~np.isfinite(flat.max(1))] = np.nan
    return TokenScores(log_probs.reshape(ids.shape), greedy.reshape(ids.shape))


def _checked(logits: NDArray[Any], tokens: NDArray[Any]) -> tuple[Float64, NDArray[Any]]:
    """Both, if they belong together; logits in float64."""
    if logits.shape[:-1] != tokens.shape or not logits.ndim:
        raise ConfigError(
            f"logits: found shape {list(logits.shape)}, allowed: that of the tokens, "
            f"{list(tokens.shape)}, and one more axis, the vocabulary. Give the logits that "
            "predict these tokens: logits[:, :-1] for tokens[:, 1:]."
        )
    size = logits.shape[-1]
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < size):
        found = int(tokens.max() if tokens.max() >= size else tokens.min())
        raise ConfigError(
            f"tokens: {found} is no id of a vocabulary of {size:,}; allowed: 0 to {size - 1:,}. Is "
            "the model's tokenizer the one of the store?"
        )
    return logits.astype(np.float64), tokens


def _log_probs(
    scores: Float64,
    tokens: NDArray[np.int64],
    own: Float64,
    greedy: NDArray[np.bool_],
    decoding: Decoding,
) -> Float64:
    """Log p of each row's token."""
    if decoding.T == 0:
        return np.where(greedy, 0.0, -np.inf)
    scaled = scores / decoding.T
    kept = np.ones(scores.shape, bool)
    size = scores.shape[1]
    if decoding.top_k is not None and decoding.top_k < size:
        least = np.partition(scaled, size - decoding.top_k, 1)[:, size - decoding.top_k]
        kept = scaled >= least[:, None]
    if decoding.top_p is not None and decoding.top_p < 1:
        kept &= _most_likely(np.where(kept, scaled, -np.inf), decoding.top_p)
    scaled = np.where(kept, scaled, -np.inf)
    top = scaled.max(1)
    total = np.exp(scaled - top[:, None]).sum(1)
    row = np.arange(len(tokens))
    return np.where(kept[row, tokens], own / decoding.T - top - np.log(total), -np.inf)


def _most_likely(scores: Float64, mass: float) -> NDArray[np.bool_]:
    """Which tokens belong to the most likely ones that reach a mass."""
    ranked = np.argsort(-scores, 1, kind="stable")
    share = np.exp(scores - scores.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    share = np.take_along_axis(share, ranked, 1)
    before = np.zeros_like(share)  # the mass of those that are more likely
    np.cumsum(share[:, :-1], 1, out=before[:, 1:])
    kept = np.empty(scores.shape, bool)
    np.put_along_axis(kept, ranked, (before < max(mass - SLACK, SLACK)) & (share > 0), 1)
    return kept
