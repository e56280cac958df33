import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toystore import random_shards, write_store

import tokenloom as tl
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource

LOSS = {"loss_mask": ("uint8", lambda ids: ids % 2)}


@pytest.fixture(scope="module")
def shards():
    return random_shards(0)


@pytest.fixture(scope="module")
def root(tmp_path_factory, shards):
    root = tmp_path_factory.mktemp("reader") / "s"
    write_store(root, shards, columns=LOSS)
    return root


@pytest.fixture(scope="module")
def flat(shards):
    return np.array([t for s in shards for d in s for t in d], np.int32)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize(
    "hints", [{}, {"verify": "always"}, {"verify": "never"}, {"gap_bytes": 40}, {"cap_bytes": 24}]
)
def test_any_ranges_equal_slices_of_the_flat_array(root, flat, hints, data):
    store = tl.open(root, cache_bytes=1 << 20, **hints)
    n = len(flat)
    pair = st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted)
    asked = data.draw(st.lists(pair, max_size=12))
    start = np.array([a for a, _ in asked], np.int64)
    stop = np.array([b for _, b in asked], np.int64)
    for column, values in (("input_ids", flat), ("loss_mask", flat % 2)):
        views = store.reader.read(start, stop, column)
        got = np.concatenate([np.empty(0, np.int64), *views])
        assert np.array_equal(got, np.concatenate([np.empty(0), *[values[a:b] for a, b in asked]]))
    for a, b in asked:
        assert np.array_equal(store.tokens(a, b), flat[a:b])
        assert np.array_equal(store.tokens(a, b, column="loss_mask"), flat[a:b] % 2)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_documents_of_any_index_list_equal_one_by_one(root, shards, data):
    documents = [d for s in shards for d in s]
    store = tl.open(root)
    indices = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=20))
    assert [d.tolist() for d in store.documents(indices)] == [documents[i] for i in indices]
    masks = store.documents(indices, column="loss_mask")
    assert [m.tolist() for m in masks] == [[t % 2 for t in documents[i]] for i in indices]


def test_all_ranges_of_a_request_go_out_in_one_call_over_all_shards(root, flat):
    source = FaultSource(LocalSource(root))
    store = tl.open(root, source=source, verify="never")
    for shard in range(3):
        store.reader.shard(shard)
    source.requests.clear()
    start = np.arange(0, len(flat) - 10, 97)
    store.reader.read(start, start + 5)
    assert len(source.requests) == 1
    assert len({name for name, _, _ in source.requests[0]}) == 3


def test_counters_come_from_the_seam(root):
    source = FaultSource(LocalSource(root))
    store = tl.open(root, source=source, cache_bytes=0)
    for a in range(0, 300, 37):
        store.tokens(a, a + 20)
    data = [r for q in source.requests for r in q if "input_ids" in r[0]]
    assert store.reads.read_ops == len(data)
    assert store.reads.bytes == sum(size for _, _, size in data)
    assert store.reads.useful_bytes <= store.reads.bytes


def test_each_chunk_is_checked_once_and_later_reads_take_only_what_they_need(root):
    source = FaultSource(LocalSource(root))
    store = tl.open(root, source=source)
    store.tokens(3, 5)
    store.tokens(3, 5)
    sizes = [r[2] for q in source.requests for r in q if "input_ids" in r[0]]
    assert sizes == [32, 4]  # a whole chunk of 16 ids, then two ids


def test_a_block_is_read_once_and_served_from_memory_afterwards(root, flat):
    store = tl.open(root, cache_bytes=1 << 20)
    first = store.reader.block(0, 0)
    before = store.reads.read_ops
    assert store.reader.block(0, 0) is first
    assert store.reads.read_ops == before
    assert np.array_equal(first, flat[: store.chunk_tokens])
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_mutating_what_was_returned_never_changes_what_the_next_reader_sees(root, flat):
    store = tl.open(root)
    store.tokens(0, 50)[:] = 7
    store.document(1)[:] = 7
    assert np.array_equal(store.tokens(0, 50), flat[:50])


def test_threads_share_a_store(root, flat):
    store, wrong = tl.open(root, cache_bytes=1 << 16), []

    def work(seed):
        for i in range(200):
            a = (seed * 7919 + i * 104_729) % (len(flat) - 40)
            if not np.array_equal(store.tokens(a, a + 40), flat[a : a + 40]):
                wrong.append(a)
            store.document((seed + i) % 36)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert store.reads.examples == 8 * 400


def test_more_shards_than_open_files_still_read(tmp_path):
    shards = [[[i, i + 1]] for i in range(20)]
    write_store(tmp_path / "s", shards)
    store = tl.open(tmp_path / "s", source=LocalSource(tmp_path / "s", open_files=3))
    assert store.tokens(0, 40).tolist() == [t for s in shards for t in s[0]]
    assert len(store.reader.source._handles) <= 3


@pytest.mark.parametrize("bad", [-1, 36, 10**12])
def test_documents_outside_the_store_are_index_errors(root, bad):
    store = tl.open(root)
    with pytest.raises(IndexError, match=f"{bad} of 36"):
        store.document(bad)
    with pytest.raises(IndexError):
        store.metadata(bad)


@pytest.mark.parametrize(("a", "b"), [(-1, 3), (3, 2), (0, 10**9)])
def test_token_ranges_outside_the_store_are_index_errors(root, a, b):
    with pytest.raises(IndexError, match="num_tokens"):
        tl.open(root).tokens(a, b)


def test_wrong_arguments_are_named(root):
    with pytest.raises(tl.ConfigError, match="verify: found 'sometimes'"):
        tl.open(root, verify="sometimes")
    with pytest.raises(tl.ConfigError, match="gap_bytes"):
        tl.open(root, gap_bytes=-1)
    with pytest.raises(tl.ConfigError, match="path"):
        tl.open("")
    with pytest.raises(TypeError, match="integers"):
        tl.open(root).documents([0.5])
    with pytest.raises(KeyError, match="loss_maks"):
        tl.open(root).tokens(0, 1, column="loss_maks")


def test_a_store_travels_to_another_process_as_its_path(root, flat):
    store = tl.open(root, verify="always")
    copy = pickle.loads(pickle.dumps(store))
    assert np.array_equal(copy.tokens(0, 30), flat[:30])
    assert copy.reader.rules.verify == "always"
    assert len(pickle.dumps(store)) < 600


def test_a_platform_without_preadv_reads_the_same_bytes(root, flat, monkeypatch):
    from tokenloom.store import byte_source

    monkeypatch.setattr(byte_source, "_READ", byte_source._pread)
    assert np.array_equal(tl.open(root).tokens(0, len(flat)), flat)


def test_large_reads_stand_where_the_copy_is_fast():
    from tokenloom.store.byte_source import place_buffers
    from tokenloom.store.slabs import PAGE, SAFE

    ranges = [("f", offset, 70_000) for offset in (0, 2, 16, 4090, 65_536, 99_999)]
    for (_, offset, size), buffer in zip(ranges, place_buffers(ranges), strict=True):
        address = buffer.__array_interface__["data"][0]
        distance = (address - offset) % PAGE
        assert distance == 0 or distance >= SAFE
        assert len(buffer) == size


def test_buffers_of_a_request_never_overlap():
    from tokenloom.store.byte_source import place_buffers

    buffers = place_buffers([("f", i * 3, 40_000 + i) for i in range(6)])
    for i, buffer in enumerate(buffers):
        buffer[:] = i
    assert all((buffer == i).all() for i, buffer in enumerate(buffers))
