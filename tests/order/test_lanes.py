"""Rounds over lanes: place and (lane, round) translate both ways, in closed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_orders import reversed_bits

from tokenloom.layout.blocks import Blocks
from tokenloom.order.block_order import BlockOrder, LaneRounds, bit_reversed
from tokenloom.order.shuffle_windows import OrderKeys

lengths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def slow_rounds(lengths):
    """(lane, round) in the order in which rows are taken."""
    turns = sorted(range(len(lengths)), key=reversed_bits(len(lengths)))
    return [
        (lane, height) for height in range(max(lengths)) for lane in turns if height < lengths[lane]
    ]


@given(lengths)
def test_rounds_take_one_row_of_every_lane_that_has_one(lengths):
    rounds = LaneRounds(np.array(lengths, np.int64))
    expected = slow_rounds(lengths)
    assert rounds.rows == len(expected)
    if not expected:
        return
    places = np.arange(len(expected))
    lane, height = rounds.locate(places)
    lane = np.broadcast_to(lane, places.shape)
    assert list(zip(lane.tolist(), height.tolist(), strict=True)) == expected
    assert (rounds.place(lane, height) == places).all()


@given(lengths, st.randoms(use_true_random=False))
def test_places_may_be_asked_in_any_order(lengths, random):
    rounds = LaneRounds(np.array(lengths, np.int64))
    expected = slow_rounds(lengths)
    places = [random.randrange(len(expected)) for _ in range(20)] if expected else []
    if not places:
        return
    lane, height = rounds.locate(np.array(places))
    lane = np.broadcast_to(lane, (len(places),))
    assert list(zip(lane.tolist(), height.tolist(), strict=True)) == [expected[p] for p in places]


def test_the_worked_example_of_the_module():
    lane, height = LaneRounds(np.array([3, 1, 2])).locate(np.arange(6))
    assert lane.tolist() == [0, 2, 1, 0, 2, 0]
    assert height.tolist() == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("count", range(1, 70))
def test_lanes_are_visited_in_the_order_of_their_reversed_bits(count):
    order = bit_reversed(count)
    assert sorted(order) == list(range(count))
    assert order == sorted(range(count), key=reversed_bits(count))


@pytest.mark.parametrize("lanes", [8, 64])
def test_any_run_of_places_spreads_evenly_over_the_ranks_lanes(lanes):
    """Of any 2^k neighbouring places with k <= log2 lanes, one falls into each 2^k-th of the lanes.

    For runs that start at a multiple of their length; any other run is off by one at most.
    """
    lane, _ = LaneRounds(np.full(lanes, 16, np.int64)).locate(np.arange(lanes * 16))
    for run in (2, 4, 8):
        for start in range(0, lanes * 16 - run, run):
            assert sorted(lane[start : start + run] * run // lanes) == list(range(run))
        for start in range(lanes * 16 - run):
            shares = np.bincount(lane[start : start + run] * run // lanes, minlength=run)
            assert shares.max() <= 2


@pytest.mark.parametrize("rows", [64, 70, 96, 100])
@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_fractions_repeat_where_their_period_says_so(rows, lanes):
    """Blocks of one size and of several; steps over the edges of bands and epochs."""
    for blocks in (Blocks.equal(rows, 4), Blocks.cut([*range(0, rows - 5, 5), rows])):
        order = BlockOrder(blocks, 2, lanes, OrderKeys(1, 0, "feistel", "main"))
        every, known = order.fractions(np.arange(rows)), 0
        for first in range(0, rows, 3):
            for last in range(first + 1, rows + 1, 5):
                period = order.fraction_period(first, last)
                known += period > 0
                some = every[first:last]
                assert not period or (some[period:] == some[:-period]).all()
        assert known or blocks.size == 0
