"""Pieces on a disk: each proves itself, all together stay within their bound."""

import contextlib
import errno
import logging
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_read_stores import PAYLOAD, asked, upload
from toyruns import toy_store

import tokenloom as tl
from tokenloom.arguments import place as place_of
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.remote import disk_cache
from tokenloom.remote.aligned import read_aligned
from tokenloom.remote.client import client_of
from tokenloom.remote.disk_cache import DiskCache, PieceKey
from tokenloom.testing import tiny

HEADER = disk_cache._HEADER.size
SMALL = limits().disk_cache_piece_bytes + HEADER  # the least limit


def key(number=0, name="shard-00000/input_ids/c/0"):
    return PieceKey("a" * 64, name, number)


def content(number, size=1000):
    return np.full(size, number % 251, np.uint8)


def entries(folder):
    return [path for path in Path(folder).iterdir() if path.name != ".lock"]


def held(folder):
    """What the folder takes now; a file may go while it is looked at."""
    found = 0
    for path in entries(folder):
        try:
            found += path.lstat().st_size
        except FileNotFoundError:
            continue
    return found


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "pieces", 1 << 20)


def test_what_is_kept_comes_back_in_every_process(cache):
    assert cache.get(key(), 1000) is None
    assert cache.put(key(), content(7))
    assert not cache.put(key(), content(7))  # it is there
    code = (
        "import sys; from tokenloom.remote.disk_cache import *; "
        "cache = DiskCache(sys.argv[1], 1 << 20); "
        f"print(cache.get(PieceKey({'a' * 64!r}, 'shard-00000/input_ids/c/0', 0), 1000).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code, cache.folder], capture_output=True)
    assert done.stdout.strip() == b"7000", done.stderr
    copied = pickle.loads(pickle.dumps(cache))
    assert np.array_equal(copied.get(key(), 1000), content(7))


def test_keys_keep_pieces_apart(cache):
    others = [
        key(1),
        key(0, "x"),
        PieceKey("b" * 64, *key()[1:]),
        PieceKey("a" * 63, "a" + key().name, 0),
    ]
    cache.put(key(), content(1))
    assert [cache.get(one, 1000) for one in others] == [None] * 4


# -- damage -------------------------------------------------------------------------------------

PLACES = {  # the first, a middle and the last byte of every part of an entry
    "magic": (0, 3, 7),
    "key": (8, 20, 39),
    "length": (40, 44, 47),
    "checksum": (48, 55, 63),
    "content": (64, 500, 64 + 999),
}


@pytest.mark.parametrize("part", PLACES)
@pytest.mark.parametrize("bit", [1, 128])
def test_a_flipped_bit_anywhere_is_found_told_and_fetched_again(cache, part, bit, caplog):
    for place in PLACES[part]:
        cache.put(key(), content(7))
        (path,) = entries(cache.folder)
        raw = bytearray(path.read_bytes())
        raw[place] ^= bit
        path.write_bytes(raw)
        assert cache.get(key(), 1000) is None
        assert entries(cache.folder) == []  # dropped
    assert cache.put(key(), content(7))
    assert np.array_equal(cache.get(key(), 1000), content(7))
    assert len(caplog.records) == 1  # not once a piece


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _grown(path):
    path.write_bytes(path.read_bytes() + b"\0")


def _empty(path):
    path.write_bytes(b"")


def _zeros(path):
    path.write_bytes(bytes(HEADER + 1000))


def _link(path):
    good = path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(good)


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _other(path):
    """A whole entry, of another piece."""
    cache = DiskCache(path.parent.parent / "others", 1 << 20)
    cache.put(key(5), content(5))
    (whole,) = entries(cache.folder)
    path.write_bytes(whole.read_bytes())


@pytest.mark.parametrize("change", [_cut, _grown, _empty, _zeros, _link, _pipe, _other])
def test_whatever_is_not_the_entry_is_not_used(cache, change):
    cache.put(key(), content(7))
    (path,) = entries(cache.folder)
    change(path)
    assert cache.get(key(), 1000) is None
    assert cache.put(key(), content(7))
    assert np.array_equal(cache.get(key(), 1000), content(7))


def test_an_entry_of_another_user_is_not_used(cache, monkeypatch):
    cache.put(key(), content(7))
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert cache.get(key(), 1000) is None


def _socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def test_an_entry_that_cannot_be_opened_since_it_is_no_file_is_replaced(cache, monkeypatch):
    """The control of the tests below: what surely is no entry goes, also if opening it fails."""
    cache.put(key(), content(7))
    (path,) = entries(cache.folder)
    monkeypatch.chdir(path.parent)  # the name of a socket is short
    _socket(Path(path.name))
    assert cache.get(key(), 1000) is None
    assert cache.put(key(), content(7))
    assert np.array_equal(cache.get(key(), 1000), content(7))


# -- what fails and is no damage ------------------------------------------------------------------


@contextlib.contextmanager
def no_descriptors(free=0):
    """This process has as many descriptors left as said."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, taken = max(map(int, os.listdir("/proc/self/fd"))) + 1 + free, []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, soft), hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for fd in taken[:free]:
            os.close(fd)
        del taken[:free]
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_free_descriptor_good_pieces_stay_and_the_reason_is_told(cache, caplog):
    cache.put(key(), content(7))
    with no_descriptors():
        assert [cache.get(key(), 1000) for _ in range(2)] == [None] * 2
        assert not cache.put(key(1), content(1))
    assert np.array_equal(cache.get(key(), 1000), content(7))
    told = [one.message for one in caplog.records]
    assert len(told) == 2
    assert all("Too many open files" in one for one in told)


def test_without_free_descriptors_what_the_living_write_is_not_removed(tmp_path):
    cache = DiskCache(tmp_path / "p", SMALL)
    temporary = cache.folder / disk_cache.temporary_name()
    fd = cache._reserved(temporary, 500_000)
    with no_descriptors():
        assert not disk_cache._is_left(temporary)
    with no_descriptors(free=2):  # enough for the lock and the listing
        assert not cache.put(key(), content(1, 100_000))
    assert temporary.exists()
    os.close(fd)
    assert disk_cache._is_left(temporary)  # the control


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.ESTALE])
def test_an_entry_that_cannot_be_read_now_stays(cache, number, monkeypatch, caplog):
    cache.put(key(), content(7))

    def failing(*_):
        raise OSError(number, "")

    with monkeypatch.context() as patch:
        patch.setattr(disk_cache, "_read", failing)
        assert cache.get(key(), 1000) is None
    assert os.strerror(number) in caplog.text
    assert np.array_equal(cache.get(key(), 1000), content(7))


def test_a_piece_on_a_disk_that_may_only_be_read_is_used(cache, monkeypatch):
    cache.put(key(), content(7))

    def failing(*_):
        raise OSError(errno.EROFS, "")

    monkeypatch.setattr(os, "utime", failing)
    assert np.array_equal(cache.get(key(), 1000), content(7))


@pytest.mark.parametrize(
    ("waits", "words"),
    [(True, "0.05 seconds"), (False, "No locks available")],
)
def test_why_nothing_is_kept_without_the_lock_is_told(cache, waits, words, monkeypatch, caplog):
    def failing(*_):
        raise OSError(errno.EAGAIN if waits else errno.ENOLCK, "")

    monkeypatch.setattr(disk_cache, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(disk_cache.fcntl, "flock", failing)
    assert not cache.put(key(), content(1))
    assert [words in one.message for one in caplog.records] == [True]


def test_a_full_disk_keeps_no_descriptor(cache, monkeypatch):
    def full(fd, size):
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(os, "ftruncate", full)
    before = os.listdir("/proc/self/fd")
    assert not cache.put(key(), content(1))
    assert os.listdir("/proc/self/fd") == before
    assert entries(cache.folder) == []


@pytest.mark.parametrize("claims", [64, 63])  # whole requests of four pieces, and a cut inside one
@pytest.mark.parametrize("count", [64, 300])
def test_a_read_of_many_pieces_claims_some_at_a_time(cache, count, claims):
    with tiny(request_bytes=32, disk_cache_piece_bytes=8, disk_cache_claimed_pieces=claims):
        file = np.arange(8 * count, dtype=np.uint32).astype(np.uint8)
        claimed, requests = [], []

        def fetch(ranges):
            names = [path.name for path in cache.folder.iterdir()]
            claimed.append(sum(name.startswith(disk_cache.CLAIM_PREFIX) for name in names))
            requests.extend(ranges)
            return [file[start : start + size] for _, start, size in ranges]

        asked = {"cache": cache, "identity": "i", "sizes": {"x": len(file)}, "fetch": fetch}
        with no_descriptors(free=claims + 8):
            ((found,), (had,)) = read_aligned([("x", 0, len(file))], **asked)
        assert np.array_equal(found, file)
        assert had == 0
        assert requests == [("x", start, 32) for start in range(0, len(file), 32)]  # none was cut
        assert max(claimed) == claims // 4 * 4
        assert len(entries(cache.folder)) == count  # all of it is kept, and no claim is left
        assert read_aligned([("x", 0, len(file))], **asked)[1] == [len(file)]


@pytest.mark.parametrize("how", ["link", "open", "file", "url"])
def test_a_folder_that_others_reach_is_refused(tmp_path, how):
    folder = tmp_path / "pieces"
    if how == "link":
        (tmp_path / "real").mkdir()
        folder.symlink_to(tmp_path / "real")
    elif how == "open":
        folder.mkdir()
        folder.chmod(0o777)
    elif how == "file":
        folder.write_text("")
    else:
        folder = "s3://bucket/cache"
    with pytest.raises(ConfigError, match=r"^disk_cache: found "):
        DiskCache(folder, 1 << 20)


# -- the bound ----------------------------------------------------------------------------------


def test_the_bound_is_kept_after_every_write_and_the_oldest_go_first(tmp_path):
    cache = DiskCache(tmp_path / "p", SMALL)
    size = 20_000
    for number in range(100):
        cache.put(key(number), content(number, size))
        assert held(cache.folder) <= cache.limit
        for path in entries(cache.folder):  # the clock of a file is coarse
            used = path.lstat().st_mtime_ns
            os.utime(path, ns=(used - 10**9, used - 10**9))
        cache.get(key(0), size)  # used again and again
    there = [number for number in range(100) if cache.get(key(number), size) is not None]
    assert there[0] == 0  # never the oldest
    assert there[1:] == list(range(100 - len(there) + 1, 100))
    assert len(there) > 0.8 * cache.limit / (size + HEADER)


def test_the_count_is_put_right_when_the_folder_is_looked_at(tmp_path):
    cache = DiskCache(tmp_path / "p", SMALL)
    for number in range(5):
        cache.put(key(number), content(number, 50_000))
    for path in entries(cache.folder)[:3]:
        path.unlink()  # somebody tidies up
    (cache.folder / ".lock").write_bytes(b"nonsense")
    assert cache.put(key(9), content(9, 50_000))
    lock = os.open(cache.folder / ".lock", os.O_RDONLY)
    assert disk_cache._total(lock) == held(cache.folder) == 3 * (50_000 + HEADER)
    os.close(lock)


def test_a_reader_keeps_the_entry_that_goes(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path / "p", SMALL)
    cache.put(key(), content(7))
    real = disk_cache._read

    def evicted_meanwhile(fd, digest, size):
        for path in entries(cache.folder):
            path.unlink()
        return real(fd, digest, size)

    monkeypatch.setattr(disk_cache, "_read", evicted_meanwhile)
    assert np.array_equal(cache.get(key(), 1000), content(7))


def test_a_full_disk_is_told_and_changes_nothing(cache, monkeypatch, caplog):
    def full(fd, size):
        raise OSError(28, "")

    monkeypatch.setattr(os, "ftruncate", full)
    assert not cache.put(key(), content(1))
    assert not cache.put(key(2), content(2))
    assert len(caplog.records) == 1
    assert cache.get(key(), 1000) is None


def _write(folder, limit, seed, seconds):
    """Read and write pieces until the time is over; every hit has its own content."""
    cache, rng = DiskCache(folder, limit), np.random.Generator(np.random.PCG64(seed))
    end, wrong, hits = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        number = int(rng.integers(0, 60))
        found = cache.get(key(number), 30_000)
        if found is None:
            cache.put(key(number), content(number, 30_000))
        else:
            hits += 1
            wrong += not np.array_equal(found, content(number, 30_000))
    return wrong, hits


def test_processes_share_a_folder_within_its_bound(tmp_path):
    folder, limit = tmp_path / "p", SMALL
    DiskCache(folder, limit)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        jobs = [pool.apply_async(_write, (folder, limit, seed, 0.8)) for seed in range(3)]
        while not all(job.ready() for job in jobs):
            assert held(folder) <= limit
        found = [job.get() for job in jobs]
    assert all(wrong == 0 and hits > 0 for wrong, hits in found)


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_while_it_writes_leaves_nothing_wrong(tmp_path, rounds):
    folder, limit = tmp_path / "p", SMALL
    cache = DiskCache(folder, limit)
    for turn in range(rounds):
        pid = os.fork()
        if pid == 0:
            _write(folder, limit, turn, 30)
            os._exit(0)
        time.sleep(0.02 + 0.01 * (turn % 5))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert held(folder) <= limit
        for number in range(60):
            found = cache.get(key(number), 30_000)
            assert found is None or np.array_equal(found, content(number, 30_000))
    assert cache.put(key(1000), content(1000, 30_000))  # the lock died with its holder


def test_what_the_dead_left_is_removed_and_what_the_living_write_is_not(tmp_path):
    cache = DiskCache(tmp_path / "p", SMALL)
    temporary = cache.folder / disk_cache.temporary_name()
    fd = cache._reserved(temporary, 500_000)
    assert not cache.put(key(), content(1, 100_000))  # somebody is writing it
    assert temporary.exists()
    os.close(fd)  # as a death does
    assert cache.put(key(), content(1, 100_000))
    assert not temporary.exists()


# -- ranges out of pieces -----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_ranges_are_the_bytes_of_the_files_whatever_is_kept(tmp_path_factory, data):
    """The oracle is a slice."""
    piece, cap = data.draw(st.sampled_from([8, 16])), 32
    sizes = {"a": data.draw(st.integers(1, 90)), "b": 40}
    files = {name: np.arange(size, dtype=np.uint8) for name, size in sizes.items()}
    requests = []

    def fetch(ranges):
        requests.extend(ranges)
        return [files[name][start : start + size] for name, start, size in ranges]

    with tiny(request_bytes=cap, disk_cache_piece_bytes=piece):
        cache = DiskCache(tmp_path_factory.mktemp("p"), 1 << 20)
        for _ in range(3):
            ranges = []
            for _ in range(data.draw(st.integers(0, 5))):
                name = data.draw(st.sampled_from(["a", "b"]))
                start = data.draw(st.integers(0, sizes[name] - 1))
                ranges.append((name, start, data.draw(st.integers(0, sizes[name] - start))))
            before = len(requests)
            found, had = read_aligned(ranges, cache=cache, identity="i", sizes=sizes, fetch=fetch)
            for (name, start, size), one in zip(ranges, found, strict=True):
                assert np.array_equal(one, files[name][start : start + size])
            assert all(0 <= n <= size for n, (_, _, size) in zip(had, ranges, strict=True))
            assert all(start % piece == 0 and size <= cap for _, start, size in requests)
            again = read_aligned(ranges, cache=cache, identity="i", sizes=sizes, fetch=fetch)[1]
            assert again == [size for _, _, size in ranges]  # all of it is kept now
            assert len(requests) - before <= sum(1 + size // piece + 1 for _, _, size in ranges)


# -- stores -------------------------------------------------------------------------------------


@pytest.fixture
def url(ranges, place, tmp_path):
    upload(toy_store(tmp_path / "local", rows=160).path, place)
    ranges.clear()
    return place


def test_a_second_process_asks_for_the_listing_and_the_manifest_only(ranges, url, tmp_path):
    def read():
        store = tl.open(url, disk_cache=tmp_path / "pieces", cache_bytes=1 << 16)
        run = store.windows(8).shuffle().seed(1)
        with tl.Loader(run, 8) as loader:
            found = b"".join(batch.tokens.tobytes() for batch in loader)
        return found, run.counters()

    first, cold = read()
    assert 0 < cold.requests == len(asked(ranges)) <= 2 * 4  # shards × threads at one piece
    ranges.clear()
    second, warm = read()
    assert second == first
    assert [one["method"] for one in ranges.log()] == ["LIST", "GET"]
    assert (warm.requests, warm.cached_bytes, warm.hit_ratio) == (0, warm.bytes, 1.0)
    assert warm.read_ops == cold.read_ops  # the plan is the same


def test_a_poisoned_piece_of_a_store_is_fetched_again(ranges, url, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    wanted = tl.open(url, disk_cache=tmp_path / "pieces").tokens(0, 500)
    for path in entries(tmp_path / "pieces"):
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
    ranges.clear()
    assert np.array_equal(tl.open(url, disk_cache=tmp_path / "pieces").tokens(0, 500), wanted)
    assert len(asked(ranges)) == 1
    assert "fetched again" in caplog.text


def test_verify_reads_the_bucket_and_not_the_cache(ranges, url, tmp_path):
    store = tl.open(url, disk_cache=tmp_path / "pieces")
    assert store.verify().ok
    store.tokens(0, store.num_tokens)  # all of it is kept
    where = place_of("url", url) / "shard-00000" / PAYLOAD
    data = bytearray(client_of(where).get(where.key).data)
    data[5] ^= 1
    client_of(where).put(where.key, bytes(data))
    again = tl.open(url, disk_cache=tmp_path / "pieces")
    again.tokens(0, 100)
    assert PAYLOAD in "".join(again.check().problems)


def test_another_snapshot_never_gets_the_pieces_of_this_one(ranges, url, tmp_path):
    options = {"disk_cache": tmp_path / "pieces"}
    before = tl.open(url, **options).tokens(0, 300)
    upload(toy_store(tmp_path / "other", rows=159).path, url)  # built again, in its place
    after = tl.open(url, **options).tokens(0, 300)
    assert not np.array_equal(before, after)
    assert np.array_equal(after, tl.open(tmp_path / "other").tokens(0, 300))


def test_the_environment_names_the_folder_and_its_bound(ranges, url, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE", str(tmp_path / "env"))
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE_BYTES", str(1 << 20))
    assert tl.open(url).tokens(0, 9).size == 9
    assert entries(tmp_path / "env")
    tl.open(tmp_path / "local", disk_cache=tmp_path / "none")  # a local store takes no notice
    assert not (tmp_path / "none").exists()
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE_BYTES", "much")
    with pytest.raises(ConfigError, match="TOKENLOOM_DISK_CACHE_BYTES: found 'much'"):
        tl.open(url)


def test_settings_that_make_no_sense_are_refused(url, tmp_path):
    with pytest.raises(ConfigError, match="disk_cache_bytes: found 5"):
        tl.open(url, disk_cache_bytes=5)
    with pytest.raises(ConfigError, match="disk_cache_bytes: found 5"):
        tl.open(url, disk_cache=tmp_path / "pieces", disk_cache_bytes=5)


def test_a_pickle_of_a_store_takes_its_cache_along(ranges, url, tmp_path):
    store = tl.open(url, disk_cache=tmp_path / "pieces")
    wanted = store.tokens(0, 50)
    copied = pickle.loads(pickle.dumps(store))
    ranges.clear()
    assert np.array_equal(copied.tokens(0, 50), wanted)
    assert asked(ranges, PAYLOAD) == []
