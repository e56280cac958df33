"""Foreign files in a bucket: which requests there are, and what is noticed."""

import logging
import pickle

import numpy as np
import pytest
from buckets import upload
from foreignfiles import WRITERS
from leaking import leaks, told

import tokenloom as tl
from tokenloom.cli import main

LARGE = 600_000  # tokens: 1.2 MB, four times what a sample looks at


def documents(seed=1, tokens=LARGE):
    rng = np.random.Generator(np.random.PCG64(seed))
    return [part.tolist() for part in np.split(rng.integers(1, 900, tokens), 2000)]


@pytest.fixture
def files(ranges, place, tmp_path, monkeypatch):
    """Megatron files in the bucket, and the same ones here."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    folder = tmp_path / "files"
    folder.mkdir()
    path, _, expected = WRITERS["megatron uint16"](folder, documents())
    upload(folder, place)
    return f"{place}/corpus", path, expected


def gets(ranges):
    return [one for one in ranges.log() if one["method"] == "GET"]


def test_opening_a_remembered_identity_reads_no_tokens(ranges, files):
    url, path, _ = files
    first = tl.open(url)
    assert sum(one["size"] for one in gets(ranges) if one["key"].endswith(".bin")) > 2 * LARGE
    ranges.clear()
    second = tl.open(url)
    assert first.digest == second.digest == tl.open(path).digest
    log = ranges.log()
    sampled = [one["size"] for one in gets(ranges) if one["key"].endswith(".bin")]
    assert max(sampled) <= 4096
    assert len(sampled) <= 200  # a sample, and random documents that are hashed again
    assert sum(sampled) < LARGE
    others = [one["method"] for one in log if one["method"] != "GET"]
    # is it ours, is it a folder; and each of the files, and of those that could be there, once
    assert others.count("LIST") <= 4
    keys = [one["key"] for one in log if one["method"] == "HEAD"]
    assert len(keys) <= len(set(keys)) + 1


def test_reading_asks_for_what_was_planned_and_counts_it(ranges, files):
    url, _, expected = files
    store = tl.open(url, cache_bytes=0)
    ranges.clear()
    before = store.reads.requests
    assert store.document(7).tolist() == expected[7]
    (asked,) = gets(ranges)
    assert asked["size"] == 2 * len(expected[7])
    assert store.reads.requests == before + 1
    run = tl.open(url).windows(256).block_shuffle(window_blocks=2)
    ranges.clear()
    before = run.counters()
    with tl.Loader(run, 64) as loader:
        for _ in loader:
            pass
    after = run.counters()
    assert sum(one["size"] for one in gets(ranges)) == after.bytes - before.bytes > LARGE
    assert len(gets(ranges)) == after.requests - before.requests == after.read_ops - before.read_ops


@pytest.mark.parametrize("fault", [{"etag_after": 1}, {"etag_after": 1, "ignore_conditions": True}])
def test_an_object_that_changes_while_it_is_open_is_corrupt(ranges, files, fault):
    url, _, _ = files
    store = tl.open(url, cache_bytes=0)
    ranges.set(**fault)
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin"):
        [store.document(number) for number in range(3)]


def test_a_file_that_was_replaced_is_another_store(ranges, files, place, tmp_path):
    url, _, _ = files
    first = tl.open(url)
    pickled = pickle.dumps(first)
    changed = tmp_path / "changed"
    changed.mkdir()
    path, _, _ = WRITERS["megatron uint16"](changed, documents(seed=2))
    upload(changed, place)
    second = tl.open(url)
    assert second.digest == tl.open(path).digest != first.digest
    with pytest.raises(tl.StoreError, match="corpus"):
        pickle.loads(pickled)


def test_seals_conditions_and_errors_hold_no_credential(ranges, files, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    url, _, expected = files
    assert main(["seal", url, "--quiet"]) == 0
    puts = [one["key"] for one in ranges.log() if one["method"] == "PUT"]
    assert [key for key in puts if ".seal" in key] == [puts[-1]]
    store = tl.open(url, cache_bytes=0)
    assert store.check(progress=False).unguarded == ()
    assert store.document(3).tolist() == expected[3]
    run = store.windows(16).shuffle()
    shown = [store, run, run.describe(), store.check(progress=False)]
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert leaks(*shown, *kept, pickle.dumps(store), pickle.dumps(run), caplog.text) == []
    ranges.set(expire_after=1)
    with pytest.raises(tl.TokenloomError) as caught:
        store.documents(range(40))
    assert leaks(told(caught.value), caplog.text) == []


def test_a_bucket_that_ignores_conditions_gets_no_seal(ranges, files, capsys):
    url, _, _ = files
    ranges.set(ignore_conditions=True)
    assert main(["seal", url, "--quiet"]) == 1
    assert "If-None-Match" in capsys.readouterr().err
    assert tl.open(url).check(progress=False).unguarded


def test_a_seal_whose_create_was_refused_in_conflict_is_written(ranges, files, capsys):
    url, _, _ = files
    ranges.set(conflicts=1, only=".seal")
    assert main(["seal", url, "--quiet"]) == 0
    puts = [one for one in ranges.log() if one["method"] == "PUT" and ".seal" in one["key"]]
    assert [one["status"] for one in puts] == [409, 200]
    assert not tl.open(url).check(progress=False).unguarded
    ranges.set()
    assert main(["seal", url, "--quiet"]) == 1  # the control: now its name is taken
