"""Packers: each equals the obvious scan over all bins, compiled and in NumPy, and loses nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slowpack import slow_bins

import tokenloom as tl
from tokenloom import native
from tokenloom.layout.pack.packers import STRATEGIES, pack

COMPILED = native.compiled
WAYS = ["numpy"] if COMPILED is None else ["numpy", "compiled"]


def bins_of(made):
    return [made.items[a:b].tolist() for a, b in zip(made.edges, made.edges[1:], strict=False)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    capacity=st.sampled_from([1, 2, 7, 63, 64, 65, 200, 4096, 5000]),
    most=st.none() | st.integers(1, 4),
    data=st.data(),
)
def test_a_packer_equals_the_obvious_scan(way, strategy, capacity, most, data):
    some = st.integers(1, capacity) | st.sampled_from([1, capacity, max(1, capacity // 2)])
    lengths = data.draw(st.lists(some, max_size=40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", COMPILED if way == "compiled" else None)
        made = pack(np.array(lengths, np.int64), capacity, strategy, most)
    assert bins_of(made) == slow_bins(lengths, capacity, strategy, most)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_both_ways_agree_on_many_items(monkeypatch, strategy):
    rng = np.random.default_rng(1)
    for size, capacity, most in ((3000, 2048, None), (3000, 300, 3), (500, 70_000, None)):
        lengths = np.minimum(rng.lognormal(5, 1.3, size).astype(np.int64) + 1, capacity)
        found = []
        for compiled in {None, COMPILED}:
            monkeypatch.setattr(native, "compiled", compiled)
            found.append(bins_of(pack(lengths, capacity, strategy, most)))
        assert all(one == found[0] for one in found)
        assert sorted(i for items in found[0] for i in items) == list(range(size))
        assert max(lengths[items].sum() for items in found[0]) <= capacity


@pytest.mark.parametrize("capacity", [(1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 20])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bins_of_more_than_16_bits_equal_the_obvious_scan(strategy, capacity):
    """Lengths whose order would be another one by their low 16 bits."""
    some = np.random.default_rng(2).integers(1, capacity + 1, 60)
    lengths = [1, capacity, *some.tolist(), 1, capacity // 2, capacity]
    made = pack(np.array(lengths, np.int64), capacity, strategy)
    assert bins_of(made) == slow_bins(lengths, capacity, strategy)


@pytest.mark.parametrize(
    ("lengths", "capacity", "most"), [([0], 8, None), ([9], 8, None), ([1], 0, None), ([1], 8, 0)]
)
def test_what_cannot_be_packed_is_refused(lengths, capacity, most):
    with pytest.raises(tl.ConfigError):
        pack(np.array(lengths), capacity, "greedy", most)
