"""Permutations are bijections with an inverse: every small size, many large ones, any key."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from slow_orders import SlowFeistel, SlowLinear, hash_sort

import tokenloom as tl
from tokenloom.random.permute import (
    PERM_TYPES,
    SMALL,
    Feistel,
    HashSort,
    Linear,
    hash_sorted,
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


@pytest.mark.parametrize("part", range(8))
def test_every_size_up_to_4096_is_a_bijection_by_the_feistel_core(part):
    for n in range(1 + part, 4097, 8):
        assert_bijection(Feistel(n, KEYS[:3]), 3)


@pytest.mark.parametrize("part", range(4))
def test_every_size_up_to_4096_is_a_bijection_by_the_public_route(part):
    for n in range(1 + part, 4097, 4):
        assert_bijection(permutations(n, KEYS[:3]), 3)


@pytest.mark.slow
@pytest.mark.parametrize("perm_type", PERM_TYPES)
@pytest.mark.parametrize("part", range(8))
def test_every_size_up_to_4200_is_a_bijection_by_every_type_and_key(part, perm_type):
    for n in range(1 + part, 4200, 8):
        assert_bijection(permutations(n, KEYS, perm_type), len(KEYS))
        if perm_type == "feistel":
            assert_bijection(Feistel(n, KEYS), len(KEYS))


def test_squares_and_their_neighbours_are_bijections():
    """Where the sides of the Feistel rectangle change."""
    for side in (64, 65, 99, 181, 256):
        for n in (side * side - 1, side * side, side * side + 1, side * (side + 1), 2 * side + 1):
            assert_bijection(Feistel(n, KEYS[:3]), 3)


def test_sorted_orders_equal_the_slow_sort():
    for n in (1, 2, 3, 17, 300, SMALL):
        for number, key in enumerate(KEYS.tolist()):
            assert hash_sorted(n, KEYS)[number].tolist() == hash_sort(n, key)
            assert permutations(n, [key]).forward(
                np.arange(n, dtype=np.uint64)
            ).tolist() == hash_sort(n, key)


def test_the_public_route_sorts_up_to_4096_and_computes_above():
    assert isinstance(permutations(SMALL, [1]), HashSort)
    assert isinstance(permutations(SMALL + 1, [1]), Feistel)
    with pytest.raises(ValueError, match="4097"):
        hash_sorted(SMALL + 1, KEYS)


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


def test_a_linear_permutation_is_a_x_plus_b_with_a_coprime_factor():
    for n in (2, 6, 30, 1000, 2310, 65536):
        for key in range(20):
            x = np.arange(n, dtype=np.uint64)
            y = permutations(n, [key], "linear").forward(x).astype(np.int64)
            a, b = (int(y[1]) - int(y[0])) % n, int(y[0])
            assert math.gcd(a, n) == 1
            assert (y == (a * np.arange(n) + b) % n).all()


@given(
    st.sampled_from([5, 4096, 4097, 65_536, 10**12, BIG]),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, BIG)), max_size=30),
    st.sampled_from(PERM_TYPES),
)
def test_several_permutations_at_once_equal_one_by_one(n, keys, asked, perm_type):
    which = np.array([number % len(keys) for number, _ in asked], np.int64)
    x = u64(*[value % n for _, value in asked])
    together = permutations(n, keys, perm_type)
    apart = [permutations(n, [key], perm_type) for key in keys]
    for way in ("forward", "inverse"):
        expected = [
            int(getattr(apart[number], way)(u64(value))[0])
            for number, value in zip(which.tolist(), x.tolist(), strict=True)
        ]
        assert getattr(together, way)(x, which).tolist() == expected


def test_a_request_longer_than_a_chunk_equals_its_pieces():
    permutation = permutations(10**6 + 3, KEYS)
    x = np.arange(20_001, dtype=np.uint64)
    which = np.arange(20_001) % len(KEYS)
    pieces = [
        permutation.forward(x[i : i + 777], which[i : i + 777]) for i in range(0, 20_001, 777)
    ]
    assert (permutation.forward(x, which) == np.concatenate(pieces)).all()


def test_almost_no_output_of_the_network_needs_a_second_pass():
    """A pass beyond n happens for at most a b - n of a b values: 1 in sqrt(n)."""
    for n in (4097, 65_537, 10**6 + 3, 2**33 + 5, BIG):
        side = math.isqrt(n - 1) + 1
        assert side * -(-n // side) - n < side <= math.isqrt(n) + 1


@pytest.mark.parametrize("n", [0, -1, BIG + 1])
def test_sizes_out_of_range_are_refused(n):
    with pytest.raises(tl.ConfigError, match=f"n: found {n}, allowed: 1 to"):
        permutations(n, [1])


def test_an_unknown_type_is_refused_with_a_suggestion():
    with pytest.raises(tl.ConfigError, match="Did you mean 'feistel'"):
        permutations(5, [1], "fiestel")


def test_linear_takes_given_pairs():
    assert Linear(7, [(3, 2)]).forward(np.arange(7, dtype=np.uint64)).tolist() == [
        (3 * x + 2) % 7 for x in range(7)
    ]
