"""LD: batches of one shape, read in groups ahead of time, in every framework's own loader."""

import itertools
import json
import os
import time

import grain
import numpy as np
import pytest
import torch
from counted import CountedFiles
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import tokenloom as tl
from tokenloom.integrations.grain import iterator as grain_iterator
from tokenloom.integrations.torch import dataloader, stateful

SEQ_LEN, ROWS = 8, 37

FIELDS = ("tokens", "labels", "loss_mask", "loss_weights", "segment_ids", "position_ids")
FIELDS += ("attention_mask",)

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more than there are cores
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens in documents of 11 tokens, in io blocks of 4 rows."""
    ids = list(range(1, ROWS * SEQ_LEN + 1))
    documents = [ids[first : first + 11] for first in range(0, len(ids), 11)]
    options = {"vocab_size": 1000, "chunk_tokens": 4 * SEQ_LEN, "progress": False}
    folder = tmp_path_factory.mktemp("loaded") / "s"
    return tl.build([{"input_ids": ids} for ids in documents], folder, tokenizer=None, **options)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """16,384 rows of one token."""
    ids = np.arange(16_384) % 1000
    folder = tmp_path_factory.mktemp("large") / "s"
    options = {"vocab_size": 1000, "chunk_tokens": 128, "progress": False}
    return tl.build([{"input_ids": ids}], folder, tokenizer=None, **options).path


def run_of(store, epochs=1):
    return store.windows(SEQ_LEN).shuffle().seed(7).epochs(epochs)


def indices_of(batches):
    return [batch["index"].tolist() for batch in batches]


@pytest.mark.parametrize(("prefetch", "most"), [(16, 2_048), (4, 512), (1, 128)])
def test_ld_01_a_group_of_prefetched_batches_is_one_request(large, prefetch, most):
    """16 batches of 128 rows are 2,048 examples a request, once the loader is under way."""
    store = tl.open(large, source=(files := CountedFiles(large)), verify="never", cache_bytes=0)
    run = store.windows(2).block_shuffle(io_block_size=64, window_blocks=2).seed(1)
    with tl.Loader(run, 128, prefetch=prefetch, fetch="rows") as loader:
        assert sum(len(batch) for batch in loader) == 8_192
    rows = [sum(size for _, _, size in ranges) // 4 for ranges in files.token_requests()]
    assert sum(rows) == 8_192
    assert max(rows) == most
    assert len(rows) <= 8_192 // most + 6  # the first groups are smaller, so that a run starts


@pytest.mark.parametrize("layout", ["windows", "packed", "mixed"])
def test_ld_02_a_thousand_batches_have_one_shape_and_one_dtype_each(store, layout):
    """[A, B, T], the padded last one included."""
    windows, packed = store.windows(SEQ_LEN), store.pack(SEQ_LEN)
    run = {
        "windows": windows.shuffle(),
        "packed": packed.shuffle(),
        "mixed": tl.mix({"a": windows.epochs(None), "b": packed.epochs(None)}),
    }[layout]
    examples = 999 * 6 + 1
    run = run.take(examples) if layout == "mixed" else run.epochs(None).take(examples)
    kinds, last = set(), None
    with tl.Loader(run, 6, accumulate=3, end="pad", fields=FIELDS) as loader:
        for batch in loader:
            arrays = [getattr(batch, name) for name in FIELDS]
            kinds.add(tuple((array.shape, array.dtype.str) for array in arrays))
            last = batch
        assert loader.step == 1000
    shape = (3, 2, SEQ_LEN)
    dtypes = ("<i4", "<i4", "|b1", "<f4", "<i4", "<i4", "|b1")
    assert kinds == {tuple((shape, dtype) for dtype in dtypes)}
    assert last.index.reshape(-1).tolist() == [examples - 1, -1, -1, -1, -1, -1]


def test_ld_02_groups_are_the_batch_cut_in_its_order(store):
    run = run_of(store, 2)
    with tl.Loader(run, 6) as flat, tl.Loader(run, 6, accumulate=3) as folded:
        for whole, groups in zip(flat, folded, strict=True):
            assert groups.index.shape == (3, 2)
            assert groups.index.reshape(-1).tolist() == whole.index.tolist()
            for name in FIELDS:
                expected = getattr(whole, name)
                assert np.array_equal(getattr(groups, name).reshape(expected.shape), expected)


def test_ld_03_segments_are_int32_and_masks_are_bool(store):
    batch = store.pack(16).batch([0, 1])
    for name in ("tokens", "labels", "segment_ids", "position_ids", "document_starts"):
        assert getattr(batch, name).dtype == np.int32, name
    for name in ("loss_mask", "attention_mask", "continues"):
        assert getattr(batch, name).dtype == np.bool_, name
    assert batch.loss_weights.dtype == np.float32
    assert batch.cu_seqlens.dtype == np.int32
    assert batch.index.dtype == np.int64


def test_ld_04_a_benchmark_prints_latencies_speeds_and_reads(benchmarks):
    small = ["--num-examples", "512", "--seq-len", "16", "--steps", "4", "--batch-size", "16"]
    code, text = benchmarks("data-loading", *small, "--json")
    assert code == 0
    printed = json.loads(text)
    for perm_type, strategies in printed["results"].items():
        for strategy, counts in strategies.items():
            speeds = printed["speeds"][perm_type][strategy]
            assert 0 < speeds["p50_ms"] <= speeds["p95_ms"] <= 1000 * speeds["elapsed_s"]
            assert speeds["examples/s"] * speeds["elapsed_s"] == pytest.approx(1024)
            reads = counts["reads_issued"]["mean"]
            assert counts["examples"]["mean"] == 1024
            assert counts["reads/example"]["mean"] == reads / 1024


@pytest.mark.parametrize("prefetch", [0, 8])
def test_ld_04_statistics_are_those_of_what_was_delivered(store, prefetch):
    path = store.path
    opened = tl.open(path, source=CountedFiles(path), cache_bytes=0)
    with tl.Loader(run_of(opened, 3), 5, 1, 2, prefetch=prefetch, fetch="rows") as loader:
        before = loader.stats()
        assert (before.steps, before.examples, before.cells, before.seconds) == (0, 0, 0, 0.0)
        rows = sum(len(next(loader)) for _ in range(6))
        stats, metrics = loader.stats(), loader.metrics("")
    assert rows == 6 * 3
    assert (stats.steps, stats.examples, stats.cells) == (6, 18, 18 * SEQ_LEN)
    assert 0 < stats.wait_seconds <= stats.seconds
    assert stats.cells_per_second == pytest.approx(stats.cells / stats.seconds)
    assert stats.reads.bytes - before.reads.bytes >= 18 * SEQ_LEN * 2
    assert stats.reads.reads_per_example > 0
    assert (metrics["step"], metrics["examples"]) == (6, 30)  # of all ranks


def threads():
    """The number of threads of this process, also of those that are not Python's."""
    return len(os.listdir("/proc/self/task"))


