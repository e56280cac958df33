"""The compiled merge refuses every bad argument by name, and stays inside its arrays."""

import numpy as np
import pytest

from tokenloom import native

MERGER = getattr(native.compiled, "Merger", None)

pytestmark = pytest.mark.skipif(
    MERGER is None, reason="the loops are not compiled here, or turned off"
)

GIVEN = ("weight", "base", "ref", "cost", "first", "end", "ties")


def clocks(cost=(3, 5)):
    """Two sources; a cost of 0 is a source whose times are given."""
    return [
        np.array([1.0, 2.0]),
        np.array([0.0, 0.5]),
        np.array([0, 0]),
        np.array(cost),
        np.array([0, 0]),
        np.array([9, 9]),
        np.array([1, 2], np.uint64),
    ]


def merger(cost=(3, 5)):
    return MERGER(*clocks(cost), False, False)


@pytest.mark.parametrize("place", range(len(GIVEN)), ids=GIVEN)
def test_arrays_of_other_lengths_are_refused(place):
    for change in (lambda a: a[:-1], lambda a: np.append(a, a[:1])):
        args = clocks()
        args[place] = change(args[place])
        with pytest.raises(ValueError, match="not of one length"):
            MERGER(*args, False, False)
    with pytest.raises(ValueError, match="empty"):
        MERGER(*(one[:0] for one in clocks()), False, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", 0.0),
        ("weight", -1.0),
        ("weight", float("nan")),
        ("weight", float("inf")),
        ("base", float("nan")),
        ("base", float("-inf")),
        ("ref", -1),
        ("ref", 2**62),
        ("cost", -1),
        ("cost", 2**54),
        ("first", -1),
        ("first", 10),
        ("end", -1),
        ("end", 2**63 - 1),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(name, value):
    args = clocks()
    args[GIVEN.index(name)][1] = value
    with pytest.raises(ValueError, match=f"^{name}: of source 1"):
        MERGER(*args, False, False)


def test_times_that_are_missing_are_refused():
    edges, times = np.array([0, 0, 4]), np.array([0.0, 1.0, 2.0, 9.0])
    args = [np.zeros(2, np.int64), edges, times, np.zeros(5, np.int64), np.zeros(5, np.int64)]
    with pytest.raises(ValueError, match=r"^edges, times: "):
        merger((3, 0)).take(args[0], None, None, *args[3:])
    with pytest.raises(ValueError, match=r"^edges, times: "):
        merger((3, 0)).take(args[0], args[1], None, *args[3:])
    with pytest.raises(ValueError, match=r"^cut: "):
        merger((3, 0)).cut(1, args[0])
    assert merger().take(args[0], None, None, *args[3:]) == 5


def test_odd_moments_have_an_answer():
    out = np.zeros(2, np.int64)
    for moment, expected in ((float("inf"), [9, 9]), (float("-inf"), [0, 0]), (1e308, [9, 9])):
        merger().counts(moment, out)
        assert out.tolist() == expected
    merger().counts(float("nan"), out)
    assert ((out >= 0) & (out <= 9)).all()


def test_the_ends_of_what_is_allowed_do_not_overflow():
    for midpoint in (False, True):
        args = clocks((2**53, 1))
        args[2][:] = 2**61
        args[5][:] = 2**62
        made, out = MERGER(*args, midpoint, False), np.zeros(2, np.int64)
        made.counts(1e200, out)
        assert out.tolist() == [2**8, 2**61]
        made.cut(2**53, out)
        assert out.sum() == 2**53
        source, item = np.zeros((2, 9), np.int64)
        out[:] = 2**8, 2**61 - 3
        assert made.take(out, None, None, source, item) == 3  # then both are at their ends
        assert out.tolist() == [2**8, 2**61]


def test_more_than_there_is_gives_what_there_is():
    source, item, out = np.full(40, -1), np.full(40, -1), np.zeros(2, np.int64)
    assert merger().take(out, None, None, source, item) == 18
    assert out.tolist() == [9, 9]
    assert (source[18:] == -1).all()
    merger().cut(10**6, out)
    assert out.tolist() == [9, 9]
