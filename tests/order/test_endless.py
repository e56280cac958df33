"""Endless rows: refused where all rows must be known, with the way out in the message."""

import numpy as np
import pytest

from tokenloom import order
from tokenloom.errors import ConfigError


@pytest.mark.parametrize("make", [order.full, lambda n, seed: order.block(n, 4, 2, seed=seed)])
def test_sh_05_a_shuffle_of_all_rows_refuses_endless_ones_and_says_what_to_do(make):
    with pytest.raises(TypeError, match="infinite='era'"):
        make(None, seed=0)


def test_sh_05_endless_rows_are_shuffled_in_stretches_of_a_band():
    endless = order.block(None, 4, 2, lanes=3, seed=5, infinite="era")
    rows = endless.map(np.arange(240))
    for start in range(0, 240, 24):  # 4 rows x 2 blocks x 3 lanes
        assert sorted(rows[start : start + 24]) == list(range(start, start + 24))
    assert (endless.inverse(rows) == np.arange(240)).all()
    assert endless.map([10**15]).shape == (1,)
    with pytest.raises(TypeError, match="no length"):
        len(endless)


def test_an_unknown_way_to_be_endless_is_refused():
    with pytest.raises(ConfigError, match="infinite: found 'cycle'"):
        order.block(10, 4, 2, seed=0, infinite="cycle")
