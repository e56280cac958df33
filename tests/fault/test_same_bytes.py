"""D14, D15, D16: the same inputs give the same bytes, whoever builds, with what, and when."""

import os
import subprocess
import sys
import time

import pytest
import zstandard
from kit import CHILD_PATH, QUICK, SMALL, assert_same_tree, read_everything, tree, write_corpus

import golden
import tokenloom as tl

# -- D14: the golden store -----------------------------------------------------------------

# A change here is a change of format: stores that people have would be read, named or continued
# differently. `python tests/fault/golden.py` makes the store again and prints these.
DIGEST = "a02e3578d1a66c66289983ab44ae260f31704533125f85a8a2071214983b09cc"
MANIFEST = "f0afbbbae3a6c4327c603463866fa2e91632e6305748423a4d34f268c0c51dfb"
FIRST_DIGEST = "79c2ad18bb009efa407bd27a1e3dbfbfd96de96a3fafe48249a12885ca78a9a3"
ZSTD_VERSION = (1, 5, 7)  # that wrote the compressed files of the golden store


def test_d14_the_golden_store_is_read_as_it_was_written():
    store = tl.open(golden.PATH, cache_bytes=0)
    assert store.lengths.tolist() == [6, 0, 6, 15, 3, 44, 8, 5]
    assert store.document(0).tolist() == [97, 32, 108, 111, 111, 109]
    assert store.document(3).tolist() == [
        *(90, 195, 188, 114, 105, 99, 104, 44, 32),
        *(230, 157, 177, 228, 186, 172),
    ]
    assert store.document(4).tolist() == [0, 10, 127]
    assert store.tokens(25, 33).tolist() == [186, 172, 0, 10, 127, 101, 110, 100]
    assert store.metadata(3) == {"_input": "rows-0", "_record": 3, "n": 3, "even": False}
    assert store.metadata(7) == {"_input": "rows-0", "_record": 1}
    assert (store.vocab_size, store.dtype.name, store.snapshot) == (256, "uint16", 2)
    assert [store.tokenizer.decode(d) for d in store.documents(range(6))] == golden.TEXTS
    assert tl.open(golden.PATH, snapshot=1).num_documents == 6
    assert store.verify(progress=False).ok


def test_d14_the_golden_store_has_its_identity():
    store = tl.open(golden.PATH)
    assert store.digest == DIGEST
    assert store.manifest_sha256 == MANIFEST
    assert tl.open(golden.PATH, snapshot=1).digest == FIRST_DIGEST


def test_d14_the_golden_store_made_today_has_the_same_bytes(scratch):
    golden.make(scratch / "s")
    expected = tree(golden.PATH)
    if zstandard.ZSTD_VERSION == ZSTD_VERSION:
        assert_same_tree(scratch / "s", expected)
    # another zstd may pack the documents differently, and so change what records say of that file
    found = tree(scratch / "s")
    assert found.keys() == expected.keys()
    for name in expected:
        if name.endswith(("/c/0", "zarr.json")):
            assert found[name] == expected[name], name
    assert tl.open(scratch / "s").digest == DIGEST


def test_d14_the_golden_store_is_small_and_opening_it_writes_nothing():
    before = tree(golden.PATH)
    assert sum(len(raw) for raw in before.values() if raw) < 60_000
    assert not read_everything(golden.PATH).errors
    assert sorted(os.listdir(golden.PATH)) == sorted(n for n in before if "/" not in n)


# -- D15: workers --------------------------------------------------------------------------


def test_d15_one_two_and_seven_workers_write_the_same_bytes(scratch):
    inputs = write_corpus(scratch / "in", count=120, files=3)
    tl.build(inputs, scratch / "one", workers=1, files=QUICK, **SMALL)
    expected = tree(scratch / "one")
    assert sum(name.endswith("shard.json") for name in expected) > 10
    for workers in (2, 7):
        tl.build(inputs, scratch / str(workers), workers=workers, files=QUICK, **SMALL)
        assert_same_tree(scratch / str(workers), expected, f"{workers} workers")


def test_d15_a_build_begun_by_one_process_and_finished_by_workers_has_the_same_bytes(scratch):
    from faultfiles import FaultFiles

    inputs = write_corpus(scratch / "in", count=120)
    tl.build(inputs, scratch / "one", files=QUICK, **SMALL)
    with pytest.raises(OSError, match="No space"):
        tl.build(inputs, scratch / "s", files=FaultFiles(QUICK, at=300, action="stop"), **SMALL)
    tl.build(inputs, scratch / "s", workers=2, files=QUICK, **SMALL)
    assert_same_tree(scratch / "s", tree(scratch / "one"))


# -- D16: clocks, dates, surroundings ------------------------------------------------------


def test_d16_neither_the_clock_nor_the_dates_of_files_change_a_byte(scratch, monkeypatch):
    inputs = write_corpus(scratch / "in", files=2)
    tl.build(inputs, scratch / "one", files=QUICK, **SMALL)
    expected = tree(scratch / "one")
    for moment in (0.0, 1.0, 4_102_444_800.0):
        for name in ("time", "monotonic", "perf_counter"):
            monkeypatch.setattr(time, name, lambda moment=moment: moment)
        for path in inputs:
            os.utime(path, (moment, moment))
        target = scratch / f"at-{moment}"
        tl.build(inputs, target, files=QUICK, **SMALL)
        assert_same_tree(target, expected, f"at {moment}")


def test_d16_neither_hash_seeds_nor_locale_nor_place_change_a_byte(scratch):
    inputs = write_corpus(scratch / "in", files=2)
    tl.build(inputs, scratch / "one", files=QUICK, **SMALL)
    expected = tree(scratch / "one")
    code = (
        "import os, sys; os.umask(0o077); from inside import build; from kit import SMALL; "
        "build(sys.argv[2:], sys.argv[1], SMALL)"
    )
    surroundings = {"PYTHONHASHSEED": "77", "TZ": "Pacific/Apia", "LC_ALL": "C", "LANG": "C"}
    relative = [os.path.relpath(path, scratch / "in") for path in inputs]
    subprocess.run(
        [sys.executable, "-c", code, str(scratch / "two"), *relative],
        check=True,
        cwd=scratch / "in",
        env={**os.environ, **surroundings, "PYTHONPATH": CHILD_PATH},
    )
    assert_same_tree(scratch / "two", expected)
