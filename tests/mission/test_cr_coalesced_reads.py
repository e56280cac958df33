"""CR: a batch is read in as few ranges as its rows have runs of neighbors, all in one request."""

import threading

import numpy as np
import pytest
from counted import CountedFiles
from hypothesis import given
from hypothesis import strategies as st
from webserver import serve

import tokenloom as tl
from tokenloom.evaluate import evaluate, pz

COUNTERS = ("examples", "unique_examples", "ranges", "read_ops")


def reopened(store, **options):
    """(store, its files): only what is asked for is read, and nothing is kept."""
    files = CountedFiles(store.path)
    return tl.open(store.path, source=files, verify="never", cache_bytes=0, **options), files


def counted(store, ask):
    """(examples, unique examples, ranges, reads) that a call took, and what it returned."""
    before = store.reads
    result = ask()
    after = store.reads
    return tuple(getattr(after, n) - getattr(before, n) for n in COUNTERS), result


@pytest.fixture
def rows(store_of):
    """(store, files): a hundred rows of four tokens, 0, 1, 2, …"""
    return reopened(store_of([list(range(400))]))


ROW_BYTES = 4 * 2


def test_cr_01_cr_04_neighbors_are_one_read_and_the_order_is_kept(rows):
    store, files = rows
    counts, batch = counted(store, lambda: store.windows(4).batch([5, 3, 4, 9, 3]))
    assert counts == (5, 4, 2, 2)
    (ranges,) = files.token_requests()
    assert sorted(one[1:] for one in ranges) == [
        (3 * ROW_BYTES, 3 * ROW_BYTES),
        (9 * ROW_BYTES, 1 * ROW_BYTES),
    ]
    expected = [[4 * row + cell for cell in range(4)] for row in (5, 3, 4, 9, 3)]
    assert batch.tokens.tolist() == expected
    assert batch.index.tolist() == [5, 3, 4, 9, 3]


def test_cr_04_c_30_counters_have_the_names_of_both_pages(rows):
    store, _ = rows
    store.windows(4).batch([5, 3, 4, 9, 3])
    reads = store.reads
    assert (reads.examples, reads.examples_requested) == (5, 5)
    assert (reads.unique_examples, reads.unique_examples_requested) == (4, 4)
    assert (reads.ranges, reads.coalesced_ranges) == (2, 2)
    assert (reads.read_ops, reads.reads_issued, reads.tensorstore_reads_issued) == (2, 2, 2)
    assert reads.reads_per_example == 2 / 5


LAYOUTS = {
    "windows": lambda store: store.windows(8, tail="keep"),
    "windows, look-ahead": lambda store: store.windows(8, lookahead=True),
    "packed": lambda store: store.pack(16, group_docs=5),
    "spliced": lambda store: store.splice(12, content_length=4, pad_id=0),
}
ARRAYS = ("tokens", "labels", "loss_weights", "segment_ids", "position_ids", "index")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cr_02_cr_03_a_coalesced_batch_is_what_single_reads_give(store_of, layout):
    """For any indices: unsorted, repeated, or none."""
    lengths = [9, 0, 4, 17, 1, 1, 30, 5, 8, 2, 11]
    documents = [[100 * d + i for i in range(n)] for d, n in enumerate(lengths)]
    weights = [{"loss_weights": [i % 3 / 2 for i in range(n)]} for n in lengths]
    store, _ = reopened(store_of(documents, more=weights, vocab_size=2000))
    run = LAYOUTS[layout](store).shuffle().seed(3)
    singles = [run[i] for i in range(len(run))]

    @given(st.lists(st.integers(0, len(run) - 1), max_size=30))
    def check(indices):
        batch = run.batch(indices)
        for name in ARRAYS:
            alone = [getattr(singles[i], name)[0] for i in indices]
            found = getattr(batch, name)
            assert len(found) == len(alone)
            assert all(map(np.array_equal, found, alone)), name

    check()


def test_cr_05_128_neighbors_in_any_order_are_one_read(store_of):
    store, files = reopened(store_of([list(range(1000))]))
    indices = np.random.Generator(np.random.PCG64(1)).permutation(128) + 20
    counts, _ = counted(store, lambda: store.windows(4).batch(indices))
    assert counts == (128, 128, 1, 1)
    ((one,),) = files.token_requests()
    assert one[1:] == (20 * ROW_BYTES, 128 * ROW_BYTES)


def test_cr_06_all_reads_of_a_batch_are_one_request(rows):
    """20 runs of rows go out together, so they take the latency of one."""
    store, files = rows
    store.windows(4).batch(np.arange(0, 100, 5))
    assert [len(ranges) for ranges in files.token_requests()] == [20]


def test_cr_06_twenty_reads_over_a_network_are_under_way_together(store_of):
    """The server answers none of them before it has all."""
    path = store_of([list(range(400))]).path
    expected = tl.open(path).windows(4).batch(range(0, 100, 5)).tokens
    with serve(path.parent) as server:
        rows = tl.open(f"{server.url}/{path.name}", verify="never", cache_bytes=0).windows(4)
        rows.batch([0])  # the files are known
        server.together = threading.Barrier(20)
        assert np.array_equal(rows.batch(range(0, 100, 5)).tokens, expected)


