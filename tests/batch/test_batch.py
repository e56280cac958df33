import gc
import itertools
import weakref

import numpy as np
import pytest
from toydata import ARRAYS, ToyStore, arrays, assert_same, numbered
from virtual import VirtualStore, value
from wholebatches import whole

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"lookahead": True, "overlap": 1}, {"lookahead": True, "overlap": 0}),
        ({"tail": "drop"}, {"tail": "keep"}),
        ({"tail": "keep"}, {"tail": "drop"}),
        ({"align": True}, {"align": True, "tail": "keep"}),
        ({}, {"align": True}),
    ],
)
def test_two_layouts_of_one_store_do_not_meet_in_the_cache(first, second):
    with ToyStore(numbered([[11, 8], [4, 14]])) as toy:
        for size in (None, 2, 3):
            for cut in (first, second, first):
                dataset = toy.store.windows(4, **cut).block_shuffle(io_block_size=size)
                every = range(len(dataset))
                np.testing.assert_array_equal(
                    whole(dataset, every, by_blocks=True).tokens, whole(dataset, every).tokens
                )


def test_large_blocks_give_the_rows_that_are_in_them(tmp_path):
    """Blocks of half a mebibyte take other ways through memory than toys do."""
    made = VirtualStore([(10, 700_000), (10, 600_000)])
    store = tl.open(made.write_manifest(tmp_path), source=made, verify="never", cache_bytes=8 << 20)
    rng = np.random.Generator(np.random.PCG64(3))
    for cut in ({}, {"tail": "keep"}, {"lookahead": True}):
        dataset = store.windows(2048, **cut).block_shuffle(window_blocks=2)
        step = 2048
        for _ in range(3):
            wanted = rng.integers(0, len(dataset), 40)
            _, rows = dataset.locate(wanted)
            addresses = rows[:, None] * step + np.arange(2048)
            expected = np.where(addresses < 1_300_000, value(addresses), 0)
            batch = whole(dataset, wanted, by_blocks=True)
            np.testing.assert_array_equal(batch.tokens, expected)
            np.testing.assert_array_equal(whole(dataset, wanted).tokens, expected)
            ahead = np.where(addresses + 1 < 1_300_000, value(addresses + 1), 0)
            shifted = whole(dataset.render(label_layout="shifted"), wanted, by_blocks=True).labels
            seen = shifted >= 0
            np.testing.assert_array_equal(shifted[seen], ahead[seen])


@pytest.fixture(scope="module")
def large():
    """Half a million tokens on disk in io blocks of 128 KiB; token a is a modulo a prime."""
    tokens = (np.arange(500_000) % 65_521).tolist()
    shards = [[tokens[:200_000], tokens[200_000:330_000]], [tokens[330_000:]]]
    options = {"vocab_size": 1 << 16, "chunk_tokens": 1 << 16, "inner": 1 << 14}
    with ToyStore(shards, cache_bytes=4 << 17, **options) as toy:
        yield toy.store


def rows_of(dataset, wanted):
    _, rows = dataset.locate(wanted)
    addresses = rows[:, None] * dataset.seq_len + np.arange(dataset.seq_len)
    return np.where(addresses < 500_000, addresses % 65_521, 0)


@pytest.mark.parametrize("cut", [{}, {"tail": "keep"}, {"lookahead": True}])
def test_blocks_that_come_and_go_in_large_buffers_give_their_rows(large, cut):
    dataset = large.windows(1024, **cut).block_shuffle(window_blocks=2).epochs(2)
    for start in range(0, len(dataset) - 50, 37):
        wanted = np.arange(start, start + 50)
        batch = whole(dataset, wanted, by_blocks=True)
        np.testing.assert_array_equal(batch.tokens, rows_of(dataset, wanted))


