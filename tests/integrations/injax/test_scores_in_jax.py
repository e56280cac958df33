"""Scores of tokens made by JAX are those that NumPy finds; the model is compiled once a shape."""

import itertools

import jax
import numpy as np

from tokenloom.evaluate import Decoding, in_jax, token_scores
from tokenloom.evaluate.models import NO_TARGET, JudgedRows

DECODINGS = [
    Decoding(T, k, p) for T, k, p in itertools.product((0, 0.5, 1), (None, 3), (None, 0.5, 0.97))
]


def some_logits(size=12):
    """Rows of logits: continuous ones, ones with many ties, some with -inf."""
    rng = np.random.default_rng(1)
    found = rng.normal(0, 2, (30, size)).astype(np.float32)
    found[:10] = np.round(found[:10])
    found[10, : size // 2] = -np.inf
    found[11] = 0
    return found, rng.integers(0, size, 30)


def scores_of_jax(logits, tokens, decoding):
    """Those of a function that gives these logits, a row of one cell for each token."""
    cells = np.zeros((len(tokens), 1), np.int32)
    rows = JudgedRows(cells, cells, cells, tokens.astype(np.int32)[:, None])
    return in_jax(lambda *_: jax.numpy.asarray(logits)[:, None])(rows, decoding)


def test_jax_finds_what_numpy_finds():
    logits, tokens = some_logits()
    for decoding in DECODINGS:
        wanted = token_scores(logits, tokens, decoding)
        log_probs, greedy = scores_of_jax(logits, tokens, decoding)
        assert log_probs.dtype == np.float64
        assert (greedy == wanted.greedy).all(), decoding
        assert (np.isneginf(log_probs) == np.isneginf(wanted.log_probs)).all(), decoding
        finite = np.isfinite(log_probs)
        np.testing.assert_allclose(log_probs[finite], wanted.log_probs[finite], atol=1e-5)


def test_logits_that_are_no_distribution_are_nan():
    logits, tokens = some_logits()
    logits[3, 5], logits[4], logits[5, 0] = np.nan, -np.inf, np.inf
    for decoding in DECODINGS[::4]:
        found = scores_of_jax(logits, tokens, decoding).log_probs
        assert np.flatnonzero(np.isnan(found)).tolist() == [3, 4, 5], decoding


def test_a_function_is_compiled_once_for_each_shape():
    table = np.random.default_rng(0).normal(size=(12, 12)).astype(np.float32)
    known, traced = jax.numpy.asarray(table), []

    def model(tokens, segment_ids, position_ids):
        traced.append(tokens.shape)
        return known[tokens]

    scorer = in_jax(model)
    tokens = np.random.default_rng(0).integers(0, 12, (3, 5)).astype(np.int32)
    targets = np.full_like(tokens, NO_TARGET)
    targets[:, :-1] = tokens[:, 1:]
    for _ in range(3):
        found = scorer(JudgedRows(tokens, tokens, tokens, targets), Decoding())
    wanted = token_scores(table[tokens[:, :-1]], tokens[:, 1:]).log_probs.ravel()
    np.testing.assert_allclose(found.log_probs, wanted, atol=1e-5)
    assert len(traced) == 1
