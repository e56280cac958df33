"""Pieces of bucket files on a disk: damaged ones are fetched again, and all stay within a bound."""

import errno
import fcntl
import itertools
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
from buckets import PAYLOAD, asked, get, put, upload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused
from toyruns import toy_store

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.testing import tiny, write_store

LEAST = 1 << 20  # bytes of the smallest cache here: more than one piece


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("local"), rows=160)


@pytest.fixture
def url(ranges, place, local):
    upload(local.path, place)
    ranges.clear()
    return place


def pieces(folder):
    return [path for path in Path(folder).iterdir() if path.name != ".lock"]


def held(folder):
    """What the folder takes now; a file may go while it is looked at."""
    found = 0
    for path in pieces(folder):
        try:
            found += path.lstat().st_size
        except FileNotFoundError:
            continue
    return found


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


# -- damage ----------------------------------------------------------------------------------


def check_replaced(ranges, url, local, options, change):
    """Change each piece in turn: it alone is fetched again, and kept."""
    tl.open(url, **options).tokens(0, 500)
    for path in pieces(options["disk_cache"]):
        change(path)
        for fetched in (1, 0):
            ranges.clear()
            assert np.array_equal(tl.open(url, **options).tokens(0, 500), local.tokens(0, 500))
            assert len(asked(ranges, "shard-")) == fetched


@pytest.mark.parametrize("share", [k / 8 for k in range(9)])
@pytest.mark.parametrize("of_all", [False, True])
def test_a_flipped_bit_anywhere_in_a_piece_is_fetched_again(
    ranges, url, local, tmp_path, share, of_all
):
    def flip(path):
        raw = bytearray(path.read_bytes())
        raw[round(share * (len(raw) if of_all else 80)) - of_all] ^= 128 if of_all else 1
        path.write_bytes(raw)

    options = {"disk_cache": tmp_path / "pieces", "cache_bytes": 0}
    check_replaced(ranges, url, local, options, flip)


def _link(path):
    path.symlink_to(path.rename(path.parent.parent / "elsewhere"))


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def _swapped(path):
    """A whole piece, of another file."""
    other = next(one for one in pieces(path.parent) if one != path)
    path.write_bytes(other.read_bytes())


CHANGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "link": _link,
    "pipe": _pipe,
    "socket": _socket,
    "of another file": _swapped,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_the_piece_is_not_used(ranges, url, local, tmp_path, monkeypatch, change):
    options = {"disk_cache": tmp_path / "pieces", "cache_bytes": 0}
    tl.open(url, **options)
    (tmp_path / "pieces").mkdir(exist_ok=True, mode=0o700)
    monkeypatch.chdir(tmp_path / "pieces")  # the name of a socket is short
    check_replaced(ranges, url, local, options, CHANGES[change])


def test_pieces_of_another_user_are_not_used(ranges, url, tmp_path, monkeypatch):
    options = {"disk_cache": tmp_path / "pieces", "cache_bytes": 0}
    tl.open(url, **options).tokens(0, 500)
    store = tl.open(url, **options)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    ranges.clear()
    store.tokens(0, 500)
    assert len(asked(ranges)) == 1


def test_verify_reads_the_bucket_and_not_the_cache(url, tmp_path):
    store = tl.open(url, disk_cache=tmp_path / "pieces")
    assert store.verify().ok
    store.tokens(0, store.num_tokens)  # all of it is kept
    data = bytearray(get(f"{url}/shard-00000/{PAYLOAD}"))
    data[5] ^= 1
    put(f"{url}/shard-00000/{PAYLOAD}", bytes(data))
    again = tl.open(url, disk_cache=tmp_path / "pieces")
    again.tokens(0, 100)
    assert PAYLOAD in "".join(again.check().problems)


