"""Shuffles at the values that the block shuffle design works out by hand."""

import dataclasses
import itertools
import json
import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom import order
from tokenloom.quality import measure
from tokenloom.streams import budget_rows, buffer_shuffle, window_shuffle
from tokenloom.testing import assert_exactly_once, assert_resumable

BLOCK, BATCH = 128, 128
SEEDS = range(8)
KINDS = {
    "full": order.full,
    "era": lambda n, **options: order.era(n, 1024, **options),
    "block": lambda n, **options: order.block(n, BLOCK, 8, **options),
}


def rows_of(made):
    return made.map(np.arange(len(made)))


@pytest.fixture
def rows(shared_store_of):
    """96 rows of 4 tokens; row i is tokens 4 i to 4 i + 3 of the only document."""
    return shared_store_of(range(384)).windows(4)


def row_order(dataset, epoch=0):
    """The row at each index of an epoch of windows over one document."""
    n = len(dataset.epochs(1))
    spans = dataset.epochs(None).spans(np.arange(epoch * n, (epoch + 1) * n))
    return (spans.start // dataset.seq_len).tolist()


# -- orders --------------------------------------------------------------------------------


def test_sh_01_a_window_of_8_blocks_of_128_uses_exactly_8_blocks():
    rows = rows_of(order.block(8192, BLOCK, 8, seed=3))
    blocks = [{*(window // BLOCK).tolist()} for window in rows.reshape(-1, 8 * BLOCK)]
    assert [len(used) for used in blocks] == [8] * 8
    assert set.union(*blocks) == {*range(64)}  # and no block is in two windows
    assert any(used != {*range(8 * w, 8 * w + 8)} for w, used in enumerate(blocks))


SCRIPT = """
import numpy as np
from tokenloom import order
n = 5000
for perm_type in ("feistel", "linear"):
    options = {"seed": 11, "epoch": 3, "perm_type": perm_type}
    made = (order.full(n, **options), order.era(n, 1024, **options),
            order.block(n, 128, 8, **options), order.block(n, 128, 2, lanes=4, **options))
    for one in made:
        print(one.map(np.arange(n)).tolist())
"""


def test_sh_02_another_process_maps_every_index_alike():
    command = [sys.executable, "-c", SCRIPT]
    there = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout
    here = []
    for perm_type in ("feistel", "linear"):
        options = {"seed": 11, "epoch": 3, "perm_type": perm_type}
        here += [
            order.full(5000, **options),
            order.era(5000, 1024, **options),
            order.block(5000, 128, 8, **options),
            order.block(5000, 128, 2, lanes=4, **options),
        ]
    assert there == "".join(f"{rows_of(made).tolist()}\n" for made in here)


def test_sh_03_sh_20_every_small_length_is_a_bijection():
    for n, size, window in itertools.product(range(1, 301), (1, 2, 3, 7), (1, 2, 3)):
        made = order.block(n, size, window, seed=n)
        rows = rows_of(made)
        assert sorted(rows.tolist()) == [*range(n)], (n, size, window)


@given(st.integers(1, 400), st.integers(1, 40), st.integers(1, 6), st.integers(1, 5), st.data())
def test_sh_03_any_block_order_is_a_bijection_with_an_inverse(n, size, window, lanes, data):
    made = order.block(n, size, window, lanes=lanes, seed=data.draw(st.integers(0, 2**64 - 1)))
    rows = rows_of(made)
    assert sorted(rows.tolist()) == [*range(n)]
    assert made.inverse(rows).tolist() == [*range(n)]


def test_sh_04_the_short_last_block_stays_last():
    rows = rows_of(order.block(1000, BLOCK, 8, seed=3))
    assert sorted(rows[-104:].tolist()) == [*range(896, 1000)]
    assert rows[-104:].tolist() != [*range(896, 1000)]


def test_c_33_a_short_last_window_of_whole_blocks_is_a_window_like_any():
    """11 whole blocks and a rest, windows of 4: 4, 4, 3 blocks, then the rest."""
    rows = rows_of(order.block(11 * 16 + 5, 16, 4, seed=3))
    windows = np.split(rows[: 11 * 16], [64, 128])
    assert [len({*(window // 16).tolist()}) for window in windows] == [4, 4, 3]
    assert sorted(rows[-5:].tolist()) == [*range(176, 181)]


@pytest.mark.parametrize("make", [order.full, lambda n, seed: order.block(n, 4, 2, seed=seed)])
def test_sh_05_c_35_a_shuffle_of_all_rows_refuses_endless_ones_with_a_hint(make):
    with pytest.raises(TypeError, match="era"):
        make(None, seed=0)


def test_sh_05_an_endless_mix_is_not_shuffled_as_a_whole(rows):
    endless = tl.mix({"a": rows.shuffle().epochs(None), "b": rows.shuffle()})
    for shuffle in (True, 16, tl.BlockShuffle(io_block_size=4, window_blocks=2)):
        with pytest.raises(TypeError, match="shuffle"):
            endless.shuffle(shuffle)


def test_sh_05_c_35_endless_rows_are_shuffled_in_eras():
    endless = order.block(None, 4, 2, lanes=3, seed=5, infinite="era")
    rows = endless.map(np.arange(240))
    for start in range(0, 240, 24):  # 4 rows x 2 blocks x 3 lanes
        era = rows[start : start + 24].tolist()
        assert sorted(era) == [*range(start, start + 24)] != era
    assert (endless.inverse(rows) == np.arange(240)).all()
    assert endless.map([10**15]).shape == (1,)
    with pytest.raises(TypeError):
        len(endless)
    with pytest.raises(tl.ConfigError, match=r"infinite\b.*'cycle'"):
        order.block(10, 4, 2, seed=0, infinite="cycle")


# -- blocks of a store ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def io_blocks(tmp_path_factory):
    """A store of three io blocks of 262,144 tokens each, one document."""
    records = [{"text": "a" * (3 * 262_144)}]
    out = tmp_path_factory.mktemp("io-blocks") / "store"
    return tl.build(records, out, tokenizer="bytes", progress=False)


@pytest.mark.parametrize(
    ("seq_len", "block"), [(2048, 128), (4096, 64), (8192, 32), (262_144, 1), (300_000, 1)]
)
def test_sh_06_a_block_is_the_rows_of_an_io_block(io_blocks, seq_len, block):
    made = io_blocks.windows(seq_len)
    default = made.block_shuffle(window_blocks=1)
    assert default == made.block_shuffle(io_block_size=block, window_blocks=1)
    assert default != made.block_shuffle(io_block_size=block + 1, window_blocks=1)
    found = row_order(default.seed(3))
    for start in range(0, len(made) // block * block, block):
        assert len({row // block for row in found[start : start + block]}) == 1


def test_sh_06_c_37_a_length_that_does_not_divide_is_rounded_down_with_a_warning(io_blocks):
    with pytest.warns(UserWarning, match=r"\b87\b"):
        made = io_blocks.windows(3000)
    assert made.block_shuffle() == made.block_shuffle(io_block_size=87)
    aligned = io_blocks.windows(3000, align=True).block_shuffle(window_blocks=1)
    found = np.array(row_order(aligned))
    # io blocks end with rows 87, 174 and 261: the rows that begin in them are 88, 87 and 87
    block = np.searchsorted([88, 175], found, side="right")
    changes = np.flatnonzero(np.diff(block))
    assert len(changes) == 2, "each block is shown as a whole before the next"
    assert np.bincount(block).tolist() == [88, 87, 87]


# -- one setting ---------------------------------------------------------------------------


def test_sh_07_block_shuffle_has_the_fields_of_the_design():
    fields = {field.name for field in dataclasses.fields(tl.BlockShuffle)}
    assert {"io_block_size", "window_blocks", "perm_type", "cache_windows"} <= fields
    default, published = tl.BlockShuffle(), tl.BlockShuffle.published()
    assert (default.io_block_size, default.perm_type) == (None, "feistel")
    assert (published.io_block_size, published.window_blocks) == (None, 8)
    assert (published.perm_type, published.cache_windows) == ("feistel", 8)


@pytest.mark.parametrize("windows", [None, 1, 8])
def test_sh_07_it_serializes_whole_and_memory_is_no_identity(rows, windows):
    published = dataclasses.replace(tl.BlockShuffle.published(), cache_windows=windows)
    dataset = rows.block_shuffle(published)
    again = tl.from_config(json.loads(json.dumps(dataset.describe())))
    assert again == dataset
    assert again.describe() == dataset.describe()
    assert dataset.fingerprint == rows.block_shuffle(window_blocks=8).fingerprint


@pytest.mark.parametrize(
    "field", ["io_block_size", "window_blocks", "lanes", "shuffle_block_size", "cache_windows"]
)
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "8", True])
def test_sh_07_its_numbers_are_counts(rows, field, wrong):
    with pytest.raises(tl.ConfigError, match=rf"{field}\b.*{wrong!r}"):
        tl.BlockShuffle(**{field: wrong})
    with pytest.raises(tl.ConfigError, match=field):
        rows.block_shuffle(**{field: wrong})


@pytest.mark.parametrize("n", [96, 5000, 10**12])
def test_sh_08_linear_is_a_x_plus_b_modulo_n(n):
    made = order.full(n, seed=3, perm_type="linear")
    indices = np.unique(np.linspace(0, n - 1, 90).astype(np.int64))
    b, second = made.map([0, 1]).tolist()
    a = (second - b) % n
    assert math.gcd(a, n) == 1
    assert made.map(indices).tolist() == [(a * int(x) + b) % n for x in indices]
    assert (made.inverse(made.map(indices)) == indices).all()


@pytest.mark.parametrize("shuffle", [True, 32, tl.BlockShuffle(window_blocks=2, io_block_size=8)])
def test_sh_08_perm_type_goes_with_every_shuffle(rows, shuffle):
    found = {}
    for perm_type in ("feistel", "linear", "levanter", "levanter_linear"):
        made = rows.shuffle(shuffle, perm_type=perm_type)
        found[perm_type] = row_order(made)
        assert sorted(found[perm_type]) == [*range(96)]
    assert len({*map(tuple, found.values())}) == 4
    assert found["feistel"] == row_order(rows.shuffle(shuffle))
    with pytest.raises(tl.ConfigError, match=r"perm_type\b.*'fiestel'"):
        rows.shuffle(shuffle, perm_type="fiestel")


def test_sh_09_c_29_every_dataset_has_block_shuffle_and_its_alias(shared_store_of):
    store = shared_store_of(range(384))
    block = tl.BlockShuffle(window_blocks=3)
    spliced = store.splice(8, content_length=4)
    mixed = tl.mix({"a": store.windows(4), "b": store.pack(4)}, stop="all_exhausted")
    for dataset in (store.windows(4), store.pack(4), spliced):
        made = dataset.block_shuffle(window_blocks=3)
        assert made == dataset.block_shuffle(block) == dataset.shuffle(block)
        assert made == dataset.shuffle(block_shuffle=block)
        assert_exactly_once(made)
    afterwards = mixed.block_shuffle(io_block_size=4, window_blocks=3)
    assert len(afterwards) == len(mixed) == 192


@pytest.mark.parametrize("n", [8192, 8192 + 100])
def test_sh_10_every_aligned_era_of_1024_is_a_permutation_of_itself(n):
    rows = rows_of(order.era(n, 1024, seed=5))
    for start in range(0, n, 1024):
        era = rows[start : start + 1024].tolist()
        assert sorted(era) == [*range(start, min(start + 1024, n))] != era


def test_sh_10_a_full_shuffle_moves_rows_anywhere():
    rows = rows_of(order.full(8192, seed=5))
    assert sorted(rows.tolist()) == [*range(8192)]
    assert all(len({*(rows[start : start + 1024] // 1024).tolist()}) == 8 for start in (0, 4096))


def test_sh_10_sh_11_one_setting_says_which(rows):
    stored = [*range(96)]
    assert row_order(rows) == row_order(rows.shuffle(False)) == stored
    assert row_order(rows.shuffle().shuffle(False)) == stored
    full = row_order(rows.shuffle(True))
    assert sorted(full) == stored != full
    assert full == row_order(rows.shuffle()) == rows_of(order.full(96, seed=0)).tolist()
    eras = row_order(rows.shuffle(20))
    assert eras == row_order(rows.era_shuffle(20)) == rows_of(order.era(96, 20, seed=0)).tolist()
    for start in range(0, 96, 20):
        assert sorted(eras[start : start + 20]) == stored[start : start + 20]
    block = tl.BlockShuffle(io_block_size=8, window_blocks=3)
    found = row_order(rows.shuffle(block))
    assert found == row_order(rows.block_shuffle(io_block_size=8, window_blocks=3))
    assert found == rows_of(order.block(96, 8, 3, seed=0)).tolist()
    assert len({*map(tuple, (stored, full, eras, found))}) == 4


@pytest.mark.parametrize("also", [True, 16, 1024, tl.BlockShuffle(window_blocks=3)])
def test_sh_11_two_shuffles_are_refused_with_both_values(rows, also):
    block = tl.BlockShuffle(window_blocks=2)
    with pytest.raises(tl.ConfigError, match="shuffle") as caught:
        rows.shuffle(also, block_shuffle=block)
    assert repr(also) in str(caught.value)
    assert repr(block) in str(caught.value)
    with pytest.raises(tl.ConfigError, match=r"window_blocks=2.*lanes=2"):
        rows.block_shuffle(block, lanes=2)


@pytest.mark.parametrize("wrong", ["block", 1.5, [1], {"kind": "full"}, 0, -4])
def test_sh_11_anything_else_is_refused(rows, wrong):
    with pytest.raises(tl.ConfigError, match="shuffle") as caught:
        rows.shuffle(wrong)
    assert str(wrong) in str(caught.value)


def test_sh_12_index_1e9_of_1e10_takes_the_work_of_index_5_of_10000():
    """Counted in calls of functions and in bytes, each order asked for the first time."""

    def work(make, n, index):
        made, calls = make(n, seed=9), 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        tracemalloc.start()
        sys.setprofile(count)
        try:
            (row,) = made.map([index]).tolist()
        finally:
            sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0 <= row < n
        assert made.inverse([row]).tolist() == [index]
        return calls, peak

    def least(*arguments):  # of three times: another thread may allocate meanwhile
        return tuple(map(min, zip(*[work(*arguments) for _ in range(3)], strict=True)))

    for make in KINDS.values():
        (near, _), (far, peak) = least(make, 10_000, 5), least(make, 10**10, 10**9)
        assert far < 2 * near + 50
        assert far < 1000
        assert peak < 1 << 18


def test_sh_15_a_larger_window_mixes_more():
    """Rows of a batch come from more blocks; displacement is fair either way."""
    for seed in SEEDS:
        small, large = (rows_of(order.block(8192, BLOCK, k, seed=seed)) for k in (8, 32))
        blocks = [measure(rows, BLOCK, BATCH).blocks_per_group for rows in (small, large)]
        assert blocks[0] <= 8 < blocks[1]
        assert measure(large, BLOCK, BATCH).mean_abs_displacement_norm == pytest.approx(1 / 3, 0.15)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_sh_16_an_epoch_depends_on_the_key_and_its_number_only(make):
    orders = [rows_of(make(8192, seed=7, epoch=epoch)) for epoch in (0, 1, 2)]
    assert np.array_equal(orders[1], rows_of(make(8192, seed=7, epoch=1)))
    for a, b in itertools.combinations(orders, 2):
        assert (a == b).mean() < 0.01


@pytest.mark.parametrize(
    "shuffle",
    [True, 24, tl.BlockShuffle(io_block_size=8, window_blocks=2)],
    ids=["full", "era", "block"],
)
def test_sh_16_an_endless_run_has_a_fresh_order_in_every_epoch(rows, shuffle):
    run = rows.shuffle(shuffle).seed(7).epochs(None)
    found = [row_order(run, epoch) for epoch in (0, 1, 2, 1000)]
    assert all(sorted(one) == [*range(96)] for one in found)
    assert len({*map(tuple, found)}) == 4
    alone = rows.shuffle(shuffle).seed(7).epochs(1001)  # not asked for earlier epochs
    assert row_order(alone, 1000) == found[3]
    if shuffle is True:
        assert found[3] == rows_of(order.full(96, seed=7, epoch=1000)).tolist()


@pytest.mark.parametrize(
    ("kind", "fair", "within"),
    [("full", 0.0155, 0.004), ("era", 0.124, 0.01), ("block", 0.124, 0.01)],
)
def test_sh_17_c_31_neighbors_share_a_block_as_often_as_by_chance(kind, fair, within):
    orders = [rows_of(KINDS[kind](8192, seed=seed)) for seed in SEEDS]
    rates = [measure(rows, BLOCK, BATCH).same_block_transition_rate for rows in orders]
    assert np.mean(rates) == pytest.approx(fair, abs=within)


@pytest.mark.parametrize("kind", ["era", "block"])
def test_sh_17_c_31_the_published_permutation_does_not(kind):
    orders = [rows_of(KINDS[kind](8192, seed=seed, perm_type="levanter")) for seed in SEEDS]
    rates = [measure(rows, BLOCK, BATCH).same_block_transition_rate for rows in orders]
    assert np.mean(rates) > 0.2


# -- where a shuffle stands ----------------------------------------------------------------


def test_sh_13_im_17_c_66_sources_are_shuffled_by_default_and_the_mix_if_asked_for(shared_store_of):
    """Shuffled sources leave the turns alone, a shuffled mix mixes them up."""
    sources = {
        "a": shared_store_of(range(80)).windows(4),
        "b": shared_store_of(range(100, 140)).windows(4),
    }

    def places(run):
        """(source, row) of every example."""
        spans = run.spans(np.arange(len(run)))
        names = [spans.sources[number] for number in spans.source.tolist()]
        return [*zip(names, (spans.start // 4).tolist(), strict=True)]

    def turns(run):
        return [name for name, _ in places(run)]

    rule = {"rule": "round_robin", "stop": "all_exhausted"}
    plain = tl.mix(sources, **rule).seed(3)
    before = tl.mix({name: source.shuffle() for name, source in sources.items()}, **rule).seed(3)
    assert turns(plain) == turns(before)
    assert places(plain) != places(before)
    for after in (plain.shuffle(), plain.block_shuffle(io_block_size=4, window_blocks=2)):
        assert turns(after) != turns(plain)
        assert sorted(places(after)) == sorted(places(plain))
        assert_resumable(after, batch_size=7, steps=4)
        again = tl.from_config(json.loads(json.dumps(after.describe())))
        assert places(again) == places(after)
    eras = plain.shuffle(10)
    for start in range(0, 30, 10):
        window = slice(start, start + 10)
        assert sorted(places(eras)[window]) == sorted(places(plain)[window])
        assert places(eras)[window] != places(plain)[window]
    at = {place: index for index, place in enumerate(places(plain))}
    windows = plain.block_shuffle(io_block_size=2, window_blocks=2)
    for start in range(0, 28, 4):  # four rows of a window are of two blocks
        assert len({at[place] // 2 for place in places(windows)[start : start + 4]}) == 2


def test_sh_14_a_unit_of_several_io_blocks_stays_together(rows):
    options = {"io_block_size": 4, "shuffle_block_size": 16, "window_blocks": 1}
    found = row_order(rows.block_shuffle(**options))
    assert sorted(found) == [*range(96)]
    units = [{row // 16 for row in found[start : start + 16]} for start in range(0, 96, 16)]
    assert [len(unit) for unit in units] == [1] * 6
    assert units != [{number} for number in range(6)]


def test_sh_18_a_window_of_packed_rows_resumes_in_its_middle(shared_store_of):
    """8 rows a window, batches of 2: a state after 6 of 8 rows, alone and in a mix."""
    lengths = [3, 9, 4, 12, 7, 1, 5, 16] * 8
    documents = [[n % 999] * size for n, size in enumerate(lengths)]
    packed = shared_store_of(*documents).pack(16).block_shuffle(io_block_size=4, window_blocks=2)
    other = shared_store_of(range(384)).windows(16)
    for run in (packed, tl.mix({"a": packed, "b": other}, rule="round_robin").take(40)):
        with tl.Loader(run, 2, prefetch=0) as loader:
            wanted = [batch.tokens.tolist() for batch in loader]
        with tl.Loader(run, 2, prefetch=0) as first:
            found = [next(first).tokens.tolist() for _ in range(3)]
            state = json.loads(json.dumps(first.state_dict()))
        assert state["examples"] == 6
        with tl.Loader(run, 2, prefetch=0) as rest:
            rest.load_state_dict(state)
            assert found + [batch.tokens.tolist() for batch in rest] == wanted


# -- shuffles of streams -------------------------------------------------------------------

STREAMS = {"buffer": buffer_shuffle, "window": window_shuffle}


class Again:
    """An iterable that is not a sequence."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows


class Skips(Again):
    """An iterable that can leave out its first rows."""

    def skip(self, count):
        return Again(self.rows[count:])


class Indexed:
    """Rows by index, without an iterator, as in a map-style dataset."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class StatefulIterable:
    """As `datasets.IterableDataset`: once loaded, every iter() starts there."""

    def __init__(self, rows):
        self.rows, self.start, self.place = rows, 0, 0

    def __iter__(self):
        self.place = self.start
        while self.place < len(self.rows):
            self.place += 1
            yield self.rows[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.start = state["place"]


class Stateful:
    """An iterator that knows its place."""

    def __init__(self, rows):
        self.rows, self.place = rows, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == len(self.rows):
            raise StopIteration
        self.place += 1
        return self.rows[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


SOURCES = {
    "list": lambda rows: rows,
    "iterable": Again,
    "iterable with skip": Skips,
    "indexed": Indexed,
    "stateful iterable": StatefulIterable,
    "callable": lambda rows: lambda skip: iter(rows[skip:]),
    "generator": lambda rows: (row for row in rows),
    "stateful iterator": Stateful,
}
ONCE = {"generator", "stateful iterator"}


def restored_before_every_item(make):
    """All items of a stream, each from one that was made anew and restored."""
    stream, found = make(), []
    while True:
        state = json.dumps(stream.state_dict(), allow_nan=False)
        stream = make()
        stream.load_state_dict(json.loads(state))
        item = next(stream, None)
        if item is None:
            return found
        found.append(item)


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=20)
@given(st.sampled_from(sorted(STREAMS)), st.integers(1, 16), st.integers(1, 6), st.integers(1, 2))
def test_sh_18_sh_19_a_state_of_any_moment_resumes_exactly(source, shuffle, count, size, epochs):
    assume(source not in ONCE or epochs == 1)
    rows = [[1000 + row] for row in range(count)]

    def make():
        return STREAMS[shuffle](SOURCES[source](rows), size, seed=3, epochs=epochs)

    wanted = [*make()]
    assert sorted(wanted) == sorted(rows * epochs)
    assert restored_before_every_item(make) == wanted


@pytest.mark.parametrize("source", SOURCES)
def test_sh_18_a_snapshot_at_6_of_8_rows_continues_in_its_window(source):
    rows = [[row] * 4 for row in range(24)]
    rows_a_window = budget_rows(35, 4, multiple_of=2 * 2)  # accumulate 2, batch 2
    assert rows_a_window == 8

    def make():
        return window_shuffle(SOURCES[source](rows), rows_a_window, seed=7)

    wanted = [*make()]
    assert wanted != rows
    for start in range(0, 24, 8):
        assert sorted(wanted[start : start + 8]) == rows[start : start + 8]
    stream = make()
    start = [next(stream) for _ in range(6)]
    state = json.loads(json.dumps(stream.state_dict()))
    again = make()
    again.load_state_dict(state)
    assert [*start, *again] == wanted


def test_sh_18_windows_have_the_rows_of_a_token_budget():
    assert budget_rows(8_388_608, 2048) == 4096
    assert budget_rows(8_388_608, 2048, multiple_of=3 * 64) == 4032
    assert budget_rows(100, 100) == 1
    with pytest.raises(tl.ConfigError, match=r"tokens\b.*\b99\b.*\b100\b"):
        budget_rows(99, 100)
    with pytest.raises(tl.ConfigError, match=r"\b799\b.*\b800\b"):
        budget_rows(799, 100, multiple_of=8)
    for wrong in ({"tokens": 0}, {"seq_len": 0}, {"multiple_of": 0}, {"tokens": 1.5}):
        with pytest.raises(tl.ConfigError, match=next(iter(wrong))):
            budget_rows(**{"tokens": 100, "seq_len": 10, "multiple_of": 1} | wrong)


def test_sh_18_a_window_of_5000_rows():
    rows = [*range(10_000)]
    stream = window_shuffle(rows, 5000, seed=1)
    start = [next(stream) for _ in range(5100)]
    assert sorted(start[:5000]) == rows[:5000] != start[:5000]
    again = window_shuffle(rows, 5000, seed=1)
    again.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    assert sorted([*start, *again]) == rows


@pytest.mark.parametrize("shuffle", STREAMS)
@pytest.mark.parametrize("source", SOURCES)
def test_sh_19_a_state_holds_rows_only_if_they_cannot_be_read_again(shuffle, source):
    """Rows of 5,000 bytes of text: a state without them is small."""
    rows = [{"text": chr(97 + row) * 5000, "ids": np.arange(row, row + 5)} for row in range(20)]
    stream = STREAMS[shuffle](SOURCES[source](rows), 6)
    for _ in range(8):
        next(stream)
    state = json.dumps(stream.state_dict())
    assert (len(state) > 5000) == (source == "generator")
    again = STREAMS[shuffle](SOURCES[source](rows), 6)
    again.load_state_dict(json.loads(state))
    for value, wanted in zip(again, stream, strict=True):
        assert value["text"] == wanted["text"]
        assert value["ids"].tolist() == wanted["ids"].tolist()
        assert value["ids"].dtype == wanted["ids"].dtype


def test_sh_19_a_restored_buffer_is_read_from_its_oldest_row():
    wanted = [*buffer_shuffle([*range(1000)], 8, seed=2)]
    stream = buffer_shuffle([*range(1000)], 8, seed=2)
    start = [next(stream) for _ in range(500)]
    oldest = min({*range(1000)} - {*start})
    assert oldest > 400
    opened = []

    def rows(skip):
        opened.append(skip)
        return iter(range(skip, 1000))

    again = buffer_shuffle(rows, 8, seed=2)
    again.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    assert [*start, *again] == wanted
    assert opened == [oldest]


def test_sh_19_an_iterator_continues_after_what_was_read():
    stream = buffer_shuffle(iter(range(20)), 4)
    start = [next(stream) for _ in range(5)]
    fresh = buffer_shuffle(iter(range(20)), 4)
    fresh.load_state_dict(stream.state_dict())
    assert [*start, *fresh] == [*buffer_shuffle(range(20), 4)]
    with pytest.raises(tl.StateError, match=r"sources\.main\b.*\b20\b"):
        fresh.load_state_dict(stream.state_dict())  # its rows were read already


@pytest.mark.parametrize(
    "wrong",
    [object(), {1, 2}, b"x", {3: 4}, float("nan"), 1j],
    ids=lambda wrong: type(wrong).__name__,
)
def test_sh_19_rows_of_an_iterator_that_are_not_json_are_refused(wrong):
    stream = buffer_shuffle(iter([[wrong]] * 5), 3)
    next(stream)
    with pytest.raises(tl.StateError, match=r"sources\.main"):
        stream.state_dict()
    other = buffer_shuffle([[wrong]] * 5, 3)  # a list is read again
    next(other)
    json.dumps(other.state_dict())
