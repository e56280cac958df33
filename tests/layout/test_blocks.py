"""Blocks of rows, joined until they are large enough."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.layout.blocks import Blocks


def slowly(sizes, rows):
    """Starts of joined blocks: each is closed as soon as it has `rows` rows."""
    starts, held, at = [0], 0, 0
    for size in sizes:
        held, at = held + size, at + size
        if held >= rows:
            starts.append(at)
            held = 0
    return starts if starts[-1] == at else [*starts, at]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 30))
def test_blocks_are_joined_until_they_have_enough_rows(sizes, rows):
    blocks = Blocks.cut(np.cumsum([0, *sizes]))
    joined = blocks.merged(rows)
    assert joined.rows == blocks.rows == sum(sizes)
    assert joined.starts.tolist() == slowly(sizes, rows)
    first, last = joined.edges(np.arange(len(joined)))
    assert (last - first >= rows)[:-1].all()
    assert set(joined.starts.tolist()) <= set(blocks.starts.tolist())


@given(st.integers(0, 200), st.integers(1, 20), st.integers(-3, 90))
def test_equal_blocks_are_joined_to_the_smallest_multiple_that_is_enough(rows, size, wanted):
    joined = Blocks.equal(rows, size).merged(wanted)
    assert (joined.rows, joined.size % size) == (rows, 0)
    assert joined.size >= max(wanted, 1)
    assert joined.size == size or joined.size - size < wanted
