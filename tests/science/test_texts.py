"""Chains have the entropy that they say, and the best guess is Bayes' rule."""

import itertools
import math

import numpy as np
import pytest
from science.texts import LETTERS, chains, guessing_loss, letter_store, piece_store, sampled


def test_letters_are_distinct_single_bytes():
    assert len(set(LETTERS)) == len(LETTERS) == 90
    assert LETTERS.isascii()
    assert LETTERS.isprintable()


@pytest.mark.parametrize("seed", range(3))
def test_entropy_is_that_of_a_loop_over_states(seed):
    (chain,) = chains(1, "abcde", seed=seed)
    table = chain.table.tolist()
    often = chain.stationary.tolist()
    assert sum(often) == pytest.approx(1)
    for j in range(5):  # what is stationary stays as it is
        assert sum(often[i] * table[i][j] for i in range(5)) == pytest.approx(often[j])
    slow = -sum(often[i] * p * math.log(p) for i in range(5) for p in table[i])
    assert chain.entropy == pytest.approx(slow)


def test_samples_have_the_frequencies_of_their_chain():
    one, other = chains(2, "abcd", seed=4)
    texts = sampled([one, other], [0, 1] * 400, [50] * 800, seed=1)
    for chain, some in ((one, texts[::2]), (other, texts[1::2])):
        counts = np.zeros((4, 4))
        for text in some:
            for a, b in itertools.pairwise(text):
                counts["abcd".index(a), "abcd".index(b)] += 1
        assert np.abs(counts / counts.sum(1, keepdims=True) - chain.table).max() < 0.06
    assert sampled([one], [0], [9], seed=1) == sampled([one], [0], [9], seed=1)
    assert sampled([one], [0], [9], seed=1) != sampled([one], [0], [9], seed=2)


def slow_guessing_loss(languages, texts):
    """Every token after the first, with the probability of each chain so far."""
    total = count = 0
    for text in texts:
        ids = [languages[0].letters.index(letter) for letter in text]
        weights = [float(one.stationary[ids[0]]) for one in languages]
        for last, now in itertools.pairwise(ids):
            mass = sum(weights)
            pairs = zip(weights, languages, strict=True)
            new = [weight * float(one.table[last, now]) for weight, one in pairs]
            total -= math.log(sum(new) / mass)
            weights, count = new, count + 1
    return total / count


def test_the_best_guess_is_bayes_rule_step_by_step():
    languages = chains(3, "abcdef", seed=2)
    texts = sampled(languages, [0, 1, 2, 0], [20, 15, 9, 2], seed=3)
    assert guessing_loss(languages, texts) == pytest.approx(slow_guessing_loss(languages, texts))


def test_guessing_costs_more_than_knowing_the_chain():
    languages = chains(8, LETTERS[:16], seed=0)
    texts = sampled(languages, np.arange(400) % 8, [64] * 400, seed=5)
    known = np.mean([one.entropy for one in languages])
    assert known - 0.02 < guessing_loss(languages, texts) < known + 0.5


def test_stores_keep_the_order_of_their_texts_and_are_made_once(tmp_path):
    texts = ["zz", "aa", "zz"]
    store = letter_store(texts, tmp_path / "one")
    assert [bytes(store.document(i).tolist()).decode() for i in range(3)] == texts
    assert letter_store(["other"], tmp_path / "one").digest == store.digest


def test_seeds_get_other_pieces_of_the_licence(tmp_path):
    one, other = (
        piece_store(tmp_path, text="licence", pieces=4, length=32, seed=seed) for seed in (0, 1)
    )
    assert one.lengths.tolist() == other.lengths.tolist() == [32] * 4
    assert one.digest != other.digest
    pieces = {tuple(store.document(i).tolist()) for store in (one, other) for i in range(4)}
    assert len(pieces) == 8
