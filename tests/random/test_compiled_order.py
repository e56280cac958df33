"""The compiled Feistel network: the same words as NumPy's, and it trusts nobody."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenloom import native
from tokenloom.random.permute import Feistel, permutations

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


def test_every_index_of_every_small_size_agrees():
    """Here up to a tenth of the outputs are beyond n and walk on."""
    for n in [*range(1, 260), 1023, 1024, 1025, 4095, 4097, 65_537]:
        x = np.tile(np.arange(n, dtype=np.uint64), len(KEYS) if n < 5000 else 1)
        which = np.repeat(np.arange(len(KEYS)), n)[: len(x)]
        assert_same(Feistel(n, KEYS), x, which)
        assert_same(Feistel(n, KEYS[2:]), x)


def test_many_keys_agree():
    keys = np.arange(5000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    which = np.random.default_rng(3).permutation(len(keys))
    for n in (70, 10**6 + 3, 10**9, BIG):
        x = np.random.default_rng(4).integers(0, n, len(keys), dtype=np.uint64)
        assert_same(Feistel(n, keys), x, which)
        assert_same(Feistel(n, keys[::-3]), x[:1600], which[:1600] % 1600)


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


def test_threads_do_not_disturb_each_other():
    network = permutations(10**9, KEYS)
    parts = [np.arange(at, at + 5000, dtype=np.uint64) for at in range(0, 80_000, 5000)]
    expected = [by(None, network, part, None, False) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(network.forward, parts), expected, strict=True):
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("flipped", [1, 1 << 31, 1 << 32, 1 << 63])
@pytest.mark.parametrize("number", range(8))
def test_a_bit_of_any_round_key_changes_the_order(number, flipped):
    """The comparisons above could fail: no key, nor a half of one, is left out."""
    n, x = 10**9, np.arange(1000, dtype=np.uint64)
    network, other = Feistel(n, KEYS[:1]), Feistel(n, KEYS[:1])
    other._keys[number, 0] ^= np.uint64(flipped)
    for backwards in (False, True):
        right, altered = (by(COMPILED, one, x, None, backwards) for one in (network, other))
        assert (right != altered).mean() > 0.9
        assert np.array_equal(altered, by(None, other, x, None, backwards))


class TestHostileArguments:
    """What Python code cannot do by mistake, but somebody else might: all of it is refused."""

    N, SIDE = 1000, 32

    def good(self, count=100, keys=3):
        """x, which, keys, n, side, backwards, out."""
        x = np.arange(count, dtype=np.uint64)
        words = np.arange(8 * keys, dtype=np.uint64).reshape(8, keys)
        out = np.zeros(count, np.uint64)
        return [x, np.arange(count) % max(keys, 1), words, self.N, self.SIDE, False, out]

    def test_what_the_others_alter_works(self):
        arguments = self.good()
        assert COMPILED.feistel(*arguments) is None
        assert len(set(arguments[6].tolist())) > 30
        arguments[1] = None
        assert COMPILED.feistel(*arguments) is None
        assert len(set(arguments[6].tolist())) == 100

    @pytest.mark.parametrize("place", [0, 1, 2, 6])
    @pytest.mark.parametrize(
        "wrong",
        [
            *[3, "x", [1, 2], b"12345678" * 100, np.zeros(100, np.uint32), np.zeros(100, np.int8)],
            *[np.zeros((100, 2), np.uint64)[:, 0], np.zeros(99, np.uint64), np.zeros(1, np.uint64)],
            *[
                np.zeros(101, np.int64),
                np.zeros(0, np.int64),
                np.zeros((8, 3), np.uint64, "F"),
            ],
        ],
        ids=repr,
    )
    def test_arrays_of_another_kind_or_length(self, place, wrong):
        arguments = self.good()
        arguments[place] = wrong
        with pytest.raises((TypeError, ValueError, BufferError)):
            COMPILED.feistel(*arguments)

    @pytest.mark.parametrize("place", [0, 2, 6])
    def test_only_which_may_be_none(self, place):
        arguments = self.good()
        arguments[place] = None
        with pytest.raises(TypeError):
            COMPILED.feistel(*arguments)

    @pytest.mark.parametrize("at", [0, 1, 62, 63, 64, 97, 99])
    @pytest.mark.parametrize("which", [3, 4, -1, 2**32, 2**62, -(2**63), 2**63 - 1])
    def test_a_key_that_is_not_there(self, at, which):
        arguments = self.good()
        arguments[1][at] = which
        with pytest.raises(ValueError, match="x or which: out of range"):
            COMPILED.feistel(*arguments)

    @pytest.mark.parametrize("at", [0, 1, 62, 63, 64, 97, 99])
    @pytest.mark.parametrize("x", [1000, 1001, 1024, 2**32, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1])
    def test_an_index_that_is_not_below_n(self, at, x):
        for which in (True, False):
            arguments = self.good()
            arguments[0][at] = x
            arguments[1] = arguments[1] if which else None
            with pytest.raises(ValueError, match="x or which: out of range"):
                COMPILED.feistel(*arguments)

    def test_no_keys_at_all(self):
        for which in (np.zeros(5, np.int64), None):
            _, _, keys, *rest = self.good(5, keys=0)
            with pytest.raises(ValueError, match="x or which: out of range"):
                COMPILED.feistel(np.zeros(5, np.uint64), which, keys, *rest)
        assert COMPILED.feistel(*self.good(0, keys=0)) is None

    @pytest.mark.parametrize(
        ("n", "side"),
        [
            *[(0, 1), (0, 0), (1000, 0), (1000, 1001), (-1, 1), (1000, -1), (2**63 + 1, 2**32 - 1)],
            *[(2**64 - 1, 2**32 - 1), (2**64, 2**32 - 1), (2**63, 2**32), (2**63, 2**31)],
            *[(2**63, 1), (2**32, 1), (10**9, 2**70), (1, 2**32 - 1)],
        ],
    )
    def test_sizes_that_no_network_has(self, n, side):
        for count in (0, 100):
            arguments = self.good(count)
            arguments[3:5] = n, side
            with pytest.raises(ValueError, match=r"allowed: 1|beyond 64 bits"):
                COMPILED.feistel(*arguments)

    @pytest.mark.parametrize("place", [3, 4])
    @pytest.mark.parametrize("wrong", [None, 1000.0, "1000", [1000]])
    def test_sizes_that_are_no_integers(self, place, wrong):
        arguments = self.good()
        arguments[place] = wrong
        with pytest.raises(TypeError):
            COMPILED.feistel(*arguments)

    def test_numbers_of_arguments(self):
        for arguments in ((), self.good()[:6], [*self.good(), 1]):
            with pytest.raises(TypeError, match="takes 7 arguments"):
                COMPILED.feistel(*arguments)

    def test_words_that_are_read_only(self):
        arguments = self.good()
        arguments[6].flags.writeable = False
        with pytest.raises((ValueError, BufferError)):
            COMPILED.feistel(*arguments)

    def test_nothing_is_written_beside_the_words(self):
        for count in (0, 1, 3, 5, LANES - 1, LANES, LANES + 1, 2 * LANES + 3):
            arguments = self.good(count)
            guarded = np.full(count + 16, 42, np.uint64)
            arguments[6] = guarded[8 : 8 + count]
            COMPILED.feistel(*arguments)
            assert (guarded[:8] == 42).all()
            assert (guarded[8 + count :] == 42).all()

    def test_words_may_not_lie_over_what_is_read(self):
        for place, name in ((0, "x"), (1, "which"), (2, "keys")):
            arguments = self.good(24)
            arguments[6] = arguments[place].reshape(-1).view(np.uint64)
            with pytest.raises(ValueError, match=f"out: it shares memory with {name}"):
                COMPILED.feistel(*arguments)
        both = np.zeros(164, np.uint64)
        arguments = self.good()
        arguments[1], arguments[6] = both[:100], both[64:]
        with pytest.raises(ValueError, match="out: it shares memory with which"):
            COMPILED.feistel(*arguments)
        arguments[1], arguments[6] = both[:100] * 0, both[64:]  # control: beside each other
        assert COMPILED.feistel(*arguments) is None
