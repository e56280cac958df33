"""Blocks of rows, joined until they are large enough."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.errors import ConfigError
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


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 12])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_equal_blocks_are_a_list_cut_every_so_often(rows, size):
    blocks = Blocks.equal(rows, size)
    wanted = [list(range(rows))[k : k + size] for k in range(0, rows, size)]
    assert len(blocks) == len(wanted)
    first, last = blocks.edges(np.arange(len(wanted)))
    pairs = zip(first.tolist(), last.tolist(), strict=True)
    assert [list(range(a, b)) for a, b in pairs] == wanted
    assert blocks.of(np.arange(rows)).tolist() == [k for k, one in enumerate(wanted) for _ in one]
    for least in (1, 2, 4, 50):
        merged = blocks.merged(least)
        assert merged.rows == rows
        assert merged.size == next(size * k for k in range(1, 99) if size * k >= least)


@pytest.mark.parametrize("starts", [[0], [0, 0], [0, 3], [0, 3, 3, 4, 10], [0, 0, 5]])
def test_cut_blocks_are_a_list_cut_at_their_starts(starts):
    blocks = Blocks.cut(starts)
    wanted = [list(range(a, b)) for a, b in itertools.pairwise(starts)]
    assert (len(blocks), blocks.rows, blocks.size) == (len(wanted), starts[-1], 0)
    first, last = blocks.edges(np.arange(len(wanted)))
    pairs = zip(first.tolist(), last.tolist(), strict=True)
    assert [list(range(a, b)) for a, b in pairs] == wanted
    rows = blocks.of(np.arange(starts[-1])).tolist()
    assert rows == [k for k, one in enumerate(wanted) for _ in one]


@pytest.mark.parametrize(("rows", "size", "name"), [(5, 0, "io_block_size"), (-1, 3, "rows")])
def test_blocks_without_rows_are_fine_and_those_of_none_are_not(rows, size, name):
    assert len(Blocks.equal(0, 1)) == 0
    with pytest.raises(ConfigError, match=f"{name}: found"):
        Blocks.equal(rows, size)
