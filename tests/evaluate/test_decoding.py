"""Probabilities under temperature, top-k and top-p: the oracle, and torch beside it."""

import itertools
import math

import numpy as np
import pytest
import torch
from markov import Markov, slow_distribution
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Decoding, token_scores
from tokenloom.evaluate.models import JudgedRows, scorer_of

DECODINGS = [
    Decoding(T, k, p)
    for T, k, p in itertools.product((0, 0.5, 1, 2), (None, 1, 3, 12), (None, 0.1, 0.5, 0.97, 1.0))
]


def some_logits(size, seed=1):
    """JudgedRows of logits: continuous ones, ones with many ties, some with -inf."""
    rng = np.random.default_rng(seed)
    found = rng.normal(0, 2, (30, size)).astype(np.float32)
    found[:10] = np.round(found[:10])
    found[10, : size // 2] = -np.inf
    found[11] = 0
    return found, rng.integers(0, size, 30)


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
def test_scores_are_those_of_a_sampler_written_with_lists(decoding):
    logits, tokens = some_logits(12)
    found = token_scores(logits, tokens, decoding)
    for row, token, log_prob in zip(logits, tokens, found.log_probs, strict=True):
        wanted = slow_distribution(row, decoding)[token]
        assert math.exp(log_prob) == pytest.approx(wanted, rel=1e-12, abs=1e-300)


def scores_of_torch(logits, tokens, decoding):
    """Those of a module that gives these logits, a row of one cell for each token."""

    class Given(torch.nn.Module):
        def forward(self, tokens, segment_ids, position_ids):
            return torch.from_numpy(logits)[:, None]

    cells = np.zeros((len(tokens), 1), np.int32)
    rows = JudgedRows(cells, cells, cells, tokens.astype(np.int32)[:, None])
    return scorer_of(Given())(rows, decoding)


@pytest.mark.parametrize("size", [2, 12, 300])
def test_torch_finds_what_numpy_finds(size):
    """And JAX: tests/integrations/injax/test_scores_in_jax.py, in a process of its own."""
    logits, tokens = some_logits(size)
    for decoding in DECODINGS:
        wanted = token_scores(logits, tokens, decoding)
        log_probs, greedy = scores_of_torch(logits, tokens, decoding)
        assert log_probs.dtype == np.float64
        assert (greedy == wanted.greedy).all(), decoding
        assert (np.isneginf(log_probs) == np.isneginf(wanted.log_probs)).all(), decoding
        finite = np.isfinite(log_probs)
        np.testing.assert_allclose(log_probs[finite], wanted.log_probs[finite], atol=1e-5)


def test_equal_maxima_go_to_the_lowest_id():
    logits = np.array([[1.0, 3.0, 3.0, 2.0]] * 4)
    found = token_scores(logits, np.arange(4), Decoding(T=0))
    assert found.log_probs.tolist() == [-math.inf, 0.0, -math.inf, -math.inf]
    assert found.greedy.tolist() == [False, True, False, False]


def test_a_temperature_close_to_0_is_greedy():
    logits, tokens = Markov().table, np.arange(12)
    cold = token_scores(logits, tokens, Decoding(T=1e-4))
    assert (
        np.exp(cold.log_probs).tolist()
        == np.exp(token_scores(logits, tokens, Decoding(T=0)).log_probs).tolist()
    )


def test_top_k_keeps_ties_and_top_k_of_all_is_none():
    logits = np.log([[0.4, 0.2, 0.2, 0.2]])
    assert np.exp(token_scores(logits, [3], Decoding(top_k=2)).log_probs)[0] == pytest.approx(0.2)
    for tokens in ([0], [3]):
        plain = token_scores(logits, tokens)
        assert token_scores(logits, tokens, Decoding(top_k=4)).log_probs == plain.log_probs
        assert token_scores(logits, tokens, Decoding(top_k=9)).log_probs == plain.log_probs


@pytest.mark.parametrize(
    ("mass", "kept"),
    [
        (1e-9, [0]),
        (0.5, [0]),
        (0.50001, [0, 1]),
        (0.75, [0, 1]),
        (0.76, [0, 1, 2]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_is_the_smallest_set_that_reaches_the_mass(mass, kept):
    """Masses that are powers of two: nothing is rounded at the edges."""
    logits = np.log([[0.5, 0.25, 0.125, 0.125]]).repeat(4, 0)
    found = token_scores(logits, np.arange(4), Decoding(top_p=mass))
    assert np.flatnonzero(np.isfinite(found.log_probs)).tolist() == kept
    assert np.exp(found.log_probs).sum() == pytest.approx(1)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_logits_that_are_no_distribution_are_nan_everywhere(wrong):
    logits, tokens = some_logits(12)
    logits[3, 5] = wrong
    logits[4] = -np.inf
    for decoding in DECODINGS:
        ways = [
            token_scores(logits, tokens, decoding).log_probs,
            scores_of_torch(logits, tokens, decoding).log_probs,
        ]
        for found in ways:
            assert np.flatnonzero(np.isnan(np.asarray(found))).tolist() == [3, 4], decoding


@pytest.mark.parametrize(
    "settings", [{"T": -1.0}, {"T": math.inf}, {"top_k": 0}, {"top_k": 1.5}, {"top_p": 0}]
)
def test_settings_that_mean_nothing_are_refused(settings):
    ((name, value),) = settings.items()
    refused(lambda: Decoding(**settings), tl.ConfigError, f"decoding.{name}", value)


def test_shapes_and_ids_that_do_not_belong_together_are_refused():
    refused(lambda: token_scores(np.zeros((2, 3)), [0, 1, 2]), tl.ConfigError, "[2, 3]", "[3]")
    refused(lambda: token_scores(np.zeros((2, 3)), [0, 3]), tl.ConfigError, "tokens", 3)
    refused(lambda: token_scores(np.zeros((2, 3)), [0, -1]), tl.ConfigError, "tokens", -1)
