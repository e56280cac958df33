"""The shuffle is as good as a fair one, by tests that a weak shuffle fails.

Each check gives a z-score: standard deviations away from what uniformly random permutations have.
Ours must stay within 5 of it, for every seed. Levanter's five-round network and its a x + b mod n
are the negative controls: a check that they pass would be worth nothing.

Full orders are one permutation. Eras and windows of blocks are many: of each window the ranks of
its rows are judged, which are a permutation too.
"""

import math

import numpy as np
import pytest

from tokenloom.order import block, era, full
from tokenloom.quality import fair, measure, shuffle
from tokenloom.random.permute import permutations

SIGMAS = 5
SEEDS = range(6)


def ranks(order, width):
    """Each window of `width` indices as a permutation of range(width) [windows, width]."""
    return np.argsort(np.argsort(order.reshape(-1, width), axis=1), axis=1)


# --- checks: windows [windows, width] -> z -----------------------------------------------------


def last_bit_can_be_guessed(windows):
    width = windows.shape[1]
    return max(map(shuffle.bit_correlation, windows)) * math.sqrt(width)


def neighbours_have_the_same_parity(windows):
    """Lag-1 autocorrelation of two interleaved sources; mean -1 / (width - 1)."""
    count, width = windows.shape
    sign = 1.0 - 2.0 * (windows & 1)
    found = (sign[:, 1:] * sign[:, :-1]).sum() / (count * (width - 1))
    return (found + 1 / (width - 1)) * math.sqrt(count * (width - 1))


