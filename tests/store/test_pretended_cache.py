"""A cache without blocks keeps, drops and counts like the one that has them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.store.cache import BlockCache
from tokenloom.store.derived import pretended_cache
from tokenloom.store.derived.pretended_cache import BlockKeys, PretendedCache

SIZES = [np.zeros(n, np.uint8) for n in (0, 1, 3, 8, 20)]
blocks = st.lists(st.integers(0, 30), max_size=9, unique=True)
kinds = st.sampled_from(["get_many", "missing", "touch", "reserve", "get", "holds"])


def asked(cache, kind, keys, sizes):
    """One request to a cache: what it is asked to load, or what it answers."""
    loaded = []

    def load(places):
        loaded.extend(int(place) for place in places)
        return [SIZES[sizes[int(place)]] for place in places]

    if kind == "get_many":
        cache.get_many(keys, load)
        return loaded
    if kind == "get":
        for place, key in enumerate(keys):
            cache.get(key, lambda place=place: load([place])[0])
        return loaded
    if kind == "reserve":
        some = [int(one) for one in cache.missing(keys)]
        left = BlockKeys("w", keys.numbers[some]) if isinstance(keys, BlockKeys) else None
        left = [keys[one] for one in some] if left is None else left
        bytes_of = [SIZES[sizes[one]].nbytes for one in some]
        cache.reserve(left, bytes_of, [lambda one=one: SIZES[sizes[one]] for one in some])
        return some
    found = getattr(cache, kind)(keys)
    return [int(one) for one in found] if kind == "missing" else found


@pytest.mark.parametrize("most_entries", [3, 1 << 12])
@given(
    capacity=st.integers(0, 60),
    requests=st.lists(st.tuples(kinds, blocks, st.booleans()), max_size=40),
    seed=st.integers(0, 99),
)
def test_it_loads_drops_and_counts_what_a_cache_with_blocks_does(
    most_entries, capacity, requests, seed
):
    """Some blocks are asked for by arrays of numbers, and some by keys of another kind."""
    pretended_cache.MOST_ENTRIES, before = most_entries, pretended_cache.MOST_ENTRIES
    sizes = np.random.default_rng(seed).integers(0, len(SIZES), 64)
    real, pretended = BlockCache(capacity), PretendedCache(capacity)
    try:
        for kind, numbers, other in requests:
            if capacity == 0 and kind == "get":
                continue  # a cache without room does not look
            own = [int(sizes[32 * other + number]) for number in numbers]
            if other or kind == "get":
                whose = "other" if other else "single"
                keys = [(whose, number) for number in numbers]
                wanted = asked(real, kind, keys, own), asked(pretended, kind, keys, own)
            else:
                keys = BlockKeys("w", np.array(numbers, np.int64))
                wanted = asked(real, kind, list(keys), own), asked(pretended, kind, keys, own)
            assert wanted[0] == wanted[1], kind
            assert real.stats() == pretended.stats()
    finally:
        pretended_cache.MOST_ENTRIES = before


def test_it_gives_what_it_keeps_under_other_keys():
    cache = PretendedCache(100)
    assert cache.get("a", lambda: np.arange(3)).tolist() == [0, 1, 2]
    assert cache.get("a", lambda: np.arange(9)).tolist() == [0, 1, 2]
    assert cache.get_many(["a", "b"], lambda _: [np.arange(4)])[1].tolist() == [0, 1, 2, 3]
    cache.clear()
    assert cache.get("a", lambda: np.arange(9)).tolist() == list(range(9))
