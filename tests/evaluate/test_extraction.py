"""P(z): golden values, laws of probability, and what follows from it for whoever draws."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markov import Markov

import tokenloom as tl
from tokenloom.evaluate import Decoding, draws_needed, log_pz, log_threshold, longest_suffix

CHAIN = Markov()


def ways(tokens):
    return CHAIN.table[np.asarray(tokens)]


@pytest.mark.parametrize(
    ("chance", "p", "draws"),
    [(0.001, 0.5, 693), (0.01, 0.9, 230), (0.1, 0.99, 44), (0.5, 0.5, 1), (1e-17, 0.5, 6.93e16)],
)
def test_draws_that_are_needed(chance, p, draws):
    assert draws_needed(math.log(chance), p) == pytest.approx(draws, rel=1e-3 if draws > 1e6 else 0)


@given(st.floats(-700, -1e-9), st.floats(0.01, 0.99))
@settings(max_examples=100)
def test_as_many_draws_as_needed_are_enough_and_one_less_is_not(log_chance, p):
    n = float(draws_needed(log_chance, p))
    if n < 2**50:
        assert log_chance >= log_threshold(int(n), p) - 1e-9
        if n > 1:
            assert log_chance <= log_threshold(int(n) - 1, p) + 1e-9


def test_thresholds_of_one_draw_and_of_many():
    assert math.exp(log_threshold(1, 0.5)) == pytest.approx(0.5)
    assert math.exp(log_threshold(10**12, 0.5)) == pytest.approx(math.log(2) * 1e-12, rel=1e-9)
    for n, p in ((0, 0.5), (1.5, 0.5), (3, 0.0), (3, 1.0)):
        with pytest.raises(tl.ConfigError):
            log_threshold(n, p)


@pytest.mark.parametrize(
    "decoding", [Decoding(), Decoding(T=0.7, top_k=4), Decoding(top_p=0.8)], ids=str
)
def test_all_suffixes_of_a_small_vocabulary_sum_to_1(decoding):
    chain, prefix = Markov(size=5), [3, 1]
    tokens = np.array([[*prefix, *rest] for rest in itertools.product(range(5), repeat=3)])
    found = log_pz(chain.table[tokens], tokens, prefix=2, decoding=decoding)
    assert math.fsum(np.exp(found)) == pytest.approx(1, abs=1e-12)


def test_suffixes_add_up():
    tokens = np.random.default_rng(2).integers(0, 12, (7, 20))
    whole = log_pz(ways(tokens), tokens, prefix=5)
    first = log_pz(ways(tokens[:, :11]), tokens[:, :11], prefix=5)
    rest = log_pz(ways(tokens), tokens, prefix=11)
    np.testing.assert_allclose(first + rest, whole, rtol=1e-14)


def test_longer_suffixes_are_never_more_likely():
    tokens = np.random.default_rng(3).integers(0, 12, 30)
    found = [float(log_pz(ways(tokens[:n]), tokens[:n], prefix=4)) for n in range(5, 31)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    "decoding",
    [Decoding(), Decoding(T=0.7, top_k=4), Decoding(T=1.3, top_p=0.9)],
    ids=str,
)
def test_draws_of_a_chain_give_the_suffix_as_often_as_computed(decoding):
    """100,000 continuations by a sampler that knows nothing of this module."""
    rng, chances = np.random.default_rng(5), CHAIN.chances(decoding)
    suffix = [int(chances[2].argmax())]
    for rank in (2, 1):  # likely enough to be seen
        suffix.append(int(np.argsort(-chances[suffix[-1]])[rank - 1]))
    tokens = np.array([7, 2, *suffix])
    wanted = math.exp(float(log_pz(ways(tokens), tokens, prefix=2, decoding=decoding)))
    last = np.full(100_000, 2)
    same = np.ones(100_000, bool)
    for token in suffix:
        sums = np.cumsum(chances[last], 1)
        last = np.minimum((rng.random((100_000, 1)) > sums).sum(1), 11)
        same &= last == token
    spread = math.sqrt(wanted * (1 - wanted) / 100_000)
    assert abs(same.mean() - wanted) < 4 * spread


def test_greedy_is_the_limit_of_cold_decoding():
    tokens = [4]
    for _ in range(10):
        tokens.append(int(CHAIN.table[tokens[-1]].argmax()))
    assert log_pz(ways(tokens), tokens, prefix=1, decoding=Decoding(T=0)) == 0
    tokens[6] = (tokens[6] + 1) % 12
    assert log_pz(ways(tokens), tokens, prefix=1, decoding=Decoding(T=0)) == -math.inf


def test_the_longest_suffix_that_reaches_a_threshold():
    each = np.log([[0.9, 0.9, 0.1, 0.9], [0.4, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    assert longest_suffix(each, math.log(0.5)).tolist() == [2, 0, 4]


def test_prefixes_that_leave_no_suffix_are_refused():
    for prefix in (0, 4, -1):
        with pytest.raises(tl.ConfigError, match="prefix"):
            log_pz(np.zeros((4, 10)), [1, 2, 3, 4], prefix=prefix)
