"""A word for an order from a few of its windows: for good, bad and no shuffles of any size."""

import numpy as np
import pytest

from tokenloom.order import Blocks, block, era, full, identity
from tokenloom.quality.shuffle import fair_blocks, measure
from tokenloom.report.order_sample import (
    PATTERN,
    RANDOM,
    STORED,
    TINY,
    WINDOWS,
    look_at_order,
)

SIZES = (2_500, 50_000, 10**9)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_a_fair_shuffle_is_like_random(n, seed):
    found = look_at_order(full(n, seed=seed), Blocks.equal(n, 128), 64)
    assert found.kind == RANDOM
    assert found.batch_blocks == pytest.approx(found.fair_batch_blocks, rel=0.05)
    # a fair row moves by a third with a deviation of 0.24: five of 2,500, or of 16,384, rows
    assert found.moved == pytest.approx(found.fair_moved, abs=5 * 0.24 / found.looked_at**0.5)


def test_what_is_fair_depends_on_the_places_that_were_looked_at():
    """Windows near the ends of an epoch move further than a third, also in a fair shuffle."""
    n = 52_668
    looks = [look_at_order(full(n, seed=7), Blocks.equal(n, n), 8, name) for name in "abcdefgh"]
    for one in looks:
        assert one.moved == pytest.approx(one.fair_moved, abs=0.01)
    assert max(abs(one.moved - 1 / 3) for one in looks) > 0.015  # control: a third is wrong


@pytest.mark.parametrize("n", SIZES)
def test_control_no_shuffle_is_stored_order(n):
    found = look_at_order(identity(n), Blocks.equal(n, 128), 64)
    assert (found.kind, found.in_a_row, found.moved) == (STORED, 1.0, 0.0)
    assert found.batch_blocks < 2


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["linear", "levanter", "levanter_linear"])
def test_control_a_weak_permutation_is_not_praised(n, kind):
    found = look_at_order(full(n, seed=5, perm_type=kind), Blocks.equal(n, 128), 64)
    assert found.kind == PATTERN
    assert found.patterns


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rows", [16, 128])
def test_windows_are_told_with_their_rows(n, rows):
    blocks = Blocks.equal(n, rows)
    found = look_at_order(block(blocks, window_blocks=4, seed=1), blocks, 64)
    assert (found.kind, found.window) == (WINDOWS, 4 * rows)
    assert found.batch_blocks < 0.3 * found.fair_batch_blocks
    assert look_at_order(era(n, 512, seed=1), blocks, 64).window == 512


def test_a_window_of_all_rows_is_no_window():
    blocks = Blocks.equal(3000, 128)
    assert look_at_order(block(blocks, window_blocks=100, seed=1), blocks, 64).kind == RANDOM


@pytest.mark.parametrize("n", range(6))
def test_hardly_any_rows_are_looked_at_without_an_error(n):
    found = look_at_order(full(n, seed=1), Blocks.equal(n, 2), 64)
    assert found.kind in (TINY, RANDOM, STORED)
    assert found.looked_at == n


def test_a_short_order_is_measured_whole():
    order, blocks = full(4096, seed=2), Blocks.equal(4096, 128)
    found = look_at_order(order, blocks, 1024)
    right = measure(order.map(np.arange(4096)), 128, 1024)
    assert found.batch_blocks == right.blocks_per_group
    assert found.same_block == right.same_block_transition_rate
    assert found.moved == pytest.approx(right.mean_abs_displacement_norm)


def test_expected_blocks_are_those_of_all_permutations_and_exact_for_many_blocks():
    random = np.random.Generator(np.random.PCG64(0))
    seen = [len(set((random.permutation(60)[:10] // 7).tolist())) for _ in range(4000)]
    assert fair_blocks(60, {7: 8, 4: 1}, 10) == pytest.approx(np.mean(seen), rel=0.01)
    # 64 rows of 7.8 million blocks: hardly two of one block
    assert fair_blocks(10**9, {128: 7_812_500}, 64) == pytest.approx(64 - 64 * 63 / 2 * 1.27e-7)
