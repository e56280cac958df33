"""The compiled merge refuses every bad argument by name, and stays inside its arrays."""

import contextlib
import threading

import numpy as np
import pytest

from tokenloom import native

MERGER = getattr(native.compiled, "Merger", None)

pytestmark = pytest.mark.skipif(
    MERGER is None, reason="the loops are not compiled here, or turned off"
)

GIVEN = ("weight", "base", "ref", "cost", "first", "end", "ties")
TAKEN = ("counts", "edges", "times", "source", "item")


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


def taken():
    """Arguments of `take` for one source of equal costs and one whose times are given."""
    edges, times = np.array([0, 0, 4]), np.array([0.0, 1.0, 2.0, 9.0])
    return [np.zeros(2, np.int64), edges, times, np.zeros(5, np.int64), np.zeros(5, np.int64)]


def misaligned(array):
    made = np.frombuffer(bytearray(array.nbytes + 1), np.uint8)[1:].view(array.dtype)
    made[:] = array
    return made


WRONG = {
    "another width": lambda a: a.astype(np.int32),
    "another kind": lambda a: a.astype(np.int64 if a.dtype.kind == "f" else np.float64),
    "another byte order": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "misaligned": misaligned,
    "not contiguous": lambda a: np.repeat(a, 2)[::2],
    "a list": lambda a: a.tolist(),
    "a number": lambda a: 7,
}


def test_what_is_altered_below_works():
    merger()
    args = taken()
    assert merger((3, 0)).take(*args) == 5
    assert args[3].tolist() == [0, 1, 1, 1, 0]
    assert args[0].tolist() == [2, 3]


@pytest.mark.parametrize("wrong", list(WRONG))
@pytest.mark.parametrize("place", range(len(GIVEN)), ids=GIVEN)
def test_an_array_of_another_kind_is_refused_by_name(place, wrong):
    args = clocks()
    args[place] = WRONG[wrong](args[place])
    with pytest.raises((TypeError, ValueError), match=f"^{GIVEN[place]}: "):
        MERGER(*args, False, False)


@pytest.mark.parametrize("wrong", list(WRONG))
@pytest.mark.parametrize("place", range(len(TAKEN)), ids=TAKEN)
def test_what_is_taken_into_is_refused_by_name(place, wrong):
    args, made = taken(), merger((3, 0))
    args[place] = WRONG[wrong](args[place])
    with pytest.raises((TypeError, ValueError), match=f"^{TAKEN[place]}: "):
        made.take(*args)
    for way in (made.counts, merger().cut):
        with pytest.raises((TypeError, ValueError), match=r"^out: "):
            way(1, WRONG[wrong](np.zeros(2, np.int64)))


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


def test_counts_and_edges_out_of_range_are_refused_and_nothing_is_written():
    for place, at, value in [
        *((0, at, value) for at in (0, 1) for value in (-1, 10, 2**62, -(2**63))),
        *((1, at, value) for at in (1, 2) for value in (-1, 5, 2**62, -(2**63))),
        (1, 1, 4 + 1),
    ]:
        args = taken()
        args[place][at] = value
        before = [one.copy() for one in args]
        with pytest.raises(IndexError, match=f"^{TAKEN[place]}: "):
            merger((3, 0)).take(*args)
        assert all(np.array_equal(a, b) for a, b in zip(before, args, strict=True))


def test_outputs_that_share_memory_are_refused():
    room = np.zeros(16, np.int64)
    for place in (0, 3, 4):
        for other in range(5):
            if other == place:
                continue
            args = taken()
            size = len(args[other])
            args[other] = room[:size].view(args[other].dtype)
            args[place] = room[size - 1 : size - 1 + len(args[place])]
            with pytest.raises(ValueError, match="shares memory with"):
                merger((3, 0)).take(*args)
    args = taken()
    args[3].flags.writeable = False
    with pytest.raises(ValueError, match=r"^source: "):
        merger((3, 0)).take(*args)


def test_lengths_that_do_not_fit_are_refused():
    for place in (0, 1, 3):
        args = taken()
        args[place] = np.append(args[place], 0)
        with pytest.raises(ValueError, match="not of the right length"):
            merger((3, 0)).take(*args)
    for way in (merger().counts, merger().cut):
        with pytest.raises(ValueError, match=r"^out: 3 items"):
            way(1, np.zeros(3, np.int64))


def test_times_that_are_missing_are_refused():
    args = taken()
    with pytest.raises(ValueError, match=r"^edges, times: "):
        merger((3, 0)).take(args[0], None, None, *args[3:])
    with pytest.raises(ValueError, match=r"^edges, times: "):
        merger((3, 0)).take(args[0], args[1], None, *args[3:])
    with pytest.raises(ValueError, match=r"^cut: "):
        merger((3, 0)).cut(1, args[0])
    assert merger().take(args[0], None, None, *args[3:]) == 5


@pytest.mark.parametrize("wrong", ["x", None, [1], 2**63, -1, 2**54])
def test_an_index_that_is_none_is_refused(wrong):
    with pytest.raises((TypeError, ValueError), match=r"^index: "):
        merger().cut(wrong, np.zeros(2, np.int64))
    if not isinstance(wrong, int):
        with pytest.raises((TypeError, ValueError), match=r"^moment: "):
            merger().counts(wrong, np.zeros(2, np.int64))


def test_another_number_of_arguments_is_refused():
    made, out = merger(), np.zeros(2, np.int64)
    for way, args in ((made.counts, [1.0, out]), (made.cut, [1, out]), (made.take, taken())):
        for wrong in ([], args[:-1], [*args, 1]):
            with pytest.raises(TypeError, match="argument"):
                way(*wrong)
    with pytest.raises(TypeError, match="argument"):
        MERGER(*clocks())
    with pytest.raises(TypeError, match="no named"):
        MERGER(*clocks(), False, False, x=1)


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


def test_numbers_that_change_during_a_call_never_lead_outside():
    args, stop = taken(), threading.Event()
    big = [args[0], args[1], args[2], np.zeros(4000, np.int64), np.zeros(4000, np.int64)]
    made = MERGER(*clocks((3, 0))[:5], np.array([10**6, 10**6]), clocks()[6], True, False)

    def change():
        random = np.random.default_rng(0)
        while not stop.is_set():
            big[0][0], big[1][2] = random.integers(-9, 10**7), random.integers(-9, 10**7)
            big[1][2] = 4
            big[0][:], big[2][1] = 0, random.normal()

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        for _ in range(3000):
            with contextlib.suppress(IndexError):
                assert 0 <= made.take(*big) <= 4000
    finally:
        stop.set()
        thread.join()
    big[0][:], big[1][2] = 0, 4
    assert 0 <= made.take(*big) <= 4000, "with the right numbers it is accepted"
