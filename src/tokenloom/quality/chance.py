"""What chance alone gives: the measures of a uniformly random permutation, in closed form.

One idea: a measure says something only beside its value for a fair shuffle. All but three are exact
means over all n! permutations; the run length is rows over expected runs, the bit correlation the
median of the largest of so many normal variables, and steps are counted as if independent.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tokenloom.quality.shuffle import BATCH, SOURCES, ShuffleQuality, check_sizes

__all__ = ["fair"]

Int64 = NDArray[np.int64]


def fair(n: int, block_size: int, batch_size: int) -> ShuffleQuality:
    """What a uniformly random permutation of n rows has on average.

    The arguments are those of `tokenloom.quality.shuffle.measure`.

    >>> expected = fair(8192, 128, 2048)
    >>> f"{expected.mean_abs_displacement_norm:.4f} {expected.same_block_transition_rate:.4f}"
    '0.3334 0.0155'
    """
    check_sizes(n, block_size, batch_size)
    batch = min(BATCH, batch_size, n)
    sizes = np.full(-(-n // block_size), block_size, np.int64)
    sizes[-1] = n - block_size * (len(sizes) - 1)
    pairs = n * (n - 1)
    same = float((sizes * (sizes - 1)).sum()) / pairs
    left = (n - batch) / (n - 1)  # drawn without putting back
    odd = n // 2 / n
    return ShuffleQuality(
        mean_abs_displacement_norm=(n + 1) / (3 * n),
        inversion_fraction=0.5,
        spearman_rho=0.0,
        same_block_transition_rate=same,
        mean_block_jump=_fair_jump(sizes) / pairs,
        mean_source_block_run_length=n / (1 + (n - 1) * (1 - same)),
        fixed_points=1.0,
        blocks_per_group=_fair_blocks(n, sizes, min(batch_size, n)),
        bit_correlation=_fair_bit_correlation(n),
        batch_parity_sd=math.sqrt(odd * (1 - odd) / batch * left),
        interleave_chi2=_fair_chi2(n, batch, left),
        distinct_difference_share=_fair_differences(n),
    )


def _fair_jump(sizes: Int64) -> float:
    """Sum of abs(b - c) over ordered pairs of different rows that lie in blocks b and c."""
    number = np.arange(len(sizes))
    rows_before = np.cumsum(sizes) - sizes
    weighted_before = np.cumsum(sizes * number) - sizes * number
    return 2.0 * float((sizes * (number * rows_before - weighted_before)).sum())


def _fair_blocks(n: int, sizes: Int64, group: int) -> float:
    """A block of s rows is missed by a group with probability C(n - s, g) / C(n, g)."""
    total = 0.0
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        missed = 0.0
        if n - size >= group:
            ways = [(n - size, 1), (n - size - group, -1), (n, -1), (n - group, 1)]
            missed = math.exp(sum(sign * math.lgamma(m + 1) for m, sign in ways))
        total += int(count) * (1 - missed)
    return total


def _fair_chi2(n: int, batch: int, left: float) -> float:
    """Mean of (count - b/8)^2 over b/8; 7 `left` where the sources have equally many rows."""
    share = (n // SOURCES + (np.arange(SOURCES) < n % SOURCES)) / n
    mean, variance = batch * share, batch * share * (1 - share) * left
    expected = batch / SOURCES
    return float(((variance + (mean - expected) ** 2) / expected).sum())


def _fair_bit_correlation(n: int) -> float:
    bits = (n - 1).bit_length()
    guesses = bits + bits * (bits - 1) // 2
    tail = 1 - 0.5 ** (1 / guesses)
    return NormalDist().inv_cdf(1 - tail / 2) / math.sqrt(n)


def _fair_differences(n: int) -> float:
    """Step d has probability (n - abs(d)) / (n (n - 1)); n - 1 steps are made."""
    step = np.arange(1, n)
    seen = -np.expm1((n - 1) * np.log1p(-(n - step) / (n * (n - 1))))
    return float(2 * seen.sum() / (n - 1))
