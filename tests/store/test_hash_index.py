"""A kept index of hashes finds what reading all hashes finds, or is not believed."""

import hashlib

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.store import plan_cache
from tokenloom.store.derived import hash_index
from tokenloom.store.derived.duplicates import find_hash
from tokenloom.store.derived.hash_index import ITEM, KIND, keep_hash_index, kept_hash_index
from tokenloom.testing import tiny


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Few documents make many parts, in a cache of their own."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    with tiny(hash_index_part_documents=7):
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Documents in several shards, every third of them twice, ten of them empty."""
    texts = [f"document {k - k % 3 // 2}" for k in range(200)] + [""] * 10
    path = tmp_path_factory.mktemp("stores") / "s"
    rows = [{"text": text} for text in texts]
    return tl.build(rows, path, tokenizer="bytes", progress=False, shard_tokens=512)


def files():
    return sorted(plan_cache.cache_dir().glob("*"))


def every_hash(store):
    return store.document_hashes(range(store.num_documents))


@pytest.mark.parametrize("budget", [1 << 30, 2000, 1], ids=["one round", "some", "one a part"])
def test_all_documents_of_a_hash_are_found(store, budget):
    with tiny(hash_index_sort_bytes=budget):
        said = []
        assert kept_hash_index(store.reader) is None
        assert keep_hash_index(store.reader, said.append)
        index = kept_hash_index(store.reader)
        hashes = every_hash(store)
        for digits in {
            *hashes,
            *(one[:8] for one in hashes),
            *(one[:17].upper() for one in hashes),
        }:
            known = find_hash(store.reader, digits)
            assert len(known) > 0
            np.testing.assert_array_equal(index.find(digits, 99), known)
        for wanted in (
            "0" * 8,
            "f" * 32,
            hashes[0][:31] + "0123456789abcdef"[hashes[0][31] == "0"],
        ):
            assert len(index.find(wanted, 99)) == len(find_hash(store.reader, wanted)) == 0
        assert said[-1] == "sorting the hashes of 210 documents, 100%"


def test_the_first_of_many_equal_documents_are_given(store):
    keep_hash_index(store.reader)
    empty = every_hash(store)[205]
    assert kept_hash_index(store.reader).find(empty, 4).tolist() == [200, 201, 202, 203]


@pytest.mark.parametrize("wanted", ["", "0123456", "x" * 8, "0" * 33])
def test_what_is_no_hash_is_refused(store, wanted):
    keep_hash_index(store.reader)
    with pytest.raises(tl.ConfigError, match="8 to 32 hex digits"):
        kept_hash_index(store.reader).find(wanted, 9)


def test_a_look_up_reads_one_part_and_the_hashes_of_what_it_finds(store, monkeypatch):
    keep_hash_index(store.reader)
    index, asked = kept_hash_index(store.reader), []
    monkeypatch.setattr(
        hash_index,
        "stored_hashes",
        lambda reader, first, last: asked.append(last - first) or real(reader, first, last),
    )
    index.find(every_hash(store)[4], 99)
    assert sum(asked) == 2  # and not 210
    asked.clear()
    index.find("0" * 32, 99)
    assert asked == []


real = hash_index.stored_hashes


def rewritten(store, change):
    """Keep an index with valid digests whose entries were changed."""
    parts = [np.frombuffer(one, ITEM).copy() for one in hash_index._sorted_parts(store.reader, len)]
    change(parts)
    identity = hash_index._identity(store.reader)
    assert plan_cache.remember_parts(KIND, identity, (one.tobytes() for one in parts))


def largest(parts):
    return max(parts, key=len)


def swap(parts):
    one = largest(parts)["document"]
    one[[0, -1]] = one[[-1, 0]]


def leave_out(parts):
    """Every document is replaced by its neighbour, so that as many are there as before."""
    for one in parts:
        one["document"][:] = one["document"][:1]


def drop(parts):
    parts[:] = [one[:-1] for one in parts]


def turn(parts):
    parts[:] = [one[::-1] for one in parts]


def exceed(parts):
    for one in parts:
        one["document"] += 10**6


@pytest.mark.parametrize("change", [leave_out, drop, turn, exceed])
def test_a_file_of_other_entries_is_never_believed_and_is_removed(store, change):
    rewritten(store, change)
    assert len(files()) == 1
    assert kept_hash_index(store.reader) is None
    assert files() == []


def test_control_the_same_entries_are_believed(store):
    rewritten(store, lambda parts: None)
    assert kept_hash_index(store.reader) is not None


def test_what_passes_the_random_look_is_still_compared_with_the_store(store, monkeypatch):
    rewritten(store, swap)
    monkeypatch.setattr(hash_index, "random_places", lambda count: np.arange(0))
    index = kept_hash_index(store.reader)
    found = [index.find(one, 99) for one in dict.fromkeys(every_hash(store))]
    assert any(one is None for one in found)
    assert files() == []


def test_a_damaged_part_is_no_answer(store):
    keep_hash_index(store.reader)
    index, (path,) = kept_hash_index(store.reader), files()
    raw = bytearray(path.read_bytes())
    for place in range(0, 210 * ITEM.itemsize, 16):
        raw[place + 8] ^= 1
    path.write_bytes(bytes(raw))
    assert index.find(every_hash(store)[0], 9) is None
    keep_hash_index(store.reader)
    (path,) = files()
    path.write_bytes(bytes(raw))
    assert kept_hash_index(store.reader) is None
    assert files() == []


def test_other_documents_have_another_index(store, tmp_path):
    keep_hash_index(store.reader)
    (path,) = files()
    rows = [{"text": f"another {k}"} for k in range(210)]
    other = tl.build(rows, tmp_path / "o", tokenizer="bytes", progress=False)
    assert kept_hash_index(other.reader) is None
    keep_hash_index(other.reader)
    (second,) = set(files()) - {path}
    second.write_bytes(path.read_bytes())  # the index of one store under the name of the other
    assert kept_hash_index(other.reader) is None
    assert kept_hash_index(store.reader) is not None


def test_whoever_stops_it_leaves_nothing_behind(store):
    class Enough(Exception):
        pass

    def stop(what):
        raise Enough

    with pytest.raises(Enough):
        keep_hash_index(store.reader, stop)
    assert files() == []


def test_the_file_is_the_same_however_it_was_sorted(store):
    digests = set()
    for budget in (1 << 30, 3000, 1):
        with tiny(hash_index_sort_bytes=budget):
            keep_hash_index(store.reader)
            digests.add(hashlib.sha256(files()[0].read_bytes()).hexdigest())
    assert len(digests) == 1


def test_an_empty_store_has_an_empty_index(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    with pytest.warns(UserWarning, match="no documents"):
        store = tl.build(tmp_path / "a.jsonl", tmp_path / "s", tokenizer="bytes", progress=False)
    keep_hash_index(store.reader)
    assert kept_hash_index(store.reader).find("0" * 8, 9).tolist() == []
