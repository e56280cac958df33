"""A key is the hash of a path: pinned values, paths that must differ, vectors equal to scalars."""

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


@given(words, st.lists(words, max_size=20))
def test_vectors_equal_scalars(parent, numbers):
    array = np.array(numbers, np.uint64)
    assert children(parent, array).tolist() == [child(parent, number) for number in numbers]
    assert draws(parent, array).tolist() == [draw(parent, number) for number in numbers]
    assert [draw(parent, number) for number in numbers] == [
        slow_draw(parent, number) for number in numbers
    ]
    assert mixed(array).tolist() == [mix(number) for number in numbers]


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
