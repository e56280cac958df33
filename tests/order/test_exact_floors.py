"""Floors of products that may take more than 64 bits: as Python's integers give them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.order.epochs import _floor_of

NEAR = st.sampled_from([0, 1, 2**31, 2**32, 2**61, 2**62, 2**63 - 1])


@given(
    st.lists(NEAR | st.integers(0, 2**40), max_size=5),
    st.integers(-9, 9) | st.sampled_from([2**31, 2**62, -(2**62)]),
    st.integers(-9, 9) | st.sampled_from([2**62, 2**63 - 1, -(2**62)]),
    st.sampled_from([1, 3, 7, 2**31, 2**62]),
)
def test_floors_are_those_of_whole_numbers(x, times, plus, by):
    wanted = [(one * times + plus) // by for one in x]
    if all(-(2**63) <= one < 2**63 for one in wanted):
        assert _floor_of(np.array(x, np.int64), times, by, plus).tolist() == wanted


@pytest.mark.parametrize(
    ("x", "times", "plus", "by"),
    [
        ([2**62], 2, 0, 4),  # exactly 2^63
        ([2**62, 0], 3, 0, 4),  # below 2^64
        ([2**62], 1, 2**62, 4),  # only with what is added
        ([2**62], -3, 0, 4),
        ([0, 2**62], 1, -(2**63), 2),
        ([2**63 - 1], 1, 0, 1),  # the most that fits
    ],
)
def test_what_takes_one_bit_too_many_is_exact(x, times, plus, by):
    wanted = [(one * times + plus) // by for one in x]
    assert _floor_of(np.array(x, np.int64), times, by, plus).tolist() == wanted
