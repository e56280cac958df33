"""Shuffles of streams: the order is that of the obvious loop; they resume exactly anywhere."""

import contextlib
import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from spoiling import drop, put, spoilt
from streamtoys import (
    KINDS,
    Again,
    rows_of,
)

import tokenloom as tl
from tokenloom.random.keys import draw, key
from tokenloom.random.permute import permutations
from tokenloom.streams import buffer_shuffle, interleave, window_shuffle

SHUFFLES = {"buffer": buffer_shuffle, "window": window_shuffle}
kinds_of_shuffle = st.sampled_from(sorted(SHUFFLES))


# -- slow, obvious shuffles --------------------------------------------------------------------


def slow_buffer(rows, size, seed, name, epoch):
    waiting, held, out = list(rows), [], []
    stream = key(seed, name, "stream", "buffer", epoch)
    while waiting or held:
        while waiting and len(held) < size:
            held.append(waiting.pop(0))
        chosen = draw(stream, len(out)) * len(held) // 2**64
        out.append(held[chosen])
        held[chosen] = held[-1]
        del held[-1]
    return out


def slow_window(rows, size, seed, name, epoch):
    out = []
    for number, start in enumerate(range(0, len(rows), size)):
        some = rows[start : start + size]
        order = permutations(len(some), [key(seed, name, "stream", "window", epoch, number)])
        out += [some[i] for i in order.forward(np.arange(len(some), dtype=np.uint64)).tolist()]
    return out


SLOW = {"buffer": slow_buffer, "window": slow_window}


@given(
    kinds_of_shuffle,
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(0, 5),
    st.sampled_from(["main", "wiki"]),
    st.integers(1, 3),
)
def test_a_shuffle_equals_the_obvious_one(shuffle, count, size, seed, name, epochs):
    rows = [f"row {i}" for i in range(count)]
    stream = SHUFFLES[shuffle](rows, size, seed=seed, name=name, epochs=epochs)
    found = list(stream)
    assert found == [row for e in range(epochs) for row in SLOW[shuffle](rows, size, seed, name, e)]
    for epoch in range(epochs):  # every pass has every row once
        assert sorted(found[epoch * count : (epoch + 1) * count]) == sorted(rows)
    assert list(stream) == []


@given(st.integers(1, 40), st.integers(1, 9))
def test_rows_stay_near_their_place(count, size):
    for place, row in enumerate(window_shuffle(range(count), size)):
        assert place // size == row // size
    for place, row in enumerate(buffer_shuffle(range(count), size)):
        assert place > row - size, "no row comes before it can be in the buffer"


def test_every_order_of_a_buffer_is_as_likely():
    found = Counter(tuple(buffer_shuffle(range(4), 4, seed=seed)) for seed in range(2400))
    assert len(found) == 24
    assert all(60 < count < 145 for count in found.values()), "24 orders, 100 each"
    found = Counter(tuple(window_shuffle(range(4), 4, seed=seed)) for seed in range(2400))
    assert len(found) == 24
    assert all(60 < count < 145 for count in found.values())


# -- exact resume ------------------------------------------------------------------------------


def test_passes_have_orders_of_their_own_and_may_go_on_for_ever():
    stream = buffer_shuffle(range(9), 9, epochs=None)
    assert not stream.is_finite
    passes = [tuple(itertools.islice(stream, 9)) for _ in range(5)]
    assert len(set(passes)) == 5
    assert {tuple(sorted(one)) for one in passes} == {tuple(range(9))}
    assert buffer_shuffle(range(9), 9, epochs=3).is_finite
    assert not buffer_shuffle(itertools.cycle([1]), 9).is_finite


# -- together with mixing ----------------------------------------------------------------------


def test_a_mix_may_be_shuffled_too():
    def make():
        mixed = interleave({"a": rows_of("a", [2] * 9), "b": rows_of("b", [3] * 9)})
        return buffer_shuffle(mixed, 5)

    wanted = [sample.index for sample in make()]
    assert sorted(wanted) == list(range(18)) != wanted
    stream, found = make(), []
    for _ in wanted:
        state, stream = json.loads(json.dumps(stream.state_dict())), make()
        stream.load_state_dict(state)
        found.append(next(stream).index)
    assert found == wanted


def test_an_endless_shuffle_is_a_source_that_says_so():
    endless = buffer_shuffle([[1]] * 3, 2, epochs=None)
    with pytest.raises(tl.ConfigError, match="a"):
        interleave({"a": endless, "b": [[1]] * 5})
    stream = interleave({"a": endless, "b": [[1]] * 5}, stop="first_exhausted", rule="round_robin")
    assert "".join(sample.source for sample in stream) == "ababababab" + "a"


# -- rows as JSON ------------------------------------------------------------------------------

