"""D14, D15, D16: the same inputs give the same bytes, whoever builds, with what, and when."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import zstandard
from kit import CHILD_PATH, QUICK, SMALL, assert_same_tree, read_everything, tree, write_corpus
from slowhash import slow_digest

import golden
import tokenloom as tl
from tokenloom.store.loss_counts import loss_counts

# -- D14: the golden store -----------------------------------------------------------------

# A change here is a change of format: stores that people have would be read, named or continued
# differently. `python tests/fault/golden.py` makes the store again and prints these.
DIGEST = "7826d58b0562511a16f514657cd492f62c37d0c620ecc862caee91b8242bdc2d"
MANIFEST = "cf63b067021df3901431e7b08cb007bc1f27d043da4e9a85d9bed8aeaa0fd543"
FIRST_DIGEST = "030247898a60acae2143d7cfab596309b82375222f8d053a4ac22d7b77b3c535"
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
    origin = {"_input": "rows-0", "_record": 3}
    assert store.metadata(3) == {**origin, "id": "doc-3", "n": 3, "even": False}
    assert store.metadata(7) == {"_input": "rows-0", "_record": 1}
    assert (store.vocab_size, store.dtype.name, store.snapshot) == (256, "uint16", 2)
    assert [store.tokenizer.decode(d) for d in store.documents(range(6))] == golden.TEXTS
    assert store.document(2, "loss_mask").tolist() == [1, 1, 0, 1, 1, 1]
    assert store.find("doc-4").tolist() == [4]
    assert store.find(hash=store.document_hashes([7])[0]).tolist() == [7]
    assert store.duplicates() == []
    found = loss_counts(store.reader, "loss_mask", np.array([0, 6]), np.array([87, 12]))
    assert found.tolist() == [54, 5]
    columns = {"input_ids", "offsets", "doc_hash", "column_hash", "loss_mask", "id_index"}
    columns |= {"loss_mask_counts", "crc32c", "page_crc32c"}
    assert store.reader.shard(0).columns.keys() == columns - {"crc32c"}
    assert tl.open(golden.PATH, snapshot=1).num_documents == 6
    assert store.verify(progress=False).ok


def test_d14_the_golden_store_has_its_identity():
    store = tl.open(golden.PATH)
    assert store.digest == DIGEST
    assert store.manifest_sha256 == MANIFEST
    assert tl.open(golden.PATH, snapshot=1).digest == FIRST_DIGEST
    rows = [golden.tokens(text) for text in [*golden.TEXTS, *golden.MORE]]
    documents, masks = ([row[name] for row in rows] for name in ("input_ids", "loss_mask"))
    assert slow_digest(documents, {"loss_mask": masks}) == DIGEST
    assert slow_digest(documents[:6], {"loss_mask": masks[:6]}) == FIRST_DIGEST


def test_d14_the_golden_store_made_today_has_the_same_bytes(scratch):
    golden.make(scratch / "s")
    expected = tree(golden.PATH)
    if zstandard.ZSTD_VERSION == ZSTD_VERSION:
        assert_same_tree(scratch / "s", expected)
    # another zstd may pack documents and masks differently, and so change what is said of those
    found = tree(scratch / "s")
    assert found.keys() == expected.keys()
    for name in expected:
        packed = name.endswith(("loss_mask/c/0", "/crc32c/c/0"))
        if name.endswith(("/c/0", "zarr.json")) and not packed:
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
    from tokenloom.testing import FaultFiles

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