def wait_until(condition):
    deadline = time.monotonic() + 300
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
@pytest.mark.parametrize("depth", [0, 1, 3, 64])
def test_ld_05_any_depth_keeps_the_order_and_leaves_no_thread(store, depth, fetch):
    run, before = run_of(store, 3), threads()
    with tl.Loader(run, 5, prefetch=depth, fetch=fetch, fields=FIELDS) as loader:
        for step, batch in enumerate(loader):
            expected = run.batch(range(5 * step, 5 * step + 5))
            assert batch.index.tolist() == expected.index.tolist()
            for name in FIELDS:
                assert np.array_equal(getattr(batch, name), getattr(expected, name)), name
        assert step == 3 * ROWS // 5 - 1
    wait_until(lambda: threads() <= before)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_ld_05_closing_in_the_middle_stops_the_threads_and_keeps_the_position(store, depth):
    slow = tl.open(store.path, source=CountedFiles(store.path, latency=0.002), cache_bytes=0)
    before = threads()
    loader = tl.Loader(run_of(slow, None), 5, prefetch=depth, fetch="rows")
    seen = [(next(loader), threads())[1] for _ in range(20)]
    loader.close()
    wait_until(lambda: threads() <= before)
    if depth:
        assert max(seen) > threads()
    else:
        assert max(seen) <= before
    assert next(loader).index.tolist() == [100, 101, 102, 103, 104]
    loader.close()


