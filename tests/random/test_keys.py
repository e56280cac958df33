"""A key is the hash of a path: pinned values, paths that must differ, vectors equal to scalars."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_orders import slow_child, slow_draw, slow_key

import tokenloom as tl
from tokenloom.random.keys import check_seed, child, children, draw, draws, key, mix, mixed, named

words = st.integers(0, 2**64 - 1)
paths = st.lists(st.one_of(st.text(max_size=20), words), max_size=4).map(tuple)

# Changing one of these changes every order: it means a new ORDER_VERSION.
GOLDEN = {
    (0,): 16294208416658607535,
    (7,): 7191089600892374487,
    (7, "wiki", "order", 0): 63058810918638927,
    (7, "wiki", "order", 1): 16184516246300766353,
    (0, ""): 15415986080105920549,
    (0, 0): 4964578127960768432,
    (0, "1"): 8115432221681129257,
    (0, 1): 5067554077270220563,
    (2**64 - 1, "main", "order", 2**64 - 1): 1000470333279310438,
    (3, "ünïcode, longer than eight bytes"): 7362042352531994586,
}


@pytest.mark.parametrize("path", GOLDEN, ids=str)
def test_keys_keep_their_values(path):
    assert key(*path) == GOLDEN[path]


@pytest.mark.parametrize(
    ("seed", "outputs"),
    [  # the published outputs of splitmix64 (Vigna)
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ],
)
def test_a_stream_is_splitmix64(seed, outputs):
    assert [draw(seed, number) for number in range(len(outputs))] == outputs


@given(words, paths)
def test_keys_equal_a_slow_reading_of_the_rule(seed, path):
    assert key(seed, *path) == slow_key(seed, *path)
    assert child(seed, *path) == slow_child(seed, *path)


def test_paths_that_look_alike_have_different_keys():
    alike = [
        (),
        ("",),
        ("", ""),
        (0,),
        (0, 0),
        ("0",),
        ("\0",),
        ("\0\0",),
        ("\0" * 8,),
        ("\0" * 9,),
        (1,),
        ("1",),
        ("\1",),
        (2,),
        (1, 1),
        (11,),
        ("11",),
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("a", "b", "c"),
        ("abc", ""),
        ("", "abc"),
        ("a", 1),
        (1, "a"),
        ("a1",),
        ("abcdefgh",),
        ("abcdefgh", ""),
        ("abcdefgh", 0),
        ("abcdefgh\0",),
        ("main", "order", 12),
        ("main", "order", 1, 2),
        ("main", "order1", 2),
    ]
    keys = [key(seed, *path) for seed, path in itertools.product((0, 1, 2), alike)]
    assert len(set(keys)) == len(keys)


@given(words, paths, paths)
def test_a_path_can_be_walked_in_steps(seed, first, rest):
    assert child(key(seed, *first), *rest) == key(seed, *first, *rest)


@given(words, st.lists(words, max_size=20))
def test_vectors_equal_scalars(parent, numbers):
    array = np.array(numbers, np.uint64)
    assert children(parent, array).tolist() == [child(parent, number) for number in numbers]
    assert draws(parent, array).tolist() == [draw(parent, number) for number in numbers]
    assert [draw(parent, number) for number in numbers] == [
        slow_draw(parent, number) for number in numbers
    ]
    assert mixed(array).tolist() == [mix(number) for number in numbers]


def test_draws_of_several_streams_broadcast():
    streams = np.array([3, 2**64 - 1], np.uint64)
    table = draws(streams[:, None], np.arange(5, dtype=np.uint64)[None, :])
    assert table.tolist() == [[draw(int(s), n) for n in range(5)] for s in streams]


def test_a_numpy_integer_on_a_path_is_that_integer():
    assert key(0, np.int32(5)) == key(0, np.uint64(5)) == key(0, 5)
    assert key(np.int64(3)) == key(3)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, None, "7", np.float64(1), np.True_])
def test_what_is_no_seed_is_refused_with_its_value(seed):
    with pytest.raises(tl.ConfigError, match="seed: found") as caught:
        check_seed(seed)
    assert str(seed) in str(caught.value)
    with pytest.raises(tl.ConfigError, match="seed: found"):
        key(seed, "a")


@pytest.mark.parametrize("part", [-1, 2**64, 1.5, 1.0, True, np.True_, None, b"a", ("a",)])
def test_what_is_no_name_is_refused_on_a_path(part):
    with pytest.raises(tl.ConfigError, match="in a path, allowed: strings and 0 to"):
        key(0, "a", part)


@pytest.mark.parametrize("seed", [0, 2**64 - 1, np.uint64(2**64 - 1), np.int8(3)])
def test_the_ends_of_the_range_are_seeds(seed):
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


@given(
    st.lists(st.text(max_size=30) | st.text("ab€", min_size=80, max_size=300)), st.integers(0, 9)
)
def test_many_names_give_the_keys_of_each(names, parent):
    assert named(parent, names).tolist() == [child(parent, name) for name in names]
