"""Files of tokens read in place: the same bytes in every way, and no way to be fooled or killed."""

import contextlib
import copy
import errno
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plainsource import PlainSource, counted, ranges_of
from toydata import ARRAYS, ToyStore
from toystore import random_shards, write_store

import tokenloom as tl
from tokenloom.testing import numpy_alone, tiny, write_flat

PAGE = 4096

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle", "ignore:.*cache")

LAYOUTS = {
    "windows": lambda one: one.windows(16),
    "look-ahead": lambda one: one.windows(16, lookahead=True),
    "overlapping": lambda one: one.windows(16, lookahead=True, overlap=1),
    "padded": lambda one: one.windows(16, tail="keep"),
    "packed": lambda one: one.pack(24),
    "packed, BOS and EOS": lambda one: one.pack(
        24, add_bos=True, add_eos=True, bos_id=7, eos_id=8, lookahead=True
    ),
    "spliced": lambda one: one.splice(16),
}
BESIDE = {  # the other source of a mix: another layout whose rows have the same arrays
    "windows": lambda one: one.splice(16),
    "look-ahead": lambda one: one.windows(16, lookahead=True, overlap=1),
    "overlapping": lambda one: one.windows(16, lookahead=True),
    "padded": lambda one: one.windows(16),
    "packed": lambda one: one.windows(24),
    "packed, BOS and EOS": lambda one: one.windows(24, lookahead=True),
    "spliced": lambda one: one.windows(16),
}
ORDERS = {
    "as stored": lambda one: one,
    "full": lambda one: one.shuffle(),
    "block": lambda one: one.block_shuffle(window_blocks=2),
}
PARTS = {
    "all": lambda store: store,
    "selected": lambda store: store.select(doc_index=np.flatnonzero(store.lengths)[1:9:2].tolist()),
    "split": lambda store: store.split({"a": 0.6, "b": 0.4})["a"],
}


def batches_of(dataset, dtype="int32", fields=ARRAYS[:-1], count=4, fetch="rows"):
    """The arrays of some batches, by default read row by row."""
    loader = tl.Loader(
        dataset, 3, fetch=fetch, fields=fields, dtype=dtype, end="pad", untrained="zero"
    )
    with loader:
        found = [batch for batch, _ in zip(loader, range(count), strict=False)]
        return [{name: getattr(batch, name) for name in ARRAYS} for batch in found]


def same(found, expected):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        for name in ARRAYS:
            assert np.array_equal(one[name], other[name]), name
            assert one[name].dtype == other[name].dtype


# -- the same bytes ------------------------------------------------------------------------

WAYS = ("map", "pread", "numpy", "source")


def opened(path, way, **options):
    """A store that is read in one of the ways."""
    if way == "source":
        options["source"] = PlainSource(path)
    return tl.open(path, map=way == "map", cache_bytes=1 << 20, **options)


def alone(way):
    return numpy_alone() if way == "numpy" else contextlib.nullcontext()


