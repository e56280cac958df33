import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.store.coalesce import FILE_SHIFT, plan, union


def ranges(pairs):
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def covered(start, stop):
    return {byte for a, b in zip(start, stop, strict=True) for byte in range(a, b)}


pairs = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=25,
)


@given(pairs, st.integers(0, 20))
def test_union_covers_what_was_asked_and_merges_only_neighbours(asked, gap):
    start, stop = ranges(asked)
    low, high = union(start, stop, gap)
    assert covered(start, stop) <= covered(low, high)
    assert (low[1:] > high[:-1] + gap).all()
    if gap == 0:
        assert covered(start, stop) == covered(low, high)


@given(pairs, st.integers(0, 20), st.integers(1, 50))
def test_pieces_put_together_are_exactly_the_requests(asked, gap, cap):
    start, stop = ranges(asked)
    p = plan(start, stop, gap=gap, cap=cap)
    line = np.arange(1000)
    buffers = [line[a:b] for a, b in zip(p.start, p.stop, strict=True)]
    assert all(len(b) <= cap for b in buffers)
    got = {i: [] for i in range(len(asked))}
    for r, a, b, i in zip(p.read, p.low, p.high, p.request, strict=True):
        got[int(i)] += buffers[r][a:b].tolist()
    assert got == {i: list(range(a, b)) for i, (a, b) in enumerate(asked)}
    assert (np.diff(p.request) >= 0).all()


def test_the_worked_example_of_the_module():
    start, stop = ranges([(5, 9), (3, 6), (20, 40), (3, 6)])
    p = plan(start, stop, cap=8)
    reads = list(zip(p.start.tolist(), p.stop.tolist(), strict=True))
    assert reads == [(3, 9), (20, 28), (28, 36), (36, 40)]
    assert p.runs == 2
    assert p.request.tolist() == [0, 1, 2, 2, 2, 3]


def test_ranges_of_two_files_never_merge():
    end_of_first = (1 << FILE_SHIFT) - 10
    start, stop = ranges(
        [(end_of_first, end_of_first + 5), (1 << FILE_SHIFT, (1 << FILE_SHIFT) + 5)]
    )
    assert plan(start, stop).runs == 2


def test_a_gap_wastes_the_bytes_between_and_saves_a_read():
    start, stop = ranges([(30, 40), (50, 60)])
    assert plan(start, stop, gap=0).runs == 2
    merged = plan(start, stop, gap=10)
    assert merged.runs == 1
    assert int((merged.stop - merged.start).sum()) == 30


def test_no_request_is_an_empty_plan():
    nothing = np.empty(0, np.int64)
    p = plan(nothing, nothing)
    assert p.runs == 0
    assert len(p.start) == len(p.read) == 0
