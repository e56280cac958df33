"""A pass over everything keeps a bucket busy, asks for what it would ask for alone, and is bounded.

The server says how many requests were under way when each began. Beside every count stands the same
pass with one request at a time: the requests are the same ones, only later.
"""

import collections
import itertools

import numpy as np
import pytest
from buckets import upload
from everyformat import EVERY
from toyruns import toy_store

import tokenloom as tl
from tokenloom.cli import main
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
