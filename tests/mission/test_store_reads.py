import copy
import json
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plainsource import counted, ranges_of
from refusals import refused
from toystore import random_shards, write_store

import tokenloom as tl
from tokenloom.testing import tiny

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


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize(
    "hints", [{}, {"verify": "always"}, {"verify": "never"}, {"gap_bytes": 40}, {"cap_bytes": 24}]
)
def test_any_ranges_equal_slices_of_the_flat_array(root, flat, hints, data):
    store = tl.open(root, cache_bytes=1 << 20, **hints)
    n = len(flat)
    pair = st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted)
    asked = data.draw(st.lists(pair, max_size=12))
    for a, b in asked:
        assert np.array_equal(store.tokens(a, b), flat[a:b])
        assert np.array_equal(store.tokens(a, b, column="loss_mask"), flat[a:b] % 2)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_documents_of_any_index_list_equal_one_by_one(root, shards, data):
    documents = [d for s in shards for d in s]
    store = tl.open(root)
    indices = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=20))
    assert [d.tolist() for d in store.documents(indices)] == [documents[i] for i in indices]
    masks = store.documents(indices, column="loss_mask")
    assert [m.tolist() for m in masks] == [[t % 2 for t in documents[i]] for i in indices]


def test_all_documents_of_a_request_are_asked_for_in_one_call_over_all_shards(root):
    source = counted(root)
    store = tl.open(root, source=source, verify="never", cache_bytes=0)
    store.documents(range(36))
    source.requests.clear()
    store.documents([0, 1, 14, 16, 30, 35])
    assert len([one for one in source.requests if "input_ids" in one[0][0]]) == 1
    assert len({name for name, _, _ in ranges_of(source)}) == 3


def test_counters_come_from_the_seam(root):
    source = counted(root)
    store = tl.open(root, source=source, cache_bytes=0)
    for a in range(0, 300, 37):
        store.tokens(a, a + 20)
    data = ranges_of(source)
    assert store.reads.read_ops == len(data) > 0
    assert store.reads.bytes == sum(size for _, _, size in data)
    assert store.reads.useful_bytes <= store.reads.bytes


def test_each_chunk_is_checked_once_and_later_reads_take_only_what_they_need(root):
    source = counted(root)
    store = tl.open(root, source=source)
    store.tokens(3, 5)
    store.tokens(3, 5)
    sizes = [size for _, _, size in ranges_of(source)]
    assert sizes == [32, 4]  # a whole chunk of 16 ids, then two ids


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


def test_more_shards_than_payloads_may_be_open_still_read(tmp_path):
    shards = [[[i, i + 1]] for i in range(20)]
    write_store(tmp_path / "s", shards)
    with tiny(open_payloads=3):
        run = tl.open(tmp_path / "s", cache_bytes=0).windows(2)
        for rows in ([0], [7, 3], [19], range(20)):
            assert run.batch(rows).tokens.tolist() == [[row, row + 1] for row in rows]


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
    refused(lambda: tl.open(root, verify="sometimes"), tl.ConfigError, "verify", "sometimes")
    refused(lambda: tl.open(root, gap_bytes=-1), tl.ConfigError, "gap_bytes", -1)
    refused(lambda: tl.open(root, cache_bytes=-1), tl.ConfigError, "cache_bytes", -1)
    refused(lambda: tl.open(""), tl.ConfigError, "path")
    refused(lambda: tl.open(root).documents([0.5]), TypeError, "integers")
    refused(lambda: tl.open(root).tokens(0, 1, column="loss_maks"), KeyError, "loss_maks")


def test_a_store_travels_to_another_process_as_its_path(root, flat):
    store = tl.open(root, verify="always")
    again = pickle.loads(pickle.dumps(store))
    assert np.array_equal(again.tokens(0, 30), flat[:30])
    assert len(pickle.dumps(store)) < 600


def test_a_platform_without_preadv_reads_the_same_bytes(root, flat):
    code = """
import os, sys
del os.preadv
import tokenloom as tl
store = tl.open(sys.argv[1])
print(store.tokens(0, store.num_tokens).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code, root], capture_output=True, check=True)
    assert json.loads(done.stdout) == flat.tolist()


@pytest.mark.parametrize("method", ["copy", "deepcopy", "pickle"])
def test_a_store_with_a_source_of_its_own_is_copied_with_it(root, flat, method):
    store = tl.open(root, source=counted(root), cache_bytes=0)
    how = {"pickle": lambda one: pickle.loads(pickle.dumps(one))}
    again = how.get(method, getattr(copy, method, None))(store)
    assert np.array_equal(again.tokens(0, 30), flat[:30])


def test_lengths_of_documents_are_counted_as_a_list_of_them_is(root, shards, cli):
    lengths = np.array([len(d) for s in shards for d in s])
    for limits in ({}, {"short_length_tokens": 8, "offset_chunk_documents": 3}):
        with tiny(**limits):
            found = json.loads(cli("info", root, "--json"))["lengths"]
        assert found["mean"] == lengths.mean()
        assert (found["min"], found["max"]) == (lengths.min(), lengths.max())
        for name, value in found.items():
            if name.startswith("p"):
                assert value == np.percentile(lengths, int(name[1:]))
