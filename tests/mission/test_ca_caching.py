"""CA: decoded blocks are kept in bounded memory, fetched once, and never shared with a user."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from counted import CountedFiles

import tokenloom as tl

SEQ_LEN, BLOCK_ROWS, ROWS = 8, 16, 512
BLOCK_BYTES = BLOCK_ROWS * SEQ_LEN * 2  # as stored


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """512 rows of 8 tokens, in io blocks of 16 rows."""
    folder = tmp_path_factory.mktemp("cached") / "s"
    options = {"vocab_size": 5000, "chunk_tokens": BLOCK_ROWS * SEQ_LEN, "progress": False}
    tl.build([{"input_ids": list(range(ROWS * SEQ_LEN))}], folder, tokenizer=None, **options)
    return folder


@pytest.fixture
def files(folder):
    return CountedFiles(folder)


def shuffled(files, cache_bytes=1 << 20, **shuffle):
    store = tl.open(files.root, source=files, verify="never", cache_bytes=cache_bytes)
    return store.windows(SEQ_LEN).block_shuffle(**{"window_blocks": 2} | shuffle).seed(5)


def by_blocks(run, batch_size=2 * BLOCK_ROWS, *ranks, **options):
    """A loader that keeps blocks; a step is one window of two blocks unless said otherwise."""
    return tl.Loader(run, batch_size, *ranks, **{"fetch": "blocks", "prefetch": 0} | options)


def fetched(files):
    """The numbers of the blocks that were asked for, in order; each request is of whole blocks."""
    blocks = []
    for ranges in files.token_requests():
        for _, first, count in sorted(ranges):
            assert first % BLOCK_BYTES == count % BLOCK_BYTES == 0
            blocks += range(first // BLOCK_BYTES, (first + count) // BLOCK_BYTES)
    return blocks


def steps(loader, *numbers):
    """The tokens of these steps."""
    return [next(loader.seek(number)).tokens for number in numbers]


@pytest.mark.parametrize("cut", [{}, {"lookahead": True}, {"tail": "keep"}])
@pytest.mark.parametrize("windows", [1, 2, 3])
def test_ca_01_cache_windows_bounds_the_memory_of_a_run(files, windows, cut):
    store = tl.open(files.root, source=files)
    run = store.windows(SEQ_LEN, **cut).block_shuffle(window_blocks=2, cache_windows=windows)
    ahead = 2 if "lookahead" in cut else 0  # a block and the token after it
    most = windows * 2 * (BLOCK_BYTES + ahead)
    with by_blocks(run, 20) as loader:
        for _ in loader:
            assert loader.stats().cache.bytes <= most
        assert loader.stats().cache.evictions > 0


def test_ca_01_the_window_that_was_used_last_stays(files):
    with by_blocks(shuffled(files, cache_windows=2)) as loader:
        needed = {}
        for step in (0, 1, 2):
            files.token_requests()
            steps(loader.seek(0), step)
            needed[step] = set(fetched(files))
    with by_blocks(shuffled(files, cache_windows=2)) as loader:
        for step, expected in ((0, 0), (1, 1), (0, None), (2, 2), (0, None), (1, 1)):
            steps(loader, step)
            assert set(fetched(files)) == needed.get(expected, set())


def test_ca_02_c_34_the_published_cache_is_eight_windows(files):
    """What is kept are blocks: as many as that number of windows has."""
    published = tl.BlockShuffle.published()
    assert (published.window_blocks, published.cache_windows) == (8, 8)
    for wrong in (0, -1, 2.5, "8"):
        with pytest.raises(tl.ConfigError, match=r"cache_windows.*" + repr(wrong)):
            tl.BlockShuffle(cache_windows=wrong)
    for windows in (4, 8, 16):
        run = shuffled(files, cache_windows=windows)
        with by_blocks(run) as loader:
            list(loader)
            cache = loader.stats().cache
        assert cache.blocks == min(windows * 2, ROWS // BLOCK_ROWS)
        assert cache.bytes == cache.blocks * BLOCK_BYTES


ISOLATED = """
import sys
import tokenloom as tl
store = tl.open(sys.argv[1])
seen = []
def hook(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "pickle.", "shutil.")):
        seen.append(event)
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & 3:
        seen.append(f"writes {arguments[0]}")