numbers = st.sampled_from(["<i4", ">i2", "<u8", "|b1", "<f4", "<f8", "<f2"])
arrays = st.builds(
    lambda dtype, shape, start: (
        (np.arange(start, start + int(np.prod(shape))) % 7).reshape(shape).astype(dtype)
    ),
    numbers,
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    st.integers(0, 5),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | arrays
)
samples = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3).filter(lambda k: not k.startswith("$")), inner)
    ),
    max_leaves=6,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def kept(values):
    """What comes back of samples that a state keeps as JSON."""
    stream = buffer_shuffle(iter(values), len(values), seed=1)
    first = next(stream)
    written = json.dumps(stream.state_dict(), allow_nan=False)
    again = buffer_shuffle(iter(values), len(values), seed=1)
    again.load_state_dict(json.loads(written))
    return [first, *again], [first, *stream]


@given(samples)
def test_a_sample_comes_back_from_json_as_it_was(sample):
    found, wanted = kept([sample, 0, sample])
    assert all(map(same, found, wanted))


def test_nan_and_scalars_come_back_too():
    values = np.array([np.nan, -0.0, np.inf, 1e-300])
    found, wanted = kept([values, np.float32(1.5), values])
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True) if a is not None)
    assert np.float32(1.5) in [one for one in found if np.ndim(one) == 0]


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rows": 0}, ("rows", 0)),
        ({"rows": 2.5}, ("rows", 2.5)),
        ({"rows": True}, ("rows", True)),
        ({"epochs": 0}, ("epochs", 0)),
        ({"seed": -1}, ("seed", -1)),
        ({"name": 3}, ("name", 3)),
        ({"source": "abc"}, ("sources.main", "str")),
        ({"source": iter([1]), "epochs": 2}, ("sources.main", "list_iterator")),
    ],
)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_options_that_cannot_be_meant_are_refused(shuffle, given, named):
    given = {"source": [1, 2], "rows": 2} | given
    source, rows = given.pop("source"), given.pop("rows")
    refused(lambda: SHUFFLES[shuffle](source, rows, **given), tl.ConfigError, *named)


def test_an_empty_source_ends_but_does_not_begin_again():
    assert list(buffer_shuffle([], 4)) == []
    with pytest.raises(tl.InputError, match=r"sources\.main"):
        next(window_shuffle([], 4, epochs=2))


def test_a_source_that_fails_stops_the_shuffle():
    def broken():
        yield from range(3)
        raise OSError("disk")

    stream = buffer_shuffle(broken(), 2)
    with pytest.raises(OSError, match="disk"):
        list(stream)
    with pytest.raises(tl.StateError, match="row 3"):
        next(stream)
    with pytest.raises(tl.StateError):
        stream.state_dict()


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_source_that_became_shorter_is_refused(shuffle):
    stream = SHUFFLES[shuffle](range(20), 8)
    for _ in range(9):
        next(stream)
    state = stream.state_dict()
    for source in (range(10), Again(range(10)), lambda skip: range(skip, 10)):
        again = SHUFFLES[shuffle](source, 8)
        with pytest.raises(tl.StateError, match=r"sources\.main"):
            again.load_state_dict(state)


def busy(shuffle="buffer", source=None, **given):
    source = list(range(40)) if source is None else source
    stream = SHUFFLES[shuffle](source, 8, **{"seed": 1, "epochs": 2} | given)
    for _ in range(51):
        next(stream)
    return stream


@pytest.mark.parametrize(
    ("stream", "named"),
    [
        (busy(seed=2), "seed: the state has 1, this one 2"),
        (busy("window"), "kind: the state has 'buffer', this one 'window'"),
        (busy(epochs=None), "epochs: the state has 2, this one None"),
    ],
)
def test_a_state_of_another_shuffle_is_refused_with_both_values(stream, named):
    refused(lambda: stream.load_state_dict(busy().state_dict()), tl.StateError, named)


HOSTILE = [
    (put("format", "tokenloom.shuffle/1"), "format"),
    (put("row", []), "sha256"),
    (drop("taken"), "sha256"),
    (put("epoch", 10**400), "sha256"),
    (put("given", 30), "sha256"),
    (put("rows", 0, 99), "sha256"),
    (put("sha256", "0" * 64), "sha256"),
    (drop("sha256"), "sha256"),
]


@pytest.mark.parametrize(("change", "named"), HOSTILE)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_damaged_state_is_refused_and_nothing_changes(shuffle, change, named):
    state = busy(shuffle).state_dict()
    change(state)
    stream = busy(shuffle)
    before = stream.state_dict()
    refused(lambda: stream.load_state_dict(state), tl.StateError, named)
    assert stream.state_dict() == before
    assert list(stream) == list(busy(shuffle))


@pytest.mark.parametrize("wrong", [None, [], "state", 3, {}])
def test_what_is_no_state_is_refused(wrong):
    with pytest.raises(tl.StateError):
        busy().load_state_dict(wrong)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("kind", ["list", "generator"])
@given(data=st.data())
def test_junk_in_a_state_is_refused_or_harmless(shuffle, kind, data):
    def make():
        return SHUFFLES[shuffle](KINDS[kind]([[row] for row in range(9)]), 4)

    stream = make()
    for _ in range(3):
        next(stream)
    other = make()
    with contextlib.suppress(tl.StateError):
        other.load_state_dict(data.draw(spoilt(stream.state_dict())))
    assert len(list(other)) <= 9
