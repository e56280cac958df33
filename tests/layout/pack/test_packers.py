"""Packers: each equals the obvious scan over all bins, both ways, and loses nothing."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from slowpack import slow_bins

import tokenloom as tl
from tokenloom import native
from tokenloom.layout.pack.packers import STRATEGIES, check_strategy, pack

COMPILED = native.compiled
WAYS = ["numpy"] if COMPILED is None else ["numpy", "compiled"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setattr(native, "compiled", COMPILED if request.param == "compiled" else None)
    return request.param


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


@pytest.mark.skipif(COMPILED is None, reason="nothing is compiled")
@pytest.mark.parametrize("strategy", ["best_fit", "best_fit_decreasing"])
def test_items_that_fit_one_bin_together_are_put_there_without_a_search(monkeypatch, strategy):
    """A search takes memory for every room that a bin may have, and frames have 10^6 cells."""
    searched = []

    def best_fit(lengths, *others):
        searched.append(len(lengths))
        return COMPILED.best_fit(lengths, *others)

    monkeypatch.setattr(native, "compiled", SimpleNamespace(best_fit=best_fit))
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    for capacity, most, searches in ((31, None, 0), (31, 8, 0), (30, None, 1), (31, 7, 1)):
        searched.clear()
        made = pack(np.array(lengths), capacity, strategy, most)
        assert bins_of(made) == slow_bins(lengths, capacity, strategy, most)
        assert len(searched) == searches
        assert (len(made) == 1) == (searches == 0)


@pytest.mark.parametrize("capacity", [(1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 20])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bins_of_more_than_16_bits_equal_the_obvious_scan(strategy, capacity):
    """Lengths whose order would be another one by their low 16 bits."""
    some = np.random.default_rng(2).integers(1, capacity + 1, 60)
    lengths = [1, capacity, *some.tolist(), 1, capacity // 2, capacity]
    made = pack(np.array(lengths, np.int64), capacity, strategy)
    assert bins_of(made) == slow_bins(lengths, capacity, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_and_one_item(way, strategy):
    assert bins_of(pack(np.empty(0, np.int64), 8, strategy)) == []
    assert bins_of(pack(np.array([8]), 8, strategy)) == [[0]]


def test_the_seeds_lengths_fill_two_bins(way):
    for strategy in ("best_fit_decreasing", "first_fit_decreasing"):
        assert len(pack(np.array([7, 3, 3, 5]), 10, strategy)) == 2


@example([5] * 64)
@given(st.lists(st.integers(1, 9), max_size=64))
def test_equal_room_goes_to_the_bin_opened_last(lengths):
    made = bins_of(pack(np.array(lengths, np.int64), 9, "best_fit"))
    assert made == slow_bins(lengths, 9, "best_fit")


@pytest.mark.parametrize(
    ("lengths", "capacity", "most"), [([0], 8, None), ([9], 8, None), ([1], 0, None), ([1], 8, 0)]
)
def test_what_cannot_be_packed_is_refused(way, lengths, capacity, most):
    with pytest.raises(tl.ConfigError, match="allowed: 1 to"):
        pack(np.array(lengths), capacity, "greedy", most)


def test_an_unknown_strategy_is_refused_with_the_near_miss():
    with pytest.raises(tl.ConfigError, match=r"strategy: found 'bestfit'.*Did you mean 'best_fit'"):
        check_strategy("bestfit")
    assert check_strategy("bin") == "first_fit_decreasing"


@pytest.mark.skipif(COMPILED is None, reason="the loops are not compiled here, or turned off")
@pytest.mark.parametrize("name", ["best_fit", "first_fit"])
def test_the_compiled_packers_trust_nobody(name):
    call, good = getattr(COMPILED, name), np.array([1, 2], np.int64)
    out = np.empty(2, np.int64)
    for wrong in (
        (np.array([9, 1], np.int64), 8, 5, out),
        (np.array([-1, 1], np.int64), 8, 5, out),
        (good, 0, 5, out),
        (good, 8, 0, out),
        (good, 1 << 40, 5, out),
        (good, 8, 5, np.empty(3, np.int64)),
    ):
        with pytest.raises(ValueError, match=r"allowed|lengths"):
            call(*wrong)
    for wrong in ((good.astype(np.int32), 8, 5, out), (good, 8, 5), (good, 8, 5, b"12345678")):
        with pytest.raises((TypeError, ValueError), match=r"lengths:|takes 4|out:"):
            call(*wrong)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_items_bins_and_numbers_of_items_are_taken_up_to_their_limits(strategy):
    lengths = np.array([3, 1, 5, 2])
    one_each = pack(lengths, 5, strategy, most=1)
    assert np.diff(one_each.edges).tolist() == [1, 1, 1, 1]
    assert sorted(one_each.items.tolist()) == [0, 1, 2, 3]
    assert len(pack(np.array([1, 1]), 1, strategy)) == 2, "bins of one cell"
    assert len(pack(np.array([5]), (1 << 31) - 1, "one_doc")) == 1
    nothing = pack(np.empty(0, np.int64), 5, strategy)
    assert (len(nothing), nothing.edges.tolist(), len(nothing.items)) == (0, [0], 0)
    for capacity, most in ((0, None), (1 << 31, None), (5, 0), (5, -1)):
        with pytest.raises(tl.ConfigError, match="capacity, most: found"):
            pack(lengths, capacity, strategy, most)
    for wrong in ([0, 1], [6, 1]):
        with pytest.raises(tl.ConfigError, match=r"lengths: found .*allowed: 1 to 5"):
            pack(np.array(wrong), 5, strategy)
