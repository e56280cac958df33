"""Loaders, caches and counters at the values that the designs work out by hand."""

import _thread
import time

import numpy as np
import pytest
from torch.utils.data import DataLoader
from toyruns import SEQ_LEN, close_all, joined, ranks_of, same, toy_run, toy_store

import tokenloom as tl
from tokenloom.batch.views.named import all_fields
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource


class Rows:
    """A run as torch wants it: one example by its index."""

    def __init__(self, run):
        self.run = run

    def __len__(self):
        return len(self.run)

    def __getitem__(self, index):
        return self.run[index].tokens[0]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than there are cores
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_sd_06_workers_of_another_loader_give_the_same_order(store, workers):
    """Worker processes are forked from one that has read, with its caches and locks."""
    run = toy_run(store, "block", epochs=1)
    expected = run.batch(np.arange(len(run))).tokens
    batches = DataLoader(Rows(run), batch_size=5, num_workers=workers)
    found = np.concatenate([batch.numpy() for batch in batches])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", ["block", "lanes 2", "lanes 5"])
def test_sd_04_sd_08_eight_ranks_give_the_steps_of_one(store, kind):
    run = toy_run(store, kind)
    ranks = ranks_of(run, 24, 8)
    with tl.Loader(run, 24) as alone:
        for batch in alone:
            assert np.array_equal(joined(ranks)[1], batch.tokens)
    close_all(ranks)


def test_sd_02_sd_05_a_rank_may_work_out_the_whole_step_and_take_its_part(store):
    """No rank knows more than another: indices follow from the step alone."""
    run = toy_run(store, "full")
    ranks = ranks_of(run, 13, 4)
    for step in range(3):
        whole = run.batch(np.arange(13 * step, 13 * step + 13))
        for (low, high), rank in zip(((0, 3), (3, 6), (6, 9), (9, 13)), ranks, strict=True):
            assert np.array_equal(next(rank).tokens, whole.tokens[low:high])
    close_all(ranks)


def test_ld_01_cr_09_sixteen_batches_of_128_are_one_request(tmp_path):
    """2,048 examples for each request, and far fewer reads than one for each."""
    store = toy_store(tmp_path, rows=4096, cache_bytes=0)
    run = store.windows(SEQ_LEN).block_shuffle(io_block_size=128, window_blocks=2).seed(1)
    renderer = run.renderer(by_blocks=False)
    before = run.counters()
    renderer.batches(renderer.plan(np.arange(2048)), list(range(0, 2049, 128)))
    after = run.counters()
    assert after.examples - before.examples == 2048
    grouped = after.read_ops - before.read_ops
    for index in range(2048):
        run.batch([index])
    single = run.counters().read_ops - after.read_ops
    assert single >= 2 * grouped


def requests_of(root, batches, **settings):
    """How often a loader asks its store for tokens, and how many reads that takes."""
    source = FaultSource(LocalSource(root))
    store = tl.open(root, source=source, cache_bytes=0)
    run = store.windows(SEQ_LEN).block_shuffle(io_block_size=128, window_blocks=2).seed(1)
    with tl.Loader(run.take(128 * batches), 128, fetch="rows", **settings) as loader:
        seen = [batch.index.tolist() for batch in loader]
    assert seen == np.arange(128 * batches).reshape(-1, 128).tolist()
    tokens = [[r for r in one if "input_ids/c" in r[0]] for one in source.requests]
    return sum(map(bool, tokens)), sum(map(len, tokens))


def test_ld_01_a_loader_asks_once_for_a_group_of_batches(tmp_path):
    """31 batches of 128 rows are six requests: of 1, 2, 4, 8, 1 (where a plan ends) and 15."""
    toy_store(tmp_path, rows=4096)
    requests, reads = requests_of(tmp_path, 31, prefetch=16)
    assert requests == 6
    single, most = requests_of(tmp_path, 31, prefetch=1)
    assert single == 31
    assert most > 3 * reads, "the control: batch by batch, neighbours are not merged"


def test_ld_03_dtypes(store):
    batch = toy_run(store).batch([0, 1])
    kinds = {name: getattr(batch, name).dtype for name in all_fields() if name != "spans"}
    for name in ("tokens", "labels", "segment_ids", "position_ids", "document_starts"):
        assert kinds[name] == np.int32, name
    for name in ("loss_mask", "attention_mask", "continues"):
        assert kinds[name] == np.bool_, name
    assert kinds["loss_weights"] == np.float32
    assert kinds["cu_seqlens"] == np.int32


@pytest.mark.parametrize("depth", [0, 1, 3, 64])
def test_ld_05_ca_06_any_depth_keeps_the_order_and_leaves_no_thread(store, depth):
    run, before = toy_run(store, "full"), _thread._count()
    with tl.Loader(run, 5, prefetch=depth, fetch="rows") as loader:
        for step, batch in enumerate(loader):
            assert same(batch, run.batch(np.arange(5 * step, 5 * step + 5)))
    deadline = time.monotonic() + 900
    while _thread._count() > before and time.monotonic() < deadline:
        time.sleep(0.001)  # it is at its last few instructions
    assert _thread._count() == before


def test_ld_12_asking_for_statistics_reads_nothing(store):
    run = toy_run(store)
    with tl.Loader(run, 4) as loader:
        next(loader)
        loader.close()
        before = run.counters().read_ops
        for _ in range(10):
            loader.stats()
        assert run.counters().read_ops == before
        assert next(loader).tokens.__array_interface__  # plain memory: nothing was sent anywhere


def test_be_12_a_far_step_reads_no_more_than_the_first(store):
    """Seconds are printed by `python -m benchmarks order`; here what it reads is counted."""
    run = toy_run(store, "full", epochs=None)
    reads = []
    for step in (0, 10**6, 10**12):
        with tl.Loader(run, 4, prefetch=0, fetch="rows") as loader:
            before = run.counters()
            loader.seek(step)
            next(loader)
            after = run.counters()
            reads.append(after.unique_examples - before.unique_examples)
    assert reads == [4, 4, 4]