def batches_have_an_odd_parity(windows, batch=64):
    """Variance of the share of odd rows in a batch against drawing without putting back."""
    count, width = windows.shape
    expected = fair(width, 1, batch).batch_parity_sd ** 2
    found = np.mean([shuffle.batch_parity_sd(window, batch) ** 2 for window in windows])
    return (found / expected - 1) * math.sqrt(count * (width // batch) / 2)


def batches_prefer_sources(windows, batch=64):
    count, width = windows.shape
    found = np.mean([shuffle.interleave_chi2(window, batch) for window in windows])
    expected = fair(width, 1, batch).interleave_chi2
    return (found - expected) / math.sqrt(14 / (count * (width // batch)))


def steps_repeat(windows):
    """Different steps from row to row: sd 0.35 / sqrt(width), see `fair`."""
    count, width = windows.shape
    found = np.mean([shuffle.distinct_difference_share(window) for window in windows])
    expected = fair(width, 1, 1).distinct_difference_share
    return (found - expected) / (0.35 / math.sqrt(count * width))


def places_depend_on_places(windows):
    """Chi-square of (part of the index, part of the row), two rows to a cell; the worst window."""
    width = windows.shape[1]
    side = math.isqrt(width // 2)
    index = np.arange(width) * side // width
    parts = np.bincount(index, minlength=side)
    expected = np.outer(parts, parts).ravel() / width
    freedom = (side - 1) ** 2

    def z(window):
        cells = np.bincount(index * side + window * side // width, minlength=side * side)
        chi2 = float(((cells - expected) ** 2 / expected).sum())
        return (chi2 - freedom * width / (width - 1)) / math.sqrt(2 * freedom)

    return max(map(z, windows), key=abs)


CHECKS = [
    last_bit_can_be_guessed,
    neighbours_have_the_same_parity,
    batches_have_an_odd_parity,
    batches_prefer_sources,
    steps_repeat,
    places_depend_on_places,
]

# name -> (order of a seed and a perm type, width of its windows). Windows of up to 4,096 rows are
# sorted tables, larger ones the network: both are judged.
USES = {
    "full 16,384": (lambda **k: full(16_384, **k).map(range(16_384)), 16_384),
    "full 100,003": (lambda **k: full(100_003, **k).map(range(100_003)), 100_003),
    "era 1,024": (lambda **k: era(16_384, 1024, **k).map(range(16_384)), 1024),
    "era 8,192": (lambda **k: era(32_768, 8192, **k).map(range(32_768)), 8192),
    "block 128 x 8": (lambda **k: block(16_384, 128, 8, **k).map(range(16_384)), 1024),
    "block 128 x 64": (lambda **k: block(32_768, 128, 64, **k).map(range(32_768)), 8192),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("use", USES)
def test_our_shuffle_is_fair(use, check):
    make, width = USES[use]
    for seed in SEEDS:
        z = check(ranks(make(seed=seed), width))
        assert abs(z) < SIGMAS, (seed, z)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("perm_type", ["levanter", "levanter_linear"])
@pytest.mark.parametrize("use", ["full 16,384", "era 8,192", "block 128 x 8"])
def test_weak_shuffles_fail_the_same_check(use, perm_type, check):
    make, width = USES[use]
    scores = [check(ranks(make(seed=seed, perm_type=perm_type), width)) for seed in SEEDS]
    assert min(map(abs, scores)) > SIGMAS, scores


def chi2_of_all_orders_of_five(perm_type, keys=12_000):
    """Over degrees of freedom; fair is 1 with sd sqrt(2 / 119)."""
    five = permutations(5, np.arange(keys, dtype=np.uint64), perm_type)
    x = np.tile(np.arange(5, dtype=np.uint64), keys)
    found = five.forward(x, np.repeat(np.arange(keys), 5)).reshape(keys, 5)
    _, counts = np.unique(found, axis=0, return_counts=True)
    expected = keys / 120
    missing = 120 - len(counts)
    return (((counts - expected) ** 2 / expected).sum() + missing * expected) / 119


def test_all_orders_of_five_rows_are_equally_likely():
    assert abs(chi2_of_all_orders_of_five("feistel") - 1) < SIGMAS * math.sqrt(2 / 119)


@pytest.mark.parametrize("perm_type", ["linear", "levanter", "levanter_linear"])
def test_weak_shuffles_prefer_some_orders_of_five_rows(perm_type):
    assert chi2_of_all_orders_of_five(perm_type, keys=2400) > 50


PUBLISHED = {
    "full": lambda **k: full(8192, **k),
    "era": lambda **k: era(8192, 1024, **k),
    "block": lambda **k: block(8192, 128, 8, **k),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("strategy", "expected", "tolerance"),
    [("full", 0.0155, 0.004), ("era", 0.124, 0.01), ("block", 0.124, 0.01)],
)
def test_neighbours_share_a_block_as_often_as_chance_has_it(strategy, expected, tolerance, seed):
    """Published as 0.0107, 0.3106 and 0.3063, which is the weak network, not locality."""
    order = PUBLISHED[strategy](seed=seed).map(range(8192))
    assert abs(measure(order, 128, 2048).same_block_transition_rate - expected) < tolerance


@pytest.mark.parametrize("strategy", PUBLISHED)
def test_epochs_are_as_unlike_as_random_orders(strategy):
    """Indices with the same row in two epochs: as many as random orders of a window share, 1."""
    windows = 8 if strategy == "era" else 1
    orders = [PUBLISHED[strategy](seed=3, epoch=epoch).map(range(8192)) for epoch in range(30)]
    pairs = [(a == b).sum() for i, a in enumerate(orders) for b in orders[:i]]
    expected = windows * len(pairs)
    assert abs(sum(pairs) - expected) < SIGMAS * math.sqrt(expected)


def test_two_interleaved_corpora_stay_mixed_in_a_large_order():
    """At n = 2^20 every batch of the weak full shuffle is all even or all odd rows."""
    ours = full(1 << 20, seed=0).map(range(128 * 1024))
    weak = full(1 << 20, seed=0, perm_type="levanter").map(range(128 * 1024))
    assert shuffle.batch_parity_sd(weak, 128) == 0.5
    fair_sd = 0.5 / math.sqrt(128)
    assert abs(shuffle.batch_parity_sd(ours, 128) / fair_sd - 1) < SIGMAS / math.sqrt(2 * 1024)


@pytest.mark.parametrize("n", [10**9, 2**40 + 1, 3 * 2**61, 2**63 - 1])
@pytest.mark.parametrize("start", [0, 123_456_789])
def test_neighbouring_indices_of_huge_orders_go_to_unrelated_rows(n, start):
    """Any bit of a row is fair and none follows from bits of the index; rows spread evenly."""
    index = np.arange(start, start + 65_536)
    rows = full(n, seed=1).map(index)
    root = math.sqrt(len(rows))
    parts = np.bincount((rows // (n // 64 + 1)).astype(np.int64), minlength=64)
    expected = len(rows) / 64
    assert ((parts - expected) ** 2 / expected).sum() < 63 + SIGMAS * math.sqrt(2 * 63)
    for bit in range(0, n.bit_length() - 8, 3):  # the upper bits of rows below n lean to 0
        sign = 1.0 - 2.0 * (rows >> bit & 1)
        assert abs(sign.sum()) / root < SIGMAS
        for lag in (1, 2, 3, 8, 128, 1024):
            assert abs((sign[lag:] * sign[:-lag]).sum()) / root < SIGMAS
        assert shuffle.bit_correlation(rows >> bit) * root < SIGMAS
    batches = shuffle.interleave_chi2(rows, 64)
    assert abs(batches - 7) / math.sqrt(14 / 1024) < SIGMAS
