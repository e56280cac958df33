"""Files of tokens read in place: the same bytes in every way, and no way to be fooled or killed."""

import copy
import errno
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toydata import ARRAYS, ToyStore
from toystore import random_shards, write_store

import tokenloom as tl
from tokenloom import native
from tokenloom.errors import StoreCorrupt, StoreError
from tokenloom.store.derived import payload as payload_room
from tokenloom.store.derived.payload import payloads_of
from tokenloom.testing import tiny, write_flat

COMPILED = native.compiled
PAGE = 4096

pytestmark = [
    pytest.mark.skipif(COMPILED is None, reason="the loops are not compiled here, or turned off"),
    pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle", "ignore:.*cache"),
]

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


def same(found, expected, *, dtypes=True):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        for name in ARRAYS:
            assert np.array_equal(one[name], other[name]), name
            assert one[name].dtype == other[name].dtype or not dtypes


WAYS = ("map", "pread", "numpy", "read")


def opened(path, way, monkeypatch, **options):
    """A store that is read in one of the ways."""
    monkeypatch.setattr(native, "compiled", None if way == "numpy" else COMPILED)
    usable = ORIGINAL if way != "read" else lambda self, column: False
    monkeypatch.setattr(payload_room.Payloads, "is_usable", usable)
    return tl.open(path, map=way == "map", cache_bytes=1 << 20, **options)


ORIGINAL = payload_room.Payloads.is_usable


# -- the same bytes ------------------------------------------------------------------------


