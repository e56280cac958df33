"""Copies are found, and nothing else is: planted stretches against a loop over all of them."""

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Overlap, overlap
from tokenloom.testing import tiny


def store_of(folder, documents, size=50):
    rows = [{"input_ids": list(map(int, one))} for one in documents]
    return tl.build(rows, folder, tokenizer=None, vocab_size=size)


def slow_pairs(training, evaluation, n):
    """{(ours, theirs): stretches of ours that theirs has}, with sets of tuples."""
    found = {}
    for ours, mine in enumerate(evaluation):
        own = [tuple(mine[i : i + n]) for i in range(len(mine) - n + 1)]
        for theirs, other in enumerate(training):
            known = {tuple(other[i : i + n]) for i in range(len(other) - n + 1)}
            count = sum(one in known for one in own)
            if count:
                found[ours, theirs] = count
    return found


@pytest.mark.parametrize("piece", [7, 64, 1 << 20])
@pytest.mark.parametrize("size", [3, 50])
def test_pairs_are_those_of_sets_of_tuples(tmp_path, piece, size):
    """Few tokens, so that equal stretches come again and again; pieces that cut documents."""
    with tiny(overlap_chunk_tokens=piece):
        rng = np.random.default_rng(size)
        training = [rng.integers(0, size, n).tolist() for n in (40, 3, 25, 0, 60)]
        evaluation = [rng.integers(0, size, n).tolist() for n in (30, 12, 4)]
        evaluation[1][2:11] = training[4][20:29]
        found = overlap(
            store_of(tmp_path / "t", training, size),
            store_of(tmp_path / "e", evaluation, size),
            n=6,
        )
        wanted = slow_pairs(training, evaluation, 6)
        assert {(p.document, p.training): p.stretches for p in found.pairs} == wanted
        for pair in found.pairs:
            length = len(evaluation[pair.document]) - 5
            assert pair.share == pair.stretches / length
            mine = evaluation[pair.document][pair.at : pair.at + 6]
            assert mine == training[pair.training][pair.training_at : pair.training_at + 6]
        assert found.short == 1
        assert found.documents == 3


def test_planted_13_grams_are_found_and_12_grams_are_not(tmp_path):
    rng = np.random.default_rng(1)
    training = [rng.integers(0, 5000, 400) for _ in range(60)]
    evaluation = [rng.integers(0, 5000, 200) for _ in range(20)]
    evaluation[3][50:63] = training[41][200:213]  # 13 tokens
    evaluation[7][0:12] = training[5][100:112]  # 12 tokens
    evaluation[9] = training[12][100:300].copy()  # all of it
    found = overlap(
        store_of(tmp_path / "t", training, 5000), store_of(tmp_path / "e", evaluation, 5000)
    )
    assert [(p.document, p.training, p.stretches) for p in found.pairs] == [
        (9, 12, 188),
        (3, 41, 1),
    ]
    assert [(p.document, p.training) for p in found.near_duplicates()] == [(9, 12)]
    assert set(found.touched) == {3, 9}
    assert found.touched[9] == 1.0


def test_nothing_in_common_other_ids_and_documents_that_are_too_short(tmp_path):
    one, two = store_of(tmp_path / "a", [[1, 2, 3]]), store_of(tmp_path / "b", [[4, 5, 6]])
    assert overlap(one, two, n=2) == Overlap(n=2, documents=1, short=0, touched={}, pairs=())
    other = store_of(tmp_path / "c", [[1, 2, 3]], size=60)
    refused(lambda: overlap(one, other, n=2), tl.ConfigError)
    refused(lambda: overlap(one, one), tl.ConfigError, 13)
