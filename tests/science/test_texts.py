"""Chains have the entropy that they say, and the best guess is Bayes' rule."""

import itertools
import math

import numpy as np
import pytest
from science.texts import LETTERS, chains, known_loss, letter_store, piece_store, sampled


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


def slow_known_loss(languages, which, texts):
    """Letter after letter."""
    total = count = 0
    for chain, text in zip(which, texts, strict=True):
        one = languages[chain]
        ids = [one.letters.index(letter) for letter in text]
        total -= math.log(one.stationary[ids[0]])
        total -= sum(math.log(one.table[last, now]) for last, now in itertools.pairwise(ids))
        count += len(ids)
    return total / count


def test_the_best_possible_loss_is_that_of_a_loop_over_letters():
    languages = chains(3, "abcdef", seed=2)
    which, lengths = [0, 1, 2, 0], [20, 15, 9, 1]
    texts = sampled(languages, which, lengths, seed=3)
    assert known_loss(languages, which, texts) == pytest.approx(
        slow_known_loss(languages, which, texts)
    )


def test_whoever_takes_the_wrong_chain_pays_more():
    languages = chains(2, LETTERS[:16], seed=0)
    which = np.arange(200) % 2
    texts = sampled(languages, which, [64] * 200, seed=5)
    right, wrong = (known_loss(languages, one, texts) for one in (which, 1 - which))
    assert right + 0.5 < wrong


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
