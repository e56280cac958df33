"""Models of JAX: the model and the reduction are compiled together, and only scores come back.

One idea: the same five steps as `tokenloom.evaluate.decoding`, in one compiled function for each
shape of a batch. Sums are float32, or float64 where `jax_enable_x64` is set; sums over tokens are
float64 in any case, outside.

jax is not imported here: `in_jax` is called with a function of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from tokenloom.evaluate.decoding import SLACK, Decoding, TokenScores
from tokenloom.evaluate.models.scorers import JudgedRows, check_shape, named_fingerprint
from tokenloom.store.handles import lazy

__all__ = ["JaxScorer", "in_jax"]


class JaxScorer:
    """Scores of a function of JAX; see `in_jax`."""

    def __init__(self, model: Callable[..., Any], told: str) -> None:
        self.model, self.told = model, told
        self.jax: Any = importlib.import_module("jax")
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}  # of tokens → of logits

    def fingerprint(self) -> str | None:
        """What the function says of itself, by an attribute of this name."""
        return named_fingerprint(self.model)

    def ready(self) -> AbstractContextManager[Any]:
        """Nothing to set up: functions have no mode."""
        return nullcontext()

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells."""
        given = (rows.tokens, rows.segment_ids, rows.position_ids)
        shape = rows.tokens.shape
        if shape not in self._shapes:
            self._shapes[shape] = tuple(self.jax.eval_shape(self.model, *given).shape)
        check_shape(self._shapes[shape], rows)
        found = self._compiled(*given, np.maximum(rows.targets, 0), decoding)
        log_probs, greedy, margins = (np.asarray(one)[rows.judged] for one in found)
        return TokenScores(log_probs.astype(np.float64), greedy, margins)

    @lazy
    def _compiled(self) -> Any:
        def both(
            tokens: Any, segments: Any, positions: Any, targets: Any, decoding: Decoding
        ) -> Any:
            return reduced(self.jax, self.model(tokens, segments, positions), targets, decoding)

        return self.jax.jit(both, static_argnums=4)


def in_jax(model: Callable[..., Any]) -> JaxScorer:
    """A model of JAX that can be evaluated.

    Args:
        model: ``(tokens, segment_ids, position_ids) -> logits``, traceable by `jax.jit`; parameters
            are bound, for example with `functools.partial`.

    >>> import jax.numpy as jnp
    >>> uniform = in_jax(lambda tokens, segment_ids, position_ids: jnp.zeros((*tokens.shape, 4)))
    >>> one = np.ones((1, 2), np.int32)
    >>> rows = JudgedRows(one, one, one, np.array([[3, -100]], np.int32))
    >>> uniform(rows, Decoding()).log_probs.round(3).tolist()
    [-1.386]
    """
    jax: Any = importlib.import_module("jax")
    where = jax.devices()[0]
    return JaxScorer(model, f"JAX function {getattr(model, '__name__', 'model')} on {where}")


def reduced(jax: Any, logits: Any, targets: Any, decoding: Decoding) -> tuple[Any, Any, Any]:
    """(log probabilities, greedy, margins) of tokens, from the logits that predict each."""
    jnp = jax.numpy
    scores = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    own = jnp.take_along_axis(scores, targets[..., None], -1)[..., 0]
    two = jax.lax.top_k(scores, min(2, scores.shape[-1]))[0]
    top, second = two[..., 0], two[..., -1]
    greedy = scores.argmax(-1) == targets  # of equal ones the first
    margins = jnp.where(own == top, own - second, own - top)
    if decoding.T == 0:
        log_probs = jnp.where(greedy, 0.0, -jnp.inf)
    else:
        log_probs = _log_probs(jax, scores / decoding.T, own / decoding.T, targets, decoding)
    return jnp.where(jnp.isfinite(top), log_probs, jnp.nan), greedy, margins


def _log_probs(jax: Any, scores: Any, own: Any, targets: Any, decoding: Decoding) -> Any:
    jnp, size = jax.numpy, scores.shape[-1]
    if decoding.top_k is not None and decoding.top_k < size:
        least = jax.lax.top_k(scores, decoding.top_k)[0][..., -1:]
        scores = jnp.where(scores >= least, scores, -jnp.inf)
        own = jnp.where(own >= least[..., 0], own, -jnp.inf)
    if decoding.top_p is None or decoding.top_p == 1:
        return own - jax.nn.logsumexp(scores, -1)
    share, enough = jax.nn.softmax(scores, -1), max(decoding.top_p - SLACK, SLACK)
    ranked = -jnp.sort(-share, -1)
    summed = jnp.cumsum(ranked, -1)
    before = summed - ranked
    total = jnp.where(before < enough, ranked, 0.0).sum(-1)
    mine = jnp.take_along_axis(share, targets[..., None], -1)[..., 0]
    earlier = (share == mine[..., None]) & (jnp.arange(size) < targets[..., None])
    mass = jnp.where(share > mine[..., None], share, 0.0).sum(-1) + earlier.sum(-1) * mine
    return jnp.where(mass < enough, jnp.log(mine) - jnp.log(total), -jnp.inf)