sys.addaudithook(hook)
run = store.windows(8).block_shuffle(window_blocks=2, lanes=2).epochs(2)
for rank in range(2):
    with tl.Loader(run, 8, rank, 2) as loader:
        for batch in loader:
            batch.labels
print(seen)
open("/dev/null", "w")
print(seen)
"""


def test_ca_03_ranks_open_no_socket_and_write_no_file(folder):
    command = [sys.executable, "-B", "-c", ISOLATED, str(folder)]  # -B: no bytecode, either
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "['writes /dev/null']"]  # the second: it can be seen


def test_ca_04_a_second_pass_over_a_window_reads_nothing(files):
    with by_blocks(shuffled(files)) as loader:
        first = steps(loader, 0, 1)
        assert len(fetched(files)) == 4
        hits = loader.stats().cache.hits
        second = steps(loader, 0, 1)
        assert files.token_requests() == []
        assert loader.stats().cache.hits == hits + 4
        assert np.array_equal(first, second)


@pytest.mark.parametrize("lanes", [1, 4])
def test_ca_05_with_lanes_each_block_is_fetched_by_one_rank(files, lanes):
    blocks = []
    for rank in range(4):  # a rank is a process with a store of its own
        with by_blocks(shuffled(files, window_blocks=4, lanes=lanes), 16, rank, 4) as loader:
            list(loader)
        blocks.append(fetched(files))
    every = list(range(ROWS // BLOCK_ROWS))
    if lanes == 1:  # the control: every rank has rows in every block
        assert [sorted(one) for one in blocks] == [every] * 4
    else:
        assert sorted(block for one in blocks for block in one) == every
        assert {len(one) for one in blocks} == {8}


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
@pytest.mark.parametrize("depth", [0, 1, 4, 64])
def test_ca_06_batches_are_prefetched_at_any_depth_in_their_order(files, depth, fetch):
    run = shuffled(files)
    with tl.Loader(run, 20, prefetch=depth, fetch=fetch) as loader:
        found = [(batch.index.tolist(), batch.tokens) for batch in loader]
    assert len(found) == ROWS // 20
    for step, (index, tokens) in enumerate(found):
        assert index == list(range(20 * step, 20 * step + 20))
        assert np.array_equal(tokens, run.batch(index).tokens)


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_ca_07_what_is_done_to_a_batch_is_not_seen_by_the_next(store_of, fetch):
    documents = [list(range(first, first + 40)) for first in range(0, 400, 40)]
    weights = [{"loss_weights": [i % 3 / 2 for i in range(40)]}] * len(documents)
    store = store_of(documents, more=weights, chunk_tokens=32)
    names = ("tokens", "labels", "loss_weights", "loss_mask", "segment_ids", "position_ids")
    names += ("attention_mask", "document_starts", "cu_seqlens")
    run = store.windows(8).block_shuffle(window_blocks=2).seed(1)
    with tl.Loader(run, 8, fetch=fetch, prefetch=0, fields=names) as loader:
        expected = {n: getattr(next(loader.seek(0)), n).copy() for n in names}
        spoiled = next(loader.seek(0))
        for name in names:
            getattr(spoiled, name)[...] = 1
        again = next(loader.seek(0))
        for name in names:
            assert np.array_equal(getattr(again, name), expected[name]), name
            assert not np.shares_memory(getattr(again, name), getattr(spoiled, name)), name


def test_ca_07_what_is_done_to_a_document_is_not_seen_by_the_next(store_of):
    store = store_of([list(range(50))])
    for read in (lambda: store.tokens(0, 50), lambda: store.document(0)):
        read()[:] = 7
        assert read().tolist() == list(range(50))


def test_ca_08_c_34_eight_threads_that_want_the_same_blocks_read_them_once(files):
    files.latency = 0.02
    run, found, gate = shuffled(files), [], threading.Barrier(8)
    loaders = [by_blocks(run) for _ in range(8)]

    def work(loader):
        gate.wait()
        found.append(next(loader).tokens)

    threads = [threading.Thread(target=work, args=(loader,)) for loader in loaders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    blocks = fetched(files)
    assert len(blocks) == len(set(blocks)) == 2
    stats = loaders[0].stats().cache
    assert (stats.misses, stats.hits) == (2, 14)
    expected = run.batch(range(2 * BLOCK_ROWS)).tokens
    assert len(found) == 8
    assert all(np.array_equal(tokens, expected) for tokens in found)
    for loader in loaders:
        loader.close()