def test_another_snapshot_never_gets_the_pieces_of_this_one(url, tmp_path):
    options = {"disk_cache": tmp_path / "pieces"}
    before = tl.open(url, **options).tokens(0, 300)
    upload(toy_store(tmp_path / "other", rows=159).path, url)  # built again, in its place
    after = tl.open(url, **options).tokens(0, 300)
    assert not np.array_equal(before, after)
    assert np.array_equal(after, tl.open(tmp_path / "other").tokens(0, 300))


def test_a_full_disk_changes_no_token(ranges, url, local, tmp_path):
    store = tl.open(url, disk_cache=tmp_path / "pieces", cache_bytes=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        found = store.tokens(0, 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert np.array_equal(found, local.tokens(0, 500))
    assert pieces(tmp_path / "pieces") == []
    assert np.array_equal(store.tokens(0, 500), found)


# -- the bound -------------------------------------------------------------------------------

SIZE, COUNT = 20_000, 60  # bytes of a piece, pieces of a file


@pytest.fixture
def long(ranges, place, tmp_path):
    """A store in the bucket of many pieces, and its ids."""
    ids = np.arange(SIZE // 2 * COUNT) % 50_000
    with tiny(disk_cache_piece_bytes=SIZE):
        write_store(tmp_path / "long", [[ids.tolist()]], inner=SIZE // 2, chunk_tokens=SIZE // 2)
        upload(tmp_path / "long", place)
        yield place, ids


def number_of(ids, store, number):
    """One piece of the store, which must be right."""
    first = number * SIZE // 2
    found = store.tokens(first, first + SIZE // 2)
    assert np.array_equal(found, ids[first : first + SIZE // 2])


def test_the_bound_is_kept_after_every_read_and_the_oldest_go_first(ranges, long, tmp_path):
    url, ids = long
    bound = 16 * SIZE
    options = {"disk_cache": tmp_path / "pieces", "cache_bytes": 0, "disk_cache_bytes": bound}
    store = tl.open(url, **options)
    for number in range(COUNT):
        number_of(ids, store, number)
        assert held(tmp_path / "pieces") <= bound
        for path in pieces(tmp_path / "pieces"):  # the clock of a file is coarse
            used = path.lstat().st_mtime_ns
            os.utime(path, ns=(used - 10**9, used - 10**9))
        number_of(ids, store, 0)  # used again and again
    kept = []
    for number in range(COUNT):  # whoever reads the newest first evicts none of them
        ranges.clear()
        number_of(ids, tl.open(url, **options | {"disk_cache_bytes": 1 << 30}), number)
        kept += [number] if not asked(ranges) else []
    assert kept[0] == 0  # never the oldest
    assert kept[1:] == list(range(COUNT - len(kept) + 1, COUNT))
    assert 8 < len(kept) <= 16


_READING = """
import sys, numpy as np, tokenloom as tl
from tokenloom.testing import tiny
url, folder, bound, seed, turns, size, count = sys.argv[1:3] + [int(one) for one in sys.argv[3:]]
rng = np.random.Generator(np.random.PCG64(seed))
with tiny(disk_cache_piece_bytes=2 * size):
    store = tl.open(url, disk_cache=folder, cache_bytes=0, disk_cache_bytes=bound)
    print("ready", flush=True)
    for _ in range(turns):
        first = int(rng.integers(0, count)) * size
        ids = np.arange(first, first + size) % 50_000
        assert np.array_equal(store.tokens(first, first + size), ids)
"""


def reading(url, folder, *, bound, seed, turns):
    """A process that reads pieces at random; it fails at the first wrong id."""
    words = [url, folder, bound, seed, turns, SIZE // 2, COUNT]
    return subprocess.Popen(
        [sys.executable, "-c", _READING, *map(str, words)], stdout=subprocess.PIPE
    )


def test_processes_share_a_folder_within_its_bound(long, tmp_path):
    bound, folder = 20 * SIZE, tmp_path / "pieces"
    readers = [reading(long[0], folder, bound=bound, seed=n, turns=150) for n in range(3)]
    try:
        while any(reader.poll() is None for reader in readers):
            assert not folder.exists() or held(folder) <= bound
            time.sleep(0.005)
        assert [reader.returncode for reader in readers] == [0] * 3
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_while_it_writes_leaves_nothing_wrong(long, tmp_path, rounds):
    url, ids = long
    bound, folder = 20 * SIZE, tmp_path / "pieces"
    for turn in range(rounds):
        reader = reading(url, folder, bound=bound, seed=turn, turns=10**9)
        assert reader.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.01 * (turn % 5))
        reader.send_signal(signal.SIGKILL)
        reader.communicate()
        assert held(folder) <= bound
        store = tl.open(url, disk_cache=folder, cache_bytes=0, disk_cache_bytes=bound)
        for number in range(COUNT):
            number_of(ids, store, number)
        assert 0 < held(folder) <= bound  # what died with its holder keeps no place and no lock


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_ranges_are_those_of_the_file_whatever_is_kept(ranges, url, local, tmp_path_factory, data):
    """The oracle is the store on this disk."""
    piece = data.draw(st.sampled_from([16, 64]))
    folder = tmp_path_factory.mktemp("pieces")
    with tiny(request_bytes=128, disk_cache_piece_bytes=piece):
        store = tl.open(url, disk_cache=folder, cache_bytes=0, verify="never")
        for _ in range(4):
            first = data.draw(st.integers(0, store.num_tokens - 1))
            size = data.draw(st.integers(0, min(300, store.num_tokens - first)))
            assert np.array_equal(
                store.tokens(first, first + size), local.tokens(first, first + size)
            )
            ranges.clear()
            store.tokens(first, first + size)
            assert asked(ranges) == []  # all of it is kept now


# -- settings --------------------------------------------------------------------------------


def test_the_environment_names_the_folder_and_its_bound(url, tmp_path, monkeypatch, local):
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE", str(tmp_path / "env"))
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE_BYTES", str(LEAST))
    assert tl.open(url).tokens(0, 9).size == 9
    assert pieces(tmp_path / "env")
    tl.open(local.path, disk_cache=tmp_path / "none")  # a local store takes no notice
    assert not (tmp_path / "none").exists()
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE_BYTES", "much")
    refused(lambda: tl.open(url), tl.ConfigError, "TOKENLOOM_DISK_CACHE_BYTES", "much")


@pytest.mark.parametrize("what", ["link", "open to all", "file", "url", "bound"])
def test_a_folder_that_others_reach_and_a_bound_below_one_piece_are_refused(url, tmp_path, what):
    folder, bound = tmp_path / "pieces", LEAST
    if what == "link":
        (tmp_path / "real").mkdir()
        folder.symlink_to(tmp_path / "real")
    elif what == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    elif what == "file":
        folder.write_text("")
    elif what == "url":
        folder = "s3://bucket/cache"
    else:
        bound = 5
    refused(
        lambda: tl.open(url, disk_cache=folder, disk_cache_bytes=bound),
        tl.ConfigError,
        "disk_cache",
        5 if what == "bound" else folder,
    )


def test_a_bound_without_a_folder_is_refused(url):
    refused(lambda: tl.open(url, disk_cache_bytes=LEAST), tl.ConfigError, "disk_cache_bytes", LEAST)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EAGAIN])
def test_without_a_lock_nothing_is_kept_and_no_token_changes(
    ranges, url, local, tmp_path, monkeypatch, number
):
    """There are no locks on this disk; or another process holds it until it is not waited for."""
    store = tl.open(url, disk_cache=tmp_path / "pieces", cache_bytes=0)
    clock = itertools.count(step=100.0)

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        if number == errno.EAGAIN:
            patch.setattr(time, "monotonic", lambda: next(clock))
        found = store.tokens(0, 500)
    assert np.array_equal(found, local.tokens(0, 500))
    assert not list((tmp_path / "pieces").glob("[!.]*"))
    store.tokens(0, 500)
    assert list((tmp_path / "pieces").glob("[!.]*"))


def test_the_half_written_piece_of_a_dead_process_is_counted_and_removed(url, local, tmp_path):
    """Pieces are written under the lock, so a temporary file without its holder is a remainder."""
    folder = tmp_path / "pieces"
    options = {"disk_cache": folder, "disk_cache_bytes": LEAST, "cache_bytes": 0}
    store = tl.open(url, **options)
    for path in pieces(folder):
        path.unlink()
    (folder / ".lock").unlink(missing_ok=True)
    remainder = folder / f".tmp-{'0' * 32}"
    remainder.touch()
    os.truncate(remainder, LEAST - 8)
    assert np.array_equal(store.tokens(0, 500), local.tokens(0, 500))
    assert remainder not in pieces(folder)
    assert pieces(folder)


def test_pieces_that_cannot_be_opened_now_stay_and_no_token_changes(
    ranges, url, local, tmp_path, monkeypatch, caplog
):
    folder = tmp_path / "pieces"
    store = tl.open(url, disk_cache=folder, cache_bytes=0)
    store.tokens(0, 500)
    kept = {path: path.read_bytes() for path in pieces(folder)}
    really = os.open

    def refuse(path, *given, **more):
        if Path(path) in kept:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really(path, *given, **more)

    ranges.clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        for _ in range(3):
            assert np.array_equal(store.tokens(0, 500), local.tokens(0, 500))
    assert len(asked(ranges)) == 3
    assert {path: path.read_bytes() for path in pieces(folder)} == kept
    assert sum(os.strerror(errno.EMFILE) in one.message for one in caplog.records) == 1
    ranges.clear()
    assert np.array_equal(store.tokens(0, 500), local.tokens(0, 500))
    assert asked(ranges) == []


def test_a_pickle_of_a_store_takes_its_cache_along(ranges, url, tmp_path):
    store = tl.open(url, disk_cache=tmp_path / "pieces")
    wanted = store.tokens(0, 50)
    copied = pickle.loads(pickle.dumps(store))
    ranges.clear()
    assert np.array_equal(copied.tokens(0, 50), wanted)
    assert asked(ranges) == []


# -- ranks -----------------------------------------------------------------------------------

WORLD, ROWS, SEQ_LEN, BLOCK = 4, 512, 8, 16  # a block of 16 rows is 128 tokens


@pytest.mark.parametrize("lanes", [1, WORLD])
def test_the_bucket_sends_each_rank_what_the_simulation_says(ranges, place, tmp_path, lanes):
    ids = np.random.Generator(np.random.PCG64(1)).integers(1, 1000, ROWS * SEQ_LEN).tolist()
    write_store(tmp_path / "s", [[ids]], inner=BLOCK * SEQ_LEN, chunk_tokens=BLOCK * SEQ_LEN)
    upload(tmp_path / "s", place)

    def shuffled():
        store = tl.open(place, cache_bytes=1 << 15)  # all blocks of a window
        return store.windows(SEQ_LEN).block_shuffle(window_blocks=4, lanes=lanes).seed(5)

    told = simulate_run(shuffled(), batch_size=16, ranks=WORLD).ranks
    of_rank = []
    for rank in range(WORLD):
        run = shuffled()  # a rank is a process of its own
        ranges.clear()
        with tl.Loader(run, 16, rank, WORLD) as loader:
            for _ in loader:
                pass
        of_rank.append([(start, size) for _, start, size in asked(ranges)])
        sent = sum(size for _, size in of_rank[-1])
        assert (len(of_rank[-1]), sent) == (told[rank].reads, told[rank].bytes), rank
        assert run.counters().requests == len(of_rank[-1])
    whole = ROWS * SEQ_LEN * 2
    # every rank has rows in every block; with lanes each block goes to one rank
    assert sum(size for one in of_rank for _, size in one) == (whole if lanes > 1 else 4 * whole)