def test_a_batch_that_is_filled_late_has_the_tokens_that_were_read(large):
    dataset = large.windows(1024).block_shuffle(window_blocks=1)
    renderer, wanted = dataset.renderer(by_blocks=True), np.arange(len(dataset))
    cuts = list(range(0, len(dataset), 32))
    plan = renderer.plan(wanted)
    waiting = [
        renderer.batches(plan, [a, b])[0] for a, b in itertools.pairwise(cuts)
    ]  # by now the first blocks are long out of the cache
    large.reader.cache.clear()
    gc.collect()
    for seq_len in (1024, 2048):  # and their memory would be taken by others, if it could
        other = large.windows(seq_len).block_shuffle(window_blocks=1)
        for start in range(0, len(other) - 64, 64):
            whole(other, range(start, start + 64), by_blocks=True)
    for number, pending in enumerate(waiting):
        expected = rows_of(dataset, wanted[cuts[number] : cuts[number + 1]])
        np.testing.assert_array_equal(pending.make().tokens, expected)


# -- memory --------------------------------------------------------------------------------


def test_batches_of_one_plan_do_not_share_memory():
    with ToyStore(numbered([[9, 7], [8, 40]])) as toy:
        dataset = toy.store.windows(4)
        for by_blocks in (False, True):
            renderer = dataset.renderer(by_blocks=by_blocks)
            pending = renderer.batches(renderer.plan(np.arange(8)), [0, 4, 8])
            one, other = (p.make() for p in pending)
            again = pending[0].make()
            for name in ARRAYS:
                a = getattr(one, name)
                for b in (getattr(other, name), getattr(again, name)):
                    assert not np.shares_memory(a, b) or name == "index", name
            expected = other.tokens.copy()
            one.tokens[...] = 0
            np.testing.assert_array_equal(other.tokens, expected)
            np.testing.assert_array_equal(again.tokens, dataset.batch(range(4)).tokens)


def test_large_arrays_of_two_living_batches_are_different_memory():
    with ToyStore(numbered([[70_000]]), vocab_size=1 << 20, inner=4096, chunk_tokens=8192) as toy:
        dataset = toy.store.windows(1024)
        kept = [dataset.batch(range(start, start + 32)) for start in (0, 32)]
        copies = [arrays(batch) for batch in kept]
        for start in range(0, 32, 4):  # more of them, and their memory comes and goes
            assert_same(
                dataset.batch(range(start, start + 32)), dataset.batch(range(start, start + 32))
            )
        for batch, copy in zip(kept, copies, strict=True):
            for name in ARRAYS:
                np.testing.assert_array_equal(getattr(batch, name), copy[name], name)
        assert not np.shares_memory(kept[0].tokens, kept[1].tokens)


def test_arrays_live_on_when_the_dataset_is_gone():
    with ToyStore(numbered([[70_000]]), vocab_size=1 << 20, inner=4096, chunk_tokens=8192) as toy:
        store = tl.open(toy.path, cache_bytes=1 << 20)
        tokens = store.windows(1024).block_shuffle(window_blocks=1).batch(range(40)).tokens
        labels = store.windows(1024).batch(range(40)).labels
        copies = tokens.copy(), labels.copy()
        del store
        gc.collect()
        for start in (0, 20):
            toy.store.windows(1024).batch(range(start, start + 40)).tokens[...] = -1
        np.testing.assert_array_equal(tokens, copies[0])
        np.testing.assert_array_equal(labels, copies[1])


def test_a_batch_goes_when_nobody_holds_it_without_waiting_for_the_collector():
    with ToyStore(numbered([[40]])) as toy:
        gc.collect()
        gc.disable()
        try:
            batch = toy.store.windows(4).batch([0, 1])
            _ = batch.labels, batch.spans
            gone = weakref.ref(batch)
            del batch
            assert gone() is None
        finally:
            gc.enable()


def test_a_batch_does_not_hold_the_blocks_it_was_made_from():
    with ToyStore(numbered([[4000]]), vocab_size=5000, chunk_tokens=1000) as toy:
        dataset = toy.store.windows(10).block_shuffle(window_blocks=2)
        batch = whole(dataset, range(50), by_blocks=True)
        _ = batch.labels
        cache = toy.store.reader.cache
        blocks = [weakref.ref(block) for block in cache._blocks.values()]
        cache.clear()
        gc.collect()
        assert [one for one in blocks if one() is not None] == []