def test_ld_06_four_rows_a_step_and_eight_from_step_ten_on(store):
    run = run_of(store, 3)
    schedule = [(0, 4), (40, 8)]  # from example 40 on: after ten steps of four
    with tl.Loader(run, schedule) as loader:
        assert len(loader) == 10 + (3 * ROWS - 40) // 8
        batches = list(loader)
        assert (loader.step, loader.examples) == (18, 104)
    assert [len(batch) for batch in batches] == [4] * 10 + [8] * 8
    assert [i for batch in batches for i in batch.index.tolist()] == list(range(104))
    for step, first in ((9, 36), (10, 40), (11, 48), (17, 96)):
        with tl.Loader(run, schedule) as loader:
            batch = next(loader.seek(step))
        assert batch.index[0] == first
        assert np.array_equal(batch.tokens, batches[step].tokens)


def rows_as_sums(rows):
    """A function of a user's own, which sees one row at a time."""
    return torch.tensor([int(row["input_ids"].sum()) for row in rows])


@pytest.mark.parametrize("workers", [0, 2])
def test_ld_07_a_plain_data_loader_of_torch_iterates_over_a_run(store, workers):
    run = run_of(store)
    expected = run.batch(range(ROWS))
    found = list(DataLoader(run, batch_size=8, num_workers=workers))
    assert [len(one["labels"]) for one in found] == [8, 8, 8, 8, 5]
    assert torch.cat([one["index"] for one in found]).tolist() == list(range(ROWS))
    for name, array in (("input_ids", expected.tokens), ("labels", expected.labels)):
        joined = torch.cat([one[name] for one in found])
        assert joined.dtype == torch.int64
        assert np.array_equal(joined, array)
    summed = DataLoader(run, batch_size=8, num_workers=workers, collate_fn=rows_as_sums)
    assert torch.cat(list(summed)).tolist() == expected.tokens.sum(1).tolist()


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"end": "pad"}])
def test_ld_08_an_iterator_for_grain_has_a_state_before_every_item(store, options):
    run = run_of(store)

    def make():
        return grain_iterator(run, 4, **options)

    iterator = make()
    states, items = [], []
    while True:
        states.append(json.dumps(iterator.get_state()))
        item = next(iterator, None)
        if item is None:
            break
        items.append(item)
    assert len(items) == (10 if options.get("end") == "pad" else 9)
    assert [next(iterator, None) for _ in range(3)] == [None] * 3  # it has ended
    with tl.Loader(run, 4, **options) as loader:
        for item, batch in zip(items, loader, strict=True):
            assert np.array_equal(item["inputs"], batch.tokens)
    for place in (4, 0, 7):
        again = make()
        next(again)
        again.set_state(json.loads(states[place]))
        assert json.dumps(again.get_state()) == states[place]
        rest = list(again)
        assert len(rest) == len(items) - place
        for item, expected in zip(rest, items[place:], strict=True):
            assert list(item) == list(expected)
            assert all(np.array_equal(item[name], expected[name]) for name in item)
        again.close()
    second = list(iterator)  # a loop after the end is the next pass
    assert len(second) == len(items)
    assert not np.array_equal(second[0]["inputs"], items[0]["inputs"])
    iterator.close()


@pytest.mark.parametrize(
    "options", [{}, {"accumulate": 2}, {"end": "pad"}, {"contract": "maxtext"}]
)
def test_ld_08_the_iterator_passes_the_assertions_of_grain(store, options):
    class Items:
        def __iter__(self):
            return grain_iterator(run_of(store), 4, **options)

    grain.experimental.assert_equal_output_after_checkpoint(Items())


def torchs(run, workers):
    return dataloader(run, 4, num_workers=workers, fields=("index",))


def torchdatas(run, workers):
    """Torchdata's own loader around the same steps."""
    steps = torchs(run, 0)
    return StatefulDataLoader(
        steps.dataset, sampler=steps.sampler, batch_size=None, num_workers=workers
    )


def pass_of(number):
    """The indices of every step of a pass of 37 rows."""
    return [[*range(k, k + 4)] for k in range(ROWS * number, ROWS * number + 36, 4)]


