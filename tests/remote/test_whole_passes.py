"""A pass over everything keeps a bucket busy, asks for what it would ask for alone, and is bounded.

The server says how many requests were under way when each began. Beside every count stands the same
pass with one request at a time: the requests are the same ones, only later.
"""

import collections
import itertools
import threading
import time

import numpy as np
import pytest
from everyformat import EVERY
from test_read_stores import upload
from toyruns import toy_store

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.errors import StoreCorrupt
from tokenloom.store.derived.ahead import in_turn
from tokenloom.testing import tiny

LATENCY = 0.1  # seconds: what 32 requests take to begin is a tenth of it, or less

MANY = 24  # of 32: a machine may be busy

SHORT, SOME = 0.04, 12  # where much is asked for one after the other


@pytest.fixture(autouse=True)
def plans(tmp_path, monkeypatch):
    """A cache directory that can be emptied, and stretches so short that a toy has many."""
    with tiny(foreign_chunk_tokens=1 << 11):
        numbers = itertools.count()

        def fresh():
            monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / f"plans-{next(numbers)}"))

        fresh()
        yield fresh


def documents(tokens, count):
    rng = np.random.Generator(np.random.PCG64(1))
    return [part.tolist() for part in np.array_split(rng.integers(1, 900, tokens), count)]


def files_of(kind, tmp_path, place, tokens=200_000, count=900):
    """The files of a format in the bucket: their URL, and what must be said."""
    folder = tmp_path / "files"
    folder.mkdir()
    path, said, _ = EVERY[kind](folder, documents(tokens, count))
    upload(folder, place)
    inside = str(path)[len(str(folder)) :]
    return f"{place}{inside}", said


def asked(ranges, part=""):
    """The requests for bytes, as a count of each."""
    log = [one for one in ranges.log() if one["method"] == "GET" and part in one["key"]]
    return collections.Counter((one["key"], one["start"], one["size"]) for one in log)


def together(ranges, part=""):
    """The most requests that were under way at the same time."""
    return max(one["in_flight"] for one in ranges.log() if part in one["key"])


def watched(ranges, plans, monkeypatch, work, part="", latency=LATENCY):
    """What `work` asks for, and how many at a time: with 32 requests in flight, and with one."""
    found = []
    for flying in (32, 1):
        monkeypatch.setenv("TOKENLOOM_REMOTE_IN_FLIGHT", str(flying))
        plans()
        ranges.clear()
        ranges.set(latency=latency if flying > 1 else 0.0)
        work()
        ranges.set()
        found.append((asked(ranges), together(ranges, part)))
    (many, most), (single, least) = found
    assert many == single
    assert least == 1
    return most


@pytest.mark.parametrize(
    ("kind", "part"), [("megatron uint16", ".bin"), ("flat uint16", "train.bin")]
)
def test_the_identity_of_files_is_found_with_many_ranges_under_way(
    ranges, place, tmp_path, plans, monkeypatch, kind, part
):
    url, said = files_of(kind, tmp_path, place)
    assert watched(ranges, plans, monkeypatch, lambda: tl.open(url, **said), part) >= MANY


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("parquet, two files", SOME),  # row groups
        ("arrow as a stream", SOME),  # batches
        ("levanter", SOME),  # chunks
        ("litdata, three chunks", 3),  # tables of files; then the ids in place
        ("mds", 2),  # files
    ],
)
@tiny(foreign_chunk_tokens=64)
def test_what_must_be_decoded_is_fetched_ahead_and_once(
    ranges, place, tmp_path, plans, monkeypatch, kind, least
):
    url, said = files_of(kind, tmp_path, place, 1_500, 240)

    def work():
        tl.open(url, **said)

    assert watched(ranges, plans, monkeypatch, work, latency=SHORT) >= least


def test_a_seal_is_made_with_many_ranges_under_way(ranges, place, tmp_path, plans, monkeypatch):
    url, _ = files_of("megatron uint16", tmp_path, place)
    numbers = itertools.count()

    def work():
        to = str(tmp_path / f"{next(numbers)}.seal")
        assert main(["seal", url, "--to", to, "--quiet"]) == 0

    assert watched(ranges, plans, monkeypatch, work, ".bin") >= MANY
    first, second = ((tmp_path / f"{number}.seal").read_bytes() for number in range(2))
    assert first == second


def test_files_of_others_are_verified_with_many_ranges_under_way(
    ranges, place, tmp_path, plans, monkeypatch
):
    url, _ = files_of("megatron uint16", tmp_path, place)

    def work():
        assert tl.open(url).check(progress=False).problems == ()

    assert watched(ranges, plans, monkeypatch, work, ".bin") >= MANY


def test_a_store_of_ours_is_verified_with_many_ranges_under_way(
    ranges, place, tmp_path, plans, monkeypatch
):
    local = toy_store(tmp_path / "s", rows=160)
    upload(local.path, place)

    def work():
        assert tl.open(place).verify(progress=False).ok

    assert watched(ranges, plans, monkeypatch, work, latency=SHORT) >= SOME


def test_damage_is_told_as_from_a_disk(ranges, place, tmp_path):
    local = toy_store(tmp_path / "s", rows=60)
    for path in sorted(local.path.glob("shard-*/[!c]*/c/0")):  # all but the checksums
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 3] ^= 1
        path.write_bytes(raw)
    upload(local.path, place)
    here = tl.open(local.path).check(progress=False).problems
    there = tl.open(place).check(progress=False).problems
    assert len(here) > 5
    assert [one.replace(str(local.path), place) for one in here] == list(there)


# -- the mechanism -----------------------------------------------------------------------------


class Many:
    """A source that answers eight requests at once."""

    parallel = 8


def test_things_come_in_order_and_no_more_are_held_than_allowed():
    lock, alive, most = threading.Lock(), 0, 0

    def make(number):
        nonlocal alive, most
        with lock:
            alive += 10
            most = max(most, alive)
        return number

    makes = ((10, lambda number=number: make(number)) for number in range(200))
    end = time.monotonic() + 20
    for wanted, found in enumerate(in_turn(makes, Many(), most=40)):
        assert found == wanted
        while not wanted and most < 40 and time.monotonic() < end:
            time.sleep(0.001)  # the threads fill what there is room for
        with lock:
            alive -= 10
    assert wanted == 199
    assert 40 <= most <= 50  # what is ready, and what is looked at


def test_one_thing_that_is_larger_than_allowed_comes_alone():
    makes = [(100, lambda: "a"), (100, lambda: "b")]
    assert list(in_turn(makes, Many(), most=10)) == ["a", "b"]


def test_what_fails_is_raised_when_it_is_its_turn_and_once():
    calls = []

    def make(number):
        calls.append(number)
        if number == 3:
            raise StoreCorrupt(f"file {number}: damaged. Restore it.")
        return number

    makes = ((1, lambda number=number: make(number)) for number in range(9))
    found = in_turn(makes, Many())
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(StoreCorrupt, match="file 3"):
        next(found)
    assert calls.count(3) == 1


def test_where_no_thread_can_be_started_everything_is_made_all_the_same(monkeypatch):
    def none(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("tokenloom.store.cache._thread.start_new_thread", none)
    makes = ((1, lambda number=number: number) for number in range(50))
    assert list(in_turn(makes, Many())) == list(range(50))