def uniform(tokens, segment_ids, position_ids):
    return np.zeros((*tokens.shape, 1000), np.float32)


def test_cr_07_splits_selections_splices_and_evaluations_read_neighbors_together(store_of):
    store, files = reopened(store_of([[d] * 8 for d in range(60)]))
    part = store.split({"a": 0.5, "b": 0.5})["a"]
    runs = 1 + np.count_nonzero(np.diff(part.indices) > 1)
    assert len(part.indices) > 1.5 * runs  # some documents are neighbors
    asks = {
        "rows": lambda: part.windows(8)[:],
        "documents": part.load,
        "splices": lambda: part.splice(8, content_length=8)[:],
        "losses": lambda: evaluate(uniform, part, seq_len=8, batch_size=64, progress=False),
        "windows": lambda: pz(
            uniform, part, prefix=2, suffix=2, stride=4, batch_size=64, progress=False
        ),
    }
    for name, ask in asks.items():
        files.token_requests()
        ask()
        ranges = [one for call in files.token_requests() for one in call]
        assert len(ranges) == runs, name
        assert sum(size for _, _, size in ranges) == 8 * 2 * len(part.indices), name


@pytest.mark.parametrize(("gap_bytes", "reads", "wasted"), [(0, 2, 0), (7, 2, 0), (8, 1, 8)])
def test_cr_08_rows_with_a_small_gap_between_them_may_be_one_read(
    store_of, gap_bytes, reads, wasted
):
    store, files = reopened(store_of([list(range(400))]), gap_bytes=gap_bytes)
    counts, batch = counted(store, lambda: store.windows(4).batch([3, 5]))
    assert counts == (2, 2, reads, reads)
    assert store.reads.bytes - store.reads.useful_bytes == wasted
    assert batch.tokens.tolist() == [[12, 13, 14, 15], [20, 21, 22, 23]]
    (ranges,) = files.token_requests()
    assert sum(size for _, _, size in ranges) == 2 * ROW_BYTES + wasted


def test_cr_08_a_read_is_not_longer_than_the_cap(store_of):
    store, files = reopened(store_of([list(range(400))]), cap_bytes=64)
    counts, batch = counted(store, lambda: store.windows(4).batch(range(20)))
    assert counts == (20, 20, 1, 3)  # one run of 160 bytes in reads of 64, 64 and 32
    assert batch.tokens.reshape(-1).tolist() == list(range(80))
    ((*ranges,),) = files.token_requests()
    assert sorted(size for _, _, size in ranges) == [32, 64, 64]


# -- the published numbers: 16,384 rows in blocks of 128, asked for in groups of 2,048 -----

N, GROUP, GROUPS = 16_384, 2_048, 20


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Rows of two tokens: how many reads they take depends on the order only."""
    ids = np.arange(2 * N, dtype=np.int64) % 1000
    folder = tmp_path_factory.mktemp("published") / "s"
    options = {"tokenizer": None, "vocab_size": 1000, "chunk_tokens": 2 * 128, "progress": False}
    return tl.build([{"input_ids": ids}], folder, **options)


def orders(store, perm_type):
    rows = store.windows(2)
    block = rows.block_shuffle(io_block_size=128, window_blocks=8, perm_type=perm_type)
    return {
        "full": rows.shuffle(perm_type=perm_type),
        "era": rows.shuffle(1024, perm_type=perm_type),
        "block": block,
    }


def reads_of(run, files):
    """Reads of 40,960 examples; the epoch is repeated two and a half times."""
    files.token_requests()
    for group in range(GROUPS):
        run.batch(np.arange(group * GROUP, (group + 1) * GROUP) % N)
    return sum(map(len, files.token_requests()))


def test_cr_09_cr_10_the_published_orders_take_the_published_reads(published):
    store, files = reopened(published)
    found = {name: reads_of(run, files) for name, run in orders(store, "levanter").items()}
    assert found == {"full": 35_650, "era": 20, "block": 287}
    assert round(1 - found["block"] / (GROUP * GROUPS), 3) == 0.993  # fewer than one each


def test_cr_10_our_orders_take_what_a_fair_shuffle_takes(published):
    store, files = reopened(published)
    found = {name: reads_of(run.seed(3), files) for name, run in orders(store, "feistel").items()}
    assert pytest.approx(0.875 * GROUP, rel=0.001) == GROUP * (N - GROUP + 1) / N
    assert found["full"] / (GROUP * GROUPS) == pytest.approx(0.875, abs=0.01)
    assert found["era"] == 20
    assert found["block"] == pytest.approx(282, abs=20)


def test_cr_09_a_group_of_batches_takes_far_fewer_reads_than_single_examples(published):
    """At least half are saved, also while a loader starts with small groups."""
    store, files = reopened(published)
    run = orders(store, "feistel")["block"].seed(3)
    with tl.Loader(run, 128, fetch="rows") as loader:
        examples = sum(len(next(loader)) for _ in range(31))
    grouped = sum(map(len, files.token_requests())) / examples
    for index in range(200):
        run.batch([index])
    single = sum(map(len, files.token_requests())) / 200
    assert single == 1.0
    assert single >= 2 * grouped
