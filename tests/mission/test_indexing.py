"""`run[…]`: one example, a slice, a list or an array of them; never a negative index."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl


@pytest.fixture(scope="module")
def store(shared_store_of):
    """One document of 40 tokens."""
    return shared_store_of(range(1, 41))


@pytest.fixture
def run(store):
    return store.windows(2).shuffle().seed(1)


class Index:
    """Anything that is an index."""

    def __index__(self):
        return 3

    def __repr__(self):
        return "Index()"  # the name of a test must be the same in every process


@pytest.mark.parametrize(
    ("wanted", "indices"),
    [
        (3, [3]),
        (np.int64(3), [3]),
        (np.uint8(3), [3]),
        (Index(), [3]),
        ([1, 2], [1, 2]),
        ([5, 5, 0], [5, 5, 0]),
        (np.array([1, 2]), [1, 2]),
        (np.array(7), [7]),
        (range(3, 9, 2), [3, 5, 7]),
        (slice(0, 4), [0, 1, 2, 3]),
        (slice(18, 99), [18, 19]),
        (slice(None, None, 7), [0, 7, 14]),
        (slice(3, 0, -1), [3, 2, 1]),
        (slice(np.int64(1), np.int64(3)), [1, 2]),
    ],
    ids=str,
)
def test_these_rows_are_a_batch(run, wanted, indices):
    batch = run[wanted]
    assert batch.index.tolist() == indices
    np.testing.assert_array_equal(batch.tokens, run.batch(indices).tokens)


@pytest.mark.parametrize("wanted", [slice(4, 4), slice(30, 40), [], np.array([], int)], ids=str)
def test_no_rows_are_an_empty_batch(run, wanted):
    assert run[wanted].tokens.shape == (0, 2)


@given(st.none() | st.integers(0, 25), st.none() | st.integers(0, 25), st.sampled_from([1, 2, -1]))
def test_a_slice_is_that_of_a_list(store, start, stop, step):
    run = store.windows(2)
    assert run[start:stop:step].index.tolist() == list(range(20))[start:stop:step]


@pytest.mark.parametrize("wanted", [-1, [-1], [0, -1], slice(-2, None), slice(0, -1), 20, [0, 20]])
def test_what_lies_outside_is_refused(run, wanted):
    """Ruling 9: negative indices raise IndexError everywhere."""
    with pytest.raises(IndexError, match="index"):
        run[wanted]


@pytest.mark.parametrize("wanted", [True, "a", 1.5, [True, False], (1, 2), None, [[1]], {1: 2}])
def test_what_is_no_index_is_refused(run, wanted):
    with pytest.raises(TypeError, match="ind"):
        run[wanted]


def test_an_endless_run_is_true_and_has_slices_with_an_end(run):
    endless = run.epochs(None)
    assert endless
    assert not run.epochs(0)
    assert run
    assert endless[100:103].index.tolist() == [100, 101, 102]
    with pytest.raises(IndexError, match="no end"):
        endless[5:]
    mixed = tl.mix({"a": endless, "b": run})
    assert mixed
    assert mixed[2:4].index.tolist() == [2, 3]
