"""The identity of foreign files: worked out once, remembered, never mistaken."""

import os

import numpy as np
import pytest
from everyformat import EVERY
from foreignfiles import some_documents, write_megatron

import tokenloom as tl
from tokenloom.foreign import companion, identities, sampled, virtual
from tokenloom.store import plan_cache
from tokenloom.testing import tiny


@pytest.fixture
def passes(monkeypatch, tmp_path):
    """Counts passes over the tokens; plans are kept in a folder of this test."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    counted = []

    def watched(*args, **options):
        counted.append(options["hashed"])
        return companion.worked_out(*args, **options)

    monkeypatch.setattr(identities, "worked_out", watched)
    return counted


@pytest.mark.parametrize("name", sorted(EVERY))
def test_the_pass_is_made_once(tmp_path, passes, name):
    folder = tmp_path / "files"
    folder.mkdir()
    path, said, expected = EVERY[name](folder, some_documents())
    stores = [tl.open(path, cache_bytes=0, **said) for _ in range(3)]
    assert passes == [True]
    assert len({store.digest for store in stores}) == 1
    assert [one.tolist() for one in stores[2].documents(range(len(expected)))] == expected
    assert stores[2].document_hashes(range(5)) == stores[0].document_hashes(range(5))


def test_a_changed_file_is_passed_over_again(tmp_path, passes):
    path = write_megatron(tmp_path / "x", some_documents())
    first = tl.open(path)
    ids = np.fromfile(f"{path}.bin", "<u2")
    ids[len(ids) // 2] ^= 1
    stamp = os.stat(f"{path}.bin")
    ids.tofile(f"{path}.bin")
    assert tl.open(path).digest != first.digest
    ids[len(ids) // 2] ^= 1
    ids.tofile(f"{path}.bin")
    os.utime(f"{path}.bin", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert tl.open(path).digest == first.digest
    assert len(passes) == 2  # the third is known


def test_a_change_that_keeps_size_and_time_is_found_by_the_sample(tmp_path, passes):
    path = write_megatron(tmp_path / "x", some_documents())
    first, stamp = tl.open(path), os.stat(f"{path}.bin")
    ids = np.fromfile(f"{path}.bin", "<u2")
    ids[0] += 1
    ids.tofile(f"{path}.bin")
    os.utime(f"{path}.bin", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert tl.open(path).digest != first.digest


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, passes, monkeypatch):
    (tmp_path / "no").write_text("a file")
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "no"))
    documents = some_documents()
    path = write_megatron(tmp_path / "x", documents)
    for _ in range(2):
        assert [one.tolist() for one in tl.open(path).documents(range(60))] == documents
    assert passes == [True, True]


def test_what_was_remembered_and_then_damaged_is_worked_out_again(tmp_path, passes):
    path = write_megatron(tmp_path / "x", some_documents())
    digest = tl.open(path).digest
    for kept in sorted((tmp_path / "cache").iterdir()):
        raw = bytearray(kept.read_bytes())
        raw[len(raw) - 5] ^= 1
        kept.write_bytes(raw)
        assert tl.open(path).digest == digest


def no_hashes(parts):
    """The parts of a companion with zeros in place of all but the first, which has the offsets."""
    return [bytes(len(part)) if number else part for number, part in enumerate(parts)]


@pytest.mark.parametrize("wrong", ["hashes", "shards", "groups", "shape"])
def test_what_was_remembered_wrongly_with_a_right_sha256_is_worked_out_again(
    tmp_path, passes, monkeypatch, wrong
):
    path = write_megatron(tmp_path / "x", some_documents())
    right = plan_cache.remember, plan_cache.remember_parts
    spoil = {
        "shards": lambda value: value | {"shards": [[0, 0, 7, 60, 0]]},
        "groups": lambda value: value | {"groups": ["zz"]},
        "shape": lambda value: {"shards": [[1]]},
    }.get(wrong, lambda value: value)
    monkeypatch.setattr(plan_cache, "remember", lambda k, i, v: right[0](k, i, spoil(v)))
    if wrong == "hashes":
        monkeypatch.setattr(
            plan_cache, "remember_parts", lambda k, i, p: right[1](k, i, no_hashes(p))
        )
    digest = tl.open(path).digest
    monkeypatch.setattr(plan_cache, "remember", right[0])
    monkeypatch.setattr(plan_cache, "remember_parts", right[1])
    assert tl.open(path).digest == tl.open(path).digest == digest
    assert passes == [True, True]


def test_a_sample_is_told_and_never_taken_for_a_full_identity(tmp_path, passes, copied):
    foreign, own, _ = copied("megatron int32", identity="sample")
    full = tl.open(foreign.path, vocab_size=1000)
    assert foreign.digest not in (full.digest, own.digest)
    assert passes == [False, True]
    run = foreign.windows(16).shuffle()
    assert run.describe()["store"]["identity"] == "sample"
    assert tl.from_config(run.describe()).fingerprint == run.fingerprint
    for other in (full, own):
        with tl.Loader(run, 4) as loader, tl.Loader(other.windows(16).shuffle(), 4) as target:
            next(loader)
            with pytest.raises(tl.StateError, match=r"store\.identity: the state has 'sample'"):
                target.load_state_dict(loader.state_dict())


def test_a_sample_is_the_same_wherever_the_same_tokens_are(tmp_path):
    documents = some_documents()
    found = {
        tl.open(write_megatron(tmp_path / f"x{number}", documents, dtype), identity="sample").digest
        for number, dtype in enumerate(("<u2", "<i4", "<i8"))
    }
    other = tl.open(write_megatron(tmp_path / "y", documents[::-1]), identity="sample").digest
    assert len(found) == 1
    assert other not in found


def test_under_a_sample_ids_are_looked_at_when_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sampled, "SAMPLE_PLACES", 0)
    documents = some_documents(count=9)
    documents[7] = [5, 7000, 6]
    path = write_megatron(tmp_path / "x", documents, "<i4")
    store = tl.open(path, vocab_size=1000, identity="sample", cache_bytes=0)
    assert store.document(1).tolist() == documents[1]
    with pytest.raises(tl.StoreCorrupt, match=r"\(token 1 of document 7\) is 7,000"):
        store.document(7)
    with pytest.raises(tl.ConfigError, match="hashes no documents"):
        store.document_hashes([0])


@tiny(foreign_shard_tokens=10)
def test_documents_are_cut_into_shards_that_hold_whole_documents(tmp_path):
    documents = [[1] * 4, [2] * 6, [], [3] * 25, [4] * 3, [5] * 8]
    store = tl.open(write_megatron(tmp_path / "x", documents))
    found = [(one.documents, one.tokens) for one in store.reader.inside.shards]
    assert found == [(3, 10), (1, 25), (1, 3), (1, 8)]


def test_a_document_above_the_limit_of_a_shard_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(virtual.fmt, "MAX_DOCUMENT_TOKENS", 20)
    path = write_megatron(tmp_path / "x", [[1], [2] * 21])
    with pytest.raises(tl.StoreError, match="document 1 has 21 tokens, allowed: up to 20"):
        tl.open(path)
