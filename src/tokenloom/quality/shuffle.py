"""Measures of a shuffled order: how far rows move, how local reads stay, what a batch is made of.

One idea: every measure is a pure function of ``order``, the int64 array of the row at each index
[n]. `fair` gives the value of each for a uniformly random permutation.

The first group is the usual one. It does not detect a weak permutation: one whose batches are all
even or all odd rows has fair displacement and inversions. The second group does.

=============================  ====================================================================
mean_abs_displacement_norm     mean of abs(row - index) over n - 1; fair (n + 1) / 3n
inversion_fraction             pairs in the wrong order over all pairs; fair 1/2
spearman_rho                   correlation of row and index; fair 0
same_block_transition_rate     neighbours from one storage block; fair about block / n
mean_block_jump                blocks between neighbours, on average
mean_source_block_run_length   neighbours from one block in a row, on average
fixed_points                   rows at their own index; fair 1
blocks_per_group               different blocks in a group that is fetched at once: cost of reads
bit_correlation                best guess of a row's last bit from one or two bits of its index
batch_parity_sd                standard deviation of the share of odd rows in a batch
interleave_chi2                chi-square of a batch over 8 interleaved sources (row mod 8); fair 7
distinct_difference_share      different steps from row to row over all steps; fair 2 / e
=============================  ====================================================================

What chance alone gives: the measures of a uniformly random permutation, in closed form.

One idea: a measure is meaningful only when compared with its value for a fair shuffle. All but
three are exact means over all n! permutations; the run length is rows over expected runs, the bit
correlation is the median of the largest of several normal variables, and steps are counted as if
independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_between
from tokenloom.errors import ConfigError

Int64 = NDArray[np.int64]

BATCH = 128  # rows of the batches whose make-up is measured: large ones hide what small ones show

SOURCES = 8


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """One order in numbers; see the table of the module.

    >>> evens_then_odds = [*range(0, 4096, 2), *range(1, 4096, 2)]
    >>> found, expected = measure(evens_then_odds, 128, 1024), fair(4096, 128, 1024)
    >>> f"{found.inversion_fraction:.2f} of pairs inverted, fair: {expected.inversion_fraction:.2f}"
    '0.25 of pairs inverted, fair: 0.50'
    >>> f"last bit predicted: {found.bit_correlation:.2f}, fair: {expected.bit_correlation:.2f}"
    'last bit predicted: 1.00, fair: 0.04'
    """

    mean_abs_displacement_norm: float
    inversion_fraction: float
    spearman_rho: float
    same_block_transition_rate: float
    mean_block_jump: float
    mean_source_block_run_length: float
    fixed_points: float
    blocks_per_group: float
    bit_correlation: float
    batch_parity_sd: float
    interleave_chi2: float
    distinct_difference_share: float


def measure(order: Any, block_size: int, batch_size: int) -> ShuffleQuality:
    """All measures of an order.

    Args:
        order: the row at each index [n], a permutation of range(n), n >= 2.
        block_size: rows of a storage block.
        batch_size: rows that are fetched together. The make-up of batches is measured on pieces of
            at most 128 rows.

    >>> measure(range(8192), 128, 2048).same_block_transition_rate  # no shuffle: 1 - 63 / 8191
    0.9923086314247345
    """
    rows = _permutation(order)
    check_sizes(len(rows), block_size, batch_size)
    batch = min(BATCH, batch_size, len(rows))
    return ShuffleQuality(
        mean_abs_displacement_norm=mean_abs_displacement_norm(rows),
        inversion_fraction=inversion_fraction(rows),
        spearman_rho=spearman_rho(rows),
        same_block_transition_rate=same_block_transition_rate(rows, block_size),
        mean_block_jump=mean_block_jump(rows, block_size),
        mean_source_block_run_length=mean_source_block_run_length(rows, block_size),
        fixed_points=fixed_points(rows),
        blocks_per_group=blocks_per_group(rows, block_size, batch_size),
        bit_correlation=bit_correlation(rows),
        batch_parity_sd=batch_parity_sd(rows, batch),
        interleave_chi2=interleave_chi2(rows, batch),
        distinct_difference_share=distinct_difference_share(rows),
    )


def mean_abs_displacement_norm(order: Int64) -> float:
    """How far a row moves on average, over the longest distance n - 1."""
    n = len(order)
    return int(np.abs(order - np.arange(n)).sum()) / n / (n - 1)


def inversion_fraction(order: Int64) -> float:
    """Share of the pairs of indices whose rows are in the wrong order, exact.

    Bit by bit from the top: rows are kept grouped by the bits seen so far, in order of index within
    a group. A row whose next bit is 0 is inverted with every 1 before it in its group; then each
    group is split into its 0s and its 1s. Group q of width w starts at q w, because rows are a
    permutation.

    >>> inversion_fraction(np.array([2, 0, 1]))  # (2, 0) and (2, 1) of three pairs
    0.6666666666666666
    """
    n, rows, inversions = len(order), order, 0
    for bit in range((n - 1).bit_length() - 1, -1, -1):
        start = rows >> (bit + 1) << (bit + 1)
        one = rows >> bit & 1
        ones_before = np.cumsum(one) - one
        ones_before -= ones_before[start]
        inversions += int(ones_before[one == 0].sum())
        zeros = np.minimum(1 << bit, n - start)
        place = start + np.where(one == 1, zeros + ones_before, np.arange(n) - start - ones_before)
        parted = np.empty_like(rows)
        parted[place] = rows
        rows = parted
    return inversions / (n * (n - 1) // 2)


def spearman_rho(order: Int64) -> float:
    """Correlation of row and index: 1 - 6 sum d^2 / (n (n^2 - 1))."""
    n = len(order)
    moved = order - np.arange(n)
    if n > 1 << 21:  # the sum of squares may overflow 64 bits
        moved = moved.astype(np.float64)
    return 1 - 6 * float((moved * moved).sum()) / (n * (n * n - 1))


def same_block_transition_rate(order: Int64, block_size: int) -> float:
    """Share of neighbouring indices whose rows are in one block."""
    block = order // block_size
    return int((block[1:] == block[:-1]).sum()) / (len(order) - 1)


def mean_block_jump(order: Int64, block_size: int) -> float:
    """Blocks between the rows of neighbouring indices, on average."""
    return float(np.abs(np.diff(order // block_size)).mean())


def mean_source_block_run_length(order: Int64, block_size: int) -> float:
    """Rows over runs of neighbours from one block."""
    block = order // block_size
    return len(order) / (1 + int((block[1:] != block[:-1]).sum()))


def fixed_points(order: Int64) -> float:
    """Rows at their own index."""
    return float((order == np.arange(len(order))).sum())


def blocks_per_group(order: Int64, block_size: int, group: int) -> float:
    """Different blocks among `group` neighbouring indices, on average over whole groups."""
    group = min(group, len(order))
    blocks = _whole_batches(order // block_size, group)  # [groups, group]
    blocks.sort(axis=1)
    return float(1 + (np.diff(blocks, axis=1) > 0).sum(axis=1).mean())


def bit_correlation(order: Int64) -> float:
    """Largest correlation of a row's last bit with one bit of its index, or two bits together.

    1.0 means that the bit can be predicted from the index without knowing the rest of the order.
    """
    n = len(order)
    bits = (n - 1).bit_length()
    # the Walsh transform: sums[mask] adds up the signs of (last bit xor parity of index & mask)
    sums = np.zeros(1 << bits, np.int64)
    sums[:n] = 1 - 2 * (order & 1)
    for bit in range(bits):
        pairs = sums.reshape(-1, 2, 1 << bit)  # [upper bits, this bit, lower bits]
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
    one = 1 << np.arange(bits)
    masks = (one[:, None] | one[None, :]).ravel()  # one bit (with itself) or two
    return int(np.abs(sums[masks]).max()) / n


def batch_parity_sd(order: Int64, batch_size: int) -> float:
    """Standard deviation of the share of odd rows, over whole batches."""
    return float((_whole_batches(order, batch_size) & 1).mean(axis=1).std())


def interleave_chi2(order: Int64, batch_size: int, sources: int = SOURCES) -> float:
    """Chi-square of a batch over interleaved sources (row mod `sources`), mean of whole batches."""
    batches = _whole_batches(order, batch_size) % sources
    # [batches, sources]: rows of each source
    cell = batches + np.arange(len(batches))[:, None] * sources
    counts = np.bincount(cell.ravel(), minlength=len(batches) * sources).reshape(-1, sources)
    expected = batch_size / sources
    return float(((counts - expected) ** 2 / expected).sum(axis=1).mean())


def distinct_difference_share(order: Int64) -> float:
    """Different steps from a row to the next one, over all steps."""
    return len(np.unique(np.diff(order))) / (len(order) - 1)


def _whole_batches(values: Int64, size: int) -> Int64:
    """Whole batches [batches, size]; a remainder at the end is dropped."""
    batches = len(values) // size
    return values[: batches * size].reshape(batches, size)


def _permutation(order: Any) -> Int64:
    rows = np.asarray(order)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(rows) < 2:
        raise ConfigError(
            f"order: found {rows.dtype} {list(rows.shape)}, allowed: two or more integers [n]."
        )
    rows = rows.astype(np.int64)
    inside = rows.min() >= 0 and rows.max() < len(rows)
    if not inside or np.bincount(rows, minlength=len(rows)).max() > 1:
        raise ConfigError(
            f"order: found rows that are not 0 to {len(rows) - 1:,}, allowed: each of them once."
        )
    return rows


def check_sizes(n: int, block_size: int, batch_size: int) -> None:
    """Refuse sizes that cannot be measured."""
    check_between("n", n, 2)
    check_between("block_size", block_size, 1)
    check_between("batch_size", batch_size, 1)


def fair(n: int, block_size: int, batch_size: int) -> ShuffleQuality:
    """The measures of a uniformly random permutation of n rows, on average.

    The arguments are those of `tokenloom.quality.shuffle.measure`.

    >>> expected = fair(8192, 128, 2048)
    >>> f"{expected.mean_abs_displacement_norm:.4f} {expected.same_block_transition_rate:.4f}"
    '0.3334 0.0155'
    """
    check_sizes(n, block_size, batch_size)
    batch = min(BATCH, batch_size, n)
    sizes = np.full(-(-n // block_size), block_size, np.int64)
    sizes[-1] = n - block_size * (len(sizes) - 1)
    counted = np.unique(sizes, return_counts=True)
    block_sizes = dict(zip(counted[0].tolist(), counted[1].tolist(), strict=True))
    pairs = n * (n - 1)
    same = float((sizes * (sizes - 1)).sum()) / pairs
    left = (n - batch) / (n - 1)  # drawn without replacement
    odd = n // 2 / n
    return ShuffleQuality(
        mean_abs_displacement_norm=(n + 1) / (3 * n),
        inversion_fraction=0.5,
        spearman_rho=0.0,
        same_block_transition_rate=same,
        mean_block_jump=_fair_jump(sizes) / pairs,
        mean_source_block_run_length=n / (1 + (n - 1) * (1 - same)),
        fixed_points=1.0,
        blocks_per_group=fair_blocks(n, block_sizes, min(batch_size, n)),
        bit_correlation=_fair_bit_correlation(n),
        batch_parity_sd=math.sqrt(odd * (1 - odd) / batch * left),
        interleave_chi2=_fair_chi2(n, batch, left),
        distinct_difference_share=_fair_differences(n),
    )


def _fair_jump(sizes: Int64) -> float:
    """Sum of abs(b - c) over ordered pairs of different rows in blocks b and c."""
    number = np.arange(len(sizes))
    rows_before = np.cumsum(sizes) - sizes
    weighted_before = np.cumsum(sizes * number) - sizes * number
    return 2.0 * float((sizes * (number * rows_before - weighted_before)).sum())


def fair_blocks(n: int, sizes: Mapping[int, int], group: int) -> float:
    """Different blocks among `group` indices of a fair shuffle, on average.

    A block of s rows is missed by a group with probability C(n - s, g) / C(n, g).

    Args:
        n: rows.
        sizes: rows of a block → how many blocks have as many.
        group: indices, at most n.

    >>> f"{fair_blocks(4, {2: 2}, 2):.4f}"  # of two of four rows: both in four of six cases
    '1.6667'
    """
    total, drawn = 0.0, np.arange(group)
    for size, count in sizes.items():
        # a product of (n - s - j) / (n - j); its factors are close to 1 where there are many blocks
        missed = -math.inf
        if n - size >= group:
            missed = float(np.log1p(-size / (n - drawn)).sum())
        total += count * -math.expm1(missed)
    return total


def _fair_chi2(n: int, batch: int, left: float) -> float:
    """Mean of (count - b/8)^2 over b/8; 7 `left` where all sources have the same number of rows."""
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
