"""Orders at the values that the block shuffle design works out by hand."""

import numpy as np
import pytest

from tokenloom import order
from tokenloom.quality.shuffle import measure

BLOCK, BATCH = 128, 128
SEEDS = range(8)


def rows_of(made):
    return made.map(np.arange(made.n))


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
