import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from toydata import ToyStore, numbered
from virtual import VirtualStore

import tokenloom as tl


@pytest.fixture(scope="module")
def toy():
    """96 rows of 4 tokens; row i starts with token 4 i."""
    with ToyStore(numbered([[384]]), chunk_tokens=32) as made:
        yield made


@pytest.fixture
def rows(toy):
    return toy.store.windows(4)


def order(dataset, epoch=0):
    n = len(dataset.epochs(1))
    return dataset.locate(np.arange(n) + epoch * n)[1].tolist()


# -- one setting ---------------------------------------------------------------------------


def test_numpy_counts_are_counts(rows):
    assert order(rows.shuffle(np.int64(16))) == order(rows.shuffle(16))
    block = rows.block_shuffle(window_blocks=np.int32(2), lanes=np.uint8(2))
    assert order(block) == order(rows.block_shuffle(window_blocks=2, lanes=2))
    assert type(block.describe()["shuffle"]["lanes"]) is int
    assert type(rows.epochs(np.int64(2)).describe()["epochs"]) is int
    assert type(rows.take(np.int64(2)).describe()["take"]) is int
    assert type(rows.seed(np.int64(2)).describe()["seed"]) is int


# -- what the settings mean ----------------------------------------------------------------


def test_a_window_holds_the_rows_of_its_blocks_only(rows):
    found = order(rows.block_shuffle(window_blocks=3))
    for start in range(0, 96, 24):
        assert len({row // 8 for row in found[start : start + 24]}) == 3


@given(st.permutations(["shuffle", "epochs", "seed", "take", "render"]))
def test_chained_calls_may_stand_in_any_order(calls):
    with ToyStore(numbered([[64]]), chunk_tokens=32) as toy:
        arguments = {
            "shuffle": (tl.BlockShuffle(window_blocks=1),),
            "epochs": (3,),
            "seed": (5,),
            "take": (20,),
        }
        found = expected = toy.store.windows(4)
        for name in calls:
            options = {"mask_boundary_loss": False} if name == "render" else {}
            found = getattr(found, name)(*arguments.get(name, ()), **options)
        for name in sorted(calls):
            options = {"mask_boundary_loss": False} if name == "render" else {}
            expected = getattr(expected, name)(*arguments.get(name, ()), **options)
        assert found.fingerprint == expected.fingerprint
        assert found.describe() == expected.describe()
        every = range(20)
        np.testing.assert_array_equal(found.batch(every).tokens, expected.batch(every).tokens)


def test_lengths_are_rows_times_epochs_cut_by_take(rows):
    assert len(rows) == 96
    assert len(rows.epochs(3)) == 288
    assert len(rows.epochs(3).take(100)) == 100
    assert len(rows.take(1000)) == 96
    assert len(rows.take(0)) == len(rows.epochs(0)) == 0
    assert len(rows.epochs(None).take(7)) == 7
    with pytest.raises(IndexError, match="index 100"):
        rows.epochs(3).take(100).batch([100])
    with pytest.raises(IndexError, match="index 0"):
        rows.epochs(0)[0]


def test_an_endless_dataset_has_no_length_and_says_so(rows):
    endless = rows.epochs(None)
    assert (rows.is_finite, endless.is_finite, endless.take(4).is_finite) == (True, False, True)
    with pytest.raises(TypeError, match="endless"):
        len(endless)
    assert "endless" in repr(endless)
    far = endless.shuffle().batch([2**62])
    assert far.index.tolist() == [2**62]
    with pytest.raises(IndexError):
        endless.batch([-1])


def test_another_seed_is_another_order_and_nought_is_the_default(rows):
    shuffled = rows.shuffle()
    assert order(shuffled.seed(0)) == order(shuffled)
    assert len({tuple(order(shuffled.seed(s))) for s in (0, 1, 2, 2**64 - 1)}) == 4


# -- memory --------------------------------------------------------------------------------


def number(text):
    return float(text.replace(",", ""))


@pytest.mark.parametrize("how", ["block_shuffle", "shuffle"])
@pytest.mark.parametrize("options", [{}, {"io_block_size": 64}, {"shuffle_block_size": 512}])
def test_a_window_that_does_not_fit_is_told_with_the_arithmetic(tmp_path, how, options):
    made = VirtualStore([(9, 40_000_000)])
    store = tl.open(made.write_manifest(tmp_path), source=made, cache_bytes=1 << 20, verify="never")
    setting = tl.BlockShuffle(window_blocks=16, **options)
    with pytest.warns(UserWarning, match="block_shuffle") as caught:
        getattr(store.windows(2048), how)(setting)
    (warning,) = caught
    assert warning.filename == __file__  # it points at the line that asked for it
    pattern = (
        r"(\d+) blocks x (\d+) rows x ([\d,]+) tokens x (\d+) bytes take ([\d,.]+) MiB, "
        r"the cache has 1.0 MiB"
    )
    *factors, mebibytes = map(number, re.search(pattern, str(warning.message)).groups())
    assert factors[0] == 16
    assert np.prod(factors) / 2**20 == pytest.approx(mebibytes, abs=0.06)


def test_a_window_that_fits_says_nothing(tmp_path):
    made = VirtualStore([(9, 40_000_000)])
    root = made.write_manifest(tmp_path)
    for blocks, fits in ((2, True), (3, False)):
        store = tl.open(root, source=made, cache_bytes=1 << 20, verify="never")
        if fits:
            store.windows(2048).block_shuffle(window_blocks=blocks)
        else:
            with pytest.warns(UserWarning, match=f"{blocks} blocks x 128 rows"):
                store.windows(2048).block_shuffle(window_blocks=blocks)
        store.windows(2048).block_shuffle(window_blocks=blocks, cache_windows=1)


def test_a_block_larger_than_the_store_is_told_as_what_it_holds(tmp_path):
    made = VirtualStore([(9, 200_000)])
    store = tl.open(made.write_manifest(tmp_path), source=made, cache_bytes=1000, verify="never")
    with pytest.warns(UserWarning, match=r"1 block x 97 rows x 2,048 tokens x 2 bytes take 388"):
        store.windows(2048).block_shuffle()


def test_who_turned_the_cache_off_is_not_told_that_it_is_small(tmp_path):
    made = VirtualStore([(9, 200_000)])
    store = tl.open(made.write_manifest(tmp_path), source=made, cache_bytes=0, verify="never")
    store.windows(2048).block_shuffle()


def test_the_window_left_open_is_128_mi_tokens_or_512_blocks(tmp_path):
    made = VirtualStore([(9, 400_000_000)])
    store = tl.open(made.write_manifest(tmp_path), source=made, verify="never")
    for seq_len, options, blocks in [
        (2048, {}, 512),
        (2048, {"lanes": 64}, 8),
        (2048, {"io_block_size": 1024}, 64),
        (2048, {"io_block_size": 1}, 512),
        (1 << 20, {}, 128),
        (1 << 27, {}, 2),
        (2048, {"lanes": 1024}, 1),
    ]:
        found = store.windows(seq_len).block_shuffle(cache_windows=1, **options)
        assert found.describe()["shuffle"]["window_blocks"] == blocks, (seq_len, options)


@pytest.mark.parametrize("more", [0, 1, 2047])
def test_tokens_that_no_row_has_do_not_change_the_window(tmp_path, more):
    made = VirtualStore([(9, 600 * 262_144 + more)])
    store = tl.open(made.write_manifest(tmp_path), source=made, verify="never")
    assert store.windows(2048).block_shuffle().describe()["shuffle"]["window_blocks"] == 512


def test_a_dataset_prints_its_tree(rows):
    text = repr(rows.block_shuffle(window_blocks=2).epochs(2).seed(7))
    for word in ("192 examples", "windows(4)", "block(", "window_blocks=2", "seed 7", "MiB"):
        assert word in text


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *((lambda r, s=s: r.seed(s), ("seed",)) for s in (-1, 2**64, 1.0, True, "7", None)),
        *((lambda r, n=n: r.epochs(n), ("epochs", repr(n))) for n in (-1, 1.5, 2.0, "2", True)),
        *((lambda r, n=n: r.take(n), ("take", repr(n))) for n in (-1, 1.5, 2.0, "2", True)),
        (lambda r: r.block_shuffle(perm_type="levanter", lanes=2), ("lanes", 2)),
        (lambda r: r.block_shuffle(window_block=3), ("window_block",)),
        (lambda r: r.render(label_layot="x"), ("label_layot",)),
        *((lambda r, p=p: r.shuffle(perm_type=p), ("perm_type",)) for p in (7, ["feistel"])),
        (lambda r: r.shuffle(perm_type="feistl"), ("perm_type", "'feistl'")),
    ],
)
def test_settings_of_a_run_are_refused(rows, make, named):
    refused(lambda: make(rows), tl.ConfigError, *named)
