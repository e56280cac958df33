"""A few places in each of many shuffle windows: as each window alone has them."""

import contextlib

import numpy as np
import pytest

from tokenloom.order import Blocks, block, era
from tokenloom.testing import numpy_alone, tiny

WAYS = {
    "usual": contextlib.nullcontext,
    "NumPy": numpy_alone,
    "tiny": tiny,
}
ORDERS = {
    "sorted": lambda kind: era(300 * 200, 200, seed=4, perm_type=kind),
    "network": lambda kind: era(300 * 5000, 5000, seed=4, perm_type=kind),
    "a short last window": lambda kind: era(300 * 50 + 1, 50, seed=4, perm_type=kind),
    "equal blocks": lambda kind: block(40_000, 16, 4, lanes=3, seed=2, perm_type=kind),
    "cut blocks": lambda kind: block(
        Blocks.cut(np.cumsum([0, *range(1, 280)])), None, 2, lanes=3, seed=2, perm_type=kind
    ),
    "large cut blocks": lambda kind: block(
        Blocks.cut(np.cumsum([0, *range(2400, 2700)])), None, 2, lanes=3, seed=2, perm_type=kind
    ),
}


@pytest.mark.parametrize("kind", ["feistel", "linear"])
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("way", WAYS)
def test_places_all_over_an_order_are_those_of_each_alone(way, name, kind):
    with WAYS[way]():
        order = ORDERS[name](kind)
        n = len(order)
        some = np.random.default_rng(3).integers(0, n, 250)  # fewer than two in a window
        some[:3] = 0, n - 1, n - 1
        together = order.map(some)
        alone = ORDERS[name](kind)
        assert together[:40].tolist() == [int(alone.map([index])[0]) for index in some[:40]]
        assert order.inverse(together).tolist() == some.tolist()
        first = order.map(np.arange(500))
        assert first.tolist() == ORDERS[name](kind).map(np.arange(500)[::-1])[::-1].tolist()
