"""Permutations are bijections with an inverse: every small size, many large ones, any key."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from slow_orders import SlowFeistel, SlowLinear

import tokenloom as tl
from tokenloom.random.permute import (
    PERM_TYPES,
    SMALL,
    Feistel,
    permutations,
)

KEYS = np.array([0, 1, 0x0123456789ABCDEF, 2**64 - 1], np.uint64)
BIG = 2**63


def u64(*values):
    return np.array(values, np.uint64)


def assert_bijection(permutation, keys):
    """Each of `keys` permutations of range(n) hits everything once, and its inverse goes back."""
    n = permutation.n
    x = np.tile(np.arange(n, dtype=np.uint64), keys)
    which = np.repeat(np.arange(keys), n)
    y = permutation.forward(x, which)
    assert (y < n).all()
    hit = np.bincount(y.astype(np.int64) + which * n, minlength=n * keys)
    assert (hit == 1).all(), n
    assert (permutation.inverse(y, which) == x).all(), n


@pytest.mark.parametrize("part", range(4))
def test_every_size_up_to_4096_is_a_bijection_by_the_public_route(part):
    for n in range(1 + part, 4097, 4):
        assert_bijection(permutations(n, KEYS[:3]), 3)


sizes = st.one_of(
    st.integers(1, BIG),
    st.integers(0, 63).flatmap(lambda k: st.integers(max(1, 2**k - 3), min(2**k + 3, BIG))),
    st.integers(1, math.isqrt(BIG)).map(lambda side: side * side),
)


def assert_equals_slow(permutation, slow, xs):
    for x in xs:
        x %= slow.n
        y = slow.forward(x)
        assert permutation.forward(u64(x)).tolist() == [y]
        assert permutation.inverse(u64(y)).tolist() == [x]
        assert slow.inverse(y) == x


@given(sizes, st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64), min_size=1, max_size=4))
@example(BIG, 5, [BIG - 1, 0])
@example(BIG - 1, 2**64 - 1, [BIG - 2])
@example(2**32, 0, [2**32 - 1])
@example(2**32 + 1, 0, [2**32])
def test_feistel_and_linear_equal_big_integers_up_to_two_to_the_63(n, key, xs):
    assert_equals_slow(Feistel(n, u64(key)), SlowFeistel(n, key), xs)
    assert_equals_slow(permutations(n, [key], "linear"), SlowLinear(n, key), xs)
    if n > SMALL:
        assert_equals_slow(permutations(n, [key]), SlowFeistel(n, key), xs)


@given(sizes, st.integers(0, 2**64 - 1), st.integers(0, 2**64))
@example(BIG, 0, BIG - 1)
def test_every_type_inverts_itself_at_any_size(n, key, x):
    x %= n
    for perm_type in PERM_TYPES:
        permutation = permutations(n, [key], perm_type)
        there = permutation.forward(u64(x))
        assert int(there[0]) < n
        assert permutation.inverse(there).tolist() == [x]
        assert permutation.forward(permutation.inverse(u64(x))).tolist() == [x]


@pytest.mark.parametrize("n", [0, -1, BIG + 1])
def test_sizes_out_of_range_are_refused(n):
    with pytest.raises(tl.ConfigError, match=f"n: found {n}, allowed: 1 to"):
        permutations(n, [1])


def test_an_unknown_type_is_refused_with_a_suggestion():
    with pytest.raises(tl.ConfigError, match="Did you mean 'feistel'"):
        permutations(5, [1], "fiestel")