@given(
    seed=st.integers(0, 99),
    vocab=st.sampled_from([1000, 100_000]),
    shards=st.integers(1, 4),
    layout=st.sampled_from(sorted(LAYOUTS)),
    order=st.sampled_from(sorted(ORDERS)),
    part=st.sampled_from(sorted(PARTS)),
    fetch=st.sampled_from(["rows", "blocks"]),
    mixed=st.booleans(),
    dtype=st.sampled_from(["int32", "int64"]),
    verify=st.sampled_from(["first", "always", "never"]),
    weights=st.booleans(),
)
@settings(max_examples=50)
@pytest.mark.filterwarnings("ignore")
def test_every_way_of_reading_gives_the_same_arrays(
    seed, vocab, shards, layout, order, part, fetch, mixed, dtype, verify, weights
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

    with (
        ToyStore(documents, vocab_size=vocab, columns=columns) as toy,
        pytest.MonkeyPatch.context() as patch,
    ):
        found = {}
        for way in WAYS:
            store = opened(toy.path, way, patch, verify=verify)
            found[way] = batches_of(run_over(store), dtype, fetch=fetch)
            kept = {key[2] for key in payloads_of(store.reader)._open}
            # another test of this process may have taken the signal, and then maps are not used
            in_place = {"map": {COMPILED.guard()}, "pread": {False}}.get(way, set())
            assert kept == (in_place if fetch == "rows" else set())
        for way in WAYS[1:]:
            same(found[way], found["map"])
        assert found["map"][0]["tokens"].dtype == np.dtype(dtype)
        patch.undo()
        store = tl.open(toy.path, cache_bytes=1 << 20)
        other = {"rows": "blocks", "blocks": "rows"}[fetch]
        same(batches_of(run_over(store), dtype, fetch=other), found["map"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_mix_of_stores_of_two_kinds_is_the_same_in_every_way(tmp_path, monkeypatch, way, dtype):
    for name, vocab in (("a", 1000), ("b", 100_000)):
        shards = random_shards(len(name), shards=2, documents=30, longest=90, vocab=vocab)
        write_store(tmp_path / name, shards, vocab_size=vocab)

    def mixed(how):
        stores = {name: opened(tmp_path / name, how, monkeypatch) for name in "ab"}
        rows = stores["a"].windows(24).shuffle(), stores["b"].pack(24).shuffle()
        both = dict(zip("ab", rows, strict=True))
        return tl.mix(both, weights={"a": 2, "b": 1}, different_tokenizers=True).seed(3)

    expected = batches_of(mixed("numpy"), dtype)
    same(batches_of(mixed(way), dtype), expected)


def flat(path, tokens=40_000, vocab=60_000, length=1000):
    """A store of one shard whose tokens count up from 1."""
    ids = np.arange(1, tokens + 1) % vocab
    write_flat(path, ids, np.full(tokens // length, length), vocab_size=vocab)
    return path / "shard-00000/input_ids/c/0"


@pytest.fixture
def store(tmp_path):
    file = flat(tmp_path / "s")
    return tmp_path / "s", file


# -- files that change ---------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("cut", [0, 1000, 5 * PAGE, 5 * PAGE + 2, 5 * PAGE + 1000])
@pytest.mark.parametrize("warm", [True, False])
def test_a_file_that_was_cut_short_is_an_error_and_never_zeros(store, mapped, cut, warm):
    path, file = store
    dataset = tl.open(path, map=mapped, verify="first" if warm else "never").windows(100)
    renderer = dataset.renderer(by_blocks=False)
    rows = np.arange(len(dataset))
    renderer.batch(rows if warm else rows[:1])  # warm: every page was compared and is trusted
    expected = np.arange(1, 40_001).reshape(-1, 100)
    with open(file, "r+b") as opened_file:
        opened_file.truncate(cut)
    for row in rows.tolist():
        if (row + 1) * 200 <= cut:
            assert np.array_equal(renderer.batch(np.array([row])).tokens, expected[[row]])
        else:
            with pytest.raises(StoreError, match="shard-00000"):
                renderer.batch(np.array([row]))
    with pytest.raises(StoreError, match="cut short"):
        renderer.batch(rows)


def test_a_store_whose_file_became_a_directory_is_an_error(store):
    path, file = store
    dataset = tl.open(path).windows(100)
    file.unlink()
    file.mkdir()
    with pytest.raises(StoreError, match="shard-00000"):
        dataset.renderer(by_blocks=False).batch(np.array([3]))


def test_a_directory_read_by_pread_is_told_with_its_error_number(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if not size:
            pytest.skip("directories have no size here")
        made = COMPILED.Payload(fd, size // 4 * 4, "i", None, None, True, False, "here")
    finally:
        os.close(fd)
    copier = COMPILED.Copier([made], *np.array([(0, 0, 1, 0)], np.int64).T.copy())
    found = copier.fill(np.zeros(1, np.int32), 0, 1, 0, 0)
    assert found == (made, 0, errno.EISDIR)
    error = payload_room.read_failed(*found)
    assert isinstance(error, StoreError)
    assert "here" in str(error)


CHILD = """
import os, sys, threading
import numpy as np
import tokenloom as tl
from tokenloom import native
from tokenloom.errors import StoreError

path, file, way, rounds = sys.argv[1:]
REAL, data = native.compiled, open(file, "rb").read()
rows = np.random.default_rng(0).integers(0, 400, 64)
if way == "unguarded":  # the control
    class Unguarded:
        def __getattr__(self, name):
            return (lambda: True) if name == "guard" else getattr(REAL, name)
    native.compiled = Unguarded()

def read(dataset, started):
    renderer = dataset.renderer(by_blocks=False)
    while True:
        try:
            tokens = renderer.batch(rows).tokens
        except StoreError as error:
            assert "cut short" in str(error), error
            raised.append(1)
            return
        if not (tokens == rows[:, None] * 100 + np.arange(1, 101)).all():
            wrong.append(1)
        started.set()

raised, wrong = [], []
for number in range(int(rounds)):
    dataset = tl.open(path, verify="never").windows(100)
    started = [threading.Event() for _ in range(4)]
    threads = [threading.Thread(target=read, args=(dataset, one)) for one in started]
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


def child(script, *args, timeout=240, **environment):
    """A process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,  # for hangs
        env=os.environ | environment,
    )


def test_a_file_cut_short_under_four_reading_threads_raises_in_each_of_them(store):
    done = child(CHILD, *store, "guarded", 25)
    assert done.stdout.split() == ["alive", "100", "0"], done.stderr[-2000:]


def test_control_without_the_guard_the_process_dies(store):
    done = child(CHILD, *store, "unguarded", 25)
    assert done.returncode == -7, (done.returncode, done.stderr[-2000:])
    assert "alive" not in done.stdout


# -- the signal ----------------------------------------------------------------------------

SIGNALS = """
import ctypes, faulthandler, mmap, os, signal, sys, tempfile
from tokenloom import native
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


def signalled(script):
    return child(SIGNALS + textwrap.dedent(script))


def test_a_fault_that_is_not_ours_ends_the_process_as_it_would_have():
    done = signalled("assert native.compiled.guard(); fault()")
    assert (done.returncode, done.stdout.split()) == (-7, ["before"])


def test_a_fault_that_is_not_ours_reaches_the_faulthandler():
    done = signalled("faulthandler.enable(); assert native.compiled.guard(); fault()")
    assert done.returncode == -7
    assert "Fatal Python error: Bus error" in done.stderr
    assert "in fault" in done.stderr


def test_a_fault_that_is_not_ours_reaches_whoever_had_the_signal_before():
    done = signalled("libc.signal(7, address); assert native.compiled.guard(); fault()")
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
def test_a_signal_that_was_sent_does_what_it_would_have_done(had, code, told):
    script = "assert native.compiled.guard(); os.kill(os.getpid(), 7); print('on')"
    done = signalled(f"{had}; {script}")
    assert (done.returncode, done.stdout.split()) == (code, told), done.stderr
    without = signalled(f"{had}; " + script.replace("assert native.compiled.guard(); ", ""))
    assert (without.returncode, without.stdout.split()) == (code, told)  # the oracle


def test_whoever_replaces_our_handler_is_noticed_and_the_bytes_stay_the_same(store):
    script = """
        import faulthandler, os, sys
        import numpy as np
        import tokenloom as tl
        from tokenloom import native
        from tokenloom.store.derived.payload import payloads_of
        store = tl.open(sys.argv[1])
        renderer = store.windows(100).renderer(by_blocks=False)
        def ways():
            return sorted({key[2] for key in payloads_of(store.reader)._open})
        expected = np.arange(1, 40_001).reshape(-1, 100)
        print(native.compiled.guard(), (renderer.batch(np.arange(400)).tokens == expected).all())
        print(ways())
        faulthandler.enable()
        print(native.compiled.guard(), (renderer.batch(np.arange(400)).tokens == expected).all())
        print(ways())
        os.truncate(sys.argv[2], 4096)
        try:
            renderer.batch(np.arange(400))
        except tl.StoreError as error:
            print("raised")
        faulthandler.disable()
        print(native.compiled.guard())
    """
    done = child(script, *store)
    lines = ["True True", "[True]", "False True", "[False, True]", "raised", "True"]
    assert done.stdout.splitlines() == lines, done.stderr


def test_a_thread_that_blocks_the_signal_reads_without_maps(store):
    script = """
        import signal, sys, threading
        from tokenloom import native
        assert native.compiled.guard()
        def blocked():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})
            print(native.compiled.guard())
        one = threading.Thread(target=blocked)
        one.start()
        one.join()
        print(native.compiled.guard())
    """
    assert child(script).stdout.split() == ["False", "True"]


# -- checksums -----------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
def test_every_flipped_byte_is_found_by_the_rows_on_its_page_and_by_no_other(tmp_path, mapped):
    file = flat(tmp_path / "s", tokens=5000, length=500)
    right = file.read_bytes()
    dataset = tl.open(tmp_path / "s", map=mapped, verify="always").windows(100)
    renderer = dataset.renderer(by_blocks=False)
    expected = np.arange(1, 5001).reshape(-1, 100)
    for place in (*range(0, len(right), 37), PAGE - 1, PAGE, len(right) - 1):
        with open(file, "r+b") as f:
            f.seek(place)
            f.write(bytes([right[place] ^ (1 << place % 8)]))
        page = place // PAGE
        touching = [
            r for r in range(50) if r * 200 < (page + 1) * PAGE and (r + 1) * 200 > page * PAGE
        ]
        others = [r for r in range(50) if r not in touching]
        if touching:
            with pytest.raises(StoreCorrupt, match=f"page {page} .*crc32c"):
                renderer.batch(np.array(touching[place % len(touching)])[None])
        assert np.array_equal(renderer.batch(np.array(others)).tokens, expected[others])
        with open(file, "r+b") as f:
            f.seek(place)
            f.write(right[place : place + 1])
    assert np.array_equal(renderer.batch(np.arange(50)).tokens, expected)


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [True, False])
def test_really_every_flipped_byte_is_found(tmp_path, mapped):
    file = flat(tmp_path / "s", tokens=3000, length=500)
    right = file.read_bytes()
    renderer = tl.open(tmp_path / "s", map=mapped, verify="always").windows(100)
    renderer = renderer.renderer(by_blocks=False)
    for place in range(6000):
        with open(file, "r+b") as f:
            f.seek(place)
            f.write(bytes([right[place] ^ (1 << place % 8)]))
        with pytest.raises(StoreCorrupt, match=f"page {place // PAGE} "):
            renderer.batch(np.array([place // 200]))
        with open(file, "r+b") as f:
            f.seek(place)
            f.write(right[place : place + 1])


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

    def is_found(renderer):
        try:
            renderer.batch(np.array([0]))
        except StoreCorrupt as error:
            return "page 0" in str(error)
        return False

    flip()
    dataset = tl.open(path, verify=verify, map=mapped).windows(100)
    assert is_found(dataset.renderer(by_blocks=False)) is first
    flip()
    assert not is_found(dataset.renderer(by_blocks=False))  # what failed is not trusted, nor doomed
    flip()
    assert is_found(dataset.renderer(by_blocks=False)) is later


# -- costs ---------------------------------------------------------------------------------


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
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc here")
    done = child(script, tmp_path / "s")
    assert int(done.stdout) < 24, done.stderr  # MiB: batches kept ready, and their plans


def took(dataset, rows):
    """(ranges, reads, bytes, useful bytes) of a request."""
    names = ("ranges", "read_ops", "bytes", "useful_bytes")
    before = dataset.counters()
    before = [getattr(before, name) for name in names]
    dataset.renderer(by_blocks=False).batch(np.array(rows))
    after = dataset.counters()
    return tuple(getattr(after, n) - b for n, b in zip(names, before, strict=True))


def test_the_reads_of_a_group_are_counted_exactly(store):
    path, _ = store
    checked = tl.open(path, verify="never")
    assert took(checked.windows(2048), [1, 5, 3]) == (3, 3, 3 * PAGE, 3 * PAGE)  # one page each
    assert took(checked.windows(2048), [2, 1, 0]) == (1, 1, 3 * PAGE, 3 * PAGE)  # neighbours
    assert took(checked.windows(100), [0, 1, 7, 7]) == (2, 2, 600, 600)
    aligned = tl.open(path).windows(2048)
    assert took(aligned, [1, 5, 3]) == (3, 3, 3 * PAGE, 3 * PAGE)
    unaligned = tl.open(path).windows(2000)  # 4,000 bytes on one or two pages
    assert took(unaligned, [1]) == (1, 1, 2 * PAGE, 4000)  # bytes 4,000 to 8,000
    assert took(unaligned, [1]) == (1, 1, 4000, 4000)  # compared already
    assert took(unaligned, [8]) == (1, 1, 2 * PAGE, 4000)  # 32,000 to 36,000
    counts = took(tl.open(path).windows(2000), [1, 3, 5, 8, 11])  # pages 0–5, 7–8 and 10–11
    assert counts == (3, 3, 10 * PAGE, 20_000)
    assert 10 * PAGE <= 2.2 * 20_000
    capped = tl.open(path, verify="never", cap_bytes=PAGE).windows(2048)
    assert took(capped, [0, 1, 2]) == (1, 3, 3 * PAGE, 3 * PAGE)


def can_be_had(file):
    """Whether the first page can be read without waiting; None if nobody can tell."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    with open(file, "rb", buffering=0) as f:
        try:
            return os.preadv(f.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError:
            return None


def test_only_what_is_not_in_memory_is_announced(store):
    path, file = store
    renderer = tl.open(path, verify="never").windows(100).renderer(by_blocks=False)
    ready = renderer.fetch(renderer.plan(np.arange(0, 400, 2)), 0, 200)
    file.read_bytes()
    assert ready.copier.announce(64) == 0
    with open(file, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if can_be_had(file) is False:
        assert ready.copier.announce(64) == 200
        for _ in range(500):  # then the system reads them, at its own pace
            if ready.copier.announce(200) == 0:
                break
            threading.Event().wait(0.02)
        assert can_be_had(file)
        assert ready.copier.announce(200) == 0
    else:  # this file system keeps it, or tells nobody: then there is nothing to announce
        assert ready.copier.announce(64) == 0


def test_more_files_than_may_be_open_are_read_in_the_other_way(tmp_path):
    shards = random_shards(5, shards=6, documents=20, longest=80)
    write_store(tmp_path / "s", shards)
    expected = batches_of(tl.open(tmp_path / "s").windows(16).shuffle())
    with tiny(open_payloads=3):
        store = tl.open(tmp_path / "s", cache_bytes=1 << 20)
        one, rows = store.windows(16).renderer(by_blocks=False), len(store.windows(16))
        tokens = np.concatenate([np.concatenate([[], *shard]) for shard in shards])
        assert np.array_equal(one.batch(np.arange(rows)).tokens.reshape(-1), tokens[: rows * 16])
        assert len(payloads_of(store.reader)._open) == 0
        same(batches_of(store.windows(16).shuffle()), expected)
        for row in range(0, rows, 5):
            one.batch(np.array([row]))
            assert 0 < len(payloads_of(store.reader)._open) <= 3


# -- copies --------------------------------------------------------------------------------


def test_the_child_of_a_fork_reads_on(store):
    renderer = tl.open(store[0]).windows(100).renderer(by_blocks=False)
    expected = renderer.batch(np.arange(400)).tokens
    ready = renderer.fetch(renderer.plan(np.arange(400)), 0, 400)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            out = np.zeros((400, 100), np.int32)
            failed = ready.copier.fill(out, 0, 400, 0, 0)
            again = renderer.batch(np.arange(400)).tokens
            right = np.array_equal(out, expected) and np.array_equal(again, expected)
            os.truncate(store[1], 100)
            failed = failed or ready.copier.fill(out, 0, 400, 0, 0) is None
            code = 0 if right and not failed else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    with pytest.raises(StoreError):
        renderer.batch(np.arange(400))


def test_copies_of_a_dataset_whose_files_are_open_read_the_same(store):
    dataset = tl.open(store[0]).windows(100).shuffle()
    expected = batches_of(dataset)
    for made in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset)), copy.copy(dataset)):
        same(batches_of(made), expected)


def test_a_copier_outlives_the_store(store):
    opened_store = tl.open(store[0], verify="first")
    renderer = opened_store.windows(100).renderer(by_blocks=False)
    ready = renderer.fetch(renderer.plan(np.arange(400)), 0, 400).copier
    del opened_store, renderer
    out = np.zeros((400, 100), np.int64)
    assert ready.fill(out, 0, 400, 0, 0) is None
    assert np.array_equal(out, np.arange(1, 40_001).reshape(-1, 100))
