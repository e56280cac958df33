"""The compiled Feistel network: the same words as NumPy's, and it trusts nobody."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenloom import native
from tokenloom.random.permute import Feistel

COMPILED = native.compiled
BIG = 2**63
KEYS = np.array([0, 1, 0x0123456789ABCDEF, 2**64 - 1], np.uint64)
LANES = 64  # of _order.c: indices that it takes together

pytestmark = pytest.mark.skipif(
    COMPILED is None, reason="the loops are not compiled here, or turned off"
)


def by(compiled, network, x, which, backwards):
    """One way alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", compiled)
        return (network.inverse if backwards else network.forward)(x, which)


def assert_same(network, x, which=None):
    for backwards in (False, True):
        expected = by(None, network, x, which, backwards)
        found = by(COMPILED, network, x, which, backwards)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected), (network.n, backwards)


sizes = st.one_of(
    st.integers(1, 300),
    st.integers(1, BIG),
    st.integers(0, 63).flatmap(lambda k: st.integers(max(1, 2**k - 3), min(2**k + 3, BIG))),
    st.integers(1, math.isqrt(BIG)).flatmap(
        lambda side: st.sampled_from([max(1, side * side - 1), side * side, side * side + 1])
    ),
)


@settings(max_examples=2000)
@given(
    n=sizes,
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    several=st.booleans(),
    count=st.integers(0, 5) | st.integers(LANES - 2, LANES + 2) | st.just(3 * LANES + 1),
    seed=st.integers(0, 2**32),
)
@example(n=BIG, keys=[5], several=False, count=200, seed=0)
@example(n=BIG - 1, keys=[2**64 - 1, 0], several=True, count=200, seed=1)
@example(n=2**32 + 1, keys=[0], several=False, count=200, seed=2)
def test_both_ways_give_the_same_words(n, keys, several, count, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, n, count, dtype=np.uint64)
    x[: count // 3] = np.uint64(n - 1) - x[: count // 3] % np.uint64(min(n, 9))  # the far end, too
    which = rng.integers(0, len(keys), count) if several else None
    assert_same(Feistel(n, np.array(keys, np.uint64)), x, which)


def test_arrays_of_any_layout_and_integer_type_agree():
    n = 10**9 + 7
    network = Feistel(n, KEYS)
    x = np.random.default_rng(5).integers(0, n, 700, dtype=np.uint64)
    which = np.arange(700) % len(KEYS)
    expected = by(None, network, x, which, False)
    shifted = np.frombuffer(b"." + x.tobytes(), np.uint64, offset=1)  # at an odd address
    for words in (np.repeat(x, 2)[::2], x[::-1].copy()[::-1], x.astype(">u8"), shifted):
        for of in (which, np.repeat(which, 3)[::3], which.astype(np.uint8), which.astype(">i4")):
            assert np.array_equal(by(COMPILED, network, words, of, False), expected)