@pytest.mark.parametrize("make", [torchs, torchdatas])
@pytest.mark.parametrize(("taken", "workers"), [(0, 0), (1, 0), (4, 2), (8, 0), (9, 0)])
def test_ld_09_a_stateful_data_loader_continues_within_a_pass(store, make, taken, workers):
    run = run_of(store)
    loader = make(run, workers)
    loop = iter(loader)
    assert indices_of(itertools.islice(loop, taken)) == pass_of(0)[:taken]
    state = json.loads(json.dumps(loader.state_dict()))
    assert indices_of(loop) == pass_of(0)[taken:]  # asking changed nothing
    resumed = make(run, workers)
    resumed.load_state_dict(state)
    if taken < 9:
        assert indices_of(resumed) == pass_of(0)[taken:]
    assert indices_of(resumed) == pass_of(1)


def test_ld_09_a_loader_has_the_state_that_torch_saves(store, tmp_path):
    run = run_of(store)
    with tl.Loader(run, 4) as loader:
        next(loader.seek(3))
        torch.save(stateful(loader).state_dict(), tmp_path / "state.pt")
        expected = next(loader).index.tolist()
    with tl.Loader(run, 4) as loader:
        stateful(loader).load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert next(loader).index.tolist() == expected == [16, 17, 18, 19]


@pytest.mark.parametrize("epochs", [1, 2])
def test_ld_10_a_run_ends_after_its_epochs(store, epochs):
    run = run_of(store, epochs)
    assert len(run) == epochs * ROWS
    with tl.Loader(run, 1) as loader:
        assert sum(len(batch) for batch in loader) == epochs * ROWS
    firsts = run[:].tokens[:, 0].reshape(epochs, ROWS)
    for epoch in firsts:
        assert sorted(epoch.tolist()) == list(range(1, ROWS * SEQ_LEN, SEQ_LEN))


def mixed(store):
    sources = {"a": store.windows(8), "b": store.windows(8).shuffle()}
    return tl.mix(sources, stop="all_exhausted").seed(5)


RUNS = {
    "windows": lambda store: store.windows(8),
    "epochs": lambda store: store.windows(8).shuffle().epochs(3),
    "packed": lambda store: store.pack(16).block_shuffle(window_blocks=2),
    "spliced": lambda store: store.splice(16, content_length=4),
    "selected": lambda store: store.select(num_docs=5).windows(8),
    "mixed": mixed,
    "edited": lambda store: mixed(store).edit(at=10, weights={"b": 3}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_ld_11_every_run_is_a_sequence(store, kind):
    run = RUNS[kind](store)
    n = len(run)
    whole = run.batch(range(n))
    for index in (n - 1, 0, n // 2):  # in any order
        assert np.array_equal(run[index].tokens, whole.tokens[[index]])
        assert run[index].index.tolist() == [index]
    assert np.array_equal(run[2:9:3].tokens, whole.tokens[2:9:3])
    rows = [row.tokens[0] for row in itertools.islice(run, 20)]
    assert np.array_equal(rows, whole.tokens[:20])
    if n <= 200:
        assert sum(1 for _ in run) == n
    with pytest.raises(IndexError):
        run[n]


def test_ld_12_a_batch_goes_to_a_device_only_if_asked_to(store):
    run = run_of(store)
    plain = list(dataloader(run, 8, fields=("index",)))
    (moved, *_) = dataloader(run, 8, fields=("index",), device="meta")
    for name, value in plain[0].items():
        if isinstance(value, torch.Tensor):
            assert (value.device.type, moved[name].device.type) == ("cpu", "meta"), name
    batches, examples = dataloader(run, 8, fields=("index",), device="cpu"), []
    for batch, expected in zip(batches, plain, strict=True):
        examples.append(batches.state_dict()["examples"])
        for name in ("input_ids", "labels", "index"):
            assert torch.equal(batch[name], expected[name])
    assert examples == [8, 16, 24, 37]  # of what was handed over, not of what was moved
    with tl.Loader(run, 8) as loader:
        assert isinstance(next(loader).tokens, np.ndarray)


def test_ld_12_statistics_read_nothing_and_make_nothing(store):
    opened = tl.open(store.path, source=(files := CountedFiles(store.path)), cache_bytes=0)
    with tl.Loader(run_of(opened), 4, prefetch=0, fetch="rows") as loader:
        next(loader)
        files.token_requests()
        before = loader.stats()
        for _ in range(10):
            loader.stats()
            loader.metrics()
        assert files.token_requests() == []
        after = loader.stats()
        assert (after.reads, after.steps, loader.step) == (before.reads, before.steps, 1)
