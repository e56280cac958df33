"""The blocks of a mixture with rule="levanter" are those that today's JAX permutes."""

import jax
import numpy as np
import pytest

from tokenloom.mixture.levanter_rule import LevanterBlocks
from tokenloom.random.levanter import folded, permuted


@pytest.mark.parametrize("size", [1, 2, 5, 1625, 1626, 2048, 65535])
def test_permutations_are_those_of_jax(size):
    """1625 elements are sorted once and 1626 twice."""
    for seed in (0, 3, 4294967295):
        numbers = np.array([0, 9, 1 << 31], np.uint64)
        keys = [jax.random.fold_in(jax.random.PRNGKey(seed), int(number)) for number in numbers]
        wanted = [np.asarray(jax.random.permutation(key, np.arange(size))) for key in keys]
        assert permuted(folded(seed, numbers), size).tolist() == np.stack(wanted).tolist()


def test_blocks_are_those_of_a_mixture_in_jax():
    counts, key = np.array([1200, 500, 348]), jax.random.PRNGKey(17)
    blocks = LevanterBlocks(counts, np.array([5, 0, 7]), 2048 * 3, 17)
    ids = np.concatenate([(i << 16) + np.arange(count) for i, count in enumerate(counts)])
    for number in (3, 4, 1000):
        permuted_ids = np.asarray(jax.random.permutation(jax.random.fold_in(key, number), ids))
        source, item = blocks.items(number * 2048, (number + 1) * 2048)
        assert source.tolist() == (permuted_ids >> 16).tolist()
        base = np.array([5, 0, 7]) + (number - 3) * counts
        assert item.tolist() == ((permuted_ids & 0xFFFF) + base[permuted_ids >> 16]).tolist()
