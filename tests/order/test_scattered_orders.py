"""Requests that are spread over many windows and bands: the same rows, without their tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toydata import ToyStore, numbered

from tokenloom import native
from tokenloom.layout.blocks import Blocks
from tokenloom.limits import limits
from tokenloom.order import block, shuffle_windows
from tokenloom.order.band_lanes import ManyBands
from tokenloom.order.block_order import LaneRounds, bit_reversed
from tokenloom.order.shuffle_windows import A_WINDOW, epoch_windows
from tokenloom.random import permute
from tokenloom.random.permute import permutations
from tokenloom.random.scatter import scattered
from tokenloom.testing import tiny

SCATTERED = limits().min_scattered_windows
WAYS = [native.compiled, None] if native.compiled else [None]


# -- single places of many permutations -----------------------------------------------------


sizes = st.one_of(
    st.integers(1, 40),
    st.integers(1, 4096),
    st.integers(4090, 4100),
    st.integers(1, 2**63 - 1),
    st.integers(65, 3_037_000_499).flatmap(
        lambda s: st.sampled_from([s * s - 1, s * s, s * s + 1])
    ),
)


@pytest.mark.parametrize("compiled", WAYS, ids=lambda one: "numpy" if one is None else "compiled")
@given(st.lists(st.tuples(sizes, st.integers(0, 2**64 - 1), st.floats(0, 1)), max_size=30))
def test_scattered_places_are_those_of_the_permutations_one_by_one(compiled, asked):
    n = np.array([size for size, _, _ in asked], np.int64)
    keys = np.array([key for _, key, _ in asked], np.uint64)
    x = np.array([min(int(share * size), size - 1) for size, _, share in asked], np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", compiled)
        with tiny(hash_rank_chunk_hashes=5_000):
            found = {back: scattered(n, keys, x, backwards=back) for back in (False, True)}
    for at, (size, key, _) in enumerate(asked):
        one = permutations(size, [key])
        assert found[False][at] == one.forward(x[at : at + 1])[0]
        assert found[True][at] == one.inverse(x[at : at + 1])[0]


@pytest.mark.parametrize("n", [1, 2, 3, 17, 300, 4095, 4096])
def test_all_places_of_one_permutation_are_a_bijection_and_its_inverse(n):
    every, keys = np.arange(n, dtype=np.uint64), np.full(n, 77, np.uint64)
    there = scattered(np.full(n, n), keys, every, backwards=False)
    assert np.array_equal(there, permutations(n, [77]).forward(every))
    assert np.array_equal(scattered(np.full(n, n), keys, there, backwards=True), every)


# -- lanes of many bands ---------------------------------------------------------------------


@given(st.data())
def test_lanes_of_many_bands_are_those_of_each_band_alone(data):
    lanes = data.draw(st.integers(1, 9))
    lengths = data.draw(
        st.lists(
            st.lists(st.integers(0, 6), min_size=lanes, max_size=lanes), min_size=1, max_size=9
        )
    )
    ends = np.cumsum(np.array(lengths).reshape(-1))
    edges = np.concatenate([[0], ends])
    edges = np.stack([edges[at * lanes : (at + 1) * lanes + 1] for at in range(len(lengths))])
    many = ManyBands(edges, np.array(bit_reversed(lanes)))
    expected = []
    for number, of_band in enumerate(lengths):
        alone = LaneRounds(np.array(of_band, np.int64))
        places = np.arange(alone.rows)
        lane, height = alone.locate(places) if alone.rows else (places, places)
        lane = np.broadcast_to(lane, places.shape).tolist()
        expected += zip([number] * alone.rows, places.tolist(), lane, height.tolist(), strict=True)
    data.draw(st.randoms(use_true_random=False)).shuffle(expected)
    if not expected:
        return
    band, place, lane, height = (np.array(part) for part in zip(*expected, strict=True))
    with tiny(lane_chunk_cells=7):
        found = many.of(band)
        assert [part.tolist() for part in found.locate(place)] == [lane.tolist(), height.tolist()]
        assert found.place(lane, height).tolist() == place.tolist()
    begin = np.array([sum(lengths[b][:k]) for b, k in zip(band, lane, strict=True)])
    assert found.start_of(lane).tolist() == begin.tolist()
    assert found.length_of(lane).tolist() == [
        lengths[b][k] for b, k in zip(band, lane, strict=True)
    ]
    assert found.lane_at(begin + height).tolist() == lane.tolist()


# -- orders ----------------------------------------------------------------------------------


def orders(**options):
    """Orders with many windows, and blocks of one size or of their own."""
    rng = np.random.default_rng(4)
    cut = Blocks.cut(np.cumsum([0, *rng.integers(0, 30, 400).tolist()]))
    for blocks in (Blocks.equal(9_001, 20), cut):
        for lanes in (1, 3, 8):
            yield block(blocks, window_blocks=2, lanes=lanes, seed=5, **options)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_a_scattered_request_gives_the_rows_of_single_requests(seed, count):
    rng = np.random.default_rng(seed)
    for order, fresh in zip(orders(), orders(), strict=True):
        asked = rng.integers(0, len(order), count)
        some = rng.integers(0, count, 5)
        rows, back = order.map(asked), order.inverse(asked)
        fractions = order.fractions(asked)
        for at in some.tolist():
            assert fresh.map(asked[at : at + 1])[0] == rows[at]
            assert fresh.inverse(asked[at : at + 1])[0] == back[at]
            if fractions is not None:
                assert fresh.fractions(asked[at : at + 1])[0] == fractions[at]
        assert np.array_equal(order.inverse(rows), asked)


@pytest.mark.parametrize("perm_type", ["feistel", "linear"])
def test_all_rows_in_any_order_are_those_asked_for_band_by_band(perm_type):
    mixed = np.random.default_rng(0)
    found = [
        (order.map(mixed.permutation(len(order))), order) for order in orders(perm_type=perm_type)
    ]
    with tiny(min_vectorized_bands=1 << 30, min_scattered_windows=1 << 30):
        mixed = np.random.default_rng(0)
        for (rows, _), order in zip(found, orders(perm_type=perm_type), strict=True):
            asked = mixed.permutation(len(order))
            assert np.array_equal(order.map(asked), rows)
            assert np.array_equal(order.inverse(rows), asked)


# -- counts ----------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch):
    """How many tables of windows and rounds of bands were computed."""
    count = {"tables": 0, "bands": 0}
    sort, rounds = permute.hash_sorted, LaneRounds.__init__

    def counting(n, keys):
        count["tables"] += len(keys)
        return sort(n, keys)

    def init(self, lengths):
        count["bands"] += 1
        rounds(self, lengths)

    monkeypatch.setattr(shuffle_windows, "hash_sorted", counting)
    monkeypatch.setattr(LaneRounds, "__init__", init)
    return count


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_scattered_request_makes_no_table_and_at_most_one_band(made, lanes):
    rng = np.random.default_rng(1)
    sizes = rng.integers(50, 200, 1_998)  # whole bands
    for blocks in (Blocks.equal(199_800, 100), Blocks.cut(np.cumsum([0, *sizes.tolist()]))):
        order = block(blocks, window_blocks=1, lanes=lanes, seed=1)
        made.update(tables=0, bands=0)
        asked = rng.integers(0, len(order), 2_048)
        order.inverse(order.map(asked))
        assert (made["tables"], made["bands"] <= 1) == (0, True)


def test_neighbours_still_share_a_table_and_a_window_is_sorted_once(made):
    order = block(Blocks.equal(200_000, 100), window_blocks=1, seed=1)
    for start in range(0, 2_000, 10):
        order.map(np.arange(start, start + 10))
    assert made["tables"] == 20


def test_a_batch_of_scattered_indices_makes_no_table(made):
    with ToyStore(numbered([[7] * 700])) as toy:
        run = toy.store.windows(8).block_shuffle(window_blocks=1)
        asked = np.random.default_rng(0).permutation(len(run))[:300]
        rows = [run[int(index)].tokens[0].tolist() for index in asked[:40]]
        made["tables"] = 0
        again = toy.store.windows(8).block_shuffle(window_blocks=1)
        assert again.batch(asked).tokens[:40].tolist() == rows
        assert made["tables"] == 0


# -- which tables are made, and which are kept -----------------------------------------------


def asked_tables(monkeypatch):
    """The numbers of tables that are made, request by request, and of scattered requests."""
    made, alone, sort, place = [], [], shuffle_windows.hash_sorted, shuffle_windows.scattered

    def sorting(n, keys):
        made.append(len(keys))
        return sort(n, keys)

    def placing(*given, **options):
        alone.append(len(given[0]))
        return place(*given, **options)

    monkeypatch.setattr(shuffle_windows, "hash_sorted", sorting)
    monkeypatch.setattr(shuffle_windows, "scattered", placing)
    return made, alone


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("count", [SCATTERED - 1, SCATTERED, 3 * SCATTERED])
@pytest.mark.parametrize("each", [False, True])
def test_few_places_of_many_windows_make_no_table(count, more, each, monkeypatch):
    """Of fewer windows, or with more than four places in each, tables are made."""
    made, alone = asked_tables(monkeypatch)
    windows = epoch_windows(3, "feistel", "a")
    numbers = np.append(np.repeat(np.arange(count), A_WINDOW), np.zeros(more, np.int64))
    x = np.arange(len(numbers)) % 64
    if each:
        found = windows.each(np.full(len(x), 64), numbers, x, backwards=False)
    else:
        found = windows.forward(64, numbers, x)
    scattered_ = count >= SCATTERED and not more
    assert (made, alone) == (([], [len(x)]) if scattered_ else ([count], []))
    tables = epoch_windows(3, "feistel", "a")
    assert found.tolist() == [
        int(tables.forward(64, numbers[k : k + 1], x[k : k + 1])[0]) for k in range(len(x))
    ]


def test_tables_that_are_there_are_used_however_few_places_are_asked_for(monkeypatch):
    made, alone = asked_tables(monkeypatch)
    windows = epoch_windows(3, "feistel", "a")
    numbers = np.arange(SCATTERED)
    windows.forward(64, np.repeat(numbers, 8), np.tile(np.arange(8), SCATTERED))
    assert (made, alone) == ([SCATTERED], [])
    windows.forward(64, numbers, numbers)
    assert (made, alone) == ([SCATTERED], []), "all are there"
    windows.forward(64, numbers + SCATTERED - 1, numbers)
    assert (made, alone) == ([SCATTERED, SCATTERED - 1], []), "a few are missing, and made"
    windows.forward(64, numbers + 10 * SCATTERED, numbers)
    assert alone == [SCATTERED], "all are missing: none is made"


def test_tables_are_kept_until_they_take_too_much_memory(monkeypatch):
    made, _ = asked_tables(monkeypatch)
    with tiny(window_tables_rows=4 * 64):
        windows = epoch_windows(3, "feistel", "a")

        def ask(*numbers):
            made.clear()
            windows.forward(64, np.repeat(numbers, 8), np.tile(np.arange(8), len(numbers)))
            return sum(made)

        assert [ask(0, 1), ask(2, 3), ask(0, 1, 2, 3)] == [2, 2, 0], "four are kept"
        assert ask(3, 4) == 1, "what is asked for stays"
        assert [ask(3, 4), ask(0)] == [0, 1], "the others have left"
        assert ask(*range(10)) == 8, "in turns of four, which use what is there"
        assert len(windows._tables) <= 4
        large = epoch_windows(3, "feistel", "a")
        made.clear()
        large.forward(300, np.zeros(9, np.int64), np.arange(9))
        large.forward(300, np.zeros(9, np.int64), np.arange(9))
        assert made == [1], "one that is larger than all that is kept, is"
