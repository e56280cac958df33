"""Orders at the values that the block shuffle design works out by hand."""

import itertools
import time

import numpy as np
import pytest

import tokenloom as tl
from tokenloom import order
from tokenloom.quality.shuffle import measure

BLOCK, BATCH = 128, 128
SEEDS = range(8)


def rows_of(made):
    return made.map(np.arange(made.n))


def test_sh_01_a_window_of_8_blocks_of_128_uses_exactly_8_blocks():
    rows = rows_of(order.block(8192, BLOCK, 8, seed=3))
    blocks = [set((window // BLOCK).tolist()) for window in rows.reshape(-1, 8 * BLOCK)]
    assert [len(used) for used in blocks] == [8] * 8
    assert set.union(*blocks) == set(range(64))  # and no block is in two windows


def test_sh_03_sh_20_every_small_length_is_a_bijection():
    for n, size, window in itertools.product(range(1, 301), (1, 2, 3, 7), (1, 2, 3)):
        rows = rows_of(order.block(n, size, window, seed=n))
        assert sorted(rows.tolist()) == list(range(n)), (n, size, window)


def test_sh_04_the_short_last_block_stays_last():
    rows = rows_of(order.block(1000, BLOCK, 8, seed=3))
    assert sorted(rows[-104:].tolist()) == list(range(896, 1000))
    assert rows[-104:].tolist() != list(range(896, 1000))


def test_c_33_a_short_last_window_of_whole_blocks_is_a_window_like_any():
    """11 whole blocks and a rest, windows of 4: 4, 4, 3 blocks, then the rest."""
    rows = rows_of(order.block(11 * 16 + 5, 16, 4, seed=3))
    sizes = [len(set((part // 16).tolist())) for part in np.split(rows[: 11 * 16], [64, 128])]
    assert sizes == [4, 4, 3]
    assert sorted(rows[-5:].tolist()) == list(range(176, 181))


def test_sh_12_index_1e9_of_1e10_takes_less_than_a_millisecond():
    """Counted in CPU, the median of 16 orders, each asked for the first time."""
    made = [order.full(10**10, seed=s) for s in SEEDS]
    made += [order.block(10**10, BLOCK, 512, seed=s) for s in SEEDS]
    spent = []
    for one in made:
        begin = time.thread_time()
        (row,) = one.map([10**9]).tolist()
        spent.append(time.thread_time() - begin)
        assert one.inverse([row]).tolist() == [10**9]
    assert float(np.median(spent)) < 1e-3


def test_sh_15_a_larger_window_mixes_more():
    """Rows of a batch come from more blocks; displacement is fair either way."""
    for seed in SEEDS:
        small, large = (rows_of(order.block(8192, BLOCK, k, seed=seed)) for k in (8, 32))
        blocks = [measure(rows, BLOCK, BATCH).blocks_per_group for rows in (small, large)]
        assert blocks[0] < blocks[1]
        assert measure(large, BLOCK, BATCH).mean_abs_displacement_norm == pytest.approx(1 / 3, 0.15)


@pytest.mark.parametrize("make", [order.full, lambda n, **k: order.block(n, BLOCK, 8, **k)])
def test_sh_16_an_epoch_depends_on_the_key_and_its_number_only(make):
    orders = [rows_of(make(8192, seed=7, epoch=epoch)) for epoch in (0, 1, 2)]
    again = rows_of(make(8192, seed=7, epoch=1))
    assert np.array_equal(orders[1], again)
    for a, b in itertools.combinations(orders, 2):
        assert (a == b).mean() < 0.01


@pytest.mark.parametrize(
    ("make", "fair", "within"),
    [
        (lambda seed: order.full(8192, seed=seed), 127 / 8191, 0.004),
        (lambda seed: order.era(8192, 1024, seed=seed), 0.124, 0.01),
        (lambda seed: order.block(8192, BLOCK, 8, seed=seed), 0.124, 0.01),
    ],
)
def test_sh_17_c_31_be_03_neighbours_share_a_block_as_often_as_by_chance(make, fair, within):
    rates = [measure(rows_of(make(s)), BLOCK, BATCH).same_block_transition_rate for s in SEEDS]
    assert np.mean(rates) == pytest.approx(fair, abs=within)


def test_sh_17_the_published_permutation_is_the_control_that_fails():
    rates = {
        "era": [order.era(8192, 1024, seed=s, perm_type="levanter") for s in SEEDS],
        "block": [order.block(8192, BLOCK, 8, seed=s, perm_type="levanter") for s in SEEDS],
    }
    for orders in rates.values():
        found = [measure(rows_of(o), BLOCK, BATCH).same_block_transition_rate for o in orders]
        assert np.mean(found) > 0.2


def test_be_02_be_03_the_usual_measures_and_their_fair_values():
    def mean(name, make):
        return np.mean([getattr(measure(rows_of(make(s)), BLOCK, BATCH), name) for s in SEEDS])

    makes = {
        "full": lambda s: order.full(8192, seed=s),
        "era": lambda s: order.era(8192, 1024, seed=s),
        "block": lambda s: order.block(8192, BLOCK, 8, seed=s),
    }
    wanted = {"full": (0.333, 0.5, 0.0), "era": (0.0417, 0.0625, 0.984), "block": (0.33, 0.5, 0.0)}
    names = ("mean_abs_displacement_norm", "inversion_fraction", "spearman_rho")
    for kind, make in makes.items():
        found = [mean(name, make) for name in names]
        assert found == pytest.approx(wanted[kind], abs=0.025), kind


def test_c_35_what_is_endless_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match="infinite='era'"):
        order.block(None, BLOCK, 8, seed=0)
    endless = order.block(None, BLOCK, 8, seed=0, infinite="era")
    assert sorted(endless.map(np.arange(8 * BLOCK)).tolist()) == list(range(8 * BLOCK))


def test_c_37_sh_06_rows_of_an_io_block(tmp_path):
    """Floor, with a warning; at least one; `align` rounds the edges to io blocks."""
    from tokenloom.testing.stores import write_flat

    tokens = 3 << 18
    write_flat(tmp_path / "s", np.zeros(tokens, np.uint16), np.array([tokens]), vocab_size=5)
    store = tl.open(tmp_path / "s")
    sizes = {2048: 128, 4096: 64, 8192: 32, 300_000: 1}
    for seq_len, rows in sizes.items():
        assert store.windows(seq_len).run.working.blocks.size == rows
    with pytest.warns(UserWarning, match="87 rows"):
        assert store.windows(3000).run.working.blocks.size == 87
    aligned = store.windows(3000, align=True).run.working.blocks
    assert np.diff(aligned.starts).tolist() == [88, 87, 87]  # of 262,144 tokens each
