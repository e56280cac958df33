"""The identity of files of other formats: worked out once, remembered, never mistaken."""

import os
import shutil

import numpy as np
import pytest
from everyformat import EVERY
from foreignfiles import some_documents, write_megatron

import tokenloom as tl
from tokenloom.testing import tiny, write_store


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where plans and identities are remembered."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_remembered_identity_is_the_one_that_was_worked_out(tmp_path, name):
    (tmp_path / "files").mkdir()
    path, said, expected = EVERY[name](tmp_path / "files", some_documents())
    first, again = (tl.open(path, cache_bytes=0, **said) for _ in range(2))
    assert again.digest == first.digest
    assert [one.tolist() for one in again.documents(range(len(expected)))] == expected
    assert again.document_hashes(range(5)) == first.document_hashes(range(5))


def test_the_pass_over_the_tokens_is_made_once(bucket):
    pytest.importorskip("obstore")
    ids = np.resize(np.arange(997, dtype="<u2"), 3_000_000)
    bucket.put("a.ds", ids.tobytes())
    bucket.put("a.ds.index", np.array([1_000_000, len(ids)], "<u8").tobytes())
    sizes = []
    for _ in range(2):
        bucket.server.clear()
        tl.open(f"{bucket.url}/a.ds")
        sizes.append(sum(one["sent"] for one in bucket.server.log() if one["method"] == "GET"))
    assert sizes[0] > 2 * len(ids)
    assert sizes[1] < len(ids)


def test_changed_files_have_another_identity(tmp_path):
    path = write_megatron(tmp_path / "x", some_documents())
    first, stamp = tl.open(path), os.stat(f"{path}.bin")
    ids = np.fromfile(f"{path}.bin", "<u2")
    for keep_time in (False, True):  # a sample of the bytes finds it where size and time do not
        ids[len(ids) // 2] ^= 1
        ids.tofile(f"{path}.bin")
        assert tl.open(path).digest != first.digest
        ids[len(ids) // 2] ^= 1
        ids.tofile(f"{path}.bin")
        os.utime(f"{path}.bin", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert tl.open(path).digest == first.digest
        if keep_time:
            break
        ids[0] ^= 1
        ids.tofile(f"{path}.bin")
        os.utime(f"{path}.bin", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert tl.open(path).digest != first.digest
        ids[0] ^= 1


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, cache):
    cache.write_text("a file")
    documents = some_documents()
    path = write_megatron(tmp_path / "x", documents)
    for _ in range(2):
        store = tl.open(path)
        assert [one.tolist() for one in store.documents(range(60))] == documents
        assert store.document_hashes([3]) == tl.open(path).document_hashes([3])


def test_a_damaged_memory_of_the_identity_is_worked_out_again(tmp_path, cache):
    path = write_megatron(tmp_path / "x", some_documents())
    digest = tl.open(path).digest
    files = sorted(one for one in cache.rglob("*") if one.is_file())
    assert files
    for kept in files:
        whole = kept.read_bytes()
        for at in (5, len(whole) // 2, len(whole) - 5):
            raw = bytearray(whole)
            raw[at] ^= 1
            kept.write_bytes(raw)
            assert tl.open(path).digest == digest
        kept.write_bytes(whole[: len(whole) // 2])
        assert tl.open(path).digest == digest


def test_a_cache_that_is_emptied_while_a_store_is_open_is_an_error_with_its_path(tmp_path, cache):
    path = write_megatron(tmp_path / "x", some_documents())
    right = tl.open(path).document_hashes([3])
    store = tl.open(path)
    shutil.rmtree(cache)
    try:
        assert store.document_hashes([3]) == right
    except tl.StoreError as error:
        assert str(tmp_path) in str(error)  # noqa: PT017
    assert tl.open(path).document_hashes([3]) == right


def test_a_sample_is_never_taken_for_a_full_identity(tmp_path):
    documents = some_documents()
    path = write_megatron(tmp_path / "x", documents, "<i4")
    write_store(tmp_path / "own", [documents])
    sampled = tl.open(path, vocab_size=1000, identity="sample")
    others = tl.open(path, vocab_size=1000), tl.open(tmp_path / "own")
    assert others[0].digest == others[1].digest != sampled.digest
    run = sampled.windows(16).shuffle()
    assert run.describe()["store"]["identity"] == "sample"
    assert tl.from_config(run.describe()).fingerprint == run.fingerprint
    for other in others:
        with tl.Loader(run, 4) as loader, tl.Loader(other.windows(16).shuffle(), 4) as target:
            next(loader)
            with pytest.raises(tl.StateError, match=r"identity.*'sample'"):
                target.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("identity", ["sample", "full"])
def test_an_identity_is_the_same_wherever_the_same_tokens_are(tmp_path, identity):
    documents = some_documents()
    found = {
        tl.open(write_megatron(tmp_path / f"x{number}", documents, dtype), identity=identity).digest
        for number, dtype in enumerate(("<u2", "<i4", "<i8"))
    }
    other = tl.open(write_megatron(tmp_path / "y", documents[::-1]), identity=identity).digest
    assert len(found) == 1
    assert other not in found


def test_under_a_sample_ids_are_checked_when_they_are_read(tmp_path):
    """Of 200,000 tokens a sample looks at few; one of them is no id."""
    documents = [[number % 900] * 200 for number in range(1000)]
    refused = 0
    for number in (7, 400, 801):
        documents[number][100] = 7000
        path = write_megatron(tmp_path / str(number), documents, "<i4")
        documents[number][100] = 1
        try:
            store = tl.open(path, vocab_size=1000, identity="sample", cache_bytes=0)
        except tl.StoreCorrupt:
            continue  # the sample met it
        assert store.document(1).tolist() == documents[1]
        with pytest.raises(tl.StoreCorrupt, match=rf"token 100 of document {number}\b.* 7,000"):
            store.document(number)
        with pytest.raises(tl.ConfigError, match="identity"):
            store.document_hashes([0])
        refused += 1
    assert refused


@tiny(foreign_shard_tokens=10)
def test_documents_longer_than_a_shard_are_read_whole(tmp_path):
    documents = [[1] * 4, [2] * 6, [], [3] * 25, [4] * 3, [5] * 8]
    store = tl.open(write_megatron(tmp_path / "x", documents))
    assert [one.tolist() for one in store.documents(range(6))] == documents
    write_store(tmp_path / "own", [documents])
    assert store.digest == tl.open(tmp_path / "own").digest
