"""Each measure against its definition in loops, each expectation against all permutations."""

import itertools
import math
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from tokenloom.quality import fair, measure, shuffle

permutations = st.integers(2, 60).flatmap(lambda n: st.permutations(range(n)))


def slow_measure(p, block, group):
    """The table of the module, read literally."""
    n = len(p)
    batch = min(128, group, n)
    group = min(group, n)
    pairs = list(itertools.combinations(range(n), 2))
    blocks = [row // block for row in p]
    steps = list(itertools.pairwise(p))
    runs = [list(run) for _, run in itertools.groupby(blocks)]
    batches = [p[i : i + batch] for i in range(0, n - batch + 1, batch)]
    groups = [blocks[i : i + group] for i in range(0, n - group + 1, group)]
    bits = (n - 1).bit_length()
    masks = [1 << a for a in range(bits)]
    masks += [1 << a | 1 << b for a, b in itertools.combinations(range(bits), 2)]

    def agreement(mask):
        same = sum(bin(i & mask).count("1") % 2 == p[i] % 2 for i in range(n))
        return abs(2 * same - n) / n

    def chi2(rows):
        counts = Counter(row % 8 for row in rows)
        expected = len(rows) / 8
        return sum((counts[s] - expected) ** 2 / expected for s in range(8))

    shares = [sum(row % 2 for row in rows) / batch for rows in batches]
    mean_share = sum(shares) / len(shares)
    return {
        "mean_abs_displacement_norm": sum(abs(p[i] - i) for i in range(n)) / n / (n - 1),
        "inversion_fraction": sum(p[i] > p[j] for i, j in pairs) / len(pairs),
        "spearman_rho": np.corrcoef(range(n), p)[0, 1],
        "same_block_transition_rate": sum(a // block == b // block for a, b in steps) / (n - 1),
        "mean_block_jump": sum(abs(a // block - b // block) for a, b in steps) / (n - 1),
        "mean_source_block_run_length": sum(map(len, runs)) / len(runs),
        "fixed_points": sum(p[i] == i for i in range(n)),
        "blocks_per_group": sum(len(set(g)) for g in groups) / len(groups),
        "bit_correlation": max(map(agreement, masks)),
        "batch_parity_sd": math.sqrt(sum((s - mean_share) ** 2 for s in shares) / len(shares)),
        "interleave_chi2": sum(map(chi2, batches)) / len(batches),
        "distinct_difference_share": len({b - a for a, b in steps}) / (n - 1),
    }


@given(permutations, st.integers(1, 20), st.integers(1, 70))
def test_every_measure_equals_its_definition(order, block, group):
    found = asdict(measure(order, block, group))
    assert found == pytest.approx(slow_measure(order, block, group), abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_exact_expectations_are_the_mean_over_all_permutations(n):
    every = [measure(p, 3, 4) for p in itertools.permutations(range(n))]
    expected = fair(n, 3, 4)
    approximate = {
        "mean_source_block_run_length",
        "bit_correlation",
        "distinct_difference_share",
        "batch_parity_sd",  # its square is exact, see below
    }
    for name in set(asdict(expected)) - approximate:
        mean = sum(getattr(q, name) for q in every) / len(every)
        assert getattr(expected, name) == pytest.approx(mean, abs=1e-12), name


def test_the_expected_parity_is_that_of_draws_without_putting_back():
    every = list(itertools.permutations(range(6)))
    share = [sum(row % 2 for row in p[:4]) / 4 for p in every]
    assert fair(6, 3, 4).batch_parity_sd == pytest.approx(np.std(share), abs=1e-12)


def test_approximate_expectations_hold_for_a_few_hundred_random_orders():
    random = np.random.default_rng(0)
    found = [asdict(measure(random.permutation(2048), 64, 512)) for _ in range(300)]
    for name, expected in asdict(fair(2048, 64, 512)).items():
        values = np.array([quality[name] for quality in found])
        error = values.std() / math.sqrt(len(values))
        assert abs(values.mean() - expected) <= 5 * error + 0.003 * abs(expected), name


def test_inversions_of_many_rows_equal_a_merge_sort():
    order = np.random.default_rng(3).permutation(200_003)

    def merged(a):
        """(sorted a, inversions): ones of the left half above each of the right half."""
        if len(a) < 200:
            return np.sort(a), int((np.triu(a[:, None] > a[None, :], 1)).sum())
        left, x = merged(a[: len(a) // 2])
        right, y = merged(a[len(a) // 2 :])
        above = len(left) - np.searchsorted(left, right)
        return np.sort(a, kind="stable"), x + y + int(above.sum())

    n = len(order)
    assert shuffle.inversion_fraction(order) == merged(order)[1] / (n * (n - 1) // 2)


def test_no_shuffle_and_backwards_are_the_ends_of_the_scales():
    ordered, backwards = measure(range(8192), 128, 2048), measure(range(8191, -1, -1), 128, 2048)
    assert ordered.inversion_fraction == ordered.mean_abs_displacement_norm == 0
    assert (ordered.spearman_rho, backwards.spearman_rho) == (1, -1)
    assert backwards.inversion_fraction == 1
    assert ordered.same_block_transition_rate == 1 - 63 / 8191
    assert (ordered.fixed_points, backwards.fixed_points) == (8192, 0)
    assert ordered.blocks_per_group == 16
    assert ordered.bit_correlation == 1
    assert ordered.batch_parity_sd == ordered.interleave_chi2 == 0
    assert ordered.distinct_difference_share == 1 / 8191


def test_published_baselines_of_the_block_shuffle_note():
    expected = fair(8192, 128, 2048)
    assert expected.mean_abs_displacement_norm == 8193 / (3 * 8192)
    assert expected.same_block_transition_rate == 127 / 8191
    assert expected.fixed_points == 1


def test_a_large_order_is_measured_without_leaving_64_bits():
    n = (1 << 21) + 3
    backwards = np.arange(n)[::-1].copy()
    assert shuffle.spearman_rho(backwards) == pytest.approx(-1, abs=1e-12)


@pytest.mark.parametrize("order", [[0], [[0, 1]], [0.0, 1.0], [0, 0], [0, 2], [-1, 0]])
def test_what_is_no_order_is_refused(order):
    refused(lambda: measure(order, 1, 1), ValueError, "order")


def test_sizes_below_one_are_refused():
    refused(lambda: measure([0, 1], 0, 1), ValueError, "block_size", 0)
    refused(lambda: fair(2, 1, 0), ValueError, "batch_size", 0)
    refused(lambda: fair(1, 1, 1), ValueError, "n", 1)