@given(
    seed=st.integers(0, 99),
    vocab=st.sampled_from([1000, 100_000]),
    shards=st.integers(1, 4),
    layout=st.sampled_from(sorted(LAYOUTS)),
    order=st.sampled_from(sorted(ORDERS)),
    part=st.sampled_from(sorted(PARTS)),
    mixed=st.booleans(),
    dtype=st.sampled_from(["int32", "int64"]),
    verify=st.sampled_from(["first", "always", "never"]),
    weights=st.booleans(),
)
@settings(max_examples=30)
@pytest.mark.filterwarnings("ignore")
def test_every_way_of_reading_gives_the_same_arrays(
    seed, vocab, shards, layout, order, part, mixed, dtype, verify, weights
):
    """Row by row and by blocks, alone and in a mix, from a map and not, compiled and in NumPy."""
    documents = random_shards(seed, shards=shards, documents=20, longest=90, vocab=vocab)
    documents[0][0] = documents[0][0] or [1, 2, 3]
    columns = {"loss_mask": ("uint8", lambda ids: ids % 3 > 0)} if weights else None

    def run_over(store):
        run = ORDERS[order](LAYOUTS[layout](PARTS[part](store)))
        if mixed:
            both = {"a": run, "b": ORDERS[order](BESIDE[layout](store))}
            run = tl.mix(both, weights={"a": 2, "b": 1})
        return run.seed(seed)

    with ToyStore(documents, vocab_size=vocab, columns=columns) as toy:
        found = {}
        for way in WAYS:
            for fetch in ("rows", "blocks"):
                with alone(way):
                    store = opened(toy.path, way, verify=verify)
                    found[way, fetch] = batches_of(run_over(store), dtype, fetch=fetch)
        expected = found["numpy", "blocks"]
        assert expected[0]["tokens"].dtype == np.dtype(dtype)
        for one in found.values():
            same(one, expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_mix_of_stores_of_two_kinds_is_the_same_in_every_way(tmp_path, way):
    for name, vocab in (("a", 1000), ("b", 100_000)):
        shards = random_shards(len(name), shards=2, documents=30, longest=90, vocab=vocab)
        write_store(tmp_path / name, shards, vocab_size=vocab)

    def found(how):
        with alone(how):
            stores = {name: opened(tmp_path / name, how) for name in "ab"}
            both = {"a": stores["a"].windows(24).shuffle(), "b": stores["b"].pack(24).shuffle()}
            run = tl.mix(both, weights={"a": 2, "b": 1}, different_tokenizers=True)
            return batches_of(run.seed(3))

    same(found(way), found("numpy"))


def flat(path, tokens=40_000, vocab=60_000, length=1000):
    """A store of one shard whose tokens count up from 1."""
    ids = np.arange(1, tokens + 1) % vocab
    write_flat(path, ids, np.full(tokens // length, length), vocab_size=vocab)
    return path / "shard-00000/input_ids/c/0"


@pytest.fixture
def store(tmp_path):
    file = flat(tmp_path / "s")
    return tmp_path / "s", file


def rows_of(run, first=0, stop=None):
    """Rows as they are, read row by row: the tokens of a loader's steps of one row each."""
    with tl.Loader(run, 1, fetch="rows", prefetch=0) as loader:
        loader.seek(first)
        return [next(loader).tokens[0] for _ in range(first, len(run) if stop is None else stop)]


# -- files that change ---------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("cut", [0, 1000, 5 * PAGE, 5 * PAGE + 2, 5 * PAGE + 1000])
@pytest.mark.parametrize("warm", [True, False])
def test_a_file_that_was_cut_short_is_an_error_and_never_zeros(store, mapped, cut, warm):
    path, file = store
    run = tl.open(path, map=mapped, cache_bytes=0, verify="first" if warm else "never").windows(100)
    expected = np.arange(1, 40_001).reshape(-1, 100)
    rows_of(run, 0, 400 if warm else 1)  # warm: every page was compared and is trusted
    with open(file, "r+b") as opened_file:
        opened_file.truncate(cut)
    whole = cut // 200
    if whole:
        assert np.array_equal(rows_of(run, 0, whole), expected[:whole])
    for row in (whole, whole + 1, 200, 399):
        with pytest.raises(tl.StoreError, match="shard-00000"):
            rows_of(run, row, row + 1)


def test_a_store_whose_file_became_a_directory_is_an_error(store):
    path, file = store
    run = tl.open(path, cache_bytes=0).windows(100)
    file.unlink()
    file.mkdir()
    with pytest.raises(tl.StoreError, match="shard-00000"):
        rows_of(run, 3, 4)


CHILD = """
import os, sys, threading
import numpy as np
import tokenloom as tl

path, file, rounds = sys.argv[1:]
data = open(file, "rb").read()

def read(run, started):
    try:
        while True:
            with tl.Loader(run, 64, fetch="rows") as loader:
                for batch in loader:
                    if not (batch.tokens == batch.index[:, None] * 100 + np.arange(1, 101)).all():
                        wrong.append(1)
                    started.set()
    except tl.StoreError as error:
        assert "shard-00000" in str(error), error
        raised.append(1)

raised, wrong = [], []
for number in range(int(rounds)):
    run = tl.open(path, verify="never", cache_bytes=0).windows(100)
    started = [threading.Event() for _ in range(4)]
    threads = [threading.Thread(target=read, args=(run, one)) for one in started]
    for one in threads:
        one.start()
    for one in started:
        one.wait()
    os.truncate(file, 4096 * (number % 5) + 100 * (number % 3))
    for one in threads:
        one.join()
    open(file, "wb").write(data)
print("alive", len(raised), len(wrong))
"""


def child(script, *args, timeout=600):
    """A process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,  # for hangs
        check=False,
    )


def test_a_file_cut_short_under_four_reading_threads_raises_in_each_of_them(store):
    done = child(CHILD, *store, 10)
    assert done.stdout.split() == ["alive", "40", "0"], done.stderr[-2000:]


# -- the signal ----------------------------------------------------------------------------

READING = """
import os, sys
import tokenloom as tl
run = tl.open(sys.argv[1], cache_bytes=0).windows(100)

def read():
    with tl.Loader(run, 64, fetch="rows", prefetch=0) as loader:
        for batch in loader:
            assert batch.tokens[0, 0] == batch.index[0] * 100 + 1
"""

SIGNALS = """
import ctypes, faulthandler, mmap, os, signal, sys, tempfile
file = tempfile.TemporaryFile()
file.truncate(8192)

def fault():  # a fault in a map that is not ours
    theirs = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    print("before", flush=True)
    theirs[0]
    print("after", flush=True)

libc = ctypes.CDLL(None)
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p

@HANDLER
def theirs(number):
    print("theirs", number, flush=True)
    os._exit(3)

address = ctypes.cast(theirs, ctypes.c_void_p)
"""


def signalled(path, script):
    return child(SIGNALS + READING + textwrap.dedent(script), path)


def test_a_fault_that_is_not_ours_ends_the_process_as_it_would_have(store):
    done = signalled(store[0], "read(); fault()")
    assert (done.returncode, done.stdout.split()) == (-7, ["before"])


def test_a_fault_that_is_not_ours_reaches_the_faulthandler(store):
    done = signalled(store[0], "faulthandler.enable(); read(); fault()")
    assert done.returncode == -7
    assert "Fatal Python error: Bus error" in done.stderr
    assert "in fault" in done.stderr


def test_a_fault_that_is_not_ours_reaches_whoever_had_the_signal_before(store):
    done = signalled(store[0], "libc.signal(7, address); read(); fault()")
    assert (done.returncode, done.stdout.split()) == (3, ["before", "theirs", "7"])


@pytest.mark.parametrize(
    ("had", "code", "told"),
    [
        ("pass", -7, []),
        ("libc.signal(7, address)", 3, ["theirs", "7"]),
        ("signal.signal(7, signal.SIG_IGN)", 0, ["on"]),
        ("signal.signal(7, lambda *_: print('python'))", 0, ["python", "on"]),
    ],
)
def test_a_signal_that_was_sent_does_what_it_would_have_done(store, had, code, told):
    script = "read(); os.kill(os.getpid(), 7); print('on')"
    done = signalled(store[0], f"{had}; {script}")
    assert (done.returncode, done.stdout.split()) == (code, told), done.stderr
    without = signalled(store[0], f"{had}; " + script.replace("read(); ", ""))
    assert (without.returncode, without.stdout.split()) == (code, told)  # the oracle


@pytest.mark.parametrize(
    "before",
    [
        "faulthandler.enable()",  # replaces the handler of the signal
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])",
    ],
)
def test_where_the_signal_is_taken_a_truncated_file_is_an_error_all_the_same(store, before):
    script = f"""
        read()
        {before}
        read()
        os.truncate(sys.argv[1] + "/shard-00000/input_ids/c/0", 4096)
        try:
            read()
        except tl.StoreError as error:
            print("raised")
    """
    done = signalled(store[0], script)
    assert done.stdout.splitlines() == ["raised"], done.stderr


# -- checks --------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
def test_a_flipped_byte_is_found_in_its_page_and_in_no_other(tmp_path, mapped):
    file = flat(tmp_path / "s", tokens=5000, length=500)
    right = file.read_bytes()
    run = tl.open(tmp_path / "s", map=mapped, cache_bytes=0, verify="always").windows(100)
    expected = np.arange(1, 5001).reshape(-1, 100)
    for place in (*range(0, 10_000, 937), PAGE - 1, PAGE, 9_999):
        with open(file, "r+b") as f:
            f.seek(place)
            f.write(bytes([right[place] ^ (1 << place % 8)]))
        page = place // PAGE
        row = place // 200
        with pytest.raises(tl.StoreCorrupt, match="crc32c"):
            rows_of(run, row, row + 1)
        for other in range(0, 50, 7):
            if (other + 1) * 200 <= page * PAGE or other * 200 >= (page + 1) * PAGE:
                assert np.array_equal(rows_of(run, other, other + 1)[0], expected[other])
        with open(file, "r+b") as f:
            f.seek(place)
            f.write(right[place : place + 1])
    assert np.array_equal(rows_of(run), expected)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(
    ("verify", "first", "later"),
    [("first", True, False), ("always", True, True), ("never", False, False)],
)
def test_pages_are_compared_when_it_was_asked_for(store, mapped, verify, first, later):
    path, file = store

    def flip():
        with open(file, "r+b") as f:
            f.seek(5)
            found = f.read(1)[0]
            f.seek(5)
            f.write(bytes([found ^ 255]))

    def is_found(run):
        try:
            rows_of(run, 0, 1)
        except tl.StoreCorrupt:
            return True
        return False

    flip()
    run = tl.open(path, verify=verify, map=mapped, cache_bytes=0).windows(100)
    assert is_found(run) is first
    flip()
    assert not is_found(run)  # what failed is not trusted, nor doomed
    flip()
    assert is_found(run) is later


# -- costs ---------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_a_store_much_larger_than_the_cache_is_read_in_little_memory(tmp_path):
    flat(tmp_path / "s", tokens=48 << 20, length=1 << 20)  # 96 MiB
    script = """
        import sys
        import numpy as np
        import tokenloom as tl
        def anonymous():
            for line in open("/proc/self/status"):
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) >> 10
        store = tl.open(sys.argv[1], cache_bytes=1 << 20)
        with tl.Loader(store.windows(512).shuffle().seed(1), 64, fetch="rows") as loader:
            next(loader)
            start, most = anonymous(), 0
            for batch in loader:
                most = max(most, anonymous())
        print(most - start)
    """
    done = child(script, tmp_path / "s")
    assert int(done.stdout) < 24, done.stderr  # MiB: batches kept ready, and their plans


def took(run, rows):
    """(reads, bytes, useful bytes) of one step of rows that are neighbours."""
    names = ("read_ops", "bytes", "useful_bytes")
    with tl.Loader(run, len(rows), fetch="rows", prefetch=0) as loader:
        before = run.counters()
        loader.seek(rows[0] // len(rows))
        next(loader)
        after = run.counters()
    return tuple(getattr(after, name) - getattr(before, name) for name in names)


def test_the_reads_of_a_step_are_counted_exactly(store):
    path, _ = store
    plain = tl.open(path, verify="never", cache_bytes=0)
    assert took(plain.windows(2048), [0, 1, 2]) == (1, 3 * PAGE, 3 * PAGE)
    assert took(plain.windows(100), [4, 5]) == (1, 400, 400)
    unaligned = tl.open(path, cache_bytes=0).windows(2000)  # 4,000 bytes on one or two pages
    assert took(unaligned, [1]) == (1, 2 * PAGE, 4000)  # bytes 4,000 to 8,000
    assert took(unaligned, [1]) == (1, 4000, 4000)  # compared already
    capped = tl.open(path, verify="never", cap_bytes=PAGE, cache_bytes=0).windows(2048)
    assert took(capped, [0, 1, 2]) == (3, 3 * PAGE, 3 * PAGE)


def test_more_files_than_may_be_open_are_read_in_the_other_way(tmp_path):
    shards = random_shards(5, shards=6, documents=20, longest=80)
    write_store(tmp_path / "s", shards)
    expected = batches_of(tl.open(tmp_path / "s").windows(16).shuffle())
    with tiny(open_payloads=3):
        store = tl.open(tmp_path / "s", cache_bytes=1 << 20)
        tokens = np.concatenate([np.concatenate([[], *shard]) for shard in shards])
        rows = np.array(rows_of(store.windows(16)))
        assert np.array_equal(rows.reshape(-1), tokens[: rows.size])
        same(batches_of(store.windows(16).shuffle()), expected)


# -- copies --------------------------------------------------------------------------------


def test_the_child_of_a_fork_reads_on_and_finds_a_cut_file(store):
    run = tl.open(store[0], cache_bytes=0).windows(100)
    expected = rows_of(run)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            if np.array_equal(rows_of(run), expected):
                os.truncate(store[1], 100)
                try:
                    rows_of(run)
                except tl.StoreError:
                    code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    with pytest.raises(tl.StoreError):
        rows_of(run)


def test_copies_of_a_dataset_whose_files_are_open_read_the_same(store):
    dataset = tl.open(store[0]).windows(100).shuffle()
    expected = batches_of(dataset)
    for made in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset)), copy.copy(dataset)):
        same(batches_of(made), expected)


def test_parent_and_child_do_not_see_each_others_batches(store):
    """Memory that was free before a fork is used by both after it."""
    script = """
        import os, sys
        import numpy as np
        import tokenloom as tl
        run = tl.open(sys.argv[1]).windows(2000)
        for _ in range(3):
            run.batch(range(20)).tokens  # leaves its memory to the next
        kept = run.batch(range(10)).tokens
        to_parent, to_child = os.pipe(), os.pipe()
        child = os.fork()
        mine = run.batch(range(20)).tokens
        if not child:
            mine[:], kept[:] = 7, 7
            os.write(to_parent[1], b"x"); os.read(to_child[0], 1)
            os._exit(0 if (mine == 7).all() and (kept == 7).all() else 1)
        mine[:] = 9
        os.read(to_parent[0], 1)
        print(int((mine == 9).all()), int((kept == np.arange(1, 20_001).reshape(10, -1)).all()))
        mine[:] = kept[:] = 5
        os.write(to_child[1], b"x")
        print(os.waitpid(child, 0)[1])
    """
    assert child(script, store[0]).stdout.split() == ["1", "1", "0"]


@pytest.mark.parametrize("fails", [False, True])
def test_threads_that_need_a_block_at_once_read_it_once_and_a_failure_is_not_kept(tmp_path, fails):
    file = flat(tmp_path / "s")
    source = counted(tmp_path / "s", latency=0.02, only="input_ids/c/0", at=fails, error=errno.EIO)
    run = tl.open(tmp_path / "s", source=source, cache_bytes=1 << 20, verify="never").windows(100)
    together, found, failed = threading.Barrier(8), [], []

    def read():
        with tl.Loader(run, 50, fetch="blocks", prefetch=0) as loader:
            together.wait(60)
            try:
                found.append(next(loader).tokens[:, 0].tolist())
            except (OSError, tl.TokenloomError) as error:
                failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) + len(failed) == 8
    assert bool(failed) == fails
    together = threading.Barrier(1)
    read()
    assert found == [list(range(1, 5001, 100))] * len(found)
    assert file.name in str(source.requests)
    if not fails:
        assert len(ranges_of(source, "input_ids/c/0")) == 1
